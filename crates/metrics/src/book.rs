//! Makes metrics, registers them, and remembers what they are.

use std::fmt;

use prometheus::{
    CounterVec, Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, core::Collector,
};

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, and begins at zero with the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations in buckets, with `_bucket`, `_sum` and `_count`.
    Histogram,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

/// A metric as the reference page tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Its labels.
    pub labels: Vec<String>,
    /// What it counts.
    pub help: String,
}

/// Makes the metrics of one part on one registry. An error means that a name is not a valid one, or is there already.
#[derive(Clone, Debug)]
pub struct Book {
    registry: Registry,
    prefix: &'static str,
    rows: Vec<Described>,
}

impl Book {
    /// A book whose metrics begin with this prefix and are shown by this registry.
    #[must_use]
    pub fn new(registry: &Registry, prefix: &'static str) -> Self {
        Self { registry: registry.clone(), prefix, rows: Vec::new() }
    }

    /// What was made so far.
    #[must_use]
    pub fn described(self) -> Vec<Described> {
        self.rows
    }

    /// A counter.
    pub fn counter(&mut self, name: &str, help: &str) -> Result<IntCounter, Error> {
        let made = IntCounter::with_opts(self.note(Kind::Counter, name, help, &[]))?;
        self.keep(made)
    }

    /// Counters by labels.
    pub fn counters(&mut self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
        let made = IntCounterVec::new(self.note(Kind::Counter, name, help, labels), labels)?;
        self.keep(made)
    }

    /// Counters of parts of a unit, such as seconds, by labels.
    pub fn amounts(&mut self, name: &str, help: &str, labels: &[&str]) -> Result<CounterVec, Error> {
        let made = CounterVec::new(self.note(Kind::Counter, name, help, labels), labels)?;
        self.keep(made)
    }

    /// A gauge.
    pub fn gauge(&mut self, name: &str, help: &str) -> Result<IntGauge, Error> {
        let made = IntGauge::with_opts(self.note(Kind::Gauge, name, help, &[]))?;
        self.keep(made)
    }

    /// Gauges by labels.
    pub fn gauges(&mut self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, Error> {
        let made = IntGaugeVec::new(self.note(Kind::Gauge, name, help, labels), labels)?;
        self.keep(made)
    }

    /// A histogram with these upper bounds.
    pub fn histogram(&mut self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
        let opts = HistogramOpts::from(self.note(Kind::Histogram, name, help, &[]));
        self.keep(Histogram::with_opts(opts.buckets(buckets.to_vec()))?)
    }

    /// Histograms by labels.
    pub fn histograms(
        &mut self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: &[&str],
    ) -> Result<HistogramVec, Error> {
        let opts = HistogramOpts::from(self.note(Kind::Histogram, name, help, labels));
        self.keep(HistogramVec::new(opts.buckets(buckets.to_vec()), labels)?)
    }

    fn note(&mut self, kind: Kind, name: &str, help: &str, labels: &[&str]) -> Opts {
        let name = format!("{}{name}", self.prefix);
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.rows.push(Described { name: name.clone(), kind, labels, help: help.to_owned() });
        Opts::new(name, help)
    }

    fn keep<C: Collector + Clone + 'static>(&self, made: C) -> Result<C, Error> {
        self.registry.register(Box::new(made.clone()))?;
        Ok(made)
    }
}
