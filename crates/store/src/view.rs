//! What API and CLI show of an instance: derived from the head and its side rows in one read, never stored (promise 6).

pub use everstep_engine::status::StatusWord;
use everstep_engine::{
    Status,
    hook::HookRow,
    letter::ParentRow,
    mailbox::Awaited,
    rows::{Control, Question, WaitKind},
    start::NameKey,
};
use everstep_protocol::{
    Attribute, BuildName, Call, CallHash, Epoch, EventType, Generation, InstanceId, InstanceUid, Millis,
    Namespace, Payload, Pin, Position, Reference, Run, SessionId, StepKey, Timestamp, Token, WorkflowName,
    hook::WebhookResponse,
    journal::{Compensated, End, Entry, Other, ParkCode, Parked},
};

/// An open wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitView {
    /// The call.
    pub call: Call,
    /// What for.
    pub kind: WaitKind,
    /// Since when.
    pub since: Timestamp,
    /// Until when, if time ends it.
    pub due_at: Option<Timestamp>,
    /// Which events end it; only for waits of events.
    pub awaited: Option<Awaited>,
    /// What a person is asked; only for waits of a person.
    pub question: Option<Box<Question>>,
}

/// Which calls of steps an auditor asks for (rule L14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerSearch {
    /// Those of a run of an instance that are first heard of after this position; also calls that are no steps, which whoever reads
    /// them leaves out.
    Instance(InstanceUid, Run, Position),
    /// Those of which an attempt bears this reference.
    Reference(Namespace, Reference),
    /// The one with this idempotency key, if its instance was created in a window.
    Key {
        /// Of which namespace.
        namespace: Namespace,
        /// The key.
        key: StepKey,
        /// Where the window begins.
        since: Since,
        /// Its end, not part of it; none if it has none.
        until: Option<Timestamp>,
    },
}

/// A moment of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// This one.
    At(Timestamp),
    /// So long before now, by the store's clock.
    Ago(Millis),
}

impl Since {
    /// The moment, if it is now this time.
    pub(crate) fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(moment) => moment,
            Self::Ago(span) => now.minus(span),
        }
    }
}

/// A call of a step, as the journal has it.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerCall {
    /// The instance.
    pub name: NameKey,
    /// The run.
    pub run: Run,
    /// The entries that are about the call, in order, each with `null` for its main payload.
    pub entries: Vec<Entry>,
}

/// Something that a person is to decide: why an instance is parked, or what came of an attempt (rule L8).
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionView {
    /// The instance.
    pub uid: InstanceUid,
    /// Its name.
    pub name: NameKey,
    /// Its run.
    pub run: Run,
    /// Since when it asks.
    pub since: Timestamp,
    /// What it asks.
    pub asked: AskedView,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum AskedView {
    /// It is parked.
    Parked(Parked),
    /// Nobody knows what came of an attempt of this call.
    Unknown(Call, Box<Question>),
}

/// The kind of question that is about an attempt; the others are the codes of what is parked.
pub const UNKNOWN_OUTCOME: &str = "unknown_outcome";

impl AttentionView {
    /// Its kind, for people and filters.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match &self.asked {
            AskedView::Parked(parked) => parked.code.word(),
            AskedView::Unknown(..) => UNKNOWN_OUTCOME,
        }
    }

    /// Where a list goes on after it.
    #[must_use]
    pub fn mark(&self) -> AttentionMark {
        let call = match &self.asked {
            AskedView::Parked(_) => [0; 16],
            AskedView::Unknown(call, _) => call.hash().0,
        };
        AttentionMark { since: self.since, uid: self.uid, call }
    }
}

/// A place in a list of questions, which are in the order in which they were asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttentionMark {
    /// When it was asked.
    pub since: Timestamp,
    /// By which instance.
    pub uid: InstanceUid,
    /// About which call; zero if it is parked.
    pub call: [u8; 16],
}

/// Which questions to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttentionFilter {
    /// Only this namespace.
    pub namespace: Namespace,
    /// Only this workflow.
    pub workflow: Option<WorkflowName>,
    /// Only this kind.
    pub kind: Option<String>,
    /// Only those that were asked at least so long ago.
    pub older_than: Option<Millis>,
}

/// How many questions of a kind are open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttentionCount {
    /// The kind.
    pub kind: String,
    /// How many were asked within the last hour, in the last day but before that, and longer ago.
    pub by_age: [u64; 3],
}

/// How many open instances have a status for a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenCount {
    /// The status.
    pub status: StatusWord,
    /// What an instance waits for, or is asked about; empty where the status says all.
    pub reason: &'static str,
    /// How many.
    pub instances: u64,
}

impl OpenCount {
    /// From what a store counts by: the status, and the code of what is asked or the kind of what is waited for. None if one of them
    /// is none that is known.
    pub(crate) fn of(status: &str, code: Option<&str>, kind: Option<i16>, instances: u64) -> Option<Self> {
        let asked = |code: &str| match ParkCode::ALL.into_iter().find(|known| known.word() == code) {
            Some(known) => Some(known.word()),
            None => (code == UNKNOWN_OUTCOME).then_some(UNKNOWN_OUTCOME),
        };
        let reason = match (code, kind) {
            (Some(code), _) => asked(code)?,
            (None, Some(kind)) => WaitKind::from_code(kind)?.word(),
            (None, None) => "",
        };
        Some(Self { status: StatusWord::parse(status)?, reason, instances })
    }
}

/// How far the waits of open instances are counted.
pub const OPEN_COUNTED: u64 = 1_000_000;

/// A child of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildView {
    /// The call that started it.
    pub call: CallHash,
    /// The run that made the call.
    pub run: Run,
    /// The child.
    pub name: Other,
    /// What ends or cancels the parent leaves it alone.
    pub detached: bool,
    /// Its stored status; none if it does not exist: not yet, or not any more.
    pub status: Option<Status>,
}

/// A token that somebody owns, or keeps by a retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookView {
    /// The token.
    pub token: Token,
    /// Its row.
    pub hook: HookRow,
    /// The owner's stored status.
    pub status: Status,
}

/// Unread events of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadView {
    /// The type.
    pub kind: EventType,
    /// How many.
    pub count: u64,
    /// When the oldest was accepted.
    pub since: Timestamp,
}

/// One instance.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceView {
    /// Internal id.
    pub uid: InstanceUid,
    /// Namespace.
    pub namespace: Namespace,
    /// Workflow.
    pub workflow: WorkflowName,
    /// Id.
    pub id: InstanceId,
    /// Run.
    pub run: Run,
    /// Generation.
    pub generation: Generation,
    /// Status.
    pub status: StatusWord,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Last position of the journal.
    pub position: Position,
    /// Steps with an outcome.
    pub steps: u64,
    /// The epoch of the latest lease.
    pub epoch: Epoch,
    /// Who holds it, and the build of that worker.
    pub holder: Option<(SessionId, BuildName, String)>,
    /// Since when it has been ready.
    pub ready_at: Option<Timestamp>,
    /// To which build it is pinned.
    pub pin: Option<Pin>,
    /// Some live session serves its workflow, with the build that it is pinned to (rules P35, P40).
    pub served: bool,
    /// Open waits, questions first, then the earliest due, at most 100; `waits` counts all.
    pub waiting: Vec<WaitView>,
    /// How many waits are open.
    pub waits: u32,
    /// How many events were accepted.
    pub events: u64,
    /// Unread events by type, oldest first, at most 100 types; not in lists.
    pub unread: Vec<UnreadView>,
    /// Types that are awaited and of which no event was ever sent, at most 100; not in lists (rule P25).
    pub never_sent: Vec<EventType>,
    /// The pause and cancel in force.
    pub control: Control,
    /// The open question of a parked instance.
    pub parked: Option<(Timestamp, Parked)>,
    /// How it ended.
    pub end: Option<End>,
    /// How its compensations ended, where it has ended after some (rule P39).
    pub compensated: Option<Compensated>,
    /// What it can be found by (rule P37).
    pub attributes: Vec<Attribute>,
    /// What its workflow has published last, and when that was reported; not in lists.
    pub state: Option<(Timestamp, Payload)>,
    /// Who started it, if an instance did; not in lists (rule P36).
    pub parent: Option<ParentRow>,
    /// Its children, at most 100, those that may be open first; `children_total` counts all. Not in lists.
    pub children: Vec<ChildView>,
    /// How many children it has started, without those of generations before the last.
    pub children_total: u64,
}

/// Which instances to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this namespace.
    pub namespace: Namespace,
    /// Only this workflow.
    pub workflow: Option<WorkflowName>,
    /// Only this status.
    pub status: Option<StatusWord>,
    /// Only what has not ended; with a final status, that is nothing. A page of these may be shorter than was asked for, or empty,
    /// though another follows: only the cursor says so.
    pub open: bool,
    /// With how each has ended, and the open question of what is parked is there in any case.
    pub ends: bool,
    /// Only what has all these attributes, with these values.
    pub attributes: Vec<Attribute>,
    /// Only what has an id that begins so. A page may be shorter than was asked for, or empty, though another follows.
    pub id_prefix: Option<String>,
}

/// So many instances are taken from the index of ids; where more begin with a prefix, lists are in the order of creation anyway, and
/// enough of what they find fits.
pub(crate) const PREFIXED_MAX: usize = 50_000;

/// So many instances with an attribute are counted, to begin a search with the rarest.
pub(crate) const COUNTED: usize = 1_000;

/// Behind every id that begins with the prefix: ids have no character as high as this.
pub(crate) fn behind(prefix: &str) -> String {
    format!("{prefix}~")
}

impl Filter {
    /// Whether an instance of the namespace and of the workflow fits the rest.
    pub(crate) fn fits(&self, view: &InstanceView) -> bool {
        let has = |wanted: &Attribute| view.attributes.contains(wanted);
        self.status.is_none_or(|status| status == view.status)
            && !(self.open && view.status.is_ended())
            && self.attributes.iter().all(has)
            && self.id_prefix.as_ref().is_none_or(|prefix| view.id.as_str().starts_with(prefix.as_str()))
    }

    /// Whether nothing can fit: what is open has no final status.
    pub(crate) fn contradicts_itself(&self) -> bool {
        self.open && self.status.is_some_and(StatusWord::is_ended)
    }
}

/// Where a page ended: the internal id of its last row. Ids are ordered by creation, so new instances never shift a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(pub InstanceUid);

/// A page of instances; waits, holder and, unless asked for, end of each are left out but for the first wait.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The instances.
    pub rows: Vec<InstanceView>,
    /// Where the next page begins, if there is one.
    pub next: Option<Cursor>,
    /// How many instances were looked at for it.
    pub looked_at: usize,
}

/// Which ends to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Only of this namespace.
    pub namespace: Namespace,
    /// Only of this workflow.
    pub workflow: Option<WorkflowName>,
    /// Only with this end.
    pub status: Option<Status>,
}

/// A place in the order in which ends are told. The default is before all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndMark {
    /// The number of the commit.
    pub commit: u64,
    /// The instance, where one commit has several.
    pub uid: InstanceUid,
}

impl Default for EndMark {
    fn default() -> Self {
        Self { commit: 0, uid: InstanceUid(uuid::Uuid::nil()) }
    }
}

/// Ends in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndPage {
    /// Each with its place.
    pub rows: Vec<(EndMark, InstanceView)>,
    /// Where to go on: nothing that was looked for is between the last row and this.
    pub next: EndMark,
    /// There may be more behind it already.
    pub more: bool,
}

/// The ends of a page have no more bytes of output than this, but for the last ones.
pub const END_PAGE_BYTES: usize = 1 << 20;

/// About how many bytes the end of an instance has.
pub(crate) fn end_bytes(view: &InstanceView) -> usize {
    match &view.end {
        Some(End::Complete(output)) => output.as_str().len(),
        Some(End::Errored(failure)) => {
            failure.message.len() + failure.data.as_ref().map_or(0, |data| data.as_str().len())
        }
        Some(End::Terminated { .. } | End::Cancelled { .. }) | None => 0,
    }
}

/// A rejected message.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedView {
    /// When.
    pub at: Timestamp,
    /// The code of the reason.
    pub code: String,
    /// The reason in words.
    pub reason: String,
    /// Its message id, if it had one.
    pub message_id: Option<String>,
    /// Its headers and properties as JSON text.
    pub headers: String,
    /// The beginning of its body, as text as far as it is.
    pub body: String,
    /// The body's full length.
    pub body_bytes: u64,
}

/// After every token there can be.
pub(crate) fn last_token() -> String {
    "\u{10ffff}".repeat(257)
}

/// How it stands with the answer to a request of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replied {
    /// The code has answered.
    With(WebhookResponse),
    /// It may yet.
    NotYet,
    /// It has not, and the instance has ended or is deleted.
    Over,
}

impl Replied {
    pub(crate) fn of(response: Option<WebhookResponse>, status: Option<Status>) -> Self {
        match (response, status) {
            (Some(response), _) => Self::With(response),
            (None, Some(status)) if !status.is_ended() => Self::NotYet,
            (None, _) => Self::Over,
        }
    }
}

/// Whose call it is: of which instance and run.
pub(crate) type Of = (InstanceUid, Run, CallHash);

/// Entries by call, in the order in which the calls came.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    last: Option<Of>,
    calls: Vec<LedgerCall>,
}

impl Gathered {
    /// The next entry; those of one call come one after another.
    pub(crate) fn add(&mut self, call: Of, name: NameKey, entry: Entry) {
        if self.last != Some(call) {
            self.calls.push(LedgerCall { name, run: call.1, entries: Vec::new() });
            self.last = Some(call);
        }
        if let Some(last) = self.calls.last_mut() {
            last.entries.push(entry);
        }
    }

    pub(crate) fn calls(self) -> Vec<LedgerCall> {
        self.calls
    }
}

/// The ids that instances created in a window can have: an id begins with the moment at which it was given, by the clock of who gave
/// it, which may differ from the database's by an hour.
pub(crate) fn window(from: Timestamp, to: Timestamp) -> (uuid::Uuid, uuid::Uuid) {
    const HOUR: i64 = 60 * 60 * 1_000;
    let id = |micros: i64, slack: i64| {
        let millis = (micros / 1_000).saturating_add(slack).clamp(0, (1 << 48) - 1);
        uuid::Uuid::from_u128(u128::from(millis.unsigned_abs()) << 80)
    };
    (id(from.0, -HOUR), id(to.0, HOUR))
}
