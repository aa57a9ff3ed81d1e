//! The proof of the ledger (rule L16). A service counts what took effect: one part of it honours idempotency keys, one can be asked
//! what it did, one neither. Workers are killed before an attempt is announced, after that, after the call and after its record;
//! coordinators are killed all the time; the service fails before and after the effect. Where nobody can know what came of a call a
//! person is asked, who here asks the service. At the end every effect must have come exactly once.

mod effects;
mod fleet;
mod person;
mod prove;
mod tally;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs steps of every class against real servers under kills, and counts their effects.
#[derive(Debug, Parser)]
struct Arguments {
    /// Steps in all.
    #[arg(long, default_value_t = 100_000)]
    steps: u32,
    /// How long a worker lives on average, in milliseconds.
    #[arg(long, default_value_t = 20_000)]
    life: u64,
    /// Plants a fault: steps that must look first, or be called at most once, are called like any other.
    #[arg(long)]
    planted: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

/// A role of a child process.
#[derive(Debug, Subcommand)]
enum Role {
    /// A worker.
    #[command(hide = true)]
    Worker(Worker),
}

/// What a worker is told.
#[derive(Clone, Debug, clap::Args)]
struct Worker {
    /// AMQP URL of the broker.
    #[arg(long)]
    amqp: String,
    /// URL of the service.
    #[arg(long)]
    effects: String,
    /// Where it writes down at which place it dies.
    #[arg(long)]
    deaths: PathBuf,
    /// How long it lives on average, in milliseconds.
    #[arg(long)]
    life: u64,
    /// See the command's own.
    #[arg(long)]
    planted: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::ERROR)
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(Role::Worker(worker)) = arguments.role {
        return runtime.block_on(prove::serve(worker)).map(|()| ExitCode::SUCCESS);
    }
    let tally = runtime.block_on(fleet::run(&arguments))?;
    println!("{tally}");
    Ok(if tally.is_proof() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
