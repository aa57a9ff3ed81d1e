//! Schedules as they are kept: one row each, changed only by whoever has read its last version (rules S1, S5, S15).

use async_trait::async_trait;
use everstep_engine::{
    access::ANONYMOUS,
    action::{Action, Target},
    schedule::{Definition, State, Turn},
};
use everstep_protocol::{Namespace, ScheduleId, Scope, Timestamp};

use crate::{ActionFilter, ActionRow, Error};

/// A schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleRow {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its id, unique within the namespace.
    pub id: ScheduleId,
    /// One more each time that it is written. No version of one that was deleted comes again under its id.
    pub version: u64,
    /// When it was created.
    pub created_at: Timestamp,
    /// When a person changed it last.
    pub changed_at: Timestamp,
    /// When to look at it again; none if nothing is to come.
    pub wake_at: Option<Timestamp>,
    /// What was asked for.
    pub definition: Definition,
    /// Where it stands.
    pub state: State,
}

/// What is read, with the store's time.
#[derive(Clone, Debug, PartialEq)]
pub struct Dated<T> {
    /// The time.
    pub now: Timestamp,
    /// What was read.
    pub what: T,
}

/// Schedules that are to be looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Woken {
    /// The store's time.
    pub now: Timestamp,
    /// Those whose time has come, earliest first.
    pub rows: Vec<ScheduleRow>,
    /// When the next of the others is to be looked at.
    pub next: Option<Timestamp>,
}

/// Schedules in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// The store's time.
    pub now: Timestamp,
    /// Some of them.
    pub what: Vec<ScheduleRow>,
    /// The id after which to go on; none if there are no more.
    pub next: Option<ScheduleId>,
}

/// Where a schedule stands after a turn, if nobody has written it since it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleWrite {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its id.
    pub id: ScheduleId,
    /// The version that was read.
    pub version: u64,
    /// Where it stands, and when to look again.
    pub turn: Turn,
}

/// What a person does to a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleChange {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its id.
    pub id: ScheduleId,
    /// The version that was read; none if there was no such schedule.
    pub version: Option<u64>,
    /// What there is afterwards; none if it is deleted.
    pub after: Option<(Definition, Turn)>,
    /// What is recorded of it, if it is done.
    pub action: Action,
}

/// The record of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRow {
    /// When.
    pub at: Timestamp,
    /// What was done.
    pub operation: String,
    /// Who did it, as they said themselves; else as far as is known.
    pub by: Option<String>,
    /// What more there is to say.
    pub detail: Option<String>,
}

impl From<ActionRow> for ChangeRow {
    fn from(row: ActionRow) -> Self {
        let ActionRow { at, operation, who, named, detail, .. } = row;
        // Whoever has no token is known by what they say of themselves, if anything.
        let by = named.or_else(|| (who != ANONYMOUS).then_some(who));
        Self { at, operation, by, detail }
    }
}

/// The records of what was done to the schedules of an id.
pub(crate) fn changes_of(namespace: &Namespace, id: &ScheduleId) -> ActionFilter {
    let target = Some(Target::Schedule(id).text());
    ActionFilter { target, ..ActionFilter::within(Scope::Of(namespace.clone())) }
}

/// Schedules of one page have no more bytes than this, but for the last one: each may have an input of a mebibyte.
pub const SCHEDULE_PAGE_BYTES: usize = 4 << 20;

/// Says which rows cannot be read and were passed over.
pub(crate) fn warn(ids: &[String]) {
    if !ids.is_empty() {
        tracing::warn!(?ids, "schedules cannot be read and are passed over: a newer version may know more");
    }
}

/// Schedules.
#[async_trait]
pub trait Schedules: Send + Sync + std::fmt::Debug + 'static {
    /// The schedule of that id, with the store's time.
    async fn schedule(
        &self,
        namespace: &Namespace,
        id: &ScheduleId,
    ) -> Result<Dated<Option<ScheduleRow>>, Error>;

    /// Schedules of a namespace after this one, in the order of their ids: at most `limit`, and fewer where they are large
    /// ([`SCHEDULE_PAGE_BYTES`]). Those that this version cannot read are passed over.
    async fn schedules(
        &self,
        namespace: &Namespace,
        after: Option<&ScheduleId>,
        limit: u32,
    ) -> Result<Listed, Error>;

    /// Schedules whose time has come, earliest first: at most `limit`, and fewer where they are large ([`SCHEDULE_PAGE_BYTES`]); none only if
    /// there are none. Those that this version cannot read are passed over.
    async fn woken_schedules(&self, limit: u32) -> Result<Woken, Error>;

    /// Writes where schedules stand, all at once. Says of each, in order, whether it was written: whoever is told no has read an older version.
    async fn settle_schedules(&self, writes: &[ScheduleWrite]) -> Result<Vec<bool>, Error>;

    /// Does what a person asked for, and records it in the audit log. False, and nothing is done, if somebody has written it since it was read.
    async fn change_schedule(&self, change: &ScheduleChange) -> Result<bool, Error>;

    /// Who has changed the schedules of that id, newest first, also after it was deleted.
    async fn schedule_changes(
        &self,
        namespace: &Namespace,
        id: &ScheduleId,
        limit: u32,
    ) -> Result<Vec<ChangeRow>, Error>;
}
