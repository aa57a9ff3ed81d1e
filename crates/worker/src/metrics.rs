//! What a worker counts. Labels are bounded: never an instance; of names that come from workflow code those of 500 steps.

use std::sync::Arc;

use everstep_metrics::{Book, Bounded, Described, Local};
use prometheus::{Counter, Histogram, IntCounter, IntCounterVec, IntGauge, Registry};

/// The most steps that have series of their own.
const STEPS_MAX: usize = 500;
const SECONDS: [f64; 12] = [0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3_600.0];
const POLLS: [f64; 7] = [0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0];
const ACKS: [f64; 13] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 30.0];

/// The counters of one process's workers. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Attempts by workflow and step.
    pub(crate) steps: Arc<Bounded<Arc<StepMeter>>>,
    /// Reports sent for the first time.
    pub reports: IntCounter,
    /// Claims and reports sent again because no answer came.
    pub resends: IntCounter,
    /// How long a report waits for its answer, in seconds.
    pub acks: Histogram,
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
    /// How long attempts looked before they called (rule L6).
    pub looks: Histogram,
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
    /// Attempts that wait for a slot.
    pub queued: IntGauge,
    /// Attempts that may run at once.
    pub slots: IntGauge,
    /// Attempts whose future did not go in time after its timeout, still there.
    pub written_off: IntGauge,
    /// How long one poll of a body took, in seconds.
    pub polls: Histogram,
    /// 1 while a coordinator has opened the session and answers its heartbeats.
    pub session_up: IntGauge,
    /// 1 while both connections to the broker are open.
    pub broker_up: IntGauge,
}

/// The handles of one step.
#[derive(Clone, Debug)]
pub(crate) struct StepMeter {
    pub(crate) started: IntCounter,
    pub(crate) retries: IntCounter,
    pub(crate) succeeded: IntCounter,
    pub(crate) failed: IntCounter,
    pub(crate) timed_out: IntCounter,
    pub(crate) panicked: IntCounter,
    pub(crate) cancelled: IntCounter,
    pub(crate) seconds: Histogram,
    pub(crate) busy: Counter,
}

/// All metrics of a worker, for the reference page.
#[must_use]
pub fn described() -> Vec<Described> {
    let mut book = Book::new(&Registry::new(), PREFIX);
    Metrics::in_book(&mut book).expect("the names of our own counters are valid");
    book.described()
}

const PREFIX: &str = "everstep_worker_";

impl Metrics {
    /// Counters that this registry shows. A registry takes them once: keep the value and clone it for later workers.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        Self::in_book(&mut Book::new(registry, PREFIX))
    }

    fn in_book(book: &mut Book) -> Result<Self, prometheus::Error> {
        let info = book.gauges("build_info", "Always 1; the version of the library.", &["version"])?;
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Ok(Self {
            steps: steps(book)?,
            reports: book.counter("reports_total", "Reports sent for the first time.")?,
            resends: book
                .counter("resends_total", "Claims and reports sent again because no answer came.")?,
            acks: book.histogram(
                "report_to_ack_seconds",
                "From the first sending of a report of an instance to its answer.",
                &ACKS,
            )?,
            fences: book.counter("fences_total", "Leases that ended under the worker.")?,
            replays: book.counter("replays_total", "Bodies run from a journal with outcomes.")?,
            folds_refused: book
                .counter("folds_refused_total", "Folds refused because another entry came first.")?,
            drifted: book.counter(
                "drifted_total",
                "Recorded outcomes used although another build recorded them for another input.",
            )?,
            found: book
                .counter("found_total", "Steps that found their effect done and did not do it again.")?,
            looks: book.histogram(
                "look_seconds",
                "How long attempts of steps that look first looked, whether they found something or not.",
                &SECONDS,
            )?,
            set_aside: book.counters(
                "set_aside_total",
                "Messages set aside: unreadable, of another incarnation, for another session.",
                &["why"],
            )?,
            held: book.gauge("held", "Instances held.")?,
            cached: book.gauge("cached", "Bodies of suspended instances kept.")?,
            cached_bytes: book.gauge("cached_bytes", "Estimated memory of the bodies kept.")?,
            resumed: book.counter("resumed_total", "Grants that found the body kept.")?,
            running: book.gauge("running", "Attempts running.")?,
            queued: book.gauge("queued", "Attempts that wait for a slot.")?,
            slots: book.gauge("slots", "Attempts that may run at once.")?,
            written_off: book.gauge("written_off", "Timed-out attempts that did not go.")?,
            polls: book.histogram(
                "poll_seconds",
                "One poll of a workflow's body; the sum is the time that bodies kept the work loop busy.",
                &POLLS,
            )?,
            session_up: book.gauge(
                "session_up",
                "1 while a coordinator has opened the session and answers its heartbeats.",
            )?,
            broker_up: book.gauge(
                "broker_up",
                "1 while both connections to the broker are open and it takes messages.",
            )?,
        })
    }

    pub(crate) fn aside(&self, why: &str) {
        self.set_aside.with_label_values(&[why]).inc();
    }

    /// A loop's own handles of steps.
    pub(crate) fn local(&self) -> Local<Arc<StepMeter>> {
        Local::new(Arc::clone(&self.steps))
    }
}

fn steps(book: &mut Book) -> Result<Arc<Bounded<Arc<StepMeter>>>, prometheus::Error> {
    let names = ["workflow", "step"];
    let started = book.counters("attempts_started_total", "Attempts that began.", &names)?;
    let retries =
        book.counters("retries_total", "Attempts that began and were not the first of their step.", &names)?;
    let ended = book.counters(
        "attempts_total",
        "Attempts that ended, by outcome: succeeded, failed, timed_out, panicked, cancelled.",
        &["workflow", "step", "outcome"],
    )?;
    let seconds = book.histograms(
        "attempt_seconds",
        "From the beginning of an attempt to its end, whatever it was.",
        &SECONDS,
        &names,
    )?;
    let busy = book.amounts(
        "step_busy_seconds_total",
        "Time in which attempts kept a thread busy: the sum of their polls.",
        &names,
    )?;
    Ok(Arc::new(Bounded::new(STEPS_MAX, move |workflow, step| {
        let of = [workflow, step];
        let outcome = |outcome| ended.with_label_values(&[workflow, step, outcome]);
        Arc::new(StepMeter {
            started: started.with_label_values(&of),
            retries: retries.with_label_values(&of),
            succeeded: outcome("succeeded"),
            failed: outcome("failed"),
            timed_out: outcome("timed_out"),
            panicked: outcome("panicked"),
            cancelled: outcome("cancelled"),
            seconds: seconds.with_label_values(&of),
            busy: busy.with_label_values(&of),
        })
    })))
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(&Registry::new()).expect("the names of our own counters are valid")
    }
}
