//! What a coordinator counts. Labels are bounded: never an id; of names that come from outside those of 200 queues, 200 workflows and
//! 500 steps.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use everstep_metrics::{Book, Bounded, Described, Local};
use prometheus::{Error, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use crate::service::rejections;

/// The most workflows that have series of their own.
const WORKFLOWS_MAX: usize = 200;
/// The most steps that have series of their own.
const STEPS_MAX: usize = 500;
const SECONDS: [f64; 13] = [0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0];
const SIZES: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 256.0];
/// Of whole instances: from a tenth of a second to a month.
const LIVES: [f64; 12] =
    [0.01, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 2_592_000.0];

/// Why entries are read.
const ENTRIES_READ: [&str; 2] = ["grant", "lack"];
/// Of what is to be in time, and may be made up for after days.
const SCHEDULED: [f64; 10] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0, 3_600.0, 86_400.0];

/// How a step is answered without a call.
const HITS: [&str; 2] = ["found", "reused"];
/// What people decide.
const DECIDED: [&str; 6] = ["again", "done", "fail", "retry", "old_key", "new_key"];

/// The metrics of one coordinator, on a registry of its own.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) registry: Registry,
    pub(crate) answers: Words,
    pub(crate) batch_inputs: Histogram,
    pub(crate) batch_failures: IntCounterVec,
    pub(crate) commit_seconds: Histogram,
    pub(crate) waiting: IntGauge,
    pub(crate) messages: Words,
    pub(crate) messages_sent: IntCounter,
    pub(crate) entries_read: Words,
    pub(crate) unreadable: IntCounterVec,
    pub(crate) set_aside: IntCounter,
    pub(crate) rejected: IntCounterVec,
    pub(crate) rejected_bytes: IntGaugeVec,
    pub(crate) intake_stopped: IntGaugeVec,
    pub(crate) unserved: IntGaugeVec,
    pub(crate) attention: IntGaugeVec,
    pub(crate) questions: IntCounter,
    pub(crate) ledger_hits: Words,
    pub(crate) decided: Words,
    pub(crate) sessions: IntGauge,
    pub(crate) sessions_ended: IntCounterVec,
    pub(crate) timer_lateness: Histogram,
    pub(crate) leases_unconfirmed: IntCounter,
    pub(crate) leases_lost: IntCounterVec,
    pub(crate) loops_still: IntGauge,
    pub(crate) lifecycles: IntCounterVec,
    pub(crate) lives: Arc<Mutex<Lives>>,
    pub(crate) to_start: ToStart,
    pub(crate) open: IntGaugeVec,
    pub(crate) ready: IntGaugeVec,
    pub(crate) oldest: IntGaugeVec,
    pub(crate) store_up: IntGauge,
    pub(crate) store_failures: IntCounter,
    pub(crate) broker_up: IntGauge,
    pub(crate) broker_blocked: IntGauge,
    pub(crate) broker_connections: IntGauge,
    pub(crate) duties: IntGaugeVec,
    pub(crate) schedules: ScheduleMeters,
    pub(crate) auditor: AuditorMeters,
    pub(crate) limited: Words,
}

/// What the auditor has looked at and found.
#[derive(Clone, Debug)]
pub(crate) struct AuditorMeters {
    pub(crate) breaches: Words,
    pub(crate) checked: IntCounter,
    pub(crate) walks: IntCounter,
}

/// What became of the due times of schedules.
#[derive(Clone, Debug)]
pub(crate) struct ScheduleMeters {
    pub(crate) starts: Words,
    pub(crate) skipped: IntCounterVec,
    pub(crate) lateness: Histogram,
}

/// Counters by a word of the code, resolved once.
#[derive(Clone, Debug)]
pub(crate) struct Words(HashMap<&'static str, IntCounter>);

impl Words {
    fn of(counters: &IntCounterVec, words: &[&'static str]) -> Self {
        Self(words.iter().map(|word| (*word, counters.with_label_values(&[word]))).collect())
    }

    /// Counts one.
    pub(crate) fn inc(&self, word: &'static str) {
        self.add(word, 1);
    }

    /// Counts so many.
    pub(crate) fn add(&self, word: &'static str, count: u64) {
        if let Some(counter) = self.0.get(word) {
            counter.inc_by(count);
        }
    }

    /// The counter of a word.
    pub(crate) fn of_word(&self, word: &str) -> Option<IntCounter> {
        self.0.get(word).cloned()
    }
}

/// How long what is runnable waits for a worker, by the way in which it got one.
#[derive(Clone, Debug)]
pub(crate) struct ToStart {
    /// In the transaction that made it runnable.
    pub(crate) direct: Histogram,
    /// From the ready row of an instance to its claim.
    pub(crate) run: Histogram,
    /// The same of a remote step.
    pub(crate) step: Histogram,
}

/// What happened to instances and steps, by names.
#[derive(Debug)]
pub(crate) struct Lives {
    pub(crate) workflows: Local<WorkflowMeter>,
    pub(crate) steps: Local<StepMeter>,
}

/// The handles of one workflow.
#[derive(Clone, Debug)]
pub(crate) struct WorkflowMeter {
    pub(crate) started: IntCounter,
    pub(crate) complete: IntCounter,
    pub(crate) errored: IntCounter,
    pub(crate) terminated: IntCounter,
    pub(crate) cancelled: IntCounter,
    pub(crate) seconds: Histogram,
}

/// The handles of one step.
#[derive(Clone, Debug)]
pub(crate) struct StepMeter {
    pub(crate) succeeded: IntCounter,
    pub(crate) failed: IntCounter,
    pub(crate) unknown: IntCounter,
    pub(crate) retries: IntCounter,
    pub(crate) retried: IntCounter,
}

/// Series that are there from the beginning, at zero: an increase from nothing to one is no increase to Prometheus.
fn zeroed(counters: IntCounterVec, words: &[&str]) -> IntCounterVec {
    for word in words {
        counters.with_label_values(&[word]);
    }
    counters
}

/// All metrics of a coordinator, for the reference page.
#[must_use]
pub fn described() -> Vec<Described> {
    let registry = Registry::new();
    let mut book = Book::new(&registry, "everstep_");
    Metrics::in_book(&registry, &mut book).expect("names, labels and buckets are constants that are valid");
    book.described()
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let mut book = Book::new(&registry, "everstep_");
        Self::in_book(&registry, &mut book).expect("names, labels and buckets are constants that are valid")
    }

    fn in_book(registry: &Registry, book: &mut Book) -> Result<Self, Error> {
        let info = book.gauges("build_info", "Always 1; the version of this process.", &["version"])?;
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let answers = book.counters("decisions_total", "Decided inputs by answer.", &["answer"])?;
        let messages =
            book.counters("messages_received_total", "Messages received, by queue kind.", &["queue"])?;
        let (ledger_hits, decided) = ledger(book)?;
        let rejected = rejected(book)?;
        let [open, ready, oldest] = census(book)?;
        Ok(Self {
            registry: registry.clone(),
            lives: lives(book)?,
            answers: Words::of(&answers, &crate::turn::ANSWERS),
            batch_inputs: book.histogram("batch_inputs", "Inputs in one committed transaction.", &SIZES)?,
            batch_failures: zeroed(book.counters(
                "batch_failures_total",
                "Transactions that did not commit, by kind.",
                &["kind"],
            )?, &["unavailable", "conflict", "refused", "corrupt", "not_migrated", "in_use", "culprit"]),
            commit_seconds: book.histogram(
                "commit_seconds",
                "From the first statement of a transaction to its commit.",
                &SECONDS,
            )?,
            waiting: book.gauge("inputs_waiting", "Inputs that wait for a batch.")?,
            messages: Words::of(&messages, &["start", "event", "dead", "report", "session"]),
            messages_sent: book.counter("messages_sent_total", "Messages handed to the broker.")?,
            entries_read: entries_read(book)?,
            unreadable: zeroed(book.counters(
                "messages_unreadable_total",
                "Messages that are no envelope, by queue kind.",
                &["queue"],
            )?, &["report", "session"]),
            set_aside: book.counter("messages_set_aside_total", "Messages of another incarnation.")?,
            rejected: rejected.0,
            rejected_bytes: rejected.1,
            intake_stopped: rejected.2,
            unserved: book.gauges(
                "unserved",
                "Instances and remote steps that are ready and that no worker serves, up to 10,000 each, by workflow or pool, at \
                 most 20; of the coordinator that offers.",
                &["queue"],
            )?,
            attention: book.gauges(
                "attention",
                "What waits for a person, by kind and by how long: less than an hour, a day, older; of the coordinator that offers.",
                &["kind", "age"],
            )?,
            questions: book.counter(
                "unknown_outcomes_total",
                "At-most-once calls whose outcome became a question for a person.",
            )?,
            ledger_hits,
            decided,
            sessions: book.gauge("sessions", "Live sessions as this coordinator knows them.")?,
            sessions_ended: zeroed(book.counters(
                "sessions_ended_total",
                "Sessions ended by this coordinator, by cause.",
                &["cause"],
            )?, &["goodbye", "silent", "unroutable"]),
            timer_lateness: timer_lateness(book)?,
            leases_unconfirmed: book.counter(
                "leases_unconfirmed_total",
                "Leases ended because their holder never confirmed them.",
            )?,
            leases_lost: zeroed(book.counters(
                "leases_lost_total",
                "Leases taken from sessions that ended without giving them back, of instances and of remote steps.",
                &["of"],
            )?, &["instance", "step"]),
            loops_still: book.gauge(
                "sessions_standing_still",
                "Sessions whose last heartbeat here said that their work loop does not turn.",
            )?,
            lifecycles: zeroed(book.counters(
                "lifecycle_messages_total",
                "Lifecycle messages by outcome of their publication.",
                &["outcome"],
            )?, &["confirmed", "refused", "unknown"]),
            to_start: to_start(book)?,
            open,
            ready,
            oldest,
            store_up: book.gauge("store_up", "1 if the store answered when it was asked last.")?,
            store_failures: book
                .counter("store_failures_total", "Times that the store did not answer when it was asked.")?,
            broker_up: book.gauge("broker_up", "1 if both connections to the broker are open and it takes messages.")?,
            broker_blocked: book.gauge(
                "broker_blocked",
                "1 if the broker has stopped taking messages (memory or disk alarm).",
            )?,
            broker_connections: book
                .gauge("broker_connections", "Connections to the broker that were established so far.")?,
            duties: book.gauges("duty", "1 if this coordinator has the duty.", &["duty"])?,
            schedules: schedules(book)?,
            auditor: auditor(book)?,
            limited: limited(book)?,
        })
    }
}

fn timer_lateness(book: &mut Book) -> Result<Histogram, Error> {
    book.histogram("timer_lateness_seconds", "From due to the scan that found it.", &SECONDS)
}

fn entries_read(book: &mut Book) -> Result<Words, Error> {
    let counters = book.counters(
        "entries_read_total",
        "Journal entries that were read for workers: for a grant, or since a worker said that it lacks them.",
        &["reason"],
    )?;
    Ok(Words::of(&counters, &ENTRIES_READ))
}

/// Who has asked too fast (rule A8).
fn limited(book: &mut Book) -> Result<Words, Error> {
    let counters = book.counters(
        "http_limited_total",
        "Requests over HTTP that were refused since their caller asks too fast: whoever has one access token, or one address without.",
        &["caller"],
    )?;
    Ok(Words::of(&counters, &["token", "address"]))
}

/// What the auditor has looked at and found (rule W42).
fn auditor(book: &mut Book) -> Result<AuditorMeters, Error> {
    let breaches = book.counters(
        "auditor_breaches_total",
        "Open instances that nothing would have moved as it should, found and mended by this coordinator, by kind. Any is a bug, or \
         damage from outside.",
        &["kind"],
    )?;
    let kinds = everstep_engine::breach::BreachKind::ALL.map(everstep_engine::breach::BreachKind::word);
    Ok(AuditorMeters {
        breaches: Words::of(&breaches, &kinds),
        checked: book.counter(
            "auditor_instances_total",
            "Open instances at which the auditor has looked, each once a walk.",
        )?,
        walks: book
            .counter("auditor_walks_total", "Walks through all open instances that the auditor has ended.")?,
    })
}

/// What became of the due times of schedules (rule S16).
fn schedules(book: &mut Book) -> Result<ScheduleMeters, Error> {
    let starts = book.counters(
        "schedule_starts_total",
        "Starts of schedules by outcome: started, existed (it was there already), refused, unknown (it is made again).",
        &["outcome"],
    )?;
    let skipped = book.counters(
        "schedule_skipped_total",
        "Due times of schedules that were not started: overlap (an earlier one was open, or too many waited), missed (nobody started \
         them in time).",
        &["reason"],
    )?;
    let lateness = book.histogram(
        "schedule_lateness_seconds",
        "From when a due time was to be started until it was.",
        &SCHEDULED,
    )?;
    let starts = Words::of(&starts, &["started", "existed", "refused", "unknown"]);
    Ok(ScheduleMeters { starts, skipped: zeroed(skipped, &["overlap", "missed"]), lateness })
}

/// What steps did not have to call for, and what people had to decide (rule L15).
fn ledger(book: &mut Book) -> Result<(Words, Words), Error> {
    let hits = book.counters(
        "ledger_hits_total",
        "Steps that were answered without a call: their output was found by looking first, or is that of an earlier run.",
        &["how"],
    )?;
    let decided = book.counters(
        "decided_by_people_total",
        "What people had to decide for an instance to go on: again, done or fail of an unknown outcome; retry of what was parked, or the key under which it goes on. An \
         instance that ends without any of it needed nobody.",
        &["choice"],
    )?;
    Ok((Words::of(&hits, &HITS), Words::of(&decided, &DECIDED)))
}

fn rejected(book: &mut Book) -> Result<(IntCounterVec, IntGaugeVec, IntGaugeVec), Error> {
    let rejected = book.counters(
        "messages_rejected_total",
        "Messages that were recorded as rejected, starts and events, by code.",
        &["code"],
    )?;
    Ok((
        zeroed(rejected, &rejections::CODES),
        book.gauges(
            "rejected_bytes",
            "Bytes that the records of rejected messages take, by namespace of the settings.",
            &["namespace"],
        )?,
        book.gauges(
            "intake_stopped",
            "1 if starts stay in the queue because rejected records have reached their bound.",
            &["namespace"],
        )?,
    ))
}

/// What is counted in the store from time to time.
fn census(book: &mut Book) -> Result<[IntGaugeVec; 3], Error> {
    Ok([
        book.gauges(
            "open_instances",
            "Open instances by status and, where one waits or asks, by reason; exact up to 1,000,000 of each; counted at most once \
             a minute; of the coordinator that offers.",
            &["status", "reason"],
        )?,
        book.gauges(
            "queue_ready",
            "Instances and remote steps that are ready and held by nobody, up to 10,000 each, by workflow or pool: of up to 200 \
             that are served, empty ones too, and of up to 20 others with work; of the coordinator that offers.",
            &["queue"],
        )?,
        book.gauges(
            "queue_oldest_seconds",
            "How long the oldest of these has waited, in whole seconds; of the coordinator that offers.",
            &["queue"],
        )?,
    ])
}

fn to_start(book: &mut Book) -> Result<ToStart, Error> {
    let seconds = book.histograms(
        "schedule_to_start_seconds",
        "From runnable to the lease: direct in the transaction that made it runnable, run and step by a task that a worker claimed.",
        &[0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0],
        &["way"],
    )?;
    let way = |way| seconds.with_label_values(&[way]);
    Ok(ToStart { direct: way("direct"), run: way("run"), step: way("step") })
}

fn lives(book: &mut Book) -> Result<Arc<Mutex<Lives>>, Error> {
    let started =
        book.counters("instances_started_total", "Instances created, by workflow.", &["workflow"])?;
    let ended = book.counters(
        "instances_ended_total",
        "Instances ended, by workflow and status.",
        &["workflow", "status"],
    )?;
    let seconds = book.histograms(
        "instance_duration_seconds",
        "From the creation of an instance to its end, waits included, by workflow.",
        &LIVES,
        &["workflow"],
    )?;
    let steps_ended = book.counters(
        "steps_ended_total",
        "Steps that have an outcome, by workflow, step and outcome: succeeded, failed (for good), unknown.",
        &["workflow", "step", "outcome"],
    )?;
    let retries = book.counters(
        "step_retries_total",
        "Attempts that failed and are followed by another one, by workflow and step.",
        &["workflow", "step"],
    )?;
    let more_than_once = book.counters(
        "steps_retried_total",
        "Steps that have an outcome and were tried more than once for it, by workflow and step; those of steps_ended_total that are \
         not among them needed one attempt.",
        &["workflow", "step"],
    )?;
    let workflows = Bounded::new(WORKFLOWS_MAX, move |workflow, _| WorkflowMeter {
        started: started.with_label_values(&[workflow]),
        complete: ended.with_label_values(&[workflow, "complete"]),
        errored: ended.with_label_values(&[workflow, "errored"]),
        terminated: ended.with_label_values(&[workflow, "terminated"]),
        cancelled: ended.with_label_values(&[workflow, "cancelled"]),
        seconds: seconds.with_label_values(&[workflow]),
    });
    let steps = Bounded::new(STEPS_MAX, move |workflow, step| StepMeter {
        succeeded: steps_ended.with_label_values(&[workflow, step, "succeeded"]),
        failed: steps_ended.with_label_values(&[workflow, step, "failed"]),
        unknown: steps_ended.with_label_values(&[workflow, step, "unknown"]),
        retries: retries.with_label_values(&[workflow, step]),
        retried: more_than_once.with_label_values(&[workflow, step]),
    });
    let (workflows, steps) = (Local::new(Arc::new(workflows)), Local::new(Arc::new(steps)));
    Ok(Arc::new(Mutex::new(Lives { workflows, steps })))
}
