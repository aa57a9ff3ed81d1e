//! What is due, what is offered, who has which duty.

use std::{collections::HashSet, sync::Arc};

use everstep_engine::{
    Answer, Input, What, Writes,
    batch::ReadyRow,
    rows::{Needs, Subject, WaitKind, WaitRow},
    start::Start,
};
use everstep_protocol::{BuildName, CoordinatorId, InstanceUid, Millis, Pin, Pool, SessionId, Timestamp};
use everstep_store::{Queue, StatusWord, Store};

use super::scene::{
    Scene, build, name_key, namespace, open_session, pool, sleep, start, step, terminate, workflow,
};

pub(crate) async fn w23_due_waits_come_in_order_from_the_mark(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let due = store.due(None, 10).await.unwrap();
    assert_eq!((due.rows.len(), due.next), (0, None));
    assert!(due.now > Timestamp(1_700_000_000_000_000));
    let call = sleep("nap");
    let later = due.now.plus(Millis(3_600_000));
    let times = [
        Some(Timestamp(30)),
        Some(later),
        Some(Timestamp(10)),
        None,
        Some(Timestamp(20)),
        Some(Timestamp(10)),
    ];
    let uids: Vec<InstanceUid> = times.iter().map(|_| InstanceUid::generate()).collect();
    let kind = |due_at: Option<_>| due_at.map_or(WaitKind::Remote, |_| WaitKind::Sleep);
    let wait = |due_at| WaitRow {
        call: call.clone(),
        kind: kind(due_at),
        since: Timestamp(1),
        due_at,
        awaited: None,
        question: None,
    };
    let waits = uids.iter().copied().zip(times).map(|(uid, due_at)| (uid, wait(due_at))).collect();
    scene.write(Needs::default(), Writes { waits, ..Writes::default() }).await.unwrap();

    let due = store.due(None, 10).await.unwrap();
    let found: Vec<i64> = due.rows.iter().map(|row| row.2.0).collect();
    assert_eq!((found, due.next), (vec![10, 10, 20, 30], Some(later)));
    assert!(due.rows.iter().all(|row| row.1 == call.hash()));
    assert_eq!((due.rows[2].0, due.rows[3].0), (uids[4], uids[0]));
    let found = async |mark: Option<i64>, limit| {
        let due = store.due(mark.map(Timestamp), limit).await.unwrap();
        due.rows.iter().map(|row| row.2.0).collect::<Vec<_>>()
    };
    assert_eq!(found(None, 3).await, [10, 10, 20]);
    assert_eq!(found(Some(20), 10).await, [20, 30]);
    assert_eq!(found(Some(31), 10).await, [0; 0]);
    assert_eq!(found(Some(later.0 + 1), 10).await, [0; 0]);
    // It takes no locks and says the same again.
    assert_eq!(store.due(None, 10).await.unwrap().rows, due.rows);
}

fn ready(workflow_name: &str, pool: Option<Pool>, at: i64, offered: bool) -> ReadyRow {
    ReadyRow {
        uid: InstanceUid::generate(),
        subject: pool.as_ref().map_or(Subject::INSTANCE, |_| Subject::step(step("s").hash())),
        namespace: namespace(),
        workflow: workflow(workflow_name),
        build: None,
        pool,
        ready_at: Timestamp(at),
        offered,
    }
}

async fn write(scene: &Scene, ready: Vec<ReadyRow>) -> Vec<InstanceUid> {
    let uids = ready.iter().map(|row| row.uid).collect();
    scene.write(Needs::default(), Writes { ready, ..Writes::default() }).await.unwrap();
    uids
}

fn orders() -> Queue {
    Queue::Run(namespace(), workflow("orders"))
}

const LONG: Millis = Millis(3_600_000);

pub(crate) async fn w15_offers_keep_to_the_window(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let rows = (0..10).map(|number| ready("orders", None, 100 - number, false)).collect();
    let mut uids = write(&scene, rows).await;
    uids.reverse();
    let offers = store.offer(&[orders()], 4, LONG).await.unwrap();
    let offered: Vec<InstanceUid> = offers.rows.iter().map(|row| row.1).collect();
    assert_eq!(offered, uids[..4], "oldest first");
    assert!(offers.rows.iter().all(|row| row.0 == orders() && row.2 == Subject::INSTANCE));
    assert_eq!(offers.backlog, [orders()]);
    // Full: nothing more until one of them is claimed.
    let offers = store.offer(&[orders()], 4, LONG).await.unwrap();
    assert_eq!((offers.rows.len(), offers.backlog), (0, vec![orders()]));
    let gone = vec![(uids[1], Subject::INSTANCE), (uids[2], Subject::INSTANCE)];
    scene.write(Needs::default(), Writes { ready_deletes: gone, ..Writes::default() }).await.unwrap();
    let offers = store.offer(&[orders()], 4, LONG).await.unwrap();
    let offered: Vec<InstanceUid> = offers.rows.iter().map(|row| row.1).collect();
    assert_eq!((offered, offers.backlog.len()), (vec![uids[4], uids[5]], 1));
    let offers = store.offer(&[orders()], 100, LONG).await.unwrap();
    assert_eq!((offers.rows.len(), offers.backlog.len()), (4, 0));
    assert_eq!(store.offer(&[], 4, LONG).await.unwrap().rows.len(), 0);
}

pub(crate) async fn w15_a_backlog_is_seen_without_taking_anything(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let rows = (0..6).map(|number| ready("orders", None, 100 + number, false)).collect();
    write(&scene, rows).await;
    let backlog = async |window| store.backlog(&[orders()], window, LONG).await.unwrap();
    assert_eq!((backlog(5).await, backlog(6).await), (vec![orders()], vec![]));
    // Nothing was marked: all of them are still there to offer.
    assert_eq!(store.offer(&[orders()], 4, LONG).await.unwrap().rows.len(), 4);
    assert_eq!((backlog(4).await, backlog(6).await), (vec![orders()], vec![]), "what is offered counts");
    let steps = Queue::Step(namespace(), pool());
    assert_eq!(store.backlog(&[steps], 1, LONG).await.unwrap(), []);
    assert_eq!(store.backlog(&[], 1, LONG).await.unwrap(), []);
}

pub(crate) async fn o22_queues_that_nobody_serves_are_counted(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let rows = vec![
        ready("orders", None, 1, false),
        ready("orders", None, 2, true),
        ready("orders", Some(pool()), 3, false),
        ready("gpu", None, 4, false),
    ];
    write(&scene, rows).await;
    let pinned = Start { pin: Some(Pin::Build(build())), ..start("orders", "pinned", "1") };
    scene.run(vec![Input::Start(Box::new(pinned))]).await;
    let of_build = Queue::Pinned(namespace(), workflow("orders"), build());
    let (steps, like_pool) = (Queue::Step(namespace(), pool()), Queue::Run(namespace(), workflow("gpu")));
    let unserved = async |served: &[Queue], limit| {
        let mut found = store.unserved(served, limit).await.unwrap();
        found.sort_by_key(|(queue, _)| queue.to_string());
        found
    };
    let all = [(steps.clone(), 1), (like_pool.clone(), 1), (orders(), 2), (of_build.clone(), 1)];
    assert_eq!(unserved(&[], 9).await, all);
    assert_eq!(unserved(&[orders(), steps, of_build], 9).await, [(like_pool, 1)]);
    assert_eq!(unserved(&[], 3).await.len(), 3);
    assert_eq!(unserved(&all.clone().map(|(queue, _)| queue), 9).await, []);
    // The depths are the same, of whoever serves them, with the age of the oldest.
    let mut depths = store.depths(&[], 9).await.unwrap();
    depths.sort_by_key(|depth| depth.queue.to_string());
    let counted: Vec<_> = depths.iter().map(|depth| (depth.queue.clone(), depth.rows)).collect();
    assert_eq!(counted, all);
    assert!(depths.iter().any(|depth| depth.oldest > Millis(3_600_000)), "written long ago: {depths:?}");
    assert!(depths.iter().any(|depth| depth.oldest < Millis(3_600_000)), "written now: {depths:?}");
    assert_eq!(store.depths(&[], 3).await.unwrap().len(), 3);
    // What is named is measured whatever else there is, and nothing is in the answer twice.
    for (queue, rows) in &all {
        let depths = store.depths(&[queue.clone(), queue.clone()], 0).await.unwrap();
        let counted: Vec<_> = depths.into_iter().map(|depth| (depth.queue, depth.rows)).collect();
        assert_eq!(counted, [(queue.clone(), *rows)]);
        assert_eq!(store.depths(std::slice::from_ref(queue), 9).await.unwrap().len(), 4);
    }
    let empty = Queue::Run(namespace(), workflow("nothing"));
    assert_eq!(store.depths(&[empty], 0).await.unwrap().len(), 0);
}

pub(crate) async fn offers_are_made_again(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    // Offered with the commit that made it ready, a moment ago.
    let now = store.due(None, 1).await.unwrap().now;
    let fresh = write(&scene, vec![ready("orders", None, now.0, true)]).await;
    let waiting = write(&scene, vec![ready("orders", None, now.0 + 1, false)]).await;
    let offers = store.offer(&[orders()], 1, LONG).await.unwrap();
    assert_eq!((offers.rows.len(), offers.backlog.len()), (0, 1), "the first counts against the window");
    let offers = store.offer(&[orders()], 2, LONG).await.unwrap();
    assert_eq!((offers.rows.len(), offers.rows[0].1), (1, waiting[0]));
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let offers = store.offer(&[orders()], 2, Millis(1)).await.unwrap();
    let offered: Vec<InstanceUid> = offers.rows.iter().map(|row| row.1).collect();
    assert_eq!(offered, [fresh[0], waiting[0]], "nobody came for them");
}

pub(crate) async fn w15_queues_are_apart(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let steps = Queue::Step(namespace(), pool());
    // A workflow that has the name of a pool is another queue.
    let like_pool = Queue::Run(namespace(), workflow("gpu"));
    let elsewhere = Queue::Run("other".parse().unwrap(), workflow("orders"));
    let rows = vec![
        ready("orders", None, 1, false),
        ready("orders", Some(pool()), 2, false),
        ready("orders", Some(pool()), 3, false),
        ready("gpu", None, 4, false),
    ];
    let uids = write(&scene, rows).await;
    let offers = store.offer(&[steps.clone(), elsewhere, orders()], 1, LONG).await.unwrap();
    let offered: HashSet<_> = offers.rows.iter().map(|row| (row.0.clone(), row.1)).collect();
    assert_eq!(offered, HashSet::from([(steps.clone(), uids[1]), (orders(), uids[0])]));
    assert_eq!(offers.backlog.iter().collect::<Vec<_>>(), [&steps]);
    let step_offer = offers.rows.iter().find(|row| row.0 == steps).unwrap();
    assert_eq!(step_offer.2, Subject::step(step("s").hash()));
    let offers = store.offer(&[like_pool], 5, LONG).await.unwrap();
    assert_eq!((offers.rows.len(), offers.rows[0].1), (1, uids[3]));
    // An offered instance is claimed like any other.
    let uid = scene.start("o-1").await;
    assert_eq!(store.offer(&[orders()], 50, LONG).await.unwrap().rows.len(), 1);
    assert_eq!(
        scene.on(uid, What::Claim { session: SessionId::generate(), have: None }).await,
        Answer::Granted
    );
}

pub(crate) async fn p40_what_is_pinned_waits_in_the_queue_of_its_build(store: Arc<dyn Store>) {
    let mut scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    let (other, here) = ("other".parse::<BuildName>().unwrap(), build());
    scene.room.runs(session, &here, Arc::from([]));
    let pinned = |id: &str, pin| Start { pin: Some(pin), ..start("orders", id, "1") };
    let starts = [
        pinned("first", Pin::First),
        pinned("here", Pin::Build(here.clone())),
        pinned("other", Pin::Build(other.clone())),
        start("orders", "floats", "1"),
    ];
    let [first, own, elsewhere, floats] = [0, 1, 2, 3].map(|at: usize| starts[at].uid);
    scene.run(starts.into_iter().map(|start| Input::Start(Box::new(start))).collect()).await;
    assert_eq!(scene.head(first).await.pin, Some(Pin::First));
    assert_eq!(scene.head(own).await.pin, Some(Pin::Build(here.clone())));
    assert_eq!(scene.head(floats).await.pin, None);

    let of = |build: &BuildName| Queue::Pinned(namespace(), workflow("orders"), build.clone());
    let offered = async |queue: Queue| {
        let offers = store.offer(std::slice::from_ref(&queue), 9, LONG).await.unwrap();
        assert!(offers.rows.iter().all(|row| row.0 == queue));
        offers.rows.iter().map(|row| row.1).collect::<HashSet<_>>()
    };
    assert_eq!(store.backlog(&[of(&here), of(&other)], 0, LONG).await.unwrap(), [of(&here), of(&other)]);
    assert_eq!(offered(of(&here)).await, HashSet::from([own]));
    assert_eq!(offered(of(&other)).await, HashSet::from([elsewhere]));
    assert_eq!(offered(orders()).await, HashSet::from([first, floats]));

    assert_eq!(scene.on(first, What::Claim { session, have: None }).await, Answer::Granted);
    assert_eq!(scene.head(first).await.pin, Some(Pin::Build(here.clone())), "it has a build now");
    assert_eq!(scene.on(elsewhere, What::Claim { session, have: None }).await, Answer::NotGranted);
    let view = async |id: &str| store.instance(&name_key("orders", id)).await.unwrap().unwrap();
    assert_eq!((view("other").await.pin, view("floats").await.pin), (Some(Pin::Build(other)), None));
    store.open_session(&open_session(session)).await.unwrap();
    let served = [view("other").await.served, view("here").await.served, view("floats").await.served];
    assert_eq!(served, [false, true, true], "by the build that it is pinned to");

    let unpin = What::Pin { operation: "op".to_owned(), pin: None };
    assert_eq!(scene.on(elsewhere, unpin).await, Answer::Done);
    assert_eq!((scene.head(elsewhere).await.pin, view("other").await.served), (None, true));
    assert_eq!(offered(orders()).await, HashSet::from([elsewhere]));
    // One that has ended keeps its pin, and takes another.
    scene.on(first, terminate("end")).await;
    let pin = What::Pin { operation: "op".to_owned(), pin: Some(Pin::First) };
    assert_eq!(scene.on(first, pin).await, Answer::Done);
    assert_eq!(
        (scene.head(first).await.pin, view("first").await.status),
        (Some(Pin::First), StatusWord::Terminated)
    );
}

pub(crate) async fn a_duty_has_one_holder(store: Arc<dyn Store>) {
    let (one, two) = (CoordinatorId::generate(), CoordinatorId::generate());
    assert_eq!(store.duties(one, &["timers", "dispatch"], LONG).await.unwrap(), ["timers", "dispatch"]);
    assert_eq!(store.duties(one, &["timers"], LONG).await.unwrap(), ["timers"]);
    assert_eq!(store.duties(two, &["timers", "audit"], LONG).await.unwrap(), ["audit"]);
    store.release_duties(one).await.unwrap();
    assert_eq!(store.duties(two, &["timers"], Millis(1)).await.unwrap(), ["timers"]);
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    assert_eq!(store.duties(one, &["timers", "audit"], LONG).await.unwrap(), ["timers"]);
    assert_eq!(store.duties(two, &[], LONG).await.unwrap(), [""; 0]);
}
