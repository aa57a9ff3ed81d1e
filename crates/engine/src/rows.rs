//! The side rows that a head protects. An input names those that its decision needs (rule W21); a batch keeps what it
//! has loaded, with its own changes on top, so that inputs of one head are decided one after the other.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use everstep_protocol::{
    Attempt, BuildName, Call, CallHash, Epoch, Failure, InstanceUid, Payload, Position, SessionId, StepKey,
    Timestamp, Token,
    journal::{Parked, Remote},
};

use crate::hook::{HookRow, TokenKey};
use crate::mailbox::{Awaited, EventId, EventRow, KnownEvent};

/// What a lease, a ready row or a wait is about: the instance itself, or one of its remote steps.
///
/// Stores keep it as 16 bytes, all zero for the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject(pub [u8; 16]);

impl Subject {
    /// The instance itself.
    pub const INSTANCE: Self = Self([0; 16]);

    /// One of its remote steps.
    #[must_use]
    pub const fn step(call: CallHash) -> Self {
        Self(call.0)
    }

    /// The call, if this is a step.
    #[must_use]
    pub fn call(self) -> Option<CallHash> {
        (self != Self::INSTANCE).then_some(CallHash(self.0))
    }
}

/// The right to work on an instance or a remote step, as long as the session lives (rule W5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub session: SessionId,
    /// Its fencing number.
    pub epoch: Epoch,
}

/// What an open call waits for, by what will end the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitKind {
    /// The end of a sleep.
    Sleep,
    /// The end of a retry delay of an inline step.
    Retry,
    /// The outcome of a remote step; a due time is the end of its retry delay.
    Remote,
    /// An event; a due time is the end of its timeout.
    Event,
    /// What another instance answers, or how it ends (rule P36).
    Instance,
    /// What a hook is resumed with (rule H41).
    Hook,
    /// What a person decides (rule L8).
    Person,
}

everstep_protocol::every! {
    /// Every kind, in the order of their codes.
    pub WaitKind: Sleep, Retry, Remote, Event, Instance, Hook, Person
}

impl WaitKind {
    /// The number that stores keep. Never changes.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Sleep => 1,
            Self::Retry => 2,
            Self::Remote => 3,
            Self::Event => 4,
            Self::Instance => 5,
            Self::Hook => 6,
            Self::Person => 7,
        }
    }

    /// The kind of a stored number.
    #[must_use]
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The reason shown for a waiting instance (rule P28).
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Retry => "retry",
            Self::Remote => "remote_step",
            Self::Event => "event",
            Self::Instance => "instance",
            Self::Hook => "hook",
            Self::Person => "person",
        }
    }
}

/// An open wait. The one row that will wake the instance (promise 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitRow {
    /// The call that waits.
    pub call: Call,
    /// What for.
    pub kind: WaitKind,
    /// Since when.
    pub since: Timestamp,
    /// When it is due; none if something other than time ends it.
    pub due_at: Option<Timestamp>,
    /// Which events end it; set exactly for waits of events, and of hooks, whose payloads are events.
    pub awaited: Option<Awaited>,
    /// What is asked; set exactly for waits of a person.
    pub question: Option<Box<Question>>,
}

/// What a person is asked about a call: what is to be taken for the outcome of an attempt of which nobody knows it (rules L7, L8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The entry that asks.
    pub position: Position,
    /// The attempt.
    pub attempt: Attempt,
    /// The lease under which it ran.
    pub epoch: Epoch,
    /// The idempotency key that it bore.
    pub key: StepKey,
    /// What is known of it.
    pub failure: Failure,
    /// The step is sensitive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
    /// What its worker said of it, too late to be taken for its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// A late report of an attempt that a person is asked about. It decides nothing by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// When it came.
    pub at: Timestamp,
    /// Who reported.
    pub session: SessionId,
    /// The build of its code.
    pub build: BuildName,
    /// What it said.
    pub told: Told,
}

/// The largest output that is kept as evidence: it is read with the wait whenever somebody looks at what waits.
pub const EVIDENCE_BYTES: usize = 16 << 10;

/// What a late report said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// The attempt succeeded, with this output.
    Succeeded(Payload),
    /// It succeeded, with an output of so many bytes of JSON, more than [`EVIDENCE_BYTES`].
    Large(u64),
    /// It failed.
    Failed(Failure),
}

/// A remote step that has no outcome yet (rule W39).
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteRow {
    /// The call.
    pub call: Call,
    /// The last position the body had seen when it made the call.
    pub called_after: everstep_protocol::Position,
    /// What to run.
    pub remote: Remote,
    /// The attempt that is offered or running, from 1.
    pub attempt: Attempt,
    /// The epoch of its latest lease.
    pub epoch: Epoch,
    /// When its first attempt was granted, for `max_elapsed`.
    pub first_at: Option<Timestamp>,
    /// When its current attempt was granted.
    pub granted_at: Option<Timestamp>,
    /// What its attempts told last of their progress, for the next one (rule P5).
    pub progress: Option<Payload>,
}

/// What people asked of an open instance that is still in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Since when nothing may begin (rule P29).
    pub paused_at: Option<Timestamp>,
    /// It was cancelled (rule P30).
    pub cancel: Option<Cancel>,
    /// Since when its body is over, and its compensations run or are to run (rule P38).
    pub compensating_at: Option<Timestamp>,
}

/// A cancel or rollback: what was open at it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The entry that says so.
    pub position: everstep_protocol::Position,
    /// When the instance is ended if it has not ended by itself; none for what has no deadline, or no longer.
    pub until: Option<Timestamp>,
    /// Whether it is ended with a rollback then.
    pub rollback: bool,
}

/// A map by ids that this system draws itself: nobody outside can choose keys that collide, so a quick hash serves.
pub type IdMap<K, V> = rustc_hash::FxHashMap<K, V>;

/// Side rows by key: loaded, and changed by the batch so far. A key that was asked for and is not here has no row.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Leases.
    pub leases: IdMap<(InstanceUid, Subject), Lease>,
    /// Ready rows, with since when they are there.
    pub ready: IdMap<(InstanceUid, Subject), Timestamp>,
    /// Waits.
    pub waits: IdMap<(InstanceUid, CallHash), WaitRow>,
    /// Remote steps.
    pub remotes: IdMap<(InstanceUid, CallHash), RemoteRow>,
    /// Open questions of parked instances.
    pub parked: IdMap<InstanceUid, Parked>,
    /// First answers of control operations, by operation id (rule W4).
    pub operations: HashMap<(InstanceUid, String), crate::effect::Answer>,
    /// Events, by the number within their instance.
    pub events: BTreeMap<(InstanceUid, u64), EventRow>,
    /// What is known of events by their ids.
    pub event_ids: HashMap<(InstanceUid, EventId), KnownEvent>,
    /// Pauses and cancels in force: loaded with the heads.
    pub controls: IdMap<InstanceUid, Control>,
    /// The first entry of the current run, which holds the input.
    pub firsts: IdMap<InstanceUid, everstep_protocol::journal::Entry>,
    /// Of the instances whose first entry was asked for, what people decided about keys in the current run (rule P8), in order.
    pub keys: IdMap<InstanceUid, Vec<everstep_protocol::journal::Entry>>,
    /// Of the instances whose first entry was asked for, those that have attributes.
    pub attributed: std::collections::HashSet<InstanceUid>,
    /// When ended instances are to be deleted.
    pub expiries: IdMap<InstanceUid, Timestamp>,
    /// What the store counts of instances, where a breach is mended.
    pub tallies: IdMap<InstanceUid, crate::breach::Tally>,
    /// Letters that nobody has taken yet, by their numbers.
    pub letters: std::collections::HashSet<u64>,
    /// Parents of instances that were started by another one.
    pub parents: IdMap<InstanceUid, crate::letter::ParentRow>,
    /// The last entry of the current run of ended instances, which says how they ended.
    pub lasts: IdMap<InstanceUid, everstep_protocol::journal::Entry>,
    /// Tokens that somebody owns.
    pub hooks: HashMap<TokenKey, HookRow>,
    /// Tokens that are free, though a row is left of this owner, which was deleted: whoever claims one replaces it.
    pub orphans: HashMap<TokenKey, InstanceUid>,
}

/// Which side rows a batch needs, beside the heads and their leases.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Heads to lock. Leases of the instances themselves, pauses and cancels are always loaded with them.
    pub heads: Vec<InstanceUid>,
    /// Instances whose ready row (of the instance itself) and open question are needed.
    pub runnable: Vec<InstanceUid>,
    /// Waits.
    pub waits: Vec<(InstanceUid, CallHash)>,
    /// Remote steps, with their wait, lease and ready rows.
    pub remotes: Vec<(InstanceUid, CallHash)>,
    /// Control operations.
    pub operations: Vec<(InstanceUid, String)>,
    /// Instances whose first entry is needed, the keys that people kept, and whether they have attributes.
    pub firsts: Vec<InstanceUid>,
    /// Instances whose time of deletion is needed.
    pub expiries: Vec<InstanceUid>,
    /// Instances whose rows are to be counted.
    pub tallies: Vec<InstanceUid>,
    /// Names of instances that starts ask for.
    pub names: Vec<crate::start::NameKey>,
    /// Messages that starts came in.
    pub messages: Vec<crate::start::MessageKey>,
    /// Ids of events.
    pub event_ids: Vec<(InstanceUid, EventId)>,
    /// The oldest unread event of a type, and of a key if one is given, once for each wait that may take it: see
    /// [`unread_queries`](Self::unread_queries).
    pub unread: Vec<crate::mailbox::Topic>,
    /// The oldest wait that an event fits, once for each event: see [`waiter_queries`](Self::waiter_queries).
    pub waiters: Vec<crate::mailbox::Topic>,
    /// The event that a call got, and the waits that it fits: see [`return_queries`](Self::return_queries).
    pub returns: Vec<(InstanceUid, CallHash)>,
    /// Letters, by their numbers: those that nobody else takes at this moment.
    pub letters: Vec<u64>,
    /// Instances whose parent is needed.
    pub parents: Vec<InstanceUid>,
    /// Instances whose last entry is needed.
    pub lasts: Vec<InstanceUid>,
    /// Tokens that starts ask for.
    pub tokens: Vec<TokenKey>,
    /// Tokens of an instance's namespace.
    pub tokens_of: Vec<(InstanceUid, Token)>,
    /// Instances of which the hook that they were started with is needed: nobody else can claim its token meanwhile.
    pub start_hooks: Vec<InstanceUid>,
}
