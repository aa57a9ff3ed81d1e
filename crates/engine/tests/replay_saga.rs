//! Proves what replay says of compensations and of outputs of earlier runs (rules P39, L4), and what restarts keep of a run that was
//! rolled back (rule P31). Not: that the body makes the calls; see the SDK's rules.

mod support;

use everstep_engine::{
    keep::keep,
    replay::{Asked, Fed, Replay},
    reuse::reuse,
};
use everstep_protocol::{
    BuildName, Call, CallKind, Fingerprint, Position, Timestamp,
    journal::{Attempted, Entry, Fact, Lost, Marks, Outcome, ParkCode, Reusable, Rollback},
};
use support::{S1, build, fingerprint, json, key, script::succeeded, step};

fn entry(position: u64, fact: Fact) -> Entry {
    Entry { position: Position(position), at: Timestamp(7), fact }
}

fn marked(call: &Call, called_after: u64) -> Fact {
    let Fact::Attempted(attempted) = succeeded(call, 1) else { panic!() };
    let marks = Marks { compensated: true, ..Marks::default() };
    Fact::Attempted(Attempted { marks, called_after: Position(called_after), ..attempted })
}

fn undo(call: &Call) -> Call {
    Call { kind: CallKind::Compensation, ..call.clone() }
}

fn started() -> Entry {
    let started = everstep_protocol::journal::Started {
        input: json("1"),
        seed: [7; 32],
        generation: everstep_protocol::Generation(1),
        attributes: Vec::new(),
        hook: None,
        trace: None,
    };
    entry(1, Fact::Started(started))
}

#[test]
fn p39_a_recorded_compensation_that_the_code_does_not_register_is_reported() {
    let mut replay = Replay::new(build(), Position(1));
    replay.made(1, step("a"), Asked::Step(fingerprint(1)));
    replay.feed(&entry(2, marked(&step("a"), 1))).unwrap();
    assert_eq!(replay.next_steps().unwrap(), [], "as long as nothing is rolled back it does not matter");
    let parked = replay.unregistered().expect("it is missing");
    assert_eq!(parked.code, ParkCode::CompensationMissing);
    assert!(parked.message.contains("step \"a\" #1"), "{}", parked.message);
    replay.made(2, Call { kind: CallKind::Rollback, ..step("rollback") }, Asked::Rollback);
    assert_eq!(replay.next_steps().unwrap_err(), parked, "others that are registered do not begin either");
}

#[test]
fn p39_a_registered_compensation_is_not_missing() {
    let mut replay = Replay::new(build(), Position(1));
    replay.registers(&step("a"));
    replay.made(1, step("a"), Asked::Step(fingerprint(1)));
    replay.feed(&entry(2, marked(&step("a"), 1))).unwrap();
    assert_eq!(replay.unregistered(), None);
}

#[test]
fn p38_a_cancel_ends_no_compensation() {
    let mut replay = Replay::new(build(), Position(1));
    replay.made(1, undo(&step("a")), Asked::Step(fingerprint(1)));
    replay.made(2, step("b"), Asked::Step(fingerprint(1)));
    let cancelled =
        everstep_protocol::journal::Cancelled { reason: None, until: Timestamp(9), rollback: true };
    let fed = replay.feed(&entry(2, Fact::Cancelled(cancelled))).unwrap();
    assert!(matches!(fed, Fed::Cancel { numbers, .. } if numbers == [2]));
}

fn reusable(call: &Call, input: Fingerprint) -> Fact {
    let (policy, marks) = (everstep_protocol::Policy::default(), Marks::default());
    Fact::Reusable(Reusable { call: call.clone(), key: key(1), input, policy, marks, output: json("7") })
}

#[test]
fn l04_an_output_of_an_earlier_run_answers_the_same_input_once_and_no_other() {
    let mut run = Replay::new(BuildName::new("other").unwrap(), Position(1));
    run.feed(&entry(2, reusable(&step("a"), fingerprint(1)))).unwrap();
    run.feed(&entry(3, reusable(&step("b"), fingerprint(1)))).unwrap();
    run.made(1, step("a"), Asked::Step(fingerprint(1)));
    run.made(2, step("b"), Asked::Step(fingerprint(2)));
    run.made(3, step("c"), Asked::Remote(fingerprint(1)));
    let next: Vec<String> = run.next_steps().unwrap().iter().map(|next| format!("{next:?}")).collect();
    assert!(next[0].starts_with("Reuse"), "{next:?}");
    assert!(next[1].starts_with("Start"), "an edited input really runs: {next:?}");
    assert!(next[2].starts_with("Open"), "{next:?}");
}

/// The worker died before its report of the reused output was taken: nothing of it ran, so nothing of it was lost.
#[test]
fn l04_a_loss_is_not_charged_to_what_gets_its_output_from_an_earlier_run() {
    let mut run = Replay::new(BuildName::new("other").unwrap(), Position(1));
    run.feed(&entry(2, reusable(&step("a"), fingerprint(1)))).unwrap();
    run.made(1, step("a"), Asked::Step(fingerprint(1)));
    run.made(2, step("b"), Asked::Step(fingerprint(1)));
    let lost = Lost { slots: 1, counts: true, session: S1, progress: Vec::new() };
    run.feed(&entry(3, Fact::Lost(lost))).unwrap();
    let next: Vec<String> = run.next_steps().unwrap().iter().map(|next| format!("{next:?}")).collect();
    assert!(next[0].starts_with("Reuse") && next[1].starts_with("Charge"), "{next:?}");
}

#[test]
fn l04_reuse_takes_over_what_is_complete_and_was_not_compensated() {
    let failed = Outcome::Failed { failure: support::error("no"), retry_at: None };
    let entries = [
        started(),
        entry(2, reusable(&step("earlier"), fingerprint(1))),
        entry(3, marked(&step("undone"), 1)),
        entry(4, succeeded(&step("kept"), 1)),
        entry(5, support::script::attempted(&step("failed"), 1, 1, failed)),
        entry(6, marked(&undo(&step("undone")), 5)),
    ];
    let calls = |entries: Vec<Entry>| -> Vec<String> {
        let of = |entry: &Entry| match &entry.fact {
            Fact::Reusable(reusable) => format!("{} {}", entry.position, reusable.call.name),
            other => format!("{} {}", entry.position, other.word()),
        };
        entries.iter().map(of).collect()
    };
    assert_eq!(calls(reuse(&entries).unwrap()), ["1 started", "2 earlier", "3 kept"]);
    assert_eq!(reuse(&entries[1..]), None);
}

#[test]
fn p31_a_restart_from_a_step_keeps_nothing_that_was_compensated_nor_what_was_called_knowing_it() {
    let (before, undone, after) = (step("before"), step("undone"), step("after"));
    let entries = [
        started(),
        entry(2, marked(&before, 1)),
        entry(3, marked(&undone, 2)),
        entry(4, marked(&after, 3)),
        entry(5, Fact::Rollback(Rollback { reason: None })),
        entry(6, marked(&undo(&undone), 5)),
    ];
    let kept: Vec<&str> = keep(&entries, &after)
        .unwrap()
        .iter()
        .filter_map(|entry| entry.fact.call().map(|call| call.name.as_str()).map(|_| entry.fact.word()))
        .collect();
    assert_eq!(kept, ["attempted"], "the first alone");
    let calls: Vec<Call> =
        keep(&entries, &after).unwrap().iter().filter_map(|entry| entry.fact.call().cloned()).collect();
    assert_eq!(calls, [before]);
}
