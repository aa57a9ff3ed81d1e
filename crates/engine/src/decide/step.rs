//! Remote steps: a lease and a fence of their own, beside the instance's (rule W39).

use std::borrow::Cow;

use everstep_protocol::{
    Attempt, BuildName, Call, CallHash, Class, Epoch, Failure, FailureKind, Millis, Payload, Reference,
    SessionId,
    journal::{Attempted, Fact, Marks, Outcome},
    message::{AttemptOutcome, CoordinatorItem, StepGrant},
};

use super::{
    Draft,
    question::{self, About},
};
use crate::{
    effect::{Answer, Change, Effect},
    replay::restored_failure,
    report::{failed, outcome},
    retry::{Asked, delay_after, jitter_seed},
    rows::{Lease, RemoteRow, Subject, WaitKind, WaitRow},
};

/// Who speaks about which remote step.
pub(super) struct From<'a> {
    pub(super) session: SessionId,
    pub(super) build: &'a BuildName,
    pub(super) call: CallHash,
    /// What the attempt had told of its progress.
    pub(super) progress: Option<&'a Payload>,
}

/// How an attempt ended.
pub(super) struct Ending<'a> {
    pub(super) ran_for: Millis,
    pub(super) outcome: &'a AttemptOutcome,
    /// The output was found by looking.
    pub(super) found: bool,
    /// What its service calls what it did.
    pub(super) reference: Option<&'a Reference>,
}

/// A worker of the pool answers a step task.
pub(super) fn claim(draft: &mut Draft<'_>, session: SessionId, call: CallHash) -> Answer {
    let lease = draft.step_lease(call);
    let Some(row) = draft.context.rows.remotes.get(&(draft.uid(), call)) else {
        return refuse(draft, session, call, Epoch(0));
    };
    let mut row = row.clone();
    let ready = draft.context.rows.ready.contains_key(&(draft.uid(), Subject::step(call)));
    match lease {
        Some(lease) if lease.session == session => {
            draft.step_grant(session, call, row);
            Answer::Nothing
        }
        Some(_) if everstep_protocol::planted("step_claimed_twice") => {
            let lease = Lease { session, epoch: row.epoch };
            draft.changes.push(Change::Lease(Subject::step(call), lease));
            draft.step_grant(session, call, row);
            Answer::Granted
        }
        None if ready && draft.is_paused() => {
            draft.changes.push(Change::ReadyEnd(Subject::step(call)));
            draft.hold_step(call, &row.call);
            refuse(draft, session, call, Epoch(0))
        }
        None if ready => {
            if is_doubtful(draft, &row) {
                return doubt(draft, session, &row);
            }
            row.epoch = row.epoch.next();
            row.first_at = row.first_at.or(Some(draft.context.now));
            row.granted_at = Some(draft.context.now);
            let lease = Lease { session, epoch: row.epoch };
            draft.changes.push(Change::ReadyEnd(Subject::step(call)));
            draft.changes.push(Change::Lease(Subject::step(call), lease));
            draft.changes.push(Change::Remote(row.clone()));
            draft.step_grant(session, call, row);
            Answer::Granted
        }
        _ => refuse(draft, session, call, Epoch(0)),
    }
}

/// Whether the history that was lost with a restore may have called a step that is called at most once: it may have had its instance, and
/// nothing was done about the step since then.
fn is_doubtful(draft: &Draft<'_>, row: &RemoteRow) -> bool {
    let Some(restored_at) = draft.head.doubted(draft.context.restored_at) else { return false };
    let since = [row.granted_at, row.first_at].into_iter().flatten().any(|at| at > restored_at);
    row.remote.policy.class == Class::AtMostOnce && !since
}

/// A person is asked before the step is called. No code has run it in this life: the build says so.
fn doubt(draft: &mut Draft<'_>, session: SessionId, row: &RemoteRow) -> Answer {
    let call = row.call.hash();
    if let Ok(build) = BuildName::new("restored") {
        draft.changes.push(Change::ReadyEnd(Subject::step(call)));
        let from = From { session, build: &build, call, progress: None };
        let outcome = AttemptOutcome::Unknown { failure: restored_failure(), asks: true, epoch: row.epoch };
        let outcome = marked(row, &outcome).into_owned();
        let ending = Ending { ran_for: Millis(0), outcome: &outcome, found: false, reference: None };
        conclude(draft, &from, row, &ending);
    }
    refuse(draft, session, call, row.epoch)
}

fn refuse(draft: &mut Draft<'_>, session: SessionId, call: CallHash, epoch: Epoch) -> Answer {
    let item = CoordinatorItem::StepFence { instance: draft.uid(), call, epoch };
    draft.effects.push(Effect::Item(session, item));
    Answer::NotGranted
}

/// The holder reports the end of its attempt.
pub(super) fn report(draft: &mut Draft<'_>, from: &From<'_>, epoch: Epoch, ending: &Ending<'_>) -> Answer {
    let Some(row) = draft.context.rows.remotes.get(&(draft.uid(), from.call)).cloned() else {
        if draft.head.status.is_ended() {
            refuse(draft, from.session, from.call, epoch);
            return Answer::Fenced;
        }
        // Known already: the worker is done with it.
        let item = CoordinatorItem::StepAck { instance: draft.uid(), call: from.call, epoch };
        draft.effects.push(Effect::Item(from.session, item));
        return Answer::Nothing;
    };
    if epoch > row.epoch {
        return Answer::FromTheFuture;
    }
    let held = draft
        .step_lease(from.call)
        .is_some_and(|lease| lease.session == from.session && lease.epoch == epoch);
    if !held && !everstep_protocol::planted("step_fence_unchecked") {
        let about = About { call: from.call, attempt: None, epoch };
        draft.attach(&about, (from.session, from.build), ending.outcome);
        refuse(draft, from.session, from.call, epoch);
        return Answer::Fenced;
    }
    let item = CoordinatorItem::StepAck { instance: draft.uid(), call: from.call, epoch };
    draft.effects.push(Effect::Item(from.session, item));
    let outcome = marked(&row, ending.outcome);
    conclude(draft, from, &row, &Ending { outcome: &outcome, ..*ending });
    Answer::Taken
}

/// The lease ended without a report: with its session, or given back. Of a step that may not simply be called again the lease is the
/// intent: whether its attempt took effect is not known, unless it never began (rule L7).
pub(super) fn ended(
    draft: &mut Draft<'_>,
    from: &From<'_>,
    epoch: Option<Epoch>,
    (counts, unstarted): (bool, bool),
) -> Answer {
    let given = draft.context.rows.remotes.get(&(draft.uid(), from.call)).map(|row| row.epoch);
    if epoch.zip(given).is_some_and(|(epoch, given)| epoch > given) {
        return Answer::FromTheFuture;
    }
    let held = draft
        .step_lease(from.call)
        .is_some_and(|lease| lease.session == from.session && epoch.is_none_or(|epoch| epoch == lease.epoch));
    let Some(row) = draft.context.rows.remotes.get(&(draft.uid(), from.call)).filter(|_| held).cloned()
    else {
        return Answer::Nothing;
    };
    if (counts || (row.remote.policy.class.is_intended() && !unstarted))
        && !everstep_protocol::planted("lost_step_called_again")
    {
        let ran_for = row.granted_at.map_or(Millis(0), |at| draft.context.now.since(at));
        let failure = Failure::new(FailureKind::WorkerLost, "the worker that ran it was lost");
        let lost = AttemptOutcome::Failed { failure, retry_in: None };
        conclude(draft, from, &row, &Ending { ran_for, outcome: &lost, found: false, reference: None });
    } else {
        let (pool, called) = (row.remote.pool.clone(), row.call.clone());
        if from.progress.is_some() {
            draft.changes.push(Change::Remote(RemoteRow { progress: from.progress.cloned(), ..row }));
        }
        draft.changes.push(Change::LeaseEnd(Subject::step(from.call)));
        if draft.is_paused() {
            draft.hold_step(from.call, &called);
            return Answer::Done;
        }
        draft.changes.push(Change::Ready(Subject::step(from.call), Some(pool.clone())));
        draft.offer_step(from.call, pool);
    }
    Answer::Done
}

/// A step that was taken up, and nothing says any more by whom, nor what came of it.
pub(super) fn forgotten(draft: &mut Draft<'_>, call: CallHash, row: &RemoteRow) -> Answer {
    let Ok(build) = BuildName::new("unknown") else { return Answer::Nothing };
    let from = From { session: SessionId::UNKNOWN, build: &build, call, progress: None };
    let failure = Failure::new(FailureKind::WorkerLost, "its lease is gone, and with it who ran it");
    let lost = AttemptOutcome::Failed { failure, retry_in: None };
    conclude(
        draft,
        &from,
        row,
        &Ending { ran_for: Millis(0), outcome: &lost, found: false, reference: None },
    );
    Answer::Done
}

/// One attempt has ended: it is recorded, and the step has its outcome or waits for its next attempt.
fn conclude(draft: &mut Draft<'_>, from: &From<'_>, row: &RemoteRow, ending: &Ending<'_>) {
    let now = draft.context.now;
    let ended = with_delay(draft, row, ending.outcome);
    let outcome = outcome(&ended, (&row.remote.policy, row.epoch), now, draft.context.limits);
    let retry_at = match &outcome {
        Outcome::Succeeded(_) | Outcome::Unknown { .. } => None,
        Outcome::Failed { retry_at, .. } => *retry_at,
    };
    draft.changes.push(Change::LeaseEnd(Subject::step(from.call)));
    let found = ending.found && matches!(outcome, Outcome::Succeeded(_));
    let attempted = Attempted {
        call: row.call.clone(),
        attempt: row.attempt,
        called_after: row.called_after,
        started_at: now.minus(ending.ran_for),
        key: row.remote.key,
        input: row.remote.fingerprint,
        policy: row.remote.policy,
        build: from.build.clone(),
        session: from.session,
        outcome,
        progress: from.progress.filter(|_| retry_at.is_some()).cloned(),
        marks: Marks { found, ..row.remote.marks },
        reference: ending.reference.cloned(),
    };
    let asks = question::asks(&attempted).then(|| attempted.clone());
    draft.append(Fact::Attempted(attempted));
    if let Some(attempted) = asks {
        ask(draft, from.call, row, &attempted);
    } else if let Some(due_at) = retry_at {
        let progress = from.progress.or(row.progress.as_ref()).cloned();
        again(draft, from.call, &RemoteRow { progress, ..row.clone() }, due_at);
    } else {
        draft.head.steps = draft.head.steps.saturating_add(1);
        draft.head.waits = draft.head.waits.saturating_sub(1);
        draft.head.deaths = 0;
        draft.changes.push(Change::WaitEnd(from.call));
        draft.changes.push(Change::RemoteEnd(from.call));
        draft.wake();
    }
}

/// A person is asked. The step is kept, in case it is to be run again.
fn ask(draft: &mut Draft<'_>, call: CallHash, row: &RemoteRow, attempted: &Attempted) {
    // After a restore: what is called once this is answered is called for the first time in this life.
    let first_at = draft.context.restored_at.map(|_| draft.context.now).or(row.first_at);
    let next = RemoteRow { attempt: row.attempt.next(), granted_at: None, first_at, ..row.clone() };
    draft.changes.push(Change::Remote(next));
    draft.changes.push(Change::WaitEnd(call));
    let wait = draft.entries.last().and_then(|entry| question::of(entry, attempted));
    draft.changes.extend(wait.map(Change::Wait));
    if draft.lease().is_some() {
        draft.wake();
    }
}

/// The next attempt: at once, or when its delay is over. A holder of the instance learns of the entry; an instance that
/// waits is not woken by it.
fn again(draft: &mut Draft<'_>, call: CallHash, row: &RemoteRow, due_at: everstep_protocol::Timestamp) {
    let now = draft.context.now;
    let next = RemoteRow { attempt: row.attempt.next(), granted_at: None, ..row.clone() };
    draft.changes.push(Change::Remote(next));
    if due_at > now || draft.is_paused() {
        draft.changes.push(Change::WaitEnd(call));
        draft.changes.push(Change::Wait(WaitRow {
            call: row.call.clone(),
            kind: WaitKind::Remote,
            since: draft.context.rows.waits.get(&(draft.uid(), call)).map_or(now, |wait| wait.since),
            due_at: Some(due_at),
            awaited: None,
            question: None,
        }));
    } else {
        let pool = row.remote.pool.clone();
        draft.changes.push(Change::Ready(Subject::step(call), Some(pool.clone())));
        draft.offer_step(call, pool);
    }
    if draft.lease().is_some() {
        draft.wake();
    }
}

/// What fails in a step that is sensitive is so too (rule P44): whoever ran it need not know.
fn marked<'a>(row: &RemoteRow, ended: &'a AttemptOutcome) -> Cow<'a, AttemptOutcome> {
    match ended {
        AttemptOutcome::Failed { failure, retry_in } if row.remote.marks.sensitive => {
            let failure = failure.clone().of_sensitive(true);
            Cow::Owned(AttemptOutcome::Failed { failure, retry_in: *retry_in })
        }
        AttemptOutcome::Unknown { failure, asks, epoch } if row.remote.marks.sensitive => {
            let failure = failure.clone().of_sensitive(true);
            Cow::Owned(AttemptOutcome::Unknown { failure, asks: *asks, epoch: *epoch })
        }
        AttemptOutcome::Failed { .. } | AttemptOutcome::Unknown { .. } | AttemptOutcome::Succeeded(_) => {
            Cow::Borrowed(ended)
        }
    }
}

/// The policy's delay, which for remote steps the coordinator computes (the caller's code is not there to ask).
fn with_delay(draft: &Draft<'_>, row: &RemoteRow, ended: &AttemptOutcome) -> AttemptOutcome {
    let AttemptOutcome::Failed { failure, .. } = ended else {
        return ended.clone();
    };
    let elapsed = row.first_at.map_or(Millis(0), |at| draft.context.now.since(at));
    let asked = failure.retry_after.map_or(Asked::Policy, Asked::After);
    let retry_in = if failure.permanent {
        None
    } else {
        let seed = jitter_seed(draft.uid(), row.call.hash());
        delay_after(&row.remote.policy, failure, row.attempt.0, elapsed, asked, &seed)
    };
    failed(&row.remote.policy, failure.clone(), row.epoch, retry_in)
}

impl Draft<'_> {
    fn step_lease(&self, call: CallHash) -> Option<Lease> {
        self.context.rows.leases.get(&(self.uid(), Subject::step(call))).copied()
    }

    /// A remote step of a paused instance: its wait is due, and so it is offered at the resume.
    pub(super) fn hold_step(&mut self, call: CallHash, called: &Call) {
        let since =
            self.context.rows.waits.get(&(self.uid(), call)).map_or(self.context.now, |wait| wait.since);
        self.changes.push(Change::WaitEnd(call));
        self.changes.push(Change::Wait(WaitRow {
            call: called.clone(),
            kind: WaitKind::Remote,
            since,
            due_at: Some(self.context.now),
            awaited: None,
            question: None,
        }));
    }

    pub(super) fn offer_step(&mut self, call: CallHash, pool: everstep_protocol::Pool) {
        self.effects.push(Effect::OfferStep {
            namespace: self.head.namespace.clone(),
            pool,
            instance: self.uid(),
            call,
        });
    }

    fn step_grant(&mut self, session: SessionId, hash: CallHash, row: RemoteRow) {
        let grant = StepGrant {
            instance: self.uid(),
            hash,
            epoch: row.epoch,
            namespace: self.head.namespace.clone(),
            workflow: self.head.workflow.clone(),
            id: self.head.id.clone(),
            call: row.call,
            attempt: row.attempt.max(Attempt::FIRST),
            remote: row.remote,
            progress: row.progress,
        };
        self.effects.push(Effect::StepGrant(session, Box::new(grant)));
    }
}
