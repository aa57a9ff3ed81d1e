//! A worker of the fleet demo: serves the order fulfilment workflow. What it logs and where its traces go the environment says, as for
//! the processes of Everstep.

use std::net::SocketAddr;

use clap::Parser;
use everstep::telemetry::Wanted;
use everstep_examples::fulfil;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Serves the order fulfilment workflow.
#[derive(Debug, Parser)]
struct Arguments {
    /// AMQP URL of the broker.
    #[arg(long, env = "EVERSTEP_AMQP__URL", hide_env_values = true)]
    amqp: String,
    /// URL of the payment service.
    #[arg(long, env = "EXAMPLES_PAYMENT_URL")]
    payment: String,
    /// Instances held at once.
    #[arg(long, default_value_t = 1_000)]
    instances: u32,
    /// Run tasks that the broker may hand over before they are settled.
    #[arg(long, default_value_t = 100)]
    prefetch: u16,
    /// Messages of the inbox that the broker may hand over before they are settled.
    #[arg(long, default_value_t = 1_000)]
    inbox_prefetch: u16,
    /// Where to serve /metrics, /healthz and /readyz; default: nowhere.
    #[arg(long, env = "EVERSTEP_METRICS__LISTEN")]
    metrics: Option<SocketAddr>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let telemetry = Wanted::of("orders-worker").level("error").of_environment()?.start()?;
    fulfil::configure(arguments.payment, None);
    let mut worker = everstep::fleet(arguments.amqp).workflow(fulfil::fulfil).settings(|settings| {
        settings.instances = arguments.instances;
        settings.prefetch = arguments.prefetch;
        settings.inbox_prefetch = arguments.inbox_prefetch;
    });
    if let Some(listen) = arguments.metrics {
        worker = worker.metrics(listen);
    }
    let outcome = worker.run().await;
    telemetry.stop().await;
    Ok(outcome?)
}
