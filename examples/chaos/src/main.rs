//! Chaos: two coordinators, three workers and one for remote steps as real processes, on a PostgreSQL and a RabbitMQ of their own, under a mixed load, while
//! one fault after another hits them. A service that syncs each charge to its disk counts what the steps did.
//!
//! A fault **hits** an instance that a worker held, or that was ready for one, when it came; a fault of one worker hits only what that
//! worker held, and a purge of step tasks the remote steps that were under way. An instance **heals** with its next entry in the journal,
//! that of a loss not counted, or when all that it had to do is done and it waits; and where its worker was killed or frozen, only under
//! a lease of another holder. The time of healing is from the fault to then, so it includes how long a server was away.
//!
//! What it does not do: it proves nothing about interleavings that did not happen (the simulator), nor each point of a commit (the crash matrix).

mod check;
mod fault;
mod fleet;
mod heal;
mod load;
mod look;
mod outsider;
mod rolling;
mod run;
mod sessions;
mod tally;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::fault::Kind;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Hits a fleet under load with faults of every kind, and counts what was lost and doubled.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long, in minutes.
    #[arg(long, default_value_t = 9.0)]
    minutes: f64,
    /// What order and victims follow from; default: a random one, which is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Only faults of this kind.
    #[arg(long)]
    only: Option<Kind>,
    /// How often each kind must have been there.
    #[arg(long, default_value_t = 5)]
    least: u32,
    /// How long the undisturbed run takes that comes first, in seconds.
    #[arg(long, default_value_t = 40)]
    calm: u64,
    /// Instances that are started in a second.
    #[arg(long, default_value_t = 50)]
    rate: u32,
    /// Instead of faults: each process is told to stop, awaited and started again, one after the other.
    #[arg(long)]
    rolling: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

/// A role of a child process.
#[derive(Debug, Subcommand)]
enum Role {
    /// A worker.
    #[command(hide = true)]
    Worker(work::Worker),
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| "error,lapin=off".into()),
        )
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(Role::Worker(worker)) = arguments.role {
        return runtime.block_on(work::serve(worker)).map(|()| ExitCode::SUCCESS);
    }
    // Told to stop, it ends as it does by itself: everything that it has started goes with it.
    let is_good = runtime.block_on(async {
        tokio::select! {
            outcome = run::run(&arguments) => outcome,
            _ = tokio::signal::ctrl_c() => Ok(false),
        }
    });
    Ok(if is_good? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
