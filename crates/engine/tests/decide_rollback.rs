//! Proves what a rollback does to an instance (rules P38, P39): one entry, nothing left of what was open, runnable from any open
//! state, and nothing that asks the body to end while its compensations run. Not: which compensations run, and in which order; see
//! the SDK's rules and those of the test kit.

mod support;

use everstep_engine::{Answer, Status, StatusWord, What};
use everstep_protocol::{
    CallKind, Millis,
    journal::{Compensated, End, Fact, Undone, UndoneEnd},
    message::{OpenWait, Taken, Then},
};
use support::*;

fn rollback(id: &str) -> What {
    What::Rollback { operation: id.to_owned(), reason: Some("ann".to_owned()) }
}

fn cancel(rollback: bool) -> What {
    What::Cancel { operation: "c".to_owned(), reason: None, within: Millis(100), rollback }
}

fn sleeps() -> Store {
    let mut store = Store::held();
    store.report(|report| {
        report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(9)))];
        report.then = Then::Suspend;
    });
    store
}

/// The body has failed, and its holder says so.
fn begins(report: &mut everstep_protocol::message::Report) {
    let wait = OpenWait::Rollback { failure: Some(error("no")), steps: 1 };
    report.opened = vec![open(&call(CallKind::Rollback, "rollback", 1), wait)];
}

#[test]
fn p38_a_rollback_is_one_entry_and_makes_a_sleeping_instance_run() {
    let mut store = sleeps();
    let out = store.tell(rollback("o"));
    assert_eq!((out.answer(), out.entries()), (Answer::Done, vec!["rollback"]));
    assert_eq!((store.status(), store.head().waits), (StatusWord::Queued, 0));
    assert!(store.tables.waits.is_empty(), "it sleeps no more");
    assert_eq!(store.head().status, Status::Open, "it is over only when its compensations are");
    assert_eq!(store.tell(rollback("o")).answer(), Answer::Done, "repeated, it gets its first answer");
    assert_eq!(store.tell(rollback("p")).answer(), Answer::Nothing, "once is enough");
}

#[test]
fn p38_a_parked_and_a_paused_instance_roll_back_too() {
    let mut store = Store::held();
    store.report(|report| report.then = Then::Park(parked()));
    store.tell(rollback("o"));
    assert_eq!((store.status(), store.tables.parked.is_empty()), (StatusWord::Queued, true));
    let mut store = sleeps();
    store.tell(What::Pause { operation: "p".to_owned() });
    store.tell(rollback("o"));
    assert_eq!(store.status(), StatusWord::Queued);
}

#[test]
fn p38_what_a_report_under_way_opens_was_open_at_the_rollback() {
    let mut store = Store::held();
    let (session, late) = store.next_report(|report| {
        report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(9)))];
        report.then = Then::Suspend;
    });
    let out = store.batch(&[on(uid(1), rollback("o")), on(uid(1), reported(session, late))]);
    assert_eq!(out.taken(), [Taken::Kept], "the holder has yet to see the rollback");
    assert_eq!(store.head().waits, 0);
}

#[test]
fn p38_nothing_asks_the_body_to_end_while_its_compensations_run() {
    let mut store = Store::held();
    let out = store.report(begins);
    assert_eq!(out.entries(), ["compensating"]);
    assert!(store.tables.controls[&uid(1)].compensating_at.is_some());
    for what in [cancel(false), cancel(true), rollback("o")] {
        let out = store.tell(what);
        assert_eq!((out.answer(), out.entries()), (Answer::Nothing, vec![]));
    }
    store.tell(What::Pause { operation: "p".to_owned() });
    store.tell(What::Resume { operation: "r".to_owned() });
    assert!(
        store.tables.controls[&uid(1)].compensating_at.is_some(),
        "a pause and a resume change nothing about it"
    );
    // Terminate does not wait for anybody.
    store.tell(What::Terminate { operation: "t".to_owned(), reason: None });
    assert_eq!((store.status(), store.tables.controls.is_empty()), (StatusWord::Terminated, true));
}

#[test]
fn p38_a_deadline_ends_with_the_beginning_of_compensations() {
    let mut store = Store::held();
    store.tell(cancel(true));
    store.report(begins);
    store.pass(100);
    assert_eq!(store.tell(What::Overdue).answer(), Answer::Nothing);
    // Compensations wait for their retries.
    let undo = call(CallKind::Compensation, "a", 1);
    store.report(|report| {
        report.results = vec![end(&undo, 1, failed(Some(9)))];
        report.then = Then::Suspend;
    });
    assert_eq!((store.status(), store.head().waits), (StatusWord::Waiting, 1));
}

#[test]
fn p38_a_cancel_with_a_rollback_that_is_overdue_rolls_back() {
    let mut store = sleeps();
    store.tell(cancel(true));
    store.pass(100);
    let out = store.tell(What::Overdue);
    assert_eq!((out.answer(), out.entries()), (Answer::Done, vec!["rollback"]));
    assert_eq!(store.head().status, Status::Open);
    store.pass(1000);
    assert_eq!(store.tell(What::Overdue).answer(), Answer::Nothing, "a rollback takes as long as it takes");
}

#[test]
fn p39_the_outcome_of_each_compensation_comes_before_the_end_and_counts_as_no_step() {
    let mut store = Store::held();
    store.report(begins);
    let undo = call(CallKind::Compensation, "a", 1);
    let undone = Undone { call: undo.clone(), end: UndoneEnd::Done };
    let out = store.report(|report| {
        report.results = vec![end(&undo, 1, ok())];
        report.compensated = Some(Compensated { steps: vec![undone.clone()], more: 0 });
        report.then = Then::End(End::Errored(error("no")));
    });
    assert_eq!(out.entries(), ["attempted", "compensated", "ended"]);
    let Fact::Compensated(compensated) = &out.writes.journal[1].entry.fact else { panic!() };
    assert_eq!(compensated.steps, [undone]);
    assert_eq!((store.head().status, store.head().steps), (Status::Errored, 0));
    assert!(store.tables.controls.is_empty());
}
