//! Proves what is left of a deleted instance, nothing, and when one is deleted by itself (rule P32). Not: which rows a store has;
//! see its conformance.

mod support;

use everstep_engine::{Answer, Input, Status, What, effect::Forget, retention::Own};
use everstep_protocol::{Millis, journal::End, message::Then};
use support::*;

fn delete(id: &str, terminate: bool) -> What {
    What::Delete { operation: id.to_owned(), terminate }
}

fn complete() -> Store {
    let mut store = Store::held();
    store.report(|report| report.then = Then::End(End::Complete(json("1"))));
    store
}

#[test]
fn p32_an_ended_instance_is_deleted_and_its_name_is_free() {
    let mut store = complete();
    let out = store.tell(delete("d", false));
    assert_eq!((out.answer(), store.state()), (Answer::Done, "gone"));
    assert_eq!(out.writes.deleted[0].forget, Forget::Everything);
    assert!(out.writes.operations.is_empty() && out.writes.journal.is_empty());
    assert_eq!(store.tell(delete("d", false)).answer(), Answer::NotFound);
    assert_eq!(store.start(start(2, "i", 9)).answer(), Answer::Created, "with another input too");
}

#[test]
fn p32_an_open_instance_is_deleted_only_if_it_may_be_terminated_first() {
    let mut store = Store::held();
    let out = store.tell(delete("d", false));
    assert!(matches!(out.answer(), Answer::Forbidden(_)), "{:?}", out.answer());
    let out = store.tell(delete("e", true));
    assert_eq!((out.answer(), out.sent(), store.state()), (Answer::Done, vec!["fence"], "gone"));
    assert_eq!(out.writes.outbox[0].head.status, Status::Terminated, "the world is told of its end");
}

#[test]
fn p32_what_comes_later_in_the_batch_finds_nothing() {
    let mut store = complete();
    let again = Input::Start(Box::new(start(2, "i", 9)));
    let out = store.batch(&[on(uid(1), delete("d", false)), on(uid(1), delete("e", false)), again]);
    assert_eq!(out.answers(), [Answer::Done, Answer::NotFound, Answer::Created]);
    assert_eq!(store.state(), "gone");
    assert!(store.tables.heads.contains_key(&uid(2)));
}

#[test]
fn p32_one_that_is_created_and_deleted_in_one_batch_leaves_nothing() {
    let mut store = Store::default();
    let start = Input::Start(Box::new(start(1, "i", 1)));
    let out = store.batch(&[start, on(uid(1), delete("d", true))]);
    assert_eq!(out.answers(), [Answer::Created, Answer::Done]);
    assert!(out.writes.created.is_empty() && out.writes.names.is_empty() && out.writes.journal.is_empty());
    assert!(store.tables.heads.is_empty() && store.tables.ready.is_empty());
}

#[test]
fn p32_retention_counts_from_the_end_by_how_it_ended() {
    let own = Own { complete: Some(Millis(10)), failed: Some(Millis(20)) };
    let ends = [
        (End::Complete(json("1")), 10),
        (End::Errored(error("x")), 20),
        (End::Cancelled { reason: None }, 20),
    ];
    for (end, kept) in ends {
        let mut store = Store::default();
        store.start(everstep_engine::start::Start { retention: own, ..start(1, "i", 1) });
        store.tell(What::Claim { session: S1, have: None });
        store.pass(100);
        assert_eq!(store.tell(What::Expire).answer(), Answer::Nothing, "what is open is kept");
        store.report(|report| report.then = Then::End(end));
        store.pass(kept - 1);
        assert_eq!(store.tell(What::Expire).answer(), Answer::Nothing);
        store.pass(1);
        let out = store.tell(What::Expire);
        assert_eq!((out.answer(), store.state()), (Answer::Done, "gone"));
        assert_eq!(
            out.writes.deleted[0].forget,
            Forget::AllButRecentMessages,
            "a redelivery makes no second (P27)"
        );
    }
}

#[test]
fn p32_a_restart_takes_the_time_of_deletion_back() {
    let mut store = complete();
    store.tell(What::Restart { operation: "r".to_owned(), prepared: None });
    assert!(store.tables.expiries.is_empty());
    store.pass(u64::from(u32::MAX));
    assert_eq!(store.tell(What::Expire).answer(), Answer::Nothing);
}
