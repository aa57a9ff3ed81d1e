//! What the HTTP API, the CLI's embedded mode and tests ask of a running coordinator.

mod access;
pub(crate) mod act;
mod attention;
pub(crate) mod bulk;
mod control;
mod doctor;
mod hook;
mod list;
mod schedule;
mod webhook;

pub use act::{Each, IDS_MAX};
pub use attention::Decision;
pub use bulk::{BulkBegun, BulkCount};
pub(crate) use hook::check_plain;
pub use hook::{ResumeRequest, Resumed};
pub use list::Wanted;
pub use schedule::{BackfillRequest, OfSchedule, ScheduleError, Triggered};
pub use webhook::{Uncarried, WebhookAnswer, WebhookCall};

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use everstep_engine::{
    Answer, Input, Status, What,
    access::Asker,
    mailbox::{EventId, SentEvent},
    start::{MessageKey, NameKey, Start},
};
use everstep_protocol::{
    Attribute, CoordinatorId, EventKey, EventType, Fingerprint, Incarnation, InstanceId, InstanceUid,
    Namespace, Payload, Pin, WorkflowName,
    hook::{HookError, StartHook},
    limits::Limits,
    start::{Retention, StartReply},
};
use everstep_store::{InstanceView, Store};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    arrival::{Arrival, Told},
    error::Error,
    reply,
    shared::Shared,
};

/// How long a caller waits for a decision before it is told "unknown".
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A loop that has not turned for so long is dead.
const TURNS_WITHIN: Duration = Duration::from_secs(10);

/// How soon the end of an instance is asked for again, at first and at last.
const ASK_FIRST: Duration = Duration::from_millis(10);
const ASK_LAST: Duration = Duration::from_millis(250);

/// The most starts in one batch (rule P27).
pub const BATCH_STARTS_MAX: usize = 1_000;

/// A handle on a running coordinator, and for whom it acts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
    by: Arc<Asker>,
}

/// A start that passed the checks at the edge.
#[derive(Clone, Debug)]
pub struct StartRequest {
    /// Namespace.
    pub namespace: Namespace,
    /// Workflow.
    pub workflow: WorkflowName,
    /// The instance's id; generated if absent.
    pub id: Option<InstanceId>,
    /// The input.
    pub input: Payload,
    /// How long the instance is kept after its end, where it differs from what its workflow says (rule P32).
    pub retention: Retention,
    /// To which build the instance is pinned (rule P40). Default: none.
    pub pin: Option<Pin>,
    /// Whether the start is refused if no worker serves the workflow. Default: as the setting `strict_starts` says (rule P35).
    pub strict: Option<bool>,
    /// What the instance can be found by (rule P37).
    pub attributes: Vec<Attribute>,
    /// The token that it claims, so that no other instance can have it (rule H1).
    pub hook: Option<StartHook>,
    /// What a resend of the same request is known by, if it has no id of its own.
    pub message: Option<MessageKey>,
}

/// An event that passed the checks at the edge.
#[derive(Clone, Debug)]
pub struct EventRequest {
    /// Its type.
    pub kind: EventType,
    /// Its correlation key.
    pub key: Option<EventKey>,
    /// By what a repetition is known (rule P24).
    pub id: EventId,
    /// What it says.
    pub payload: Payload,
}

impl Handle {
    /// One of the program that runs the coordinator.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, by: Arc::new(Asker::program()) }
    }

    /// The same for somebody else: what they do is recorded with them (rule A6).
    #[must_use]
    pub fn acting_for(&self, by: Asker) -> Self {
        Self { shared: Arc::clone(&self.shared), by: Arc::new(by) }
    }

    /// The id of this coordinator.
    #[must_use]
    pub fn coordinator(&self) -> CoordinatorId {
        self.shared.id
    }

    /// Starts an instance, and answers after the commit.
    ///
    /// Errors: [`Error::Unknown`] when the decision did not come in time; repeating with the same id tells.
    pub async fn start(&self, start: StartRequest) -> Result<StartReply, Error> {
        let start = prepare(&self.shared, start)?;
        look_for_workers(&self.shared, &start).await;
        let workflow = start.name.workflow.clone();
        let told = self.ask("start an instance", Input::Start(Box::new(start))).await?;
        let id = told.id.as_ref().map(InstanceId::as_str);
        Ok(reply::start(&told.answer, workflow.as_str(), id))
    }

    /// Starts up to [`BATCH_STARTS_MAX`] instances: all are checked before any is created, and the answers come in order, after
    /// the commits. An item that was not decided in time is answered "unknown", and the others stand.
    ///
    /// Errors: [`Error::BatchSize`] and [`Error::BatchItem`]; nothing was created, and repeating it cannot help.
    pub async fn start_batch(&self, starts: Vec<StartRequest>) -> Result<Vec<StartReply>, Error> {
        const DOING: &str = "start a batch";
        if !(1..=BATCH_STARTS_MAX).contains(&starts.len()) {
            return Err(Error::BatchSize(starts.len()));
        }
        let repeatable: Vec<_> =
            starts.iter().map(|start| (start.id.is_some(), start.message.is_some())).collect();
        let prepare = |(index, start)| {
            prepare(&self.shared, start).map_err(|error| Error::BatchItem { index, error: Box::new(error) })
        };
        let starts = starts.into_iter().enumerate().map(prepare).collect::<Result<Vec<_>, _>>()?;
        if let Some(start) = starts.iter().find(|start| !is_served(&self.shared, start)) {
            look_for_workers(&self.shared, start).await;
        }
        let answers = starts.into_iter().zip(repeatable).map(async |(start, (has_id, has_message))| {
            let name = start.name.clone();
            let told = match self.ask(DOING, Input::Start(Box::new(start))).await {
                Ok(told) => told,
                Err(Error::Undecided { code, reason }) => {
                    let (workflow, id) = (name.workflow.to_string(), name.id.to_string());
                    return reply::rejected(&code, &reason, Some(workflow), Some(id));
                }
                Err(_) => {
                    // Under a message's name the instance may be an earlier one, with another id.
                    let id = (has_id || !has_message).then_some(name.id.as_str());
                    return reply::unknown(name.workflow.as_str(), id, has_id || has_message);
                }
            };
            reply::start(&told.answer, name.workflow.as_str(), told.id.as_ref().map(InstanceId::as_str))
        });
        Ok(futures::future::join_all(answers).await)
    }

    /// Sends an event to an instance, and answers after the commit. The same id gets its first answer again (rule P24).
    ///
    /// Errors: [`Error::Unknown`] when the decision did not come in time; repeating with the same id is safe.
    pub async fn send_event(&self, name: NameKey, event: EventRequest) -> Result<Answer, Error> {
        let event = prepare_event(event, self.shared.settings.limits)?;
        let Some(instance) = self.shared.store.find(&name).await? else { return Ok(Answer::NotFound) };
        Ok(self.ask("send an event", Input::On { instance, what: What::Event(event) }).await?.answer)
    }

    /// Waits until an instance has ended, at most so long, and gives what is known of it then; none if there is no such instance.
    /// Whether it has ended its view says. It asks the store, more and more rarely, and holds nothing meanwhile.
    pub async fn ended(&self, name: &NameKey, within: Duration) -> Result<Option<InstanceView>, Error> {
        let deadline = tokio::time::Instant::now() + within;
        let mut pause = ASK_FIRST;
        loop {
            // What is asked again and again is no more than the status; all of it once.
            let is_late = tokio::time::Instant::now() >= deadline;
            if is_late || self.shared.store.status(name).await?.is_none_or(Status::is_ended) {
                let view = self.shared.store.instance(name).await?;
                if is_late || view.as_ref().is_none_or(|view| view.ended_at.is_some()) {
                    return Ok(view);
                }
            }
            if self.shared.is_stopping() {
                return Err(Error::Stopping { doing: "wait for an instance's end" });
            }
            tokio::time::sleep_until((tokio::time::Instant::now() + pause).min(deadline)).await;
            pause = (pause * 2).min(ASK_LAST);
        }
    }

    /// The store, for views.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// The installation's limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.shared.settings.limits
    }

    /// A place among the streams that are served at once; none while all are taken.
    pub(crate) fn stream(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.shared.streams).try_acquire_owned().ok()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.shared.incarnation
    }

    /// The coordinator's metrics.
    #[must_use]
    pub fn metrics(&self) -> &prometheus::Registry {
        &self.shared.metrics.registry
    }

    /// What only a restart mends, in words: an outage of store or broker is no reason for one. Waits for nothing and locks nothing.
    #[must_use]
    pub fn dead(&self) -> Vec<&'static str> {
        let turned = Duration::from_millis(self.shared.turned_ms.load(Ordering::Relaxed));
        let turns = self.shared.began.elapsed().saturating_sub(turned) < TURNS_WITHIN;
        if turns { Vec::new() } else { vec!["the loop does not turn"] }
    }

    /// What else keeps it from working, in words. Asks nobody: of the store it is what the coordinator saw last, seconds ago.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let parts = [
            (!self.shared.store_answers.load(Ordering::Relaxed)).then_some("the store is away"),
            self.shared.broker.health().borrow().outage(),
            self.shared.is_stopping().then_some("it is stopping"),
        ];
        parts.into_iter().flatten().collect()
    }

    /// An operation on whoever has a name.
    async fn on(&self, doing: &'static str, name: &NameKey, what: What) -> Result<Answer, Error> {
        match self.shared.store.find(name).await? {
            Some(instance) => self.of(doing, instance, what).await,
            None => Ok(Answer::NotFound),
        }
    }

    /// An operation on a known instance.
    async fn of(&self, doing: &'static str, instance: InstanceUid, what: What) -> Result<Answer, Error> {
        let by = Arc::clone(&self.by);
        Ok(self.ask(doing, Input::Asked { by, instance, what }).await?.answer)
    }

    async fn ask(&self, doing: &'static str, input: Input) -> Result<Told, Error> {
        if self.shared.is_stopping() {
            return Err(Error::Stopping { doing });
        }
        let (arrival, answer) = Arrival::answered(input);
        self.shared.submit(arrival);
        match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(told)) => told,
            Ok(Err(_)) | Err(_) => Err(Error::Unknown { doing }),
        }
    }
}

/// Checks an event's size and takes its fingerprint.
pub(crate) fn prepare_event(event: EventRequest, limits: Limits) -> Result<SentEvent, Error> {
    let refused = |reason: String| {
        Error::Store(everstep_store::Error::new(everstep_store::ErrorKind::Refused, "check an event", reason))
    };
    everstep_protocol::event::check_payload(&event.payload, limits.event_bytes)
        .map_err(|error| refused(error.to_string()))?;
    let fingerprint = Fingerprint::of(&event.payload).map_err(|error| refused(error.to_string()))?;
    let EventRequest { kind, key, id, payload } = event;
    Ok(SentEvent { id, kind, key, payload, fingerprint })
}

/// Whether it matters to a start that no session is known to serve it.
pub(crate) fn is_served(shared: &Shared, start: &Start) -> bool {
    let build = start.pin.as_ref().and_then(Pin::build);
    !start.strict || shared.room().serves(&start.name.namespace, &start.name.workflow, build)
}

/// A start that would be refused because no session is known here to serve it: one may have been opened elsewhere.
pub(crate) async fn look_for_workers(shared: &Shared, start: &Start) {
    if !is_served(shared, start) {
        crate::service::refresh_sessions(shared).await;
    }
}

/// Whether a start may have this hook: asked once, whichever way the start has come.
pub(crate) fn check_hook(shared: &Shared, hook: Option<&StartHook>) -> Result<(), HookError> {
    let Some(hook) = hook else { return Ok(()) };
    let (metadata, schema) = (hook.metadata.as_ref(), hook.schema.as_ref());
    everstep_engine::hook::acceptable(metadata, schema, |schema| shared.schemas.usable(schema))
}

/// Gives a start what only the shell has: ids, random bytes, the fingerprint.
pub(crate) fn prepare(shared: &Shared, start: StartRequest) -> Result<Start, Error> {
    let refused = |reason: String| {
        Error::Store(everstep_store::Error::new(everstep_store::ErrorKind::Refused, "check a start", reason))
    };
    everstep_protocol::start::check_input(&start.input, shared.settings.limits.input_bytes)
        .map_err(|error| refused(error.to_string()))?;
    everstep_protocol::attribute::check(&start.attributes).map_err(|error| refused(error.to_string()))?;
    let fingerprint = Fingerprint::of(&start.input).map_err(|error| refused(error.to_string()))?;
    check_hook(shared, start.hook.as_ref())?;
    let trace = crate::traces::of_start(&start.workflow);
    let uid = shared.chance.instance();
    let id =
        start.id.unwrap_or_else(|| InstanceId::new(uid.to_string()).expect("a UUID is a valid instance id"));
    Ok(Start {
        uid,
        name: NameKey { namespace: start.namespace, workflow: start.workflow, id },
        input: start.input,
        fingerprint,
        seed: shared.chance.seed(),
        retention: start.retention,
        pin: start.pin,
        strict: start.strict.unwrap_or(shared.settings.strict_starts),
        attributes: start.attributes,
        message: start.message,
        hook: start.hook,
        trace,
        letter: None,
    })
}
