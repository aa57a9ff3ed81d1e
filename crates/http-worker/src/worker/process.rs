//! The process `everstep-http-worker`: settings, logs, metrics, and a worker of the fleet that serves one function.

mod settings;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::Parser;
use everstep_telemetry::process::{Telemetry, Wanted};
use prometheus::Registry;

use super::{HttpCalls, Metrics, SystemResolver};
use crate::FUNCTION;

pub use everstep_settings::{Log, LogFormat, Otlp, SecretUrl, Sources};
pub use settings::{Amqp, MetricsPage, ProcessSettings, SecretSources, WorkerPart};

/// Makes HTTP calls for the remote steps of a pool.
#[derive(Debug, Parser)]
#[command(name = "everstep-http-worker", version)]
struct Arguments {
    /// A file of settings in TOML; environment variables go before it
    #[arg(long, env = "EVERSTEP_CONFIG", hide_env_values = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to serve /metrics, /healthz and /readyz; default from the settings
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// A host that may be called, beside those of the settings; may be given several times
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// Check the settings and stop
    #[arg(long)]
    check: bool,
}

/// Runs the command line until the process is told to stop. The exit code is 0 after a stop, 1 if the worker failed, 2 if the
/// command line or the settings cannot be used.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are errors to clap; if nobody reads them there is nobody to tell.
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let check = arguments.check;
    let settings = match read(arguments) {
        Ok(settings) => settings,
        Err(problems) => {
            say("the settings cannot be used");
            for problem in problems {
                say(&format!("  {problem}"));
            }
            return ExitCode::from(2);
        }
    };
    if check {
        return ExitCode::SUCCESS;
    }
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(settings)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::from(1)
        }
    }
}

#[allow(clippy::print_stderr, reason = "what a command says of itself")]
fn say(line: &str) {
    eprintln!("everstep-http-worker: {line}");
}

fn read(arguments: Arguments) -> Result<ProcessSettings, Vec<String>> {
    let listen = arguments.listen.map(|listen| ("metrics.listen", listen)).into_iter().collect();
    let mut settings = ProcessSettings::load(&Sources::of_process(arguments.config, listen))?;
    let mut problems = Vec::new();
    for host in arguments.hosts {
        match host.parse() {
            Ok(host) => settings.calls.hosts.push(host),
            Err(error) => problems.push(format!("--host: {error}")),
        }
    }
    problems.extend(settings.validate());
    if problems.is_empty() { Ok(settings) } else { Err(problems) }
}

async fn run(settings: ProcessSettings) -> anyhow::Result<()> {
    let telemetry = telemetry(&settings.log, &settings.otlp)?;
    let outcome = work(settings).await;
    telemetry.stop().await;
    outcome
}

async fn work(settings: ProcessSettings) -> anyhow::Result<()> {
    let registry = Registry::new();
    let counters = Metrics::new(&registry)?;
    let secrets = settings.secrets();
    let calls = HttpCalls::with(&settings.calls, secrets, std::sync::Arc::new(SystemResolver), counters)?;
    if settings.calls.hosts.is_empty() {
        tracing::warn!("calls.hosts is empty, so every call will be refused");
    }
    let part = settings.worker;
    let mut worker = everstep::fleet(settings.amqp.url.reveal())
        .function(FUNCTION, calls.function())
        .namespace(&part.namespace)
        .settings(|worker| {
            worker.slots = part.slots;
            worker.prefetch = part.prefetch;
            worker.report_queues = part.report_queues;
            worker.shutdown_grace = part.shutdown_grace.to_std();
        });
    if let Some(listen) = settings.metrics.listen {
        worker = worker.metrics_of(listen, registry);
    }
    for pool in &part.pools {
        worker = worker.pool(pool);
    }
    if let Some(build) = &part.build {
        worker = worker.build(build);
    }
    Ok(worker.run().await?)
}

fn telemetry(log: &Log, otlp: &Otlp) -> anyhow::Result<Telemetry> {
    let mut wanted = Wanted::of("everstep-http-worker")
        .json(log.format == LogFormat::Json)
        .level(&log.level)
        .sample(otlp.sample_ratio);
    if let Some(endpoint) = &otlp.endpoint {
        wanted = wanted.otlp(endpoint.reveal());
    }
    Ok(wanted.start()?)
}
