//! Letters that no head decides on: a start, which has none yet, and one that nobody is there to take.

use everstep_protocol::{Failure, FailureKind};

use super::{Batch, Existing, Start, hooks};
use crate::{
    effect::{Answer, Change, Decision},
    hook::HookEnd,
    letter::{
        Address, DEPTH_MAX, Letter, NewLetter, ParentRow, Said, conflict, failed, held, itself, started,
        undeliverable,
    },
};

impl Batch {
    /// Whether a letter is still to be taken.
    pub(super) fn is_there(&self, letter: &Letter) -> bool {
        self.loaded.rows.letters.contains(&letter.number)
    }

    /// A letter goes back. Whoever takes the answer finds out whether anybody still waits for it.
    pub(super) fn undelivered(&mut self, letter: &Letter, failure: &Failure) -> Answer {
        if !self.is_there(letter) {
            return Answer::Nothing;
        }
        self.letter_end(letter);
        if letter.said.is_asked() {
            let said = Said::Returned { outcome: failed(failure.clone()), over: true };
            self.write_back(letter, said);
        }
        match &letter.said {
            // The owner is gone, and its token with it.
            Said::Claim(claim) => {
                let said = Said::Claimed { claim: claim.clone(), from: None };
                self.write_back(letter, said);
            }
            // The claimant is gone, and nobody would ever let go of what it got.
            Said::Claimed { claim, from: Some(_) } => {
                let key = (claim.namespace.clone(), claim.asked.token.clone());
                hooks::forget(&mut self.loaded.rows, &key, letter.caller.uid);
                self.fold.hook_end(key, letter.caller.uid, HookEnd::Own);
            }
            _ => {}
        }
        Answer::NotFound
    }

    /// The decision about a letter broke. It goes back, so that it is not carried for ever. One that is answered otherwise, or not at all,
    /// stays: what it says, such as what came of a call, would be lost. Its instance is parked, and takes it once it can.
    pub(super) fn unread(&mut self, letter: &Letter) {
        if letter.said.is_asked() {
            self.undelivered(letter, &undeliverable());
        }
    }

    /// The start of a child met somebody: with the same input the call waits for that one's end, which does not make it a child.
    pub(super) fn met(&mut self, start: &Start, existing: Option<&Existing>, answer: &Answer) {
        let Some(letter) = &start.letter else { return };
        self.letter_end(letter);
        let returned = |outcome| Said::Returned { outcome, over: true };
        match (answer, existing) {
            (_, Some(existing)) if existing.uid == letter.caller.uid => {
                self.write_back(letter, returned(failed(itself("start"))));
            }
            (Answer::Exists(_), Some(existing)) if !only_started(letter) => {
                let to = Address::Instance(existing.uid);
                self.fold.letter(NewLetter { to, caller: letter.caller, said: Said::Watch });
            }
            (Answer::Exists(_), _) => self.write_back(letter, returned(started(&start.name))),
            (Answer::HookHeld(owner), _) => self.write_back(letter, returned(failed(held(owner)))),
            (Answer::HookRetention, _) => self.write_back(letter, returned(failed(retention()))),
            _ => self.write_back(letter, returned(failed(conflict(&start.name)))),
        }
    }

    fn letter_end(&mut self, letter: &Letter) {
        self.loaded.rows.letters.remove(&letter.number);
        self.fold.letter_end(letter.number);
    }

    fn write_back(&mut self, letter: &Letter, said: Said) {
        let caller = letter.caller;
        self.fold.letter(NewLetter { to: Address::Instance(caller.uid), caller, said });
    }
}

/// A child has come to be: it knows its parent, and who waits for its end.
pub(super) fn born(letter: &Letter, start: &Start, decision: &mut Decision) {
    let Said::Start { child, parent, depth } = &letter.said else { return };
    let (caller, name, detached, depth) = (letter.caller, parent.clone(), child.detached, *depth);
    let mut links = 1;
    decision.changes.push(Change::LetterEnd(letter.number));
    decision.changes.push(Change::Parent(ParentRow { caller, name, detached, depth }));
    if child.only_started {
        let (to, outcome) = (Address::Instance(caller.uid), started(&start.name));
        let said = Said::Returned { outcome, over: false };
        decision.changes.push(Change::Letter(NewLetter { to, caller, said }));
    } else {
        links += 1;
        decision.changes.push(Change::Watcher(caller));
    }
    if let Some(head) = &mut decision.head {
        head.links = links;
    }
}

/// The failure of a start whose input is over the limit of this installation (rule P4).
pub(super) fn too_large(bytes: u64, limit: u64) -> Failure {
    let message = format!("the input is {bytes} bytes of JSON, the limit is {limit}; nothing was started");
    Failure::new(FailureKind::TooLarge, message)
}

/// The failure of a start whose hook cannot be had as it is asked for (rules H11, H57).
pub(super) fn unacceptable(error: &everstep_protocol::hook::HookError) -> Failure {
    Failure::new(FailureKind::Invalid, format!("{error}; nothing was started"))
}

/// The failure of a start whose hook is kept for longer than it may be, or not at all (rules H30, H54).
fn retention() -> Failure {
    let message = "the retention of the hook has passed, or is too long; nothing was started";
    Failure::new(FailureKind::Invalid, message)
}

/// The failure of a start that would make a chain of children longer than it may be (rule P36).
pub(super) fn too_deep() -> Failure {
    let message = format!(
        "a chain of children that start children may be {DEPTH_MAX} long; nothing was started. A detached child begins a chain of \
         its own"
    );
    Failure::new(FailureKind::LimitReached, message)
}

const fn only_started(letter: &Letter) -> bool {
    matches!(&letter.said, Said::Start { child, .. } if child.only_started)
}

#[cfg(test)]
mod tests {
    //! Proves what becomes of letters that nobody takes. Not: what those who take them do; see `tests/decide_letters.rs`.
    use everstep_protocol::{
        CallHash, Fingerprint, HookId, InstanceUid, Namespace, Payload, Position, Run,
        hook::Registration,
        journal::{Other, Outcome},
    };

    use super::*;
    use crate::{
        batch::{Loaded, Rules, Writes},
        hook::{Claim, SentPayload},
        letter::{Caller, nobody},
        place::Room,
    };

    fn broken_by(said: Said) -> Writes {
        let mut loaded = Loaded::default();
        loaded.rows.letters.insert(7);
        let mut batch = Batch::new(loaded, Rules::default());
        let caller = Caller { uid: InstanceUid::generate(), run: Run(1), call: CallHash([0; 16]) };
        batch.unread(&Letter { number: 7, caller, said });
        batch.finish(&mut Room::default()).0
    }

    fn caller() -> Caller {
        Caller { uid: InstanceUid(uuid::Uuid::from_u128(7)), run: Run(1), call: CallHash([0; 16]) }
    }

    /// The letter cannot be delivered, and is carried once more all the same.
    fn undelivered(said: Said) -> Writes {
        let mut loaded = Loaded::default();
        loaded.rows.letters.insert(7);
        let mut batch = Batch::new(loaded, Rules::default());
        let letter = Letter { number: 7, caller: caller(), said };
        assert_eq!(batch.undelivered(&letter, &nobody()), Answer::NotFound);
        assert_eq!(batch.undelivered(&letter, &nobody()), Answer::Nothing, "it was taken");
        let writes = batch.finish(&mut Room::default()).0;
        assert_eq!(writes.letter_deletes, [7]);
        writes
    }

    fn claim() -> Claim {
        let claimant = Other { workflow: "w".parse().unwrap(), id: "b".parse().unwrap() };
        let hook = HookId { run: Run(1), position: Position(2) };
        let token = "t".parse().unwrap();
        let asked =
            Registration { token, retention: None, metadata: None, webhook: None, force: true, schema: None };
        Claim { namespace: Namespace::default(), claimant, hook, asked, held: HookId::START }
    }

    /// Whoever asked gets an answer, and what nobody would ever let go of is let go of.
    #[test]
    fn w22_a_letter_that_finds_nobody_goes_back_as_what_its_sender_waits_for() {
        let sent = SentPayload {
            token: claim().asked.token,
            hook: HookId::START,
            app_id: String::new(),
            id: "r".to_owned(),
            payload: Payload::null(),
            fingerprint: Fingerprint::of(&Payload::null()).unwrap(),
        };
        for asked in [Said::Watch, Said::Resume { namespace: Namespace::default(), sent }] {
            let back = undelivered(asked).letters.remove(0);
            assert_eq!((back.to, back.caller), (Address::Instance(caller().uid), caller()));
            assert_eq!(back.said, Said::Returned { outcome: failed(nobody()), over: true });
        }
        // The owner of a claimed token is gone: the claimant looks again.
        let writes = undelivered(Said::Claim(claim()));
        assert_eq!(writes.letters[0].said, Said::Claimed { claim: claim(), from: None });
        assert!(writes.hook_deletes.is_empty());
        // The claimant is gone, and has got the token, or has not.
        let writes = undelivered(Said::Claimed { claim: claim(), from: Some(claim().claimant) });
        let key = (Namespace::default(), claim().asked.token);
        assert_eq!((writes.hook_deletes, writes.letters.len()), (vec![(key, caller().uid, HookEnd::Own)], 0));
        for unasked in [Said::Claimed { claim: claim(), from: None }, Said::Terminate { reason: None }] {
            let writes = undelivered(unasked);
            assert!(writes.letters.is_empty() && writes.hook_deletes.is_empty(), "{writes:?}");
        }
    }

    #[test]
    fn w22_a_letter_that_breaks_its_decision_goes_back_or_stays() {
        let back = broken_by(Said::Watch);
        assert_eq!(back.letter_deletes, [7]);
        assert!(matches!(
            &back.letters[0].said,
            Said::Returned { outcome: Outcome::Failed { .. }, over: true }
        ));
        let outcome = failed(undeliverable());
        let nobody_waits = [
            Said::Returned { outcome, over: true },
            Said::Terminate { reason: None },
            Said::Cancel { reason: None, within: everstep_protocol::Millis(1) },
        ];
        for said in nobody_waits {
            assert!(broken_by(said.clone()).is_empty(), "{said:?} would be lost");
        }
    }
}
