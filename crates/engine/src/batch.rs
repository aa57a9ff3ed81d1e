//! How the decisions of one batch add up to one transaction: inputs of one head are decided one after the other on what
//! the earlier ones left, and each row is written once (rule W21).

mod fold;
mod hooks;
mod letters;
mod overlay;
mod starts;
mod writes;

use std::{
    collections::{HashMap, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

use everstep_protocol::{
    InstanceUid, Position, SessionId, Timestamp,
    journal::{Entry, Fact, ParkCode, Parked},
    limits::Limits,
    message::{CoordinatorItem, FenceReason, Then},
};

pub use self::writes::{
    AttributeRow, Deleted, DeliveryRow, EndedRow, HookCount, JournalRow, NameRow, Published, ReadyRow,
    Writes, pinned_queue,
};
use crate::{
    access::Asker,
    action::Action,
    decide::{Context, decide},
    effect::{Answer, Change, Decision, Effect},
    head::Head,
    input::{Input, What},
    place::{Place, Room},
    rows::{Control, IdMap, Rows, Subject},
    start::{Decided, Existing, MessageKey, NameKey, Start, admit},
};

/// What a store has locked and loaded for a batch.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The database's clock (rule W18).
    pub now: Timestamp,
    /// The heads that were locked.
    pub heads: IdMap<InstanceUid, Head>,
    /// Heads that exist but are locked elsewhere (rule W19).
    pub elsewhere: HashSet<InstanceUid>,
    /// Side rows.
    pub rows: Rows,
    /// Instances that have the names that starts ask for.
    pub names: HashMap<NameKey, Existing>,
    /// Kept decisions on the messages that starts came in.
    pub messages: HashMap<MessageKey, Decided>,
}

/// What every decision of an installation is made with.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Limits of sizes and counts.
    pub limits: Limits,
    /// Holders that may die in a row without progress before the instance is parked. Default 10.
    pub deaths_max: u32,
    /// How long ended instances are kept (rule P32).
    pub retention: crate::retention::Rules,
    /// Says why a JSON Schema cannot be used (rule H57). Default: none is looked at.
    pub compiles: Compiles,
    /// When an older database was restored, until its questions are over: what was done in the history that was lost nobody knows (rule L7). Default: never.
    pub restored_at: Option<Timestamp>,
}

/// Says why a JSON Schema cannot be used.
pub type Compiles = fn(&everstep_protocol::Payload) -> Result<(), String>;

impl Default for Rules {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            deaths_max: 10,
            retention: crate::retention::Rules::default(),
            compiles: |_| Ok(()),
            restored_at: None,
        }
    }
}

/// What became of one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was decided.
    Decided(Answer),
    /// A start was decided, with the id of the instance that it is about.
    Started(Decided),
    /// Its head is locked elsewhere: it goes to the next batch (rule W19).
    Held,
    /// The decision on a start failed, which is a bug: nothing was created, and the start is to be rejected (rule W20).
    Broken,
}

/// A batch in the making.
#[derive(Debug)]
pub struct Batch {
    loaded: Loaded,
    rules: Rules,
    fold: fold::Fold,
    effects: Vec<Effect>,
    taken: Vec<SessionId>,
    actions: Vec<Action>,
}

impl Batch {
    /// Begins with what was locked and loaded.
    #[must_use]
    pub fn new(loaded: Loaded, rules: Rules) -> Self {
        let (effects, taken, actions) = (Vec::new(), Vec::new(), Vec::new());
        Self { loaded, rules, fold: fold::Fold::default(), effects, taken, actions }
    }

    /// The batch's time.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.loaded.now
    }

    /// Decides one input. A panic in a decision parks its instance, or has its start rejected; the process and the batch live on
    /// (rule W20).
    pub fn apply(&mut self, input: &Input, room: &mut Room) -> Verdict {
        match input {
            Input::Start(start) => self.start(start, room, admit),
            Input::Undelivered(letter, failure) => Verdict::Decided(self.undelivered(letter, failure)),
            Input::On { instance, what } => self.on_instance(None, *instance, what, room),
            Input::Asked { by, instance, what } => self.on_instance(Some(by), *instance, what, room),
        }
    }

    /// The rows to write, what to send after the commit, and the sessions whose credits were taken.
    #[must_use]
    pub fn finish(self, room: &mut Room) -> (Writes, Vec<Effect>, Vec<SessionId>) {
        let mut writes = self.fold.finish();
        writes.actions = self.actions;
        let mut offered = HashSet::new();
        for row in &mut writes.ready {
            row.offered = match &row.pool {
                None => room.offer(&row.namespace, &row.workflow, row.build.as_ref()),
                Some(pool) => room.offer_step(&row.namespace, pool),
            };
            if row.offered {
                offered.insert((row.uid, row.subject));
            }
        }
        let mut effects = self.effects;
        for effect in &mut effects {
            // Whoever has ended has no body any more.
            if let Effect::Offer { namespace, workflow, build, kept_by, .. } = effect {
                *kept_by =
                    kept_by.filter(|session| room.may_take(*session, namespace, workflow, build.as_ref()));
            }
        }
        effects.retain(|effect| match effect {
            Effect::Offer { instance, .. } => offered.contains(&(*instance, Subject::INSTANCE)),
            Effect::OfferStep { instance, call, .. } => offered.contains(&(*instance, Subject::step(*call))),
            Effect::Item(..)
            | Effect::Grant { .. }
            | Effect::StepGrant(..)
            | Effect::Reply(..)
            | Effect::Push { .. } => true,
        });
        (writes, effects, self.taken)
    }

    fn on_instance(
        &mut self,
        by: Option<&Asker>,
        instance: InstanceUid,
        what: &What,
        room: &mut Room,
    ) -> Verdict {
        if self.loaded.elsewhere.contains(&instance) {
            return Verdict::Held;
        }
        let Some(head) = self.loaded.heads.get(&instance).cloned() else {
            return Verdict::Decided(self.unknown(instance, what));
        };
        let action = by.and_then(|by| Action::asked(by, &head, what, &self.loaded.rows));
        let answer = self.on(&head, what, room);
        self.actions.extend(action.and_then(|action| action.came_to(&answer)));
        Verdict::Decided(answer)
    }

    fn on(&mut self, head: &Head, what: &What, room: &mut Room) -> Answer {
        // What an operation moves to another build goes where that is.
        let pin = if let What::Pin { pin, .. } = what { pin } else { &head.pin };
        let place = if may_place(what) {
            room.take(&head.namespace, &head.workflow, pin.as_ref(), head.cached.map(|cached| cached.session))
        } else {
            Place::Queue
        };
        let taker = match (place, what) {
            (Place::Direct(session), _) => room.taker(session, head, pin.as_ref()),
            (Place::Queue, What::Claim { session, .. }) => room.taker(*session, head, pin.as_ref()),
            (Place::Queue, _) => None,
        };
        let context = Context {
            rows: &self.loaded.rows,
            now: self.loaded.now,
            limits: &self.rules.limits,
            deaths_max: self.rules.deaths_max,
            retention: &self.rules.retention,
            compiles: self.rules.compiles,
            restored_at: self.rules.restored_at,
            place,
            taker: taker.as_ref(),
        };
        let decision = catch_unwind(AssertUnwindSafe(|| decide(head, what, context))).unwrap_or_else(|_| {
            if let What::Letter(letter) = what {
                self.unread(letter);
            }
            broken(head, &self.loaded.rows, self.loaded.now)
        });
        self.settle_credit(place, &decision.effects, room);
        self.record(head, decision)
    }

    fn settle_credit(&mut self, place: Place, effects: &[Effect], room: &mut Room) {
        if let Place::Direct(session) = place {
            let used = effects.iter().any(|effect| matches!(effect, Effect::Grant { direct: true, .. }));
            if used {
                self.taken.push(session);
            } else {
                room.give_back(session);
            }
        }
    }

    /// A restart later in the batch takes over what people have decided about keys.
    fn keep_keys(&mut self, head: &Head, entries: &[Entry]) {
        let keys = &mut self.loaded.rows.keys;
        if !keys.is_empty() && entries.first().is_some_and(|entry| entry.position == Position(1)) {
            keys.remove(&head.uid);
        }
        for entry in entries.iter().filter(|entry| matches!(entry.fact, Fact::Rekeyed(_))) {
            keys.entry(head.uid).or_default().push(entry.clone());
        }
    }

    /// Applies a decision to what later inputs of the batch will read, and to what will be written.
    fn record(&mut self, before: &Head, decision: Decision) -> Answer {
        let head = decision.head.unwrap_or_else(|| before.clone());
        let mut gone = false;
        if let Some(first) = decision.entries.first().filter(|entry| entry.position == Position(1)) {
            self.loaded.rows.firsts.insert(head.uid, first.clone());
        }
        self.keep_keys(&head, &decision.entries);
        for entry in decision.last {
            self.fold.entry(before, entry);
        }
        // Whoever waits for the end may come later in the batch, and have asked for the last entry before there was a tie.
        let is_asked_for = head.links > 0 || self.loaded.rows.lasts.contains_key(&head.uid);
        if let Some(last) = decision.entries.last().filter(|_| head.status.is_ended() && is_asked_for) {
            self.loaded.rows.lasts.insert(head.uid, last.clone());
        }
        for entry in decision.entries {
            self.fold.entry(&head, entry);
        }
        for change in decision.changes {
            if matches!(change, Change::Everything | Change::Calls) {
                // Leases of this very batch were never stored, so the store cannot name them when it clears the instance.
                let begun = self.fold.begun_steps(head.uid);
                self.effects.extend(begun.map(|(call, lease)| Effect::step_over(head.uid, call, lease)));
            }
            self.fold.change(before, &head, &change, &self.loaded.rows, self.loaded.now);
            gone |= matches!(change, Change::Delete(_));
            overlay::overlay(&mut self.loaded.rows, &head.namespace, head.uid, change, self.loaded.now);
        }
        if gone {
            self.forget(&head);
        } else if head != *before {
            if head.pin != before.pin {
                self.fold.pin(&head);
            }
            if (head.hooks, head.hooks_until) != (before.hooks, before.hooks_until) {
                self.fold.hook_count(&head);
            }
            self.fold.head(&head);
            self.loaded.heads.insert(head.uid, head);
        }
        self.effects.extend(decision.effects);
        decision.answer
    }

    /// What comes later in the batch finds nothing under its id and name.
    fn forget(&mut self, head: &Head) {
        self.loaded.heads.remove(&head.uid);
        let name = NameKey {
            namespace: head.namespace.clone(),
            workflow: head.workflow.clone(),
            id: head.id.clone(),
        };
        self.loaded.names.remove(&name);
        self.loaded.messages.retain(|key, decided| {
            decided.id != name.id || key.namespace != name.namespace || key.workflow != name.workflow
        });
    }

    /// No such instance: a worker that believes otherwise is told to drop it.
    fn unknown(&mut self, instance: InstanceUid, what: &What) -> Answer {
        use CoordinatorItem as Item;
        if let What::Letter(letter) = what {
            let failure = crate::letter::gone();
            return self.undelivered(letter, &failure);
        }
        let item = match what {
            What::Claim { session, .. } => Some((*session, Item::NotGranted { instance })),
            What::Report { session, report, .. } => {
                Some((*session, Item::Fence { instance, epoch: report.epoch, why: FenceReason::Unknown }))
            }
            What::StepClaim { session, call } => Some((
                *session,
                Item::StepFence { instance, call: *call, epoch: everstep_protocol::Epoch(0) },
            )),
            What::StepReport { session, call, epoch, .. } => {
                Some((*session, Item::StepFence { instance, call: *call, epoch: *epoch }))
            }
            What::GiveBack { .. }
            | What::Due { .. }
            | What::LeaseEnded { .. }
            | What::StepLeaseEnded { .. }
            | What::Event(_)
            | What::Payload(_)
            | What::Letter(_)
            | What::Terminate { .. }
            | What::Abandon { .. }
            | What::Rollback { .. }
            | What::Pause { .. }
            | What::Resume { .. }
            | What::Cancel { .. }
            | What::Overdue
            | What::Restart { .. }
            | What::Delete { .. }
            | What::Expire
            | What::Breach(_)
            | What::Unwritable { .. }
            | What::Retry { .. }
            | What::Rekey { .. }
            | What::Resolve { .. }
            | What::Pin { .. } => None,
        };
        self.effects.extend(item.map(|(session, item)| Effect::Item(session, item)));
        Answer::NotFound
    }
}

/// Inputs after which the instance may run somewhere at once. A lease that was given back goes through the queue: whoever
/// gave it back has no room.
const fn may_place(what: &What) -> bool {
    match what {
        What::Report { report, .. } => matches!(report.then, Then::Again(_)),
        What::Due { .. }
        | What::LeaseEnded { .. }
        | What::StepReport { .. }
        | What::StepLeaseEnded { .. }
        | What::Event(_)
        | What::Payload(_)
        | What::Letter(_)
        | What::Resume { .. }
        | What::Rollback { .. }
        | What::Cancel { .. }
        | What::Restart { .. }
        | What::Retry { .. }
        | What::Rekey { .. }
        | What::Resolve { .. }
        | What::Overdue
        | What::Breach(_)
        | What::Pin { .. } => true,
        What::Claim { .. }
        | What::GiveBack { .. }
        | What::StepClaim { .. }
        | What::Unwritable { .. }
        | What::Pause { .. }
        | What::Delete { .. }
        | What::Expire
        | What::Terminate { .. }
        | What::Abandon { .. } => false,
    }
}

/// The decision itself panicked: a broken invariant inside one instance parks that instance, and its holder is told to stop.
fn broken(head: &Head, rows: &Rows, now: Timestamp) -> Decision {
    // One that is parked already asks its question once, however often what breaks it comes again.
    if head.status.is_ended() || rows.parked.contains_key(&head.uid) {
        return Decision::nothing(Answer::Nothing);
    }
    let mut after = head.clone();
    after.position = after.position.next();
    let message = "a decision about this instance failed; this is a bug of the engine";
    let parked = Parked::new(ParkCode::Broken, message);
    let fact = Fact::Parked(parked.clone());
    after.journal_bytes = after.journal_bytes.saturating_add(fact.payload_bytes());
    let entry = Entry { position: after.position, at: now, fact };
    let fence = rows.leases.get(&(head.uid, Subject::INSTANCE)).map(|lease| {
        let (instance, epoch, why) = (head.uid, lease.epoch, FenceReason::Parked);
        Effect::Item(lease.session, CoordinatorItem::Fence { instance, epoch, why })
    });
    Decision {
        head: Some(after),
        last: Vec::new(),
        entries: vec![entry],
        changes: [
            Change::LeaseEnd(Subject::INSTANCE),
            Change::ReadyEnd(Subject::INSTANCE),
            Change::ParkEnd,
            Change::Park(parked),
        ]
        .into_iter()
        .chain(unpaused(rows, head))
        .collect(),
        effects: fence.into_iter().collect(),
        answer: Answer::Parked,
    }
}

/// An instance that is parked is not paused any more.
fn unpaused(rows: &Rows, head: &Head) -> Vec<Change> {
    match rows.controls.get(&head.uid) {
        Some(control) if control.paused_at.is_some() => {
            let left = Control { paused_at: None, ..*control };
            let change = if left == Control::default() { Change::ControlEnd } else { Change::Control(left) };
            vec![change, Change::WaitsDue]
        }
        _ => Vec::new(),
    }
}
