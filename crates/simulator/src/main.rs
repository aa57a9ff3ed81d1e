//! The command: runs seeds, repeats one, prints what came of them.

use std::{process::ExitCode, thread};

use clap::Parser;
use everstep_simulator::{Outcome, Sum, planted, run, run_all};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the whole system under seeds, with faults, and says what must not have been.
#[derive(Debug, Parser)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option")]
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
    /// Plants each fault in turn, or the one of this name, and runs seeds until one finds it.
    #[arg(long, num_args = 0..=1, default_missing_value = "")]
    planted: Option<String>,
    /// With `--planted`: no seeds, but the tests that go red.
    #[arg(long, requires = "planted")]
    tests: bool,
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
    if let Some(name) = &args.planted {
        return if args.tests { prove(name) } else { hunt(name, &args) };
    }
    if let Some(seed) = args.seed {
        return one(seed, &args);
    }
    many(&args)
}

/// Prints a line for each fault. Fails if one is not found.
fn hunt(name: &str, args: &Args) -> ExitCode {
    if args.seed.is_some() {
        if planted::plant(Some(name)).is_none() {
            return no_faults();
        }
        return args.seed.map_or(ExitCode::FAILURE, |seed| one(seed, args));
    }
    let mut missed = Vec::new();
    for fault in planted::FAULTS.iter().filter(|fault| name.is_empty() || fault.name == name) {
        let fault = fault.name;
        let Some(hunted) = planted::hunt(fault, args.seeds, at_once(args)) else { return no_faults() };
        println!("{hunted}");
        if hunted.found.is_none() {
            missed.push(fault);
        }
    }
    if missed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("not found: {}", missed.join(", "));
    ExitCode::FAILURE
}

/// Prints for each fault which test goes red with it. Fails if one does not.
fn prove(name: &str) -> ExitCode {
    match planted::prove(name, |proved| println!("{proved}")) {
        Ok(all) if all.iter().all(|proved| proved.green && proved.red) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn no_faults() -> ExitCode {
    println!("this build has no faults to plant: make planted");
    ExitCode::FAILURE
}

fn at_once(args: &Args) -> usize {
    args.at_once.unwrap_or_else(|| thread::available_parallelism().map_or(1, Into::into))
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
    let at_once = at_once(args);
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
