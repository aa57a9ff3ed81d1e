//! Where a schedule stands: what is kept beside what was asked for.

use everstep_protocol::{InstanceId, Millis, Timestamp, WorkflowName};
use serde::{Deserialize, Serialize};

/// The last things that happened are kept, so many.
const RECENT_MAX: usize = 20;
/// So many open instances are kept in mind; of more the oldest are let go.
const OPEN_MAX: usize = 100;
/// So many spans that are done are known again when they are asked for once more.
const MADE_UP_MAX: usize = 100;

/// Where a schedule stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Due times up to here are settled: started, waiting, skipped or missed.
    pub settled: Timestamp,
    /// While it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
    /// Due times that are being started. They were chosen under the definition that there was; it is not replaced before they are done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Due>,
    /// Due times that wait for the end of what is open, or for their jitter while the schedule was changed or paused, in their order. They are
    /// started as the schedule says then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<Due>,
    /// Instances that it has started and of whose end it does not know, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<Run>,
    /// Of those, the ones that a later due time asked to end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stopping: Vec<InstanceId>,
    /// Spans that people want to have made up for, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backfills: Vec<Backfill>,
    /// By what requests for spans are known that are done or were given up, newest last: the same request again is the same one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made_up: Vec<String>,
    /// Due times that count against the limit.
    pub taken: u64,
    /// What happened so far.
    pub counts: Counts,
    /// What happened last, newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<Action>,
}

/// Since when a schedule is paused, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// The moment.
    pub at: Timestamp,
    /// When it was to be started, which is later by the jitter.
    pub start_at: Timestamp,
    /// Why it is started.
    pub kind: DueKind,
}

/// Why a due time is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DueKind {
    /// It has come.
    Planned,
    /// It lies in a span that somebody wants to have made up for, and is started after the one before.
    Backfill,
    /// The same, beside the others.
    BackfillBeside,
}

/// An instance that a schedule has started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its workflow: a schedule may start another one by now.
    pub workflow: WorkflowName,
    /// Its id.
    pub id: InstanceId,
    /// When it was started.
    pub since: Timestamp,
}

/// A span that is being made up for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backfill {
    /// By what the request is known.
    pub operation: String,
    /// Due times up to here are done.
    pub settled: Timestamp,
    /// Due times before this are in it.
    pub until: Timestamp,
    /// They are started side by side, not one after the other.
    pub beside: bool,
}

/// How often each thing has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Instances were started.
    pub started: u64,
    /// The instance was there already.
    pub existed: u64,
    /// A start was refused.
    pub refused: u64,
    /// A due time was skipped, since an earlier one was still open or too many waited.
    pub skipped: u64,
    /// A due time was missed: nobody started it in time.
    pub missed: u64,
}

/// What happened to a due time or a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// An instance was started.
    Started,
    /// It was there already.
    Existed,
    /// The start was refused.
    Refused,
    /// An earlier instance was still open.
    Overlap,
    /// As many as may wait did.
    QueueFull,
    /// A newer due time took its place.
    Replaced,
    /// Nobody started it in time.
    Missed,
}

everstep_protocol::every! {
    /// Everything that can happen.
    pub ActionKind: Started, Existed, Refused, Overlap, QueueFull, Replaced, Missed
}

impl ActionKind {
    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Existed => "existed",
            Self::Refused => "refused",
            Self::Overlap => "overlap",
            Self::QueueFull => "queue_full",
            Self::Replaced => "replaced",
            Self::Missed => "missed",
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The due time; none if somebody asked for a start at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// When it happened.
    pub at: Timestamp,
    /// What.
    pub kind: ActionKind,
    /// The instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceId>,
    /// Of how many due times it is said, if of more than one: `due` is the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// The code of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The refusal in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Action {
    pub(super) const fn new(kind: ActionKind, due: Option<Timestamp>, at: Timestamp) -> Self {
        Self { due, at, kind, instance: None, times: None, code: None, message: None }
    }
}

impl State {
    /// Where a new schedule stands: what lies before its creation is none of its business.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { settled: now, ..Self::default() }
    }

    /// Reads the text that stores keep.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The text that stores keep.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("it is texts and numbers")
    }

    /// The last refusal, if nothing was started since.
    #[must_use]
    pub fn failing(&self) -> Option<&Action> {
        let told = |action: &&Action| {
            matches!(action.kind, ActionKind::Started | ActionKind::Existed | ActionKind::Refused)
        };
        self.recent.iter().rev().find(told).filter(|action| action.kind == ActionKind::Refused)
    }

    /// Notes what happened, to so many due times.
    pub(super) fn note(&mut self, action: Action) {
        let times = action.times.unwrap_or(1);
        let count = match action.kind {
            ActionKind::Started => &mut self.counts.started,
            ActionKind::Existed => &mut self.counts.existed,
            ActionKind::Refused => &mut self.counts.refused,
            ActionKind::Overlap | ActionKind::QueueFull | ActionKind::Replaced => &mut self.counts.skipped,
            ActionKind::Missed => &mut self.counts.missed,
        };
        *count = count.saturating_add(times);
        // A schedule that skips each second would push out everything else.
        let alike = self.recent.last_mut().filter(|last| {
            last.kind == action.kind
                && matches!(action.kind, ActionKind::Overlap | ActionKind::QueueFull | ActionKind::Missed)
        });
        match alike {
            Some(last) => {
                last.times = Some(last.times.unwrap_or(1).saturating_add(times));
                (last.due, last.at) = (action.due, action.at);
            }
            None => self.recent.push(action),
        }
        let over = self.recent.len().saturating_sub(RECENT_MAX);
        self.recent.drain(..over);
    }

    /// Whether something waits that is not held back by a pause.
    pub(super) const fn has_queue(&self) -> bool {
        self.paused.is_none() && !self.queue.is_empty()
    }

    /// When the first of those that wait may be started: not before the end of what is open, nor before its jitter is over.
    pub(super) fn queue_at(&self, now: Timestamp) -> Option<Timestamp> {
        let first = self.queue.first().filter(|_| self.has_queue())?;
        Some(self.look_again(now).unwrap_or(now).max(first.start_at))
    }

    /// A span is done, or given up.
    pub(super) fn close(&mut self, backfill: Backfill) {
        self.made_up.push(backfill.operation);
        let over = self.made_up.len().saturating_sub(MADE_UP_MAX);
        self.made_up.drain(..over);
    }

    /// Keeps an instance in mind.
    pub(super) fn keep_open(&mut self, run: Run) {
        if self.open.iter().any(|open| open.id == run.id && open.workflow == run.workflow) {
            return;
        }
        self.open.push(run);
        let over = self.open.len().saturating_sub(OPEN_MAX);
        self.open.drain(..over);
    }

    /// When to look again whether what is open has ended: the rarer the longer it takes.
    pub(super) fn look_again(&self, now: Timestamp) -> Option<Timestamp> {
        let since = self.open.first()?.since;
        let pause = Millis((now.since(since).as_u64() / 10).clamp(200, 30_000));
        Some(now.plus(pause))
    }
}
