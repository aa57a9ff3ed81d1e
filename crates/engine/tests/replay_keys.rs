//! Proves under which key a step goes on when its input has changed and a person has chosen (rule P8): which attempts bear the old
//! key, which the new one, and that a choice is about one input. Not: that the choice is taken once; see `decide_ledger.rs`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use everstep_engine::replay::Next;
use everstep_protocol::{
    Attempt, BuildName, Class, Epoch, Policy, Position, StepKey,
    journal::{Attempted, Choice, Fact, Intended, Marks, Outcome, ParkCode, Rekeyed, Resolved, Withdrawn},
};
use support::{
    script::{Act::*, *},
    *,
};

const OLD: u8 = 1;
const NEW: u8 = 2;

fn first() -> BuildName {
    BuildName::new("b1").unwrap()
}

fn second() -> BuildName {
    BuildName::new("b2").unwrap()
}

/// A failed attempt that is followed by another at once, of the build that gives this input.
fn tried(attempt: u32, under: u8, input: u8) -> Fact {
    match failed_until(&step("a"), attempt, Some(0)) {
        Fact::Attempted(attempted) => Fact::Attempted(Attempted {
            key: key(under),
            input: fingerprint(input),
            build: if input == 1 { first() } else { second() },
            ..attempted
        }),
        other => other,
    }
}

fn rekeyed(input: u8, kept: Option<StepKey>) -> Fact {
    let (by, why) = (Some("ann".to_owned()), None);
    Fact::Rekeyed(Rekeyed { call: step("a"), input: fingerprint(input), kept, by, why })
}

fn old_key() -> Fact {
    rekeyed(2, Some(key(OLD)))
}

fn new_key() -> Fact {
    rekeyed(2, None)
}

/// A body that gives the step this input, of a build of its own, after these entries.
fn after(input: u8, facts: Vec<Fact>) -> Run {
    let build = BuildName::new(format!("b{input}")).unwrap();
    let mut run = Run::of_build(vec![vec![Step("a", input)]], build);
    run.replay.held_by(S1, Epoch(2));
    run.feed_all(&journal(facts)).unwrap();
    run
}

type Told = Vec<(&'static str, u32, Option<StepKey>)>;

/// What may run: the word, the attempt, and the key where one is pinned.
fn next(run: &mut Run) -> Told {
    let told = |next: &Next| {
        let (word, start) = match next {
            Next::Start(start) => ("start", start),
            Next::Charge(start) => ("charge", start),
            Next::Intend(start) => ("intend", start),
            Next::Unknown(start, _) => ("unknown", start),
            other => panic!("{other:?}"),
        };
        (word, start.attempt.0, start.pinned.map(|(key, _)| key).or(start.kept))
    };
    run.replay.next_steps().unwrap().iter().map(told).collect()
}

fn asks(run: &mut Run) -> StepKey {
    let parked = run.replay.next_steps().unwrap_err();
    assert_eq!(parked.code, ParkCode::InputChanged);
    parked.changed.expect("a person may choose").key
}

#[test]
fn p08_a_step_goes_on_under_its_old_key_or_a_new_one() {
    assert_eq!(asks(&mut after(2, vec![tried(1, OLD, 1)])), key(OLD));
    let mut old = after(2, vec![tried(1, OLD, 1), Fact::Parked(parked()), old_key()]);
    assert_eq!(next(&mut old), [("start", 2, Some(key(OLD)))]);
    let mut new = after(2, vec![tried(1, OLD, 1), Fact::Parked(parked()), new_key()]);
    let next = new.replay.next_steps().unwrap();
    let [Next::Start(start)] = &next[..] else { panic!("{next:?}") };
    assert_eq!((start.attempt, start.pinned, start.kept, start.first_at), (Attempt(2), None, None, None));
    assert_eq!(start.progress, None, "what was told is about the other input");
}

#[test]
fn p08_what_follows_is_pinned_by_the_first_attempt_under_the_new_key() {
    let mut run = after(2, vec![tried(1, OLD, 1), new_key(), tried(2, NEW, 2), tried(3, NEW, 2)]);
    assert_eq!(next(&mut run), [("start", 4, Some(key(NEW)))]);
    let mut again = after(3, vec![tried(1, OLD, 1), new_key(), tried(2, NEW, 2)]);
    assert_eq!(asks(&mut again), key(NEW), "another change asks again, about the key that was sent last");
}

#[test]
fn p08_a_choice_is_about_the_input_that_was_asked_about() {
    for choice in [old_key(), new_key()] {
        let mut other = after(3, vec![tried(1, OLD, 1), choice]);
        assert_eq!(asks(&mut other), key(OLD));
        // Nothing has been called with the second input, and code that gives the first again has nothing to ask.
    }
    let mut chosen = after(3, vec![tried(1, OLD, 1), new_key(), rekeyed(3, Some(key(OLD)))]);
    assert_eq!(next(&mut chosen), [("start", 2, Some(key(OLD)))]);
}

#[test]
fn p08_an_attempt_that_was_lost_is_charged_under_the_key_that_it_bore() {
    let before = vec![tried(1, OLD, 1), lost(1, true), new_key()];
    let mut run = after(2, before.clone());
    let charged = run.replay.next_steps().unwrap();
    let [Next::Charge(charge)] = &charged[..] else { panic!("{charged:?}") };
    assert_eq!((charge.attempt, charge.pinned.map(|(key, _)| key)), (Attempt(2), Some(key(OLD))));
    assert_eq!(charge.input, Some(fingerprint(1)), "it was begun with the first input");
    run.feed_all(&at_position(5, vec![of_second(tried(2, OLD, 1))])).unwrap();
    assert_eq!(next(&mut run), [("start", 3, None)], "the record of the old key pins nothing");
    // The same journal, read by whoever comes next.
    let charged = [before, vec![of_second(tried(2, OLD, 1))]].concat();
    assert_eq!(next(&mut after(2, charged.clone())), [("start", 3, None)]);
    let after_it = [charged, vec![lost(1, true)]].concat();
    assert_eq!(next(&mut after(2, after_it)), [("charge", 3, None)], "this one bore the new key");
}

/// Reported by the second build, whatever its input.
fn of_second(fact: Fact) -> Fact {
    match fact {
        Fact::Attempted(attempted) => Fact::Attempted(Attempted { build: second(), ..attempted }),
        other => other,
    }
}

fn at_position(position: u64, facts: Vec<Fact>) -> Vec<everstep_protocol::journal::Entry> {
    let mut entries = journal(facts);
    for (at, entry) in (position..).zip(&mut entries) {
        entry.position = Position(at);
    }
    entries
}

fn once() -> Policy {
    Policy { class: Class::AtMostOnce, ..Policy::default() }
}

fn intended(attempt: u32) -> Fact {
    Fact::Intended(Intended {
        call: step("a"),
        attempt: Attempt(attempt),
        called_after: Position(1),
        key: key(OLD),
        input: fingerprint(1),
        policy: once(),
        marks: Marks::default(),
        build: first(),
        session: S2,
        epoch: Epoch(1),
    })
}

fn unknown(attempt: u32) -> Fact {
    let outcome = Outcome::Unknown { failure: error("gone"), asks: true, epoch: Epoch(1) };
    match attempted(&step("a"), attempt, 2, outcome) {
        Fact::Attempted(attempted) => {
            Fact::Attempted(Attempted { policy: once(), key: key(OLD), build: second(), ..attempted })
        }
        other => other,
    }
}

#[test]
fn p08_nobody_calls_under_a_new_key_before_it_is_settled_what_came_of_the_old_one() {
    let mut run = after(2, vec![intended(1)]);
    run.replay.of_class(1, Class::AtMostOnce);
    assert_eq!(asks(&mut run), key(OLD));
    let mut run = after(2, vec![intended(1), new_key()]);
    run.replay.of_class(1, Class::AtMostOnce);
    assert_eq!(next(&mut run), [("unknown", 1, Some(key(OLD)))], "a person says what came of it");
    run.feed_all(&at_position(4, vec![unknown(1)])).unwrap();
    assert!(next(&mut run).is_empty());
    let again = Resolved {
        call: step("a"),
        attempt: Attempt(1),
        choice: Choice::Again,
        by: None,
        why: None,
        sensitive: false,
    };
    run.feed_all(&at_position(5, vec![Fact::Resolved(again)])).unwrap();
    assert_eq!(next(&mut run), [("intend", 2, None)]);
}

#[test]
fn p08_the_number_of_an_attempt_that_never_began_is_free_for_the_new_key() {
    let withdrawn = Fact::Withdrawn(Withdrawn { call: step("a"), attempt: Attempt(1) });
    for facts in [vec![intended(1), new_key(), withdrawn.clone()], vec![intended(1), withdrawn, new_key()]] {
        let mut run = after(2, facts);
        run.replay.of_class(1, Class::AtMostOnce);
        assert_eq!(next(&mut run), [("intend", 1, None)]);
    }
}

#[test]
fn p08_a_key_that_an_earlier_run_kept_is_that_of_the_same_call_with_the_same_input() {
    // Called before and after the entry is fed.
    let late = |input| {
        let mut run = Run::of_build(vec![vec![Step("before", 1)], vec![Step("a", input)]], second());
        run.feed_all(&journal(vec![old_key(), succeeded(&step("before"), 1)])).unwrap();
        next(&mut run)
    };
    let early = |input| next(&mut after(input, vec![old_key()]));
    for made in [early as fn(u8) -> Told, late as fn(u8) -> Told] {
        assert_eq!(made(2), [("start", 1, Some(key(OLD)))]);
        assert_eq!(made(3), [("start", 1, None)], "another input is another effect");
    }
    let mut rolled = after(2, vec![old_key(), tried(1, OLD, 2)]);
    assert_eq!(next(&mut rolled), [("start", 2, Some(key(OLD)))]);
    assert_eq!(next(&mut after(2, vec![old_key(), new_key()])), [("start", 1, None)], "the last word holds");
}

#[test]
fn p08_code_that_was_rolled_back_goes_on_as_before_the_choice() {
    for choice in [old_key(), new_key()] {
        let mut run = after(1, vec![tried(1, OLD, 1), choice]);
        let next = run.replay.next_steps().unwrap();
        let [Next::Start(start)] = &next[..] else { panic!("{next:?}") };
        assert_eq!((start.attempt, start.pinned.map(|(key, _)| key)), (Attempt(2), Some(key(OLD))));
        assert!(start.first_at.is_some(), "its time goes on");
    }
    // It made an attempt of its own meanwhile: the choice was about what came before.
    let mut again = after(2, vec![tried(1, OLD, 1), new_key(), tried(2, OLD, 1)]);
    assert_eq!(asks(&mut again), key(OLD));
}

#[test]
fn p08_the_key_that_was_sent_last_is_the_old_one_of_the_next_question() {
    // The second build has gone on under its new key although the third was told to keep the old one.
    let facts = vec![tried(1, OLD, 1), new_key(), rekeyed(3, Some(key(OLD))), tried(2, NEW, 2)];
    assert_eq!(asks(&mut after(3, facts.clone())), key(NEW));
    assert_eq!(next(&mut after(2, facts)), [("start", 3, Some(key(NEW)))]);
}

#[test]
fn p08_a_kept_key_is_no_sign_of_code_without_a_patch() {
    let mut run = Run::of_build(vec![vec![Patch("new"), Step("a", 2)]], second());
    run.feed_all(&journal(vec![old_key()])).unwrap();
    assert!(run.got.is_empty(), "it is asked for when the code's own entries come");
}
