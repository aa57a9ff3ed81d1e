//! A worker of a fleet.

use std::{future::Future, sync::Arc};

use everstep_broker::{AmqpBroker, AmqpSettings, Broker};
use everstep_protocol::{BuildName, Namespace, Pool, name::NameError};
use everstep_sdk::{Error, Registry, RegistryError, Step, host::Definition};
use everstep_worker::{Settings, Worker};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::oneshot;

/// A worker that takes its work from the broker at this AMQP URL.
///
/// ```no_run
/// # use everstep::{Error, Workflow};
/// # #[everstep::workflow]
/// # async fn fulfil(cx: Workflow, order: String) -> Result<String, Error> { Ok(order) }
/// # async fn example() -> Result<(), everstep::FleetError> {
/// everstep::fleet("amqp://worker:secret@rabbitmq/everstep").workflow(fulfil).run().await
/// # }
/// ```
pub fn fleet(amqp_url: impl Into<String>) -> Fleet {
    Fleet {
        amqp_url: amqp_url.into(),
        ca_pem: None,
        registry: Registry::new(),
        settings: Settings::default(),
        problem: None,
        #[cfg(feature = "metrics")]
        page: None,
    }
}

/// A worker in the making.
#[derive(Debug)]
#[must_use = "a worker does nothing until it is run"]
pub struct Fleet {
    amqp_url: String,
    ca_pem: Option<String>,
    registry: Registry,
    settings: Settings,
    problem: Option<NameError>,
    #[cfg(feature = "metrics")]
    page: Option<Result<crate::page::Wanted, prometheus::Error>>,
}

/// Why a worker did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A namespace, pool or build name breaks its rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// What was registered cannot be served.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The thread of the connection could not be started.
    #[error("the connection's thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
    /// The page of metrics cannot be served at this address. Trying again helps once whatever has it is gone.
    #[cfg(feature = "metrics")]
    #[error("the metrics cannot be served at {0}: {1}")]
    Page(std::net::SocketAddr, std::io::Error),
    /// The registry of the metrics has counters of a worker already.
    #[cfg(feature = "metrics")]
    #[error("the registry cannot take the worker's metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The worker failed.
    #[error(transparent)]
    Worker(#[from] everstep_worker::Error),
}

impl Fleet {
    /// Serves a workflow.
    pub fn workflow(mut self, workflow: impl Definition) -> Self {
        self.registry = self.registry.workflow(workflow);
        self
    }

    /// Serves a workflow whose instances are pinned to the build that takes them up first, see
    /// [`Registry::pinned_workflow`].
    pub fn pinned_workflow(mut self, workflow: impl Definition) -> Self {
        self.registry = self.registry.pinned_workflow(workflow);
        self
    }

    /// Runs a function for the remote steps of the worker's pools.
    pub fn function<In, Out, E, F, Fut>(mut self, name: &str, function: F) -> Self
    where
        In: DeserializeOwned + Send + 'static,
        Out: Serialize + Send + 'static,
        E: Into<Error> + Send + 'static,
        F: Fn(Step, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, E>> + Send + 'static,
    {
        self.registry = self.registry.function(name, function);
        self
    }

    /// Serves everything that a registry holds, instead of what was named one by one.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Whose certificates are trusted with `amqps://`, as PEM. Default: those that the system trusts.
    pub fn ca_pem(mut self, pem: impl Into<String>) -> Self {
        self.ca_pem = Some(pem.into());
        self
    }

    /// Takes the remote steps of a pool. May be called for several.
    pub fn pool(mut self, pool: &str) -> Self {
        match Pool::new(pool) {
            Ok(pool) => self.settings.pools.push(pool),
            Err(problem) => self.problem = self.problem.or(Some(problem)),
        }
        self
    }

    /// Works in this namespace instead of `default`.
    pub fn namespace(mut self, namespace: &str) -> Self {
        match Namespace::new(namespace) {
            Ok(namespace) => self.settings.namespace = namespace,
            Err(problem) => self.problem = self.problem.or(Some(problem)),
        }
        self
    }

    /// Announces this build instead of the executable's hash.
    pub fn build(mut self, build: &str) -> Self {
        match BuildName::new(build) {
            Ok(build) => self.settings.build = Some(build),
            Err(problem) => self.problem = self.problem.or(Some(problem)),
        }
        self
    }

    /// Changes any setting of the worker.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` at this address while it runs, with the feature `metrics`. Nothing else is behind it,
    /// so it need not be loopback where the names of workflows and steps, which are labels, may be known.
    #[cfg(feature = "metrics")]
    pub fn metrics(self, listen: impl Into<std::net::SocketAddr>) -> Self {
        self.metrics_of(listen, prometheus::Registry::new())
    }

    /// The same with a registry of one's own, to which the worker's counters are added: for programs that count more.
    #[cfg(feature = "metrics")]
    pub fn metrics_of(
        mut self,
        listen: impl Into<std::net::SocketAddr>,
        registry: prometheus::Registry,
    ) -> Self {
        let page = crate::page::Wanted::new(listen.into(), registry);
        self.page = Some(page.map(|(page, metrics)| {
            self.settings.metrics = metrics;
            page
        }));
        self
    }

    /// Runs until the process is told to stop (SIGTERM or SIGINT), then finishes what runs and gives the rest back.
    pub async fn run(self) -> Result<(), FleetError> {
        self.run_until(stop_signal()).await
    }

    /// Runs until `stop` is ready.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> Result<(), FleetError> {
        if let Some(problem) = self.problem {
            return Err(problem.into());
        }
        self.registry.validate()?;
        #[cfg(feature = "metrics")]
        let page = self.page.transpose()?;
        let name = format!("everstep worker {}", std::process::id());
        let settings = AmqpSettings { ca_pem: self.ca_pem, ..AmqpSettings::new(self.amqp_url, name) };
        let connection = Connection::open(settings).await?;
        let broker = Arc::clone(&connection.broker) as Arc<dyn Broker>;
        let settings = Settings { link_runtime: Some(connection.runtime.clone()), ..self.settings };
        let worker = Worker::new(self.registry, broker, settings)?;
        #[cfg(feature = "metrics")]
        let page = match page {
            Some(page) => {
                let listen = page.listen();
                let served = page.of_worker(worker.probe(), &connection.runtime);
                Some(served.map_err(|error| FleetError::Page(listen, error))?)
            }
            None => None,
        };
        let outcome = worker.run(stop).await;
        #[cfg(feature = "metrics")]
        if let Some(page) = page {
            page.stop().await;
        }
        connection.close().await;
        Ok(outcome?)
    }
}

/// The connection to the broker, on a thread and runtime of its own: steps that block the runtime they run on must not block
/// heartbeats with it (rule W12).
struct Connection {
    broker: Arc<AmqpBroker>,
    runtime: tokio::runtime::Handle,
    close: oneshot::Sender<()>,
    closed: oneshot::Receiver<()>,
}

impl Connection {
    async fn open(settings: AmqpSettings) -> Result<Self, FleetError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (opened, broker) = oneshot::channel();
        let (close, closing) = oneshot::channel::<()>();
        let (over, closed) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                let broker = Arc::new(AmqpBroker::connect(settings));
                if opened.send(Arc::clone(&broker)).is_ok() {
                    // An owner that is gone wants it closed as well.
                    drop(closing.await);
                }
                broker.close().await;
            });
            // Nobody may be waiting any more.
            drop(over);
        };
        std::thread::Builder::new().name("everstep-link".to_owned()).spawn(run)?;
        let broker = broker.await.map_err(|_| std::io::Error::other("the broker's thread has ended"))?;
        Ok(Self { broker, runtime: handle, close, closed })
    }

    async fn close(self) {
        drop(self.broker);
        drop(self.close);
        // Ends with an error, on purpose: the other side only drops its end.
        drop(self.closed.await);
    }
}

async fn stop_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = tokio::signal::ctrl_c() => {}
                }
            }
            Err(error) => {
                tracing::warn!(%error, "SIGTERM cannot be heard; only SIGINT stops this worker gracefully");
                drop(tokio::signal::ctrl_c().await);
            }
        }
    }
    #[cfg(not(unix))]
    drop(tokio::signal::ctrl_c().await);
}
