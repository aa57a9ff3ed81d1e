//! A coordinator, a worker and the producer's connection, on a database and a vhost of their own.

use std::{process::Command, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use everstep_broker::{AmqpBroker, AmqpSettings, Broker, Health};
use everstep_store::postgres;
use everstep_testbed::{Installation, Process, rss_mb};

pub(crate) struct Fleet {
    coordinator: Process,
    worker: Process,
    pub(crate) broker: Arc<AmqpBroker>,
    pub(crate) installation: Arc<Installation>,
}

/// Resident memory in MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) coordinator: f64,
    pub(crate) worker: f64,
}

impl Fleet {
    pub(crate) async fn start(keep: Duration) -> Result<Self> {
        let installation = Installation::fresh("soak")?;
        postgres::migrate(&installation.postgres).await?;
        let program = std::env::current_exe()?;
        let keep = keep.as_secs().to_string();
        let mut coordinator = Process::spawn(
            "coordinator",
            Command::new(&program).args(["coordinator", &installation.postgres, &installation.amqp, &keep]),
        )?;
        expect_ready(&mut coordinator)?;
        let mut worker =
            Process::spawn("worker", Command::new(&program).args(["worker", &installation.amqp]))?;
        expect_ready(&mut worker)?;
        let broker = AmqpBroker::connect(AmqpSettings::new(installation.amqp.clone(), "soak producer"));
        let up = tokio::time::timeout(Duration::from_secs(10), async {
            broker.health().wait_for(Health::is_up).await.map(|_| ())
        });
        up.await.context("the broker is not reached")??;
        Ok(Self { coordinator, worker, broker: Arc::new(broker), installation: Arc::new(installation) })
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory { coordinator: rss_mb(self.coordinator.pid()), worker: rss_mb(self.worker.pid()) }
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        self.broker.close().await;
        for process in [&mut self.worker, &mut self.coordinator] {
            process.signal("TERM")?;
            process.wait(Duration::from_secs(40))?;
        }
        Ok(())
    }
}

fn expect_ready(process: &mut Process) -> Result<()> {
    match process.line()?.as_str() {
        "ready" => Ok(()),
        other => bail!("a process said {other:?}"),
    }
}
