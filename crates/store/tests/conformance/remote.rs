//! Remote steps: their rows beside the instance's.

use std::sync::Arc;

use everstep_engine::{
    Answer, Status, What,
    rows::{Lease, Subject, WaitKind},
};
use everstep_protocol::{
    Attempt, Call, InstanceUid, Millis, Payload, Policy, Position, SessionId,
    journal::Fact,
    message::{AttemptOutcome, OpenWait, Then},
    policy::Backoff,
};
use everstep_store::{StepOver, Store};

use super::scene::{
    Reporting, Scene, build, epoch, failure, payload, remote_wait, sleep, sleeping, step, terminate,
};

/// An instance that waits for this remote step.
async fn waiting(scene: &Scene, id: &str, call: &Call, policy: Policy) -> InstanceUid {
    let session = SessionId::generate();
    let uid = scene.held(id, session).await;
    let head = scene.head(uid).await;
    let report = Reporting::of(&head, session).open(sleeping(call, remote_wait(policy))).then(Then::Suspend);
    assert_eq!(scene.on(uid, report).await, Answer::Taken);
    uid
}

fn report(session: SessionId, call: &Call, number: u64, outcome: AttemptOutcome) -> What {
    What::StepReport {
        session,
        build: build(),
        call: call.hash(),
        epoch: epoch(number),
        ran_for: Millis(5),
        outcome,
        progress: None,
        found: false,
        reference: None,
    }
}

pub(crate) async fn w39_a_remote_step_has_a_lease_of_its_own(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (call, session) = (step("resize"), SessionId::generate());
    let uid = waiting(&scene, "o-1", &call, Policy::default()).await;
    let subject = Subject::step(call.hash());
    let loaded = scene.look(uid, &[&call]).await;
    let row = &loaded.rows.remotes[&(uid, call.hash())];
    assert_eq!((&row.call, row.attempt, row.epoch, row.first_at), (&call, Attempt(1), epoch(0), None));
    assert_eq!(row.remote.input, payload(r#"{"picture":"cat"}"#));
    assert_eq!(loaded.rows.waits[&(uid, call.hash())].kind, WaitKind::Remote);
    assert!(loaded.rows.ready.contains_key(&(uid, subject)));

    let claim = What::StepClaim { session, call: call.hash() };
    assert_eq!(scene.on(uid, claim.clone()).await, Answer::Granted);
    assert_eq!(scene.on(uid, claim).await, Answer::Nothing);
    let loaded = scene.look(uid, &[&call]).await;
    assert_eq!(loaded.rows.leases[&(uid, subject)], Lease { session, epoch: epoch(1) });
    assert!(loaded.rows.ready.is_empty());
    let row = &loaded.rows.remotes[&(uid, call.hash())];
    assert_eq!((row.epoch, row.first_at.is_some(), row.granted_at), (epoch(1), true, row.first_at));

    let done = report(session, &call, 1, AttemptOutcome::Succeeded(payload("[1]")));
    assert_eq!(scene.on(uid, done.clone()).await, Answer::Taken);
    assert_eq!(scene.on(uid, done).await, Answer::Nothing);
    let loaded = scene.look(uid, &[&call]).await;
    let head = &loaded.heads[&uid];
    assert_eq!((head.position, head.waits, head.steps), (Position(3), 0, 1));
    assert!(loaded.rows.remotes.is_empty() && loaded.rows.waits.is_empty() && loaded.rows.leases.is_empty());
    assert!(loaded.rows.ready.contains_key(&(uid, Subject::INSTANCE)) && loaded.rows.ready.len() == 1);
}

pub(crate) async fn a_remote_step_is_tried_again(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (call, session) = (step("resize"), SessionId::generate());
    let policy = Policy { delay: Millis(1), backoff: Backoff::Constant, ..Policy::default() };
    let uid = waiting(&scene, "o-1", &call, policy).await;
    scene.on(uid, What::StepClaim { session, call: call.hash() }).await;
    let failed = AttemptOutcome::Failed { failure: failure(), retry_in: None };
    assert_eq!(scene.on(uid, report(session, &call, 1, failed)).await, Answer::Taken);
    let loaded = scene.look(uid, &[&call]).await;
    assert!(loaded.rows.waits[&(uid, call.hash())].due_at.is_some());
    assert_eq!(loaded.rows.remotes[&(uid, call.hash())].attempt, Attempt(2));
    assert!(loaded.rows.ready.is_empty() && loaded.rows.leases.is_empty());

    while scene.on(uid, What::Due { call: call.hash() }).await == Answer::Nothing {
        tokio::task::yield_now().await;
    }
    let loaded = scene.look(uid, &[&call]).await;
    assert_eq!(loaded.rows.waits[&(uid, call.hash())].due_at, None);
    assert!(loaded.rows.ready.contains_key(&(uid, Subject::step(call.hash()))));
    scene.on(uid, What::StepClaim { session, call: call.hash() }).await;
    let lost = What::StepLeaseEnded {
        session,
        build: build(),
        call: call.hash(),
        epoch: None,
        counts: false,
        unstarted: false,
        progress: None,
    };
    assert_eq!(scene.on(uid, lost).await, Answer::Done);
    let loaded = scene.look(uid, &[&call]).await;
    assert_eq!(loaded.rows.remotes[&(uid, call.hash())].epoch, epoch(2));
    assert!(loaded.rows.ready.contains_key(&(uid, Subject::step(call.hash()))));
    let Fact::Attempted(attempted) = &scene.journal(uid).await[2].fact else { panic!("no attempt") };
    assert_eq!(attempted.attempt, Attempt(1));
}

pub(crate) async fn p30_an_end_clears_everything_and_names_who_held_its_steps(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (leased, ready, nap) = (step("held"), step("ready"), sleep("nap"));
    let session = SessionId::generate();
    let uid = scene.held("o-1", session).await;
    let head = scene.head(uid).await;
    let report = Reporting::of(&head, session)
        .open(sleeping(&leased, remote_wait(Policy::default())))
        .open(sleeping(&ready, remote_wait(Policy::default())))
        .open(sleeping(&nap, OpenWait::Sleep(Millis(100_000))))
        .then(Then::Continue);
    scene.on(uid, report).await;
    scene.on(uid, What::StepClaim { session, call: leased.hash() }).await;
    let neighbour = waiting(&scene, "o-2", &leased, Policy::default()).await;
    scene.on(neighbour, What::StepClaim { session, call: leased.hash() }).await;
    let ran = scene.run(vec![super::scene::on(uid, terminate("op"))]).await;
    assert_eq!(ran.answers, [Answer::Done]);
    let lease = Lease { session, epoch: epoch(1) };
    assert_eq!(ran.steps_over, [StepOver { uid, call: leased.hash(), lease }]);

    let loaded = scene.look(uid, &[&leased, &ready, &nap]).await;
    let rows = &loaded.rows;
    assert_eq!(loaded.heads[&uid].status, Status::Terminated);
    assert!(
        rows.leases.is_empty() && rows.ready.is_empty() && rows.waits.is_empty() && rows.remotes.is_empty()
    );
    let loaded = scene.look(neighbour, &[&leased]).await;
    assert_eq!((loaded.rows.waits.len(), loaded.rows.remotes.len(), loaded.rows.leases.len()), (1, 1, 1));
    let late = self::report(session, &leased, 1, AttemptOutcome::Succeeded(Payload::null()));
    assert_eq!(scene.on(uid, late).await, Answer::Fenced);
}

pub(crate) async fn steps_of_one_name_in_two_instances_are_apart(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (a, b, session) = (step("a"), step("b"), SessionId::generate());
    let both = async |id: &str| {
        let uid = scene.held(id, session).await;
        let head = scene.head(uid).await;
        let report = Reporting::of(&head, session)
            .open(sleeping(&a, remote_wait(Policy::default())))
            .open(sleeping(&b, remote_wait(Policy::default())))
            .then(Then::Suspend);
        scene.on(uid, report).await;
        uid
    };
    let (one, two) = (both("o-1").await, both("o-2").await);
    // Step a of one and step b of two, in one batch: the other two stay as they were.
    let claims = [(one, &a), (two, &b)]
        .map(|(uid, call)| super::scene::on(uid, What::StepClaim { session, call: call.hash() }));
    assert_eq!(scene.run(claims.to_vec()).await.answers, [Answer::Granted, Answer::Granted]);
    for (uid, held, ready) in [(one, &a, &b), (two, &b, &a)] {
        let loaded = scene.look(uid, &[&a, &b]).await;
        assert!(loaded.rows.leases.contains_key(&(uid, Subject::step(held.hash()))));
        assert!(loaded.rows.ready.contains_key(&(uid, Subject::step(ready.hash()))));
        assert_eq!((loaded.rows.leases.len(), loaded.rows.ready.len()), (1, 1));
    }
    let reports = [(one, &a), (two, &b)].map(|(uid, call)| {
        super::scene::on(uid, report(session, call, 1, AttemptOutcome::Succeeded(Payload::null())))
    });
    assert_eq!(scene.run(reports.to_vec()).await.answers, [Answer::Taken, Answer::Taken]);
    for (uid, open) in [(one, &b), (two, &a)] {
        let loaded = scene.look(uid, &[&a, &b]).await;
        assert!(loaded.rows.waits.contains_key(&(uid, open.hash())));
        assert_eq!((loaded.rows.waits.len(), loaded.rows.remotes.len()), (1, 1));
    }
}
