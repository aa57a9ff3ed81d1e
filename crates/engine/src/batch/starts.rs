//! Starts in a batch: what earlier inputs of it created or ended counts, and a new instance is written like any other change.

use std::panic::{AssertUnwindSafe, catch_unwind};

use everstep_protocol::{Millis, Position, Timestamp, journal::Entry};

use super::{Batch, Verdict, letters};
use crate::{
    effect::{Answer, Change, Decision, Effect},
    head::Head,
    hook::acceptable,
    letter::DEPTH_MAX,
    place::{Place, Room, Taker},
    rows::{Lease, Subject},
    start::{Admission, Decided, Existing, Found, Start, claimed},
};

/// How a start is decided.
pub(super) type Admit = fn(&Start, Found<'_>, Timestamp, Millis) -> Admission;

impl Batch {
    /// Decides one start. It is given what decides, so that a test can give one that panics.
    pub(super) fn start(&mut self, start: &Start, room: &mut Room, admit: Admit) -> Verdict {
        if start.letter.as_ref().is_some_and(|letter| !self.is_there(letter)) {
            return Verdict::Decided(Answer::Nothing);
        }
        if let Some(letter) = &start.letter
            && start.input.len() as u64 > self.rules.limits.input_bytes
        {
            let failure = letters::too_large(start.input.len() as u64, self.rules.limits.input_bytes);
            return Verdict::Decided(self.undelivered(letter, &failure));
        }
        if let Some(letter) = &start.letter
            && letter.said.depth() > DEPTH_MAX
        {
            return Verdict::Decided(self.undelivered(letter, &letters::too_deep()));
        }
        if let (Some(letter), Some(hook)) = (&start.letter, &start.hook)
            && let Err(error) = acceptable(hook.metadata.as_ref(), hook.schema.as_ref(), self.rules.compiles)
        {
            return Verdict::Decided(self.undelivered(letter, &letters::unacceptable(&error)));
        }
        let earlier = start.message.as_ref().and_then(|key| self.loaded.messages.get(key));
        // An earlier input of the batch may have ended it.
        let existing = self.loaded.names.get(&start.name).map(|existing| Existing {
            status: self.loaded.heads.get(&existing.uid).map_or(existing.status, |head| head.status),
            ..existing.clone()
        });
        let (now, longest) = (self.loaded.now, self.rules.limits.hook_retention);
        let hook = start
            .hook
            .as_ref()
            .and_then(|hook| self.loaded.rows.hooks.get(&(start.name.namespace.clone(), hook.token.clone())));
        let found = Found { earlier, existing: existing.as_ref(), hook };
        let decided = match catch_unwind(AssertUnwindSafe(|| admit(start, found, now, longest))) {
            Err(_) => return Verdict::Broken,
            Ok(Admission::Known(decided)) => {
                self.met(start, existing.as_ref(), &decided.answer);
                decided
            }
            Ok(Admission::Created(head, _)) if start.strict && !serves(room, &head) => {
                // Nothing is kept: the same start may be sent again.
                return Verdict::Started(Decided { id: start.name.id.clone(), answer: Answer::NotServed });
            }
            Ok(Admission::Created(head, entry)) => {
                self.create(start, &head, *entry, room);
                Decided { id: start.name.id.clone(), answer: Answer::Created }
            }
        };
        self.remember(start, &decided);
        Verdict::Started(decided)
    }

    /// A new instance is written like any other change: its head and name first, then what makes it run.
    fn create(&mut self, start: &Start, head: &Head, entry: Entry, room: &mut Room) {
        let existing = Existing { uid: head.uid, fingerprint: start.fingerprint, status: head.status };
        self.loaded.names.insert(start.name.clone(), existing);
        self.loaded.heads.insert(head.uid, head.clone());
        self.fold.create(head, &start.name, start.fingerprint);
        if head.pin.is_some() {
            self.fold.pin(head);
        }
        self.fold.attributes(head, &start.attributes);
        if !start.attributes.is_empty() {
            self.loaded.rows.attributed.insert(head.uid);
        }
        let place = room.take(&head.namespace, &head.workflow, head.pin.as_ref(), None);
        let taker = match place {
            Place::Direct(session) => room.taker(session, head, head.pin.as_ref()),
            Place::Queue => None,
        };
        let mut decision = runnable(head.clone(), entry, place, taker);
        if let Some(hook) = &start.hook {
            let key = (start.name.namespace.clone(), hook.token.clone());
            let rows = &self.loaded.rows;
            let (kept, orphan) = (rows.hooks.get(&key), rows.orphans.get(&key).copied());
            decision.changes.extend(claimed(hook, head, kept, orphan));
            self.fold.hook_count(head);
        }
        if let Some(letter) = &start.letter {
            letters::born(letter, start, &mut decision);
        }
        self.settle_credit(place, &decision.effects, room);
        self.record(head, decision);
    }

    fn remember(&mut self, start: &Start, decided: &Decided) {
        if let Some(key) = &start.message
            && !self.loaded.messages.contains_key(key)
        {
            self.loaded.messages.insert(key.clone(), decided.clone());
            self.fold.message(key.clone(), decided.clone());
        }
    }
}

/// Whether a live session serves the workflow of an instance, with the build that it is pinned to.
fn serves(room: &Room, head: &Head) -> bool {
    room.serves(&head.namespace, &head.workflow, head.pinned_to())
}

/// A new instance begins to run: the same two ways as any other that becomes runnable.
fn runnable(mut head: Head, entry: Entry, place: Place, taker: Option<Taker>) -> Decision {
    let mut changes = Vec::new();
    let effect = match place {
        Place::Direct(session) => {
            head.epoch = head.epoch.next();
            head.pin = taker.and_then(Taker::pin).or(head.pin);
            changes.push(Change::Lease(Subject::INSTANCE, Lease { session, epoch: head.epoch }));
            let entries = vec![entry.clone()];
            Effect::Grant { session, head: Box::new(head.clone()), direct: true, after: Position(0), entries }
        }
        Place::Queue => {
            changes.push(Change::Ready(Subject::INSTANCE, None));
            Effect::Offer {
                namespace: head.namespace.clone(),
                workflow: head.workflow.clone(),
                build: head.pinned_to().cloned(),
                instance: head.uid,
                kept_by: None,
            }
        }
    };
    Decision {
        head: Some(head),
        last: Vec::new(),
        entries: vec![entry],
        changes,
        effects: vec![effect],
        answer: Answer::Created,
    }
}

#[cfg(test)]
mod tests {
    //! Proves what becomes of a start whose decision panics. Not: what starts come to; see `tests/decide_start.rs`.
    use everstep_protocol::{Fingerprint, InstanceId, InstanceUid, Namespace, Payload, WorkflowName};

    use super::super::{Loaded, Rules};
    use super::*;
    use crate::{Input, start::NameKey};

    fn start(id: &str) -> Start {
        let workflow = WorkflowName::new("orders").unwrap();
        let id = InstanceId::new(id).unwrap();
        Start {
            uid: InstanceUid(uuid::Uuid::from_u128(id.as_str().len() as u128)),
            name: NameKey { namespace: Namespace::default(), workflow, id },
            input: Payload::null(),
            fingerprint: Fingerprint::of(&Payload::null()).unwrap(),
            seed: [0; 32],
            retention: crate::retention::Own::default(),
            pin: None,
            strict: false,
            attributes: Vec::new(),
            message: None,
            trace: None,
            letter: None,
            hook: None,
        }
    }

    #[test]
    fn w20_a_panicking_start_is_broken_and_creates_nothing_and_the_batch_lives_on() {
        let (mut batch, mut room) = (Batch::new(Loaded::default(), Rules::default()), Room::default());
        let broken = batch.start(&start("a"), &mut room, |_, _, _, _| panic!("a bug"));
        assert_eq!(broken, Verdict::Broken);
        let other = batch.apply(&Input::Start(Box::new(start("bb"))), &mut room);
        assert!(matches!(other, Verdict::Started(Decided { answer: Answer::Created, .. })));
        let (writes, effects, _) = batch.finish(&mut room);
        let ids: Vec<_> = writes.created.iter().map(|head| head.id.as_str()).collect();
        assert_eq!((ids, effects.len()), (vec!["bb"], 0));
    }
}
