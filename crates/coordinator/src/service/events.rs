//! Event messages: checked here, at the edge, like starts (rule W40), and handed on in the order in which they came (rule P22).
//!
//! No order holds between the queues of starts and events, so an event may come before the start of its instance: it is looked
//! up again for a while before it is "not found" (rule P24), and those for the same instance wait behind it.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use everstep_broker::{Consume, Delivery, Incoming, Message, QueueDeclaration, QueueKind, Settle};
use everstep_engine::{
    Answer, Input, What,
    mailbox::{EventId, SentEvent},
    start::NameKey,
};
use everstep_protocol::{
    InstanceUid, Namespace, Token,
    event::{EventError, EventMessage, ResumeMessage, SentMessage},
    start::Encoding,
    topology,
};
use tokio::time::Instant;

use super::starts::{Refusal, check_app_id, message_name, reject, reply_to};
use crate::{
    arrival::{Arrival, Debt, ReplyTo, Share},
    handle::{EventRequest, Handle, ResumeRequest, Resumed, prepare_event},
    reply::{self, Replies},
    shared::Shared,
};

/// How long the instance of an event is looked for.
const FOUND_WITHIN: Duration = Duration::from_secs(5);
/// How often.
const AGAIN: Duration = Duration::from_millis(200);

/// Declares the event queue of a namespace. One coordinator reads it at a time, so that events stay in order.
pub(crate) fn queue(namespace: &Namespace) -> QueueDeclaration {
    let mut queue = QueueDeclaration::new(topology::event_queue(namespace), QueueKind::Quorum);
    queue.bind = vec![(topology::EVENT_EXCHANGE.to_owned(), namespace.to_string())];
    queue.dead_letter = Some(topology::dead_queue(namespace));
    queue.single_active_consumer = true;
    queue
}

/// Reads the event queue of one namespace, except while its rejected records are at their bound (rule W17).
pub(crate) async fn run(shared: Arc<Shared>, namespace: Namespace) -> Result<(), crate::Error> {
    let consume = Consume { queue: queue(&namespace).into(), prefetch: shared.settings.start_prefetch };
    loop {
        shared.bound.open(&namespace).await;
        let mut consumer = shared.broker.consume(consume.clone()).await?;
        let mut desk = Desk { shared: &shared, namespace: &namespace, waiting: VecDeque::new() };
        loop {
            tokio::select! {
                biased;
                () = shared.bound.stopped(&namespace) => break,
                incoming = consumer.next() => match incoming {
                    Incoming::Delivery(delivery) => desk.take(delivery).await,
                    // What was delivered before comes again.
                    _ => desk.waiting.clear(),
                },
                () = tokio::time::sleep(AGAIN), if !desk.waiting.is_empty() => desk.again().await,
            }
        }
    }
}

/// An event or a payload whose instance was not found yet.
struct Waiting {
    sent: Checked,
    message: Message,
    settle: Settle,
    since: Instant,
}

struct Checked {
    to: To,
    reply_to: Option<ReplyTo>,
}

/// What is sent to whom.
enum To {
    Instance(NameKey, SentEvent),
    /// With the application id of the message, by which its id is apart from those of others (rule H48).
    Hook(String, ResumeRequest),
}

/// Whom messages go to in their order.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Addressee {
    Instance(NameKey),
    Hook(Token),
}

impl Checked {
    fn addressee(&self) -> Addressee {
        match &self.to {
            To::Instance(name, _) => Addressee::Instance(name.clone()),
            To::Hook(_, request) => Addressee::Hook(request.token.clone()),
        }
    }
}

struct Desk<'a> {
    shared: &'a Arc<Shared>,
    namespace: &'a Namespace,
    waiting: VecDeque<Waiting>,
}

impl Desk<'_> {
    async fn take(&mut self, delivery: Delivery) {
        self.shared.metrics.messages.inc("event");
        let (message, settle) = delivery.split();
        let sent = match check(self.shared, self.namespace, &message) {
            Ok(sent) => sent,
            Err(refusal) => return reject(self.shared, self.namespace, &message, settle, refusal),
        };
        let to = sent.addressee();
        let behind = self.waiting.iter().any(|waiting| waiting.sent.addressee() == to);
        let waiting = Waiting { sent, message, settle, since: Instant::now() };
        let left = if behind { Some(waiting) } else { self.reach(waiting).await };
        self.waiting.extend(left);
    }

    /// Looks again for the instances of those that wait, in order.
    async fn again(&mut self) {
        let mut missed: HashSet<Addressee> = HashSet::new();
        for waiting in std::mem::take(&mut self.waiting) {
            let to = waiting.sent.addressee();
            let left = if missed.contains(&to) { Some(waiting) } else { self.reach(waiting).await };
            let Some(waiting) = left else { continue };
            missed.insert(to);
            if waiting.since.elapsed() >= FOUND_WITHIN {
                self.not_found(waiting);
            } else {
                self.waiting.push_back(waiting);
            }
        }
    }

    /// Hands a message to whom it is for. Gives it back if that one is not there, or not yet.
    async fn reach(&self, waiting: Waiting) -> Option<Waiting> {
        match &waiting.sent.to {
            To::Instance(name, _) => match self.find(name).await {
                Some(instance) => {
                    self.submit(instance, waiting);
                    None
                }
                None => Some(waiting),
            },
            To::Hook(app_id, request) => {
                let (app_id, request) = (app_id.clone(), request.clone());
                self.resume(&app_id, request, waiting).await
            }
        }
    }

    async fn find(&self, name: &NameKey) -> Option<InstanceUid> {
        self.shared.store.find(name).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the instance of an event was not looked up; tried again");
            None
        })
    }

    fn submit(&self, instance: InstanceUid, waiting: Waiting) {
        let Waiting { sent: Checked { to, reply_to }, settle, .. } = waiting;
        let To::Instance(name, sent) = to else { return };
        let message = Share::divide(settle, 1).pop();
        let debt = Debt { message, reply_to, event_to: Some(name), ..Debt::default() };
        self.shared.submit(Arrival { input: Input::On { instance, what: What::Event(sent) }, debt, held: 0 });
    }

    /// A payload is durable before the next message is looked at, so that they stay in order wherever the token goes.
    async fn resume(&self, app_id: &str, request: ResumeRequest, waiting: Waiting) -> Option<Waiting> {
        let handle = Handle::new(Arc::clone(self.shared));
        // A store that is away, or a token that moves from hand to hand, is no reason to give the message up.
        let resumed = loop {
            match handle.resume_hook_of(app_id, request.clone()).await {
                Ok(Resumed::Moved) => tokio::time::sleep(AGAIN).await,
                Err(error) if error.is_retry_safe() => {
                    tracing::warn!(%error, "a payload of a hook was not decided; it is tried again");
                    tokio::time::sleep(AGAIN).await;
                }
                resumed => break resumed,
            }
        };
        let owner = match resumed {
            Ok(Resumed::Accepted { owner }) => owner,
            Ok(Resumed::NotFound) => return Some(waiting),
            Ok(Resumed::IdTaken) => {
                let reason = "the hook was resumed with another payload under this id; this one was not kept";
                self.refuse(waiting, "resume_id_taken", reason.to_owned());
                return None;
            }
            Ok(Resumed::Unfit(misfit)) => {
                self.refuse(waiting, reply::PAYLOAD_MISFIT, misfit.to_string());
                return None;
            }
            Ok(Resumed::MailboxFull) => {
                let reason = reply::refused_event(&Answer::MailboxFull).unwrap_or_default();
                self.refuse(waiting, reply::MAILBOX_FULL, reason.to_owned());
                return None;
            }
            Ok(Resumed::Moved) | Err(_) => {
                tracing::warn!(?resumed, "a payload of a hook was not decided; its message comes again");
                waiting.settle.requeue();
                return None;
            }
        };
        let Waiting { sent: Checked { reply_to, .. }, settle, .. } = waiting;
        let messages = Share::divide(settle, 1);
        match reply_to {
            None => messages.into_iter().for_each(Share::done),
            Some(to) => {
                let replies = vec![reply::message(&to, &reply::resumed(owner))];
                Replies { replies, messages }.hand_over(self.shared).await;
            }
        }
        None
    }

    fn refuse(&self, waiting: Waiting, code: &'static str, reason: String) {
        let refusal = Refusal { code, reason, reply_to: waiting.sent.reply_to };
        reject(self.shared, self.namespace, &waiting.message, waiting.settle, refusal);
    }

    fn not_found(&self, waiting: Waiting) {
        let (code, reason) = match &waiting.sent.to {
            To::Instance(NameKey { workflow, id, .. }, _) => (
                reply::NOT_FOUND,
                format!("there is no instance {id} of workflow {workflow}; the event was not kept"),
            ),
            To::Hook(..) => (
                reply::HOOK_NOT_FOUND,
                "no open instance has a hook with this token; the payload was not kept".to_owned(),
            ),
        };
        self.refuse(waiting, code, reason);
    }
}

fn check(shared: &Shared, namespace: &Namespace, message: &Message) -> Result<Checked, Refusal> {
    let properties = &message.properties;
    let reply_to = reply_to(properties)?;
    check_app_id(properties, reply_to.as_ref())?;
    let refuse = |error: &EventError| Refusal {
        code: error.code(),
        reason: error.to_string(),
        reply_to: reply_to.clone(),
    };
    let encoding = Encoding::of(properties.content_type.as_deref()).ok_or_else(|| {
        let text = properties.content_type.clone().unwrap_or_default();
        refuse(&EventError::ContentType(text))
    })?;
    let limits = shared.settings.limits;
    let parsed = SentMessage::parse(encoding, &message.body, limits.event_bytes);
    let sent = parsed.map_err(|error| refuse(&error))?;
    let known_by = message_name(properties).ok_or_else(|| refuse(&EventError::NoIdentity))?;
    let event = match sent {
        SentMessage::Event(event) => event,
        SentMessage::Resume(ResumeMessage { token, payload }) => {
            let (namespace, id) = (namespace.clone(), known_by.message_id);
            let request = ResumeRequest { namespace, token, id, payload };
            let to = To::Hook(known_by.app_id, request);
            return Ok(Checked { to, reply_to });
        }
    };
    let EventMessage { workflow, id, kind, key, payload } = event;
    let event_id = EventId { app_id: known_by.app_id, id: known_by.message_id };
    let request = EventRequest { kind, key, id: event_id, payload };
    let sent = prepare_event(request, limits).map_err(|error| Refusal {
        code: "input",
        reason: error.to_string(),
        reply_to: reply_to.clone(),
    })?;
    let name = NameKey { namespace: namespace.clone(), workflow, id };
    Ok(Checked { to: To::Instance(name, sent), reply_to })
}
