//! The envelopes between workers and coordinators. Engine messages are hints and repeats: any of them may be lost,
//! doubled or late, and nothing but speed depends on them (promise 2).

mod grant;
mod session;

use serde::{Deserialize, Serialize};

pub use self::grant::{Entries, Grant, StepGrant};
pub use self::session::{Heartbeat, Held, HeldStep, OpenSession, Running, SessionMessage};
use crate::{
    Attempt, Attribute, Call, CallHash, CoordinatorId, Epoch, EventKey, EventType, Failure, Fingerprint,
    Incarnation, InstanceUid, Millis, Payload, Policy, Position, Reference, Run, SessionId, StepKey,
    Timestamp, Token, TraceContext,
    hook::Registration,
    journal::{
        Awaiting, Child, Closed, Compensated, End, Marks, Other, Parked, Remote, Reply, Resuming, Sending,
        Withdrawn,
    },
    limits::Limits,
};

/// A task on a run queue: "this instance is runnable". Only a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTask {
    /// The installation's life that offered it.
    pub incarnation: Incarnation,
    /// The instance.
    pub instance: InstanceUid,
}

/// A task on a pool's queue: "this remote step is runnable". Only a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTask {
    /// The installation's life that offered it.
    pub incarnation: Incarnation,
    /// The instance.
    pub instance: InstanceUid,
    /// The call of the instance.
    pub call: CallHash,
}

/// What a worker sends to a report queue: everything gathered while the last message was under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FromWorker {
    /// The installation's life as the worker knows it.
    pub incarnation: Incarnation,
    /// The sender.
    pub session: SessionId,
    /// Room for direct grants, per coordinator (rule W35).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credits: Vec<Credit>,
    /// The items, in the order in which they were made.
    pub items: Vec<WorkerItem>,
}

/// How many direct grants one coordinator may have sent in all: a window that the worker moves on, as in flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    /// The coordinator that this credit is for.
    pub coordinator: CoordinatorId,
    /// The cumulative count that its direct grants to this session may reach.
    pub limit: u64,
}

/// One thing that a worker says about one instance or one remote step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerItem {
    /// Asks for the lease of an instance that a run task named.
    Claim {
        /// The instance.
        instance: InstanceUid,
        /// How much of it the worker has kept in its cache (rule W27).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        have: Option<Have>,
    },
    /// Reports what the holder's run of the instance has come to.
    Report(Report),
    /// Gives a lease back unused or unfinished; never counts as a loss.
    GiveBack {
        /// The instance.
        instance: InstanceUid,
        /// The lease's epoch.
        epoch: Epoch,
    },
    /// Asks for the entries after a position: the next part of a grant, or a gap.
    Ask {
        /// The instance.
        instance: InstanceUid,
        /// The lease's epoch.
        epoch: Epoch,
        /// The run, as the grant named it.
        run: Run,
        /// The last position that the worker has.
        after: Position,
    },
    /// Asks for the lease of a remote step that a step task named.
    StepClaim {
        /// The instance.
        instance: InstanceUid,
        /// Its call.
        call: CallHash,
    },
    /// Reports the end of an attempt of a remote step.
    StepReport {
        /// The instance.
        instance: InstanceUid,
        /// Its call.
        call: CallHash,
        /// The step lease's epoch.
        epoch: Epoch,
        /// How long the attempt ran.
        ran_for: Millis,
        /// How it ended.
        outcome: AttemptOutcome,
        /// What it told last of its progress, if it failed (rule P5).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        progress: Option<Payload>,
        /// The output was found by looking (rule L6).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        found: bool,
        /// What its service calls what it did (rule L14).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reference: Option<Reference>,
    },
    /// Gives a remote step back unfinished; never counts as a loss.
    StepGiveBack {
        /// The instance.
        instance: InstanceUid,
        /// Its call.
        call: CallHash,
        /// The step lease's epoch.
        epoch: Epoch,
        /// Its attempt never began: nothing can have taken effect (rule L7).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unstarted: bool,
    },
}

impl WorkerItem {
    /// The instance that it is about, by which the report queue is chosen (rule W16).
    #[must_use]
    pub const fn instance(&self) -> InstanceUid {
        match self {
            Self::Claim { instance, .. }
            | Self::GiveBack { instance, .. }
            | Self::Ask { instance, .. }
            | Self::StepClaim { instance, .. }
            | Self::StepReport { instance, .. }
            | Self::StepGiveBack { instance, .. } => *instance,
            Self::Report(report) => report.instance,
        }
    }
}

/// What a worker has kept of an instance that it suspended. Never counted on: it may have let go of it meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Have {
    /// The run.
    pub run: Run,
    /// The last position that the body was fed.
    pub position: Position,
}

/// What came of an instance since the last report of this lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The instance.
    pub instance: InstanceUid,
    /// The lease's epoch.
    pub epoch: Epoch,
    /// 1, 2, 3, ... within the lease. The coordinator takes them in this order and each once.
    pub number: u64,
    /// The last position that the body had seen.
    pub seen: Position,
    /// Attempts that ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<AttemptEnd>,
    /// Waits that the body opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened: Vec<Open>,
    /// Calls that waited and that the body has dropped: their waits are over. Taken before `opened`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<Closed>,
    /// What the holder means to do next.
    pub then: Then,
    /// How the compensations ended, with the end that follows them (rule P39).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensated: Option<Compensated>,
    /// `opened`, `closed` and `then` came from feeding the body the one result before it was acknowledged (rule W36): they hold only
    /// if nothing was written after `seen`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub folded: bool,
    /// With a suspend: the holder means to keep the body, so that a grant to it need not bring the journal anew (rule W27).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// The state that the body has published since it was last reported (rule P37). Of a fold it is what the fold came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Payload>,
    /// The attributes that the body has set or removed since they were last reported; the same holds for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
    /// What is to be written of attempts that may not simply be made again, beside their ends (rule L5). Of a fold it is what the fold
    /// came to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ledger: Vec<LedgerItem>,
}

/// What a holder says of an attempt that may not simply be made again (rules L5 to L7).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerItem {
    /// It is about to begin, and does once this is acknowledged.
    Intend(Intent),
    /// It was to begin, and never did.
    Withdraw(Withdrawn),
    /// The body has dropped its call, and nobody knows what came of it.
    Dropped(AttemptEnd),
}

/// An attempt that is about to begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// The step.
    pub call: Call,
    /// Which attempt, from 1.
    pub attempt: Attempt,
    /// The last position the body had seen when it made the call.
    pub called_after: Position,
    /// The idempotency key.
    pub key: StepKey,
    /// The fingerprint of the input.
    pub input: Fingerprint,
    /// The policy in force, with the class.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: Policy,
    /// What the code says of the step.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub marks: Marks,
}

/// The end of one attempt, as its worker saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// The step.
    pub call: Call,
    /// Which attempt, from 1.
    pub attempt: Attempt,
    /// The last position the body had seen when it made the call.
    pub called_after: Position,
    /// How long the attempt ran.
    pub ran_for: Millis,
    /// The idempotency key.
    pub key: StepKey,
    /// The fingerprint of the input.
    pub input: Fingerprint,
    /// The policy in force.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: Policy,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What it told last of its progress, if another attempt follows (rule P5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Payload>,
    /// What the code says of the step.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub marks: Marks,
    /// What its service calls what it did (rule L14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
}

fn is_default(policy: &Policy) -> bool {
    *policy == Policy::default()
}

/// How an attempt ended, before the coordinator has given it a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// With an output.
    Succeeded(Payload),
    /// With a failure. For inline steps `retry_in` is the delay that policy or code asked for, none meaning "final"; for
    /// remote steps the coordinator computes it.
    Failed {
        /// What went wrong.
        failure: Failure,
        /// The delay before the next attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_in: Option<Millis>,
    },
    /// Nobody knows whether it took effect, and the step is not called again by itself (rule L7).
    Unknown {
        /// What is known of it.
        failure: Failure,
        /// A person is to be asked.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        asks: bool,
        /// The lease under which it ran.
        epoch: Epoch,
    },
}

/// A wait that the body opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// The call that waits.
    pub call: Call,
    /// The last position the body had seen when it made the call.
    pub called_after: Position,
    /// What for.
    pub wait: OpenWait,
}

/// What a newly opened call waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenWait {
    /// For this long from the moment the coordinator takes the report.
    Sleep(Millis),
    /// Until this moment.
    SleepUntil(Timestamp),
    /// For a step that another worker runs.
    Remote(Remote),
    /// For an event, at most this long from the moment the coordinator takes the report.
    Event {
        /// The types of which the oldest event is taken; at least one.
        types: Vec<EventType>,
        /// Only events with this key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<EventKey>,
        /// How long.
        timeout: Millis,
    },
    /// For nothing: the change of the code that it names applies, and its entry says so (rule P40).
    Patch,
    /// For a child.
    Child(Child),
    /// For the end of another instance.
    #[serde(rename = "end_of")]
    Instance(Other),
    /// For the answer to an event that is sent to another instance.
    Send(Sending),
    /// Until it is known whether the instance has the token of a hook.
    Hook(Registration),
    /// For the next payload of a hook.
    Payload(Awaiting),
    /// For nothing: the request of a webhook is answered.
    Reply(Reply),
    /// For the answer to a payload for the hook of another instance.
    Resume(Resuming),
    /// For nothing: the body is over and its compensations begin, and its entry says so (rule P38).
    Rollback {
        /// What the body ended with; none if somebody asked for the rollback.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
        /// How many compensations there are to run.
        steps: u64,
    },
}

/// What the holder of a lease means to do next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// Goes on working.
    Continue,
    /// Nothing can run: gives the lease up until a wait is over.
    Suspend,
    /// The body has returned.
    End(End),
    /// The body cannot go on without a person.
    Park(Parked),
    /// The body goes on as the next generation of its instance (rule P36).
    Again(Again),
}

/// How the next generation of an instance begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// Its input.
    pub input: Payload,
    /// Its random bytes (rule W33): the keyed hash of those of the generation before, so that a body that is run again comes to
    /// the same.
    #[serde(with = "serde_bytes")]
    pub seed: [u8; 32],
    /// Why the instance was cancelled, where it was: the cancel goes on with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<String>,
    /// All attributes of the instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
    /// The token of the hook that the instance was started with, unless the body has let it go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Token>,
    /// The trace that it goes on with, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<TraceContext>>,
}

/// What a coordinator sends to a worker's inbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToWorker {
    /// The installation's life.
    pub incarnation: Incarnation,
    /// The sender.
    pub coordinator: CoordinatorId,
    /// The session that it is for.
    pub session: SessionId,
    /// The items, in order.
    pub items: Vec<CoordinatorItem>,
}

/// One thing that a coordinator says to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(
    clippy::large_enum_variant,
    reason = "items live for a moment: a box would cost an allocation for each step grant"
)]
pub enum CoordinatorItem {
    /// The session is open.
    Opened(Opened),
    /// The answer to a heartbeat.
    Heard(Heard),
    /// The session is not known, or has ended: drop everything and open a new one (rule W10).
    UnknownSession,
    /// A ping whose only purpose is to be routable (rule W9).
    Ping,
    /// A lease, with the first part of the journal.
    Grant(Grant),
    /// Further entries of a held instance: the next part of its grant, a gap, or a push.
    Entries(Entries),
    /// A report was committed.
    Ack(Ack),
    /// An instance whose body the worker may have kept is runnable: a run task that is for it first (rule W27). Said only of bodies
    /// that it said it keeps.
    Offer {
        /// The instance.
        instance: InstanceUid,
    },
    /// A claim was not granted: there is nothing to run, or another has it.
    NotGranted {
        /// The instance.
        instance: InstanceUid,
    },
    /// The lease is not, or no longer, the worker's: stop, report nothing more.
    Fence {
        /// The instance.
        instance: InstanceUid,
        /// Every lease up to this epoch is over.
        epoch: Epoch,
        /// Why.
        why: FenceReason,
    },
    /// The lease of a remote step, with what it needs to run.
    StepGrant(StepGrant),
    /// A claim of a remote step was not granted, or its lease is over.
    StepFence {
        /// The instance.
        instance: InstanceUid,
        /// Its call.
        call: CallHash,
        /// Every lease up to this epoch is over; zero where none was held.
        epoch: Epoch,
    },
    /// A remote step's report was committed, or was known already.
    StepAck {
        /// The instance.
        instance: InstanceUid,
        /// Its call.
        call: CallHash,
        /// The step lease's epoch.
        epoch: Epoch,
    },
}

/// Why a lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FenceReason {
    /// Another holder has, or had, a later epoch, or the lease ended; what became of the instance since is not looked up.
    Stale,
    /// Somebody terminated the instance.
    Terminated,
    /// The instance has ended.
    Ended,
    /// The instance was parked by what ended the lease.
    Parked,
    /// The instance is not known.
    Unknown,
}

/// What a new session needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// How long silence may last before the session ends.
    pub lease: Millis,
    /// How often to send a heartbeat.
    pub heartbeat: Millis,
    /// The installation's limits.
    pub limits: Limits,
}

/// The answer to a heartbeat. What the worker lacks comes beside it: grants, entries, acks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// The heartbeat's number.
    pub number: u64,
    /// Leases up to these epochs, held by the worker's account, are not its own: drop them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_yours: Vec<(InstanceUid, Epoch)>,
    /// Leases of remote steps up to these epochs are not its own: drop them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps_not_yours: Vec<HeldStep>,
}

/// A report was committed. The worker derives the entries from its own copy of the report, by the same function that
/// the coordinator used, so nothing is sent back twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// The instance.
    pub instance: InstanceUid,
    /// The lease's epoch.
    pub epoch: Epoch,
    /// The report's number.
    pub number: u64,
    /// The position before the first entry that the report became; if it was taken before, one that the journal has reached.
    pub after: Position,
    /// The time that its entries bear.
    pub at: Timestamp,
    /// How much of it was taken.
    pub taken: Taken,
}

/// How much of a report was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Taken {
    /// All of it; a suspend, end or park in it is done.
    Whole,
    /// All of it but the suspend: the instance can go on at once (a sleep of no length, an entry that came before).
    Kept,
    /// Only its results: another entry came before them, the fold is refused and the lease goes on (rule W36).
    Results,
    /// It was taken before, or is recorded otherwise than its worker would say (an output over a limit that is lower than its
    /// session was told): its entries are asked for by position, up to `after`.
    Before,
    /// Not at all: an earlier report of this lease is missing, send from this number.
    OutOfOrder {
        /// The number that is expected.
        expected: u64,
    },
}
