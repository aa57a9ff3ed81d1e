//! Proves what a cancel does to an instance (rule P30): one entry, nothing left of what was open, a deadline. Not: what the body
//! makes of it; see the worker's rules and `replay.rs`.

mod support;

use everstep_engine::{Answer, Status, StatusWord, What};
use everstep_protocol::{
    Millis, Policy,
    journal::{End, Fact},
    message::{OpenWait, Taken, Then},
};
use support::*;

fn cancel(id: &str) -> What {
    What::Cancel {
        operation: id.to_owned(),
        reason: Some("ann".to_owned()),
        within: Millis(100),
        rollback: false,
    }
}

fn busy(then: Then) -> Store {
    let mut store = Store::held();
    store.report(|report| {
        let img = OpenWait::Remote(remote(Policy::default()));
        report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(9))), open(&step("img"), img)];
        report.then = then;
    });
    store.tell(What::StepClaim { session: S2, call: step("img").hash() });
    store
}

#[test]
fn p30_a_cancel_is_one_entry_and_ends_what_is_open() {
    for then in [Then::Continue, Then::Suspend, Then::Park(parked())] {
        let mut store = busy(then.clone());
        let out = store.tell(cancel("c"));
        assert_eq!((out.answer(), out.entries()), (Answer::Done, vec!["cancelled"]), "{then:?}");
        assert_eq!(store.head().waits, 0);
        assert!(store.tables.waits.is_empty() && store.tables.remotes.is_empty());
        let Fact::Cancelled(cancelled) = &out.writes.journal[0].entry.fact else { panic!() };
        assert_eq!(cancelled.until, store.now.plus(Millis(100)));
        let late = step_reported(S2, &step("img"), 1, ok());
        assert_eq!(store.tell(late).entries(), Vec::<&str>::new(), "nobody waits for it");
    }
}

#[test]
fn p30_a_second_cancel_changes_nothing() {
    let mut store = busy(Then::Suspend);
    store.tell(cancel("c"));
    store.pass(50);
    let out = store.tell(cancel("d"));
    assert_eq!((out.answer(), out.entries()), (Answer::Nothing, vec![]));
    store.pass(50);
    assert_eq!(store.tell(What::Overdue).answer(), Answer::Done, "the first deadline counts");
}

#[test]
fn p30_what_a_report_under_way_opens_was_open_at_the_cancel() {
    let mut store = Store::held();
    let (session, late) = store.next_report(|report| {
        let img = OpenWait::Remote(remote(Policy::default()));
        report.opened = vec![open(&step("img"), img), open(&sleep("s"), OpenWait::Sleep(Millis(9)))];
        report.results = vec![end(&step("a"), 1, failed(Some(9)))];
        report.then = Then::Suspend;
    });
    let out = store.batch(&[on(uid(1), cancel("c")), on(uid(1), reported(session, late))]);
    assert_eq!(out.taken(), [Taken::Kept], "the holder has yet to see the cancel");
    assert!(!out.sent().contains(&"offer step"), "nothing begins for a call that has ended");
    assert_eq!(store.head().waits, 0);
    // What it calls having seen the cancel works as always.
    store.report(|report| {
        report.opened = vec![open(&sleep("clean up"), OpenWait::Sleep(Millis(9)))];
        report.then = Then::Suspend;
    });
    assert_eq!((store.head().waits, store.status()), (1, StatusWord::Waiting));
}

#[test]
fn p30_a_wait_that_was_open_at_the_cancel_takes_no_event() {
    let mut store = Store::held();
    store.tell(What::Event(sent("e-1", "approved", 1)));
    let (session, late) = store.next_report(|report| {
        report.opened = vec![awaits(&event("approved", 1), &["approved"], 1_000)];
        report.then = Then::Suspend;
    });
    let out = store.batch(&[on(uid(1), cancel("c")), on(uid(1), reported(session, late))]);
    assert_eq!(out.taken(), [Taken::Kept]);
    assert_eq!((store.head().unread, store.words()), (1, vec!["started", "cancelled", "opened"]));
}

#[test]
fn p30_an_end_with_the_cancel_is_cancelled_and_with_a_value_complete() {
    let ends = [
        (End::Cancelled { reason: Some("ann".to_owned()) }, Status::Cancelled, "cancelled"),
        (End::Complete(json("1")), Status::Complete, "complete"),
        (End::Errored(error("x")), Status::Errored, "errored"),
    ];
    for (end, status, word) in ends {
        let mut store = busy(Then::Continue);
        store.tell(cancel("c"));
        let out = store.report(|report| report.then = Then::End(end));
        assert_eq!(store.head().status, status);
        assert_eq!(out.writes.outbox[0].routing_key(), format!("default.fulfil.{word}"));
        store.pass(1_000);
        assert_eq!(store.tell(What::Overdue).answer(), Answer::Nothing);
    }
}

#[test]
fn p30_at_the_deadline_it_is_terminated() {
    for then in [Then::Continue, Then::Suspend, Then::Park(parked())] {
        let mut store = busy(then);
        store.tell(cancel("c"));
        store.pass(99);
        assert_eq!(store.tell(What::Overdue).answer(), Answer::Nothing);
        store.pass(1);
        assert_eq!(store.tell(What::Overdue).answer(), Answer::Done);
        assert_eq!(store.head().status, Status::Terminated);
    }
}

#[test]
fn p30_a_cancel_ends_a_pause() {
    let mut store = busy(Then::Continue);
    store.tell(What::Pause { operation: "p".to_owned() });
    let out = store.tell(cancel("c"));
    assert_eq!((out.sent(), store.status()), (vec!["go on", "push", "step fence"], StatusWord::Running));
    let mut store = busy(Then::Suspend);
    store.tell(What::Pause { operation: "p".to_owned() });
    let out = store.tell(cancel("c"));
    assert_eq!((out.sent(), store.status()), (vec!["offer", "step fence"], StatusWord::Queued));
}
