//! A worker of the fleet demo: serves the order fulfilment workflow.

use clap::Parser;
use everstep_examples::fulfil;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Serves the order fulfilment workflow.
#[derive(Debug, Parser)]
struct Arguments {
    /// AMQP URL of the broker.
    #[arg(long)]
    amqp: String,
    /// URL of the payment service.
    #[arg(long)]
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
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "error".into()),
        )
        .with_writer(std::io::stderr)
        .init();
    fulfil::configure(arguments.payment, None);
    everstep::fleet(arguments.amqp)
        .workflow(fulfil::fulfil)
        .settings(|settings| {
            settings.instances = arguments.instances;
            settings.prefetch = arguments.prefetch;
            settings.inbox_prefetch = arguments.inbox_prefetch;
        })
        .run()
        .await?;
    Ok(())
}
