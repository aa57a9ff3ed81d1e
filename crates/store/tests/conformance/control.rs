//! What operations leave behind: pauses and cancels, new runs, times of deletion, and nothing of what is deleted.

use std::sync::Arc;

use everstep_engine::{Answer, Input, StatusWord, What, retention::Own, rows::Cancel};
use everstep_protocol::{
    Generation, InstanceUid, Millis, Policy, Position, Run, SessionId,
    journal::{End, Fact},
    message::{Again, OpenWait, Then},
};
use everstep_store::{Filter, Range, Store};

use super::scene::{
    Reporting, Scene, name_key, namespace, open_session, payload, remote_wait, sleep, sleeping, start, step,
    succeeded,
};

fn pause() -> What {
    What::Pause { operation: "p".to_owned() }
}

fn resume() -> What {
    What::Resume { operation: "r".to_owned() }
}

/// Waits for a sleep that is due at once and a remote step.
async fn waiting(scene: &Scene, id: &str, session: SessionId) -> InstanceUid {
    let uid = scene.held(id, session).await;
    let report = Reporting::of(&scene.head(uid).await, session)
        .open(sleeping(&sleep("nap"), OpenWait::Sleep(Millis(1))))
        .open(sleeping(&step("img"), remote_wait(Policy::default())))
        .then(Then::Suspend);
    assert_eq!(scene.on(uid, report).await, Answer::Taken);
    uid
}

pub(crate) async fn p29_waits_of_a_paused_instance_are_not_due_until_the_resume(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    store.open_session(&open_session(session)).await.unwrap();
    let paused = waiting(&scene, "paused", session).await;
    let free = waiting(&scene, "free", session).await;
    assert_eq!(scene.on(paused, pause()).await, Answer::Done);
    let due = async || {
        let rows = store.due(None, 10).await.unwrap().rows;
        rows.iter().map(|row| row.0).collect::<Vec<_>>()
    };
    while due().await.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(due().await, [free]);
    let control = scene.look(paused, &[]).await.rows.controls[&paused];
    assert!(control.paused_at.is_some() && control.cancel.is_none());
    let before = scene.look(paused, &[&sleep("nap")]).await.rows.waits[&(paused, sleep("nap").hash())].due_at;
    assert_eq!(scene.on(paused, resume()).await, Answer::Done);
    let after = scene.look(paused, &[&sleep("nap")]).await.rows.waits[&(paused, sleep("nap").hash())].due_at;
    assert!(after > before, "a mark that has passed it finds it: {before:?} {after:?}");
    assert_eq!(due().await, [free, paused]);
    assert!(scene.look(paused, &[]).await.rows.controls.is_empty());
}

pub(crate) async fn p28_pausing_paused_and_cancelled_are_shown_and_listed(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    store.open_session(&open_session(session)).await.unwrap();
    let pausing = scene.held("pausing", session).await;
    let remote = waiting(&scene, "remote", session).await;
    let claim = What::StepClaim { session, call: step("img").hash() };
    assert_eq!(scene.on(remote, claim).await, Answer::Granted);
    let paused = scene.start("paused").await;
    for uid in [pausing, remote, paused] {
        assert_eq!(scene.on(uid, pause()).await, Answer::Done);
    }
    let cancelled = scene.held("cancelled", session).await;
    let end = End::Cancelled { reason: Some("enough".to_owned()) };
    let report = Reporting::of(&scene.head(cancelled).await, session).then(Then::End(end.clone()));
    scene.on(cancelled, report).await;
    let cases = [
        (StatusWord::Pausing, vec!["remote", "pausing"]),
        (StatusWord::Paused, vec!["paused"]),
        (StatusWord::Cancelled, vec!["cancelled"]),
        (StatusWord::Running, vec![]),
        (StatusWord::Waiting, vec![]),
        (StatusWord::Queued, vec![]),
    ];
    for (status, ids) in cases {
        for workflow in [None, Some("orders".parse().unwrap())] {
            let filter =
                Filter { namespace: namespace(), workflow, status: Some(status), ..Filter::default() };
            let page = store.instances(&filter, None, 10).await.unwrap();
            let found: Vec<_> = page.rows.iter().map(|row| row.id.as_str()).collect();
            assert_eq!(found, ids, "{status:?}");
        }
        for id in ids {
            assert_eq!(
                store.instance(&name_key("orders", id)).await.unwrap().unwrap().status,
                status,
                "{id}"
            );
        }
    }
    let view = store.instance(&name_key("orders", "cancelled")).await.unwrap().unwrap();
    assert_eq!(view.end, Some(end));
}

pub(crate) async fn w06_heartbeats_say_which_holders_are_to_let_go(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    store.open_session(&open_session(session)).await.unwrap();
    let paused = scene.held("paused", session).await;
    scene.held("free", session).await;
    scene.on(paused, pause()).await;
    let heard = everstep_store::Heard { session, inbox: "inbox-1".to_owned() };
    let kept = store.heard(&[heard]).await.unwrap().remove(0).unwrap();
    let told: Vec<_> = kept.iter().filter(|kept| kept.paused).map(|kept| kept.uid).collect();
    assert_eq!((kept.len(), told), (2, vec![paused]));
}

pub(crate) async fn p30_a_cancel_clears_what_is_open_and_has_a_deadline(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    store.open_session(&open_session(session)).await.unwrap();
    let uid = waiting(&scene, "one", session).await;
    let claim = What::StepClaim { session, call: step("img").hash() };
    assert_eq!(scene.on(uid, claim).await, Answer::Granted);
    let cancel = |within| What::Cancel { operation: "c".to_owned(), reason: None, within, rollback: true };
    let ran = scene.run(vec![Input::On { instance: uid, what: cancel(Millis(1)) }]).await;
    assert_eq!(ran.answers, [Answer::Done]);
    assert_eq!(ran.steps_over.len(), 1, "whoever runs its remote step is told");
    let looked = scene.look(uid, &[&sleep("nap"), &step("img")]).await;
    assert!(looked.rows.waits.is_empty() && looked.rows.remotes.is_empty());
    let cancel = Cancel { position: Position(4), until: Some(ran.now.plus(Millis(1))), rollback: true };
    assert_eq!(looked.rows.controls[&uid].cancel, Some(cancel));
    while store.overdue(10).await.unwrap() != [uid] {
        tokio::task::yield_now().await;
    }
    // A rollback follows, which has no deadline, and ends like anything else.
    assert_eq!(scene.on(uid, What::Overdue).await, Answer::Done);
    assert!(store.overdue(10).await.unwrap().is_empty());
    let rolling = scene.look(uid, &[]).await.rows.controls[&uid];
    assert_eq!(rolling.cancel, Some(Cancel { position: Position(5), until: None, rollback: true }));
    let view = store.instance(&name_key("orders", "one")).await.unwrap().unwrap();
    assert!(rolling.compensating_at.is_some() && view.control == rolling, "{rolling:?}");
    let terminate = What::Terminate { operation: "t".to_owned(), reason: None };
    assert_eq!(scene.on(uid, terminate).await, Answer::Done);
    assert!(scene.look(uid, &[]).await.rows.controls.is_empty());
}

pub(crate) async fn p31_a_new_run_has_its_own_journal_and_the_earlier_one_stays(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    store.open_session(&open_session(session)).await.unwrap();
    let uid = scene.held("one", session).await;
    let report = Reporting::of(&scene.head(uid).await, session)
        .result(succeeded(&step("a"), r#"{"large":true}"#))
        .then(Then::End(End::Complete(payload("42"))));
    scene.on(uid, report).await;
    let first = scene.journal(uid).await;
    let restart = What::Restart { operation: "r".to_owned(), prepared: None };
    assert_eq!(scene.on(uid, restart.clone()).await, Answer::Done);
    assert_eq!(scene.on(uid, restart).await, Answer::Done, "once");
    let head = scene.head(uid).await;
    assert_eq!((head.run, head.position, head.ended_at), (Run(2), Position(1), None));
    let range = Range { uid, run: Run(2), after: Position(0) };
    let second = store.journal(vec![range], usize::MAX).await.unwrap().remove(0);
    assert_eq!((second.len(), &second[0].fact), (1, &first[0].fact));
    assert_eq!(scene.journal(uid).await, first);
    assert!(matches!(first[2].fact, Fact::Ended(_)));
    let view = store.instance(&name_key("orders", "one")).await.unwrap().unwrap();
    assert_eq!((view.status, view.run, view.end), (StatusWord::Queued, Run(2), None));
    assert!(store.expired(10).await.unwrap().is_empty());
}

pub(crate) fn again(n: u64) -> Then {
    Then::Again(Again {
        input: payload(&n.to_string()),
        seed: [1; 32],
        cancelled: None,
        attributes: Vec::new(),
        hook: None,
        trace: None,
    })
}

pub(crate) async fn p36_journals_before_the_last_generation_are_removed_in_small_parts(
    store: Arc<dyn Store>,
) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    store.open_session(&open_session(session)).await.unwrap();
    let uid = scene.held("one", session).await;
    let other = scene.held("two", session).await;
    for n in 1..=40 {
        let report = Reporting::of(&scene.head(uid).await, session);
        assert_eq!(scene.on(uid, report.then(again(n))).await, Answer::Taken);
        assert_eq!(scene.on(uid, What::Claim { session, have: None }).await, Answer::Granted);
    }
    let head = scene.head(uid).await;
    assert_eq!((head.run, head.generation, head.position), (Run(41), Generation(41), Position(1)));
    let mut swept = Vec::new();
    while swept.last() != Some(&0) {
        swept.push(store.sweep(15).await.unwrap());
    }
    // Though 39 cuts name the first run: started and continued of each, and less than was asked for when none is left.
    assert_eq!(swept, [15, 15, 15, 15, 15, 3, 0]);
    let of = async |uid, run| {
        let range = Range { uid, run: Run(run), after: Position(0) };
        let entries = store.journal(vec![range], usize::MAX).await.unwrap().remove(0);
        entries.iter().map(|entry| entry.fact.word()).collect::<Vec<_>>()
    };
    assert_eq!(of(uid, 39).await, Vec::<&str>::new());
    assert_eq!(of(uid, 40).await, ["started", "continued"]);
    assert_eq!(of(uid, 41).await, ["started"]);
    assert_eq!(of(other, 1).await, ["started"]);
    // What is deleted afterwards leaves nothing.
    assert_eq!(scene.on(uid, super::scene::terminate("t")).await, Answer::Done);
    let delete = What::Delete { operation: "d".to_owned(), terminate: false };
    assert_eq!(scene.on(uid, delete).await, Answer::Done);
    while store.sweep(15).await.unwrap() > 0 {}
    assert_eq!(of(uid, 41).await, Vec::<&str>::new());
}

pub(crate) async fn p32_what_is_past_its_retention_is_found_and_deleted_in_small_parts(
    store: Arc<dyn Store>,
) {
    let scene = Scene::new(Arc::clone(&store));
    let own = |millis| Own { complete: None, failed: Some(Millis(millis)) };
    let started: Vec<_> = (0..200)
        .map(|n| everstep_engine::start::Start {
            retention: own(if n < 150 { 0 } else { 3_600_000 }),
            ..start("orders", &format!("o-{n}"), "{}")
        })
        .collect();
    let uids: Vec<_> = started.iter().map(|start| start.uid).collect();
    scene.run(started.into_iter().map(|start| Input::Start(Box::new(start))).collect()).await;
    let terminate =
        |instance: &InstanceUid| Input::On { instance: *instance, what: super::scene::terminate("t") };
    scene.run(uids.iter().map(terminate).collect()).await;
    assert_eq!(scene.head(uids[0]).await.retention, own(0));
    let mut deleted = 0;
    loop {
        let expired = store.expired(40).await.unwrap();
        if expired.is_empty() {
            break;
        }
        assert!(expired.len() <= 40 && expired.iter().all(|uid| uids[..150].contains(uid)));
        let inputs = expired.iter().map(|uid| Input::On { instance: *uid, what: What::Expire }).collect();
        deleted += scene.run(inputs).await.answers.iter().filter(|answer| **answer == Answer::Done).count();
    }
    assert_eq!(deleted, 150);
    // Started and ended: two entries each.
    let mut swept = 0;
    loop {
        let count = store.sweep(70).await.unwrap();
        assert!(count <= 70);
        swept += count;
        if count < 70 {
            break;
        }
    }
    assert_eq!(swept, 300);
    let filter = Filter { namespace: namespace(), ..Filter::default() };
    assert_eq!(store.instances(&filter, None, 200).await.unwrap().rows.len(), 50);
    assert_eq!(store.find(&name_key("orders", "o-0")).await.unwrap(), None);
    assert_eq!(store.find(&name_key("orders", "o-199")).await.unwrap(), Some(uids[199]));
}

/// An instance with a row in every table that can name one.
#[allow(dead_code, reason = "the files of each store use it")]
pub(crate) async fn with_every_row(scene: &Scene, id: &str) -> InstanceUid {
    let session = SessionId::generate();
    scene.store.open_session(&open_session(session)).await.unwrap();
    let named = everstep_engine::start::Start {
        message: Some(super::scene::message("shop", &format!("message of {id}"))),
        ..start("orders", id, "{}")
    };
    let uid = named.uid;
    assert_eq!(scene.run(vec![Input::Start(Box::new(named))]).await.answers, [Answer::Created]);
    assert_eq!(scene.on(uid, What::Claim { session, have: None }).await, Answer::Granted);
    let report = Reporting::of(&scene.head(uid).await, session)
        .result(succeeded(&step("a"), "1"))
        .open(sleeping(&sleep("nap"), OpenWait::Sleep(Millis(1 << 40))))
        .open(sleeping(&step("img"), remote_wait(Policy::default())))
        .shows(payload("1"), vec![everstep_protocol::Attribute::from_words("a=1").unwrap()])
        .then(Then::Continue);
    assert_eq!(scene.on(uid, report).await, Answer::Taken);
    assert_eq!(scene.on(uid, pause()).await, Answer::Done);
    uid
}
