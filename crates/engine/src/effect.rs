//! What a decision consists of: rows to change, messages that may leave only after the commit, and the answer.

use everstep_protocol::{
    Attribute, BuildName, CallHash, EventType, InstanceUid, Namespace, Payload, Pool, Position, Run,
    SessionId, Timestamp, Token, WorkflowName,
    hook::WebhookResponse,
    journal::{Entry, Other, Outcome, Parked},
    message::{CoordinatorItem, StepGrant},
};

use crate::{
    head::{Head, Status},
    hook::{HookEnd, HookRow, ReplyKey},
    letter::{Caller, Cascade, ChildRow, NewLetter, ParentRow},
    lifecycle::Lifecycle,
    mailbox::{Delivery, EventRow},
    rows::{Control, Lease, RemoteRow, Subject, WaitRow},
    status::StatusWord,
};

/// What one input does to one instance.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The head afterwards; none if it does not change.
    pub head: Option<Head>,
    /// The last entries of the run that the head leaves, where a generation follows (rule P36).
    pub last: Vec<Entry>,
    /// Entries to append, at positions that follow the head's.
    pub entries: Vec<Entry>,
    /// Side rows to change, in order.
    pub changes: Vec<Change>,
    /// What to send after the commit.
    pub effects: Vec<Effect>,
    /// What to tell whoever asked.
    pub answer: Answer,
}

impl Decision {
    /// Nothing changes.
    #[must_use]
    pub const fn nothing(answer: Answer) -> Self {
        Self {
            head: None,
            last: Vec::new(),
            entries: Vec::new(),
            changes: Vec::new(),
            effects: Vec::new(),
            answer,
        }
    }
}

/// A change of one side row. An insert is of a row that is known to be absent, a delete may find nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A lease begins.
    Lease(Subject, Lease),
    /// A lease ends.
    LeaseEnd(Subject),
    /// Something is runnable and not leased; `pool` is set for a remote step.
    Ready(Subject, Option<Pool>),
    /// It is not, or no longer.
    ReadyEnd(Subject),
    /// A wait opens.
    Wait(WaitRow),
    /// A wait is over.
    WaitEnd(CallHash),
    /// A remote step is new or has changed.
    Remote(RemoteRow),
    /// A remote step has its outcome.
    RemoteEnd(CallHash),
    /// The instance has ended: no lease, ready row, wait, remote step, question, pause or cancel is left.
    Everything,
    /// Its calls have ended: no wait is left, and no remote step with its lease and ready row.
    Calls,
    /// Waits whose time has come become due now.
    WaitsDue,
    /// A pause or cancel is in force, or another than before.
    Control(Control),
    /// None is, or no longer.
    ControlEnd,
    /// It has ended, and is to be deleted then.
    Ended(Timestamp),
    /// It is open again.
    EndedNoMore,
    /// Its journals of runs before this one are removed, soon, and its children of those runs are forgotten (rule P36).
    Cut(Run),
    /// An attribute is set, or removed.
    Attribute(Attribute),
    /// It has these attributes, and no others.
    Attributes(Vec<Attribute>),
    /// The workflow has published its state.
    State(Payload),
    /// It is deleted.
    Delete(Forget),
    /// The instance is parked.
    Park(Parked),
    /// It is not, or no longer.
    ParkEnd,
    /// The first answer of a control operation.
    Operation(String, Answer),
    /// An event is accepted.
    Event(EventRow),
    /// An event has gone to a call, or is unread again.
    Delivery {
        /// The event's type.
        kind: EventType,
        /// Its number.
        sequence: u64,
        /// Where it has gone.
        delivery: Option<Delivery>,
    },
    /// A message to the world, from the outbox.
    Outbox(Lifecycle),
    /// A letter to another instance.
    Letter(NewLetter),
    /// The same letter to attached children.
    Cascade(Cascade),
    /// A letter was taken.
    LetterEnd(u64),
    /// It has a child.
    Child(ChildRow),
    /// The child of this call has ended, or never was its own.
    ChildOver(CallHash),
    /// It has a parent.
    Parent(ParentRow),
    /// Somebody waits for its end.
    Watcher(Caller),
    /// It has ended: everybody who waits for that gets this outcome, and waits no more.
    Conclude(Outcome),
    /// A token has this owner from now on.
    Hook(Token, HookRow),
    /// It is this instance's no more.
    HookEnd(Token, InstanceUid, HookEnd),
    /// The owner has ended: what has no retention is free, the rest is kept (rules H12, H16).
    HooksEnded,
    /// All its tokens are free but that of the hook that it was started with.
    HooksDrop,
    /// The request of a webhook is answered, unless it was before.
    Reply(ReplyKey, WebhookResponse),
}

/// What of a deleted instance is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget {
    /// All that names it.
    Everything,
    /// All but young decisions on the messages that named it: a redelivery must not make a second instance (rule P27).
    AllButRecentMessages,
}

/// What is sent after the commit. Losing any of it delays, and never loses, work.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most effects are items: a box would cost an allocation for each of them"
)]
pub enum Effect {
    /// An item for a session's inbox.
    Item(SessionId, CoordinatorItem),
    /// A lease for a session; where entries are missing, the coordinator adds the first part of them.
    Grant {
        /// For whom.
        session: SessionId,
        /// The head as committed.
        head: Box<Head>,
        /// Sent against a credit.
        direct: bool,
        /// What the session has already (rule W27).
        after: Position,
        /// The entries since then, if the decision knows them all; else they are read.
        entries: Vec<Entry>,
    },
    /// The lease of a remote step.
    StepGrant(SessionId, Box<StepGrant>),
    /// Entries that the holder does not have yet.
    Push {
        /// The holder.
        session: SessionId,
        /// The head as committed.
        head: Box<Head>,
        /// The entries.
        entries: Vec<Entry>,
    },
    /// A run task, if the queue has room.
    Offer {
        /// Namespace.
        namespace: Namespace,
        /// Workflow.
        workflow: WorkflowName,
        /// The build that it is pinned to.
        build: Option<BuildName>,
        /// Instance.
        instance: InstanceUid,
        /// Who may have kept its body and is told of it before the queue is (rule W27).
        kept_by: Option<SessionId>,
    },
    /// Whoever waits for the answer to a request of a webhook can have it.
    Reply(ReplyKey, Box<WebhookResponse>),
    /// A step task, if the queue has room.
    OfferStep {
        /// Namespace.
        namespace: Namespace,
        /// Pool.
        pool: Pool,
        /// Instance.
        instance: InstanceUid,
        /// Its call.
        call: CallHash,
    },
}

impl Effect {
    /// The lease of a remote step is over with its instance: its attempt is cancelled (rules P30, W39).
    #[must_use]
    pub const fn step_over(instance: InstanceUid, call: CallHash, lease: Lease) -> Self {
        Self::Item(lease.session, CoordinatorItem::StepFence { instance, call, epoch: lease.epoch })
    }
}

/// What whoever sent an input learns, and what is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was done.
    Done,
    /// It changed nothing: it was done before, or there was nothing to do.
    Nothing,
    /// A lease was granted.
    Granted,
    /// A claim was refused.
    NotGranted,
    /// A report was taken.
    Taken,
    /// A report was refused: its lease is over (rule W2).
    Fenced,
    /// It bears an epoch that this installation never gave: lost history. Set aside with an alarm, never answered as
    /// stale (rule W2).
    FromTheFuture,
    /// The instance was parked by this input.
    Parked,
    /// The operation is not allowed in this status.
    Refused(Status),
    /// The operation is not allowed in this status of an open instance.
    Forbidden(StatusWord),
    /// What the operation was prepared from has changed meanwhile: prepare it again.
    Moved,
    /// The operation needs a parked instance and this one is not.
    NotParked,
    /// No such instance.
    NotFound,
    /// A start created an instance.
    Created,
    /// A start met an instance with the same input.
    Exists(Status),
    /// A start met an instance with another input.
    Conflict(Status),
    /// A start is refused: no live session serves its workflow (rule P35). It may be sent again.
    NotServed,
    /// Another event with this id was accepted before.
    EventIdTaken,
    /// The instance has as many unread events as it may.
    MailboxFull,
    /// A start asks for a token that this instance has: nothing was created (rule H32).
    HookHeld(Other),
    /// A start asks for a token for longer than it may, or until a moment that has passed: nothing was created.
    HookRetention,
    /// The question is not open, or no longer.
    NotAsked,
}

/// What an operation that a person asked for came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operated {
    /// It was done, or there was nothing to do.
    Done,
    /// The status, by this word, forbids it.
    NotAllowed(&'static str),
    /// What it was prepared from has changed meanwhile: prepare it again.
    Moved,
    /// It needs a parked instance and this one is not.
    NotParked,
    /// No such instance.
    NotFound,
    /// The question that it answers is not open, or no longer.
    NotAsked,
}

impl Answer {
    /// The answer to an operation on an instance; none if it is one that operations do not get.
    #[must_use]
    pub const fn operated(&self) -> Option<Operated> {
        match self {
            Self::Done | Self::Nothing => Some(Operated::Done),
            Self::Refused(status) => Some(Operated::NotAllowed(status.word())),
            Self::Forbidden(status) => Some(Operated::NotAllowed(status.word())),
            Self::Moved => Some(Operated::Moved),
            Self::NotParked => Some(Operated::NotParked),
            Self::NotFound => Some(Operated::NotFound),
            Self::NotAsked => Some(Operated::NotAsked),
            Self::Granted
            | Self::NotGranted
            | Self::Taken
            | Self::Fenced
            | Self::FromTheFuture
            | Self::Parked
            | Self::Created
            | Self::Exists(_)
            | Self::Conflict(_)
            | Self::NotServed
            | Self::EventIdTaken
            | Self::HookHeld(_)
            | Self::HookRetention
            | Self::MailboxFull => None,
        }
    }
}
