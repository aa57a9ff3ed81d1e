//! Proves what goes on in the next generation of an instance, and what is over (rule P36). Not: that a body comes to it; see the
//! worker's rules.

mod support;

use everstep_engine::{Answer, StatusWord, What};
use everstep_protocol::{
    Epoch, Generation, Millis, Policy, Position, Run, SessionId,
    journal::{Fact, ParkCode},
    message::{OpenWait, Then},
};
use support::*;

fn go_on(store: &mut Store, input: u8) -> Out {
    store.report(|report| report.then = Then::Again(again(input)))
}

/// The instance of the tests, held again.
fn claimed(mut store: Store) -> Store {
    store.tell(What::Claim { session: S1, have: None });
    store
}

fn first(store: &Store) -> &Fact {
    &store.tables.journal[&uid(1)][0].fact
}

#[test]
fn p36_the_next_generation_begins_with_a_fresh_journal_and_nothing_under_way() {
    let mut store = Store::held();
    store.report(|report| {
        report.results = vec![end(&step("a"), 1, ok())];
        report.opened = vec![
            open(&sleep("s"), OpenWait::Sleep(Millis(9))),
            open(&step("img"), OpenWait::Remote(remote(Policy::default()))),
            awaits(&event("paid", 1), &["paid"], 99),
        ];
    });
    store.tell(What::StepClaim { session: S2, call: step("img").hash() });
    let epoch = store.head().epoch;
    let out = go_on(&mut store, 7);
    assert_eq!((out.answer(), out.entries()), (Answer::Taken, vec!["continued", "started"]));
    assert_eq!(out.sent(), ["ack", "offer", "step fence"]);
    let head = store.head();
    assert_eq!((head.run, head.generation, head.position), (Run(2), Generation(2), Position(1)));
    assert_eq!((head.steps, head.waits, head.epoch), (0, 0, epoch), "the epoch only grows (W2)");
    assert_eq!(store.status(), StatusWord::Queued);
    let Fact::Started(started) = first(&store) else { panic!("{:?}", first(&store)) };
    assert_eq!((&started.input, started.seed, started.generation), (&json("7"), [7; 32], Generation(2)));
    let earlier = &store.tables.earlier[&(uid(1), Run(1))];
    assert_eq!(earlier.last().unwrap().fact, Fact::Continued(json("7")), "the journal before stays readable");
    assert!(store.tables.waits.is_empty() && store.tables.remotes.is_empty());
    store.tell(What::Claim { session: S2, have: None });
    assert_eq!(store.head().epoch, epoch.next());
}

#[test]
fn p36_a_session_with_room_goes_on_at_once() {
    let mut store = Store::held();
    store.room.serve(S2, &everstep_protocol::Namespace::default(), &[workflow()]);
    store.room.credit(S2, 1);
    let out = go_on(&mut store, 1);
    assert_eq!((out.sent(), out.credits), (vec!["ack", "grant"], vec![S2]));
    assert_eq!(store.lease().unwrap().epoch, Epoch(2));
}

#[test]
fn p36_a_report_that_does_not_go_on_takes_no_credit() {
    let mut store = Store::held();
    store.room.serve(S2, &everstep_protocol::Namespace::default(), &[workflow()]);
    store.room.credit(S2, 1);
    let out = store.report(|report| report.results = vec![end(&step("a"), 1, ok())]);
    assert_eq!(out.credits, Vec::<SessionId>::new());
}

#[test]
fn p36_the_late_report_of_an_earlier_generation_is_fenced() {
    let mut store = Store::held();
    let (session, late) = store.next_report(|report| report.then = Then::Again(again(1)));
    store.tell(reported(session, late.clone()));
    assert_eq!(store.tell(reported(session, late)).answer(), Answer::Fenced);
    assert_eq!(store.head().generation, Generation(2));
}

#[test]
fn p36_unread_events_stay_and_those_that_were_never_seen_return() {
    let mut store = Store::held();
    store.report(|report| report.opened = vec![awaits(&event("paid", 1), &["paid"], 99)]);
    // One is delivered to the wait, and the body goes on as new without having seen it; nobody waits for the other.
    store.tell(What::Event(sent("e-1", "paid", 1)));
    store.tell(What::Event(sent("e-2", "other", 2)));
    let out = store.report(|report| {
        report.seen = Position(2);
        report.closed = vec![dropped(&event("paid", 1), 2)];
        report.then = Then::Again(again(1));
    });
    assert_eq!(store.head().unread, 2);
    let returned = &out.writes.deliveries[0];
    assert_eq!((returned.delivery, returned.payload.clone()), (None, Some(json("1"))), "with what it says");
    let mut store = claimed(store);
    let out = store.report(|report| report.opened = vec![awaits(&event("paid", 1), &["paid"], 99)]);
    assert_eq!(out.entries(), ["opened", "delivered"]);
}

#[test]
fn p36_a_pause_goes_on() {
    let mut store = Store::held();
    store.tell(What::Pause { operation: "p".to_owned() });
    let out = go_on(&mut store, 1);
    assert_eq!((out.sent(), store.status()), (vec!["ack"], StatusWord::Paused));
    store.tell(What::Resume { operation: "r".to_owned() });
    assert_eq!((store.status(), store.head().generation), (StatusWord::Queued, Generation(2)));
}

#[test]
fn p36_a_cancel_meets_the_next_generation_with_its_deadline() {
    let mut store = Store::held();
    let cancel = What::Cancel {
        operation: "c".to_owned(),
        reason: Some("ann".to_owned()),
        within: Millis(100),
        rollback: false,
    };
    store.tell(cancel);
    store.pass(50);
    let next = everstep_protocol::message::Again { cancelled: Some("ann".to_owned()), ..again(1) };
    let out = store.report(|report| report.then = Then::Again(next));
    assert_eq!(out.entries(), ["continued", "started", "cancelled"]);
    let Fact::Cancelled(cancelled) = &store.tables.journal[&uid(1)][1].fact else { panic!() };
    assert_eq!((cancelled.reason.as_deref(), cancelled.until), (Some("ann"), store.now.plus(Millis(50))));
    // What the next holder opens before it knows was open at the cancel.
    let mut store = claimed(store);
    store.report(|report| {
        report.seen = Position(1);
        report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(9)))];
    });
    assert_eq!(store.head().waits, 0);
    store.pass(50);
    assert_eq!(store.tell(What::Overdue).answer(), Answer::Done);
    assert_eq!(store.status(), StatusWord::Terminated);
}

#[test]
fn p36_journals_before_the_last_are_removed() {
    let mut store = Store::held();
    let cuts: Vec<_> = (1..=4)
        .map(|input| {
            let out = go_on(&mut store, input);
            store.tell(What::Claim { session: S1, have: None });
            out.writes.cuts
        })
        .collect();
    assert_eq!(cuts, [vec![], vec![(uid(1), Run(2))], vec![(uid(1), Run(3))], vec![(uid(1), Run(4))]]);
}

#[test]
fn p36_a_restart_begins_its_generation_again() {
    let mut store = Store::held();
    go_on(&mut store, 7);
    store.tell(What::Restart { operation: "r".to_owned(), prepared: None });
    assert_eq!(
        (store.head().run, store.head().generation),
        (Run(3), Generation(2)),
        "with the same keys (L1)"
    );
    let Fact::Started(started) = first(&store) else { panic!() };
    assert_eq!(started.input, json("7"));
}

#[test]
fn p36_a_start_of_the_same_id_is_compared_with_the_first_input() {
    let mut store = Store::held();
    go_on(&mut store, 7);
    let repeated = store.start(start(2, "i", 1)).answer();
    assert!(matches!(repeated, Answer::Exists(_)), "{repeated:?}");
}

#[test]
fn p04_an_input_of_the_next_generation_over_the_limit_is_not_taken() {
    let mut store = Store::held();
    store.rules.limits.input_bytes = 2;
    let out = store.report(|report| report.then = Then::Again(again(123)));
    assert_eq!((out.answer(), out.entries()), (Answer::Parked, vec!["parked"]));
    assert_eq!(store.tables.parked[&uid(1)].code, ParkCode::Broken);
}
