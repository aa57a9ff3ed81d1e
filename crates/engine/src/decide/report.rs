//! The holder reports: results are appended, waits opened, and the lease goes on or ends.

use everstep_protocol::{
    BuildName, Call, CallKind, FailureKind, Policy, Position, SessionId,
    journal::{Choice, Entry, Fact, ParkCode, Parked, Wait},
    limits::STATE_BYTES,
    message::{Ack, AttemptOutcome, CoordinatorItem, FenceReason, LedgerItem, OpenWait, Report, Taken, Then},
    policy::Limit,
};

use super::{Draft, again, event, hook, letter, question};
use crate::{
    effect::{Answer, Change, Effect},
    head::{Cached, Status},
    report::{Reporter, entries, is_due},
    rows::{RemoteRow, Subject, WaitKind, WaitRow},
};

/// How far a report may take a journal past its limit: what may end at once when the limit is reached.
const JOURNAL_SLACK: u64 = 10 << 20;

/// Takes a report of the lease that it bears, once and in order.
pub(super) fn report(
    draft: &mut Draft<'_>,
    session: SessionId,
    build: &BuildName,
    report: &Report,
) -> Answer {
    if report.epoch > draft.head.epoch {
        return Answer::FromTheFuture;
    }
    let held = draft.lease().is_some_and(|lease| lease.session == session && lease.epoch == report.epoch);
    if !held && !everstep_protocol::planted("epoch_unchecked") {
        question::evidence(draft, (session, build), report);
        return fence(draft, session, report);
    }
    let expected = draft.head.reports + 1;
    if report.number != expected && !everstep_protocol::planted("report_twice") {
        let taken = if report.number < expected { Taken::Before } else { Taken::OutOfOrder { expected } };
        acknowledge(draft, session, report, taken, draft.before.position);
        return Answer::Nothing;
    }
    take(draft, session, build, report)
}

fn fence(draft: &mut Draft<'_>, session: SessionId, report: &Report) -> Answer {
    let why = match draft.head.status {
        Status::Terminated => FenceReason::Terminated,
        Status::Complete | Status::Errored | Status::Cancelled => FenceReason::Ended,
        Status::Open => FenceReason::Stale,
    };
    let item = CoordinatorItem::Fence { instance: draft.uid(), epoch: report.epoch, why };
    draft.effects.push(Effect::Item(session, item));
    Answer::Fenced
}

/// The acknowledgement. `after` is the position before the report's own entries, or up to which they are to be asked for.
fn acknowledge(draft: &mut Draft<'_>, session: SessionId, report: &Report, taken: Taken, after: Position) {
    let ack = Ack {
        instance: draft.uid(),
        epoch: report.epoch,
        number: report.number,
        after,
        at: draft.context.now,
        taken,
    };
    draft.effects.push(Effect::Item(session, CoordinatorItem::Ack(ack)));
}

fn take(draft: &mut Draft<'_>, session: SessionId, build: &BuildName, report: &Report) -> Answer {
    let taken = how_much(draft, report);
    let reporter = Reporter { session, build: build.clone() };
    let after = draft.head.position;
    let written = entries(report, taken, after, draft.context.now, &reporter, draft.context.limits);
    let bytes = written.iter().map(|entry| entry.fact.payload_bytes()).sum();
    let grown = draft.head.journal_bytes.saturating_add(bytes);
    if grown > draft.context.limits.journal_bytes.saturating_add(JOURNAL_SLACK) {
        let limit = draft.context.limits.journal_bytes;
        let what = format!("a report would make the journal {grown} bytes, the limit is {limit}");
        return refuse(draft, session, report, &what);
    }
    if let Then::Again(again) = &report.then
        && again.input.len() as u64 > draft.context.limits.input_bytes
    {
        let (bytes, limit) = (again.input.len(), draft.context.limits.input_bytes);
        let what = format!("the input of the next generation is {bytes} bytes, the limit is {limit}");
        return refuse(draft, session, report, &what);
    }
    if let Some(error) = hook::unanswerable(&written) {
        return refuse(draft, session, report, &format!("the answer of a webhook: {error}"));
    }
    draft.head.reports = report.number;
    if is_progress(report) {
        draft.head.deaths = 0;
    }
    let ended_by_cancel = draft.is_cancelled_after(report.seen);
    for entry in &written {
        if matches!(entry.fact, Fact::Compensating(_)) {
            draft.compensates();
        } else if ended_by_cancel {
            count_outcome(draft, entry);
        } else {
            open_waits(draft, entry, report);
        }
    }
    draft.append_all(&written);
    hook::answer(draft, &written);
    let taken = with_events(draft, report, taken, &written);
    publish(draft, report, taken);
    let others = std::mem::take(&mut draft.effects);
    if is_derived(draft, report, taken) {
        acknowledge(draft, session, report, taken, after);
    } else {
        let last = written.last().map_or(after, |entry| entry.position);
        acknowledge(draft, session, report, Taken::Before, last);
    }
    draft.effects.extend(others);
    push_events(draft, session, report, &written);
    if taken != Taken::Whole {
        return Answer::Taken;
    }
    match &report.then {
        Then::Continue => Answer::Taken,
        Then::Suspend => {
            draft.head.cached = report.cached.then_some(Cached { session, position: report.seen });
            suspend(draft)
        }
        Then::End(end) => {
            draft.end(end.clone());
            Answer::Taken
        }
        Then::Again(next) => again::begin(draft, next, report.seen),
        Then::Park(parked) => {
            draft.changes.push(Change::LeaseEnd(Subject::INSTANCE));
            draft.parked(parked.clone());
            Answer::Parked
        }
    }
}

/// What the body has published and set (rule P37). What came of a fold that is refused never was.
fn publish(draft: &mut Draft<'_>, report: &Report, taken: Taken) {
    if taken == Taken::Results {
        return;
    }
    let state = report.state.iter().filter(|state| state.len() <= STATE_BYTES);
    draft.changes.extend(state.cloned().map(Change::State));
    draft.changes.extend(report.attributes.iter().cloned().map(Change::Attribute));
}

/// What the report's entries mean for events. A suspend does not hold if a wait of this very report is over already.
fn with_events(draft: &mut Draft<'_>, report: &Report, taken: Taken, written: &[Entry]) -> Taken {
    // Nor is anything delivered to calls that were open at a cancel which the body has yet to see.
    let ends = (taken == Taken::Whole && matches!(report.then, Then::End(_) | Then::Again(_)))
        || draft.is_cancelled_after(report.seen);
    let more = event::settle(draft, written, ends);
    if more && taken == Taken::Whole && report.then == Then::Suspend { Taken::Kept } else { taken }
}

/// The holder derives the entries of its report from its own copy of it; those that events added are pushed.
fn push_events(draft: &mut Draft<'_>, session: SessionId, report: &Report, written: &[Entry]) {
    let entries = draft.entries.get(written.len()..).unwrap_or_default().to_vec();
    if entries.is_empty() || matches!(report.then, Then::Park(_)) {
        return;
    }
    draft.effects.push(Effect::Push { session, head: Box::new(draft.head.clone()), entries });
}

/// A back-stop (rule P4): a worker keeps to the limits itself, so only a report of much at once comes here, or one of a worker
/// that was told other limits.
fn refuse(draft: &mut Draft<'_>, session: SessionId, report: &Report, what: &str) -> Answer {
    let why = FenceReason::Parked;
    let item = CoordinatorItem::Fence { instance: draft.uid(), epoch: report.epoch, why };
    draft.effects.push(Effect::Item(session, item));
    draft.changes.push(Change::LeaseEnd(Subject::INSTANCE));
    draft.park(Parked::new(ParkCode::Broken, format!("{what}; the report was not taken")))
}

/// A fold holds only at the position that it expects (rule W36), and for the outcome that it expects; a suspend only if the
/// body has seen everything, and nothing in the report itself lets it go on at once: an outcome that it was not shown, a
/// retry or sleep without length (rule W3).
fn how_much(draft: &Draft<'_>, report: &Report) -> Taken {
    let up_to_date = draft.head.position == report.seen;
    if report.folded && !(up_to_date && stands(draft, report)) && !everstep_protocol::planted("fold_anywhere")
    {
        return Taken::Results;
    }
    let goes_on = (!up_to_date && !everstep_protocol::planted("suspend_overtakes"))
        || report.opened.iter().any(|open| is_due(&open.wait, draft.context.now))
        || report.results.iter().any(|end| retries_at_once(&end.outcome))
        || report.ledger.iter().any(|item| !matches!(item, LedgerItem::Dropped(_)))
        || (!report.folded && report.results.iter().any(|end| is_final(&end.outcome)));
    match report.then {
        Then::Suspend if goes_on => Taken::Kept,
        Then::Suspend | Then::Continue | Then::End(_) | Then::Park(_) | Then::Again(_) => Taken::Whole,
    }
}

/// Whether the holder is to derive the entries from its own copy of the report (rule W1). It does so with the limits that it
/// was told when its session was opened. Where those here are lower and tell, it is to read what was written instead, as
/// after an acknowledgement that was lost. A holder whose lease is over derives nothing.
fn is_derived(draft: &Draft<'_>, report: &Report, taken: Taken) -> bool {
    let goes_on = taken != Taken::Whole || report.then == Then::Continue;
    !goes_on || stands(draft, report)
}

/// Whether the outcomes that the body was shown are those that are recorded: the limits here may be lower than those that
/// the worker was told.
fn stands(draft: &Draft<'_>, report: &Report) -> bool {
    report.results.iter().all(|end| match &end.outcome {
        AttemptOutcome::Succeeded(output) => output.len() as u64 <= draft.context.limits.output_bytes,
        AttemptOutcome::Failed { .. } | AttemptOutcome::Unknown { .. } => true,
    })
}

/// Whether the body is resumed with this outcome.
const fn is_final(outcome: &AttemptOutcome) -> bool {
    matches!(outcome, AttemptOutcome::Succeeded(_) | AttemptOutcome::Failed { retry_in: None, .. })
}

fn retries_at_once(outcome: &AttemptOutcome) -> bool {
    matches!(outcome, AttemptOutcome::Failed { retry_in: Some(delay), .. } if delay.as_u64() == 0)
}

/// Anything that a report brings is progress, but for losses charged to steps that may be tried for ever (rule W11): with a
/// limited policy each loss uses up an attempt, so that deaths end by themselves, in a failure that the body can catch.
fn is_progress(report: &Report) -> bool {
    let only_endless_losses = report.results.iter().all(|end| {
        matches!(&end.outcome, AttemptOutcome::Failed { failure, .. } if failure.kind == FailureKind::WorkerLost)
            && is_endless(&end.policy)
    });
    !(only_endless_losses
        && report.opened.is_empty()
        && matches!(report.then, Then::Continue | Then::Suspend))
}

const fn is_endless(policy: &Policy) -> bool {
    matches!(policy.limit, Limit::Unlimited) && policy.max_elapsed.is_none()
}

/// What an entry counts for by itself, where nothing waits for its call: it was open when the instance was cancelled (rule P30), or is
/// copied into the journal of a restart.
pub(super) fn count_outcome(draft: &mut Draft<'_>, entry: &Entry) {
    match &entry.fact {
        Fact::Attempted(attempted) if !attempted.goes_on() => draft.count_step(&attempted.call),
        Fact::Resolved(resolved) if resolved.choice != Choice::Again => draft.count_step(&resolved.call),
        _ => {}
    }
}

/// The side rows that an entry of a report brings with it.
fn open_waits(draft: &mut Draft<'_>, entry: &Entry, report: &Report) {
    match &entry.fact {
        Fact::Attempted(attempted) if question::asks(attempted) => draft.ask(entry, attempted),
        Fact::Attempted(attempted) => match attempted.retry_at() {
            Some(due_at) if due_at > entry.at => {
                draft.open_wait(WaitRow {
                    call: attempted.call.clone(),
                    kind: WaitKind::Retry,
                    since: entry.at,
                    due_at: Some(due_at),
                    awaited: None,
                    question: None,
                });
            }
            Some(_) => {}
            None => draft.count_step(&attempted.call),
        },
        Fact::Opened(opened) => match &opened.wait {
            Wait::Sleep { until } => {
                let open = report.opened.iter().find(|open| open.call == opened.call);
                let due_now = open.is_some_and(|open| is_due(&open.wait, entry.at));
                if !due_now {
                    draft.open_wait(WaitRow {
                        call: opened.call.clone(),
                        kind: WaitKind::Sleep,
                        since: entry.at,
                        due_at: Some(*until),
                        awaited: None,
                        question: None,
                    });
                }
            }
            // A hook is claimed when all entries are there.
            Wait::Remote(_) | Wait::Hook(_) | Wait::Reply(_) => {}
            Wait::Event { .. } | Wait::Payload(_) => {
                if let Some(wait) = event::awaiting(entry) {
                    draft.open_wait(wait);
                }
            }
            Wait::Child(_) | Wait::Instance(_) | Wait::Send(_) | Wait::Resume(_) => {
                letter::open(draft, entry);
            }
        },
        Fact::Closed(closed) => draft.close(closed),
        Fact::Started(_)
        | Fact::Fired { .. }
        | Fact::Patched(_)
        | Fact::Lost(_)
        | Fact::Parked(_)
        | Fact::Retried
        | Fact::Rekeyed(_)
        | Fact::Cancelled(_)
        | Fact::Continued(_)
        | Fact::Ended(_)
        | Fact::Returned(_)
        | Fact::Compensating(_)
        | Fact::Compensated(_)
        | Fact::Rollback(_)
        | Fact::Reusable(_)
        | Fact::Registered(_)
        | Fact::Received(_)
        | Fact::TakenOver(_)
        // What is announced needs no row: its holder has the lease, and whoever follows it reads the journal.
        | Fact::Intended(_)
        | Fact::Withdrawn(_)
        | Fact::Resolved(_)
        | Fact::Delivered(_) => {}
    }
    if let Fact::Opened(opened) = &entry.fact
        && let Some(OpenWait::Remote(remote)) =
            report.opened.iter().find(|open| open.call == opened.call).map(|open| &open.wait)
    {
        draft.open_remote(RemoteRow {
            call: opened.call.clone(),
            called_after: opened.called_after,
            remote: remote.clone(),
            attempt: everstep_protocol::Attempt::FIRST,
            epoch: everstep_protocol::Epoch(0),
            first_at: None,
            granted_at: None,
            progress: None,
        });
    }
}

/// The holder has nothing to run. An instance that nothing will wake is never let go silently (rule W3, promise 5).
fn suspend(draft: &mut Draft<'_>) -> Answer {
    draft.changes.push(Change::LeaseEnd(Subject::INSTANCE));
    if draft.head.waits > 0 {
        return Answer::Taken;
    }
    let message = "the body waits, but for nothing that could wake it";
    draft.park(Parked::new(ParkCode::NothingToWaitFor, message))
}

impl Draft<'_> {
    /// A step has its outcome; compensations are not limited (rule P4).
    pub(super) fn count_step(&mut self, call: &Call) {
        if call.kind == CallKind::Step {
            self.head.steps = self.head.steps.saturating_add(1);
        }
    }

    pub(super) fn open_wait(&mut self, wait: WaitRow) {
        self.head.waits += 1;
        self.changes.push(Change::Wait(wait));
    }

    fn open_remote(&mut self, row: RemoteRow) {
        let hash = row.call.hash();
        let pool = row.remote.pool.clone();
        self.open_wait(WaitRow {
            call: row.call.clone(),
            kind: WaitKind::Remote,
            since: self.context.now,
            // Of a paused instance it is offered at the resume.
            due_at: self.is_paused().then_some(self.context.now),
            awaited: None,
            question: None,
        });
        self.changes.push(Change::Remote(row));
        if self.is_paused() {
            return;
        }
        self.changes.push(Change::Ready(Subject::step(hash), Some(pool.clone())));
        self.effects.push(Effect::OfferStep {
            namespace: self.head.namespace.clone(),
            pool,
            instance: self.uid(),
            call: hash,
        });
    }
}
