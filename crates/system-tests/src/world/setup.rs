//! How a system is made.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use everstep::Registry;
use everstep_broker::{AmqpBroker, AmqpSettings, Broker, Health, MemoryBroker};
use everstep_protocol::{BuildName, Millis};
use everstep_store::{
    Store,
    postgres::{self, PostgresSettings, PostgresStore},
};
use everstep_testbed::Installation;
use everstep_worker::OnStuck;

use super::{CoordinatorSettings, Kind, Setup, Site, WorkerSettings, World};
use crate::{DEADLINE, ends::Ends, within};

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
        let (site, producer, observer): (_, Arc<dyn Broker>, Option<Arc<dyn Store>>) = match self.kind {
            Kind::Embedded => {
                let hub = MemoryBroker::new();
                let producer = Arc::new(hub.connection());
                (Site::Embedded { dir: tempfile::tempdir().expect("a directory"), hub }, producer, None)
            }
            Kind::Fleet => {
                let made = tokio::task::spawn_blocking(|| Installation::fresh("st"));
                let installation = made.await.expect("no panic").expect("the servers run: make services-up");
                postgres::migrate(&installation.postgres).await.expect("a fresh database can be migrated");
                let settings =
                    PostgresSettings { pool_max: 2, ..PostgresSettings::new(&installation.postgres) };
                let observer = PostgresStore::connect(settings).await.expect("it is migrated");
                let producer = AmqpBroker::connect(AmqpSettings::new(installation.amqp.clone(), "test"));
                up(&producer).await;
                (Site::Fleet { installation }, Arc::new(producer), Some(Arc::new(observer)))
            }
        };
        let ends = Ends::listen(Arc::clone(&producer)).await;
        let (coordinators, workers) = (Vec::new(), Vec::new());
        let count = self.coordinators;
        let mut world = World { setup: self, coordinators, workers, observer, producer, ends, site };
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
