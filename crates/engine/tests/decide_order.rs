//! Proves that positions are dense and epochs only grow, with one input a batch and with many (rules W1, W2), and that a
//! report is taken once and in order. Not: that a store keeps what it is told; see its conformance suite.

mod support;

use everstep_engine::{Answer, Effect, What};
use everstep_protocol::{
    Epoch, Position,
    message::{CoordinatorItem, FenceReason, OpenWait, Taken, Then},
};
use support::*;

fn positions(store: &Store) -> Vec<u64> {
    store.tables.journal[&uid(1)].iter().map(|entry| entry.position.0).collect()
}

#[test]
fn w01_entries_are_dense_over_many_decisions() {
    let mut store = Store::held();
    store.report(|report| {
        report.results = vec![end(&step("a"), 1, ok()), end(&step("b"), 1, failed(Some(9)))];
    });
    store.report(|report| {
        report.opened = vec![open(&sleep("s"), OpenWait::Sleep(everstep_protocol::Millis(0)))];
    });
    store.tell(lease_ended(S1, true));
    store.tell(What::Terminate { operation: "o".to_owned(), reason: None });
    assert_eq!(positions(&store), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(store.words()[1..], ["attempted", "attempted", "opened", "fired", "lost", "ended"]);
}

#[test]
fn w01_inputs_of_one_head_in_one_batch_follow_each_other() {
    let mut store = Store::held();
    store.report(|report| {
        report.opened = vec![open(&sleep("s"), OpenWait::Sleep(everstep_protocol::Millis(10)))];
    });
    store.pass(10);
    let (_, first) = store.next_report(|report| report.results = vec![end(&step("a"), 1, ok())]);
    let mut second = report(uid(1), 1, first.number + 1, first.seen.0);
    second.results = vec![end(&step("b"), 1, ok())];
    let out = store.batch(&[
        on(uid(1), reported(S1, first)),
        on(uid(1), What::Due { call: sleep("s").hash() }),
        on(uid(1), reported(S1, second)),
    ]);
    assert_eq!(out.entries(), ["attempted", "fired", "attempted"]);
    assert_eq!(positions(&store), [1, 2, 3, 4, 5]);
    let after: Vec<_> = out
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Item(_, CoordinatorItem::Ack(ack)) => Some(ack.after.0),
            _ => None,
        })
        .collect();
    assert_eq!(after, [2, 4], "each ack bears the position before its own entries");
    assert_eq!(out.writes.heads.len(), 1, "a hot instance costs one update a batch (W21)");
}

#[test]
fn w02_every_grant_bears_a_higher_epoch() {
    let mut store = Store::held();
    let mut epochs = vec![store.head().epoch.0];
    for (session, give) in [(S2, true), (S1, false), (S3, true), (S3, false)] {
        let held = store.lease().unwrap();
        store.tell(if give {
            What::GiveBack { session: held.session, epoch: held.epoch }
        } else {
            lease_ended(held.session, false)
        });
        store.tell(What::Claim { session, have: None });
        epochs.push(store.lease().unwrap().epoch.0);
    }
    store.report(|report| report.then = Then::Park(parked()));
    store.tell(What::Retry { operation: "r".to_owned() });
    store.tell(What::Claim { session: S1, have: None });
    epochs.push(store.lease().unwrap().epoch.0);
    assert_eq!(epochs, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn w02_an_older_epoch_is_fenced() {
    let mut store = Store::held();
    let (_, late) = store.next_report(|report| report.results = vec![end(&step("a"), 1, ok())]);
    store.tell(lease_ended(S1, true));
    store.tell(What::Claim { session: S1, have: None });
    let out = store.tell(reported(S1, late));
    assert_eq!(out.answer(), Answer::Fenced);
    assert!(out.writes.is_empty());
    let [Effect::Item(S1, CoordinatorItem::Fence { epoch: Epoch(1), why: FenceReason::Stale, .. })] =
        &out.effects[..]
    else {
        panic!("{:?}", out.effects)
    };
}

#[test]
fn w02_the_same_epoch_of_another_session_is_fenced() {
    let mut store = Store::held();
    let (_, report) = store.next_report(|report| report.then = Then::Suspend);
    let out = store.tell(reported(S2, report));
    assert_eq!((out.answer(), out.sent()), (Answer::Fenced, vec!["fence"]));
    assert!(store.lease().is_some());
}

#[test]
fn w02_a_newer_epoch_is_set_aside_and_never_answered() {
    for ended in [false, true] {
        let mut store = Store::held();
        if ended {
            store.tell(What::Terminate { operation: "o".to_owned(), reason: None });
        }
        for session in [S1, S2] {
            let out = store.tell(reported(session, report(uid(1), 2, 1, 1)));
            assert_eq!((out.answer(), out.sent()), (Answer::FromTheFuture, vec![]));
            assert!(out.writes.is_empty());
        }
    }
}

#[test]
fn w02_a_remote_step_from_the_future_is_set_aside() {
    let mut store = Store::held();
    let call = step("img");
    store.report(|report| {
        report.opened = vec![open(&call, OpenWait::Remote(remote(everstep_protocol::Policy::default())))];
    });
    store.tell(What::StepClaim { session: S2, call: call.hash() });
    let out = store.tell(step_reported(S2, &call, 2, ok()));
    assert_eq!((out.answer(), out.sent()), (Answer::FromTheFuture, vec![]));
    let given_back = What::StepLeaseEnded {
        session: S2,
        build: build(),
        call: call.hash(),
        epoch: Some(Epoch(2)),
        counts: false,
        unstarted: true,
        progress: None,
    };
    let out = store.tell(given_back);
    assert_eq!((out.answer(), out.sent()), (Answer::FromTheFuture, vec![]));
    assert!(out.writes.is_empty());
}

#[test]
fn w02_a_lease_from_the_future_that_is_given_back_is_set_aside() {
    let mut store = Store::held();
    for session in [S1, S2] {
        let out = store.tell(What::GiveBack { session, epoch: Epoch(2) });
        assert_eq!((out.answer(), out.sent()), (Answer::FromTheFuture, vec![]));
        assert!(out.writes.is_empty());
    }
}

#[test]
fn w04_a_report_is_taken_once_and_in_order() {
    let mut store = Store::held();
    let (_, first) = store.next_report(|report| report.results = vec![end(&step("a"), 1, ok())]);
    let early = support::report(uid(1), 1, 2, 1);
    let out = store.tell(reported(S1, early));
    assert_eq!((out.answer(), out.taken()), (Answer::Nothing, vec![Taken::OutOfOrder { expected: 1 }]));
    assert_eq!(store.tell(reported(S1, first.clone())).taken(), [Taken::Whole]);
    let out = store.tell(reported(S1, first.clone()));
    assert_eq!((out.answer(), out.taken()), (Answer::Nothing, vec![Taken::Before]));
    assert!(out.writes.is_empty());
    let out = store.batch(&[on(uid(1), reported(S1, first.clone())), on(uid(1), reported(S1, first))]);
    assert_eq!(out.taken(), [Taken::Before, Taken::Before]);
    assert_eq!(store.head().position, Position(2));
}

#[test]
fn w04_a_report_sent_twice_in_one_batch_is_taken_once() {
    let mut store = Store::held();
    let (_, first) = store.next_report(|report| report.results = vec![end(&step("a"), 1, ok())]);
    let out = store.batch(&[on(uid(1), reported(S1, first.clone())), on(uid(1), reported(S1, first))]);
    assert_eq!(out.taken(), [Taken::Whole, Taken::Before]);
}

#[test]
fn w02_reports_are_counted_from_1_in_each_lease() {
    let mut store = Store::held();
    store.report(|report| report.results = vec![end(&step("a"), 1, ok())]);
    assert_eq!(store.head().reports, 1);
    store.tell(What::GiveBack { session: S1, epoch: Epoch(1) });
    store.tell(What::Claim { session: S2, have: None });
    assert_eq!(store.head().reports, 0);
    assert_eq!(
        store.report(|report| report.results = vec![end(&step("b"), 1, ok())]).taken(),
        [Taken::Whole]
    );
}
