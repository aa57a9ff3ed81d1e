//! Proves what a journal says of the waits that are open (rule W42), by comparing it with the rows that decisions have written, in every
//! kind of wait. Not: that each breach is found and mended; see the store's conformance.

mod support;

use everstep_engine::{
    Answer, What,
    breach::{Breach, Calls},
    rows::Subject,
};
use everstep_protocol::{
    Call, CallKind, Millis, Policy, Run,
    journal::Fact,
    message::{Open, OpenWait, Then},
};
use support::*;

/// What the journal of instance 1 has open.
fn calls(store: &Store) -> Calls {
    let mut calls = Calls::of(Run(1));
    store.tables.journal[&uid(1)].iter().for_each(|entry| calls.read(entry));
    calls
}

/// Takes these waits away, and has them mended.
fn loses(store: &mut Store, lost: &[&Call]) -> Answer {
    for call in lost {
        store.tables.waits.remove(&(uid(1), call.hash()));
        store.tables.awaited.retain(|_, waits| *waits != call.hash());
    }
    let calls = calls(store);
    store.batch(&[on(uid(1), What::Breach(Breach::WaitsMiscounted(calls)))]).answer()
}

fn opened(opens: Vec<Open>) -> Store {
    let mut store = Store::held();
    store.report(|report| {
        report.opened = opens;
        report.then = Then::Suspend;
    });
    store
}

#[test]
fn w42_a_journal_says_which_waits_are_open() {
    let (s, paid, retried) = (sleep("s"), event("paid", 1), step("retried"));
    let mut store = Store::held();
    store.report(|report| {
        report.results = vec![end(&retried, 1, failed(Some(50)))];
        report.opened = vec![open(&s, OpenWait::Sleep(Millis(90))), awaits(&paid, &["paid", "void"], 1_000)];
        report.then = Then::Suspend;
    });
    let before = store.tables.clone();
    assert_eq!(loses(&mut store, &[&s, &paid, &retried]), Answer::Done);
    assert_eq!(store.tables, before, "all rows are as they were");
    // What is over is not opened again.
    store.tell(What::Event(sent("e-1", "paid", 1)));
    store.pass(60);
    store.tell(What::Due { call: retried.hash() });
    let before = store.tables.clone();
    assert_eq!(loses(&mut store, &[&s]), Answer::Done);
    assert_eq!(store.tables.waits, before.waits);
    assert_eq!(store.head().waits, 1);
}

#[test]
fn w42_what_a_cancel_has_ended_is_not_opened_again() {
    let mut store = opened(vec![open(&sleep("s"), OpenWait::Sleep(Millis(90)))]);
    let operation = "c".to_owned();
    store.tell(What::Cancel { operation, reason: None, within: Millis(1_000), rollback: false });
    assert_eq!(loses(&mut store, &[]), Answer::Nothing);
    // Nothing holds it: with no wait it is made runnable.
    store.tables.ready.remove(&(uid(1), Subject::INSTANCE));
    assert_eq!(loses(&mut store, &[]), Answer::Done);
    assert!(store.is_ready() && store.head().waits == 0);
}

#[test]
fn w42_what_has_rows_of_its_own_asks_a_person_once() {
    let img = step("img");
    for (call, wait) in [
        (img.clone(), OpenWait::Remote(remote(Policy::default()))),
        (child_call("c"), OpenWait::Child(child("c-1"))),
        (call(CallKind::Instance, "fulfil/x", 1), OpenWait::Instance(other("x"))),
    ] {
        let mut store = opened(vec![open(&call, wait)]);
        store.tables.remotes.clear();
        store.tables.ready.clear();
        assert_eq!(loses(&mut store, &[&call]), Answer::Parked, "{call}");
        let why = &store.tables.parked[&uid(1)];
        assert!(why.message.contains(&call.to_string()), "{why:?}");
        assert_eq!(loses(&mut store, &[]), Answer::Nothing, "{call}: it is asked once");
        assert!(matches!(
            store.tables.journal[&uid(1)].last().map(|entry| &entry.fact),
            Some(Fact::Parked(_))
        ));
    }
}

#[test]
fn w42_nothing_is_mended_that_has_moved_on() {
    let s = sleep("s");
    let mut store = opened(vec![open(&s, OpenWait::Sleep(Millis(90)))]);
    store.tables.waits.clear();
    let early = calls(&store);
    store.tell(What::Terminate { operation: "t".to_owned(), reason: None });
    let what = |calls: &Calls| on(uid(1), What::Breach(Breach::Idle(calls.clone())));
    assert_eq!(store.batch(&[what(&early)]).answer(), Answer::Nothing, "it has ended");
    // In a batch that changes the waits itself, what was counted before counts no more.
    let mut store = Store::held();
    let (session, report) = store.next_report(|report| {
        report.opened = vec![open(&s, OpenWait::Sleep(Millis(90)))];
        report.then = Then::Suspend;
    });
    let now = calls(&store);
    let out = store.batch(&[on(uid(1), reported(session, report)), what(&now)]);
    assert_eq!(out.answers(), [Answer::Taken, Answer::Nothing]);
}
