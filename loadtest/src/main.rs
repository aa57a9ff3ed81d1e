//! The benchmark: what a fleet and an embedded store carry, and what it costs. One JSON line per workload.
//!
//! Every process counts: producer, coordinator, worker, PostgreSQL and RabbitMQ. Rates on shared machines drift by a tenth in an
//! hour, so compare CPU-ms per instance, before and after, in one sitting.

mod backend;
mod drive;
mod floor;
mod long;
mod report;
mod role;
mod workload;

use clap::Parser;

use crate::workload::Workload;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures workloads on both back ends; one JSON line each.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only these workloads. Default: all.
    #[arg(value_enum)]
    workloads: Vec<Workload>,
    /// Only this back end.
    #[arg(long, value_enum)]
    backend: Option<backend::Kind>,
    /// Instances of a workload, instead of its own number.
    #[arg(long)]
    instances: Option<usize>,
    /// Instances in flight, instead of the workload's own numbers.
    #[arg(long)]
    in_flight: Option<usize>,
    /// How often each is measured.
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// Instead of workloads: what the messages and commits of `seq5-one` cost on this machine without the engine.
    #[arg(long)]
    floor: bool,
    /// Instead of workloads: one instance of 10,000 steps, or of `--instances` steps: what each costs at the beginning and at the
    /// end, and how soon it goes on after its worker was killed.
    #[arg(long, conflicts_with = "floor")]
    long: bool,
    #[command(subcommand)]
    role: Option<role::Role>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "error".into()),
        )
        .with_writer(std::io::stderr)
        .init();
    if let Some(role) = arguments.role {
        return role.run();
    }
    if arguments.floor {
        for _ in 0..arguments.repeat {
            println!("{}", serde_json::to_string(&floor::measure(arguments.instances.unwrap_or(200))?)?);
        }
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(arguments))
}

async fn measure(arguments: Arguments) -> anyhow::Result<()> {
    let kinds = arguments.backend.map_or_else(|| backend::Kind::ALL.to_vec(), |kind| vec![kind]);
    let workloads = if arguments.workloads.is_empty() { Workload::ALL.to_vec() } else { arguments.workloads };
    for kind in kinds {
        if arguments.long {
            for _ in 0..arguments.repeat {
                println!("{}", serde_json::to_string(&long::measure(kind, arguments.instances).await?)?);
            }
            continue;
        }
        for workload in &workloads {
            for shape in workload.shapes(arguments.instances, arguments.in_flight) {
                for _ in 0..arguments.repeat {
                    let line = drive::measure(kind, *workload, shape).await?;
                    println!("{}", serde_json::to_string(&line)?);
                }
            }
        }
    }
    Ok(())
}
