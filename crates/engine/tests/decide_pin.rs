//! Proves which build may take an instance up (rule P40): whatever way a lease comes, only one of the build that it is pinned
//! to; and when a lease pins it. And when a strict start is refused (rule P35). Not: the queues between; see the store's
//! conformance and the system tests.

mod support;

use std::sync::Arc;

use everstep_engine::{Answer, Effect, What, place::RunQueue};
use everstep_protocol::{BuildName, Epoch, Namespace, Pin, SessionId, WorkflowName, message::Then};
use support::*;

fn old() -> BuildName {
    "old".parse().expect("a name")
}

fn new() -> BuildName {
    "new".parse().expect("a name")
}

fn pinned(pin: Pin) -> everstep_engine::start::Start {
    everstep_engine::start::Start { pin: Some(pin), ..start(1, "i", 1) }
}

/// S1 runs the old build and S2 the new one, each with room for so many direct grants.
fn two_builds(credits: [u64; 2], pins: &[WorkflowName]) -> Store {
    let mut store = Store::default();
    for (session, build, credit) in [(S1, old(), credits[0]), (S2, new(), credits[1])] {
        store.room.serve(session, &Namespace::default(), &[workflow()]);
        store.room.runs(session, &build, Arc::from(pins));
        store.room.credit(session, credit);
    }
    store
}

fn pin(build: Option<BuildName>) -> What {
    What::Pin { operation: "p".to_owned(), pin: build.map(Pin::Build) }
}

fn claimed(store: &mut Store, session: SessionId) -> Answer {
    store.tell(What::Claim { session, have: None }).answer()
}

/// To which build the run task goes.
fn offered(out: &Out) -> Vec<Option<BuildName>> {
    let build = |effect: &Effect| match effect {
        Effect::Offer { build, .. } => Some(build.clone()),
        _ => None,
    };
    out.effects.iter().filter_map(build).collect()
}

#[test]
fn p40_the_first_to_take_it_up_decides_the_build() {
    let mut store = two_builds([0, 0], &[]);
    let out = store.start(pinned(Pin::First));
    assert_eq!(offered(&out), [None], "any build may be the first");
    assert_eq!(store.head().pin, Some(Pin::First));
    assert_eq!(claimed(&mut store, S1), Answer::Granted);
    assert_eq!(store.head().pin, Some(Pin::Build(old())));
    let out = store.tell(What::GiveBack { session: S1, epoch: Epoch(1) });
    assert_eq!(offered(&out), [Some(old())]);
    assert_eq!(out.writes.ready[0].queue(), "fulfil.old");
    assert_eq!(claimed(&mut store, S2), Answer::NotGranted, "a task of long ago");
    assert!(store.is_ready());
    assert_eq!(claimed(&mut store, S1), Answer::Granted);
}

#[test]
fn p40_a_direct_grant_goes_to_the_build_alone() {
    let mut store = two_builds([0, 9], &[]);
    let out = store.start(pinned(Pin::Build(old())));
    assert_eq!((offered(&out), store.lease()), (vec![Some(old())], None), "only the other build has room");
    store.room.credit(S1, 9);
    assert_eq!(claimed(&mut store, S1), Answer::Granted);
    store.tell(lease_ended(S1, false));
    assert_eq!(store.lease().map(|lease| lease.session), Some(S1));
    let mut store = two_builds([1, 0], &[]);
    store.start(pinned(Pin::First));
    assert_eq!(
        (store.lease().map(|lease| lease.session), store.head().pin.clone()),
        (Some(S1), Some(Pin::Build(old())))
    );
}

#[test]
fn p40_a_worker_may_pin_what_it_takes_up_first() {
    let mut store = two_builds([0, 0], &[workflow()]);
    store.start(start(1, "i", 1));
    assert_eq!(store.head().pin, None);
    assert_eq!(claimed(&mut store, S2), Answer::Granted);
    assert_eq!(store.head().pin, Some(Pin::Build(new())));
    // Somebody lets any build have it, and it stays so.
    assert_eq!(store.tell(pin(None)).answer(), Answer::Done);
    store.tell(lease_ended(S2, false));
    assert_eq!(claimed(&mut store, S1), Answer::Granted);
    assert_eq!(store.head().pin, None);
    let mut store = two_builds([9, 0], &["another".parse().unwrap()]);
    store.start(start(1, "i", 1));
    assert_eq!((store.lease().is_some(), store.head().pin.clone()), (true, None), "another workflow");
}

#[test]
fn p40_what_is_ready_moves_to_its_new_build_at_once() {
    let mut store = two_builds([0, 0], &[]);
    store.start(pinned(Pin::Build("gone".parse().unwrap())));
    assert!(store.is_ready());
    let out = store.tell(pin(Some(new())));
    assert_eq!((out.answer(), offered(&out)), (Answer::Done, vec![Some(new())]));
    assert_eq!((out.writes.ready_deletes.len(), out.writes.ready[0].queue().as_ref()), (1, "fulfil.new"));
    assert_eq!(
        store.tell(pin(Some(old()))).answer(),
        Answer::Done,
        "the same operation gets its first answer"
    );
    assert_eq!(store.head().pin, Some(Pin::Build(new())));
    let out = store.tell(What::Pin { operation: "q".to_owned(), pin: None });
    assert_eq!(offered(&out), [None]);
    let mut store = two_builds([0, 1], &[]);
    store.start(pinned(Pin::Build(old())));
    store.tell(pin(Some(new())));
    assert_eq!(store.lease().map(|lease| lease.session), Some(S2), "there is room");
}

#[test]
fn p40_the_holder_goes_on_until_it_gives_the_lease_up() {
    let mut store = two_builds([0, 0], &[]);
    store.start(pinned(Pin::First));
    claimed(&mut store, S1);
    let out = store.tell(pin(Some(new())));
    assert_eq!((out.answer(), out.sent()), (Answer::Done, vec![]));
    assert_eq!(store.report(|_| {}).answer(), Answer::Taken);
    store.tell(What::GiveBack { session: S1, epoch: Epoch(1) });
    assert_eq!(claimed(&mut store, S1), Answer::NotGranted);
    assert_eq!(claimed(&mut store, S2), Answer::Granted);
}

#[test]
fn p40_a_pin_outlives_the_end_for_a_restart() {
    let mut store = two_builds([0, 0], &[]);
    store.start(pinned(Pin::First));
    claimed(&mut store, S1);
    store.report(|report| report.then = Then::End(everstep_protocol::journal::End::Complete(json("1"))));
    let out = store.tell(What::Restart { operation: "r".to_owned(), prepared: None });
    assert_eq!(offered(&out), [Some(old())]);
}

#[test]
fn p40_a_queue_of_a_build_is_offered_to_while_a_session_of_it_lives() {
    let mut store = two_builds([0, 0], &[]);
    let (namespace, workflow) = (Namespace::default(), workflow());
    assert!(store.room.offer(&namespace, &workflow, Some(&old())));
    assert!(!store.room.offer(&namespace, &workflow, Some(&"gone".parse().unwrap())));
    let queue = |build| RunQueue { namespace: namespace.clone(), workflow: workflow.clone(), build };
    let (runs, _) = store.room.served();
    for build in [None, Some(old()), Some(new())] {
        assert!(runs.contains(&queue(build)), "{runs:?}");
    }
    assert_eq!(runs.len(), 3);
    store.room.set_backlog(9, [queue(Some(old()))].into(), std::collections::HashSet::new());
    assert!(!store.room.offer(&namespace, &workflow, Some(&old())), "it holds back");
    assert!(store.room.offer(&namespace, &workflow, None));
    store.room.forget(S1);
    assert!(!store.room.serves(&namespace, &workflow, Some(&old())));
}

#[test]
fn p35_a_strict_start_is_refused_while_nobody_serves_it() {
    let strict = |pin| everstep_engine::start::Start { strict: true, pin, ..start(1, "i", 1) };
    let mut store = Store::default();
    store.room.forget(S1);
    let out = store.start(strict(None));
    assert_eq!((out.answer(), out.writes.is_empty()), (Answer::NotServed, true));
    let with_message = everstep_engine::start::Start { message: Some(message("m")), ..strict(None) };
    assert_eq!(store.start(with_message.clone()).answer(), Answer::NotServed);
    let mut store = two_builds([0, 0], &[]);
    assert_eq!(store.start(strict(Some(Pin::Build("gone".parse().unwrap())))).answer(), Answer::NotServed);
    assert_eq!(store.start(with_message).answer(), Answer::Created, "it may be sent again");
    store.room.forget(S1);
    store.room.forget(S2);
    let again = everstep_engine::start::Start { uid: uid(2), ..strict(None) };
    assert!(matches!(store.start(again).answer(), Answer::Exists(_)), "what exists is told");
}
