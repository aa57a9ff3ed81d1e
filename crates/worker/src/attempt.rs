//! Attempts: futures of user code on the owner's runtime, at most `slots` at once, the rest in a queue.
//!
//! An attempt that is cancelled or times out gets its signal, a moment to clean up, and is then aborted. One that does not
//! go even then is written off after the grace (rule W34): its outcome is reported, its slot stays taken until it goes.

mod busy;

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, PoisonError},
    time::Duration,
};

use everstep_engine::retry::Asked;
use everstep_metrics::Local;
use everstep_protocol::{
    Attempt, CallHash, Epoch, Failure, FailureKind, InstanceUid, Millis, Payload, Reference,
};
use everstep_sdk::{
    Step,
    host::{CancelHandle, DelayFn, panic_message},
};
use everstep_telemetry::{
    label::{self, Label},
    trace::{FutureExt as _, OUTCOME, Open},
};
use futures::{
    FutureExt,
    future::{AbortHandle, Abortable, BoxFuture, abortable},
};
use tokio::{runtime::Handle, time::Instant};

use crate::{
    hosted::{Ended, Order, asked_delay},
    metrics::{Metrics, StepMeter},
    settings::Interceptor,
    telling::Telling,
};

/// How long after its signal a cancelled attempt is aborted: enough for one that listens to be polled on a busy machine.
const CLEAN_UP: Duration = Duration::from_millis(500);

/// Whose attempt it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// A call of a held instance.
    Call(InstanceUid, Epoch, u64),
    /// A remote step.
    Remote(InstanceUid, CallHash, Epoch),
}

/// One attempt in this process. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AttemptId(u64);

/// A future has gone, with its outcome unless it was aborted.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) id: AttemptId,
    outcome: Option<(Result<Payload, Failure>, Asked)>,
    found: bool,
    reference: Option<Reference>,
    looked: Option<Duration>,
    ran_for: Duration,
}

/// Where futures say that they have gone.
pub(crate) type GoneListener = Arc<dyn Fn(Gone) + Send + Sync>;

/// All attempts of a worker.
pub(crate) struct Attempts {
    runtime: Handle,
    listener: GoneListener,
    metrics: Metrics,
    meters: Local<Arc<StepMeter>>,
    interceptor: Option<Arc<dyn Interceptor>>,
    slots: usize,
    grace: Duration,
    paused: bool,
    next: u64,
    queue: VecDeque<(Owner, Order)>,
    /// Futures that [`Attempts::launch`] hands to the runtime.
    launches: Vec<Abortable<BoxFuture<'static, ()>>>,
    /// Owners in the queue whose attempts are not wanted any more.
    unwanted: HashSet<Owner>,
    running: HashMap<AttemptId, Running>,
    by_owner: HashMap<Owner, AttemptId>,
    due: BTreeSet<(Instant, AttemptId)>,
    telling: Arc<Telling>,
}

struct Running {
    owner: Owner,
    number: u64,
    attempt: Attempt,
    timeout: Millis,
    cancel: CancelHandle,
    abort: AbortHandle,
    began: Instant,
    meter: Arc<StepMeter>,
    stage: Stage,
    due: Option<Instant>,
    /// Its span, if the instance is in a trace.
    span: Option<Open>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It runs; due when it times out.
    Runs,
    /// It was told to end; due when it is aborted. Nobody wants its outcome if it was cancelled.
    Signalled { cancelled: bool },
    /// It was aborted; due when it is written off.
    Aborted { cancelled: bool },
    /// Its outcome was given; only its slot is still taken.
    WrittenOff,
}

impl Attempts {
    pub(crate) fn new(
        runtime: Handle,
        slots: u32,
        grace: Duration,
        metrics: Metrics,
        interceptor: Option<Arc<dyn Interceptor>>,
        listener: GoneListener,
    ) -> Self {
        metrics.slots.set(i64::from(slots));
        Self {
            runtime,
            listener,
            meters: metrics.local(),
            metrics,
            interceptor,
            slots: slots as usize,
            grace,
            paused: false,
            next: 0,
            queue: VecDeque::new(),
            launches: Vec::new(),
            unwanted: HashSet::new(),
            running: HashMap::new(),
            by_owner: HashMap::new(),
            due: BTreeSet::new(),
            telling: Arc::default(),
        }
    }

    /// What the running attempts have told of their progress, for the heartbeats.
    pub(crate) fn telling(&self) -> Arc<Telling> {
        self.telling.clone()
    }

    /// Runs an attempt, at once or when a slot is free.
    pub(crate) fn start(&mut self, owner: Owner, order: Order, now: Instant) {
        self.queue.push_back((owner, order));
        self.fill(now);
    }

    /// Hands what was started to the runtime, all of it at once: waking another thread for each attempt costs more than a
    /// short attempt does.
    pub(crate) fn launch(&mut self) {
        let mut launches = std::mem::take(&mut self.launches);
        if launches.len() > 1 {
            self.runtime.spawn(async move {
                for task in launches {
                    tokio::spawn(task);
                }
            });
        } else if let Some(task) = launches.pop() {
            self.runtime.spawn(task);
        }
    }

    /// Nothing new starts while the worker does not know whether its session lives (rule W10).
    pub(crate) fn pause(&mut self, paused: bool, now: Instant) {
        self.paused = paused;
        self.fill(now);
    }

    /// Cancels an attempt, running or queued; its outcome is of no interest.
    pub(crate) fn cancel(&mut self, owner: Owner, now: Instant) {
        let Some(id) = self.by_owner.remove(&owner) else {
            if !self.queue.is_empty() {
                self.unwanted.insert(owner);
            }
            return;
        };
        if let Some(running) = self.running.get_mut(&id)
            && matches!(running.stage, Stage::Runs | Stage::Signalled { .. })
        {
            running.cancel.cancel();
            self.telling.end(id);
            self.advance(id, Stage::Signalled { cancelled: true }, Some(now + CLEAN_UP));
        }
    }

    /// Everything that waits for a slot: it will not run.
    pub(crate) fn drain(&mut self) -> Vec<Owner> {
        let unwanted = std::mem::take(&mut self.unwanted);
        self.queue.drain(..).map(|(owner, _)| owner).filter(|owner| !unwanted.contains(owner)).collect()
    }

    /// Cancels everything: the worker ends.
    pub(crate) fn cancel_all(&mut self) {
        self.queue.clear();
        for running in self.running.values() {
            running.cancel.cancel();
            running.abort.abort();
        }
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// A future has gone: its slot is free. Gives the outcome if somebody waits for it.
    pub(crate) fn gone(&mut self, gone: Gone, now: Instant) -> Option<(Owner, Ended)> {
        if let Some(looked) = gone.looked {
            self.metrics.looks.observe(looked.as_secs_f64());
        }
        let running = self.running.remove(&gone.id)?;
        self.telling.end(gone.id);
        if let Some(due) = running.due {
            self.due.remove(&(due, gone.id));
        }
        self.fill(now);
        self.metrics.running.set(self.running.len() as i64);
        let ended = match running.stage {
            Stage::Runs => {
                // Aborted without being told to: the owner's runtime shuts down. The lease goes back with the session.
                let (result, asked) = gone.outcome?;
                self.metrics.found.inc_by(u64::from(gone.found));
                let (found, reference) = (gone.found, gone.reference);
                Ended { found, reference, ..running.ended(gone.ran_for, result, asked) }
            }
            Stage::Signalled { cancelled: false } | Stage::Aborted { cancelled: false } => {
                // By the clock that timed it out: its future may have begun later than its time did.
                running.timed_out(now.saturating_duration_since(running.began), "")
            }
            Stage::Signalled { cancelled: true } | Stage::Aborted { cancelled: true } => {
                running.trace(Word::Cancelled);
                running.meter.ended(Word::Cancelled, now.saturating_duration_since(running.began));
                return None;
            }
            Stage::WrittenOff => {
                self.metrics.written_off.dec();
                return None;
            }
        };
        self.by_owner.remove(&running.owner);
        let word = word(&ended.result);
        running.trace(word);
        running.meter.ended(word, ended.ran_for.to_std());
        Some((running.owner, ended))
    }

    /// What is due: timeouts, aborts, grace that is over. Gives the outcomes of those that are written off.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<(Owner, Ended)> {
        let mut ended = Vec::new();
        while let Some((_, id)) = self.due.first().filter(|(at, _)| *at <= now).copied() {
            let Some(running) = self.running.get_mut(&id) else {
                self.due.pop_first();
                continue;
            };
            match running.stage {
                Stage::Runs => {
                    running.cancel.cancel();
                    self.advance(id, Stage::Signalled { cancelled: false }, Some(now + CLEAN_UP));
                }
                Stage::Signalled { cancelled } => {
                    running.abort.abort();
                    self.advance(id, Stage::Aborted { cancelled }, Some(now + self.grace));
                }
                Stage::Aborted { cancelled } => {
                    let (owner, ran_for) = (running.owner, now.saturating_duration_since(running.began));
                    if !cancelled {
                        let overlap = "; it did not go within its grace and overlaps with what follows";
                        ended.push((owner, running.timed_out(ran_for, overlap)));
                        running.meter.ended(Word::TimedOut, ran_for);
                        running.trace(Word::TimedOut);
                        self.by_owner.remove(&owner);
                    }
                    self.telling.end(id);
                    self.metrics.written_off.inc();
                    self.advance(id, Stage::WrittenOff, None);
                }
                Stage::WrittenOff => self.advance(id, Stage::WrittenOff, None),
            }
        }
        ended
    }

    fn advance(&mut self, id: AttemptId, stage: Stage, due: Option<Instant>) {
        let Some(running) = self.running.get_mut(&id) else { return };
        running.stage = stage;
        if let Some(former) = std::mem::replace(&mut running.due, due) {
            self.due.remove(&(former, id));
        }
        self.due.extend(due.map(|due| (due, id)));
    }

    fn fill(&mut self, now: Instant) {
        while !self.paused && self.running.len() < self.slots {
            let Some((owner, order)) = self.queue.pop_front() else { break };
            if !self.unwanted.remove(&owner) {
                self.spawn(owner, order, now);
            }
        }
        if self.queue.is_empty() {
            self.unwanted.clear();
        }
        self.metrics.running.set(self.running.len() as i64);
        self.metrics.queued.set(self.queue.len() as i64);
    }

    fn spawn(&mut self, owner: Owner, order: Order, now: Instant) {
        let id = AttemptId(self.next);
        self.next += 1;
        let (attempt, timeout) = (order.info.attempt, order.info.policy.timeout);
        let meter = self.meters.get(order.info.workflow.as_str(), order.info.name.as_str()).clone();
        meter.started.inc();
        meter.retries.inc_by(u64::from(attempt > Attempt(1)));
        let sink = order.progress.clone();
        let progress = Arc::new(move |progress| {
            *sink.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
        });
        self.telling.begin(id, owner, &order);
        let run = match &self.interceptor {
            Some(interceptor) => interceptor.attempt(&order.info, order.run),
            None => order.run,
        };
        let label = Label {
            namespace: order.info.namespace.clone(),
            workflow: order.info.workflow.clone(),
            instance: order.info.instance.clone(),
            run: order.run_of,
            session: order.session,
            step: Some((order.info.name.clone(), attempt)),
        };
        let span = order.span.map(|span| span.now());
        let (step, cancel) = Step::new(order.info, progress, order.last);
        let leaving = Leaving {
            id,
            listener: self.listener.clone(),
            outcome: None,
            found: false,
            reference: None,
            looked: None,
            began: Instant::now(),
        };
        let attempted = label::always(label, attempted(leaving, step, run, order.delay, attempt));
        let task = match &span {
            None => busy::measured(attempted, meter.busy.clone()).boxed(),
            // Spans of the step's own code are of the attempt.
            Some(span) => {
                busy::measured(attempted.with_context(span.context().clone()), meter.busy.clone()).boxed()
            }
        };
        let (task, abort) = abortable(task);
        self.launches.push(task);
        // A timeout beyond what the clock can hold is none.
        let due = now.checked_add(timeout.to_std());
        let running = Running {
            owner,
            number: order.number,
            attempt,
            timeout,
            cancel,
            abort,
            began: now,
            meter,
            stage: Stage::Runs,
            due,
            span,
        };
        self.running.insert(id, running);
        self.by_owner.insert(owner, id);
        self.due.extend(due.map(|due| (due, id)));
    }
}

impl Running {
    fn ended(&self, ran_for: Duration, result: Result<Payload, Failure>, asked: Asked) -> Ended {
        let ran_for = Millis(u64::try_from(ran_for.as_millis()).unwrap_or(u64::MAX));
        Ended {
            number: self.number,
            attempt: self.attempt,
            ran_for,
            result,
            asked,
            found: false,
            reference: None,
        }
    }

    /// What its span says of its end: never a message, which may repeat a payload.
    fn trace(&self, word: Word) {
        let Some(span) = &self.span else { return };
        span.say(OUTCOME, word.text());
        if !matches!(word, Word::Succeeded | Word::Cancelled) {
            span.failed(word.text());
        }
    }

    fn timed_out(&self, ran_for: Duration, more: &str) -> Ended {
        let message =
            format!("attempt {} took longer than its timeout of {}{more}", self.attempt, self.timeout);
        self.ended(ran_for, Err(Failure::new(FailureKind::TimedOut, message)), Asked::Policy)
    }
}

/// A work loop that was dropped takes its attempts along, as the death of its process would.
impl Drop for Attempts {
    fn drop(&mut self) {
        self.cancel_all();
    }
}

/// Tells that the future has gone, however it went.
struct Leaving {
    id: AttemptId,
    listener: GoneListener,
    outcome: Option<(Result<Payload, Failure>, Asked)>,
    found: bool,
    reference: Option<Reference>,
    looked: Option<Duration>,
    began: Instant,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let gone = Gone {
            id: self.id,
            outcome: self.outcome.take(),
            found: self.found,
            reference: self.reference.take(),
            looked: self.looked,
            ran_for: self.began.elapsed(),
        };
        (self.listener)(gone);
    }
}

async fn attempted(
    mut leaving: Leaving,
    step: Step,
    run: everstep_sdk::host::StepFn,
    delay: Option<DelayFn>,
    attempt: Attempt,
) {
    leaving.began = Instant::now();
    let seen = step.clone();
    // The function is called inside the future, so that a panic before its first await is caught too (rule P9).
    let result = AssertUnwindSafe(async move { run(step).await })
        .catch_unwind()
        .await
        .unwrap_or_else(|panic| Err(Failure::new(FailureKind::Panicked, panic_message(panic.as_ref()))));
    let outcome = match result {
        Ok(output) => (Ok(output), Asked::Policy),
        Err(mut failure) => {
            let asked = asked_delay(delay.as_ref(), attempt, &mut failure);
            (Err(failure), asked)
        }
    };
    leaving.found = seen.was_found();
    leaving.looked = seen.looked_for();
    leaving.reference = seen.said_reference();
    leaving.outcome = Some(outcome);
}

/// How an attempt ended, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Succeeded,
    Failed,
    TimedOut,
    Panicked,
    Cancelled,
}

impl Word {
    const fn text(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Panicked => "panicked",
            Self::Cancelled => "cancelled",
        }
    }
}

impl StepMeter {
    fn ended(&self, word: Word, ran_for: Duration) {
        let counter = match word {
            Word::Succeeded => &self.succeeded,
            Word::Failed => &self.failed,
            Word::TimedOut => &self.timed_out,
            Word::Panicked => &self.panicked,
            Word::Cancelled => &self.cancelled,
        };
        counter.inc();
        self.seconds.observe(ran_for.as_secs_f64());
    }
}

fn word(result: &Result<Payload, Failure>) -> Word {
    match result {
        Ok(_) => Word::Succeeded,
        Err(failure) => match failure.kind {
            FailureKind::TimedOut => Word::TimedOut,
            FailureKind::Panicked => Word::Panicked,
            FailureKind::Error
            | FailureKind::WorkerLost
            | FailureKind::TooLarge
            | FailureKind::Unserialisable
            | FailureKind::Invalid
            | FailureKind::LimitReached
            | FailureKind::UnknownFunction
            | FailureKind::Cancelled => Word::Failed,
        },
    }
}
