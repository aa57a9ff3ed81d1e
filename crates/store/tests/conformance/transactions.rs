//! A transaction is all or nothing, and of two on one head one waits or looks elsewhere.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use everstep_engine::{
    Answer, Input, What, Writes,
    batch::{JournalRow, Loaded},
    rows::Needs,
};
use everstep_protocol::{
    InstanceUid, Position, Run, SessionId, Timestamp,
    journal::{Entry, Fact},
};
use everstep_store::{ErrorKind, Store};

use super::scene::{Scene, message, name_key, on, start};

pub(crate) async fn w19_a_head_is_decided_by_one_at_a_time(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let uid = scene.start("o-1").await;
    let needs = Needs { heads: vec![uid], ..Needs::default() };
    let (inside, is_inside) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let first = {
        let (store, needs) = (Arc::clone(&store), needs.clone());
        let decide = move |loaded: Loaded| {
            let mut head = loaded.heads[&uid].clone();
            inside.send(()).unwrap();
            // Goes on when the other is done, or cannot be done before this one.
            let _ = tokio::task::block_in_place(|| may_go_on.recv_timeout(Duration::from_millis(300)));
            head.deaths = 5;
            Writes { heads: vec![head], ..Writes::default() }
        };
        tokio::spawn(async move { store.transact(needs, Box::new(decide)).await })
    };
    tokio::task::spawn_blocking(move || is_inside.recv().unwrap()).await.unwrap();
    let loaded = scene.load(needs.clone()).await;
    drop(go_on);
    first.await.unwrap().unwrap();
    if loaded.elsewhere.contains(&uid) {
        assert!(loaded.heads.is_empty());
    } else {
        assert_eq!(loaded.heads[&uid].deaths, 5, "it waited, and sees what was written");
    }
    assert_eq!(scene.head(uid).await.deaths, 5);
}

pub(crate) async fn a_dropped_transaction_is_all_or_nothing(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (mut written, mut left) = (0, 0);
    for try_number in 0..60_u64 {
        let starts: Vec<_> =
            (0..5).map(|part| start("orders", &format!("o-{try_number}-{part}"), "1")).collect();
        let inputs = starts.iter().map(|start| Input::Start(Box::new(start.clone()))).collect();
        let limit = Duration::from_micros(try_number * 50);
        drop(tokio::time::timeout(limit, scene.try_run(inputs)).await);
        // The next transaction runs on whatever the dropped one has left.
        let probe = scene.start(&format!("probe-{try_number}")).await;
        assert_eq!(scene.journal(probe).await.len(), 1);
        let mut found = Vec::new();
        // A commit under way when it was dropped may still come through: a lookup that waits for it decides.
        for start in &starts {
            let answers = scene.run(vec![Input::Start(Box::new(start.clone()))]).await.answers;
            found.push(matches!(answers[0], Answer::Exists(_)));
        }
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
        if found[0] { written += 1 } else { left += 1 }
    }
    assert_eq!(written + left, 60);
}

pub(crate) async fn refused_rows_leave_nothing(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let uid = scene.start("o-1").await;
    let head = scene.head(uid).await;
    let entry = Entry { position: Position(1), at: Timestamp(1), fact: Fact::Retried };
    let mut changed = head.clone();
    changed.deaths = 9;
    // The position is taken: a second entry there is refused, and everything with it.
    let writes = Writes {
        heads: vec![changed],
        journal: vec![JournalRow { uid, run: Run(1), entry }],
        parked_deletes: vec![uid],
        ready_deletes: vec![(uid, everstep_engine::rows::Subject::INSTANCE)],
        ..Writes::default()
    };
    let needs = Needs { heads: vec![uid], ..Needs::default() };
    let error = scene.write(needs, writes).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let loaded = scene.look(uid, &[]).await;
    assert_eq!(loaded.heads[&uid], head);
    assert_eq!(loaded.rows.ready.len(), 1);
    assert_eq!(
        scene.on(uid, What::Claim { session: SessionId::generate(), have: None }).await,
        Answer::Granted
    );
}

pub(crate) async fn w18_time_never_goes_back(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let mut last = Timestamp(0);
    for number in 0..20 {
        let uid = scene.start(&format!("o-{number}")).await;
        let head = scene.head(uid).await;
        let without_heads = scene.load(Needs::default()).await.now;
        let unknown =
            scene.load(Needs { heads: vec![InstanceUid::generate()], ..Needs::default() }).await.now;
        assert!(last <= head.created_at && head.created_at <= without_heads && without_heads <= unknown);
        last = unknown;
    }
    assert!(last > Timestamp(1_700_000_000_000_000));
}

pub(crate) async fn unknown_heads_are_neither_here_nor_elsewhere(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (uid, unknown) = (scene.start("o-1").await, InstanceUid::generate());
    let loaded =
        scene.load(Needs { heads: vec![unknown, uid], runnable: vec![unknown], ..Needs::default() }).await;
    assert_eq!((loaded.heads.len(), loaded.elsewhere.len()), (1, 0));
    assert_eq!(
        scene.on(unknown, What::Claim { session: SessionId::generate(), have: None }).await,
        Answer::NotFound
    );
}

pub(crate) async fn needs_may_repeat_themselves(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let uid = scene.start("o-1").await;
    let call = super::scene::step("a").hash();
    let needs = Needs {
        heads: vec![uid; 3],
        runnable: vec![uid; 3],
        waits: vec![(uid, call); 2],
        remotes: vec![(uid, call); 2],
        operations: vec![(uid, "op".to_owned()); 2],
        firsts: vec![uid; 2],
        expiries: vec![uid; 2],
        names: vec![name_key("orders", "o-1"); 2],
        messages: vec![message("a", "b"); 2],
        ..Needs::default()
    };
    let loaded = scene.load(needs).await;
    assert_eq!((loaded.heads.len(), loaded.rows.ready.len(), loaded.names.len()), (1, 1, 1));
    assert_eq!((loaded.rows.firsts.len(), loaded.rows.attributed.len()), (1, 0));
    let again =
        vec![on(uid, What::Claim { session, have: None }), on(uid, What::Claim { session, have: None })];
    assert_eq!(scene.run(again).await.answers, [Answer::Granted, Answer::Nothing]);
}

pub(crate) async fn nothing_to_write_writes_nothing(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    assert_eq!(scene.load(Needs::default()).await.heads.len(), 0);
    let uid = scene.start("o-1").await;
    let before = scene.head(uid).await;
    scene.write(Needs { heads: vec![uid], ..Needs::default() }, Writes::default()).await.unwrap();
    assert_eq!(scene.head(uid).await, before);
}

pub(crate) async fn a_large_batch_is_written_whole(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let starts: Vec<_> = (0..300).map(|number| start("orders", &format!("o-{number}"), "{}")).collect();
    let uids: Vec<InstanceUid> = starts.iter().map(|start| start.uid).collect();
    scene.run(starts.into_iter().map(|start| Input::Start(Box::new(start))).collect()).await;
    let claims = uids.iter().map(|uid| on(*uid, What::Claim { session, have: None })).collect();
    assert_eq!(scene.run(claims).await.answers, vec![Answer::Granted; 300]);
    let heads = scene.load(Needs { heads: uids.clone(), ..Needs::default() }).await;
    assert_eq!((heads.heads.len(), heads.rows.leases.len()), (300, 300));
    let seen = Arc::new(Mutex::new(0));
    for uid in uids {
        *seen.lock().unwrap() += scene.journal(uid).await.len();
    }
    assert_eq!(*seen.lock().unwrap(), 300);
}
