//! Proves what is peculiar to batches: held heads (rule W19), a panicking decision (W20), order and one write a row (W21),
//! one row for a step that succeeds at once (W24). Not: equality with single batches; see `batch_property.rs`.

mod support;

use everstep_engine::{Answer, Effect, What, batch::Verdict};
use everstep_protocol::{
    Epoch, InstanceUid, SessionId,
    journal::{Fact, ParkCode},
    message::{AttemptOutcome, CoordinatorItem, FenceReason},
};
use support::*;

#[test]
fn w19_an_input_whose_head_is_locked_elsewhere_is_held() {
    let mut store = Store::held();
    store.elsewhere.insert(uid(1));
    let (_, report) = store.next_report(|report| report.results = vec![end(&step("a"), 1, ok())]);
    let out = store.batch(&[
        on(uid(1), reported(S1, report.clone())),
        on(uid(1), What::Claim { session: S1, have: None }),
    ]);
    assert_eq!(out.verdicts, [Verdict::Held, Verdict::Held]);
    assert!(out.writes.is_empty() && out.effects.is_empty());
    store.elsewhere.clear();
    assert_eq!(store.tell(reported(S1, report)).answer(), Answer::Taken);
}

#[test]
fn w19_one_held_head_does_not_hold_the_others() {
    let mut store = Store::started();
    store.start(start(2, "j", 1));
    store.elsewhere.insert(uid(1));
    let claim = What::Claim { session: S1, have: None };
    let out = store.batch(&[on(uid(1), claim.clone()), on(uid(2), claim)]);
    assert_eq!(out.verdicts, [Verdict::Held, Verdict::Decided(Answer::Granted)]);
}

#[test]
fn w19_an_instance_that_does_not_exist_is_not_found() {
    let call = step("img");
    let cases = [
        (What::Claim { session: S1, have: None }, vec!["not granted"]),
        (reported(S1, report(uid(9), 3, 1, 1)), vec!["fence"]),
        (What::StepClaim { session: S1, call: call.hash() }, vec!["step fence"]),
        (step_reported(S1, &call, 1, ok()), vec!["step fence"]),
        (What::GiveBack { session: S1, epoch: Epoch(1) }, vec![]),
        (What::Due { call: call.hash() }, vec![]),
        (lease_ended(S1, true), vec![]),
        (step_ended(S1, &call, true), vec![]),
        (What::Terminate { operation: "o".to_owned(), reason: None }, vec![]),
        (What::Unwritable { message: String::new() }, vec![]),
        (What::Retry { operation: "o".to_owned() }, vec![]),
        (What::Pause { operation: "o".to_owned() }, vec![]),
        (What::Resume { operation: "o".to_owned() }, vec![]),
        (
            What::Cancel {
                operation: "o".to_owned(),
                reason: None,
                within: everstep_protocol::Millis(1),
                rollback: false,
            },
            vec![],
        ),
        (What::Overdue, vec![]),
        (What::Restart { operation: "o".to_owned(), prepared: None }, vec![]),
        (What::Delete { operation: "o".to_owned(), terminate: true }, vec![]),
        (What::Expire, vec![]),
    ];
    for (what, sent) in cases {
        let mut store = Store::default();
        let out = store.batch(&[on(uid(9), what)]);
        assert_eq!((out.answer(), out.sent()), (Answer::NotFound, sent));
        assert!(out.writes.is_empty());
    }
}

#[test]
fn w19_a_report_of_an_unknown_instance_is_told_so() {
    let mut store = Store::default();
    let out = store.batch(&[on(uid(9), reported(S1, report(uid(9), 3, 1, 1)))]);
    let [Effect::Item(S1, CoordinatorItem::Fence { epoch: Epoch(3), why: FenceReason::Unknown, .. })] =
        &out.effects[..]
    else {
        panic!("{:?}", out.effects)
    };
}

fn fences(out: &Out) -> Vec<(SessionId, InstanceUid, Epoch, FenceReason)> {
    let fence = |effect: &Effect| match effect {
        Effect::Item(session, CoordinatorItem::Fence { instance, epoch, why }) => {
            Some((*session, *instance, *epoch, *why))
        }
        _ => None,
    };
    out.effects.iter().filter_map(fence).collect()
}

/// The count of reports is at its end, so that the decision overflows: a row that only a bug can write.
#[test]
#[cfg(debug_assertions)]
fn w20_a_panicking_decision_parks_its_instance_and_no_other() {
    let mut store = Store::held();
    store.start(start(2, "j", 1));
    store.tables.heads.get_mut(&uid(1)).unwrap().reports = u64::MAX;
    let out = store.batch(&[
        on(uid(2), What::Claim { session: S2, have: None }),
        on(uid(1), reported(S1, report(uid(1), 1, 1, 1))),
        on(uid(2), What::GiveBack { session: S2, epoch: Epoch(1) }),
    ]);
    assert_eq!(out.answers(), [Answer::Granted, Answer::Parked, Answer::Done]);
    assert_eq!((store.state(), store.tables.parked[&uid(1)].code), ("parked", ParkCode::Broken));
    assert_eq!(fences(&out), [(S1, uid(1), Epoch(1), FenceReason::Parked)], "the holder is told at once");
    // The lease is over; what the question is about is not looked up for a late report (rule W21).
    let late = store.tell(reported(S1, report(uid(1), 1, 2, 1)));
    assert_eq!(late.answer(), Answer::Fenced);
    assert_eq!(fences(&late), [(S1, uid(1), Epoch(1), FenceReason::Stale)]);
}

/// What breaks a decision comes again, as a letter does every second: the question is asked once.
#[test]
#[cfg(debug_assertions)]
fn w20_a_decision_that_breaks_again_and_again_writes_one_entry() {
    let mut store = Store::held();
    let good = store.head().clone();
    let answers: Vec<_> = (0..3)
        .map(|id| {
            store.tables.heads.get_mut(&uid(1)).unwrap().events = u64::MAX;
            let out = store.decide(&[on(uid(1), What::Event(sent(&id.to_string(), "a", 1)))]);
            store.tables.heads.get_mut(&uid(1)).unwrap().events = good.events;
            store.check();
            (out.answer(), out.entries().len())
        })
        .collect();
    assert_eq!(answers, [(Answer::Parked, 1), (Answer::Nothing, 0), (Answer::Nothing, 0)]);
}

#[test]
fn w20_rows_that_the_store_refuses_park_the_instance() {
    let mut store = Store::held();
    let out = store.tell(What::Unwritable { message: "bad row".to_owned() });
    assert_eq!((out.answer(), out.entries(), out.sent()), (Answer::Parked, vec!["parked"], vec!["fence"]));
    assert!(store.tables.parked[&uid(1)].message.contains("bad row"));
    assert_eq!(store.tell(What::Unwritable { message: "again".to_owned() }).answer(), Answer::Nothing);
}

#[test]
fn w21_inputs_of_one_head_are_decided_in_order() {
    use Answer::{Done, Fenced, Granted, NotGranted, Taken};
    let mut store = Store::started();
    let (claim, other) = (What::Claim { session: S1, have: None }, What::Claim { session: S2, have: None });
    let mut first = report(uid(1), 1, 1, 1);
    first.results = vec![end(&step("a"), 1, ok())];
    let out = store.batch(&[
        on(uid(1), other.clone()),
        on(uid(1), claim),
        on(uid(1), What::GiveBack { session: S2, epoch: Epoch(1) }),
        on(uid(1), What::Claim { session: S3, have: None }),
        on(uid(1), reported(S3, report(uid(1), 2, 1, 1))),
        on(uid(1), reported(S2, first)),
        on(uid(1), lease_ended(S3, true)),
        on(uid(1), other),
    ]);
    assert_eq!(out.answers(), [Granted, NotGranted, Done, Granted, Taken, Fenced, Done, Granted]);
    assert_eq!((out.writes.heads.len(), out.writes.leases.len()), (1, 1));
    assert_eq!(store.lease().map(|lease| (lease.session, lease.epoch)), Some((S2, Epoch(3))));
}

#[test]
fn w21_a_hot_instance_costs_one_head_and_one_row_each() {
    let mut store = Store::held();
    let inputs: Vec<_> = (0..50)
        .map(|number| {
            let mut report = report(uid(1), 1, number + 1, 1);
            report.results = vec![end(&step(&format!("s{number}")), 1, ok())];
            on(uid(1), reported(S1, report))
        })
        .collect();
    let out = store.batch(&inputs);
    assert_eq!((out.writes.heads.len(), out.writes.journal.len(), store.head().steps), (1, 50, 50));
}

#[test]
fn w24_a_step_that_succeeds_at_once_is_one_row() {
    let mut store = Store::held();
    let out = store.report(|report| report.results = vec![end(&step("a"), 1, ok())]);
    assert_eq!((out.entries(), out.sent()), (vec!["attempted"], vec!["ack"]));
    let rows = &out.writes;
    assert_eq!(
        (rows.waits.len(), rows.leases.len(), rows.lease_deletes.len(), rows.ready.len(), rows.heads.len()),
        (0, 0, 0, 0, 1)
    );
    let Fact::Attempted(attempted) = &rows.journal[0].entry.fact else { panic!() };
    assert_eq!(attempted.started_at, store.now.minus(everstep_protocol::Millis(5)));
    assert_eq!((attempted.key, attempted.input, attempted.build.as_str()), (key(1), fingerprint(1), "b1"));
}

#[test]
fn p04_an_output_that_is_too_large_is_recorded_as_a_permanent_failure() {
    let mut store = Store::held();
    store.rules.limits.output_bytes = 4;
    let outcomes = ["1234", "12345"].map(|text| AttemptOutcome::Succeeded(json(text)));
    let mut results: Vec<_> = outcomes.into_iter().map(|outcome| end(&step("a"), 1, outcome)).collect();
    results[1].call = step("b");
    let out = store.report(|report| report.results = results);
    let kinds: Vec<_> = out.writes.journal.iter().map(|row| format!("{:?}", row.entry.fact)).collect();
    assert!(kinds[0].contains("Succeeded") && kinds[1].contains("TooLarge"), "{kinds:?}");
    assert_eq!(store.head().steps, 2);
}
