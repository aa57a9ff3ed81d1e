//! What the calls of one process count. Labels are bounded: never a host, a workflow or a step.

use std::time::Duration;

use everstep_metrics::{Book, Described};
use everstep_sdk::Error;
use prometheus::{HistogramVec, IntCounterVec, Registry};

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

/// All metrics of the calls, for the reference page.
#[must_use]
pub fn described() -> Vec<Described> {
    let mut book = Book::new(&Registry::new(), PREFIX);
    Metrics::in_book(&mut book).expect("the names of our own counters are valid");
    book.described()
}

const PREFIX: &str = "everstep_http_";

impl Metrics {
    /// Counters that this registry shows.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        Self::in_book(&mut Book::new(registry, PREFIX))
    }

    fn in_book(book: &mut Book) -> Result<Self, prometheus::Error> {
        let outcome = ["outcome"];
        Ok(Self {
            calls: book.counters(
                "calls_total",
                "Attempts of HTTP calls that ended: done, found, invalid, not_allowed, not_sent, timed_out, broken, refused (a \
                 permanent error), again (one that may be retried), cancelled.",
                &outcome,
            )?,
            seconds: book.histograms(
                "call_seconds",
                "Attempts of HTTP calls, looks included.",
                &BUCKETS,
                &outcome,
            )?,
            looks: book.counters("looks_total", "Looks before calls: found, absent, failed.", &outcome)?,
            look_seconds: book.histograms("look_seconds", "Looks before calls.", &BUCKETS, &outcome)?,
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
        Self::new(&Registry::new()).expect("the names of our own counters are valid")
    }
}
