//! What the auditor reads and keeps (promise 5).

use std::collections::BTreeMap;

use async_trait::async_trait;
use everstep_engine::{
    breach::{Breach, BreachKind},
    start::NameKey,
};
use everstep_protocol::{BuildName, CoordinatorId, InstanceUid, Millis, Namespace, Run, Timestamp};

use crate::Error;

/// The walk over open instances, and the records of what was wrong with them.
#[async_trait]
pub trait Audits: Send + Sync + std::fmt::Debug + 'static {
    /// Looks at the next instances after this one, at most `limit`, in one snapshot: each open one for a reason to move. Takes no
    /// locks, and reads by keys alone: what is mended is decided under the head's lock.
    async fn suspects(&self, after: Option<InstanceUid>, limit: u32) -> Result<Walked, Error>;

    /// Keeps what was found and mended.
    async fn keep_breaches(&self, found: &[BreachRow]) -> Result<(), Error>;

    /// Notes that a coordinator is there. Answers with the store's time.
    async fn present(&self, present: &Present) -> Result<Timestamp, Error>;

    /// What an installation's store says of its state, for the doctor. Cheap: by keys and with limits.
    async fn checkup(&self) -> Result<Checkup, Error>;

    /// What was found in a namespace, newest first. Records are kept for 30 days.
    async fn breaches(&self, namespace: &Namespace, limit: u32) -> Result<Vec<BreachView>, Error>;
}

/// One page of the walk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Walked {
    /// What seems wrong.
    pub suspects: Vec<Suspect>,
    /// How many open instances were looked at.
    pub open: u64,
    /// Where the walk goes on; none at its end.
    pub next: Option<InstanceUid>,
}

/// An instance with which something seems wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// The instance.
    pub uid: InstanceUid,
    /// Its name.
    pub name: NameKey,
    /// Its run.
    pub run: Run,
    /// What seems wrong.
    pub breach: Breach,
}

/// A breach that was found and decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreachRow {
    /// The instance.
    pub uid: InstanceUid,
    /// Its name.
    pub name: NameKey,
    /// Its run.
    pub run: Run,
    /// The kind.
    pub kind: BreachKind,
    /// What was wrong and how it was mended, for people.
    pub message: String,
}

/// A breach as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreachView {
    /// When it was found.
    pub at: Timestamp,
    /// What.
    pub breach: BreachRow,
}

/// A coordinator that was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// Which.
    pub id: CoordinatorId,
    /// The version of its program.
    pub version: String,
    /// When it was heard; the store says it.
    pub heard_at: Timestamp,
    /// How far its own clock is behind the store's, in microseconds; negative if it is ahead, none if it has none of its own.
    pub clock_offset: Option<i64>,
}

/// What the store says of the state of an installation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkup {
    /// The store's time.
    pub now: Timestamp,
    /// The version of its schema.
    pub schema: u32,
    /// The newest one that this program knows.
    pub schema_known: u32,
    /// How many waits of instances that are not paused are due, counted up to 1,000, and since when the oldest.
    pub overdue: Option<(u64, Timestamp)>,
    /// When the oldest letter was written that nobody has taken.
    pub oldest_letter: Option<Timestamp>,
    /// When the oldest lifecycle message was written that the broker has not confirmed.
    pub oldest_outbox: Option<Timestamp>,
    /// Until when somebody has each duty.
    pub duties: BTreeMap<String, Timestamp>,
    /// Coordinators that were there in the last hour.
    pub coordinators: Vec<Present>,
    /// How many breaches of each kind were found in the last day.
    pub breaches: Vec<(String, u64)>,
    /// How many messages were rejected in the last hour, of at most 1,000 of them, by code.
    pub rejected: Vec<(String, u64)>,
}

/// Waits that are counted.
pub(crate) const OVERDUE_COUNTED: u32 = 1_000;

/// A call of a child may have been made so long ago that its letter is neither written nor taken yet.
pub(crate) const CHILD_PATIENCE: Millis = Millis::from_secs(60);

/// What is recorded as the build of a session that nobody knows.
pub(crate) fn unknown_build() -> Result<BuildName, everstep_protocol::name::NameError> {
    BuildName::new("unknown")
}

/// A line of a checkup: a word, a name and two numbers.
pub(crate) type Said = (String, Option<String>, Option<i64>, Option<i64>);

/// What the lines say together.
pub(crate) fn checked(lines: Vec<Said>) -> Checkup {
    let mut checkup = Checkup::default();
    for (word, name, one, two) in lines {
        let count = one.map_or(0, i64::unsigned_abs);
        let at = one.map(Timestamp);
        match (word.as_str(), name) {
            ("now", _) => checkup.now = at.unwrap_or_default(),
            ("schema", _) => checkup.schema = u32::try_from(count).unwrap_or(u32::MAX),
            ("overdue", _) => checkup.overdue = two.map(|oldest| (count, Timestamp(oldest))),
            ("letter", _) => checkup.oldest_letter = at,
            ("outbox", _) => checkup.oldest_outbox = at,
            ("duty", Some(name)) => checkup.duties.extend(at.map(|at| (name, at))),
            ("breach", Some(kind)) => checkup.breaches.push((kind, count)),
            ("rejected", Some(code)) => checkup.rejected.push((code, count)),
            _ => {}
        }
    }
    checkup.breaches.sort();
    checkup.rejected.sort();
    checkup
}
