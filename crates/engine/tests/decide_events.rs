//! Proves what becomes of events and of the waits for them (rules P21 to P24, P26, W4): which event meets which wait, in which
//! order, exactly once, and what a wait that its body has dropped leaves behind. Not: that workers close what they drop.

mod support;

use everstep_engine::{Answer, Status, What};
use everstep_protocol::{
    Call, Millis, Policy, Timestamp,
    journal::{End, Fact},
    message::{OpenWait, Report, Taken, Then},
};
use support::*;

/// What was delivered, in the order of the journal: the call, and the event's number.
fn delivered(store: &Store) -> Vec<(String, u64)> {
    let of = |entry: &everstep_protocol::journal::Entry| match &entry.fact {
        Fact::Delivered(delivered) => {
            Some((format!("{} {}", delivered.call.name, delivered.call.count), delivered.sequence))
        }
        _ => None,
    };
    store.tables.journal[&uid(1)].iter().filter_map(of).collect()
}

fn send(store: &mut Store, id: &str, name: &str) -> Answer {
    store.tell(What::Event(sent(id, name, 0))).answer()
}

/// The holder opens a wait.
fn await_one(store: &mut Store, call: &Call, types: &[&str]) -> Taken {
    store.report(|report| report.opened = vec![awaits(call, types, 1_000)]).taken()[0]
}

fn suspend(store: &mut Store) -> Taken {
    store.report(|report| report.then = Then::Suspend).taken()[0]
}

/// One opening wait, what was sent before it, and what it gets.
#[test]
fn p22_a_new_wait_takes_the_oldest_event_that_fits() {
    let plain =
        |names: &[&str]| names.iter().enumerate().map(|(n, name)| sent(&format!("e{n}"), name, 0)).collect();
    let keyed = vec![sent("e0", "a", 0), sent_key("e1", "a", "k"), sent_key("e2", "a", "l")];
    let cases = [
        ("nothing was sent", plain(&[]), awaits(&event("a", 1), &["a"], 9), None),
        ("another type", plain(&["b"]), awaits(&event("a", 1), &["a"], 9), None),
        ("the first of its type", plain(&["b", "a", "a"]), awaits(&event("a", 1), &["a"], 9), Some(2)),
        ("the first of either", plain(&["c", "b", "a"]), awaits(&event("ab", 1), &["a", "b"], 9), Some(2)),
        ("with a key, only that", keyed.clone(), awaits_key(&event("a", 1), &["a"], "l"), Some(3)),
        ("without a key, any", keyed.clone(), awaits(&event("a", 1), &["a"], 9), Some(1)),
        ("another key", keyed, awaits_key(&event("a", 1), &["a"], "m"), None),
    ];
    for (case, events, wait, expected) in cases {
        let mut store = Store::held();
        for event in events {
            assert_eq!(store.tell(What::Event(event)).answer(), Answer::Done, "{case}");
        }
        let out = store.report(|report| report.opened = vec![wait]);
        let sequences: Vec<_> = delivered(&store).into_iter().map(|(_, sequence)| sequence).collect();
        assert_eq!(sequences, expected.into_iter().collect::<Vec<_>>(), "{case}");
        let pushed = if expected.is_some() { vec!["ack", "push"] } else { vec!["ack"] };
        assert_eq!((out.taken(), out.sent()), (vec![Taken::Whole], pushed), "{case}");
    }
}

#[test]
fn p22_events_are_kept_before_anybody_waits_and_read_in_order() {
    let mut store = Store::started();
    for n in 0..25 {
        assert_eq!(send(&mut store, &format!("e{n}"), "a"), Answer::Done);
    }
    store.tell(What::Claim { session: S1, have: None });
    for n in 1..=25 {
        await_one(&mut store, &event("a", n), &["a"]);
    }
    let expected: Vec<_> = (1..=25).map(|n| (format!("a {n}"), n)).collect();
    assert_eq!(delivered(&store), expected);
    assert_eq!(store.head().unread, 0);
}

#[test]
fn p22_many_waits_of_one_report_take_one_event_each() {
    let mut store = Store::held();
    for n in 0..3 {
        send(&mut store, &format!("e{n}"), "a");
    }
    let opened = (1..=4).map(|n| awaits(&event("a", n), &["a"], 9)).collect();
    let out = store.report(|report| report.opened = opened);
    assert_eq!(out.entries()[4..], ["delivered"; 3]);
    assert_eq!((store.head().waits, store.head().unread), (1, 0));
}

#[test]
fn p22_each_event_goes_to_the_oldest_wait_that_it_fits() {
    let mut store = Store::held();
    let (first, second, keyed) = (event("a", 1), event("a", 2), event("k", 1));
    await_one(&mut store, &first, &["a"]);
    await_one(&mut store, &second, &["b", "a"]);
    store.report(|report| report.opened = vec![awaits_key(&keyed, &["a"], "k")]);
    assert_eq!(suspend(&mut store), Taken::Whole);
    let batch = [sent_key("e1", "a", "k"), sent("e2", "b", 0), sent("e3", "a", 0), sent_key("e4", "a", "k")];
    let inputs: Vec<_> = batch.into_iter().map(|event| on(uid(1), What::Event(event))).collect();
    let out = store.batch(&inputs);
    let expected = [("a 1", 1), ("a 2", 2), ("k 1", 4)].map(|(call, n)| (call.to_owned(), n));
    assert_eq!(delivered(&store), expected);
    assert_eq!((store.state(), store.head().unread), ("ready", 1));
    assert_eq!(out.sent(), ["offer"], "it is woken once");
}

#[test]
fn p22_a_suspend_that_finds_its_event_keeps_the_lease() {
    let mut store = Store::held();
    send(&mut store, "e", "a");
    let out = store.report(|report| {
        report.opened = vec![awaits(&event("a", 1), &["a"], 9)];
        report.then = Then::Suspend;
    });
    assert_eq!((out.taken(), out.sent()), (vec![Taken::Kept], vec!["ack", "push"]));
    assert_eq!((store.state(), store.words().as_slice()), ("held", &["started", "opened", "delivered"][..]));
}

#[test]
fn p22_an_event_in_the_same_batch_after_a_suspend_wakes_the_instance() {
    let mut store = Store::held();
    let (_, report) = store.next_report(|report| {
        report.opened = vec![awaits(&event("a", 1), &["a"], 9)];
        report.then = Then::Suspend;
    });
    let out = store.batch(&[on(uid(1), reported(S1, report)), on(uid(1), What::Event(sent("e", "a", 0)))]);
    assert_eq!((out.taken(), store.state()), (vec![Taken::Whole], "ready"));
    assert!(
        out.writes.waits.is_empty() && out.writes.awaited.is_empty(),
        "opened and over in one transaction"
    );
}

#[test]
fn p21_a_wait_times_out_once_and_never_early() {
    let mut store = Store::held();
    await_one(&mut store, &event("a", 1), &["a"]);
    suspend(&mut store);
    let due = || What::Due { call: event("a", 1).hash() };
    store.now = Timestamp(NOW.0 + 999_999);
    assert_eq!(store.tell(due()).answer(), Answer::Nothing);
    store.now = Timestamp(NOW.0 + 1_000_000);
    assert_eq!(store.tell(due()).entries(), ["fired"]);
    assert_eq!(store.tell(due()).answer(), Answer::Nothing);
}

#[test]
fn p21_a_wait_of_no_length_takes_what_is_there_or_is_over() {
    for (event_is_there, word) in [(true, "delivered"), (false, "fired")] {
        for then in [Then::Continue, Then::Suspend] {
            let mut store = Store::held();
            if event_is_there {
                send(&mut store, "e", "a");
            }
            let out = store.report(|report| {
                report.opened = vec![awaits(&event("a", 1), &["a"], 0)];
                report.then = then;
            });
            assert_eq!((out.entries(), store.state()), (vec!["opened", word], "held"));
        }
    }
}

#[test]
fn p23_after_a_timeout_the_event_goes_to_the_next_wait() {
    let mut store = Store::held();
    await_one(&mut store, &event("a", 1), &["a"]);
    store.pass(1_000);
    store.tell(What::Due { call: event("a", 1).hash() });
    send(&mut store, "e", "a");
    assert_eq!(store.head().unread, 1);
    await_one(&mut store, &event("a", 2), &["a"]);
    assert_eq!(delivered(&store), [("a 2".to_owned(), 1)]);
}

#[test]
fn p23_event_and_timeout_in_one_batch_are_decided_in_order() {
    for (event_first, words) in [(true, ["delivered"]), (false, ["fired"])] {
        let mut store = Store::held();
        await_one(&mut store, &event("a", 1), &["a"]);
        suspend(&mut store);
        store.pass(1_000);
        let mut inputs = vec![
            on(uid(1), What::Event(sent("e", "a", 0))),
            on(uid(1), What::Due { call: event("a", 1).hash() }),
        ];
        if !event_first {
            inputs.reverse();
        }
        assert_eq!(store.batch(&inputs).entries(), words);
    }
}

#[test]
fn p24_a_repeated_event_gets_its_first_answer_whatever_became_of_it() {
    let again = |store: &mut Store| {
        let out = store.tell(What::Event(sent("e", "a", 0)));
        assert_eq!(out.answer(), Answer::Done);
        assert!(out.writes.is_empty() && out.effects.is_empty());
        for other in [sent("e", "b", 0), sent("e", "a", 1), sent_key("e", "a", "k")] {
            let out = store.tell(What::Event(other));
            assert_eq!(out.answer(), Answer::EventIdTaken);
            assert!(out.writes.is_empty());
        }
    };
    let mut store = Store::held();
    let twice = [sent("e", "a", 0), sent("e", "a", 0)].map(|event| on(uid(1), What::Event(event)));
    assert_eq!(store.batch(&twice).answers(), [Answer::Done, Answer::Done]);
    again(&mut store);
    await_one(&mut store, &event("a", 1), &["a"]);
    again(&mut store);
    store.report(|report| report.then = Then::End(End::Complete(json("1"))));
    again(&mut store);
    assert_eq!(store.head().events, 1);
}

#[test]
fn p24_an_ended_instance_refuses_with_its_status_and_nothing_is_kept() {
    let mut store = Store::held();
    store.tell(What::Terminate { operation: "o".to_owned(), reason: None });
    let out = store.tell(What::Event(sent("e", "a", 0)));
    assert_eq!(out.answer(), Answer::Refused(Status::Terminated));
    assert!(out.writes.is_empty());
}

#[test]
fn p24_an_unknown_instance_is_not_found() {
    let mut store = Store::default();
    assert_eq!(store.tell(What::Event(sent("e", "a", 0))).answer(), Answer::NotFound);
}

#[test]
fn p04_a_full_mailbox_refuses_what_nobody_waits_for() {
    let mut store = Store::held();
    store.rules.limits.events_unread = 2;
    await_one(&mut store, &event("b", 1), &["b"]);
    for (id, name, answer) in [
        ("1", "a", Answer::Done),
        ("2", "a", Answer::Done),
        ("3", "a", Answer::MailboxFull),
        ("4", "b", Answer::Done),
        ("5", "b", Answer::MailboxFull),
        ("1", "a", Answer::Done),
    ] {
        assert_eq!(send(&mut store, id, name), answer, "{id}");
    }
    await_one(&mut store, &event("a", 1), &["a"]);
    assert_eq!(send(&mut store, "3", "a"), Answer::Done, "what was refused may be sent again");
}

/// A race whose other branch won at position `after`: the wait is closed, before or after an event came.
#[test]
fn p22_an_event_that_its_body_never_saw_returns_to_its_place() {
    let mut store = Store::held();
    await_one(&mut store, &event("a", 1), &["a"]);
    let seen = store.head().position.0;
    send(&mut store, "1", "a");
    send(&mut store, "2", "a");
    let out = store.report(|report| report.closed = vec![dropped(&event("a", 1), seen)]);
    assert_eq!((out.entries(), store.head().unread), (vec!["closed"], 2));
    await_one(&mut store, &event("a", 2), &["a"]);
    await_one(&mut store, &event("a", 3), &["a"]);
    let expected = [("a 1", 1), ("a 2", 1), ("a 3", 2)].map(|(call, n)| (call.to_owned(), n));
    assert_eq!(delivered(&store), expected);
}

#[test]
fn p22_an_event_that_its_body_saw_does_not_return() {
    let mut store = Store::held();
    await_one(&mut store, &event("a", 1), &["a"]);
    send(&mut store, "1", "a");
    let seen = store.head().position.0;
    store.report(|report| report.closed = vec![dropped(&event("a", 1), seen)]);
    assert_eq!(store.head().unread, 0);
}

#[test]
fn p22_a_returned_event_goes_to_the_oldest_open_wait_or_to_one_of_the_same_report() {
    let mut store = Store::held();
    await_one(&mut store, &event("a", 1), &["a"]);
    await_one(&mut store, &event("ab", 1), &["b", "a"]);
    let seen = store.head().position.0;
    send(&mut store, "1", "a");
    let close = |report: &mut Report| report.closed = vec![dropped(&event("a", 1), seen)];
    let out = store.report(close);
    assert_eq!((out.entries(), out.sent()), (vec!["closed", "delivered"], vec!["ack", "push"]));
    assert_eq!(delivered(&store)[1], ("ab 1".to_owned(), 1));

    let seen = store.head().position.0 - 1;
    store.report(|report| {
        report.closed = vec![dropped(&event("ab", 1), seen)];
        report.opened = vec![awaits(&event("a", 2), &["a"], 9)];
    });
    assert_eq!(delivered(&store)[2], ("a 2".to_owned(), 1));
}

#[test]
fn p22_delivered_and_returned_in_one_batch() {
    let mut store = Store::held();
    await_one(&mut store, &event("a", 1), &["a"]);
    let (session, report) = store.next_report(|report| {
        report.closed = vec![dropped(&event("a", 1), report.seen.0)];
        report.opened = vec![awaits(&event("a", 2), &["a"], 9)];
    });
    store.batch(&[on(uid(1), What::Event(sent("1", "a", 0))), on(uid(1), reported(session, report))]);
    let expected = [("a 1", 1), ("a 2", 1)].map(|(call, n)| (call.to_owned(), n));
    assert_eq!(delivered(&store), expected);
}

#[test]
fn p22_closing_ends_every_kind_of_wait() {
    let img = || OpenWait::Remote(remote(Policy::default()));
    let mut store = Store::held();
    store.report(|report| {
        report.opened = vec![
            open(&sleep("s"), OpenWait::Sleep(Millis(9))),
            open(&step("img"), img()),
            open(&step("held"), img()),
            awaits(&event("a", 1), &["a"], 9),
        ];
        report.results = vec![end(&step("r"), 1, failed(Some(10)))];
    });
    store.tell(What::StepClaim { session: S2, call: step("held").hash() });
    let seen = store.head().position.0;
    let calls = [sleep("s"), step("img"), step("held"), step("r"), event("a", 1)];
    let out = store.report(|report| report.closed = calls.iter().map(|call| dropped(call, seen)).collect());
    assert_eq!((out.entries(), store.head().waits), (vec!["closed"; 5], 0));
    assert_eq!(out.sent(), ["ack", "step fence"]);
    assert!(
        store.tables.waits.is_empty() && store.tables.remotes.is_empty() && store.tables.awaited.is_empty()
    );
    assert_eq!(store.tell(What::Due { call: sleep("s").hash() }).answer(), Answer::Nothing);
    let late = step_reported(S2, &step("held"), 1, ok());
    assert_eq!(store.tell(late).entries(), [""; 0]);
}

#[test]
fn p22_what_is_over_is_closed_without_harm() {
    let mut store = Store::held();
    store.report(|report| report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(9)))]);
    store.pass(9);
    let seen = store.head().position.0;
    store.tell(What::Due { call: sleep("s").hash() });
    let out =
        store.report(|report| report.closed = vec![dropped(&sleep("s"), seen), dropped(&sleep("s"), seen)]);
    assert_eq!((out.entries(), store.head().waits), (vec!["closed", "closed"], 0));
}

#[test]
fn w36_a_refused_fold_closes_and_opens_nothing() {
    let mut store = Store::held();
    await_one(&mut store, &event("a", 1), &["a"]);
    let (session, fold) = store.next_report(|report| {
        report.results = vec![end(&step("s"), 1, ok())];
        report.closed = vec![dropped(&event("a", 1), report.seen.0 + 1)];
        report.folded = true;
    });
    send(&mut store, "1", "a");
    let out = store.tell(reported(session, fold));
    assert_eq!((out.taken(), out.entries()), (vec![Taken::Results], vec!["attempted"]));
    assert_eq!(delivered(&store), [("a 1".to_owned(), 1)]);
}

#[test]
fn p22_a_parked_instance_gets_its_events_and_is_not_woken() {
    let mut store = Store::held();
    await_one(&mut store, &event("a", 1), &["a"]);
    store.report(|report| report.then = Then::Park(parked()));
    let out = store.tell(What::Event(sent("1", "a", 0)));
    assert_eq!((out.entries(), out.sent(), store.state()), (vec!["delivered"], Vec::new(), "parked"));
}

#[test]
fn p22_the_end_takes_waits_and_leaves_events() {
    let mut store = Store::held();
    send(&mut store, "1", "b");
    await_one(&mut store, &event("a", 1), &["a"]);
    store.report(|report| {
        report.opened = vec![awaits(&event("b", 1), &["b"], 9)];
        report.then = Then::End(End::Complete(json("1")));
    });
    assert_eq!((store.state(), store.head().unread), ("ended", 1));
    assert!(store.tables.awaited.is_empty());
}
