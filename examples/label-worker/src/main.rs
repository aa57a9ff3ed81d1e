//! A worker that serves no workflow: it prints labels for whoever calls the remote step `label` on the pool `labels`.
//! A deployment of its own, scaled on its own; it shares no code with the workflows that call it.

use std::net::SocketAddr;

use clap::Parser;
use everstep::{Error, Step, telemetry::Wanted};
use serde::Deserialize;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Prints labels for the remote steps of the pool `labels`.
#[derive(Debug, Parser)]
struct Arguments {
    /// AMQP URL of the broker.
    #[arg(long, env = "EVERSTEP_AMQP__URL", hide_env_values = true)]
    amqp: String,
    /// Step tasks that the broker may hand over before they are settled.
    #[arg(long, default_value_t = 100)]
    prefetch: u16,
    /// Where to serve /metrics, /healthz and /readyz; default: nowhere.
    #[arg(long, env = "EVERSTEP_METRICS__LISTEN")]
    metrics: Option<SocketAddr>,
}

#[derive(Debug, Deserialize)]
struct Request {
    order: String,
    parcels: usize,
}

async fn label(step: Step, request: Request) -> Result<String, Error> {
    Ok(format!("{}-{}-{}", request.order, request.parcels, &step.idempotency_key()[..8]))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let telemetry = Wanted::of("label-worker").level("error").of_environment()?.start()?;
    let mut worker = everstep::fleet(arguments.amqp)
        .function("label", label)
        .pool("labels")
        .settings(|settings| settings.prefetch = arguments.prefetch);
    if let Some(listen) = arguments.metrics {
        worker = worker.metrics(listen);
    }
    let outcome = worker.run().await;
    telemetry.stop().await;
    Ok(outcome?)
}
