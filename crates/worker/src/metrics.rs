//! What a worker counts. Labels are bounded: never an instance, a workflow or a step.

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// The counters of one process's workers. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Attempts that ended, by outcome: succeeded, failed, `timed_out`, panicked, cancelled.
    pub attempts: IntCounterVec,
    /// Reports sent for the first time.
    pub reports: IntCounter,
    /// Claims and reports sent again because no answer came.
    pub resends: IntCounter,
    /// Leases that ended under the worker.
    pub fences: IntCounter,
    /// Bodies that were run from a journal with outcomes.
    pub replays: IntCounter,
    /// Folds that were refused because another entry came first.
    pub folds_refused: IntCounter,
    /// Recorded outcomes used although another build recorded them for another input (rule P8).
    pub drifted: IntCounter,
    /// Steps that found their effect done and did not do it again (rule L6).
    pub found: IntCounter,
    /// Messages that were set aside: unreadable, of another incarnation, for another session.
    pub set_aside: IntCounterVec,
    /// Instances held.
    pub held: IntGauge,
    /// Bodies of suspended instances that are kept.
    pub cached: IntGauge,
    /// What they are estimated to take.
    pub cached_bytes: IntGauge,
    /// Grants that found the body kept.
    pub resumed: IntCounter,
    /// Attempts running.
    pub running: IntGauge,
    /// Attempts whose future did not go in time after its timeout, still there.
    pub written_off: IntGauge,
    /// How long one poll of a body took, in seconds.
    pub polls: Histogram,
}

impl Metrics {
    /// Counters that this registry shows. A registry takes them once: keep the value and clone it for later workers.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self::unregistered()?;
        registry.register(Box::new(metrics.attempts.clone()))?;
        registry.register(Box::new(metrics.set_aside.clone()))?;
        registry.register(Box::new(metrics.polls.clone()))?;
        for counter in [
            &metrics.reports,
            &metrics.resends,
            &metrics.fences,
            &metrics.replays,
            &metrics.resumed,
            &metrics.folds_refused,
            &metrics.drifted,
            &metrics.found,
        ] {
            registry.register(Box::new(counter.clone()))?;
        }
        for gauge in
            [&metrics.held, &metrics.cached, &metrics.cached_bytes, &metrics.running, &metrics.written_off]
        {
            registry.register(Box::new(gauge.clone()))?;
        }
        Ok(metrics)
    }

    fn unregistered() -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str| IntCounter::new(format!("everstep_worker_{name}_total"), help);
        let vec = |name: &str, help: &str, label: &str| {
            IntCounterVec::new(Opts::new(format!("everstep_worker_{name}_total"), help), &[label])
        };
        let gauge = |name: &str, help: &str| IntGauge::new(format!("everstep_worker_{name}"), help);
        let polls = HistogramOpts::new("everstep_worker_poll_seconds", "One poll of a workflow's body")
            .buckets(vec![0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0]);
        Ok(Self {
            attempts: vec("attempts", "Attempts that ended", "outcome")?,
            reports: counter("reports", "Reports sent for the first time")?,
            resends: counter("resends", "Claims and reports sent again")?,
            fences: counter("fences", "Leases that ended under the worker")?,
            replays: counter("replays", "Bodies run from a journal with outcomes")?,
            folds_refused: counter("folds_refused", "Folds refused")?,
            drifted: counter("drifted", "Outcomes used for another input under another build")?,
            found: counter("found", "Steps that found their effect done")?,
            set_aside: vec("set_aside", "Messages set aside", "why")?,
            held: gauge("held", "Instances held")?,
            cached: gauge("cached", "Bodies of suspended instances kept")?,
            cached_bytes: gauge("cached_bytes", "Estimated memory of the bodies kept")?,
            resumed: counter("resumed", "Grants that found the body kept")?,
            running: gauge("running", "Attempts running")?,
            written_off: gauge("written_off", "Timed-out attempts that did not go")?,
            polls: Histogram::with_opts(polls)?,
        })
    }

    pub(crate) fn aside(&self, why: &str) {
        self.set_aside.with_label_values(&[why]).inc();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::unregistered().expect("the names of our own counters are valid")
    }
}
