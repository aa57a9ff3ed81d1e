//! Proves how a journal is fed to a body (rules P7, P8, P19, P41, W11, W32, W36), on journals written by hand. Random ones are
//! in `replay_property.rs`. Not: that a worker polls the body as it must, and asks when it must.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use everstep_engine::replay::{Fed, Next};
use everstep_protocol::{
    Attempt, BuildName, Call, CallKind, FailureKind, Generation, Payload, Policy, Position, Timestamp,
    journal::{Attempted, Cancelled, End, Entry, Fact, Lost, Outcome, ParkCode, Progress, Started},
};
use support::{
    script::{Act::*, *},
    *,
};

/// The calls, by number, in the order in which they get their outcomes.
fn order(script: Script, facts: Vec<Fact>) -> Vec<u64> {
    let mut run = Run::new(script);
    run.feed_all(&journal(facts)).unwrap();
    run.got.iter().map(|(number, _)| *number).collect()
}

fn other_build() -> BuildName {
    BuildName::new("b2").unwrap()
}

#[test]
fn p07_a_join_gets_its_outcomes_in_the_recorded_order() {
    let script = vec![vec![Step("a", 1), Step("b", 1), Step("c", 1)]];
    let facts = |names: [&str; 3]| names.map(|name| succeeded(&step(name), 1)).to_vec();
    assert_eq!(order(script.clone(), facts(["c", "a", "b"])), [3, 1, 2]);
    assert_eq!(order(script, facts(["a", "b", "c"])), [1, 2, 3]);
}

#[test]
fn p07_the_lowest_position_wins_a_race_and_the_loser_is_skipped() {
    let script = vec![vec![Step("a", 1), Step("b", 1)], vec![Drop(1), Step("after", 1)]];
    let facts = vec![succeeded(&step("b"), 1), succeeded(&step("a"), 1), succeeded(&step("after"), 1)];
    assert_eq!(order(script, facts), [2, 3]);
}

#[test]
fn w32_every_entry_of_a_dropped_call_is_skipped() {
    let script =
        vec![vec![Step("x", 1), Sleep("s"), Remote("r", 2), Step("w", 1)], vec![Drop(2), Drop(3), Drop(1)]];
    let (s, r, x) = (sleep("s"), step("r"), step("x"));
    let facts = vec![
        failed_until(&x, 1, Some(9)),
        opened_sleep(&s, 5),
        succeeded(&step("w"), 1),
        opened_remote(&r),
        fired(&s),
        failed_until(&r, 1, Some(9)),
        succeeded(&r, 2),
        fired(&x),
        succeeded(&x, 2),
        succeeded(&x, 3),
    ];
    assert_eq!(order(script, facts), [4]);
}

#[test]
fn p02_calls_of_one_name_are_told_apart_by_count_and_kind() {
    let script = vec![vec![Step("a", 1), Step("a", 1), Sleep("a")]];
    let second = call(CallKind::Step, "a", 2);
    let facts = vec![
        opened_sleep(&sleep("a"), 1),
        succeeded(&second, 1),
        fired(&sleep("a")),
        succeeded(&step("a"), 1),
    ];
    assert_eq!(order(script, facts), [2, 3, 1]);
}

#[test]
fn p06_a_recorded_failure_is_handed_over_as_it_was() {
    let mut run = Run::new(vec![vec![Step("a", 1)]]);
    run.feed_all(&journal(vec![failed_until(&step("a"), 1, None)])).unwrap();
    assert_eq!(run.got, [(1, Err(error("no")))]);
    assert!(run.next().is_empty());
}

/// Feeding the last of these entries parks with a message that names it.
fn mismatch(script: Script, facts: Vec<Fact>, says: &str) {
    let journal = journal(facts);
    let (last, before) = journal.split_last().unwrap();
    let mut run = Run::new(script);
    run.feed_all(before).unwrap();
    let parked = run.feed(last).unwrap_err();
    assert_eq!(parked.code, ParkCode::JournalMismatch);
    let named = format!("entry {} ({})", last.position, last.fact.word());
    assert!(parked.message.contains(&named) && parked.message.contains(says), "{parked:?}");
}

#[test]
fn p41_an_entry_for_a_call_never_made_is_a_mismatch() {
    let script = || vec![vec![Step("a", 1)], vec![Step("later", 1)]];
    mismatch(script(), vec![succeeded(&step("b"), 1)], "step \"b\" #1");
    mismatch(script(), vec![failed_until(&step("b"), 1, Some(1))], "step \"b\" #1");
    mismatch(script(), vec![opened_sleep(&sleep("a"), 1)], "sleep \"a\" #1");
    mismatch(script(), vec![opened_remote(&step("r"))], "step \"r\" #1");
    mismatch(script(), vec![fired(&sleep("a"))], "sleep \"a\" #1");
    mismatch(script(), vec![succeeded(&call(CallKind::Step, "a", 2), 1)], "step \"a\" #2");
    mismatch(script(), vec![succeeded(&step("later"), 1)], "step \"later\" #1");
}

#[test]
fn p41_an_outcome_of_a_call_that_has_one_is_a_mismatch() {
    let script = || vec![vec![Step("a", 1), Sleep("s")]];
    let (a, s) = (step("a"), sleep("s"));
    mismatch(script(), vec![succeeded(&a, 1), succeeded(&a, 1)], "step \"a\" #1");
    mismatch(script(), vec![failed_until(&a, 1, None), succeeded(&a, 2)], "step \"a\" #1");
    mismatch(script(), vec![opened_sleep(&s, 1), fired(&s), fired(&s)], "sleep \"s\" #1");
}

#[test]
fn p41_another_kind_of_call_is_a_mismatch() {
    mismatch(vec![vec![Step("a", 2)]], vec![opened_remote(&step("a"))], "step \"a\" #1");
    mismatch(vec![vec![Sleep("a")]], vec![succeeded(&sleep("a"), 1)], "sleep \"a\" #1");
    mismatch(
        vec![vec![Sleep("a")]],
        vec![Fact::Opened(match opened_remote(&sleep("a")) {
            Fact::Opened(opened) => opened,
            _ => unreachable!(),
        })],
        "sleep \"a\" #1",
    );
}

#[test]
fn p41_a_time_that_nothing_waits_for_is_a_mismatch() {
    mismatch(vec![vec![Step("a", 1)]], vec![fired(&step("a"))], "step \"a\" #1");
    mismatch(vec![vec![Sleep("s")]], vec![fired(&sleep("s"))], "sleep \"s\" #1");
    mismatch(vec![vec![Remote("r", 2)]], vec![opened_remote(&step("r")), fired(&step("r"))], "step \"r\" #1");
    let again = vec![failed_until(&step("a"), 1, Some(0)), fired(&step("a"))];
    mismatch(vec![vec![Step("a", 1)]], again, "step \"a\" #1");
}

#[test]
fn p41_a_journal_that_begins_again_is_a_mismatch() {
    let started = Fact::Started(Started {
        input: json("1"),
        seed: [0; 32],
        generation: Generation(1),
        attributes: Vec::new(),
        hook: None,
        trace: None,
    });
    mismatch(vec![vec![Step("a", 1)]], vec![started], "second first entry");
}

#[test]
fn w01_a_gap_and_a_repetition_are_refused() {
    for position in [1, 2, 4, 9] {
        let mut run = Run::new(vec![vec![Step("a", 1), Step("b", 1)]]);
        run.feed_all(&journal(vec![succeeded(&step("a"), 1)])).unwrap();
        let entry = Entry { position: Position(position), at: NOW, fact: succeeded(&step("b"), 1) };
        let parked = run.replay.feed(&entry).unwrap_err();
        assert!(parked.message.contains(&format!("entry {position} ")), "{parked:?}");
        assert_eq!(run.replay.position(), Position(2));
    }
}

#[test]
fn w01_what_the_body_cannot_see_is_counted_all_the_same() {
    let mut run = Run::new(vec![vec![Step("a", 1)]]);
    let facts =
        vec![Fact::Parked(parked()), Fact::Retried, lost(0, true), Fact::Ended(End::Complete(json("1")))];
    run.feed_all(&journal(facts)).unwrap();
    assert_eq!((run.replay.position(), run.got.len()), (Position(5), 0));
}

#[test]
fn what_may_run_is_told_once_in_order_of_call() {
    let mut run =
        Run::new(vec![vec![Step("b", 1), Sleep("s"), Step("a", 1), Remote("r", 2)], vec![Step("c", 1)]]);
    assert_eq!(run.next(), ["start 1 attempt 1", "open 2", "start 3 attempt 1", "open 4"]);
    assert!(run.next().is_empty());
    run.feed_all(&journal(vec![succeeded(&step("a"), 1)])).unwrap();
    assert_eq!(run.next(), ["start 5 attempt 1"]);
}

#[test]
fn a_call_dropped_before_it_was_told_never_runs() {
    let mut run = Run::new(vec![vec![Step("a", 1), Step("b", 1), Drop(1)]]);
    assert_eq!(run.next(), ["start 2 attempt 1"]);
    assert!(!run.replay.is_open(1) && run.replay.is_open(2));
}

#[test]
fn p19_a_sleep_is_known_by_name_whatever_its_length() {
    for later in [-1, 0, 1, i64::from(i32::MAX)] {
        let mut run = Run::new(vec![vec![Sleep("s")]]);
        run.feed_all(&journal(vec![opened_sleep(&sleep("s"), later)])).unwrap();
        assert!(run.replay.has_waits() && run.next().is_empty(), "it is opened once");
    }
}

#[test]
fn p11_a_retry_delay_is_waited_for() {
    let a = step("a");
    let mut run = Run::new(vec![vec![Step("a", 1)]]);
    let entries = journal(vec![
        failed_until(&a, 1, Some(1)),
        fired(&a),
        failed_until(&a, 2, Some(0)),
        succeeded(&a, 3),
    ]);
    run.feed(&entries[0]).unwrap();
    assert!(run.next().is_empty() && run.replay.has_waits());
    run.feed(&entries[1]).unwrap();
    assert_eq!((run.next(), run.replay.has_waits()), (vec!["start 1 attempt 2".to_owned()], false));
    run.feed(&entries[2]).unwrap();
    assert_eq!(run.next(), ["start 1 attempt 3"], "a delay of nothing is over at once");
    run.feed(&entries[3]).unwrap();
    assert_eq!(run.got, [(1, Ok(json("3")))]);
}

#[test]
fn p08_the_first_recorded_attempt_pins_key_policy_and_beginning() {
    let a = step("a");
    let mut run = Run::new(vec![vec![Step("a", 1)]]);
    let Next::Start(fresh) = run.replay.next_steps().unwrap().remove(0) else { panic!() };
    assert_eq!((fresh.pinned, fresh.first_at), (None, None));
    run.feed_all(&journal(vec![failed_until(&a, 1, Some(0)), failed_until(&a, 2, Some(0))])).unwrap();
    let Next::Start(third) = run.replay.next_steps().unwrap().remove(0) else { panic!() };
    assert_eq!(third.pinned, Some((key(1), Policy::default())));
    assert_eq!((third.attempt, third.first_at), (Attempt(3), Some(Timestamp(NOW.0 - 9000))));
}

#[test]
fn p08_another_input_under_the_same_build_is_a_mismatch() {
    mismatch(vec![vec![Step("a", 2)]], vec![succeeded(&step("a"), 1)], "another input");
    mismatch(vec![vec![Step("a", 2)]], vec![failed_until(&step("a"), 1, Some(9))], "another input");
    mismatch(vec![vec![Remote("a", 1)]], vec![opened_remote(&step("a"))], "another input");
}

/// The build that counts for a remote step is that of its caller, whatever build the pool has.
#[test]
fn p08_a_remote_steps_input_is_compared_when_it_was_opened() {
    let r = step("r");
    let by_pool = || by_the_pool(succeeded(&r, 1));
    for (input, build, drifted) in [(2, build(), 0), (2, other_build(), 0), (1, other_build(), 1)] {
        let mut run = Run::of_build(vec![vec![Remote("r", input)]], build);
        run.feed_all(&journal(vec![opened_remote(&r), by_pool()])).unwrap();
        assert_eq!((run.got.len(), run.replay.drifted()), (1, drifted), "input {input}");
    }
    let pool = BuildName::new("pool").unwrap();
    let mut run = Run::of_build(vec![vec![Remote("r", 1)]], pool);
    run.feed_all(&journal(vec![opened_remote(&r), by_pool()])).unwrap();
    assert_eq!(run.replay.drifted(), 1, "caller and pool may be of one build by now");
}

#[test]
fn p08_a_remote_step_without_an_outcome_and_with_another_input_parks() {
    let r = step("r");
    let pool = |fact| by_the_pool(fact);
    let journals = [
        vec![opened_remote(&r)],
        vec![opened_remote(&r), pool(failed_until(&r, 1, Some(9)))],
        vec![opened_remote(&r), pool(failed_until(&r, 1, Some(0))), Fact::Parked(parked()), Fact::Retried],
    ];
    for facts in journals {
        let mut run =
            Run::of_build(vec![vec![Remote("r", 1), Step("a", 1)], vec![Step("b", 1)]], other_build());
        let entries = journal(facts);
        run.feed_all(&entries).unwrap();
        let parked = run.replay.next_steps().unwrap_err();
        assert_eq!((parked.code, &parked.changed), (ParkCode::InputChanged, &None), "no key is chosen");
        assert!(parked.message.contains("step \"r\" #1"), "{parked:?}");
        let position = Position(2 + entries.len() as u64);
        run.feed(&Entry { position, at: NOW, fact: pool(succeeded(&r, 3)) }).unwrap();
        assert_eq!(run.next(), ["start 2 attempt 1", "start 3 attempt 1"], "its outcome is used");
        assert_eq!(run.replay.drifted(), 1);
    }
    let mut run = Run::of_build(vec![vec![Remote("r", 1), Step("a", 1)], vec![Drop(1)]], other_build());
    run.feed_all(&journal(vec![opened_remote(&r), succeeded(&step("a"), 1)])).unwrap();
    assert!(run.next().is_empty(), "a dropped one is nobody's question");
}

#[test]
fn p08_another_input_under_another_build_is_used_and_counted() {
    let outcomes = [succeeded(&step("a"), 1), failed_until(&step("a"), 1, None)];
    for fact in outcomes {
        let mut run = Run::of_build(vec![vec![Step("a", 2), Step("b", 1)]], other_build());
        run.feed_all(&journal(vec![fact, succeeded(&step("b"), 1)])).unwrap();
        assert_eq!((run.got.len(), run.replay.drifted()), (2, 1));
    }
}

#[test]
fn p08_attempts_without_an_outcome_and_another_input_park() {
    let mut run = Run::of_build(vec![vec![Step("a", 2)]], other_build());
    let entries = journal(vec![failed_until(&step("a"), 1, Some(9)), fired(&step("a"))]);
    run.feed(&entries[0]).unwrap();
    assert_eq!(run.replay.next_steps(), Ok(vec![]), "not before it would run");
    run.feed(&entries[1]).unwrap();
    let parked = run.replay.next_steps().unwrap_err();
    assert_eq!(parked.code, ParkCode::InputChanged);
    assert!(parked.message.contains("step \"a\" #1"));
    let changed = parked.changed.expect("a person may choose its key");
    assert_eq!((changed.call, changed.input, changed.key), (step("a"), fingerprint(2), key(1)));
}

#[test]
fn p08_an_outcome_after_attempts_is_used_though_the_input_changed() {
    let mut run = Run::of_build(vec![vec![Step("a", 2)]], other_build());
    let a = step("a");
    run.feed_all(&journal(vec![failed_until(&a, 1, Some(9)), fired(&a), succeeded(&a, 2)])).unwrap();
    assert_eq!((run.got.len(), run.replay.drifted()), (1, 1));
}

#[test]
fn p08_a_changed_policy_of_the_code_does_not_matter_under_another_build() {
    let mut run = Run::of_build(vec![vec![Step("a", 1)]], other_build());
    run.feed_all(&journal(vec![failed_until(&step("a"), 1, Some(0))])).unwrap();
    assert_eq!((run.next(), run.replay.drifted()), (vec!["start 1 attempt 2".to_owned()], 0));
}

#[test]
fn w11_a_loss_is_charged_to_the_first_slots_in_order_of_call() {
    let script = || vec![vec![Step("a", 1), Sleep("s"), Step("b", 1), Step("c", 1), Remote("r", 2)]];
    let cases: [(u32, &[&str]); 4] = [
        (0, &["start 1 attempt 1", "open 2", "start 3 attempt 1", "start 4 attempt 1", "open 5"]),
        (1, &["charge 1 attempt 1", "open 2", "start 3 attempt 1", "start 4 attempt 1", "open 5"]),
        (2, &["charge 1 attempt 1", "open 2", "charge 3 attempt 1", "start 4 attempt 1", "open 5"]),
        (9, &["charge 1 attempt 1", "open 2", "charge 3 attempt 1", "charge 4 attempt 1", "open 5"]),
    ];
    for (slots, expected) in cases {
        let mut run = Run::new(script());
        run.feed_all(&journal(vec![lost(slots, true)])).unwrap();
        assert_eq!(run.next(), expected, "{slots} slots");
    }
}

#[test]
fn w11_only_what_was_open_and_could_run_is_charged() {
    let script =
        vec![vec![Step("a", 1), Step("b", 1), Step("c", 1), Step("d", 1)], vec![Drop(3), Step("e", 1)]];
    let facts = vec![succeeded(&step("a"), 1), failed_until(&step("b"), 1, Some(9)), lost(1, true)];
    let mut run = Run::new(script);
    run.feed_all(&journal(facts)).unwrap();
    assert_eq!(
        run.next(),
        ["charge 4 attempt 1", "start 5 attempt 1"],
        "b waits for its delay, c is dropped"
    );
}

#[test]
fn w11_an_uncounted_loss_is_charged_to_nobody() {
    let mut run = Run::new(vec![vec![Step("a", 1)]]);
    run.feed_all(&journal(vec![lost(4, false)])).unwrap();
    assert_eq!(run.next(), ["start 1 attempt 1"]);
}

#[test]
fn w11_attempt_numbers_are_recorded_plus_charged_plus_one() {
    let a = step("a");
    let entries = journal(vec![
        failed_until(&a, 1, Some(0)),
        lost(1, true),
        lost(1, true),
        failed_until(&a, 2, Some(0)),
        failed_until(&a, 3, Some(0)),
        lost(1, true),
        failed_until(&a, 4, Some(5)),
        fired(&a),
    ]);
    let expected: [&[&str]; 9] = [
        &["start 1 attempt 1"],
        &["start 1 attempt 2"],
        &["charge 1 attempt 2"],
        &["charge 1 attempt 2", "charge 1 attempt 3"],
        &["charge 1 attempt 3"],
        &["start 1 attempt 4"],
        &["charge 1 attempt 4"],
        &[],
        &["start 1 attempt 5"],
    ];
    for (fed, expected) in expected.iter().enumerate() {
        let mut run = Run::new(vec![vec![Step("a", 1)]]);
        run.feed_all(&entries[..fed]).unwrap();
        assert_eq!(run.next(), *expected, "after {fed} entries");
    }
}

#[test]
fn w11_charges_that_were_told_are_not_told_again_when_they_are_recorded() {
    let a = step("a");
    let entries = journal(vec![
        lost(1, true),
        lost(1, true),
        failed_until(&a, 1, Some(0)),
        failed_until(&a, 2, Some(0)),
    ]);
    let mut run = Run::new(vec![vec![Step("a", 1)]]);
    run.feed_all(&entries[..2]).unwrap();
    assert_eq!(run.next(), ["charge 1 attempt 1", "charge 1 attempt 2"]);
    run.feed(&entries[2]).unwrap();
    assert!(run.next().is_empty());
    run.feed(&entries[3]).unwrap();
    assert_eq!(run.next(), ["start 1 attempt 3"]);
}

/// What the next attempt of call 1 is given.
fn given(facts: Vec<Fact>) -> Option<Payload> {
    let mut run = Run::new(vec![vec![Step("a", 1), Step("b", 1)]]);
    run.feed_all(&journal(facts)).unwrap();
    match run.replay.next_steps().unwrap().remove(0) {
        Next::Start(start) | Next::Charge(start) | Next::Reuse(start, _) => start.progress,
        Next::Open { .. } | Next::Intend(_) | Next::Unknown(..) => panic!("a step is started"),
    }
}

#[test]
fn p05_the_next_attempt_is_given_what_was_told_last() {
    let (a, b) = (step("a"), step("b"));
    let failed = |attempt, told: Option<&str>| match failed_until(&a, attempt, Some(0)) {
        Fact::Attempted(attempted) => Fact::Attempted(Attempted { progress: told.map(json), ..attempted }),
        other => other,
    };
    let lost = |counts, told: &[(&Call, u32, &str)]| {
        let progress = told.iter().map(|(call, attempt, told)| Progress {
            call: call.hash(),
            attempt: Attempt(*attempt),
            told: json(told),
        });
        Fact::Lost(Lost { slots: 4, counts, session: S1, progress: progress.collect() })
    };
    let cases: [(Vec<Fact>, Option<&str>); 9] = [
        (vec![], None),
        (vec![failed(1, Some("7"))], Some("7")),
        (vec![failed(1, Some("7")), failed(2, Some("8"))], Some("8")),
        // One that tells nothing leaves what the one before it told.
        (vec![failed(1, Some("7")), failed(2, None)], Some("7")),
        (vec![lost(true, &[(&a, 1, "7")])], Some("7")),
        // Given back: the same attempt again goes on from there.
        (vec![lost(false, &[(&a, 1, "7")])], Some("7")),
        (vec![failed(1, Some("7")), lost(true, &[(&b, 1, "9"), (&a, 2, "8")])], Some("8")),
        // What the worker told of an attempt that it then recorded is old.
        (vec![failed(1, Some("7")), lost(true, &[(&a, 1, "6")])], Some("7")),
        (vec![lost(true, &[(&b, 1, "9")])], None),
    ];
    for (facts, told) in cases {
        let text = format!("{facts:?}");
        assert_eq!(given(facts), told.map(json), "{text}");
    }
}

#[test]
fn w11_a_charge_that_uses_up_the_retries_is_the_steps_failure() {
    let mut run = Run::new(vec![vec![Step("a", 1)]]);
    run.feed_all(&journal(vec![lost(1, true), failed_until(&step("a"), 1, None)])).unwrap();
    assert_eq!(run.got.len(), 1);
    assert!(run.next().is_empty());
}

#[test]
fn w39_the_coordinator_retries_a_remote_step() {
    let r = step("r");
    let mut run = Run::new(vec![vec![Remote("r", 2)]]);
    let facts =
        vec![opened_remote(&r), failed_until(&r, 1, Some(9)), failed_until(&r, 2, Some(0)), lost(4, true)];
    run.feed_all(&journal(facts)).unwrap();
    assert!(run.replay.has_waits() && run.next().is_empty());
    run.feed(&Entry { position: Position(6), at: NOW, fact: succeeded(&r, 3) }).unwrap();
    assert_eq!(run.got, [(1, Ok(json("3")))]);
}

#[test]
fn w36_a_folded_outcome_is_not_handed_over_twice() {
    let facts = [succeeded(&step("a"), 1), failed_until(&step("a"), 1, None)];
    for fact in facts {
        let mut run = Run::new(vec![vec![Step("a", 1)]]);
        run.next();
        run.replay.fold(1);
        assert!(!run.replay.is_open(1));
        run.feed_all(&journal(vec![fact])).unwrap();
        assert!(run.got.is_empty() && run.next().is_empty());
    }
}

#[test]
fn p08_outcome_is_none_the_less_recorded_under_the_key_of_the_first_attempt() {
    // A journal in which a later attempt bears another key: the first one counts.
    let a = step("a");
    let second = attempted(&a, 2, 1, Outcome::Failed { failure: error("x"), retry_at: Some(NOW) });
    let mut run = Run::new(vec![vec![Step("a", 1)]]);
    run.feed_all(&journal(vec![failed_until(&a, 1, Some(0)), second])).unwrap();
    let Next::Start(start) = run.replay.next_steps().unwrap().remove(0) else { panic!() };
    assert_eq!(start.pinned.unwrap().0, key(1));
}

#[test]
fn p30_a_cancel_ends_the_calls_that_are_open_in_order_and_their_later_entries_are_skipped() {
    let script = vec![vec![Step("done", 1), Step("a", 1), Sleep("s"), Remote("r", 2)], vec![]];
    let mut run = Run::new(script);
    let (a, s, r) = (step("a"), sleep("s"), step("r"));
    run.feed_all(&journal(vec![succeeded(&step("done"), 1), opened_sleep(&s, 5)])).unwrap();
    let cancelled =
        Fact::Cancelled(Cancelled { reason: Some("ann".to_owned()), until: NOW, rollback: false });
    let fed = run.replay.feed(&Entry { position: Position(4), at: NOW, fact: cancelled }).unwrap();
    let Fed::Cancel { numbers, failure } = fed else { panic!("{fed:?}") };
    assert_eq!(numbers, [2, 3, 4], "those without an outcome, in the order of their calls");
    assert_eq!((failure.kind, failure.permanent), (FailureKind::Cancelled, true));
    assert!(failure.message.contains("ann"), "{}", failure.message);
    for number in numbers {
        assert!(run.replay.is_open(number));
        run.replay.cancelled_at(number, Position(4));
    }
    let late = [succeeded(&a, 1), fired(&s), opened_remote(&r), succeeded(&r, 1)];
    for (position, fact) in (5..).zip(late) {
        let fed = run.replay.feed(&Entry { position: Position(position), at: NOW, fact }).unwrap();
        assert_eq!(fed, Fed::Nothing);
    }
    assert_eq!(run.replay.next_steps().unwrap(), [], "nothing of them begins");
}
