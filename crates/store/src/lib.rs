//! The store port: everything durable, behind a few small traits with two real implementations each,
//! [`postgres`] and [`sqlite`]. Both are held to one conformance suite.
//!
//! A store maps rows to engine types and runs transactions. It decides nothing: what is written comes from the engine's
//! [`Batch`](everstep_engine::Batch), in the one transaction that also locked the heads.
//!
//! | trait | what for |
//! | --- | --- |
//! | [`Instances`] | the transaction of a batch, journals, names |
//! | [`Sessions`] | live worker processes, their leases, the way's own heartbeat |
//! | [`Schedule`] | due waits, ready rows to offer, duties |
//! | [`Records`] | outbox, rejected messages, cleaning |
//! | [`Bulks`] | operations on many instances |
//! | [`Schedules`] | schedules: what starts instances at their times |
//! | [`AccessTokens`] | what opens the HTTP API |
//! | [`Audits`] | the auditor's walk and its records |
//! | [`Views`] | what API and CLI show |

mod access;
mod answer;
mod audits;
mod bulk;
mod error;
mod fact;
mod mail;
pub mod postgres;
mod schedules;
pub mod sqlite;
mod view;

use std::collections::HashMap;

use async_trait::async_trait;
use everstep_engine::{
    Status, Writes,
    account::Kept,
    batch::Loaded,
    hook::ReplyKey,
    letter::Letter,
    rows::{Lease, Needs, Subject},
    start::{Decided, NameKey},
};
use everstep_protocol::{
    BuildName, CallHash, CoordinatorId, Epoch, Incarnation, InstanceUid, Millis, Namespace, Payload, Pool,
    Position, Run, SessionId, Timestamp, Token, WorkflowName,
    journal::Entry,
    message::{OpenSession, Running},
    name::NameError,
};

pub use access::{AccessRow, AccessTokens, NewAccess};
pub use audits::{Audits, BreachRow, BreachView, Checkup, Present, Suspect, Walked};
pub use bulk::{BulkRow, Bulks};
pub use error::{Error, ErrorKind};
pub use mail::Mail;
pub use schedules::{
    ChangeRow, Dated, Listed, SCHEDULE_PAGE_BYTES, ScheduleChange, ScheduleRow, ScheduleWrite, Schedules,
    Woken,
};
pub use view::{
    AskedView, AttentionCount, AttentionFilter, AttentionMark, AttentionView, ChildView, Cursor,
    END_PAGE_BYTES, EndMark, EndPage, Ends, Filter, HookView, InstanceView, LedgerCall, LedgerSearch,
    OPEN_COUNTED, OpenCount, Page, RejectedView, Replied, Since, StatusWord, UNKNOWN_OUTCOME, UnreadView,
    WaitView,
};

/// Decides what a transaction writes, from what it has locked and loaded. Called at most once per transaction, inside it.
pub type Decide = Box<dyn FnOnce(Loaded) -> Writes + Send>;

/// A store: all of the port.
pub trait Store:
    Instances + Sessions + Schedule + Records + Bulks + Schedules + AccessTokens + Audits + Views
{
}
impl<T: Instances + Sessions + Schedule + Records + Bulks + Schedules + AccessTokens + Audits + Views> Store
    for T
{
}

/// Instances and their journals.
#[async_trait]
pub trait Instances: Send + Sync + std::fmt::Debug + 'static {
    /// The installation's incarnation.
    async fn incarnation(&self) -> Result<Incarnation, Error>;

    /// When an older database was restored, until its questions are over; see [`postgres::restored`].
    async fn restored_at(&self) -> Result<Option<Timestamp>, Error> {
        Ok(None)
    }

    /// One transaction: locks the heads in one order, skipping those locked elsewhere (rule W19), loads what `needs` names,
    /// lets `decide` decide, writes, commits. The first statement returns the time (rule W18).
    ///
    /// Errors: [`ErrorKind::Unavailable`] (nothing is known to be written, repeating is safe), [`ErrorKind::Conflict`] (somebody
    /// took a name or message meanwhile, nothing was written: run it again), [`ErrorKind::Refused`] (the store will not take
    /// these rows, nothing was written: find the culprit by halves).
    ///
    /// Answers with the leases of remote steps that ended because their instance was cleared: only the statement that deletes
    /// them finds them, since no decision reads rows whose number grows with the instance (rule W21).
    async fn transact(&self, needs: Needs, decide: Decide) -> Result<Vec<StepOver>, Error>;

    /// The entries after a position, in order, for each range: at least one if there is any, then up to `bytes_max` of payload
    /// and 1,000 entries.
    async fn journal(&self, ranges: Vec<Range>, bytes_max: usize) -> Result<Vec<Vec<Entry>>, Error>;

    /// The instance of this name.
    async fn find(&self, name: &NameKey) -> Result<Option<InstanceUid>, Error>;
}

/// A part of a journal to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The instance.
    pub uid: InstanceUid,
    /// Its run.
    pub run: Run,
    /// The position after which to begin.
    pub after: Position,
}

/// A live session as coordinators know it.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// How it presented itself, with its current inbox.
    pub open: OpenSession,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When it was last heard.
    pub heard_at: Timestamp,
}

/// A lease as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRow {
    /// The instance.
    pub uid: InstanceUid,
    /// The instance itself, or one of its remote steps.
    pub subject: Subject,
    /// The lease's epoch.
    pub epoch: Epoch,
}

/// The lease of a remote step that ended with its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepOver {
    /// The instance.
    pub uid: InstanceUid,
    /// Its call.
    pub call: CallHash,
    /// Who held it, under which epoch.
    pub lease: Lease,
}

/// What a heartbeat says for the store's purposes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The session.
    pub session: SessionId,
    /// Its inbox.
    pub inbox: String,
}

/// Live worker processes.
#[async_trait]
pub trait Sessions: Send + Sync + std::fmt::Debug + 'static {
    /// Registers a session, or updates the inbox of a live one. False if it has ended: it never comes back (rule W10).
    async fn open_session(&self, open: &OpenSession) -> Result<bool, Error>;

    /// Notes that these sessions live. Answers, in order, with the leases that each holds and how far their heads have come;
    /// none if it is unknown or ended.
    async fn heard(&self, heard: &[Heard]) -> Result<Vec<Option<Vec<Kept>>>, Error>;

    /// Notes that a coordinator's own heartbeat came through. If the one before came longer than `gap` ago, every session gets a
    /// full lease from now on (rule W8).
    async fn beat(&self, coordinator: CoordinatorId, gap: Millis) -> Result<(), Error>;

    /// Live sessions.
    async fn sessions(&self) -> Result<Vec<Session>, Error>;

    /// Live sessions that were silent for `lease`, not counting time before the last gap's end plus `lease` (rule W8).
    async fn silent(&self, lease: Millis) -> Result<Vec<SessionId>, Error>;

    /// Those of these live sessions that an unroutable inbox may end early (rule W9): the way is open, and it has been for at
    /// least `lease`, or the session was heard since it is. What is not heard after a gap has its whole lease to come back.
    async fn observed(&self, sessions: &[SessionId], lease: Millis) -> Result<Vec<SessionId>, Error>;

    /// Those of these live sessions that were heard after this moment.
    async fn heard_since(&self, sessions: &[SessionId], since: Timestamp) -> Result<Vec<SessionId>, Error>;

    /// Ends a session that was found [`silent`](Self::silent), for good, if it still is: it may have been heard since, and whoever looked may
    /// have stood still. False if nothing was ended.
    async fn end_silent(&self, session: SessionId, lease: Millis) -> Result<bool, Error>;

    /// Ends a session whose inbox cannot be reached, for good, if this is still its inbox, and it may still end early as
    /// [`observed`](Self::observed) says: a worker that has come back meanwhile has another one. False if nothing was ended.
    async fn end_unreachable(&self, session: SessionId, inbox: &str, lease: Millis) -> Result<bool, Error>;

    /// Ends a session, for good. `counts` is kept for the leases that are still to be ended.
    async fn end_session(&self, session: SessionId, counts: bool) -> Result<(), Error>;

    /// Keeps what the running attempts of a live session have told of their progress, in place of what was kept before
    /// (rule P5). Nothing happens for one that has ended.
    async fn keep_progress(&self, session: SessionId, progress: &[Running]) -> Result<(), Error>;

    /// What was kept for these sessions; those for which nothing was are left out.
    async fn kept_progress(&self, sessions: &[SessionId]) -> Result<HashMap<SessionId, Vec<Running>>, Error>;

    /// Leases, at most `limit`, that ended sessions still hold, with the session, its slots and build, and whether the loss counts.
    async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>, Error>;

    /// Ends all sessions at once, as lost with their process: for an embedded store that was just opened (rules W11, W13).
    async fn end_all_sessions(&self) -> Result<(), Error>;
}

/// A lease whose session has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Orphan {
    /// The lease.
    pub lease: LeaseRow,
    /// The ended session, as it presented itself.
    pub open: OpenSession,
    /// Whether the loss counts as an attempt.
    pub counts: bool,
}

/// What is to be done and when.
#[async_trait]
pub trait Schedule: Send + Sync + std::fmt::Debug + 'static {
    /// Due waits of instances that are not paused, earliest first, from `mark` on; and the earliest due time of all others. Takes no locks (rule W23).
    async fn due(&self, mark: Option<Timestamp>, limit: u32) -> Result<Due, Error>;

    /// Cancelled instances, at most `limit`, whose deadline is over (rule P30). Takes no locks.
    async fn overdue(&self, limit: u32) -> Result<Vec<InstanceUid>, Error>;

    /// Letters between instances that nobody has taken, after this number, in their order, at most `limit` and 8 MiB, but at least
    /// one (rule W22). Those that this version cannot read are passed over. Takes no locks: whoever decides on one looks again.
    async fn letters(&self, after: u64, limit: u32) -> Result<Mail, Error>;

    /// Ended instances, at most `limit`, whose retention is over, longest first (rule P32). Takes no locks.
    async fn expired(&self, limit: u32) -> Result<Vec<InstanceUid>, Error>;

    /// Takes ready rows of these queues to offer: not offered yet, or offered longer than `again` ago; oldest first; so many that
    /// at most `window` of a queue are offered at once (rule W15). Marks them as offered.
    async fn offer(&self, queues: &[Queue], window: u32, again: Millis) -> Result<Offers, Error>;

    /// Those of these queues that hold back more than may be offered: what [`offer`](Self::offer) would answer, without taking
    /// or marking a row.
    async fn backlog(&self, queues: &[Queue], window: u32, again: Millis) -> Result<Vec<Queue>, Error>;

    /// Queues with ready rows that are none of these, each with how many it holds, counted up to [`UNSERVED_COUNTED`]; at most
    /// `limit` of them. Takes no locks.
    async fn unserved(&self, served: &[Queue], limit: u32) -> Result<Vec<(Queue, u64)>, Error>;

    /// Those of these queues that have ready rows, and at most so many `others` that do: how many rows each holds, offered or not,
    /// counted up to [`UNSERVED_COUNTED`], and how long the oldest has been there. Takes no locks.
    async fn depths(&self, queues: &[Queue], others: u32) -> Result<Vec<Depth>, Error>;

    /// Tries to take or keep duties, each held by one coordinator at a time for `ttl`. Answers with those held.
    async fn duties(
        &self,
        coordinator: CoordinatorId,
        names: &[&'static str],
        ttl: Millis,
    ) -> Result<Vec<&'static str>, Error>;

    /// Gives all duties of a coordinator up, so that another takes them at once.
    async fn release_duties(&self, coordinator: CoordinatorId) -> Result<(), Error>;
}

/// A letter on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Posted {
    /// The letter.
    pub letter: Letter,
    /// The instance that it goes to, if there is one.
    pub to: Option<InstanceUid>,
    /// The name that it goes to, if it goes to a name.
    pub name: Option<NameKey>,
    /// Another letter is about to start an instance of that name.
    pub starting: bool,
}

/// The answer to a due scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// The database's clock.
    pub now: Timestamp,
    /// Due waits, earliest first.
    pub rows: Vec<(InstanceUid, CallHash, Timestamp)>,
    /// The earliest due time that is still to come, if any is known.
    pub next: Option<Timestamp>,
}

/// A queue of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Run tasks of a workflow.
    Run(Namespace, WorkflowName),
    /// Run tasks of those of its instances that are pinned to a build.
    Pinned(Namespace, WorkflowName, BuildName),
    /// Step tasks of a pool.
    Step(Namespace, Pool),
}

impl Queue {
    /// The queue of a stored name: of a pool, or of a workflow, with the build behind a dot for what is pinned to one.
    pub(crate) fn named(namespace: &str, name: &str, is_pool: bool) -> Result<Self, NameError> {
        let namespace = Namespace::new(namespace)?;
        if is_pool {
            return Ok(Self::Step(namespace, Pool::new(name)?));
        }
        match name.split_once('.') {
            None => Ok(Self::Run(namespace, WorkflowName::new(name)?)),
            Some((workflow, build)) => {
                Ok(Self::Pinned(namespace, WorkflowName::new(workflow)?, BuildName::new(build)?))
            }
        }
    }
}

/// As `workflow fulfil`, `workflow fulfil of build v-7` or `pool gpu`, with the namespace unless that is the default.
impl std::fmt::Display for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let namespace = match self {
            Self::Run(namespace, workflow) => {
                write!(f, "workflow {workflow}")?;
                namespace
            }
            Self::Pinned(namespace, workflow, build) => {
                write!(f, "workflow {workflow} of build {build}")?;
                namespace
            }
            Self::Step(namespace, pool) => {
                write!(f, "pool {pool}")?;
                namespace
            }
        };
        if *namespace == Namespace::default() { Ok(()) } else { write!(f, " in {namespace}") }
    }
}

/// What waits in a queue for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depth {
    /// The queue.
    pub queue: Queue,
    /// How many rows.
    pub rows: u64,
    /// How long the oldest has waited.
    pub oldest: Millis,
}

/// How far the rows of a queue that nobody serves are counted.
pub const UNSERVED_COUNTED: u64 = 10_000;

/// Ready rows that were marked as offered.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    /// What to offer on which queue.
    pub rows: Vec<(Queue, InstanceUid, Subject)>,
    /// Queues that hold back more than was offered.
    pub backlog: Vec<Queue>,
}

/// A lifecycle message that waits in the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    /// The instance.
    pub uid: InstanceUid,
    /// Its run.
    pub run: Run,
    /// The routing key.
    pub routing_key: String,
    /// The stable message id.
    pub message_id: String,
    /// The JSON body.
    pub body: String,
}

/// A message that can never be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Which namespace's queue it came in; none for HTTP without one.
    pub namespace: Namespace,
    /// The code of the reason.
    pub code: String,
    /// The reason in words.
    pub reason: String,
    /// Its headers and properties as JSON.
    pub headers: Payload,
    /// Its body, up to 1 MiB.
    pub body: Vec<u8>,
    /// The body's full length.
    pub body_bytes: u64,
    /// How its producer named it; a message without a name cannot be told from its repetition.
    pub message: Option<MessageName>,
    /// The decision to keep for that name, if the message names a workflow.
    pub decided: Option<(WorkflowName, Decided)>,
}

/// How long a decision on a message is kept that met no instance, or whose instance is deleted (rule P27).
pub(crate) const MESSAGES_KEPT: Millis = Millis::from_secs(7 * 86_400);
/// The most of a rejected message's body that is kept.
pub(crate) const BODY_BYTES_MAX: u64 = 1 << 20;
/// What a record has around its body, at most about.
pub(crate) const RECORD_BYTES: u64 = 1 << 10;

/// About what the record of a message with a body of this length takes.
#[must_use]
pub const fn record_bytes(body_bytes: u64) -> u64 {
    RECORD_BYTES + if body_bytes < BODY_BYTES_MAX { body_bytes } else { BODY_BYTES_MAX }
}

/// The name that a producer gave its message: one record per namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MessageName {
    /// The producer's application id; empty if it gave none.
    pub app_id: String,
    /// The message id.
    pub message_id: String,
}

/// Records beside the instances.
#[async_trait]
pub trait Records: Send + Sync + std::fmt::Debug + 'static {
    /// Lifecycle messages that have waited longer than `older`, oldest first.
    async fn outbox(&self, older: Millis, limit: u32) -> Result<Vec<OutboxRow>, Error>;

    /// Deletes lifecycle messages that were confirmed.
    async fn sent(&self, rows: &[(InstanceUid, Run)]) -> Result<(), Error>;

    /// Records rejected messages, once per namespace, application id and message id.
    async fn reject(&self, rejected: &[Rejected]) -> Result<(), Error>;

    /// What the records of each of these namespaces take, in order: the sum of their [`record_bytes`] (rule W17).
    async fn rejected_bytes(&self, namespaces: &[Namespace]) -> Result<Vec<u64>, Error>;

    /// Removes journals of deleted instances, at most `limit` entries. Answers with their count; less than `limit` means that
    /// none is left.
    async fn sweep(&self, limit: u32) -> Result<u64, Error>;

    /// Deletes what is past its time, at most `limit` rows a table: message decisions that met no instance after 7 days
    /// (the others last as long as their instance, rule P27), rejected records, breaches and bulk operations that are over after 30,
    /// records of changed schedules after 90, ended sessions without leases after one, access tokens 90 days after they have expired or
    /// were revoked. Answers with the count.
    async fn clean(&self, limit: u32) -> Result<u64, Error>;
}

/// What API and CLI show.
#[async_trait]
pub trait Views: Send + Sync + std::fmt::Debug + 'static {
    /// One instance.
    async fn instance(&self, name: &NameKey) -> Result<Option<InstanceView>, Error>;

    /// The status that is stored of an instance: open, or how it has ended. For whoever asks again and again.
    async fn status(&self, name: &NameKey) -> Result<Option<Status>, Error>;

    /// Instances, newest first.
    async fn instances(&self, filter: &Filter, cursor: Option<&Cursor>, limit: u32) -> Result<Page, Error>;

    /// Ends after a mark, at most `limit`, in the order of their commits: an end is given once no transaction that is still under
    /// way could come before it, so that whoever goes on at `next` skips none and gets none twice. An end that a restart has taken
    /// back is not there any more.
    async fn ends(&self, ends: &Ends, after: &EndMark, limit: u32) -> Result<EndPage, Error>;

    /// A mark before every end that is yet to come; of those that are committed, only some of the newest may follow it too.
    async fn ends_now(&self) -> Result<EndMark, Error>;

    /// Who owns a token, or keeps it by a retention that is not over.
    async fn hook(&self, namespace: &Namespace, token: &Token) -> Result<Option<HookView>, Error>;

    /// What the code has answered the request of a webhook, if it has.
    async fn reply(&self, to: &ReplyKey) -> Result<Replied, Error>;

    /// Tokens of a namespace that somebody owns or keeps, after this one, in their order.
    async fn hooks(
        &self,
        namespace: &Namespace,
        after: Option<&Token>,
        limit: u32,
    ) -> Result<Vec<HookView>, Error>;

    /// Open questions, in the order in which they were asked, after this place.
    async fn attention(
        &self,
        filter: &AttentionFilter,
        after: Option<&AttentionMark>,
        limit: u32,
    ) -> Result<Vec<AttentionView>, Error>;

    /// How many questions are open, of all namespaces, by kind and age.
    async fn attention_counts(&self) -> Result<Vec<AttentionCount>, Error>;

    /// Calls of steps with all that their journals say of them but payloads, oldest first (rule L14). Of a key, searched for in the
    /// journals of a window, by reading those: it may take long, and on PostgreSQL is [`ErrorKind::Unavailable`] after 30 s.
    async fn ledger(&self, search: &LedgerSearch, limit: u32) -> Result<Vec<LedgerCall>, Error>;

    /// How many instances are open, of all namespaces, by status and reason. Each is counted up to about [`OPEN_COUNTED`]; what waits has a
    /// reason is the first of its waits in the order of [`WaitKind::code`](everstep_engine::rows::WaitKind::code). Reads all of it:
    /// for whoever asks rarely.
    async fn open_counts(&self) -> Result<Vec<OpenCount>, Error>;

    /// Rejected messages of a namespace, newest first.
    async fn rejected(&self, namespace: &Namespace, limit: u32) -> Result<Vec<RejectedView>, Error>;
}
