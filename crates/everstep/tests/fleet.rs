//! A worker of a fleet as users build it, against the real broker and database. Proves that what steps do to their runtime
//! does not reach the session; does not prove anything about bodies, which the worker's own tests do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use everstep::{Error, Step, Workflow};
use everstep_broker::{AmqpBroker, AmqpSettings, Broker};
use everstep_coordinator::{Coordinator, Settings, StartRequest};
use everstep_engine::start::NameKey;
use everstep_protocol::{Millis, Payload, Position, journal::Fact};
use everstep_store::{
    Range, StatusWord, Store,
    postgres::{PostgresSettings, PostgresStore, migrate},
};
use everstep_testbed::Installation;
use tokio::sync::oneshot;

static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

#[everstep::workflow]
async fn stubborn(cx: Workflow) -> Result<u32, Error> {
    cx.step("block", (), block).await
}

/// Blocks the thread that it runs on for much longer than a lease.
async fn block(_step: Step, (): ()) -> Result<u32, Error> {
    std::thread::sleep(Duration::from_secs(4));
    Ok(ATTEMPTS.fetch_add(1, Ordering::SeqCst) + 1)
}

#[test]
fn w12_a_step_that_blocks_its_runtime_does_not_end_the_session() {
    let installation = Installation::fresh("everstep_w12").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let facts = runtime.block_on(run(&installation));
    assert!(!facts.iter().any(|fact| matches!(fact, Fact::Lost(_))), "the session was lost: {facts:?}");
    assert_eq!(ATTEMPTS.load(Ordering::SeqCst), 1);
}

/// A worker whose user has one thread for everything: a blocked step blocks all of it.
fn worker(amqp: String, stopped: oneshot::Receiver<()>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let worker = everstep::fleet(amqp).workflow(stubborn).run_until(async move {
            drop(stopped.await);
        });
        runtime.block_on(worker).unwrap();
    })
}

/// Runs one instance to its end under a short lease; answers with its journal.
async fn run(installation: &Installation) -> Vec<Fact> {
    migrate(&installation.postgres).await.unwrap();
    let store: Arc<dyn Store> =
        Arc::new(PostgresStore::connect(PostgresSettings::new(installation.postgres.clone())).await.unwrap());
    let broker: Arc<dyn Broker> =
        Arc::new(AmqpBroker::connect(AmqpSettings::new(installation.amqp.clone(), "test coordinator")));
    let settings = Settings {
        lease: Millis(1_500),
        heartbeat: Millis(300),
        unroutable: Millis(1_000),
        ..Settings::default()
    };
    let coordinator = Coordinator::new(Arc::clone(&store), Arc::clone(&broker), settings).await.unwrap();
    let handle = coordinator.handle();
    coordinator.declare().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(coordinator.run(async move {
        drop(stopped.await);
    }));
    let (stop_worker, worker_stopped) = oneshot::channel();
    let worker = worker(installation.amqp.clone(), worker_stopped);
    let name = NameKey {
        namespace: "default".parse().unwrap(),
        workflow: "stubborn".parse().unwrap(),
        id: "one".parse().unwrap(),
    };
    let start = StartRequest {
        namespace: name.namespace.clone(),
        workflow: name.workflow.clone(),
        id: Some(name.id.clone()),
        input: Payload::null(),
        retention: everstep_protocol::start::Retention::default(),
        pin: None,
        strict: None,
        attributes: Vec::new(),
        hook: None,
        message: None,
    };
    handle.start(start).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(40), async {
        loop {
            let view = store.instance(&name).await.unwrap().unwrap();
            if view.ended_at.is_some() {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let view = ended.await.expect("the instance has ended");
    assert_eq!(view.status, StatusWord::Complete);
    let range = Range { uid: view.uid, run: view.run, after: Position(0) };
    let entries = store.journal(vec![range], 1 << 20).await.unwrap().remove(0);
    drop(stop_worker);
    tokio::task::spawn_blocking(move || worker.join().unwrap()).await.unwrap();
    drop(stop);
    running.await.unwrap().unwrap();
    broker.close().await;
    entries.into_iter().map(|entry| entry.fact).collect()
}
