//! The processes of the fleet: the benchmark's own program in another role.

use std::{io::Write as _, sync::Arc};

use anyhow::Context as _;
use clap::Subcommand;
use everstep_broker::{AmqpBroker, AmqpSettings, Broker};
use everstep_coordinator::{Coordinator, Settings};
use everstep_store::postgres::{PostgresSettings, PostgresStore};

use crate::workload::registry;

/// A role of a child process.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Role {
    /// A coordinator.
    #[command(hide = true)]
    Coordinator { postgres: String, amqp: String },
    /// A worker.
    #[command(hide = true)]
    Worker { amqp: String },
}

impl Role {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match self {
            Self::Coordinator { postgres, amqp } => runtime.block_on(coordinator(postgres, amqp)),
            Self::Worker { amqp } => runtime.block_on(async {
                say("ready")?;
                everstep::fleet(amqp).registry(registry()).run().await.context("run the worker")
            }),
        }
    }
}

/// Runs until SIGTERM, then says how many messages it received and sent.
async fn coordinator(postgres: String, amqp: String) -> anyhow::Result<()> {
    let store = PostgresStore::connect(PostgresSettings::new(postgres)).await?;
    let broker: Arc<dyn Broker> = Arc::new(AmqpBroker::connect(AmqpSettings::new(amqp, "bench coordinator")));
    let coordinator = Coordinator::new(Arc::new(store), Arc::clone(&broker), Settings::default()).await?;
    let handle = coordinator.handle();
    coordinator.declare().await;
    say("ready")?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    coordinator
        .run(async move {
            terminate.recv().await;
        })
        .await?;
    let families = handle.metrics().gather();
    let count = |name: &str| -> f64 {
        families
            .iter()
            .filter(|family| family.name() == name)
            .flat_map(|family| family.get_metric().iter())
            .map(|metric| metric.get_counter().get_value())
            .sum()
    };
    let messages = count("everstep_messages_received_total") + count("everstep_messages_sent_total");
    say(&format!("messages {messages}"))?;
    broker.close().await;
    Ok(())
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}
