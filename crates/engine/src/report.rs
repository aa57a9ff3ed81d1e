//! Which entries a report becomes. Coordinator and worker both run this: the coordinator to write them, the worker to know
//! them from the acknowledgement alone.

use everstep_protocol::{
    BuildName, Class, Epoch, Failure, FailureKind, Millis, Payload, Policy, Position, SessionId, Timestamp,
    journal::{Attempted, Compensating, Entry, Fact, Intended, Opened, Outcome, Patched, Wait},
    limits::{Limits, PROGRESS_BYTES},
    message::{AttemptEnd, AttemptOutcome, Intent, LedgerItem, Open, OpenWait, Report, Taken, Then},
};

/// Who reported: stands in every attempt record.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The session.
    pub session: SessionId,
    /// The build of its code.
    pub build: BuildName,
}

/// The entries that a report becomes, of which `taken` says how much was taken, written after position `after` at `at`.
#[must_use]
pub fn entries(
    report: &Report,
    taken: Taken,
    after: Position,
    at: Timestamp,
    reporter: &Reporter,
    limits: &Limits,
) -> Vec<Entry> {
    let mut facts = Facts { position: after, at, entries: Vec::new() };
    match taken {
        Taken::Before | Taken::OutOfOrder { .. } => return facts.entries,
        Taken::Whole | Taken::Kept | Taken::Results => {}
    }
    for result in &report.results {
        facts.push(Fact::Attempted(attempted(result, report.epoch, at, reporter, limits)));
    }
    if taken == Taken::Results {
        return facts.entries;
    }
    for closed in &report.closed {
        facts.push(Fact::Closed(closed.clone()));
    }
    for open in &report.opened {
        let fact = opened(open, at, reporter);
        // Of what waits for nothing the entry itself is the outcome.
        let fires = matches!(fact, Fact::Opened(_)) && is_due(&open.wait, at);
        facts.push(fact);
        if fires {
            facts.push(Fact::Fired { call: open.call.clone() });
        }
    }
    for item in &report.ledger {
        facts.push(match item {
            LedgerItem::Intend(intent) => Fact::Intended(intended(intent, report.epoch, reporter)),
            LedgerItem::Withdraw(withdrawn) => Fact::Withdrawn(withdrawn.clone()),
            LedgerItem::Dropped(end) => Fact::Attempted(attempted(end, report.epoch, at, reporter, limits)),
        });
    }
    if taken == Taken::Whole {
        if let (Some(compensated), Then::End(_)) = (&report.compensated, &report.then) {
            facts.push(Fact::Compensated(compensated.clone()));
        }
        match &report.then {
            Then::Continue | Then::Suspend => {}
            Then::End(end) => facts.push(Fact::Ended(end.clone())),
            Then::Again(again) => facts.push(Fact::Continued(again.input.clone())),
            Then::Park(parked) => facts.push(Fact::Parked(parked.clone())),
        }
    }
    facts.entries
}

struct Facts {
    position: Position,
    at: Timestamp,
    entries: Vec<Entry>,
}

impl Facts {
    fn push(&mut self, fact: Fact) {
        self.position = self.position.next();
        self.entries.push(Entry { position: self.position, at: self.at, fact });
    }
}

/// A sleep of no length, or until a moment that has passed, is over at once (rule P18), and so are a patch and an answer. What comes of the wait
/// for an event only the coordinator knows: there may be one.
pub(crate) const fn is_due(wait: &OpenWait, at: Timestamp) -> bool {
    match wait {
        OpenWait::Sleep(length) => length.0 == 0,
        OpenWait::SleepUntil(until) => until.0 <= at.0,
        OpenWait::Remote(_)
        | OpenWait::Event { .. }
        | OpenWait::Child(_)
        | OpenWait::Instance(_)
        | OpenWait::Hook(_)
        | OpenWait::Payload(_)
        | OpenWait::Resume(_)
        | OpenWait::Send(_) => false,
        OpenWait::Patch | OpenWait::Reply(_) | OpenWait::Rollback { .. } => true,
    }
}

fn attempted(
    end: &AttemptEnd,
    epoch: Epoch,
    at: Timestamp,
    reporter: &Reporter,
    limits: &Limits,
) -> Attempted {
    let outcome = outcome(&end.outcome, (&end.policy, epoch), at, limits);
    let follows = matches!(outcome, Outcome::Failed { retry_at: Some(_), .. });
    Attempted {
        call: end.call.clone(),
        attempt: end.attempt,
        called_after: end.called_after,
        started_at: at.minus(end.ran_for),
        key: end.key,
        input: end.input,
        policy: end.policy,
        build: reporter.build.clone(),
        session: reporter.session,
        outcome,
        progress: kept(end.progress.as_ref()).filter(|_| follows).cloned(),
        marks: end.marks,
        reference: end.reference.clone(),
    }
}

fn intended(intent: &Intent, epoch: Epoch, reporter: &Reporter) -> Intended {
    Intended {
        call: intent.call.clone(),
        attempt: intent.attempt,
        called_after: intent.called_after,
        key: intent.key,
        input: intent.input,
        policy: intent.policy,
        marks: intent.marks,
        build: reporter.build.clone(),
        session: reporter.session,
        epoch,
    }
}

/// What a failed attempt comes to, which ran under this lease: of a step that is called at most once, only what surely took no effect
/// is a failure (rules L7, L9). `retry_in` is when it may be tried again.
#[must_use]
pub fn failed(policy: &Policy, failure: Failure, epoch: Epoch, retry_in: Option<Millis>) -> AttemptOutcome {
    match policy.class {
        Class::AtMostOnce if !failure.sent.is_without_effect() => {
            AttemptOutcome::Unknown { failure, asks: true, epoch }
        }
        Class::Keyed | Class::Lookup { .. } | Class::AtMostOnce => {
            AttemptOutcome::Failed { failure, retry_in }
        }
    }
}

/// The recorded form of an outcome; an output over its limit is a permanent failure with the measured size (rule P4).
pub(crate) fn outcome(
    outcome: &AttemptOutcome,
    (policy, epoch): (&Policy, Epoch),
    at: Timestamp,
    limits: &Limits,
) -> Outcome {
    match outcome {
        AttemptOutcome::Succeeded(output) if output.len() as u64 > limits.output_bytes => {
            let failure = too_large(output.len() as u64, limits.output_bytes);
            match policy.class {
                // It took effect, and its output is lost.
                Class::AtMostOnce => Outcome::Unknown { failure, asks: true, epoch },
                Class::Keyed | Class::Lookup { .. } => Outcome::Failed { failure, retry_at: None },
            }
        }
        AttemptOutcome::Succeeded(output) => Outcome::Succeeded(output.clone()),
        AttemptOutcome::Failed { failure, retry_in } => {
            Outcome::Failed { failure: failure.clone(), retry_at: retry_in.map(|delay| at.plus(delay)) }
        }
        AttemptOutcome::Unknown { failure, asks, epoch } => {
            Outcome::Unknown { failure: failure.clone(), asks: *asks, epoch: *epoch }
        }
    }
}

/// Progress as far as it may be kept (rule P5). A worker has refused what is larger.
pub(crate) fn kept(progress: Option<&Payload>) -> Option<&Payload> {
    progress.filter(|told| told.len() <= PROGRESS_BYTES)
}

/// The failure of an output that is larger than the limit.
#[must_use]
pub fn too_large(bytes: u64, limit: u64) -> Failure {
    Failure::new(
        FailureKind::TooLarge,
        format!("the output is {bytes} bytes of JSON, the limit is {limit}; a retry would end the same way"),
    )
}

/// The entry of an open call.
fn opened(open: &Open, at: Timestamp, reporter: &Reporter) -> Fact {
    let (call, called_after) = (open.call.clone(), open.called_after);
    let (wait, build) = match &open.wait {
        OpenWait::Sleep(length) => (Wait::Sleep { until: at.plus(*length) }, None),
        OpenWait::SleepUntil(until) => (Wait::Sleep { until: *until }, None),
        OpenWait::Remote(remote) => (Wait::Remote(remote.clone()), Some(reporter.build.clone())),
        OpenWait::Event { types, key, timeout } => {
            (Wait::Event { types: types.clone(), key: key.clone(), until: at.plus(*timeout) }, None)
        }
        OpenWait::Child(child) => (Wait::Child(child.clone()), Some(reporter.build.clone())),
        OpenWait::Instance(other) => (Wait::Instance(other.clone()), None),
        OpenWait::Send(sending) => (Wait::Send(sending.clone()), Some(reporter.build.clone())),
        OpenWait::Resume(resuming) => (Wait::Resume(resuming.clone()), Some(reporter.build.clone())),
        OpenWait::Hook(hook) => (Wait::Hook(hook.clone()), None),
        OpenWait::Payload(awaiting) => (Wait::Payload(awaiting.clone()), None),
        OpenWait::Reply(reply) => (Wait::Reply(reply.clone()), None),
        OpenWait::Patch => return Fact::Patched(Patched { call, called_after }),
        OpenWait::Rollback { failure, steps } => {
            let (failure, steps) = (failure.clone(), *steps);
            return Fact::Compensating(Compensating { call, called_after, failure, steps });
        }
    };
    Fact::Opened(Opened { call, called_after, wait, build })
}
