//! Event messages: checked here, at the edge, like starts (rule W40), and handed on in the order in which they came (rule P22).
//!
//! No order holds between the queues of starts and events, so an event may come before the start of its instance: it is looked
//! up again for a while before it is "not found" (rule P24), and those for the same instance wait behind it.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use everstep_broker::{Consume, Delivery, Incoming, Message, QueueDeclaration, QueueKind, Settle};
use everstep_engine::{
    Input, What,
    mailbox::{EventId, SentEvent},
    start::NameKey,
};
use everstep_protocol::{
    InstanceUid, Namespace,
    event::{EventError, EventMessage, SentMessage},
    start::Encoding,
    topology,
};
use tokio::time::Instant;

use super::starts::{Refusal, message_name, reject, reply_to};
use crate::{
    arrival::{Arrival, Debt, ReplyTo, Share},
    handle::{EventRequest, prepare_event},
    reply,
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

/// An event whose instance was not found yet.
struct Waiting {
    event: Checked,
    message: Message,
    settle: Settle,
    since: Instant,
}

struct Checked {
    name: NameKey,
    sent: SentEvent,
    reply_to: Option<ReplyTo>,
}

struct Desk<'a> {
    shared: &'a Shared,
    namespace: &'a Namespace,
    waiting: VecDeque<Waiting>,
}

impl Desk<'_> {
    async fn take(&mut self, delivery: Delivery) {
        self.shared.metrics.messages.with_label_values(&["event"]).inc();
        let (message, settle) = delivery.split();
        let event = match check(self.shared, self.namespace, &message) {
            Ok(event) => event,
            Err(refusal) => return reject(self.shared, self.namespace, &message, settle, refusal),
        };
        let behind = self.waiting.iter().any(|waiting| waiting.event.name == event.name);
        match if behind { None } else { self.find(&event.name).await } {
            Some(instance) => self.submit(instance, event, settle),
            None => self.waiting.push_back(Waiting { event, message, settle, since: Instant::now() }),
        }
    }

    /// Looks again for the instances of those that wait, in order.
    async fn again(&mut self) {
        let mut found: HashMap<NameKey, Option<InstanceUid>> = HashMap::new();
        for waiting in std::mem::take(&mut self.waiting) {
            let name = &waiting.event.name;
            let instance = if let Some(instance) = found.get(name) {
                *instance
            } else {
                let instance = self.find(name).await;
                found.insert(name.clone(), instance);
                instance
            };
            match instance {
                Some(instance) => self.submit(instance, waiting.event, waiting.settle),
                None if waiting.since.elapsed() >= FOUND_WITHIN => self.not_found(waiting),
                None => self.waiting.push_back(waiting),
            }
        }
    }

    async fn find(&self, name: &NameKey) -> Option<InstanceUid> {
        self.shared.store.find(name).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the instance of an event was not looked up; tried again");
            None
        })
    }

    fn submit(&self, instance: InstanceUid, event: Checked, settle: Settle) {
        let Checked { name, sent, reply_to } = event;
        let message = Share::divide(settle, 1).pop();
        let debt = Debt { message, reply: None, reply_to, event_to: Some(name) };
        self.shared.submit(Arrival { input: Input::On { instance, what: What::Event(sent) }, debt, held: 0 });
    }

    fn not_found(&self, waiting: Waiting) {
        let NameKey { workflow, id, .. } = &waiting.event.name;
        let refusal = Refusal {
            code: reply::NOT_FOUND,
            reason: format!("there is no instance {id} of workflow {workflow}; the event was not kept"),
            reply_to: waiting.event.reply_to,
        };
        reject(self.shared, self.namespace, &waiting.message, waiting.settle, refusal);
    }
}

fn check(shared: &Shared, namespace: &Namespace, message: &Message) -> Result<Checked, Refusal> {
    let properties = &message.properties;
    let reply_to = reply_to(properties)?;
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
    let SentMessage::Event(event) = parsed.map_err(|error| refuse(&error))? else {
        let reason = "hooks are not there yet".to_owned();
        return Err(Refusal { code: "not_supported", reason, reply_to });
    };
    let EventMessage { workflow, id, kind, key, payload } = event;
    let known_by = message_name(properties).ok_or_else(|| refuse(&EventError::NoIdentity))?;
    let event_id = EventId { app_id: known_by.app_id, id: known_by.message_id };
    let request = EventRequest { kind, key, id: event_id, payload };
    let sent = prepare_event(request, limits).map_err(|error| Refusal {
        code: "input",
        reason: error.to_string(),
        reply_to: reply_to.clone(),
    })?;
    Ok(Checked { name: NameKey { namespace: namespace.clone(), workflow, id }, sent, reply_to })
}
