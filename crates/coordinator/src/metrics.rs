//! What a coordinator counts. Labels are bounded: never an id, never a text from outside but the names of 20 queues.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    core::Collector,
};

/// The metrics of one coordinator, on a registry of its own.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) registry: Registry,
    pub(crate) answers: IntCounterVec,
    pub(crate) batch_inputs: Histogram,
    pub(crate) batch_failures: IntCounterVec,
    pub(crate) commit_seconds: Histogram,
    pub(crate) waiting: IntGauge,
    pub(crate) messages: IntCounterVec,
    pub(crate) messages_sent: IntCounter,
    pub(crate) entries_read: IntCounter,
    pub(crate) unreadable: IntCounterVec,
    pub(crate) set_aside: IntCounter,
    pub(crate) rejected: IntCounterVec,
    pub(crate) rejected_bytes: IntGaugeVec,
    pub(crate) intake_stopped: IntGaugeVec,
    pub(crate) unserved: IntGaugeVec,
    pub(crate) attention: IntGaugeVec,
    pub(crate) questions: IntCounter,
    pub(crate) sessions: IntGauge,
    pub(crate) sessions_ended: IntCounterVec,
    pub(crate) timer_lateness: HistogramVec,
    pub(crate) leases_unconfirmed: IntCounter,
    pub(crate) loops_still: IntGauge,
    pub(crate) lifecycles: IntCounterVec,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let seconds = vec![0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0];
        let sizes = vec![1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 256.0];
        let counter = |name: &str, help: &str| keep(&registry, IntCounter::new(name, help));
        let vec = |name: &str, help: &str, label: &str| {
            keep(&registry, IntCounterVec::new(Opts::new(name, help), &[label]))
        };
        let gauges = |name: &str, help: &str, label: &str| {
            keep(&registry, IntGaugeVec::new(Opts::new(name, help), &[label]))
        };
        let histogram = |name: &str, help: &str, buckets: Vec<f64>| {
            keep(&registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)))
        };
        Self {
            answers: vec("everstep_decisions_total", "Decided inputs by answer.", "answer"),
            batch_inputs: histogram("everstep_batch_inputs", "Inputs in one committed transaction.", sizes),
            batch_failures: vec(
                "everstep_batch_failures_total",
                "Transactions that did not commit, by kind.",
                "kind",
            ),
            commit_seconds: histogram(
                "everstep_commit_seconds",
                "From the first statement of a transaction to its commit.",
                seconds.clone(),
            ),
            waiting: keep(
                &registry,
                IntGauge::new("everstep_inputs_waiting", "Inputs that wait for a batch."),
            ),
            messages: vec("everstep_messages_received_total", "Messages received, by queue kind.", "queue"),
            messages_sent: counter("everstep_messages_sent_total", "Messages handed to the broker."),
            entries_read: counter(
                "everstep_entries_read_total",
                "Journal entries that were read for workers.",
            ),
            unreadable: vec(
                "everstep_messages_unreadable_total",
                "Messages that are no envelope, by queue kind.",
                "queue",
            ),
            set_aside: counter("everstep_messages_set_aside_total", "Messages of another incarnation."),
            rejected: vec(
                "everstep_messages_rejected_total",
                "Messages that were recorded as rejected, starts and events, by code.",
                "code",
            ),
            rejected_bytes: gauges(
                "everstep_rejected_bytes",
                "Bytes that the records of rejected messages take, by namespace of the settings.",
                "namespace",
            ),
            intake_stopped: gauges(
                "everstep_intake_stopped",
                "1 if starts stay in the queue because rejected records have reached their bound.",
                "namespace",
            ),
            unserved: gauges(
                "everstep_unserved",
                "Instances and remote steps that are ready and that no worker serves, up to 10,000 each, by workflow or pool, at \
                 most 20; of the coordinator that offers.",
                "queue",
            ),
            attention: keep(&registry, attention()),
            questions: counter(
                "everstep_unknown_outcomes_total",
                "At-most-once calls whose outcome became a question for a person.",
            ),
            sessions: keep(
                &registry,
                IntGauge::new("everstep_sessions", "Live sessions as this coordinator knows them."),
            ),
            sessions_ended: vec(
                "everstep_sessions_ended_total",
                "Sessions ended by this coordinator, by cause.",
                "cause",
            ),
            timer_lateness: keep(&registry, lateness(seconds)),
            leases_unconfirmed: counter(
                "everstep_leases_unconfirmed_total",
                "Leases ended because their holder never confirmed them.",
            ),
            loops_still: keep(
                &registry,
                IntGauge::new(
                    "everstep_sessions_standing_still",
                    "Sessions whose last heartbeat here said that their work loop does not turn.",
                ),
            ),
            lifecycles: vec(
                "everstep_lifecycle_messages_total",
                "Lifecycle messages by outcome of their publication.",
                "outcome",
            ),
            registry,
        }
    }
}

fn attention() -> prometheus::Result<IntGaugeVec> {
    let opts = Opts::new(
        "everstep_attention",
        "What waits for a person, by kind and by how long: less than an hour, a day, older; of the coordinator that offers.",
    );
    IntGaugeVec::new(opts, &["kind", "age"])
}

fn lateness(buckets: Vec<f64>) -> prometheus::Result<HistogramVec> {
    let opts = HistogramOpts::new("everstep_timer_lateness_seconds", "From due to the scan that found it.");
    HistogramVec::new(opts.buckets(buckets), &[])
}

fn keep<C: Collector + Clone + 'static>(registry: &Registry, collector: prometheus::Result<C>) -> C {
    let collector = collector.expect("names, labels and buckets are constants that are valid");
    registry.register(Box::new(collector.clone())).expect("each metric has a name of its own");
    collector
}
