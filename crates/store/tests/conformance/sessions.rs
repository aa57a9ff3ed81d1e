//! Sessions, their leases, and when silence counts.

use std::{collections::HashMap, sync::Arc};

use everstep_engine::{Answer, What, account::Kept, head::Cached, rows::Subject};
use everstep_protocol::{
    Attempt, CoordinatorId, InstanceUid, Millis, Payload, Position, Run, SessionId, Timestamp,
    journal::Progress,
    message::{OpenSession, OpenWait, Running, Then},
};
use everstep_store::{Heard, Store};

use super::scene::{Reporting, Scene, epoch, open_session, sleep, sleeping, step, succeeded};

fn heard(session: SessionId) -> Heard {
    Heard { session, inbox: "inbox-2".to_owned() }
}

pub(crate) async fn w10_a_session_that_has_ended_never_comes_back(store: Arc<dyn Store>) {
    let open = open_session(SessionId::generate());
    assert!(store.open_session(&open).await.unwrap());
    let sessions = store.sessions().await.unwrap();
    assert_eq!((sessions.len(), &sessions[0].open), (1, &open));
    let moved = OpenSession { inbox: "inbox-9".to_owned(), ..open.clone() };
    assert!(store.open_session(&moved).await.unwrap());
    assert_eq!(store.sessions().await.unwrap()[0].open, moved);
    store.end_session(open.session, true).await.unwrap();
    store.end_session(open.session, false).await.unwrap();
    assert!(store.sessions().await.unwrap().is_empty());
    assert!(!store.open_session(&open).await.unwrap());
    assert_eq!(store.heard(&[heard(open.session)]).await.unwrap(), [None]);
    store.end_session(SessionId::generate(), true).await.unwrap();
}

/// A worker that has registered another inbox since it was pinged is there.
pub(crate) async fn w09_a_session_is_ended_by_the_inbox_that_cannot_be_reached(store: Arc<dyn Store>) {
    let open = open_session(SessionId::generate());
    assert!(store.open_session(&open).await.unwrap());
    let ids = [open.session, SessionId::generate()];
    let opened_at = store.sessions().await.unwrap()[0].heard_at;
    assert_eq!(store.heard_since(&ids, Timestamp(opened_at.0 - 1)).await.unwrap(), [open.session]);
    assert_eq!(store.heard_since(&ids, opened_at).await.unwrap(), []);
    assert!(store.heard(&[heard(open.session)]).await.unwrap()[0].is_some(), "it comes back");
    let ends = async |inbox| store.end_unreachable(open.session, inbox, Millis(3_600_000)).await.unwrap();
    assert!(!ends("inbox-2").await, "nothing has come the way yet");
    store.beat(CoordinatorId::generate(), Millis(3_600_000)).await.unwrap();
    assert!(!ends("inbox-2").await, "it was not heard since");
    store.heard(&[heard(open.session)]).await.unwrap();
    assert!(!ends(&open.inbox).await);
    assert_eq!(store.sessions().await.unwrap().len(), 1);
    assert!(ends("inbox-2").await);
    assert!(!ends("inbox-2").await, "it has ended");
    assert_eq!(store.heard_since(&ids, Timestamp(0)).await.unwrap(), []);
}

pub(crate) async fn w27_who_kept_a_body_is_noted_until_it_is_granted(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let uid = scene.held("o-1", session).await;
    let nap = sleeping(&sleep("nap"), OpenWait::Sleep(Millis(60_000)));
    let suspend = Reporting::of(&scene.head(uid).await, session).open(nap).cached().then(Then::Suspend);
    assert_eq!(scene.on(uid, suspend).await, Answer::Taken);
    let head = scene.head(uid).await;
    assert_eq!(head.cached, Some(Cached { session, position: Position(1) }));
    let end = What::Terminate { operation: "op".to_owned(), reason: None };
    assert_eq!(scene.on(uid, end).await, Answer::Done);
    assert_eq!(scene.head(uid).await.cached, head.cached, "an end leaves it: nobody is granted it any more");
    assert_eq!(
        scene.on(uid, What::Restart { operation: "r".to_owned(), prepared: None }).await,
        Answer::Done
    );
    assert_eq!(scene.head(uid).await.cached, None);
}

pub(crate) async fn w06_heartbeats_find_the_leases_and_how_far_their_heads_are(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let (holder, idle, unknown) = (SessionId::generate(), SessionId::generate(), SessionId::generate());
    for session in [holder, idle] {
        store.open_session(&open_session(session)).await.unwrap();
    }
    let (one, two) = (scene.held("o-1", holder).await, scene.held("o-2", holder).await);
    scene.held("o-3", unknown).await;
    let before = store.sessions().await.unwrap();
    let mut answers =
        store.heard(&[heard(unknown), heard(holder), heard(idle), heard(holder)]).await.unwrap();
    assert_eq!((answers.len(), &answers[0], &answers[2]), (4, &None, &Some(Vec::new())));
    let mut leases = answers.remove(1).unwrap();
    leases.sort_by_key(|lease| lease.uid);
    let lease = |uid| Kept {
        uid,
        subject: Subject::INSTANCE,
        epoch: epoch(1),
        run: Run(1),
        position: Position(1),
        reports: 0,
        paused: false,
    };
    assert_eq!(leases, [lease(one), lease(two)]);
    let report = Reporting::of(&scene.head(two).await, holder).result(succeeded(&step("a"), "1"));
    assert_eq!(scene.on(two, report.then(Then::Continue)).await, Answer::Taken);
    let mut leases = store.heard(&[heard(holder)]).await.unwrap().remove(0).unwrap();
    leases.sort_by_key(|lease| lease.uid);
    assert_eq!(leases, [lease(one), Kept { position: Position(2), reports: 1, ..lease(two) }]);
    for session in store.sessions().await.unwrap() {
        let earlier = before.iter().find(|other| other.open.session == session.open.session).unwrap();
        assert!(session.heard_at > earlier.heard_at && session.opened_at == earlier.opened_at);
        assert_eq!(session.open.inbox, "inbox-2");
    }
    assert_eq!(store.heard(&[]).await.unwrap(), []);
}

pub(crate) async fn w08_silence_counts_only_while_it_could_be_heard(store: Arc<dyn Store>) {
    let (session, me) = (SessionId::generate(), CoordinatorId::generate());
    let (none, long) = (Millis(0), Millis(3_600_000));
    store.open_session(&open_session(session)).await.unwrap();
    assert!(store.silent(none).await.unwrap().is_empty(), "no heartbeat has come the way yet");

    store.beat(me, long).await.unwrap();
    assert_eq!(store.silent(none).await.unwrap(), [session]);
    assert!(store.silent(long).await.unwrap().is_empty());

    // Beats that keep coming do not open the way anew: what was open for a time is still open for it.
    let open_for = Millis(20);
    while store.silent(open_for).await.unwrap().is_empty() {
        store.beat(me, long).await.unwrap();
    }
    // A gap gives every session a full lease from its end on, even one that was silent before.
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    store.beat(me, Millis(1)).await.unwrap();
    assert!(store.silent(long).await.unwrap().is_empty());
    store.beat(me, long).await.unwrap();
    assert!(store.silent(Millis(5_000)).await.unwrap().is_empty());
    // Nothing is silent once the beats themselves are late by more than the gap.
    let gap = Millis(150);
    store.beat(me, gap).await.unwrap();
    assert_eq!(store.silent(none).await.unwrap(), [session]);
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(store.silent(none).await.unwrap().is_empty());
    assert!(!store.end_silent(session, none).await.unwrap(), "nobody could hear it");
    store.beat(me, long).await.unwrap();
    assert!(!store.end_silent(session, long).await.unwrap(), "it was heard within the lease");
    assert!(store.end_silent(session, none).await.unwrap());
    assert!(!store.end_silent(session, none).await.unwrap(), "it has ended");
    assert!(store.silent(none).await.unwrap().is_empty());
}

pub(crate) async fn w09_after_a_gap_only_what_was_heard_since_ends_early(store: Arc<dyn Store>) {
    let (away, back, ended) = (SessionId::generate(), SessionId::generate(), SessionId::generate());
    let (all, me) = ([away, back, ended, SessionId::generate()], CoordinatorId::generate());
    let (none, long) = (Millis(0), Millis(3_600_000));
    let observed = async |lease| store.observed(&all, lease).await.unwrap();
    for session in [away, back, ended] {
        store.open_session(&open_session(session)).await.unwrap();
    }
    store.end_session(ended, true).await.unwrap();
    assert!(observed(none).await.is_empty(), "nothing has come the way yet");
    let mut both = vec![away, back];
    both.sort_unstable();

    // The way opens: a coordinator begins, or comes back after a gap.
    store.beat(me, long).await.unwrap();
    assert_eq!(observed(none).await, both, "a lease has passed since");
    assert!(observed(long).await.is_empty(), "neither was heard since");
    store.heard(&[heard(back)]).await.unwrap();
    assert_eq!(observed(long).await, [back]);
    store.open_session(&open_session(away)).await.unwrap();
    assert_eq!(observed(long).await, both, "it has registered its new inbox");
    assert_eq!(store.observed(&[away], long).await.unwrap(), [away], "only those that were asked for");

    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    store.beat(me, Millis(1)).await.unwrap();
    store.beat(me, long).await.unwrap();
    assert!(observed(long).await.is_empty(), "a gap begins it anew");
    store.heard(&[heard(back)]).await.unwrap();
    // While nothing comes the way, no inbox that is missing means anything.
    store.beat(me, Millis(150)).await.unwrap();
    assert_eq!(observed(long).await, [back]);
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(observed(long).await.is_empty() && observed(none).await.is_empty());
}

pub(crate) async fn leases_of_ended_sessions_are_orphans(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let (lost, closed, live) = (SessionId::generate(), SessionId::generate(), SessionId::generate());
    for session in [lost, closed, live] {
        store.open_session(&open_session(session)).await.unwrap();
    }
    let mut held = vec![scene.held("o-1", lost).await, scene.held("o-2", lost).await];
    let given_back = scene.held("o-3", closed).await;
    scene.held("o-4", live).await;
    assert!(store.orphans(10).await.unwrap().is_empty());
    store.end_session(lost, true).await.unwrap();
    store.end_session(closed, false).await.unwrap();
    let orphans = store.orphans(10).await.unwrap();
    assert_eq!(orphans.len(), 3);
    for orphan in &orphans {
        let session = orphan.open.session;
        assert_eq!(orphan.open, open_session(session));
        assert_eq!(orphan.counts, session == lost);
        assert_eq!((orphan.lease.uid == given_back, orphan.lease.epoch), (session == closed, epoch(1)));
    }
    held.push(given_back);
    let mut found: Vec<_> = orphans.iter().map(|orphan| orphan.lease.uid).collect();
    held.sort();
    found.sort();
    assert_eq!(found, held);
    assert_eq!(store.orphans(2).await.unwrap().len(), 2);
    // A lease that a grant under way gave to an ended session is found as well.
    scene.held("o-5", lost).await;
    assert_eq!(store.orphans(10).await.unwrap().len(), 4);
}

pub(crate) async fn all_sessions_end_at_once(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let sessions = [SessionId::generate(), SessionId::generate()];
    for session in sessions {
        store.open_session(&open_session(session)).await.unwrap();
    }
    let uid = scene.held("o-1", sessions[0]).await;
    store.end_all_sessions().await.unwrap();
    assert!(store.sessions().await.unwrap().is_empty());
    let orphans = store.orphans(10).await.unwrap();
    assert_eq!((orphans.len(), orphans[0].lease.uid, orphans[0].counts), (1, uid, true));
}

pub(crate) async fn p05_what_attempts_told_is_kept_beyond_their_session(store: Arc<dyn Store>) {
    let (one, two, unknown) = (SessionId::generate(), SessionId::generate(), SessionId::generate());
    let running = |told: &str| Running {
        instance: InstanceUid::generate(),
        epoch: epoch(3),
        progress: Progress {
            call: step("a").hash(),
            attempt: Attempt(2),
            told: Payload::from_text(told).unwrap(),
        },
    };
    for session in [one, two] {
        store.open_session(&open_session(session)).await.unwrap();
    }
    let all = [one, two, unknown];
    assert!(store.kept_progress(&all).await.unwrap().is_empty());
    let (first, later) = (vec![running("1")], vec![running(r#""\u0000""#), running("[2]")]);
    for (session, told) in [(one, &first), (two, &first), (one, &later), (unknown, &first)] {
        store.keep_progress(session, told).await.unwrap();
    }
    store.end_session(one, true).await.unwrap();
    // It comes too late.
    store.keep_progress(one, &first).await.unwrap();
    let kept = store.kept_progress(&all).await.unwrap();
    assert_eq!(kept, HashMap::from([(one, later), (two, first)]));
    assert_eq!(store.sessions().await.unwrap().len(), 1);
}
