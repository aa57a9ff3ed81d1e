//! Heads and the side rows of instances that run.

use std::sync::Arc;

use everstep_engine::{
    Answer, Input, Status, What,
    decide::{Rekeying, Unparking},
    rows::{Lease, Needs, Subject, WaitKind},
};
use everstep_protocol::{
    Fingerprint, Millis, Position, Run, SessionId,
    journal::{Changed, End, Entry, Fact, KeyChoice, ParkCode, Parked, QuestionId},
    message::{OpenWait, Then},
};
use everstep_store::{AskedView, AttentionFilter, Store};

use super::scene::{
    Reporting, Scene, ends, epoch, key, name_key, namespace, on, payload, sleep, sleeping, start, step,
    succeeded, terminate,
};

pub(crate) async fn a_start_is_written_as_one(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let start = start("orders", "o-1", r#"{"n":1}"#);
    let uid = start.uid;
    let ran = scene.run(vec![Input::Start(Box::new(start.clone()))]).await;
    assert_eq!(ran.answers, [Answer::Created]);

    let loaded = scene.look(uid, &[]).await;
    let head = &loaded.heads[&uid];
    assert_eq!((head.status, head.position, head.created_at), (Status::Open, Position(1), ran.now));
    assert_eq!(
        (&head.namespace, &head.workflow, &head.id),
        (&start.name.namespace, &start.name.workflow, &start.name.id)
    );
    assert!(loaded.rows.ready.contains_key(&(uid, Subject::INSTANCE)));
    assert!(loaded.rows.leases.is_empty() && loaded.rows.parked.is_empty());
    assert_eq!(scene.store.find(&start.name).await.unwrap(), Some(uid));
    assert_eq!(scene.store.find(&name_key("orders", "o-2")).await.unwrap(), None);
    let journal = scene.journal(uid).await;
    assert_eq!(journal.len(), 1);
    let Fact::Started(started) = &journal[0].fact else { panic!("{journal:?}") };
    assert_eq!((&started.input, started.seed), (&start.input, [7; 32]));
}

pub(crate) async fn an_instance_runs_from_start_to_end(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (session, nap, pay) = (SessionId::generate(), sleep("nap"), step("pay"));
    let uid = scene.held("o-1", session).await;
    let loaded = scene.look(uid, &[]).await;
    assert_eq!(loaded.rows.leases[&(uid, Subject::INSTANCE)], Lease { session, epoch: epoch(1) });
    assert!(loaded.rows.ready.is_empty());

    let report =
        Reporting::of(&loaded.heads[&uid], session).result(succeeded(&pay, r#""paid""#)).then(Then::Continue);
    assert_eq!(scene.on(uid, report).await, Answer::Taken);
    let report = Reporting::of(&scene.head(uid).await, session)
        .open(sleeping(&nap, OpenWait::Sleep(Millis(1))))
        .then(Then::Suspend);
    assert_eq!(scene.on(uid, report).await, Answer::Taken);
    let loaded = scene.look(uid, &[&nap]).await;
    let head = &loaded.heads[&uid];
    assert_eq!((head.position, head.waits, head.steps, head.reports), (Position(3), 1, 1, 2));
    assert!(loaded.rows.leases.is_empty() && loaded.rows.ready.is_empty());
    let wait = &loaded.rows.waits[&(uid, nap.hash())];
    assert_eq!((&wait.call, wait.kind), (&nap, WaitKind::Sleep));
    assert_eq!(wait.due_at, Some(wait.since.plus(Millis(1))));

    let due = What::Due { call: nap.hash() };
    while scene.on(uid, due.clone()).await == Answer::Nothing {
        tokio::task::yield_now().await;
    }
    let loaded = scene.look(uid, &[&nap]).await;
    assert!(loaded.rows.waits.is_empty());
    assert!(loaded.rows.ready.contains_key(&(uid, Subject::INSTANCE)));
    assert_eq!(scene.on(uid, What::Claim { session, have: None }).await, Answer::Granted);
    let head = scene.head(uid).await;
    assert_eq!((head.epoch, head.reports, head.waits), (epoch(2), 0, 0));

    assert_eq!(scene.on(uid, ends(&head, session)).await, Answer::Taken);
    let loaded = scene.look(uid, &[&nap]).await;
    let head = &loaded.heads[&uid];
    assert_eq!((head.status, head.ended_at.is_some()), (Status::Complete, true));
    assert!(loaded.rows.leases.is_empty() && loaded.rows.ready.is_empty());
    let kinds: Vec<i16> = scene.journal(uid).await.iter().map(|entry| entry.fact.code()).collect();
    assert_eq!(kinds, [1, 2, 3, 4, 8]);
}

pub(crate) async fn changes_of_one_row_in_one_batch_fold_together(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (session, other) = (SessionId::generate(), SessionId::generate());
    let uid = scene.start("o-1").await;
    // The first lease is made and unmade within the batch, the ready row goes, comes back and goes again.
    let answers = scene
        .run(vec![
            on(uid, What::Claim { session, have: None }),
            on(uid, What::GiveBack { session, epoch: epoch(1) }),
            on(uid, What::Claim { session: other, have: None }),
        ])
        .await
        .answers;
    assert_eq!(answers, [Answer::Granted, Answer::Done, Answer::Granted]);
    let loaded = scene.look(uid, &[]).await;
    assert_eq!(loaded.rows.leases[&(uid, Subject::INSTANCE)], Lease { session: other, epoch: epoch(2) });
    assert!(loaded.rows.ready.is_empty());
    // A lease that is replaced is deleted and inserted.
    let back = What::GiveBack { session: other, epoch: epoch(2) };
    scene.run(vec![on(uid, back), on(uid, What::Claim { session, have: None })]).await;
    let loaded = scene.look(uid, &[]).await;
    assert_eq!(loaded.rows.leases[&(uid, Subject::INSTANCE)], Lease { session, epoch: epoch(3) });
    // A ready row that is replaced as well, and a question that is asked and answered.
    let head = loaded.heads[&uid].clone();
    let question = Parked::new(ParkCode::BodyPanicked, "it panicked".to_owned());
    let inputs = vec![
        on(uid, Reporting::of(&head, session).then(Then::Park(question))),
        on(uid, What::Retry { operation: "r".to_owned() }),
        on(uid, What::Claim { session: other, have: None }),
        on(uid, What::GiveBack { session: other, epoch: epoch(4) }),
    ];
    let answers = scene.run(inputs).await.answers;
    assert_eq!(answers, [Answer::Parked, Answer::Done, Answer::Granted, Answer::Done]);
    let loaded = scene.look(uid, &[]).await;
    assert!(loaded.rows.leases.is_empty() && loaded.rows.parked.is_empty() && loaded.rows.ready.len() == 1);
    // A claim and an end in one batch.
    let answers =
        scene.run(vec![on(uid, What::Claim { session, have: None }), on(uid, terminate("op"))]).await.answers;
    assert_eq!(answers, [Answer::Granted, Answer::Done]);
    let loaded = scene.look(uid, &[]).await;
    assert_eq!(loaded.heads[&uid].status, Status::Terminated);
    assert!(loaded.rows.leases.is_empty() && loaded.rows.ready.is_empty());
}

pub(crate) async fn a_wake_in_a_batch_goes_to_the_holder(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (session, nap) = (SessionId::generate(), sleep("nap"));
    let uid = scene.held("o-1", session).await;
    let opened = sleeping(&nap, OpenWait::Sleep(Millis(1)));
    let head = scene.head(uid).await;
    scene.on(uid, Reporting::of(&head, session).open(opened).then(Then::Continue)).await;
    while scene.on(uid, What::Due { call: nap.hash() }).await == Answer::Nothing {
        tokio::task::yield_now().await;
    }
    let loaded = scene.look(uid, &[&nap]).await;
    assert!(loaded.rows.waits.is_empty() && loaded.rows.ready.is_empty());
    assert_eq!(loaded.heads[&uid].position, Position(3));
}

pub(crate) async fn a_parked_instance_waits_for_a_person(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let uid = scene.held("o-1", session).await;
    let parked = Parked::new(ParkCode::JournalMismatch, "entry 3 is a \"step\", not a sleep: é");
    let head = scene.head(uid).await;
    let answer = scene.on(uid, Reporting::of(&head, session).then(Then::Park(parked.clone()))).await;
    assert_eq!(answer, Answer::Parked);
    let loaded = scene.look(uid, &[]).await;
    assert_eq!(loaded.rows.parked[&uid], parked);
    assert!(loaded.rows.leases.is_empty() && loaded.rows.ready.is_empty());
    assert_eq!(scene.on(uid, What::Claim { session, have: None }).await, Answer::NotGranted);
    assert_eq!(scene.on(uid, What::Retry { operation: "r".to_owned() }).await, Answer::Done);
    let loaded = scene.look(uid, &[]).await;
    assert!(loaded.rows.parked.is_empty());
    assert!(loaded.rows.ready.contains_key(&(uid, Subject::INSTANCE)));
}

pub(crate) async fn p08_what_is_asked_about_a_key_and_what_was_decided_are_read_back(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    let uid = scene.held("o-1", session).await;
    let changed =
        Changed { call: step("pay"), input: Fingerprint::from_bytes([2; 32]), key: key(), asked_at: None };
    let parked = Parked { changed: Some(Box::new(changed)), ..Parked::new(ParkCode::InputChanged, "é") };
    let head = scene.head(uid).await;
    assert_eq!(scene.on(uid, Reporting::of(&head, session).then(Then::Park(parked))).await, Answer::Parked);
    let loaded = scene.look(uid, &[]).await;
    let asked = loaded.rows.parked[&uid].changed.clone().unwrap();
    assert_eq!((asked.call.clone(), asked.asked_at), (step("pay"), Some(Position(2))));
    let shown = store.instance(&name_key("orders", "o-1")).await.unwrap().unwrap();
    assert_eq!(shown.parked.unwrap().1.changed.as_ref(), Some(&asked));
    let filter = AttentionFilter { namespace: namespace(), workflow: None, kind: None, older_than: None };
    let listed = store.attention(&filter, None, 10).await.unwrap();
    assert!(matches!(&listed[0].asked, AskedView::Parked(parked) if parked.changed.as_ref() == Some(&asked)));

    let question = QuestionId { run: Run(1), position: Position(2) };
    let rekeying =
        Rekeying {
            question, choice: Unparking::Key(KeyChoice::OldKey), by: None, why: Some("é".to_owned())
        };
    let rekey = What::Rekey { operation: "k".to_owned(), rekeying: Box::new(rekeying) };
    assert_eq!(scene.on(uid, rekey).await, Answer::Done);
    for run in [1, 2, 3] {
        let needs = Needs { heads: vec![uid], firsts: vec![uid], ..Needs::default() };
        let keys = &scene.load(needs).await.rows.keys[&uid];
        let [Entry { fact: Fact::Rekeyed(rekeyed), .. }] = &keys[..] else { panic!("run {run}: {keys:?}") };
        assert_eq!((rekeyed.kept, rekeyed.why.as_deref()), (Some(key()), Some("é")), "run {run}");
        let restart = What::Restart { operation: format!("r{run}"), prepared: None };
        assert_eq!(scene.on(uid, restart).await, Answer::Done);
    }
    let other = scene.start("o-2").await;
    let needs = Needs { heads: vec![other], firsts: vec![other], ..Needs::default() };
    assert!(scene.load(needs).await.rows.keys.is_empty());
}

pub(crate) async fn an_operation_keeps_its_first_answer(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let uid = scene.start("o-1").await;
    let retry = |operation: &str| What::Retry { operation: operation.to_owned() };
    assert_eq!(scene.on(uid, retry("op-1")).await, Answer::NotParked);
    assert_eq!(scene.on(uid, terminate("op-2")).await, Answer::Done);
    assert_eq!(scene.on(uid, terminate("op-2")).await, Answer::Done);
    assert_eq!(scene.on(uid, terminate("op-3")).await, Answer::Refused(Status::Terminated));
    assert_eq!(scene.on(uid, retry("op-1")).await, Answer::NotParked);
    let operations = ["op-1", "op-2", "op-3", "op-4"].map(|operation| (uid, operation.to_owned())).to_vec();
    let loaded = scene.load(Needs { heads: vec![uid], operations, ..Needs::default() }).await;
    assert_eq!(loaded.rows.operations.len(), 3);
    assert_eq!(loaded.rows.operations[&(uid, "op-3".to_owned())], Answer::Refused(Status::Terminated));
}

pub(crate) async fn a_holder_that_dies_leaves_the_instance_ready(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let uid = scene.held("o-1", session).await;
    let lost = What::LeaseEnded { session, epoch: None, slots: 3, counts: true, progress: Vec::new() };
    assert_eq!(scene.on(uid, lost.clone()).await, Answer::Done);
    assert_eq!(scene.on(uid, lost).await, Answer::Nothing);
    let loaded = scene.look(uid, &[]).await;
    assert_eq!(loaded.heads[&uid].deaths, 1);
    assert!(loaded.rows.leases.is_empty());
    assert!(loaded.rows.ready.contains_key(&(uid, Subject::INSTANCE)));
}

pub(crate) async fn texts_with_nul_are_taken(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let uid = scene.held("o-1", session).await;
    let message = "the body panicked: \0";
    let parked = Parked::new(ParkCode::BodyPanicked, message.to_owned());
    let head = scene.head(uid).await;
    scene.on(uid, Reporting::of(&head, session).then(Then::Park(parked.clone()))).await;
    assert_eq!(scene.journal(uid).await.pop().unwrap().fact, Fact::Parked(parked));
    assert_eq!(scene.look(uid, &[]).await.rows.parked[&uid].code, ParkCode::BodyPanicked);
    let terminate = What::Terminate { operation: "o\0p".to_owned(), reason: Some("\0".to_owned()) };
    assert_eq!(scene.on(uid, terminate.clone()).await, Answer::Done);
    assert_eq!(scene.on(uid, terminate).await, Answer::Done);
    let end = Fact::Ended(End::Terminated { reason: Some("\0".to_owned()) });
    assert_eq!(scene.journal(uid).await.pop().unwrap().fact, end);
    let mut start = start("orders", "o-2", "1");
    start.message = Some(super::scene::message("a\0", "m\0"));
    let answers = scene.run(vec![Input::Start(Box::new(start.clone()))]).await.answers;
    assert_eq!(answers, [Answer::Created]);
    start.input = payload("2");
    assert_eq!(scene.run(vec![Input::Start(Box::new(start))]).await.answers, [Answer::Created]);
}
