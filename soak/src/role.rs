//! The processes of the fleet: the soak's own program in another role.

use std::{io::Write as _, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::Subcommand;
use everstep::{Error, Hook, Registry, Step, Workflow};
use everstep_broker::{AmqpBroker, AmqpSettings, Broker};
use everstep_coordinator::{Coordinator, Settings};
use everstep_protocol::Millis;
use everstep_store::postgres::{PostgresSettings, PostgresStore};

/// A role of a child process.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Role {
    /// A coordinator that keeps ended instances for so many seconds.
    #[command(hide = true)]
    Coordinator { postgres: String, amqp: String, keep: u64 },
    /// A worker.
    #[command(hide = true)]
    Worker { amqp: String },
}

impl Role {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match self {
            Self::Coordinator { postgres, amqp, keep } => {
                runtime.block_on(coordinator(postgres, amqp, Duration::from_secs(keep)))
            }
            Self::Worker { amqp } => runtime.block_on(async {
                say("ready")?;
                everstep::fleet(amqp).registry(registry()).run().await.context("run the worker")
            }),
        }
    }
}

async fn coordinator(postgres: String, amqp: String, keep: Duration) -> anyhow::Result<()> {
    let store = PostgresStore::connect(PostgresSettings::new(postgres)).await?;
    let broker: Arc<dyn Broker> = Arc::new(AmqpBroker::connect(AmqpSettings::new(amqp, "soak coordinator")));
    let keep = Millis(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
    let settings = Settings { retention_complete: keep, retention_failed: keep, ..Settings::default() };
    let coordinator = Coordinator::new(Arc::new(store), Arc::clone(&broker), settings).await?;
    coordinator.declare().await;
    say("ready")?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    coordinator
        .run(async move {
            terminate.recv().await;
        })
        .await?;
    broker.close().await;
    Ok(())
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}

async fn work(_: Step, input: u64) -> Result<String, Error> {
    Ok(format!("{input}: {}", "abcdefghijklmnopqrstuvwxyz".repeat(3)))
}

/// What the mix is made of.
fn registry() -> Registry {
    Registry::new()
        .workflow_fn("sequence", |cx: Workflow, input: u64| async move {
            for _ in 0..5 {
                cx.step("work", input, work).await?;
            }
            Ok::<_, Error>(input)
        })
        .workflow_fn("nap", |cx: Workflow, input: u64| async move {
            cx.step("before", input, work).await?;
            cx.sleep("nap", "2s").await?;
            cx.step("after", input, work).await
        })
        .workflow_fn("approved", |cx: Workflow, input: u64| async move {
            cx.step("ask", input, work).await?;
            cx.event::<u64>("approval").timeout("1 min").await
        })
        .workflow_fn("parent", |cx: Workflow, input: u64| async move {
            cx.child::<u64>("child", "child", input).await
        })
        .workflow_fn("child", |cx: Workflow, input: u64| async move {
            cx.step("work", input, work).await?;
            Ok::<_, Error>(input)
        })
        .workflow_fn("hooked", |cx: Workflow, _: u64| async move {
            let hook: Hook<u64> = cx.hook("answer").token(cx.instance_id()).create()?;
            hook.next().await
        })
}
