//! Logs and traces of this process, as the settings want them.

use everstep_telemetry::process::{Telemetry, Wanted};

use crate::settings::{Log, LogFormat, Otlp};

/// Begins to log on standard error, and to send traces if an endpoint is set. Once in a process, on a Tokio runtime.
pub fn start(log: &Log, otlp: &Otlp) -> anyhow::Result<Telemetry> {
    let mut wanted = Wanted::of("everstep")
        .json(log.format == LogFormat::Json)
        .level(&log.level)
        .sample(otlp.sample_ratio);
    if let Some(endpoint) = &otlp.endpoint {
        wanted = wanted.otlp(endpoint.reveal());
    }
    Ok(wanted.start()?)
}
