//! A steady mixed load on a fleet of real processes, for as long as one likes: sequences, sleeps, events, children and hooks, with
//! retention running. Every other second it takes samples: memory of each process, sizes of tables and indexes, dead rows, latencies. At the
//! end it says of each whether it stayed flat after the warm-up, and exits 1 if one did not.
//!
//! What it proves: nothing grows with time under a load that does not. What it does not: how much is carried (`make bench`), nor that
//! nothing grows with what is kept.

mod draw;
mod fit;
mod fleet;
mod load;
mod report;
mod role;
mod sample;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs a steady load and says whether what it takes stays flat.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// How long, in minutes.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Instances a second.
    #[arg(long, default_value_t = 30.0)]
    rate: f64,
    /// How long ended instances are kept, in seconds. Default: a twelfth of the time, from 10 s to a minute.
    #[arg(long)]
    keep: Option<u64>,
    /// Where soak.json and soak.svg go.
    #[arg(long, default_value = "docs/soak")]
    out: PathBuf,
    #[command(subcommand)]
    role: Option<role::Role>,
}

/// How the run is laid out in time.
#[derive(Clone, Copy, Debug)]
struct Plan {
    lasts: Duration,
    /// What comes before is not judged: caches fill, and the first instances are not deleted yet.
    warm_up: Duration,
    every: Duration,
    keep: Duration,
    rate: f64,
}

impl Plan {
    fn of(arguments: &Arguments) -> anyhow::Result<Self> {
        let (minutes, rate) = (arguments.minutes, arguments.rate);
        anyhow::ensure!(
            minutes.is_finite() && (0.5..=100_000.0).contains(&minutes),
            "--minutes {minutes} must be from 0.5 on"
        );
        anyhow::ensure!(
            rate.is_finite() && (1.0..=1_000.0).contains(&rate),
            "--rate {rate} must be from 1 to 1000"
        );
        let lasts = Duration::from_secs_f64(minutes * 60.0);
        let keep = arguments
            .keep
            .map_or((lasts / 12).clamp(Duration::from_secs(10), Duration::from_mins(1)), Duration::from_secs);
        // About 300 samples, however long it lasts.
        let every = (lasts / 300).clamp(Duration::from_secs(1), Duration::from_secs(30));
        Ok(Self { lasts, warm_up: lasts / 3, every, keep, rate })
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "error".into()),
        )
        .with_writer(std::io::stderr)
        .init();
    let outcome = match arguments.role.clone() {
        Some(role) => role.run().map(|()| true),
        None => soak(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Answers with whether everything stayed flat.
fn soak(arguments: &Arguments) -> anyhow::Result<bool> {
    let plan = Plan::of(arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let run = runtime.block_on(load::run(plan))?;
    let report = report::Report::of(plan, run);
    std::fs::create_dir_all(&arguments.out)?;
    std::fs::write(arguments.out.join("soak.json"), serde_json::to_string_pretty(&report)? + "\n")?;
    draw::draw(&report, &arguments.out.join("soak.svg"))?;
    println!("{report}");
    Ok(report.is_flat)
}
