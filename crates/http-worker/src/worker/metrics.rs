//! What the calls of one process count. Labels are bounded: never a host, a workflow or a step.

use std::time::Duration;

use everstep_sdk::Error;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::{Response, name};

/// The counters. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Attempts of calls that ended, by outcome: done, found, invalid, `not_allowed`, `not_sent`, `timed_out`, broken, refused
    /// (an error that is permanent), again (one that may be retried), cancelled.
    pub calls: IntCounterVec,
    /// How long they took, in seconds, looks included, by the same outcome.
    pub seconds: HistogramVec,
    /// Looks before a call, by outcome: found, absent, failed.
    pub looks: IntCounterVec,
    /// How long they took, in seconds.
    pub look_seconds: HistogramVec,
}

const BUCKETS: [f64; 10] = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];

impl Metrics {
    /// Counters that this registry shows.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self::unregistered()?;
        registry.register(Box::new(metrics.calls.clone()))?;
        registry.register(Box::new(metrics.seconds.clone()))?;
        registry.register(Box::new(metrics.looks.clone()))?;
        registry.register(Box::new(metrics.look_seconds.clone()))?;
        Ok(metrics)
    }

    fn unregistered() -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str| IntCounterVec::new(Opts::new(name, help), &["outcome"]);
        let histogram = |name: &str, help: &str| {
            HistogramVec::new(HistogramOpts::new(name, help).buckets(BUCKETS.to_vec()), &["outcome"])
        };
        Ok(Self {
            calls: counter("everstep_http_calls_total", "Attempts of HTTP calls that ended")?,
            seconds: histogram("everstep_http_call_seconds", "Attempts of HTTP calls")?,
            looks: counter("everstep_http_looks_total", "Looks before calls")?,
            look_seconds: histogram("everstep_http_look_seconds", "Looks before calls")?,
        })
    }

    pub(super) fn called(&self, result: &Result<Response, Error>, took: Duration) {
        let outcome = match result {
            Ok(response) if response.found => "found",
            Ok(_) => "done",
            Err(error) => match error.name() {
                name::INVALID => "invalid",
                name::NOT_ALLOWED => "not_allowed",
                name::NOT_SENT => "not_sent",
                name::TIMED_OUT => "timed_out",
                name::BROKEN => "broken",
                super::calls::CANCELLED => "cancelled",
                _ if error.is_permanent() => "refused",
                _ => "again",
            },
        };
        self.calls.with_label_values(&[outcome]).inc();
        self.seconds.with_label_values(&[outcome]).observe(took.as_secs_f64());
    }

    pub(super) fn looked(&self, outcome: &str, took: Duration) {
        self.looks.with_label_values(&[outcome]).inc();
        self.look_seconds.with_label_values(&[outcome]).observe(took.as_secs_f64());
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::unregistered().expect("the names of our own counters are valid")
    }
}
