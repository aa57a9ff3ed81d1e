//! The command: runs seeds, repeats one, prints what came of them.

use std::{process::ExitCode, thread};

use clap::Parser;
use everstep_simulator::{Outcome, Sum, run, run_all};

/// Runs the whole system under seeds, with faults, and says what must not have been.
#[derive(Debug, Parser)]
struct Args {
    /// Repeats this seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints the whole trace of it.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// So many seeds.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// From this one on.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// As many seeds as it takes for so many steps.
    #[arg(long)]
    steps: Option<u64>,
    /// So many at once. Default: one for each core.
    #[arg(long)]
    at_once: Option<usize>,
    /// Stops at the first seed that fails.
    #[arg(long)]
    first: bool,
    /// Prints the hash of every run.
    #[arg(long)]
    hashes: bool,
    /// So many lines of the trace are shown of a seed that failed.
    #[arg(long, default_value_t = 40)]
    lines: usize,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("SIM_LOG").unwrap_or_else(|_| "off".into()),
        )
        .without_time()
        .init();
    let args = Args::parse();
    if let Some(seed) = args.seed {
        return one(seed, &args);
    }
    many(&args)
}

fn one(seed: u64, args: &Args) -> ExitCode {
    let outcome = run(seed, args.trace);
    let mut sum = Sum::default();
    sum.add(&outcome);
    println!("trace {} of seed {seed}\n{sum}", outcome.hash);
    match outcome.failure(args.lines) {
        Some(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn many(args: &Args) -> ExitCode {
    let at_once = args.at_once.unwrap_or_else(|| thread::available_parallelism().map_or(1, Into::into));
    let last = if args.steps.is_some() { u64::MAX } else { args.from.saturating_add(args.seeds) };
    let enough = |sum: &Sum| {
        (args.first && !sum.failed.is_empty()) || args.steps.is_some_and(|steps| sum.steps >= steps)
    };
    let done = |outcome: &Outcome| {
        if args.hashes {
            println!("{} {}", outcome.seed, outcome.hash);
        }
        if let Some(failure) = outcome.failure(args.lines) {
            println!("{failure}\n");
        }
    };
    let sum = run_all(args.from..last, at_once, enough, done);
    println!("{sum}");
    if sum.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
