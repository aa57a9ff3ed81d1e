//! Proves how attempts that may not simply be made again are replayed (rules L5 to L8): announced, begun by their own entry and once,
//! unknown when their holder is gone, and decided by a person. Not: that a worker obeys; see its rules.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use everstep_protocol::{
    Attempt, Class, Epoch, Failure, FailureKind, Millis, Policy, Position, SessionId, Timestamp,
    journal::{Attempted, Choice, Fact, Intended, Lost, Marks, Outcome, Resolved, Withdrawn},
};
use support::{
    script::{Act::*, *},
    *,
};

const ONCE: Class = Class::AtMostOnce;
const LOOKUP: Class = Class::Lookup { visibility_lag: Millis(30_000) };

fn of(class: Class) -> Policy {
    Policy { class, ..Policy::default() }
}

/// One step of this class, replayed under the lease of `S1` with epoch 2.
fn replay(class: Class) -> Run {
    let mut run = Run::new(vec![vec![Step("a", 1)], vec![Step("after", 1)]]);
    run.replay.held_by(S1, Epoch(2));
    run.replay.of_class(1, class);
    run
}

fn intended(attempt: u32, session: SessionId, epoch: u64, class: Class) -> Fact {
    Fact::Intended(Intended {
        call: step("a"),
        attempt: Attempt(attempt),
        called_after: Position(1),
        key: key(1),
        input: fingerprint(1),
        policy: of(class),
        marks: Marks::default(),
        build: build(),
        session,
        epoch: Epoch(epoch),
    })
}

fn ended(attempt: u32, class: Class, outcome: Outcome) -> Fact {
    match attempted(&step("a"), attempt, 1, outcome) {
        Fact::Attempted(attempted) => Fact::Attempted(Attempted { policy: of(class), ..attempted }),
        other => other,
    }
}

fn unknown(attempt: u32) -> Fact {
    let failure = Failure::new(FailureKind::TimedOut, "slow");
    ended(attempt, ONCE, Outcome::Unknown { failure, asks: true, epoch: Epoch(1) })
}

fn resolved(attempt: u32, choice: Choice) -> Fact {
    let by = Some("ann".to_owned());
    Fact::Resolved(Resolved {
        call: step("a"),
        attempt: Attempt(attempt),
        choice,
        by,
        why: None,
        sensitive: false,
    })
}

/// What may run once these entries are fed.
fn next_after(class: Class, facts: Vec<Fact>) -> Vec<String> {
    let mut run = replay(class);
    run.feed_all(&journal(facts)).unwrap();
    run.next()
}

#[test]
fn l05_an_attempt_begins_by_the_entry_that_announces_it_and_once() {
    for class in [ONCE, LOOKUP] {
        let mut run = replay(class);
        assert_eq!(run.next(), ["intend 1 attempt 1"]);
        assert!(run.next().is_empty(), "told once");
        assert!(run.replay.awaits_intents());
        let journal = journal(vec![
            intended(1, S1, 2, class),
            ended(1, class, Outcome::Succeeded(json("7"))),
            succeeded(&step("after"), 1),
        ]);
        run.feed(&journal[0]).unwrap();
        assert!(!run.replay.awaits_intents());
        assert_eq!(run.next(), ["start 1 attempt 1"]);
        assert!(run.next().is_empty(), "begun once");
        run.feed(&journal[1]).unwrap();
        assert_eq!(run.got, [(1, Ok(json("7")))]);
        assert_eq!(run.next(), ["start 2 attempt 1"], "a step without a class is not announced");
    }
    assert_eq!(next_after(Class::Keyed, vec![]), ["start 1 attempt 1"]);
}

/// Whatever is fed the entry of an attempt that it did not announce itself under this very lease begins nothing.
#[test]
fn l05_only_who_announced_an_attempt_begins_it() {
    let not_ours = [intended(1, S2, 2, ONCE), intended(1, S1, 1, ONCE), intended(1, S1, 2, ONCE)];
    for (case, epoch) in not_ours.into_iter().zip([2, 1, 2]) {
        assert_eq!(next_after(ONCE, vec![case]), [format!("unknown 1 attempt 1 of lease {epoch}")]);
    }
    // A body that is thrown away hands on what it announced, and it is begun once.
    let mut first = replay(ONCE);
    assert_eq!(first.next(), ["intend 1 attempt 1"]);
    let mut second = replay(ONCE);
    second.replay.inherit(&mut first.replay);
    let journal = journal(vec![intended(1, S1, 2, ONCE)]);
    second.feed_all(&journal).unwrap();
    assert_eq!(second.next(), ["start 1 attempt 1"]);
    let mut third = replay(ONCE);
    third.replay.inherit(&mut second.replay);
    third.feed_all(&journal).unwrap();
    assert_eq!(third.next(), ["unknown 1 attempt 1 of lease 2"]);
}

#[test]
fn l07_what_its_holder_left_is_charged_by_class() {
    let left = |class| vec![intended(1, S2, 1, class), lost(4, true)];
    assert_eq!(next_after(ONCE, left(ONCE)), ["unknown 1 attempt 1 of lease 1"]);
    assert_eq!(next_after(LOOKUP, left(LOOKUP)), ["charge 1 attempt 1"]);
    // Without a loss too: a worker that stopped, or gave its lease back, had begun it.
    assert_eq!(next_after(ONCE, vec![intended(1, S2, 1, ONCE)]), ["unknown 1 attempt 1 of lease 1"]);
    assert_eq!(next_after(LOOKUP, vec![intended(1, S2, 1, LOOKUP)]), ["charge 1 attempt 1"]);
    // The class that is recorded goes before that of the code.
    assert_eq!(next_after(Class::Keyed, left(ONCE)), ["unknown 1 attempt 1 of lease 1"]);
}

/// What may run, where an older database was restored at this moment.
fn next_restored(class: Class, facts: Vec<Fact>, at: Timestamp) -> Vec<String> {
    let mut run = replay(class);
    run.replay.restored(Some(at));
    run.feed_all(&journal(facts)).unwrap();
    run.next()
}

#[test]
fn l07_after_a_restore_what_the_lost_history_may_have_called_asks() {
    // The entries of these journals are of NOW: written before the one restore, and after the other.
    let (before, after) = (Timestamp(NOW.0 - 1), NOW);
    let asks = ["unknown 1 attempt 1 of lease 2"];
    assert_eq!(next_restored(ONCE, vec![], after), asks);
    assert_eq!(next_restored(ONCE, vec![], before), asks, "nothing was written about it since");
    for class in [Class::Keyed, LOOKUP] {
        assert_eq!(
            next_restored(class, vec![], after),
            next_after(class, vec![]),
            "its key, or a look, says it"
        );
    }
    // One that surely had no effect is tried again: the lost history may have done so too.
    let failed = || {
        let (failure, retry_at) = (Failure::new(FailureKind::Error, "no"), Some(NOW));
        ended(1, ONCE, Outcome::Failed { failure, retry_at })
    };
    assert_eq!(next_restored(ONCE, vec![failed()], after), ["unknown 1 attempt 2 of lease 2"]);
    assert_eq!(next_restored(ONCE, vec![failed()], before), ["intend 1 attempt 2"]);
    // A person has answered since: it is called, and asks no second time.
    let answered = || vec![unknown(1), resolved(1, Choice::Again)];
    assert_eq!(next_restored(ONCE, answered(), before), ["intend 1 attempt 2"]);
    assert_eq!(next_restored(ONCE, answered(), after), ["unknown 1 attempt 2 of lease 2"]);
    // What was announced and has no outcome asks as ever, and is told from what the lost history may have done.
    let announced = vec![intended(1, S2, 1, ONCE)];
    assert_eq!(next_restored(ONCE, announced, after), ["unknown 1 attempt 1 of lease 1"]);
    // A body that is begun anew under the same lease knows of it.
    let mut first = replay(ONCE);
    first.replay.restored(Some(after));
    let mut second = replay(ONCE);
    second.replay.inherit(&mut first.replay);
    assert_eq!(second.next(), asks);
    assert!(second.replay.is_of_lost_history(1));
}

fn lost_by(session: SessionId, slots: u32) -> Fact {
    Fact::Lost(Lost { slots, counts: true, session, progress: Vec::new() })
}

#[test]
fn l07_a_loss_charges_only_what_had_begun() {
    // Neither had been announced: nothing of them ran.
    assert_eq!(next_after(ONCE, vec![lost(4, true)]), ["intend 1 attempt 1"]);
    assert_eq!(next_after(LOOKUP, vec![lost(4, true)]), ["intend 1 attempt 1"]);
    assert_eq!(next_after(Class::Keyed, vec![lost(4, true)]), ["charge 1 attempt 1"]);
    // A slot that an announced attempt took is not charged to another step.
    let mut run = Run::new(vec![vec![Step("a", 1), Step("b", 1)]]);
    run.replay.held_by(S1, Epoch(2));
    run.replay.of_class(1, ONCE);
    run.feed_all(&journal(vec![intended(1, S2, 1, ONCE), lost_by(S2, 1)])).unwrap();
    assert_eq!(run.next(), ["unknown 1 attempt 1 of lease 1", "start 2 attempt 1"]);
    // One that an earlier holder had announced took no slot of this one.
    let mut run = Run::new(vec![vec![Step("a", 1), Step("b", 1)]]);
    run.replay.held_by(S1, Epoch(3));
    run.replay.of_class(1, ONCE);
    run.feed_all(&journal(vec![intended(1, S2, 1, ONCE), lost_by(S1, 1)])).unwrap();
    assert_eq!(run.next(), ["unknown 1 attempt 1 of lease 1", "charge 2 attempt 1"]);
}

#[test]
fn l07_an_attempt_that_was_given_back_keeps_its_number() {
    let withdrawn = || Fact::Withdrawn(Withdrawn { call: step("a"), attempt: Attempt(1) });
    let facts = vec![intended(1, S2, 1, ONCE), withdrawn(), lost(4, true)];
    assert_eq!(next_after(ONCE, facts), ["intend 1 attempt 1"]);
    let mut run = replay(ONCE);
    let journal = journal(vec![withdrawn()]);
    let parked = run.feed(&journal[0]).unwrap_err();
    assert!(parked.message.contains("no attempt of step \"a\" #1 was to begin"), "{parked:?}");
}

#[test]
fn l08_an_unknown_attempt_waits_for_a_person() {
    let asked = || vec![intended(1, S2, 1, ONCE), unknown(1)];
    let mut run = replay(ONCE);
    run.feed_all(&journal(asked())).unwrap();
    assert!(run.next().is_empty() && run.got.is_empty() && run.replay.has_waits());
    // A loss does not touch it.
    assert!(next_after(ONCE, [asked(), vec![lost(4, true)]].concat()).is_empty());
    let answered = |choice| {
        let mut run = replay(ONCE);
        run.feed_all(&journal([asked(), vec![resolved(1, choice)]].concat())).unwrap();
        (run.got.clone(), run.next())
    };
    let (got, next) = answered(Choice::Done(json("9")));
    assert_eq!((got, next), (vec![(1, Ok(json("9")))], vec!["start 2 attempt 1".to_owned()]));
    let (got, _) = answered(Choice::Fail(error("no")));
    assert_eq!(got, [(1, Err(error("no")))]);
    let (got, next) = answered(Choice::Again);
    assert_eq!((got, next), (vec![], vec!["intend 1 attempt 2".to_owned()]), "a new intent, another number");
    let mut run = replay(ONCE);
    let facts = journal(vec![resolved(1, Choice::Again)]);
    assert!(run.feed(&facts[0]).unwrap_err().message.contains("does not wait for a person"));
}

#[test]
fn l07_the_loser_of_a_race_is_recorded_and_nobody_is_asked() {
    let script = || vec![vec![Step("a", 1), Step("w", 1)], vec![Drop(1)]];
    let race = |session, epoch| {
        let mut run = Run::new(script());
        run.replay.held_by(S1, Epoch(2));
        run.replay.of_class(1, ONCE);
        if session == S1 {
            assert_eq!(run.next(), ["intend 1 attempt 1", "start 2 attempt 1"]);
        }
        run.feed_all(&journal(vec![intended(1, session, epoch, ONCE)])).unwrap();
        run
    };
    let winner = |run: &mut Run, at| {
        let entries = journal(vec![intended(1, S1, 2, ONCE), succeeded(&step("w"), 1)]);
        run.feed(&entries[at]).unwrap();
    };
    // It ran here, or at another holder that is gone.
    let mut begun = race(S1, 2);
    assert_eq!(begun.next(), ["start 1 attempt 1"]);
    let left = race(S2, 1);
    for mut run in [begun, left] {
        winner(&mut run, 1);
        let settled = run.replay.next_settled();
        assert_eq!(settled.len(), 1);
        assert!(!settled[0].unused && settled[0].intended.attempt == Attempt(1));
        assert!(run.replay.next_settled().is_empty(), "told once");
        assert!(run.next().is_empty());
    }
    // One that never began is given back.
    let mut unused = race(S1, 2);
    winner(&mut unused, 1);
    assert!(unused.replay.next_settled()[0].unused);
    // What is on record already is not told again.
    let failure = Failure::new(FailureKind::Cancelled, "dropped");
    let dropped = ended(1, ONCE, Outcome::Unknown { failure, asks: false, epoch: Epoch(1) });
    let mut run = Run::new(script());
    run.replay.of_class(1, ONCE);
    let facts = vec![intended(1, S2, 1, ONCE), succeeded(&step("w"), 1), dropped];
    run.feed_all(&journal(facts.clone())).unwrap();
    assert!(run.replay.next_settled().is_empty());
    // Code that does not drop it any more contradicts that.
    let mut run = Run::new(vec![vec![Step("a", 1), Step("w", 1)]]);
    run.replay.of_class(1, ONCE);
    let parked = run.feed_all(&journal(facts)).unwrap_err();
    assert!(parked.message.contains("has not dropped step \"a\" #1"), "{parked:?}");
}

#[test]
fn l07_a_question_of_a_dropped_call_is_closed() {
    let mut run = Run::new(vec![vec![Step("a", 1), Step("w", 1)], vec![Drop(1)]]);
    run.replay.of_class(1, ONCE);
    run.feed_all(&journal(vec![intended(1, S2, 1, ONCE), unknown(1), succeeded(&step("w"), 1)])).unwrap();
    let closed = run.replay.next_closed();
    assert_eq!(closed.iter().map(|closed| closed.call.clone()).collect::<Vec<_>>(), [step("a")]);
    assert!(run.replay.next_settled().is_empty(), "it is recorded as unknown already");
}
