//! Coordinators and workers that come and go.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use everstep::Registry;
use everstep_broker::{AmqpBroker, Broker};
use everstep_coordinator::{Coordinator, Handle};
use everstep_protocol::{Namespace, topology};
use everstep_store::{
    ErrorKind, Store,
    postgres::{PostgresSettings, PostgresStore},
    sqlite::SqliteStore,
};
use everstep_testbed::{Installation, OwnRabbit};
use everstep_worker::Worker;
use tokio::sync::oneshot;

use super::{
    CoordinatorNode, CoordinatorSettings, Kind, Site, WorkerNode, WorkerSettings, World, text, way_to,
};
use crate::{
    node::{Node, closing, until},
    proxy::{Proxy, Way},
    stub::Stub,
};

/// Parts: coordinators and workers that come and go.
impl World {
    /// One coordinator more; gives its number.
    pub async fn add_coordinator(&mut self) -> usize {
        let settings = self.setup.coordinator.clone();
        let (ready, handle) = oneshot::channel();
        let run = |store: Arc<dyn Store>,
                   broker: Arc<dyn Broker>,
                   stopped,
                   ready: oneshot::Sender<Handle>| async move {
            let coordinator = Coordinator::new(store, Arc::clone(&broker), settings).await.map_err(text)?;
            drop(ready.send(coordinator.handle()));
            closing(broker, coordinator.run(until(stopped))).await.map_err(text)
        };
        let (node, proxy) = match &self.site {
            Site::Embedded { dir, hub } => {
                let path = dir.path().join("everstep.db");
                let connection = hub.connection();
                let broker: Arc<dyn Broker> = Arc::new(connection.clone());
                let main = |stopped| async move { run(open(path).await?, broker, stopped, ready).await };
                (Node::spawn(Some(connection), main), None)
            }
            Site::Fleet { installation, nodes } => {
                let proxy = way_to(installation, nodes).await;
                let amqp = self.setup.amqp(proxy.url(&installation.amqp), "coordinator");
                let settings =
                    PostgresSettings { pool_max: 4, ..PostgresSettings::new(&installation.postgres) };
                let main = |stopped| async move {
                    let store = Arc::new(PostgresStore::connect(settings).await.map_err(text)?);
                    let broker = Arc::new(AmqpBroker::connect(amqp));
                    run(store, broker, stopped, ready).await
                };
                (Node::spawn(None, main), Some(proxy))
            }
        };
        let mut node = node;
        let handle = tokio::select! {
            handle = handle => handle,
            ended = node.ended() => panic!("the coordinator has ended: {ended:?}"),
        };
        let handle = handle.expect("it runs");
        self.coordinators.push(Some(CoordinatorNode { node, handle, proxy }));
        // The last of it: once it is there, what was declared before it is bound too, and a coordinator that stops at once leaves it whole.
        let last = topology::event_queue(&Namespace::default());
        self.eventually("the topology is declared", async || {
            matches!(self.producer.depth(&last).await, Ok(Some(_)))
        })
        .await;
        self.coordinators.len() - 1
    }

    /// Changes the settings of coordinators that are added from now on.
    pub fn change_coordinators(&mut self, change: impl FnOnce(&mut CoordinatorSettings)) {
        change(&mut self.setup.coordinator);
    }

    /// One worker more; gives its number.
    pub async fn add_worker(&mut self, registry: Registry) -> usize {
        self.add_worker_with(registry, |_| {}).await
    }

    /// One worker more, with settings of its own.
    pub async fn add_worker_with(
        &mut self,
        registry: Registry,
        change: impl FnOnce(&mut WorkerSettings),
    ) -> usize {
        let mut settings = self.setup.worker.clone();
        change(&mut settings);
        let run = |broker: Arc<dyn Broker>, stopped| async move {
            let worker = Worker::new(registry, Arc::clone(&broker), settings).map_err(text)?;
            closing(broker, worker.run(until(stopped))).await.map_err(text)
        };
        let worker = match &self.site {
            Site::Embedded { hub, .. } => {
                let connection = hub.connection();
                let broker: Arc<dyn Broker> = Arc::new(connection.clone());
                WorkerNode {
                    node: Node::spawn(Some(connection), |stopped| run(broker, stopped)),
                    proxy: None,
                }
            }
            Site::Fleet { installation, nodes } => {
                let proxy = way_to(installation, nodes).await;
                let amqp = self.setup.amqp(proxy.url(&installation.amqp), "worker");
                let main = |stopped| async move { run(Arc::new(AmqpBroker::connect(amqp)), stopped).await };
                WorkerNode { node: Node::spawn(None, main), proxy: Some(proxy) }
            }
        };
        self.workers.push(Some(worker));
        self.workers.len() - 1
    }

    /// Kills a worker without a goodbye: nothing that its threads still say as they go gets out.
    pub async fn crash_worker(&mut self, number: usize) {
        let worker = self.workers[number].take().expect("it runs");
        set_way(worker.proxy.as_ref(), &worker.node, Way::Cut);
        worker.node.crash().await;
    }

    /// Stops a worker gracefully.
    pub async fn stop_worker(&mut self, number: usize) {
        self.workers[number].take().expect("it runs").node.stop().await;
    }

    /// A worker that runs; it may end by itself.
    pub fn worker(&mut self, number: usize) -> &mut Node {
        &mut self.workers[number].as_mut().expect("it runs").node
    }

    /// Kills a coordinator.
    pub async fn crash_coordinator(&mut self, number: usize) {
        let CoordinatorNode { node, handle, proxy, .. } = self.coordinators[number].take().expect("it runs");
        drop(handle);
        set_way(proxy.as_ref(), &node, Way::Cut);
        node.crash().await;
    }

    /// Stops a coordinator gracefully.
    pub async fn stop_coordinator(&mut self, number: usize) {
        let CoordinatorNode { node, handle, .. } = self.coordinators[number].take().expect("it runs");
        drop(handle);
        node.stop().await;
    }

    /// Changes the way between a worker and the broker. Embedded knows only open and cut.
    pub fn worker_way(&self, number: usize, way: Way) {
        let worker = self.workers[number].as_ref().expect("it runs");
        set_way(worker.proxy.as_ref(), &worker.node, way);
    }

    /// Changes the way between everybody and the broker.
    pub fn every_way(&self, way: Way) {
        for worker in self.workers.iter().flatten() {
            set_way(worker.proxy.as_ref(), &worker.node, way);
        }
        for coordinator in self.coordinators.iter().flatten() {
            set_way(coordinator.proxy.as_ref(), &coordinator.node, way);
        }
    }

    /// A stub of a worker that serves a workflow, with no session yet.
    pub async fn stub(&self, workflow: &str) -> Stub {
        Stub::new(Arc::clone(&self.producer), workflow, self.setup.worker.report_queues).await
    }

    /// The back end.
    pub fn kind(&self) -> Kind {
        self.setup.kind
    }

    /// A coordinator's handle.
    pub fn handle(&self) -> Handle {
        let live = self.coordinators.iter().flatten().next().expect("a coordinator runs");
        live.handle.clone()
    }

    /// The handle of a coordinator that runs.
    pub fn handle_of(&self, number: usize) -> Handle {
        self.coordinators[number].as_ref().expect("it runs").handle.clone()
    }

    /// How many coordinators there have been; the newest has the number before.
    pub fn coordinators_made(&self) -> usize {
        self.coordinators.len()
    }

    /// Runs one SQL statement in the database of a fleet.
    pub fn sql(&self, statement: &str) -> String {
        match &self.site {
            Site::Embedded { .. } => panic!("an embedded system has no server"),
            Site::Fleet { installation, .. } => {
                tokio::task::block_in_place(|| installation.sql(statement)).expect("the statement is valid")
            }
        }
    }

    /// The URLs of database and vhost of a fleet.
    pub fn urls(&self) -> (&str, &str) {
        match &self.site {
            Site::Embedded { .. } => panic!("an embedded system has no server"),
            Site::Fleet { installation, .. } => (&installation.postgres, &installation.amqp),
        }
    }

    /// The servers' part of a fleet.
    pub fn installation(&self) -> &Installation {
        match &self.site {
            Site::Embedded { .. } => panic!("an embedded system has no server"),
            Site::Fleet { installation, .. } => installation,
        }
    }

    /// The nodes of a broker of its own.
    pub fn nodes(&mut self) -> &mut Vec<OwnRabbit> {
        match &mut self.site {
            Site::Embedded { .. } => panic!("an embedded system has no server"),
            Site::Fleet { nodes, .. } => nodes,
        }
    }

    /// The name of the database of a fleet.
    pub fn database(&self) -> &str {
        match &self.site {
            Site::Embedded { .. } => panic!("an embedded system has no server"),
            Site::Fleet { installation, .. } => installation.name(),
        }
    }

    /// The store, to look.
    pub fn store(&self) -> Arc<dyn Store> {
        match &self.observer {
            Some(observer) => Arc::clone(observer),
            None => Arc::clone(self.handle().store()),
        }
    }

    /// The producer's broker.
    pub fn broker(&self) -> &Arc<dyn Broker> {
        &self.producer
    }

    /// The embedded file.
    pub fn file(&self) -> PathBuf {
        match &self.site {
            Site::Embedded { dir, .. } => dir.path().join("everstep.db"),
            Site::Fleet { .. } => panic!("a fleet has no file"),
        }
    }
}

fn set_way(proxy: Option<&Proxy>, node: &Node, way: Way) {
    match (proxy, way) {
        (Some(proxy), way) => proxy.set(way),
        (None, Way::Open) => node.memory().restore(),
        (None, Way::Cut | Way::Frozen | Way::Unanswered) => node.memory().cut(),
    }
}

/// Opens the file. A coordinator that was killed a moment ago may not have let go of it yet: here it shares a process with
/// its successor, which a real one cannot.
async fn open(path: PathBuf) -> Result<Arc<dyn Store>, String> {
    let began = Instant::now();
    loop {
        let path = path.clone();
        match tokio::task::spawn_blocking(move || SqliteStore::open(&path)).await.map_err(text)? {
            Ok(store) => return Ok(Arc::new(store)),
            Err(error) if error.kind() == ErrorKind::InUse && began.elapsed() < Duration::from_secs(10) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => return Err(text(error)),
        }
    }
}
