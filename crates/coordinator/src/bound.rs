//! Which namespaces take no more starts, because the records of their rejected messages have reached the bound (rule W17). Their
//! messages stay in the queue: nothing is lost. Once the records are fewer, or the bound is higher, intake goes on.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use everstep_protocol::Namespace;
use everstep_store::Rejected;
use tokio::sync::{Notify, watch};

use crate::metrics::Metrics;

/// What the records of each namespace take, and who is stopped.
#[derive(Debug)]
pub(crate) struct Bound {
    bytes_max: u64,
    metrics: Metrics,
    kept: Mutex<HashMap<Namespace, u64>>,
    stopped: watch::Sender<HashSet<Namespace>>,
    /// The bound may be reached: it is time to measure.
    pub(crate) near: Notify,
}

impl Bound {
    pub(crate) fn new(bytes_max: u64, metrics: Metrics) -> Self {
        let (stopped, _) = watch::channel(HashSet::new());
        Self { bytes_max, metrics, kept: Mutex::default(), stopped, near: Notify::new() }
    }

    /// Records were written here. A guess between two measures: a repetition is counted though it is not kept twice.
    pub(crate) fn add(&self, records: &[Rejected]) {
        let mut kept = self.kept();
        for record in records {
            let bytes = kept.entry(record.namespace.clone()).or_default();
            *bytes = bytes.saturating_add(everstep_store::record_bytes(record.body_bytes));
            if *bytes >= self.bytes_max {
                self.near.notify_one();
            }
        }
    }

    /// What the store says. Intake stops at the bound, and goes on well below it, so that it does not flutter.
    pub(crate) fn measured(&self, namespace: &Namespace, bytes: u64) {
        self.kept().insert(namespace.clone(), bytes);
        let stop = stops(self.stopped.borrow().contains(namespace), bytes, self.bytes_max);
        let changed = self.stopped.send_if_modified(|stopped| {
            if stop { stopped.insert(namespace.clone()) } else { stopped.remove(namespace) }
        });
        let label = [namespace.as_str()];
        self.metrics.rejected_bytes.with_label_values(&label).set(signed(bytes));
        self.metrics.intake_stopped.with_label_values(&label).set(i64::from(stop));
        match (changed, stop) {
            (false, _) => {}
            (true, true) => tracing::error!(
                %namespace,
                bytes,
                bytes_max = self.bytes_max,
                "starts of this namespace are not taken in: the records of rejected messages have reached the bound; the \
                 messages stay in the queue; delete records, or raise coordinator.rejected_bytes"
            ),
            (true, false) => tracing::info!(%namespace, bytes, "starts of this namespace are taken in again"),
        }
    }

    /// Waits until the namespace's starts may be taken in.
    pub(crate) async fn open(&self, namespace: &Namespace) {
        self.until(namespace, false).await;
    }

    /// Waits until they may not.
    pub(crate) async fn stopped(&self, namespace: &Namespace) {
        self.until(namespace, true).await;
    }

    /// The namespaces whose starts are not taken in.
    pub(crate) fn stopped_now(&self) -> Vec<Namespace> {
        self.stopped.borrow().iter().cloned().collect()
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Namespace, u64>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until(&self, namespace: &Namespace, wanted: bool) {
        let mut stopped = self.stopped.subscribe();
        // The sender lives as long as this value.
        drop(stopped.wait_for(|stopped| stopped.contains(namespace) == wanted).await);
    }
}

/// Whether intake stops: from the bound on, and until the records take a tenth less.
const fn stops(stopped: bool, bytes: u64, bytes_max: u64) -> bool {
    if stopped { bytes > bytes_max - bytes_max / 10 } else { bytes >= bytes_max }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    //! Proves when intake stops and goes on. Not: what is measured; see the store's conformance.
    use super::*;

    #[test]
    fn w17_intake_stops_at_the_bound_and_goes_on_a_tenth_below() {
        for (stopped, bytes, wanted) in [
            (false, 999, false),
            (false, 1_000, true),
            (true, 901, true),
            (true, 900, false),
            (true, 0, false),
        ] {
            assert_eq!(stops(stopped, bytes, 1_000), wanted, "{stopped} {bytes}");
        }
    }
}
