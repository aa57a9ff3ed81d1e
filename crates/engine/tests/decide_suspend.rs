//! Proves when a lease goes on, is released or parks with a suspend (rule W3), when a fold is accepted (W36), and that
//! sleeps of no length are over at once (P18, P20). Not: that workers suspend and fold when they may.

mod support;

use everstep_engine::{Answer, Effect, What};
use everstep_protocol::{
    Millis, Position, Timestamp,
    journal::{End, ParkCode},
    message::{CoordinatorItem, Open, OpenWait, Report, Taken, Then},
};
use support::*;

fn nap(millis: u64) -> Open {
    open(&sleep("nap"), OpenWait::Sleep(Millis(millis)))
}

/// A report of a held instance comes to this: how much is taken, which entries, which state.
fn check(change: impl FnOnce(&mut Report), taken: Taken, entries: &[&str], state: &str) -> Store {
    let mut store = Store::held();
    let out = store.report(change);
    assert_eq!((out.taken(), out.entries(), store.state()), (vec![taken], entries.to_vec(), state));
    store
}

#[test]
fn w03_a_suspend_opens_its_waits_and_lets_go() {
    let store = check(
        |report| {
            report.opened = vec![nap(10)];
            report.then = Then::Suspend;
        },
        Taken::Whole,
        &["opened"],
        "waiting",
    );
    let wait = &store.tables.waits[&(uid(1), sleep("nap").hash())];
    assert_eq!(wait.due_at, Some(NOW.plus(Millis(10))));
}

#[test]
fn w03_a_suspend_after_a_retry_delay_waits_for_it() {
    check(
        |report| {
            report.results = vec![end(&step("a"), 1, failed(Some(10)))];
            report.then = Then::Suspend;
        },
        Taken::Whole,
        &["attempted"],
        "waiting",
    );
}

#[test]
fn w03_a_suspend_with_nothing_to_wait_for_parks() {
    let store = check(|report| report.then = Then::Suspend, Taken::Whole, &["parked"], "parked");
    assert_eq!(store.tables.parked[&uid(1)].code, ParkCode::NothingToWaitFor);
}

#[test]
fn w03_newer_entries_keep_the_lease_and_the_waits() {
    let mut store = Store::held();
    store.report(|report| report.opened = vec![nap(10)]);
    store.pass(10);
    let (_, suspend) = store.next_report(|report| {
        report.opened = vec![open(&sleep("other"), OpenWait::Sleep(Millis(99)))];
        report.then = Then::Suspend;
    });
    assert_eq!(store.tell(What::Due { call: sleep("nap").hash() }).sent(), ["push"]);
    let out = store.tell(reported(S1, suspend));
    assert_eq!((out.answer(), out.taken(), store.state()), (Answer::Taken, vec![Taken::Kept], "held"));
    assert_eq!(store.words()[2..], ["fired", "opened"]);
    let again = store.report(|report| report.then = Then::Suspend);
    assert_eq!((again.taken(), store.state()), (vec![Taken::Whole], "waiting"));
}

#[test]
fn w03_newer_entries_in_the_same_batch_keep_the_lease() {
    let mut store = Store::held();
    store.report(|report| report.opened = vec![nap(10)]);
    store.pass(10);
    let (_, suspend) = store.next_report(|report| report.then = Then::Suspend);
    let out = store
        .batch(&[on(uid(1), What::Due { call: sleep("nap").hash() }), on(uid(1), reported(S1, suspend))]);
    assert_eq!((out.taken(), store.state()), (vec![Taken::Kept], "held"));
}

#[test]
fn w03_a_wake_after_the_suspend_in_the_same_batch_makes_it_ready() {
    let mut store = Store::held();
    store.report(|report| report.opened = vec![nap(10)]);
    store.pass(10);
    let (_, suspend) = store.next_report(|report| report.then = Then::Suspend);
    let out = store
        .batch(&[on(uid(1), reported(S1, suspend)), on(uid(1), What::Due { call: sleep("nap").hash() })]);
    assert_eq!((out.taken(), store.state(), out.sent()), (vec![Taken::Whole], "ready", vec!["ack", "offer"]));
}

#[test]
fn w03_an_outcome_that_the_body_has_not_seen_keeps_the_lease() {
    for outcome in [ok(), failed(None)] {
        check(
            |report| {
                report.results = vec![end(&step("a"), 1, outcome)];
                report.opened = vec![nap(10)];
                report.then = Then::Suspend;
            },
            Taken::Kept,
            &["attempted", "opened"],
            "held",
        );
    }
}

#[test]
fn w03_a_retry_without_delay_keeps_the_lease() {
    let store = check(
        |report| {
            report.results = vec![end(&step("a"), 1, failed(Some(0)))];
            report.then = Then::Suspend;
        },
        Taken::Kept,
        &["attempted"],
        "held",
    );
    assert_eq!(store.head().waits, 0);
}

#[test]
fn p18_a_zero_sleep_is_over_at_once() {
    for wait in [
        OpenWait::Sleep(Millis(0)),
        OpenWait::SleepUntil(NOW),
        OpenWait::SleepUntil(Timestamp(NOW.0 - 1)),
        OpenWait::SleepUntil(Timestamp(0)),
    ] {
        for then in [Then::Continue, Then::Suspend] {
            let taken = if then == Then::Suspend { Taken::Kept } else { Taken::Whole };
            let store = check(
                |report| {
                    report.opened = vec![open(&sleep("nap"), wait.clone())];
                    report.then = then;
                },
                taken,
                &["opened", "fired"],
                "held",
            );
            assert_eq!(store.head().waits, 0);
        }
    }
}

#[test]
fn p18_a_sleep_until_a_microsecond_from_now_waits() {
    let until = Timestamp(NOW.0 + 1);
    check(
        |report| {
            report.opened = vec![open(&sleep("nap"), OpenWait::SleepUntil(until))];
            report.then = Then::Suspend;
        },
        Taken::Whole,
        &["opened"],
        "waiting",
    );
}

#[test]
fn p20_a_wake_up_is_never_early() {
    let mut store = check(
        |report| {
            report.opened = vec![nap(10)];
            report.then = Then::Suspend;
        },
        Taken::Whole,
        &["opened"],
        "waiting",
    );
    store.now = Timestamp(NOW.0 + 9_999);
    let out = store.tell(What::Due { call: sleep("nap").hash() });
    assert!(out.answer() == Answer::Nothing && out.writes.is_empty());
    store.now = Timestamp(NOW.0 + 10_000);
    assert_eq!(store.tell(What::Due { call: sleep("nap").hash() }).entries(), ["fired"]);
    assert_eq!(
        store.tell(What::Due { call: sleep("nap").hash() }).answer(),
        Answer::Nothing,
        "gone means nothing to do"
    );
}

#[test]
fn w36_a_fold_is_accepted_where_it_was_expected() {
    let cases: [(Then, &[&str], &str); 3] = [
        (Then::Continue, &["attempted", "opened"], "held"),
        (Then::Suspend, &["attempted", "opened"], "waiting"),
        (Then::End(End::Complete(json("1"))), &["attempted", "opened", "ended"], "ended"),
    ];
    for (then, entries, state) in cases {
        let change = |report: &mut Report| {
            report.results = vec![end(&step("a"), 1, ok())];
            report.opened = vec![nap(10)];
            report.then = then;
            report.folded = true;
        };
        check(change, Taken::Whole, entries, state);
    }
}

#[test]
fn w36_a_fold_is_refused_when_another_entry_came_first() {
    for then in [Then::Continue, Then::Suspend, Then::End(End::Complete(json("1"))), Then::Park(parked())] {
        let mut store = Store::held();
        store.report(|report| report.opened = vec![nap(10)]);
        store.pass(10);
        let (_, fold) = store.next_report(|report| {
            report.results = vec![end(&step("a"), 1, ok())];
            report.opened = vec![open(&sleep("other"), OpenWait::Sleep(Millis(5)))];
            report.then = then;
            report.folded = true;
        });
        store.tell(What::Due { call: sleep("nap").hash() });
        let out = store.tell(reported(S1, fold));
        assert_eq!((out.taken(), out.entries()), (vec![Taken::Results], vec!["attempted"]));
        assert_eq!((store.state(), store.head().waits, store.head().position), ("held", 0, Position(4)));
    }
}

#[test]
fn w36_a_fold_on_an_output_that_is_too_large_here_is_refused() {
    let mut store = Store::held();
    store.rules.limits.output_bytes = 0;
    let out = store.report(|report| {
        report.results = vec![end(&step("a"), 1, ok())];
        report.then = Then::End(End::Complete(json("1")));
        report.folded = true;
    });
    assert_eq!((out.entries(), store.state()), (vec!["attempted"], "held"));
}

/// The limit of an output is lowered to nothing after the session was told another one.
#[test]
fn w01_what_is_recorded_otherwise_than_the_holder_would_say_is_to_be_read() {
    type Change = fn(&mut Report);
    let cases: [(Change, Taken, u64); 6] = [
        (|report| report.results = vec![end(&step("a"), 1, ok())], Taken::Before, 2),
        (|report| report.results = vec![end(&step("a"), 1, failed(None))], Taken::Whole, 1),
        (|report| report.opened = vec![nap(10)], Taken::Whole, 1),
        (
            |report| {
                report.results = vec![end(&step("a"), 1, ok()), end(&step("b"), 1, failed(Some(9)))];
                report.then = Then::Suspend;
            },
            Taken::Before,
            3,
        ),
        (
            |report| {
                report.results = vec![end(&step("a"), 1, ok())];
                report.then = Then::End(End::Complete(json("1")));
                report.folded = true;
            },
            Taken::Before,
            2,
        ),
        // The lease is over, and with it what the holder makes of the journal.
        (
            |report| {
                report.results = vec![end(&step("a"), 1, ok())];
                report.then = Then::Park(parked());
            },
            Taken::Whole,
            1,
        ),
    ];
    for (change, taken, after) in cases {
        let mut store = Store::held();
        store.rules.limits.output_bytes = 0;
        let out = store.report(change);
        let [Effect::Item(S1, CoordinatorItem::Ack(ack)), ..] = &out.effects[..] else { panic!("{out:?}") };
        assert_eq!((ack.taken, ack.after.0), (taken, after), "{:?}", out.entries());
    }
}

#[test]
fn w03_a_body_that_ends_takes_its_own_waits_with_it() {
    let change = |report: &mut Report| {
        report.results = vec![end(&step("a"), 1, failed(Some(10))), end(&step("b"), 1, ok())];
        report.opened =
            vec![nap(10), open(&step("img"), OpenWait::Remote(remote(everstep_protocol::Policy::default())))];
        report.then = Then::End(End::Complete(json("1")));
    };
    check(change, Taken::Whole, &["attempted", "attempted", "opened", "opened", "ended"], "ended");
}

#[test]
fn w03_a_wait_that_ended_in_the_batch_of_the_end_is_gone() {
    let mut store = Store::held();
    store.report(|report| report.opened = vec![nap(10)]);
    store.pass(10);
    let (_, fin) = store.next_report(|report| report.then = Then::End(End::Errored(error("x"))));
    store.batch(&[on(uid(1), What::Due { call: sleep("nap").hash() }), on(uid(1), reported(S1, fin))]);
    assert_eq!(store.state(), "ended");
}
