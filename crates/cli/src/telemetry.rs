//! Logs and traces of this process.

use std::io::IsTerminal;

use anyhow::Context;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tracing_subscriber::{Layer, Registry, layer::SubscriberExt, util::SubscriberInitExt};

use crate::settings::{Log, LogFormat, Otlp};

/// What runs until [`Telemetry::shutdown`].
#[derive(Debug)]
#[must_use = "spans that are not flushed at the end are lost"]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

/// Begins to log on standard error, and to send traces if an endpoint is set. Once in a process, on a Tokio runtime.
pub fn start(log: &Log, otlp: &Otlp) -> anyhow::Result<Telemetry> {
    let filter = log.filter().context("log.level is refused")?;
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match log.format {
        LogFormat::Text => tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .boxed(),
        LogFormat::Json => tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr).boxed(),
    };
    let traces = match &otlp.endpoint {
        Some(endpoint) => Some(exporter(endpoint.reveal())?),
        None => None,
    };
    let spans =
        traces.as_ref().map(|traces| tracing_opentelemetry::layer().with_tracer(traces.tracer("everstep")));
    tracing_subscriber::registry()
        .with(lines)
        .with(spans)
        .with(filter)
        .try_init()
        .context("logging was begun before")?;
    Ok(Telemetry { traces })
}

fn exporter(endpoint: &str) -> anyhow::Result<SdkTracerProvider> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .context("otlp.endpoint cannot be used")?;
    let resource = Resource::builder().with_service_name("everstep").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

impl Telemetry {
    /// Sends what is left, for some seconds at most.
    pub async fn shutdown(self) {
        let Some(traces) = self.traces else { return };
        let flushed = tokio::task::spawn_blocking(move || traces.shutdown()).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::warn!("the last traces were not sent");
        }
    }
}
