//! The rows that a batch writes, each once. Deletes are applied before inserts: a row that is replaced is in both.

use std::borrow::Cow;

use everstep_protocol::{
    Attribute, BuildName, CallHash, EventType, Fingerprint, InstanceUid, Namespace, Payload, Pin, Run,
    Timestamp, WorkflowName,
    hook::WebhookResponse,
    journal::{Entry, Outcome, Parked},
};

use crate::{
    action::Action,
    effect::{Answer, Forget},
    head::{Head, Status},
    hook::{HookEnd, HookRow, ReplyKey, TokenKey},
    letter::{Caller, Cascade, ChildRow, NewLetter, ParentRow},
    lifecycle::Lifecycle,
    mailbox::{AwaitedKey, Delivery, EventRow},
    rows::{Control, Lease, RemoteRow, Subject, WaitRow},
    start::{Decided, MessageKey, NameKey},
};

/// Everything that one transaction writes.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    /// New heads, as they are after the batch.
    pub created: Vec<Head>,
    /// The names of the new instances. A name that is taken meanwhile fails the batch, which is then run again.
    pub names: Vec<NameRow>,
    /// Decisions on messages. One that was decided meanwhile fails the batch in the same way.
    pub messages: Vec<(MessageKey, Decided)>,
    /// Locked heads that changed.
    pub heads: Vec<Head>,
    /// To which builds new instances are pinned, and locked ones from now on (rule P40).
    pub pins: Vec<(InstanceUid, Option<Pin>)>,
    /// Journal entries, by instance in order of position.
    pub journal: Vec<JournalRow>,
    /// Leases that ended.
    pub lease_deletes: Vec<(InstanceUid, Subject)>,
    /// Leases that began.
    pub leases: Vec<(InstanceUid, Subject, Lease)>,
    /// Ready rows that are gone.
    pub ready_deletes: Vec<(InstanceUid, Subject)>,
    /// New ready rows.
    pub ready: Vec<ReadyRow>,
    /// Waits that are over.
    pub wait_deletes: Vec<(InstanceUid, CallHash)>,
    /// Waits that opened.
    pub waits: Vec<(InstanceUid, WaitRow)>,
    /// What waits of events waited for that are over. Those of [`cleared`](Self::cleared) instances are not named.
    pub awaited_deletes: Vec<AwaitedKey>,
    /// What new waits of events wait for, with their calls.
    pub awaited: Vec<(AwaitedKey, CallHash)>,
    /// Events that were accepted, as they are after the batch.
    pub events: Vec<(InstanceUid, EventRow)>,
    /// Answers to requests of webhooks that were accepted before; one that has an answer keeps it.
    pub replies: Vec<(ReplyKey, WebhookResponse)>,
    /// Events that were accepted before, and went to a call or returned.
    pub deliveries: Vec<DeliveryRow>,
    /// Remote steps that are over or replaced.
    pub remote_deletes: Vec<(InstanceUid, CallHash)>,
    /// Remote steps that are new or have changed.
    pub remotes: Vec<(InstanceUid, RemoteRow)>,
    /// Ended instances of which all waits and what they wait for, remote steps, and step leases and ready rows are deleted.
    pub cleared: Vec<InstanceUid>,
    /// Instances whose waits that are past become due now.
    pub waits_due: Vec<InstanceUid>,
    /// Instances of which no pause or cancel is in force any more, or another.
    pub control_deletes: Vec<InstanceUid>,
    /// Pauses and cancels in force.
    pub controls: Vec<(InstanceUid, Control)>,
    /// Instances that are open again.
    pub ended_deletes: Vec<InstanceUid>,
    /// Instances that have ended.
    pub ended: Vec<EndedRow>,
    /// Instances whose attributes are all removed, before others are set.
    pub attribute_resets: Vec<InstanceUid>,
    /// Attributes that are set, or removed.
    pub attributes: Vec<AttributeRow>,
    /// States that workflows have published, as they are after the batch.
    pub states: Vec<(InstanceUid, Published)>,
    /// Instances whose journals of runs before these are removed, later.
    pub cuts: Vec<(InstanceUid, Run)>,
    /// Instances that are deleted. Their journals are cut off, and swept later.
    pub deleted: Vec<Deleted>,
    /// Instances that are no longer parked.
    pub parked_deletes: Vec<InstanceUid>,
    /// Instances that are parked.
    pub parked: Vec<(InstanceUid, Timestamp, Parked)>,
    /// First answers of control operations.
    pub operations: Vec<(InstanceUid, String, Answer)>,
    /// What people did, for the audit log (rule A6).
    pub actions: Vec<Action>,
    /// Lifecycle messages to send.
    pub outbox: Vec<Lifecycle>,
    /// Lifecycle messages that were confirmed: their rows are deleted.
    pub sent: Vec<(InstanceUid, Run)>,
    /// Letters that were taken.
    pub letter_deletes: Vec<u64>,
    /// Letters to other instances, in order.
    pub letters: Vec<NewLetter>,
    /// Letters to the attached children that may be open, of those that are stored. This and what follows is applied in this
    /// order, and before [`deleted`](Self::deleted) takes such rows.
    pub cascades: Vec<(InstanceUid, Cascade)>,
    /// Instances that have ended: each of the watchers that are stored gets a letter with this outcome, and is deleted.
    pub concluded: Vec<(InstanceUid, Outcome)>,
    /// New children.
    pub children: Vec<(InstanceUid, ChildRow)>,
    /// Children that have ended, or never were.
    pub children_over: Vec<(InstanceUid, Run, CallHash)>,
    /// Instances whose children of runs before these are not known as such any more (rule P36).
    pub children_cuts: Vec<(InstanceUid, Run)>,
    /// New parents.
    pub parents: Vec<(InstanceUid, ParentRow)>,
    /// Those who wait for an instance's end from now on. Calls of earlier runs of the same caller do not any more.
    pub watchers: Vec<(InstanceUid, Caller)>,
    /// Instances that have ended: of their stored hooks those without a retention are deleted, the others noted as kept by it alone.
    /// This and what follows is applied in this order.
    pub hooks_ended: Vec<InstanceUid>,
    /// Instances whose stored hooks are deleted, but not those that they were started with.
    pub hooks_dropped: Vec<InstanceUid>,
    /// Stored hooks that are over, with whose they are and why. One that is another's by now stays.
    pub hook_deletes: Vec<(TokenKey, InstanceUid, HookEnd)>,
    /// New hooks. A token that is taken meanwhile fails the batch, which is then run again.
    pub hooks: Vec<(TokenKey, HookRow)>,
    /// What heads say of their hooks, where it has changed.
    pub hook_counts: Vec<(InstanceUid, HookCount)>,
}

/// What a head says of the hooks of its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookCount {
    /// How many tokens it may own.
    pub hooks: u32,
    /// The end of their longest retention.
    pub until: Option<Timestamp>,
}

/// An instance that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRow {
    /// The instance.
    pub uid: InstanceUid,
    /// Its namespace.
    pub namespace: Namespace,
    /// Its workflow.
    pub workflow: WorkflowName,
    /// How it has ended.
    pub status: Status,
    /// When it is to be deleted (rule P32).
    pub delete_at: Timestamp,
}

impl EndedRow {
    pub(super) fn of(head: &Head, delete_at: Timestamp) -> Self {
        Self {
            uid: head.uid,
            namespace: head.namespace.clone(),
            workflow: head.workflow.clone(),
            status: head.status,
            delete_at,
        }
    }
}

/// A deleted instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// The instance.
    pub uid: InstanceUid,
    /// Its name.
    pub name: NameKey,
    /// What is forgotten.
    pub forget: Forget,
    /// It may have children, a parent and watchers.
    pub linked: bool,
    /// It may own tokens.
    pub hooked: bool,
}

/// What an instance can be found by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeRow {
    /// The instance.
    pub uid: InstanceUid,
    /// Its namespace.
    pub namespace: Namespace,
    /// The attribute; one without a value is removed.
    pub attribute: Attribute,
}

/// What a workflow has published last (rule P37).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The state.
    pub state: Payload,
    /// In which run.
    pub run: Run,
    /// When it was reported.
    pub at: Timestamp,
}

/// The name of a new instance.
#[derive(Clone, Debug)]
pub struct NameRow {
    /// The name.
    pub key: NameKey,
    /// The instance.
    pub uid: InstanceUid,
    /// The fingerprint of its input.
    pub fingerprint: Fingerprint,
}

/// What has become of an event.
#[derive(Clone, Debug)]
pub struct DeliveryRow {
    /// The instance.
    pub uid: InstanceUid,
    /// The event's type.
    pub kind: EventType,
    /// Its number.
    pub sequence: u64,
    /// Where it has gone; none if it is unread again.
    pub delivery: Option<Delivery>,
    /// What it says, where it is unread again: the journal that it was delivered in may be removed before it is read.
    pub payload: Option<Payload>,
}

/// One journal entry with its key.
#[derive(Clone, Debug)]
pub struct JournalRow {
    /// The instance.
    pub uid: InstanceUid,
    /// Its run.
    pub run: Run,
    /// The entry.
    pub entry: Entry,
}

/// Something runnable that nobody holds.
#[derive(Clone, Debug)]
pub struct ReadyRow {
    /// The instance.
    pub uid: InstanceUid,
    /// The instance itself, or one of its remote steps.
    pub subject: Subject,
    /// Namespace.
    pub namespace: Namespace,
    /// Workflow.
    pub workflow: WorkflowName,
    /// The build that the instance is pinned to; none for a remote step.
    pub build: Option<BuildName>,
    /// The pool of a remote step.
    pub pool: Option<everstep_protocol::Pool>,
    /// Since when.
    pub ready_at: Timestamp,
    /// A task for it is sent with the commit; otherwise whoever holds the dispatch duty offers it.
    pub offered: bool,
}

impl ReadyRow {
    /// What its queue is called within its namespace and kind: by the pool, or the workflow with the build that it is pinned
    /// to. Names hold no dots, so that no other queue is called the same.
    #[must_use]
    pub fn queue(&self) -> Cow<'_, str> {
        match (&self.pool, &self.build) {
            (Some(pool), _) => Cow::Borrowed(pool.as_str()),
            (None, None) => Cow::Borrowed(self.workflow.as_str()),
            (None, Some(build)) => Cow::Owned(pinned_queue(&self.workflow, build)),
        }
    }
}

/// What the queue of a workflow's instances that are pinned to a build is called.
#[must_use]
pub fn pinned_queue(workflow: &WorkflowName, build: &BuildName) -> String {
    format!("{workflow}.{build}")
}

impl Writes {
    /// Whether there may be letters to take after it.
    #[must_use]
    pub fn writes_mail(&self) -> bool {
        !(self.letters.is_empty() && self.cascades.is_empty() && self.concluded.is_empty())
    }

    /// Whether nothing is written at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.created.is_empty()
            && self.messages.is_empty()
            && self.heads.is_empty()
            && self.pins.is_empty()
            && self.journal.is_empty()
            && self.lease_deletes.is_empty()
            && self.leases.is_empty()
            && self.ready_deletes.is_empty()
            && self.ready.is_empty()
            && self.wait_deletes.is_empty()
            && self.waits.is_empty()
            && self.awaited_deletes.is_empty()
            && self.awaited.is_empty()
            && self.events.is_empty()
            && self.deliveries.is_empty()
            && self.replies.is_empty()
            && self.remote_deletes.is_empty()
            && self.remotes.is_empty()
            && self.cleared.is_empty()
            && self.waits_due.is_empty()
            && self.control_deletes.is_empty()
            && self.controls.is_empty()
            && self.ended_deletes.is_empty()
            && self.ended.is_empty()
            && self.attribute_resets.is_empty()
            && self.attributes.is_empty()
            && self.states.is_empty()
            && self.cuts.is_empty()
            && self.deleted.is_empty()
            && self.parked_deletes.is_empty()
            && self.parked.is_empty()
            && self.operations.is_empty()
            && self.actions.is_empty()
            && self.outbox.is_empty()
            && self.sent.is_empty()
            && self.letter_deletes.is_empty()
            && !self.writes_mail()
            && self.children.is_empty()
            && self.children_over.is_empty()
            && self.parents.is_empty()
            && self.watchers.is_empty()
            && self.hooks_ended.is_empty()
            && self.hooks_dropped.is_empty()
            && self.hook_deletes.is_empty()
            && self.hooks.is_empty()
            && self.hook_counts.is_empty()
    }
}
