//! A call that has no outcome yet: what it asks for, under which key, and what the end of one of its attempts is.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError},
};

use everstep_engine::{
    replay::{Asked as Input, Start},
    report::{failed, too_large},
    retry::{Asked, delay_after, jitter_seed},
};
use everstep_protocol::{
    Attempt, Call, CallKind, Epoch, Failure, FailureKind, Fingerprint, InstanceUid, Millis, Payload, Policy,
    Position, StepKey, Timestamp,
    journal::{Child, Marks, Remote, Resuming, Sending, Withdrawn},
    key::keys_of,
    limits::Limits,
    message::{AttemptEnd, AttemptOutcome, Intent, Open, OpenWait},
};
use everstep_sdk::host::{Made, Spec, StepInfo};

use super::{Ended, Order, Progress};
use crate::clock::Now;

/// A call of the body.
pub(super) struct Known {
    pub(super) call: Call,
    pub(super) called_after: Position,
    /// The body's time when it began.
    pub(super) made_at: Timestamp,
    pub(super) spec: Spec,
    key: StepKey,
    fingerprint: Fingerprint,
    /// Why it fails without running.
    pub(super) refused: Option<Failure>,
    attempt: Attempt,
    pinned: Option<(StepKey, Policy)>,
    /// A key that a person kept for it, where nothing is pinned.
    kept: Option<StepKey>,
    /// The input of an attempt that is only to be recorded, if that was another one.
    recorded: Option<Fingerprint>,
    first_at: Option<Timestamp>,
    /// What the attempts before told last of their progress.
    last: Option<Payload>,
    /// What the one that runs has told.
    progress: Progress,
}

impl Known {
    /// Derives key and fingerprint, once per call. `used` counts this step too. A refusal by a limit is recorded like any
    /// failure, so that every replay sees it where it came first.
    pub(super) fn new(
        made: Made,
        info: &super::InstanceInfo,
        made_at: Timestamp,
        used: super::Used,
        limits: &Limits,
    ) -> Self {
        let null = Payload::null();
        let identity = made.spec.action();
        let input = match &made.spec {
            Spec::Step(step) => &step.input,
            Spec::Remote(remote) => &remote.input,
            Spec::Child(child) => &child.input,
            Spec::Send(event) => &event.payload,
            Spec::Resume(resume) => &resume.payload,
            Spec::Sleep(_)
            | Spec::SleepUntil(_)
            | Spec::Event(_)
            | Spec::Patch
            | Spec::Instance(_)
            | Spec::Hook(_)
            | Spec::Payload(_)
            | Spec::Reply(_)
            | Spec::Rollback { .. } => &null,
        };
        let has_input = matches!(
            made.call.kind,
            CallKind::Step | CallKind::Compensation | CallKind::Child | CallKind::Send | CallKind::Resume
        );
        let takes_back = made.call.kind == CallKind::Compensation;
        let mut refused = None;
        let keys = has_input.then_some(identity.unwrap_or(input)).map(|input| {
            // What a plan decides on has keys of its own kind (rule L10).
            let kind = if identity.is_some() { CallKind::Action } else { made.call.kind };
            keys(info, (kind, &made.call), input).or_else(|error| {
                // What takes something back runs all the same: its input is made of what was recorded, and its call is its own.
                if !takes_back {
                    let message = format!("{}: the input: {error}", made.call);
                    refused = Some(Failure::new(FailureKind::Unserialisable, message));
                }
                keys(info, (kind, &made.call), &null)
            })
        });
        let (key, fingerprint) = keys.and_then(Result::ok).unwrap_or_else(null_keys);
        // What takes something back is not limited.
        if has_input && !takes_back {
            let bytes = used.bytes.saturating_add(input.len() as u64);
            if let Some(failure) = too_large_for_others(&made.spec, limits) {
                refused.get_or_insert(failure);
            } else if made.call.kind == CallKind::Step && used.steps > limits.steps {
                refused.get_or_insert_with(|| steps_used(limits.steps));
            } else if bytes > limits.journal_bytes {
                refused.get_or_insert_with(|| journal_full(bytes, limits.journal_bytes));
            }
        }
        Self {
            call: made.call,
            called_after: made.called_after,
            made_at,
            spec: made.spec,
            key,
            fingerprint,
            refused,
            attempt: Attempt::FIRST,
            pinned: None,
            kept: None,
            recorded: None,
            first_at: None,
            last: None,
            progress: Arc::default(),
        }
    }

    /// What replay compares with the journal.
    pub(super) fn asked(&self) -> Input {
        match &self.spec {
            Spec::Step(_) => Input::Step(self.fingerprint),
            Spec::Remote(_) => Input::Remote(self.fingerprint),
            Spec::Sleep(_) | Spec::SleepUntil(_) => Input::Sleep,
            Spec::Event(event) => Input::Event(event.key.clone()),
            Spec::Patch => Input::Patch,
            Spec::Child(_) => Input::Child(self.fingerprint),
            Spec::Instance(_) => Input::Instance,
            Spec::Send(_) => Input::Send(self.fingerprint),
            Spec::Resume(_) => Input::Resume(self.fingerprint),
            Spec::Hook(hook) => Input::Hook(hook.token.clone()),
            Spec::Payload(awaiting) => Input::Payload(awaiting.hook),
            Spec::Reply(reply) => Input::Reply(reply.id.clone()),
            Spec::Rollback { .. } => Input::Rollback,
        }
    }

    /// Whether its outcome is reported by this worker.
    pub(super) const fn is_inline(&self) -> bool {
        matches!(self.spec, Spec::Step(_))
    }

    /// The first recorded attempt pins key and policy (rule P8).
    pub(super) fn start(&mut self, start: &Start) {
        self.attempt = start.attempt;
        self.pinned.clone_from(&start.pinned);
        self.kept = start.kept;
        self.recorded = start.input;
        self.first_at = start.first_at;
        self.last.clone_from(&start.progress);
        self.progress = Arc::default();
    }

    /// The key that its attempts bear.
    pub(super) fn key(&self) -> StepKey {
        self.pinned.map_or_else(|| self.kept.unwrap_or(self.key), |(key, _)| key)
    }

    /// `undoes` is the key of the step that it takes back.
    pub(super) fn order(
        &self,
        number: u64,
        info: &super::InstanceInfo,
        undoes: Option<StepKey>,
    ) -> Option<Order> {
        let Spec::Step(step) = &self.spec else { return None };
        let info = StepInfo {
            namespace: info.namespace.clone(),
            workflow: info.workflow.clone(),
            instance: info.id.clone(),
            kind: self.call.kind,
            name: self.call.name.clone(),
            count: self.call.count,
            attempt: self.attempt,
            key: if everstep_protocol::planted("attempt_in_key") {
                self.key().of_attempt(self.attempt.0)
            } else {
                self.key()
            },
            undoes,
            policy: self.policy(),
        };
        let (run, delay) = (step.run.clone(), step.delay.clone());
        let (last, progress) = (self.last.clone(), self.progress.clone());
        Some(Order { number, info, run, delay, last, progress, run_of: None, session: None, span: None })
    }

    /// The wait that a report opens.
    pub(super) fn open(&self) -> Option<Open> {
        let wait = match &self.spec {
            Spec::Step(_) => return None,
            Spec::Sleep(length) => OpenWait::Sleep(*length),
            Spec::SleepUntil(moment) => OpenWait::SleepUntil(*moment),
            Spec::Event(event) => {
                OpenWait::Event { types: event.types.clone(), key: event.key.clone(), timeout: event.timeout }
            }
            Spec::Patch => OpenWait::Patch,
            Spec::Child(child) => OpenWait::Child(Child {
                workflow: child.workflow.clone(),
                id: child.id.clone(),
                input: child.input.clone(),
                fingerprint: self.fingerprint,
                detached: child.detached,
                only_started: child.only_started,
                hook: child.hook.clone(),
                keep_for: child.keep_for,
                trace: None,
            }),
            Spec::Instance(other) => OpenWait::Instance(other.clone()),
            Spec::Hook(hook) => OpenWait::Hook(hook.clone()),
            Spec::Payload(awaiting) => OpenWait::Payload(awaiting.clone()),
            Spec::Reply(reply) => OpenWait::Reply(reply.clone()),
            Spec::Send(event) => OpenWait::Send(Sending {
                to: event.to.clone(),
                kind: event.kind.clone(),
                key: event.key.clone(),
                payload: event.payload.clone(),
                fingerprint: self.fingerprint,
            }),
            Spec::Resume(resume) => OpenWait::Resume(Resuming {
                token: resume.token.clone(),
                payload: resume.payload.clone(),
                fingerprint: self.fingerprint,
            }),
            Spec::Rollback { failure, steps } => {
                OpenWait::Rollback { failure: failure.clone(), steps: *steps }
            }
            Spec::Remote(remote) => OpenWait::Remote(Remote {
                pool: remote.pool.clone(),
                function: remote.function.clone(),
                input: remote.input.clone(),
                key: self.key,
                fingerprint: self.fingerprint,
                policy: remote.policy,
                marks: remote.marks,
                look: remote.look.clone(),
                trace: None,
            }),
        };
        Some(Open { call: self.call.clone(), called_after: self.called_after, wait })
    }

    /// The record of an attempt that ended here, with the delay before the next one.
    pub(super) fn end(
        &self,
        ended: Ended,
        (uid, epoch): (InstanceUid, Epoch),
        limits: &Limits,
        now: Now,
    ) -> AttemptEnd {
        let result = match ended.result {
            Ok(output) if output.len() as u64 > limits.output_bytes => {
                Err(too_large(output.len() as u64, limits.output_bytes))
            }
            result => result,
        };
        let outcome = match result {
            Ok(output) => AttemptOutcome::Succeeded(output),
            Err(failure) => {
                let failure = failure.of_sensitive(self.spec.marks().sensitive);
                // What is refused without running has no effect.
                let unsent = self.refused.is_some() && self.policy().class.is_intended();
                let failure = if unsent { failure.not_sent() } else { failure };
                let retry_in = self.retry_in(&failure, ended.attempt, ended.ran_for, ended.asked, uid, now);
                failed(&self.policy(), failure, epoch, retry_in)
            }
        };
        let found = ended.found && matches!(outcome, AttemptOutcome::Succeeded(_));
        let follows = matches!(outcome, AttemptOutcome::Failed { retry_in: Some(_), .. });
        let progress = follows.then(|| told(&self.progress)).flatten();
        let end = self.record(ended.attempt, ended.ran_for, outcome);
        AttemptEnd { progress, marks: Marks { found, ..end.marks }, reference: ended.reference, ..end }
    }

    /// The record of an attempt that was lost with its worker (rule W11); `last` if no later one is to be charged.
    pub(super) fn charge(&self, attempt: Attempt, last: bool, uid: InstanceUid, now: Now) -> AttemptEnd {
        let failure = everstep_engine::replay::lost_failure();
        let retry_in = if last {
            self.retry_in(&failure, attempt, Millis::ZERO, Asked::Policy, uid, now)
        } else {
            Some(Millis::ZERO)
        };
        self.record(attempt, Millis::ZERO, AttemptOutcome::Failed { failure, retry_in })
    }

    /// The record of an attempt of which nobody knows what came of it, since its holder is gone (rule L7).
    pub(super) fn unknown(&self, attempt: Attempt, epoch: Epoch, failure: Failure) -> AttemptEnd {
        let failure = failure.of_sensitive(self.spec.marks().sensitive);
        self.record(attempt, Millis::ZERO, AttemptOutcome::Unknown { failure, asks: true, epoch })
    }

    /// What is said before an attempt begins (rule L5).
    pub(super) fn intent(&self) -> Intent {
        Intent {
            call: self.call.clone(),
            attempt: self.attempt,
            called_after: self.called_after,
            key: self.key(),
            input: self.fingerprint,
            policy: self.policy(),
            marks: self.spec.marks(),
        }
    }

    /// The attempt that is announced was not begun.
    pub(super) fn withdrawn(&self) -> Withdrawn {
        Withdrawn { call: self.call.clone(), attempt: self.attempt }
    }

    /// Whether each of its attempts is announced.
    pub(super) fn is_intended(&self) -> bool {
        matches!(self.spec, Spec::Step(_)) && self.policy().class.is_intended()
    }

    /// The record of an output that an earlier run had (rule L4).
    pub(super) fn reuse(&self, attempt: Attempt, output: Payload) -> AttemptEnd {
        let end = self.record(attempt, Millis::ZERO, AttemptOutcome::Succeeded(output));
        AttemptEnd { marks: Marks { reused: true, ..end.marks }, ..end }
    }

    fn retry_in(
        &self,
        failure: &Failure,
        attempt: Attempt,
        ran_for: Millis,
        asked: Asked,
        uid: InstanceUid,
        now: Now,
    ) -> Option<Millis> {
        if failure.permanent {
            return None;
        }
        let asked = failure.retry_after.map_or(asked, Asked::After);
        let elapsed = self.first_at.map_or(ran_for, |first| now.db.since(first).max(ran_for));
        delay_after(&self.policy(), failure, attempt.0, elapsed, asked, &jitter_seed(uid, self.call.hash()))
    }

    fn record(&self, attempt: Attempt, ran_for: Millis, outcome: AttemptOutcome) -> AttemptEnd {
        AttemptEnd {
            call: self.call.clone(),
            attempt,
            called_after: self.called_after,
            ran_for,
            key: self.key(),
            input: self.recorded.unwrap_or(self.fingerprint),
            policy: self.policy(),
            outcome,
            progress: None,
            marks: self.spec.marks(),
            reference: None,
        }
    }

    pub(super) fn policy(&self) -> Policy {
        let own = match &self.spec {
            Spec::Step(step) => step.policy,
            Spec::Remote(remote) => remote.policy,
            Spec::Sleep(_)
            | Spec::SleepUntil(_)
            | Spec::Event(_)
            | Spec::Patch
            | Spec::Child(_)
            | Spec::Instance(_)
            | Spec::Send(_)
            | Spec::Resume(_)
            | Spec::Hook(_)
            | Spec::Payload(_)
            | Spec::Reply(_)
            | Spec::Rollback { .. } => Policy::default(),
        };
        self.pinned.as_ref().map_or(own, |(_, policy)| *policy)
    }
}

/// Asks the step's delay function (rule P12). If it panics the policy's own delay is used and the failure says so.
pub(crate) fn asked_delay(
    delay: Option<&everstep_sdk::host::DelayFn>,
    attempt: Attempt,
    failure: &mut Failure,
) -> Asked {
    let Some(delay) = delay.filter(|_| !failure.permanent) else { return Asked::Policy };
    match catch_unwind(AssertUnwindSafe(|| delay(attempt, failure))) {
        Ok(asked) => asked.map_or(Asked::Policy, Asked::After),
        Err(panic) => {
            let message = everstep_sdk::host::panic_message(panic.as_ref());
            failure.message = format!("{} (the delay function panicked: {message})", failure.message);
            Asked::Policy
        }
    }
}

/// What an attempt has told.
pub(crate) fn told(progress: &Progress) -> Option<Payload> {
    progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether no further attempt follows.
pub(super) const fn is_final(outcome: &AttemptOutcome) -> bool {
    matches!(outcome, AttemptOutcome::Succeeded(_) | AttemptOutcome::Failed { retry_in: None, .. })
}

fn keys(
    info: &super::InstanceInfo,
    (kind, call): (CallKind, &Call),
    input: &Payload,
) -> Result<(StepKey, Fingerprint), everstep_protocol::payload::PayloadError> {
    let generation = if everstep_protocol::planted("generation_not_in_key") { 1 } else { info.generation.0 };
    keys_of(info.uid.0, generation, kind.word(), call.name.as_str(), call.count, input)
}

/// What a call without an input has: never sent, never compared.
fn null_keys() -> (StepKey, Fingerprint) {
    static NULL: std::sync::LazyLock<(StepKey, Fingerprint)> = std::sync::LazyLock::new(|| {
        keys_of(uuid::Uuid::nil(), 0, "", "", 0, &Payload::null()).expect("null has a canonical form")
    });
    *NULL
}

/// What another instance would not take: the input of a child, or the payload of an event or hook, that is over its limit (rule P4).
fn too_large_for_others(spec: &Spec, limits: &Limits) -> Option<Failure> {
    let (what, bytes, limit) = match spec {
        Spec::Child(child) => ("the input", child.input.len() as u64, limits.input_bytes),
        Spec::Send(event) => ("the payload", event.payload.len() as u64, limits.event_bytes),
        Spec::Resume(resume) => ("the payload", resume.payload.len() as u64, limits.event_bytes),
        _ => return None,
    };
    let message =
        format!("{what} is {bytes} bytes of JSON, the limit is {limit}; a retry would end the same way");
    (bytes > limit).then(|| Failure::new(FailureKind::TooLarge, message))
}

fn journal_full(bytes: u64, limit: u64) -> Failure {
    let message = format!("with this step's input the journal is {bytes} bytes, the limit is {limit}");
    Failure::new(FailureKind::LimitReached, message)
}

fn steps_used(limit: u64) -> Failure {
    let message = format!("the generation has called its {limit} steps, which is the limit");
    Failure::new(FailureKind::LimitReached, message)
}
