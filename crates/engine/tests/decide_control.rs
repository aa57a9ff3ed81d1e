//! Proves what people may do in every status: terminate (rule P30), retry (P41), and that an operation repeated gets its
//! first answer (W4). Not: who may do it.

mod support;

use everstep_engine::{Answer, Effect, Status, What};
use everstep_protocol::{
    Epoch, Millis, Policy,
    journal::{End, Fact},
    message::{AttemptOutcome, CoordinatorItem, FenceReason, OpenWait, Then},
};
use support::*;

fn terminate(operation: &str) -> What {
    What::Terminate { operation: operation.to_owned(), reason: Some("ann: no longer wanted".to_owned()) }
}

fn retry(operation: &str) -> What {
    What::Retry { operation: operation.to_owned() }
}

/// Instance 1 in every open state, with a sleep and a remote step where it can have them.
fn open_states() -> Vec<Store> {
    let with_waits = |then: Then| {
        let mut store = Store::held();
        store.report(|report| {
            let remote = OpenWait::Remote(remote(Policy::default()));
            report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(9))), open(&step("img"), remote)];
        });
        store.tell(What::StepClaim { session: S2, call: step("img").hash() });
        store.report(|report| report.then = then);
        store
    };
    let mut ready = with_waits(Then::Continue);
    ready.tell(What::GiveBack { session: S1, epoch: Epoch(1) });
    vec![
        Store::started(),
        Store::held(),
        with_waits(Then::Continue),
        ready,
        with_waits(Then::Suspend),
        with_waits(Then::Park(parked())),
    ]
}

#[test]
fn p30_terminate_ends_from_every_open_state() {
    for mut store in open_states() {
        let lease = store.lease();
        let out = store.tell(terminate("t"));
        assert_eq!((out.answer(), out.entries(), store.state()), (Answer::Done, vec!["ended"], "ended"));
        assert_eq!(store.head().status, Status::Terminated);
        assert_eq!(store.head().ended_at, Some(store.now));
        let fences: Vec<_> = out
            .effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Item(session, CoordinatorItem::Fence { epoch, why, .. }) => {
                    Some((*session, *epoch, *why))
                }
                _ => None,
            })
            .collect();
        let expected: Vec<_> =
            lease.iter().map(|lease| (lease.session, lease.epoch, FenceReason::Terminated)).collect();
        assert_eq!(fences, expected, "the holder gets the cancel signal");
        let Fact::Ended(End::Terminated { reason: Some(reason) }) = &out.writes.journal[0].entry.fact else {
            panic!()
        };
        assert_eq!(reason, "ann: no longer wanted");
        assert_eq!(out.writes.outbox[0].routing_key(), "default.fulfil.terminated");
    }
}

#[test]
fn p30_a_second_terminate_is_refused_with_the_status() {
    for mut store in open_states() {
        store.tell(terminate("t"));
        let out = store.tell(terminate("u"));
        assert_eq!(out.answer(), Answer::Refused(Status::Terminated));
        assert!(out.entries().is_empty() && out.effects.is_empty());
        let ended = store.head().ended_at;
        store.pass(1);
        store.tell(terminate("v"));
        assert_eq!(store.head().ended_at, ended);
    }
}

#[test]
fn p30_terminate_of_a_finished_instance_names_how_it_ended() {
    let ends = [(End::Complete(json("1")), Status::Complete), (End::Errored(error("x")), Status::Errored)];
    for (end, status) in ends {
        let mut store = Store::held();
        store.report(|report| report.then = Then::End(end));
        assert_eq!(store.tell(terminate("t")).answer(), Answer::Refused(status));
        assert_eq!(store.tell(retry("r")).answer(), Answer::Refused(status));
    }
}

#[test]
fn p30_late_reports_are_refused_with_terminated() {
    let mut store = Store::held();
    let (_, late) = store.next_report(|report| report.results = vec![end(&step("a"), 1, ok())]);
    let out = store.batch(&[on(uid(1), terminate("t")), on(uid(1), reported(S1, late.clone()))]);
    assert_eq!(out.answers(), [Answer::Done, Answer::Fenced]);
    let out = store.tell(reported(S1, late));
    let [Effect::Item(S1, CoordinatorItem::Fence { why: FenceReason::Terminated, .. })] = &out.effects[..]
    else {
        panic!("{:?}", out.effects)
    };
    assert_eq!(store.words(), ["started", "ended"]);
}

#[test]
fn p30_terminate_in_one_batch_with_what_made_it_runnable() {
    let mut store = Store::held();
    let out = store.batch(&[on(uid(1), lease_ended(S1, true)), on(uid(1), terminate("t"))]);
    assert_eq!((out.answers(), store.state()), (vec![Answer::Done, Answer::Done], "ended"));
    assert!(out.sent().is_empty(), "nothing that has ended is offered");
    let mut store = Store::started();
    store.batch(&[on(uid(1), What::Claim { session: S1, have: None }), on(uid(1), terminate("t"))]);
    assert_eq!(store.state(), "ended");
}

#[test]
fn w04_an_operation_repeated_gets_its_first_answer() {
    let mut store = Store::held();
    assert_eq!(store.tell(retry("r")).answer(), Answer::NotParked);
    store.report(|report| report.then = Then::Park(parked()));
    assert_eq!(store.tell(retry("r")).answer(), Answer::NotParked, "even where it could be done now");
    assert_eq!(store.tell(retry("s")).answer(), Answer::Done);
    assert_eq!(store.tell(retry("s")).answer(), Answer::Done);
    assert_eq!(store.words(), ["started", "parked", "retried"]);
    assert_eq!(store.tell(terminate("t")).answer(), Answer::Done);
    let again = store.tell(terminate("t"));
    assert_eq!(again.answer(), Answer::Done);
    assert!(again.writes.is_empty() && again.effects.is_empty());
    assert_eq!(store.tell(retry("s")).answer(), Answer::Done);
}

#[test]
fn w04_an_operation_twice_in_one_batch_is_done_once() {
    let mut store = Store::held();
    let out =
        store.batch(&[on(uid(1), terminate("t")), on(uid(1), terminate("t")), on(uid(1), terminate("u"))]);
    assert_eq!(out.answers(), [Answer::Done, Answer::Done, Answer::Refused(Status::Terminated)]);
    assert_eq!(out.writes.operations.len(), 2);
}

#[test]
fn p41_retry_lets_a_parked_instance_go_on() {
    let mut store = Store::held();
    store.report(|report| report.then = Then::Park(parked()));
    assert_eq!(store.tables.parked[&uid(1)], parked());
    assert_eq!(
        store.tell(What::Claim { session: S2, have: None }).answer(),
        Answer::NotGranted,
        "nothing else moves it"
    );
    let out = store.tell(retry("r"));
    assert_eq!((out.entries(), out.sent(), store.state()), (vec!["retried"], vec!["offer"], "ready"));
    assert_eq!(store.tell(What::Claim { session: S2, have: None }).answer(), Answer::Granted);
}

#[test]
fn p41_only_a_parked_instance_is_retried() {
    for mut store in open_states() {
        let before = store.state();
        let out = store.tell(retry("r"));
        let expected = if before == "parked" { Answer::Done } else { Answer::NotParked };
        assert_eq!(out.answer(), expected);
        assert_eq!(out.entries().len(), usize::from(before == "parked"));
    }
}

#[test]
fn p41_what_comes_while_it_is_parked_is_kept_for_later() {
    let mut store = Store::held();
    store.report(|report| {
        report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(9)))];
        report.then = Then::Park(parked());
    });
    store.pass(9);
    let out = store.tell(What::Due { call: sleep("s").hash() });
    assert_eq!((out.entries(), out.sent(), store.state()), (vec!["fired"], vec![], "parked"));
    store.tell(retry("r"));
    assert_eq!(store.state(), "ready");
}

#[test]
fn p04_a_report_that_goes_far_past_the_limit_of_the_journal_is_parked() {
    let output = |bytes: usize| AttemptOutcome::Succeeded(json(&format!("\"{}\"", "x".repeat(bytes - 2))));
    for (bytes, taken) in [((10 << 20) - 128, true), ((10 << 20) - 127, false)] {
        let mut store = Store::held();
        store.rules.limits.output_bytes = 1 << 30;
        store.rules.limits.journal_bytes = store.head().journal_bytes;
        let out = store.report(|report| report.results = vec![end(&step("a"), 1, output(bytes))]);
        if taken {
            assert_eq!((out.answer(), store.state()), (Answer::Taken, "held"));
            continue;
        }
        assert_eq!((out.answer(), out.entries(), store.state()), (Answer::Parked, vec!["parked"], "parked"));
        assert_eq!(out.sent(), ["fence"]);
        let parked = &store.tables.parked[&uid(1)];
        assert!(parked.message.contains("the limit is"), "{}", parked.message);
    }
}
