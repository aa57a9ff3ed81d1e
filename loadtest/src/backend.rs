//! What a workload runs on: real processes with PostgreSQL and RabbitMQ, or everything in this process.

use std::{process::Command, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use everstep::embedded::Embedded;
use everstep_broker::{AmqpBroker, AmqpSettings, Broker, Health};
use everstep_store::{Store, postgres};
use everstep_testbed::{Installation, Process, cpu_of, cpu_of_servers, rss_mb};

use crate::{report::CpuBy, workload::registry};

/// Which back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// PostgreSQL and RabbitMQ, a coordinator and a worker.
    Fleet,
    /// SQLite and the in-process broker.
    Embedded,
}

everstep_protocol::every! {
    pub(crate) Kind: Fleet, Embedded
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fleet => "postgres+rabbitmq",
            Self::Embedded => "embedded",
        }
    }
}

/// A running back end.
pub(crate) enum Backend {
    Fleet(Box<Fleet>),
    Embedded { everstep: Option<Embedded>, dir: tempfile::TempDir },
}

pub(crate) struct Fleet {
    coordinator: Process,
    worker: Process,
    broker: Arc<AmqpBroker>,
    installation: Installation,
}

/// Counters of the whole back end at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) cpu: CpuBy,
    pub(crate) commits: Option<f64>,
    pub(crate) wal: Option<f64>,
}

/// How a worker ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WorkerEnd {
    /// By `kill -9`.
    Killed,
    /// With a goodbye.
    Stopped,
}

/// How long a worker without running steps may take for its goodbye.
const STOPS_WITHIN: Duration = Duration::from_secs(30);

impl Backend {
    pub(crate) async fn start(kind: Kind) -> Result<Self> {
        match kind {
            Kind::Fleet => Ok(Self::Fleet(Box::new(Fleet::start().await?))),
            Kind::Embedded => {
                let dir = tempfile::tempdir()?;
                let everstep = embedded(&dir).await?;
                Ok(Self::Embedded { everstep: Some(everstep), dir })
            }
        }
    }

    /// Ends the worker and starts another; embedded, everything is stopped and opened again, whichever end is asked for.
    pub(crate) async fn replace_worker(&mut self, end: WorkerEnd) -> Result<()> {
        match self {
            Self::Fleet(fleet) => {
                match end {
                    WorkerEnd::Killed => fleet.worker.kill()?,
                    WorkerEnd::Stopped => {
                        fleet.worker.signal("TERM")?;
                        fleet.worker.wait(STOPS_WITHIN)?;
                    }
                }
                fleet.worker = worker(&fleet.installation)?;
            }
            Self::Embedded { everstep, dir } => {
                if let Some(everstep) = everstep.take() {
                    everstep.stop().await?;
                }
                *everstep = Some(embedded(dir).await?);
            }
        }
        Ok(())
    }

    /// The producer's way in.
    pub(crate) fn broker(&self) -> Result<Arc<dyn Broker>> {
        match self {
            Self::Fleet(fleet) => Ok(Arc::clone(&fleet.broker) as Arc<dyn Broker>),
            Self::Embedded { everstep, .. } => {
                let everstep = everstep.as_ref().context("it has stopped")?;
                Ok(Arc::new(everstep.broker().connection()))
            }
        }
    }

    pub(crate) fn counters(&self) -> Result<Counters> {
        match self {
            Self::Fleet(fleet) => fleet.counters(),
            Self::Embedded { .. } => {
                let cpu = CpuBy { worker: cpu_of(std::process::id()), ..CpuBy::default() };
                Ok(Counters { cpu, ..Counters::default() })
            }
        }
    }

    pub(crate) fn rss_mb(&self) -> f64 {
        match self {
            Self::Fleet(fleet) => rss_mb(fleet.coordinator.pid()) + rss_mb(fleet.worker.pid()),
            Self::Embedded { .. } => rss_mb(std::process::id()),
        }
    }

    /// The store, to read journals after the measurement.
    pub(crate) async fn store(&self) -> Result<Arc<dyn Store>> {
        match self {
            Self::Fleet(fleet) => {
                let settings = postgres::PostgresSettings::new(fleet.installation.postgres.clone());
                Ok(Arc::new(postgres::PostgresStore::connect(settings).await?))
            }
            Self::Embedded { everstep, .. } => {
                let everstep = everstep.as_ref().context("it has stopped")?;
                Ok(Arc::clone(everstep.coordinator().store()))
            }
        }
    }

    /// Stops everything; answers with the messages that crossed the broker, where it is one.
    pub(crate) async fn stop(self) -> Result<Option<f64>> {
        match self {
            Self::Fleet(fleet) => Ok(Some(fleet.stop().await?)),
            Self::Embedded { everstep, dir } => {
                if let Some(everstep) = everstep {
                    everstep.stop().await?;
                }
                dir.close()?;
                Ok(None)
            }
        }
    }
}

impl Fleet {
    async fn start() -> Result<Self> {
        let installation = Installation::fresh("bench")?;
        postgres::migrate(&installation.postgres).await?;
        let program = std::env::current_exe()?;
        let mut coordinator = Process::spawn(
            "coordinator",
            Command::new(&program).args(["coordinator", &installation.postgres, &installation.amqp]),
        )?;
        expect_ready(&mut coordinator)?;
        let worker = worker(&installation)?;
        let broker = AmqpBroker::connect(AmqpSettings::new(installation.amqp.clone(), "bench producer"));
        let up = tokio::time::timeout(Duration::from_secs(10), async {
            broker.health().wait_for(Health::is_up).await.map(|_| ())
        });
        up.await.context("the broker is not reached")??;
        Ok(Self { coordinator, worker, broker: Arc::new(broker), installation })
    }

    fn counters(&self) -> Result<Counters> {
        let numbers = self.installation.sql(
            "SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()), \
             pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')",
        )?;
        let mut numbers = numbers.split('|').map(|text| text.trim().parse::<f64>().ok());
        Ok(Counters {
            cpu: CpuBy {
                postgres: cpu_of_servers("postgres"),
                rabbitmq: cpu_of_servers("beam.smp"),
                coordinator: cpu_of(self.coordinator.pid()),
                worker: cpu_of(self.worker.pid()),
                producer: cpu_of(std::process::id()),
            },
            commits: numbers.next().flatten(),
            wal: numbers.next().flatten(),
        })
    }

    async fn stop(mut self) -> Result<f64> {
        self.broker.close().await;
        self.worker.signal("TERM")?;
        self.worker.wait(Duration::from_secs(40))?;
        self.coordinator.signal("TERM")?;
        let line = self.coordinator.line()?;
        let messages = line.strip_prefix("messages ").and_then(|text| text.parse().ok());
        messages.with_context(|| format!("the coordinator said {line:?}"))
    }
}

async fn embedded(dir: &tempfile::TempDir) -> Result<Embedded> {
    Ok(Embedded::open(dir.path().join("bench.db")).registry(registry()).start().await?)
}

fn worker(installation: &Installation) -> Result<Process> {
    let program = std::env::current_exe()?;
    let mut worker = Process::spawn("worker", Command::new(program).args(["worker", &installation.amqp]))?;
    expect_ready(&mut worker)?;
    Ok(worker)
}

fn expect_ready(process: &mut Process) -> Result<()> {
    match process.line()?.as_str() {
        "ready" => Ok(()),
        other => bail!("a process said {other:?}"),
    }
}
