//! How a system is made.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use everstep::Registry;
use everstep_broker::{AmqpBroker, Broker, Health, MemoryBroker};
use everstep_protocol::{BuildName, Millis};
use everstep_store::{
    Store,
    postgres::{self, PostgresSettings, PostgresStore},
};
use everstep_testbed::{Installation, OwnRabbit};
use everstep_worker::OnStuck;

use super::{CoordinatorSettings, Kind, Setup, Site, WorkerSettings, World, way_to};
use crate::{DEADLINE, ends::Ends, proxy::Proxy, within};

impl Setup {
    /// One coordinator; quick to notice a death, slow enough for a machine that is busy.
    pub fn new(kind: Kind) -> Self {
        trace();
        let report_queues = if kind == Kind::Embedded { 1 } else { 4 };
        Self {
            kind,
            coordinators: 1,
            coordinator: CoordinatorSettings {
                lease: Millis(3_000),
                heartbeat: Millis(300),
                unroutable: Millis(500),
                offer_again: Millis(1_500),
                report_queues,
                ..CoordinatorSettings::default()
            },
            worker: WorkerSettings {
                report_queues,
                on_stuck: OnStuck::Abandon,
                build: Some(BuildName::new("build-1").expect("a valid name")),
                shutdown_grace: Duration::from_secs(2),
                ..WorkerSettings::default()
            },
            nodes: 0,
            default_queue_type: None,
            blocked_max: Duration::from_secs(30),
        }
    }

    /// The back end.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// So many coordinators; SQLite carries one.
    pub fn coordinators(mut self, count: usize) -> Self {
        self.coordinators = count;
        self
    }

    /// Changes the coordinators' settings.
    pub fn coordinator(mut self, change: impl FnOnce(&mut CoordinatorSettings)) -> Self {
        change(&mut self.coordinator);
        self
    }

    /// Changes the settings of every worker.
    pub fn worker(mut self, change: impl FnOnce(&mut WorkerSettings)) -> Self {
        change(&mut self.worker);
        self
    }

    /// A RabbitMQ of its own with so many nodes, for whoever breaks it. Everybody has a balancer before them.
    pub fn own_broker(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Queues of its own broker that name no kind are of this one.
    pub fn default_queue_type(mut self, kind: &'static str) -> Self {
        self.default_queue_type = Some(kind);
        self
    }

    /// For how long a connection that the broker blocks is kept.
    pub fn blocked_max(mut self, limit: Duration) -> Self {
        self.blocked_max = limit;
        self
    }

    /// The settings of its coordinators, for one that is a process of its own.
    pub fn coordinator_settings(&self) -> CoordinatorSettings {
        self.coordinator.clone()
    }

    /// The settings of its workers, for one that is a process of its own.
    pub fn worker_settings(&self) -> WorkerSettings {
        self.worker.clone()
    }

    /// Starts it without workers.
    pub async fn start(self) -> World {
        type Parts = (Site, Arc<dyn Broker>, Option<Proxy>, Option<Arc<dyn Store>>);
        let (site, producer, producer_way, observer): Parts = match self.kind {
            Kind::Embedded => {
                let hub = MemoryBroker::new();
                let producer = Arc::new(hub.connection());
                let dir = tempfile::tempdir().expect("a directory");
                (Site::Embedded { dir, hub }, producer, None, None)
            }
            Kind::Fleet => {
                let (count, kind) = (self.nodes, self.default_queue_type);
                let made = tokio::task::spawn_blocking(move || servers(count, kind));
                let (installation, nodes) =
                    made.await.expect("no panic").expect("the servers run: make services-up");
                postgres::migrate(&installation.postgres).await.expect("a fresh database can be migrated");
                let settings =
                    PostgresSettings { pool_max: 2, ..PostgresSettings::new(&installation.postgres) };
                let observer = PostgresStore::connect(settings).await.expect("it is migrated");
                let way = if nodes.is_empty() { None } else { Some(way_to(&installation, &nodes).await) };
                let url =
                    way.as_ref().map_or_else(|| installation.amqp.clone(), |way| way.url(&installation.amqp));
                let producer = AmqpBroker::connect(self.amqp(url, "test"));
                up(&producer).await;
                (Site::Fleet { installation, nodes }, Arc::new(producer), way, Some(Arc::new(observer)))
            }
        };
        let ends = Ends::listen(Arc::clone(&producer)).await;
        let (coordinators, workers) = (Vec::new(), Vec::new());
        let count = self.coordinators;
        let mut world = World {
            setup: self,
            coordinators,
            workers,
            observer,
            producer,
            ends,
            _producer_way: producer_way,
            site,
        };
        for _ in 0..count {
            world.add_coordinator().await;
        }
        world
    }

    /// Starts it with one worker.
    pub async fn serve(self, registry: Registry) -> World {
        let mut world = self.start().await;
        world.add_worker(registry).await;
        world
    }
}

/// A fresh database, and a vhost on the broker that all share or a broker of so many nodes.
fn servers(nodes: usize, kind: Option<&str>) -> anyhow::Result<(Installation, Vec<OwnRabbit>)> {
    if nodes == 0 {
        return Ok((Installation::fresh("st")?, Vec::new()));
    }
    let nodes = OwnRabbit::cluster(nodes)?;
    if let Some(kind) = kind {
        nodes[0].renew_vhost(kind)?;
    }
    Ok((Installation::beside("st", nodes[0].url())?, nodes))
}

async fn up(broker: &AmqpBroker) {
    let mut health = broker.health();
    let up = within("the broker", DEADLINE, health.wait_for(Health::is_up));
    drop(up.await.expect("it is watched"));
}

/// `RUST_LOG` shows what coordinators and workers say.
fn trace() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer();
        drop(subscriber.try_init());
    });
}
