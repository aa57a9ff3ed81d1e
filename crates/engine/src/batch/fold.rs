//! Folds the changes of a batch by row: an insert and a later delete of the same row cancel out, a delete and a later
//! insert replace it. Rows keep the order in which they were first touched, so the same batch is written the same way.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
    ops::RangeInclusive,
};

use everstep_protocol::{
    Attribute, AttributeName, CallHash, EventType, Fingerprint, HookId, InstanceUid, Payload, Pin, Timestamp,
    hook::WebhookResponse,
    journal::{Entry, Outcome, Parked},
};

use super::{
    hooks::keep,
    writes::{
        AttributeRow, Deleted, DeliveryRow, EndedRow, HookCount, JournalRow, NameRow, Published, ReadyRow,
        Writes,
    },
};
use crate::{
    effect::{Change, Forget},
    head::Head,
    hook::{HookEnd, HookRow, ReplyKey, TokenKey},
    letter::{Address, Caller, Cascade, ChildRow, NewLetter, Said},
    mailbox::{AwaitedKey, Delivery, EventRow},
    rows::{Control, Lease, RemoteRow, Rows, Subject, WaitRow},
    start::{Decided, MessageKey, NameKey},
};

/// The changes of one table.
#[derive(Debug)]
struct Table<K, R>(BTreeMap<K, Slot<R>>);

#[derive(Debug)]
struct Slot<R> {
    delete: bool,
    insert: Option<R>,
}

impl<K, R> Default for Table<K, R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone + Hash, R> Table<K, R> {
    fn insert(&mut self, key: K, row: R) {
        self.0.entry(key).or_insert(Slot { delete: false, insert: None }).insert = Some(row);
    }

    fn replace(&mut self, key: K, row: R) {
        self.0.insert(key, Slot { delete: true, insert: Some(row) });
    }

    /// Where `known`, the row is there already.
    fn replace_or_insert(&mut self, key: K, row: R, known: bool) {
        let slot = self.0.entry(key).or_insert(Slot { delete: known, insert: None });
        slot.insert = Some(row);
    }

    fn delete(&mut self, key: K) {
        let slot = self.0.entry(key).or_insert(Slot { delete: false, insert: None });
        if slot.insert.take().is_none() {
            slot.delete = true;
        }
    }

    /// Whether the batch inserts a row in this range of keys.
    fn inserts(&self, keys: RangeInclusive<K>) -> bool {
        self.0.range(keys).any(|(_, slot)| slot.insert.is_some())
    }

    /// Drops the inserts of an instance; its rows are deleted as a whole.
    fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.0.retain(|key, _| keep(key));
    }

    /// Changes the inserts, or forgets them, and keeps the deletes.
    fn update(&mut self, mut keep: impl FnMut(&mut R) -> bool) {
        self.0.retain(|_, slot| {
            if slot.insert.as_mut().is_some_and(|row| !keep(row)) {
                slot.insert = None;
            }
            slot.delete || slot.insert.is_some()
        });
    }

    /// Forgets the inserts of these rows, and keeps their deletes.
    fn forget_inserts(&mut self, of: impl Fn(&K) -> bool) {
        self.0.retain(|key, slot| {
            if of(key) {
                slot.insert = None;
            }
            slot.delete || slot.insert.is_some()
        });
    }

    fn split(self) -> (Vec<K>, Vec<(K, R)>) {
        let mut deletes = Vec::new();
        let mut inserts = Vec::new();
        for (key, slot) in self.0 {
            if slot.delete {
                deletes.push(key.clone());
            }
            if let Some(row) = slot.insert {
                inserts.push((key, row));
            }
        }
        (deletes, inserts)
    }
}

/// What has become of an event that was accepted before.
#[derive(Debug)]
struct Delivered {
    kind: EventType,
    delivery: Option<Delivery>,
    payload: Option<Payload>,
}

/// All tables of a batch.
#[derive(Debug, Default)]
pub(super) struct Fold {
    created: BTreeMap<InstanceUid, Head>,
    heads: BTreeMap<InstanceUid, Head>,
    pins: BTreeMap<InstanceUid, Option<Pin>>,
    leases: Table<(InstanceUid, Subject), Lease>,
    ready: Table<(InstanceUid, Subject), ReadyRow>,
    waits: Table<(InstanceUid, CallHash), WaitRow>,
    awaited: Table<AwaitedKey, CallHash>,
    events: BTreeMap<(InstanceUid, u64), EventRow>,
    deliveries: BTreeMap<(InstanceUid, u64), Delivered>,
    remotes: Table<(InstanceUid, CallHash), RemoteRow>,
    parked: Table<InstanceUid, (Timestamp, Parked)>,
    controls: Table<InstanceUid, Control>,
    ended: Table<InstanceUid, EndedRow>,
    cleared: BTreeSet<InstanceUid>,
    waits_due: BTreeSet<InstanceUid>,
    attributes: BTreeMap<(InstanceUid, AttributeName), AttributeRow>,
    attribute_resets: BTreeSet<InstanceUid>,
    states: BTreeMap<InstanceUid, Published>,
    replies: BTreeMap<ReplyKey, WebhookResponse>,
    hooks: Table<TokenKey, HookRow>,
    /// Whose the deleted ones are, and why they are.
    hook_ends: BTreeMap<TokenKey, (InstanceUid, HookEnd)>,
    hook_counts: BTreeMap<InstanceUid, HookCount>,
    rest: Writes,
}

impl Fold {
    pub(super) fn create(&mut self, head: &Head, name: &NameKey, fingerprint: Fingerprint) {
        self.created.insert(head.uid, head.clone());
        self.rest.names.push(NameRow { key: name.clone(), uid: head.uid, fingerprint });
    }

    pub(super) fn attributes(&mut self, head: &Head, attributes: &[Attribute]) {
        for attribute in attributes {
            self.attribute(head, attribute);
        }
    }

    fn attribute(&mut self, head: &Head, attribute: &Attribute) {
        let (uid, namespace, attribute) = (head.uid, head.namespace.clone(), attribute.clone());
        let key = (uid, attribute.name.clone());
        self.attributes.insert(key, AttributeRow { uid, namespace, attribute });
    }

    pub(super) fn message(&mut self, key: MessageKey, decided: Decided) {
        self.rest.messages.push((key, decided));
    }

    pub(super) fn head(&mut self, head: &Head) {
        let table = if self.created.contains_key(&head.uid) { &mut self.created } else { &mut self.heads };
        table.insert(head.uid, head.clone());
    }

    /// Its head says another pin than the stored one.
    pub(super) fn pin(&mut self, head: &Head) {
        self.pins.insert(head.uid, head.pin.clone());
    }

    pub(super) fn entry(&mut self, head: &Head, entry: Entry) {
        self.rest.journal.push(JournalRow { uid: head.uid, run: head.run, entry });
    }

    pub(super) fn change(
        &mut self,
        before: &Head,
        head: &Head,
        change: &Change,
        rows: &Rows,
        now: Timestamp,
    ) {
        let uid = head.uid;
        match change {
            Change::Lease(subject, lease) => self.leases.insert((uid, *subject), *lease),
            Change::LeaseEnd(subject) => self.leases.delete((uid, *subject)),
            Change::Ready(subject, pool) => {
                let row = ReadyRow {
                    uid,
                    subject: *subject,
                    namespace: head.namespace.clone(),
                    workflow: head.workflow.clone(),
                    build: pool.is_none().then(|| head.pinned_to().cloned()).flatten(),
                    pool: pool.clone(),
                    ready_at: now,
                    offered: false,
                };
                self.ready.insert((uid, *subject), row);
            }
            Change::ReadyEnd(subject) => self.ready.delete((uid, *subject)),
            Change::Wait(wait) => {
                for key in awaited(uid, wait) {
                    self.awaited.insert(key, wait.call.hash());
                }
                self.waits.insert((uid, wait.call.hash()), wait.clone());
            }
            Change::WaitEnd(call) => {
                for key in rows.waits.get(&(uid, *call)).into_iter().flat_map(|wait| awaited(uid, wait)) {
                    self.awaited.delete(key);
                }
                self.waits.delete((uid, *call));
            }
            Change::Event(row) => {
                self.events.insert((uid, row.sequence), row.clone());
            }
            Change::Delivery { kind, sequence, delivery } => {
                let key = (uid, *sequence);
                let payload = rows.events.get(&key).map(|row| row.event.payload.clone());
                let payload = payload.filter(|_| delivery.is_none());
                self.delivery(key, Delivered { kind: kind.clone(), delivery: *delivery, payload });
            }
            Change::Remote(row) => self.remotes.replace((uid, row.call.hash()), row.clone()),
            Change::RemoteEnd(call) => self.remotes.delete((uid, *call)),
            Change::Everything => self.everything(before, rows),
            Change::Calls => self.calls(before),
            Change::WaitsDue => self.due_now(uid, now),
            Change::Control(control) => {
                self.controls.replace_or_insert(uid, *control, rows.controls.contains_key(&uid));
            }
            Change::ControlEnd => self.controls.delete(uid),
            Change::Ended(delete_at) => self.ended.insert(uid, EndedRow::of(head, *delete_at)),
            Change::EndedNoMore => self.ended.delete(uid),
            Change::Attribute(attribute) => self.attribute(head, attribute),
            Change::Attributes(attributes) => {
                self.attributes.retain(|(other, _), _| *other != uid);
                self.attribute_resets.insert(uid);
                self.attributes(head, attributes);
            }
            Change::State(state) => {
                self.states.insert(uid, Published { state: state.clone(), run: head.run, at: now });
            }
            Change::Cut(below) => {
                self.rest.cuts.push((uid, *below));
                if head.links > 0 {
                    self.rest.children_cuts.push((uid, *below));
                }
            }
            Change::Delete(forget) => self.delete(head, *forget),
            Change::Park(parked) => self.parked.insert(uid, (now, parked.clone())),
            Change::ParkEnd => self.parked.delete(uid),
            Change::Operation(operation, answer) => {
                self.rest.operations.push((uid, operation.clone(), answer.clone()));
            }
            Change::Outbox(lifecycle) => self.rest.outbox.push(lifecycle.clone()),
            Change::Letter(letter) => self.letter(letter.clone()),
            Change::LetterEnd(number) => self.letter_end(*number),
            Change::Cascade(cascade) => self.cascade(uid, cascade),
            Change::Child(row) => self.rest.children.push((uid, row.clone())),
            Change::ChildOver(call) => self.rest.children_over.push((uid, head.run, *call)),
            Change::Parent(row) => self.rest.parents.push((uid, row.clone())),
            Change::Watcher(caller) => self.rest.watchers.push((uid, *caller)),
            Change::Conclude(outcome) => self.conclude(uid, outcome),
            Change::Hook(token, row) => {
                self.hooks.insert((head.namespace.clone(), token.clone()), row.clone());
            }
            Change::HookEnd(token, owner, end) => {
                self.hook_end((head.namespace.clone(), token.clone()), *owner, *end);
            }
            Change::HooksEnded => {
                self.hooks.update(|row| row.owner != uid || keep(row, now));
                self.rest.hooks_ended.push(uid);
            }
            Change::HooksDrop => {
                self.hooks.update(|row| row.owner != uid || row.id == HookId::START);
                self.rest.hooks_dropped.push(uid);
            }
            Change::Reply(to, response) => {
                self.replies.entry(to.clone()).or_insert_with(|| response.clone());
            }
        }
    }

    /// The first that was stored is the one to delete; what the batch itself inserts is forgotten.
    pub(super) fn hook_end(&mut self, key: TokenKey, owner: InstanceUid, end: HookEnd) {
        // What another has claimed in this very batch is not meant.
        match self.hooks.0.get_mut(&key) {
            Some(slot) if slot.insert.as_ref().is_some_and(|row| row.owner != owner) => slot.delete = true,
            _ => self.hooks.delete(key.clone()),
        }
        self.hook_ends.entry(key).or_insert((owner, end));
    }

    /// How many tokens it may own, and until when they are kept.
    pub(super) fn hook_count(&mut self, head: &Head) {
        self.hook_counts.insert(head.uid, HookCount { hooks: head.hooks, until: head.hooks_until });
    }

    /// A letter to another instance.
    pub(super) fn letter(&mut self, letter: NewLetter) {
        self.rest.letters.push(letter);
    }

    /// The store knows the children of earlier batches; those of this one are told here, so that later ones are not.
    fn cascade(&mut self, uid: InstanceUid, cascade: &Cascade) {
        let is_meant = |row: &ChildRow| {
            !row.detached && row.run == cascade.run && cascade.call.is_none_or(|call| call == row.call)
        };
        for (parent, row) in &self.rest.children {
            if *parent == uid && is_meant(row) && !self.rest.children_over.contains(&(uid, row.run, row.call))
            {
                let caller = Caller { uid, run: row.run, call: row.call };
                let (to, said) = (Address::Name(row.name.clone()), cascade.said.clone());
                self.rest.letters.push(NewLetter { to, caller, said });
            }
        }
        self.rest.cascades.push((uid, cascade.clone()));
    }

    /// The same for those who wait for its end.
    fn conclude(&mut self, uid: InstanceUid, outcome: &Outcome) {
        let watchers = std::mem::take(&mut self.rest.watchers);
        let (told, rest): (Vec<_>, Vec<_>) = watchers.into_iter().partition(|(watched, _)| *watched == uid);
        self.rest.watchers = rest;
        for (_, caller) in told {
            let said = Said::Returned { outcome: outcome.clone(), over: true };
            self.rest.letters.push(NewLetter { to: Address::Instance(caller.uid), caller, said });
        }
        self.rest.concluded.push((uid, outcome.clone()));
    }

    /// A letter was taken.
    pub(super) fn letter_end(&mut self, number: u64) {
        self.rest.letter_deletes.push(number);
    }

    /// An event that the batch itself accepted is written as it is in the end.
    fn delivery(&mut self, key: (InstanceUid, u64), delivered: Delivered) {
        match self.events.get_mut(&key) {
            Some(row) => row.delivery = delivered.delivery,
            None => {
                self.deliveries.insert(key, delivered);
            }
        }
    }

    /// The instance has ended. Only tables in which it can have rows are touched: a leased instance is neither ready nor
    /// parked, and one without waits has no remote steps. Waits that the ending decision itself opens are not yet counted in
    /// `before`; they are found among the inserts.
    fn everything(&mut self, before: &Head, rows: &Rows) {
        let uid = before.uid;
        if rows.leases.contains_key(&(uid, Subject::INSTANCE)) {
            self.leases.delete((uid, Subject::INSTANCE));
        } else {
            self.ready.delete((uid, Subject::INSTANCE));
            self.parked.delete(uid);
        }
        if rows.controls.contains_key(&uid) {
            self.controls.delete(uid);
        }
        self.calls(before);
    }

    /// Waits whose time has come become due now: those that this batch opens too.
    fn due_now(&mut self, uid: InstanceUid, now: Timestamp) {
        for ((other, _), slot) in &mut self.waits.0 {
            if *other == uid
                && let Some(wait) = &mut slot.insert
            {
                wait.due_at = wait.due_at.map(|at| at.max(now));
            }
        }
        self.waits_due.insert(uid);
    }

    /// Nothing of the instance is written, and everything that names it is deleted. One that is ended by this very batch stays
    /// among the cleared, so that whoever runs its remote steps is told.
    fn delete(&mut self, head: &Head, forget: Forget) {
        let uid = head.uid;
        self.heads.remove(&uid);
        self.pins.remove(&uid);
        self.rest.journal.retain(|row| row.uid != uid);
        self.rest.operations.retain(|(other, _, _)| *other != uid);
        self.rest.cuts.retain(|(other, _)| *other != uid);
        self.attributes.retain(|(other, _), _| *other != uid);
        self.attribute_resets.remove(&uid);
        self.states.remove(&uid);
        self.leases.retain(|(other, _)| *other != uid);
        self.ready.retain(|(other, _)| *other != uid);
        self.waits.retain(|(other, _)| *other != uid);
        self.awaited.retain(|key| key.uid != uid);
        self.events.retain(|(other, _), _| *other != uid);
        self.deliveries.retain(|(other, _), _| *other != uid);
        self.replies.retain(|to, _| to.instance != uid);
        self.remotes.retain(|(other, _)| *other != uid);
        self.parked.retain(|other| *other != uid);
        self.controls.retain(|other| *other != uid);
        self.ended.retain(|other| *other != uid);
        self.waits_due.remove(&uid);
        self.hooks.update(|row| row.owner != uid);
        self.hook_counts.remove(&uid);
        let name = NameKey {
            namespace: head.namespace.clone(),
            workflow: head.workflow.clone(),
            id: head.id.clone(),
        };
        if self.created.remove(&uid).is_some() {
            self.rest.names.retain(|row| row.uid != uid);
        }
        self.rest.messages.retain(|(key, decided)| {
            decided.id != name.id || key.namespace != name.namespace || key.workflow != name.workflow
        });
        self.rest.deleted.push(Deleted { uid, name, forget, linked: head.links > 0, hooked: head.hooks > 0 });
    }

    /// The waits and remote steps of the instance are gone. Waits that the decision itself opens are found among the inserts.
    fn calls(&mut self, before: &Head) {
        let uid = before.uid;
        let calls = (uid, CallHash([0; 16]))..=(uid, CallHash([u8::MAX; 16]));
        if before.waits > 0 || self.waits.inserts(calls) {
            let is_step =
                |(other, subject): &(InstanceUid, Subject)| *other == uid && subject.call().is_some();
            // Leases that had ended before stay deletes: whoever held them is not told again that they are over.
            self.leases.forget_inserts(is_step);
            self.ready.retain(|key| !is_step(key));
            self.waits.retain(|(other, _)| *other != uid);
            self.awaited.retain(|key| key.uid != uid);
            self.remotes.retain(|(other, _)| *other != uid);
            self.cleared.insert(uid);
        }
    }

    /// Leases of remote steps of an instance that the batch begins.
    pub(super) fn begun_steps(&self, uid: InstanceUid) -> impl Iterator<Item = (CallHash, Lease)> + '_ {
        let keys = (uid, Subject::INSTANCE)..=(uid, Subject([u8::MAX; 16]));
        let inserts =
            self.leases.0.range(keys).filter_map(|((_, subject), slot)| Some((subject, slot.insert?)));
        inserts.filter_map(|(subject, lease)| Some((subject.call()?, lease)))
    }

    pub(super) fn finish(self) -> Writes {
        let mut writes = self.rest;
        writes.created = self.created.into_values().collect();
        writes.heads = self.heads.into_values().collect();
        writes.pins = self.pins.into_iter().collect();
        let (deletes, inserts) = self.leases.split();
        writes.lease_deletes = deletes;
        writes.leases = inserts.into_iter().map(|((uid, subject), lease)| (uid, subject, lease)).collect();
        let (deletes, inserts) = self.ready.split();
        writes.ready_deletes = deletes;
        writes.ready = inserts.into_iter().map(|(_, row)| row).collect();
        let (deletes, inserts) = self.waits.split();
        writes.wait_deletes = deletes;
        writes.waits = inserts.into_iter().map(|((uid, _), wait)| (uid, wait)).collect();
        let (deletes, inserts) = self.awaited.split();
        writes.awaited_deletes = deletes;
        writes.awaited = inserts;
        writes.events = self.events.into_iter().map(|((uid, _), row)| (uid, row)).collect();
        let delivery = |((uid, sequence), Delivered { kind, delivery, payload })| DeliveryRow {
            uid,
            kind,
            sequence,
            delivery,
            payload,
        };
        writes.deliveries = self.deliveries.into_iter().map(delivery).collect();
        writes.replies = self.replies.into_iter().collect();
        let (deletes, inserts) = self.remotes.split();
        writes.remote_deletes = deletes;
        writes.remotes = inserts.into_iter().map(|((uid, _), row)| (uid, row)).collect();
        let (deletes, inserts) = self.parked.split();
        writes.parked_deletes = deletes;
        writes.parked = inserts.into_iter().map(|(uid, (at, parked))| (uid, at, parked)).collect();
        let (deletes, inserts) = self.controls.split();
        writes.control_deletes = deletes;
        writes.controls = inserts;
        let (deletes, inserts) = self.ended.split();
        writes.ended_deletes = deletes;
        writes.ended = inserts.into_iter().map(|(_, row)| row).collect();
        writes.attribute_resets = self.attribute_resets.into_iter().collect();
        writes.attributes = self.attributes.into_values().collect();
        writes.states = self.states.into_iter().collect();
        let (deletes, inserts) = self.hooks.split();
        let ends = self.hook_ends;
        let of = |key: TokenKey| ends.get(&key).map(|(owner, end)| (key, *owner, *end));
        writes.hook_deletes = deletes.into_iter().filter_map(of).collect();
        writes.hooks = inserts;
        writes.hook_counts = self.hook_counts.into_iter().collect();
        writes.waits_due = self.waits_due.into_iter().collect();
        writes.cleared = self.cleared.into_iter().collect();
        writes
    }
}

/// The rows by which new events find a wait; none for waits of other kinds.
fn awaited(uid: InstanceUid, wait: &WaitRow) -> impl Iterator<Item = AwaitedKey> {
    wait.awaited.iter().flat_map(move |awaited| {
        awaited.types.iter().map(move |kind| AwaitedKey {
            uid,
            kind: kind.clone(),
            key: awaited.key.clone(),
            opened: awaited.opened,
        })
    })
}
