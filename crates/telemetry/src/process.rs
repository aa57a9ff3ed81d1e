//! Logs and traces of a process: begun once, flushed at its end.

use std::{io::IsTerminal, time::Duration};

use opentelemetry::{
    global,
    trace::{SpanId, TraceId, TracerProvider as _},
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{IdGenerator, RandomIdGenerator, Sampler, SdkTracerProvider},
};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, filter::filter_fn, layer::SubscriberExt, util::SubscriberInitExt,
};

use crate::{
    lines::{Lines, filter_of},
    trace::{NextId, switch_on},
};

/// How long an export may take. What cannot be sent is dropped, and work waits for none of it.
const EXPORT_WITHIN: Duration = Duration::from_secs(5);

const FORMAT: &str = "EVERSTEP_LOG__FORMAT";
const LEVEL: &str = "EVERSTEP_LOG__LEVEL";
const ENDPOINT: &str = "EVERSTEP_OTLP__ENDPOINT";
const SAMPLE_RATIO: &str = "EVERSTEP_OTLP__SAMPLE_RATIO";

/// What a process logs, and where its spans go.
///
/// ```no_run
/// # async fn example() -> Result<(), everstep_telemetry::process::Error> {
/// use everstep_telemetry::process::Wanted;
///
/// let telemetry = Wanted::of("orders-worker").json(true).otlp("http://127.0.0.1:4317").sample(0.1).start()?;
/// // ... the worker runs ...
/// telemetry.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is logged until it is started"]
pub struct Wanted {
    service: String,
    is_json: bool,
    filter: String,
    endpoint: Option<String>,
    ratio: f64,
}

/// Why it was not begun. Trying again gives the same answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter is not readable.
    #[error("the log level {0:?} is refused: {1}")]
    Filter(String, tracing_subscriber::filter::ParseError),
    /// The share of traces is none.
    #[error("the share of traces {0} is refused, it must be from 0 to 1")]
    Ratio(f64),
    /// The exporter does not take the endpoint.
    #[error("the OTLP endpoint cannot be used: {0}")]
    Endpoint(#[from] opentelemetry_otlp::ExporterBuildError),
    /// A variable of the environment says what cannot be.
    #[error("{name} is {value:?} and must be {rule}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// What it says.
        value: String,
        /// What it may say.
        rule: &'static str,
    },
    /// Somebody else has begun to log in this process.
    #[error("logging was begun before: {0}")]
    Begun(#[from] tracing_subscriber::util::TryInitError),
}

impl Wanted {
    /// Logs of level `info` for people, on standard error, and no traces.
    pub fn of(service: impl Into<String>) -> Self {
        Self {
            service: service.into(),
            is_json: false,
            filter: "info".to_owned(),
            endpoint: None,
            ratio: 1.0,
        }
    }

    /// Writes one JSON object a line.
    pub const fn json(mut self, is_json: bool) -> Self {
        self.is_json = is_json;
        self
    }

    /// Takes over what the environment says, under the names that the processes of Everstep read: `EVERSTEP_LOG__FORMAT` (`text` or
    /// `json`), `EVERSTEP_LOG__LEVEL`, `EVERSTEP_OTLP__ENDPOINT`, `EVERSTEP_OTLP__SAMPLE_RATIO`. What is not set, or empty, stays.
    pub fn of_environment(self) -> Result<Self, Error> {
        self.of_variables(|name| std::env::var(name).ok())
    }

    fn of_variables(mut self, read: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let set = |name| read(name).filter(|value| !value.is_empty());
        if let Some(value) = set(FORMAT) {
            self.is_json = match value.as_str() {
                "json" => true,
                "text" => false,
                _ => return Err(Error::Variable { name: FORMAT, value, rule: "text or json" }),
            };
        }
        if let Some(level) = set(LEVEL) {
            self.filter = level;
        }
        if let Some(endpoint) = set(ENDPOINT) {
            self.endpoint = Some(endpoint);
        }
        if let Some(value) = set(SAMPLE_RATIO) {
            let Ok(ratio) = value.parse() else {
                return Err(Error::Variable { name: SAMPLE_RATIO, value, rule: "a number from 0 to 1" });
            };
            self.ratio = ratio;
        }
        Ok(self)
    }

    /// What is logged, and which spans are made: a level and exceptions for parts, such as `info,my_crate=debug`. What drivers log at lower
    /// levels repeats payloads, and is logged only if it is named here.
    pub fn level(mut self, filter: impl Into<String>) -> Self {
        self.filter = filter.into();
        self
    }

    /// Sends spans by OTLP over gRPC.
    pub fn otlp(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// Records this share of the traces that begin here, from 0 to 1; of those that begin elsewhere, what began them decides.
    pub const fn sample(mut self, ratio: f64) -> Self {
        self.ratio = ratio;
        self
    }

    /// Begins. Once in a process, and on a Tokio runtime if spans are sent.
    pub fn start(self) -> Result<Telemetry, Error> {
        let filter = EnvFilter::builder()
            .parse(filter_of(&self.filter))
            .map_err(|error| Error::Filter(self.filter.clone(), error))?;
        let provider = self.provider()?;
        let registry = tracing_subscriber::registry().with(self.lines());
        match &provider {
            None => registry.with(filter).try_init()?,
            Some(provider) => {
                let spans = tracing_opentelemetry::layer()
                    .with_tracer(provider.tracer("tracing"))
                    // What coordinators do they make spans of themselves.
                    .with_filter(filter_fn(|made| !made.target().starts_with("everstep_coordinator")));
                registry.with(spans).with(filter).try_init()?;
                global::set_tracer_provider(provider.clone());
                switch_on();
            }
        }
        Ok(Telemetry { provider })
    }

    fn lines(&self) -> Box<dyn Layer<Registry> + Send + Sync> {
        let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        if self.is_json {
            layer.json().event_format(Lines::json()).boxed()
        } else {
            layer.with_ansi(std::io::stderr().is_terminal()).event_format(Lines::text()).boxed()
        }
    }

    fn provider(&self) -> Result<Option<SdkTracerProvider>, Error> {
        if !(0.0..=1.0).contains(&self.ratio) {
            return Err(Error::Ratio(self.ratio));
        }
        let Some(endpoint) = &self.endpoint else { return Ok(None) };
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(EXPORT_WITHIN)
            .build()?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_id_generator(Ids::default())
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(self.ratio))))
            .with_resource(Resource::builder().with_service_name(self.service.clone()).build())
            .build();
        Ok(Some(provider))
    }
}

/// Random ids, but for spans whose id is derived: a provider of one's own takes this too.
#[derive(Clone, Debug, Default)]
pub struct Ids(RandomIdGenerator);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        self.0.new_trace_id()
    }

    fn new_span_id(&self) -> SpanId {
        NextId::take().unwrap_or_else(|| self.0.new_span_id())
    }
}

/// What runs until [`Telemetry::stop`].
#[derive(Debug)]
#[must_use = "spans that are not flushed at the end are lost"]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Sends what is left, for some seconds at most.
    pub async fn stop(self) {
        let Some(provider) = self.provider else { return };
        let flushed = tokio::task::spawn_blocking(move || provider.shutdown()).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::warn!("the last traces were not sent");
        }
    }

    /// Sends what there is now.
    pub async fn flush(&self) {
        let Some(provider) = self.provider.clone() else { return };
        let flushed = tokio::task::spawn_blocking(move || provider.force_flush()).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::warn!("traces were not sent, and are dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Wanted, Error> {
        let read = |name: &str| {
            let found = variables.iter().find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Wanted::of("orders").level("error").of_variables(read)
    }

    #[test]
    fn the_environment_says_what_is_wanted() {
        let wanted = of(&[
            (FORMAT, "json"),
            (LEVEL, "warn,orders=debug"),
            (ENDPOINT, "http://collector:4317"),
            (SAMPLE_RATIO, "0.25"),
        ])
        .expect("all of it can be");
        assert!(wanted.is_json);
        assert_eq!(wanted.filter, "warn,orders=debug");
        assert_eq!(wanted.endpoint.as_deref(), Some("http://collector:4317"));
        assert_eq!(wanted.ratio.to_string(), "0.25");
    }

    #[test]
    fn what_is_not_set_or_empty_stays() {
        for variables in [vec![], vec![(FORMAT, ""), (LEVEL, ""), (ENDPOINT, ""), (SAMPLE_RATIO, "")]] {
            let wanted = of(&variables).expect("nothing is said");
            assert_eq!((wanted.is_json, wanted.filter.as_str(), wanted.endpoint), (false, "error", None));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        for (name, value) in [(FORMAT, "xml"), (SAMPLE_RATIO, "half")] {
            let error = of(&[(name, value)]).expect_err("it cannot be").to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
        let ratio = of(&[(SAMPLE_RATIO, "2")]).expect("a number").provider().expect_err("more than all");
        assert!(matches!(ratio, Error::Ratio(_)), "{ratio}");
    }

    #[test]
    fn drivers_are_quiet_unless_they_are_named() {
        let filter =
            |level: &str| EnvFilter::builder().parse(filter_of(level)).expect("it is readable").to_string();
        assert!(filter("trace").contains("tokio_postgres=info"), "{}", filter("trace"));
        assert!(filter("info,tokio_postgres=debug").contains("tokio_postgres=debug"));
        assert!(!filter("info,tokio_postgres=debug").contains("tokio_postgres=info"));
    }
}
