//! Producers: they start instances, send events and resume hooks, and repeat what was not answered, as real ones do.

use std::{
    collections::HashMap,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use everstep_broker::{
    Broker, Confirmation, Consume, Declaration, Incoming, Outgoing, Properties, QueueDeclaration, QueueKind,
};
use everstep_coordinator::{EventRequest, Handle, ResumeRequest, StartRequest, WebhookCall};
use everstep_engine::{Answer, mailbox::EventId, start::MessageKey};
use everstep_protocol::{
    Namespace, Payload, Pin, Token,
    hook::{Method, StartHook},
    start::{StartOutcome, StartReply},
    topology,
};
use serde_json::json;
use tokio::{sync::Notify, time::sleep};

use super::{
    TOKENS, TYPES, name,
    program::{Pace, Program},
    schedules::PlannedSchedule,
};
use crate::{
    check::{Seen, Watchers},
    life::Life,
    seed::{Draws, SharedDraws},
    trace::Trace,
};

/// Where producers get their answers.
const REPLIES: &str = "producers.replies";
/// How long a producer waits for an answer before it sends again.
const PATIENCE: Duration = Duration::from_secs(3);

/// A coordinator that can be asked.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) handle: Handle,
    pub(crate) life: Arc<Life>,
}

impl Desk {
    /// The answer, if it comes in time. A process that has died gives none, not even that it is gone: what its tasks let go of when
    /// they are cleared away they let go of in an order that tokio chooses, by what else ran in this program.
    pub(crate) async fn answers<T>(&self, asking: impl Future<Output = T>) -> Option<T> {
        let mut asking = pin!(asking);
        let heard = poll_fn(|cx| if self.life.is_over() { Poll::Pending } else { asking.as_mut().poll(cx) });
        patient(heard).await
    }
}

/// The coordinators that run, by their number.
#[derive(Clone, Debug)]
pub(crate) struct Desks(Arc<Mutex<Vec<Option<Desk>>>>);

impl Desks {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![None; count])))
    }

    pub(crate) fn set(&self, number: usize, desk: Option<Desk>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[number] = desk;
    }

    /// One that runs, if any does.
    pub(crate) fn any(&self, draws: &SharedDraws) -> Option<Desk> {
        let desks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open: Vec<_> = desks.iter().flatten().collect();
        if open.is_empty() { None } else { Some(draws.draw(|draws| (*draws.pick(&open)).clone())) }
    }
}

/// One instance to be started.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) id: String,
    pub(crate) after: Duration,
    pub(crate) program: Program,
    pub(crate) by: By,
    /// So many events of each type follow.
    pub(crate) events: u64,
    /// To which build it is pinned.
    pub(crate) pin: Option<Pin>,
    /// To which build somebody pins it as soon as it is there, when its first task may be out.
    pub(crate) pinned_then: Option<Pin>,
}

/// How a producer starts an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Over HTTP.
    Handle,
    /// By a message, which it repeats until it is answered.
    Message,
    /// By a message, which it forgets when the broker has it: nobody else has it then.
    Forgotten,
}

/// What producers know.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) desks: Desks,
    pub(crate) draws: SharedDraws,
    pub(crate) watchers: Watchers,
    pub(crate) trace: Trace,
    pub(crate) pace: Pace,
    /// How many of them have still something to do.
    pub(crate) busy: Arc<AtomicUsize>,
    replies: Arc<Replies>,
}

/// Answers to messages, by what they answer. Who waits is woken in the order of waiting, which a `watch` leaves to chance.
#[derive(Debug, Default)]
struct Replies {
    heard: Mutex<HashMap<String, StartReply>>,
    came: Notify,
}

impl Replies {
    fn of(&self, id: &str) -> Option<StartReply> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn hear(&self, id: String, reply: StartReply) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).insert(id, reply);
        self.came.notify_waiters();
    }

    async fn wait_for(&self, id: &str) -> StartReply {
        loop {
            let came = self.came.notified();
            if let Some(reply) = self.of(id) {
                return reply;
            }
            came.await;
        }
    }
}

impl Outside {
    pub(crate) fn new(
        broker: Arc<dyn Broker>,
        desks: Desks,
        draws: SharedDraws,
        watchers: Watchers,
        trace: Trace,
        pace: Pace,
    ) -> Self {
        let (busy, replies) = (Arc::default(), Arc::default());
        Self { broker, desks, draws, watchers, trace, pace, busy, replies }
    }

    /// Begins everything that producers do, on this runtime.
    pub(crate) fn begin(&self, planned: Vec<Planned>, schedules: Vec<PlannedSchedule>) {
        tokio::spawn(self.clone().hears());
        for planned in planned {
            self.works(self.clone().produces(planned));
        }
        for planned in schedules {
            self.works(self.clone().keeps(planned));
        }
        let (resumes, calls) = self.draws.draw(|draws| (draws.between(0, 30), draws.between(0, 30)));
        self.works(self.clone().resumes(resumes));
        self.works(self.clone().calls(calls));
    }

    fn works(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.busy.fetch_add(1, Ordering::Relaxed);
        let busy = self.busy.clone();
        tokio::spawn(async move {
            work.await;
            busy.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Reads the answers to messages.
    async fn hears(self) {
        let queue: Declaration = QueueDeclaration::new(REPLIES, QueueKind::Classic).into();
        while self.broker.declare(vec![queue.clone()]).await.is_err() {
            sleep(Duration::from_millis(100)).await;
        }
        let mut consumer = loop {
            match self.broker.consume(Consume::new(REPLIES, 100)).await {
                Ok(consumer) => break consumer,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        };
        loop {
            let Incoming::Delivery(delivery) = consumer.next().await else { continue };
            if let (Some(to), Ok(reply)) =
                (delivery.properties.correlation_id.clone(), serde_json::from_slice(&delivery.body))
            {
                self.replies.hear(to, reply);
            }
            delivery.ack();
        }
    }

    async fn produces(self, planned: Planned) {
        sleep(planned.after).await;
        let accepted = loop {
            let answer = match planned.by {
                By::Handle => self.asks(&planned).await,
                By::Message => self.publishes(&planned).await,
                By::Forgotten if self.confirms(&planned).await.is_some() => break true,
                By::Forgotten => None,
            };
            let again = match answer.map(|reply| reply.outcome) {
                Some(StartOutcome::Created | StartOutcome::Exists) => break true,
                Some(StartOutcome::Conflict | StartOutcome::Rejected) => break false,
                Some(_) | None => self.draws.draw(|draws| draws.between(50, 1_500)),
            };
            sleep(Duration::from_millis(again)).await;
        };
        let (id, word) = (&planned.id, if accepted { "accepted" } else { "not accepted" });
        self.trace.note("producer", format_args!("{id} is {word}"));
        if accepted {
            self.watchers.see(&Seen::Accepted(&name(&planned.id)));
            self.pins(&planned).await;
            futures::future::join_all((0..TYPES).map(|kind| self.sends(&planned, kind))).await;
        }
    }

    /// Pins what was just started, where that is planned.
    async fn pins(&self, planned: &Planned) {
        let Some(pin) = &planned.pinned_then else { return };
        for _ in 0..5 {
            if let Some(desk) = self.desks.any(&self.draws) {
                let pinning = desk.handle.pin(name(&planned.id), "then".to_owned(), Some(pin.clone()));
                if let Some(Ok(_)) = desk.answers(pinning).await {
                    return;
                }
            }
            sleep(self.pause(300)).await;
        }
    }

    async fn asks(&self, planned: &Planned) -> Option<StartReply> {
        let hook = planned.program.token.map(|token| StartHook::new(text(token)));
        let name = name(&planned.id);
        let request = StartRequest {
            namespace: name.namespace.clone(),
            workflow: name.workflow.clone(),
            id: Some(name.id),
            input: Payload::encode(&planned.program).ok()?,
            retention: everstep_protocol::start::Retention::default(),
            pin: planned.pin.clone(),
            strict: None,
            attributes: Vec::new(),
            hook,
            message: Some(MessageKey {
                namespace: name.namespace,
                workflow: name.workflow,
                app_id: String::new(),
                message_id: planned.id.clone(),
            }),
        };
        let desk = self.desks.any(&self.draws)?;
        desk.answers(desk.handle.start(request)).await?.ok()
    }

    async fn publishes(&self, planned: &Planned) -> Option<StartReply> {
        self.confirms(planned).await?;
        patient(self.replies.wait_for(&planned.id)).await
    }

    /// Publishes a start until the broker has it.
    async fn confirms(&self, planned: &Planned) -> Option<()> {
        let mut body = json!({ "workflow": super::WORKFLOW, "id": planned.id, "input": planned.program });
        if let Some(pin) = &planned.pin {
            body["pin"] = json!(pin);
        }
        if let Some(token) = planned.program.token {
            body["token"] = json!(text(token).as_str());
        }
        let message = Outgoing::to_exchange(
            topology::START_EXCHANGE,
            Namespace::default().as_str(),
            body.to_string().into_bytes(),
        )
        .with(Properties {
            message_id: Some(planned.id.clone()),
            correlation_id: Some(planned.id.clone()),
            reply_to: (planned.by == By::Message).then(|| REPLIES.to_owned()),
            persistent: true,
            ..Properties::default()
        });
        let sent = self.broker.send_confirmed(vec![message], true).await.ok()?;
        (sent[..] == [Confirmation::Confirmed]).then_some(())
    }

    /// Events of one type, one after the other.
    async fn sends(&self, planned: &Planned, kind: u64) {
        for number in 1..=planned.events {
            sleep(self.pause(self.pace.pause())).await;
            while let Some(Answer::NotFound) | None = self.sends_one(&planned.id, kind, number).await {
                sleep(self.pause(1_000)).await;
            }
        }
    }

    async fn sends_one(&self, id: &str, kind: u64, number: u64) -> Option<Answer> {
        let event = EventRequest {
            kind: format!("e{kind}").parse().ok()?,
            key: None,
            id: EventId { app_id: String::new(), id: format!("{kind}-{number}") },
            payload: Payload::encode(&number).ok()?,
        };
        let desk = self.desks.any(&self.draws)?;
        desk.answers(desk.handle.send_event(name(id), event)).await?.ok()
    }

    /// Resumes whoever has a token, or nobody.
    async fn resumes(self, count: u64) {
        for number in 0..count {
            sleep(self.pause(self.pace.pause())).await;
            let token = text(self.draws.draw(|draws| draws.below(TOKENS)));
            let id = format!("r{number}");
            for _ in 0..5 {
                let request = ResumeRequest {
                    namespace: Namespace::default(),
                    token: token.clone(),
                    id: id.clone(),
                    payload: Payload::from_trusted(number.to_string()),
                };
                match self.desks.any(&self.draws) {
                    Some(desk)
                        if matches!(desk.answers(desk.handle.resume_hook(request)).await, Some(Ok(_))) =>
                    {
                        break;
                    }
                    Some(_) | None => sleep(self.pause(1_000)).await,
                }
            }
        }
    }

    /// Calls webhooks. Whoever is not answered calls again, under the same id.
    async fn calls(self, count: u64) {
        for number in 0..count {
            sleep(self.pause(self.pace.pause())).await;
            let call = WebhookCall {
                namespace: Namespace::default(),
                token: text(self.draws.draw(|draws| draws.below(TOKENS))),
                id: format!("c{number}"),
                method: Method::Post,
                query: Vec::new(),
                headers: vec![("content-type".to_owned(), "application/json".to_owned())],
                body: number.to_string().into_bytes().into(),
            };
            for _ in 0..5 {
                match self.desks.any(&self.draws) {
                    Some(desk) if matches!(desk.answers(desk.handle.webhook(&call)).await, Some(Ok(_))) => {
                        break;
                    }
                    Some(_) | None => sleep(self.pause(1_000)).await,
                }
            }
        }
    }

    fn pause(&self, most: u64) -> Duration {
        Duration::from_millis(self.draws.draw(|draws: &mut Draws| draws.between(1, most)))
    }
}

/// The answer, if it comes in time.
async fn patient<T>(asking: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(PATIENCE, asking).await.ok()
}

fn text(token: u64) -> Token {
    Token::new(format!("t{token}")).expect("a short word is a token")
}
