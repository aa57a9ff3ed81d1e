//! What came of a turn goes to the coordinator, and what it answers comes back.

use everstep_engine::{replay::Settled, report::entries};
use everstep_protocol::{
    CallKind, Failure, FailureKind, Millis, Position, Timestamp,
    journal::{Closed, End, Withdrawn},
    limits::PART_BYTES,
    message::{
        Ack, Again, AttemptEnd, AttemptOutcome, LedgerItem, Open, OpenWait, Report, Taken, Then, WorkerItem,
    },
};

use super::{
    Finish, Hosted, Life, Out, Stop, Told,
    call::{Known, is_final},
};
use crate::{
    clock::{Now, Resend},
    outbox::end_bytes,
};

impl Hosted {
    /// Turns what ended and what replay told into attempts and reports.
    pub(super) fn act(&mut self, now: Now, out: &mut Vec<Out>) {
        let results = self.results(now);
        if self.may_fold(&results) {
            for (number, end) in results {
                self.fold(number, end, now, out);
            }
            return;
        }
        if matches!(self.life, Life::Waiting(..)) {
            self.start(out);
        }
        let results = results.into_iter().map(|(_, end)| end).collect();
        self.report(results, now, out);
    }

    /// The records of the attempts that ended; those of calls that the body has dropped mean nothing.
    fn results(&mut self, now: Now) -> Vec<(u64, AttemptEnd)> {
        let mut results = Vec::new();
        for ended in std::mem::take(&mut self.ended) {
            let number = ended.number;
            if !self.running.remove(&number) || !self.replay.is_open(number) {
                continue;
            }
            if let Some(known) = self.calls.get(&number) {
                let whose = (self.uid, self.epoch);
                results.push((number, known.end(ended, whose, &self.env.limits, now)));
            }
        }
        results.append(&mut self.told.charges);
        results
    }

    /// Starts what may run; a worker that stops starts nothing, and what is paused waits for the resume.
    fn start(&mut self, out: &mut Vec<Out>) {
        if self.hold {
            // What is announced and does not begin now is given back, before the lease is.
            let announced = |number: &u64| self.calls.get(number).is_some_and(Known::is_intended);
            let (announced, starts): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.told.starts).into_iter().partition(announced);
            self.told.starts = starts;
            for number in announced {
                self.withdraw(number);
            }
            return;
        }
        if self.stop > Stop::No && !self.told.intents.is_empty() {
            self.told.intents.clear();
            self.stop = Stop::Unstarted;
        }
        for number in std::mem::take(&mut self.told.starts) {
            if self.stop > Stop::No {
                self.stop = Stop::Unstarted;
                self.withdraw(number);
            } else if let Some((mut order, call)) = self.calls.get(&number).and_then(|known| {
                Some((known.order(number, &self.info, self.undoes(&known.call))?, &known.call))
            }) {
                (order.run_of, order.session) = (Some(self.info.run), Some(self.env.session));
                self.trace_attempt(&mut order, call);
                self.running.insert(number);
                out.push(Out::Start(Box::new(order)));
            }
        }
    }

    /// An announced attempt does not begin here.
    pub(super) fn withdraw(&mut self, number: u64) {
        let announced = self.calls.get(&number).filter(|known| known.is_intended());
        self.told.withdrawn.extend(announced.map(Known::withdrawn));
    }

    /// What is to be written of attempts that may not simply be made again: which do not begin, of which nobody will know what came of
    /// them, and which are about to begin.
    fn ledger(&mut self) -> Vec<LedgerItem> {
        if !self.is_live() || matches!(self.life, Life::Parked(_) | Life::Unborn) {
            return Vec::new();
        }
        let withdrawn = std::mem::take(&mut self.told.withdrawn);
        let mut items: Vec<_> = withdrawn.into_iter().map(LedgerItem::Withdraw).collect();
        // What came of one that has ended is known, and on its way to the record.
        let mut settles = self.replay.next_settled();
        settles.retain(|settled| !self.reports.tell(&settled.intended.call, settled.intended.attempt));
        items.extend(settles.into_iter().map(settled));
        if !self.hold && matches!(self.life, Life::Waiting(..)) {
            let intents = std::mem::take(&mut self.told.intents);
            let intents = intents.into_iter().filter_map(|number| self.calls.get(&number));
            items.extend(intents.map(|known| LedgerItem::Intend(known.intent())));
        }
        items
    }

    fn opens(&mut self) -> Vec<Open> {
        if self.hold {
            return Vec::new();
        }
        let opens = std::mem::take(&mut self.told.opens);
        let mut opens: Vec<_> =
            opens.into_iter().filter_map(|number| self.calls.get(&number)?.open()).collect();
        for open in &mut opens {
            self.trace_open(&mut open.wait);
        }
        if let Some(interceptor) = &self.env.interceptor {
            for Open { call, wait, .. } in &mut opens {
                interceptor.opens(&self.info, call, wait);
            }
        }
        opens
    }

    /// The waits of calls that the body has dropped, and the hooks that it lets go. Where it has ended or cannot go on waits end with
    /// it, or stay. A child whose call is dropped is given up, whether the body goes on, compensates or has ended (rule P36).
    fn closes(&mut self) -> Vec<Closed> {
        if !self.is_live() {
            return Vec::new();
        }
        match self.life {
            Life::Waiting(..) => self.replay.next_closed(),
            // Events and payloads that its calls got and it never saw are for the next generation.
            Life::Again(_) => {
                let mut closed = self.replay.next_closed();
                closed.retain(|closed| {
                    matches!(closed.call.kind, CallKind::Event | CallKind::Payload) || closed.hook.is_some()
                });
                closed
            }
            // A hook that it let go has no retention, which the end would begin (rule H23).
            Life::Done(_) => {
                let children = self.replay.gives_children_up();
                let mut closed = self.replay.next_closed();
                closed.retain(|closed| {
                    closed.hook.is_some() || (children && closed.call.kind == CallKind::Child)
                });
                closed
            }
            Life::Parked(_) | Life::Unborn => Vec::new(),
        }
    }

    fn report(&mut self, results: Vec<AttemptEnd>, now: Now, out: &mut Vec<Out>) {
        let (opened, closed, ledger) = (self.opens(), self.closes(), self.ledger());
        let idle = self.reports.is_empty()
            && !results.iter().any(|end| goes_on(&end.outcome))
            && !ledger.iter().any(begins);
        let then = self.then(idle && !lets_go(&closed), &results, &opened, now, out);
        let nothing = results.is_empty() && opened.is_empty() && closed.is_empty() && ledger.is_empty();
        if then == Then::Continue && nothing {
            if (self.stop > Stop::No || self.hold) && self.is_quiet() {
                out.push(self.give_back());
                self.finish(Finish::GivenBack, out);
            }
            return;
        }
        let seen = self.replay.position();
        let mut parts = parts(results);
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            self.send(Draft { seen, results: part, part: true, ..Draft::default() }, now, out);
        }
        let last = Draft { seen, results: last, opened, closed, ledger, then, folded: false, part: false };
        self.send(last, now, out);
    }

    pub(super) fn report_fold(&mut self, end: AttemptEnd, seen: Position, now: Now, out: &mut Vec<Out>) {
        let (opened, closed, ledger) = (self.opens(), self.closes(), self.ledger());
        let idle = self.told.starts.is_empty() && self.told.charges.is_empty() && !ledger.iter().any(begins);
        let then = self.then(idle && !lets_go(&closed), &[], &opened, now, out);
        let results = vec![end];
        self.send(Draft { seen, results, opened, closed, ledger, then, folded: true, part: false }, now, out);
    }

    /// What the holder does next. `idle` says that nothing will move by itself as far as the caller can see.
    fn then(
        &mut self,
        idle: bool,
        results: &[AttemptEnd],
        opened: &[Open],
        now: Now,
        out: &mut Vec<Out>,
    ) -> Then {
        // What waits for nothing has its answer as soon as it is recorded.
        let idle = idle && !opened.iter().any(|open| is_at_once(&open.wait));
        if idle && self.is_live() && self.running.is_empty() && matches!(self.life, Life::Waiting(..)) {
            if self.stop == Stop::Unstarted || (self.hold && !self.told.is_empty()) {
                return Then::Continue;
            }
            if results.is_empty() && opened.is_empty() && !self.replay.has_waits() {
                self.park_foreign_body(out);
            } else if self.stop == Stop::Asked || self.hold || !self.lingers(results, opened, now) {
                return Then::Suspend;
            }
        }
        match &self.life {
            // What is announced and not on record yet has yet to be given back.
            Life::Done(_) if !self.reports.is_empty() && self.replay.awaits_intents() => Then::Continue,
            // Children whose start is not acknowledged have yet to be given up.
            Life::Done(_) if !self.reports.is_empty() && self.replay.gives_children_up() => Then::Continue,
            Life::Parked(parked) => Then::Park(parked.clone()),
            Life::Done(Ok(output)) if self.is_live() => Then::End(End::Complete(output.clone())),
            Life::Done(Err(failure)) if self.is_live() => Then::End(self.failed(failure)),
            // Calls whose opening is not acknowledged may get an event yet.
            Life::Again(again) if self.is_live() && self.reports.is_empty() => {
                let cancelled = match &self.rollback {
                    Some(asked) => asked.rollback.reason.clone(),
                    None => self.cancelled.as_ref().and_then(|cancelled| cancelled.reason.clone()),
                };
                Then::Again(Again { cancelled, ..again.clone() })
            }
            Life::Done(_) | Life::Again(_) | Life::Unborn | Life::Waiting(..) => Then::Continue,
        }
    }

    /// With a wait due soon the push is waited for (rule W27), but not for ever.
    fn lingers(&mut self, results: &[AttemptEnd], opened: &[Open], now: Now) -> bool {
        let recorded = self.waits.values().filter_map(|waiting| waiting.due);
        let opened_due = opened.iter().filter_map(|open| due(&open.wait, now.db));
        let retried = results.iter().filter_map(|end| match &end.outcome {
            AttemptOutcome::Failed { retry_in, .. } => retry_in.map(|delay| now.db.plus(delay)),
            AttemptOutcome::Succeeded(_) | AttemptOutcome::Unknown { .. } => None,
        });
        let Some(due) = recorded.chain(opened_due).chain(retried).min() else { return false };
        let left = due.since(now.db).to_std();
        left <= self.env.linger && self.linger.for_wait(left, now.at)
    }

    fn send(&mut self, draft: Draft, now: Now, out: &mut Vec<Out>) {
        let Draft { seen, results, opened, closed, ledger, then, folded, part } = draft;
        let number = self.reports.next_number();
        // A part that is followed by others bears nothing but results.
        let (state, attributes) = if part { (None, Vec::new()) } else { self.shown.take() };
        let report = Report {
            instance: self.uid,
            epoch: self.epoch,
            number,
            seen,
            results,
            opened,
            closed,
            cached: self.env.caches && then == Then::Suspend,
            compensated: if matches!(then, Then::End(_)) { self.compensated.clone() } else { None },
            then,
            folded,
            state,
            attributes,
            ledger,
        };
        self.env.metrics.reports.inc();
        out.push(Out::Send(WorkerItem::Report(report.clone()), Resend::FIRST));
        self.reports.push(report, now.at);
    }

    /// Sends again what was not answered in time.
    pub(super) fn resend(&mut self, now: Now, out: &mut Vec<Out>) {
        if let Some((reports, interval)) = self.reports.due(now.at) {
            self.env.metrics.resends.inc_by(reports.len() as u64);
            out.extend(reports.into_iter().map(|report| Out::Send(WorkerItem::Report(report), interval)));
        }
    }

    pub(super) fn acknowledged(&mut self, ack: Ack, now: Now) {
        match ack.taken {
            Taken::OutOfOrder { expected } => {
                if !self.reports.rewind(expected, now.at) {
                    tracing::error!(
                        instance = %self.uid, epoch = %self.epoch, expected,
                        "the coordinator expects a report that was acknowledged before: its history is lost; giving back"
                    );
                    self.reports.forsake();
                }
            }
            Taken::Before => {
                let folded = self.reports.taken_to(ack.number, now.at);
                self.journal.known_to(ack.after);
                if folded {
                    // What the fold came to is written in the journal, and only there.
                    self.rebuild();
                }
            }
            Taken::Whole | Taken::Kept | Taken::Results => self.taken(ack, now),
        }
    }

    fn taken(&mut self, ack: Ack, now: Now) {
        let Some((report, took)) = self.reports.take(ack.number, ack.taken, now.at) else { return };
        self.env.metrics.acks.observe(took.as_secs_f64());
        if self.reports.finish().is_some() {
            return;
        }
        let reporter = self.reporter();
        let entries = entries(&report, ack.taken, ack.after, ack.at, &reporter, &self.env.limits);
        let last = entries.last().map_or(ack.after, |entry| entry.position);
        self.journal.written(entries, last, self.replay.position());
        if ack.taken == Taken::Results {
            self.env.metrics.folds_refused.inc();
            self.rebuild();
        }
    }

    /// Throws the body away and begins again from the first entry: it has seen an outcome in an order that was refused.
    fn rebuild(&mut self) {
        self.throw_away();
        let mut replay = everstep_engine::replay::Replay::new(self.env.build.clone(), Position(0));
        replay.inherit(&mut self.replay);
        self.replay = replay;
        self.calls.clear();
        self.waits.clear();
        self.running.clear();
        self.ended.clear();
        self.told = Told::default();
        self.shown = super::Shown::default();
        self.cancelled = None;
        self.rollback = None;
        self.compensated = None;
        self.undo_keys.clear();
        self.used = super::Used::default();
        self.linger = super::Linger::No;
        self.quiet_until = self.journal.last();
        self.journal.known_to(Position(1));
        self.env.metrics.replays.inc();
    }
}

struct Draft {
    seen: Position,
    results: Vec<AttemptEnd>,
    opened: Vec<Open>,
    closed: Vec<Closed>,
    ledger: Vec<LedgerItem>,
    then: Then,
    folded: bool,
    /// Others of the same turn follow.
    part: bool,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            seen: Position(0),
            results: Vec::new(),
            opened: Vec::new(),
            closed: Vec::new(),
            ledger: Vec::new(),
            then: Then::Continue,
            folded: false,
            part: false,
        }
    }
}

/// Whether the instance goes on by itself after this outcome is recorded.
fn goes_on(outcome: &AttemptOutcome) -> bool {
    is_final(outcome)
        || matches!(outcome, AttemptOutcome::Failed { retry_in: Some(delay), .. } if delay.as_u64() == 0)
}

/// Whether something begins, or may begin elsewhere, once this is on record.
const fn begins(item: &LedgerItem) -> bool {
    matches!(item, LedgerItem::Intend(_) | LedgerItem::Withdraw(_))
}

/// What is said of an announced attempt of a call that the body has dropped.
fn settled(settled: Settled) -> LedgerItem {
    let Settled { intended, unused } = settled;
    if unused {
        return LedgerItem::Withdraw(Withdrawn { call: intended.call, attempt: intended.attempt });
    }
    let failure = Failure::new(FailureKind::Cancelled, "the workflow has dropped its call while it ran");
    let failure = failure.of_sensitive(intended.marks.sensitive);
    LedgerItem::Dropped(AttemptEnd {
        call: intended.call,
        attempt: intended.attempt,
        called_after: intended.called_after,
        ran_for: Millis::ZERO,
        key: intended.key,
        input: intended.input,
        policy: intended.policy,
        outcome: AttemptOutcome::Unknown { failure, asks: false, epoch: intended.epoch },
        progress: None,
        marks: intended.marks,
        reference: None,
    })
}

/// Whether a hook is let go: the body may wait until that is on record.
fn lets_go(closed: &[Closed]) -> bool {
    closed.iter().any(|closed| closed.hook.is_some())
}

const fn is_at_once(wait: &OpenWait) -> bool {
    match wait {
        // What came of a hook is on record with it, unless its owner is asked first.
        OpenWait::Hook(_) | OpenWait::Patch | OpenWait::Reply(_) | OpenWait::Rollback { .. } => true,
        OpenWait::Sleep(_)
        | OpenWait::SleepUntil(_)
        | OpenWait::Remote(_)
        | OpenWait::Event { .. }
        | OpenWait::Child(_)
        | OpenWait::Instance(_)
        | OpenWait::Payload(_)
        | OpenWait::Resume(_)
        | OpenWait::Send(_) => false,
    }
}

fn due(wait: &OpenWait, now: Timestamp) -> Option<Timestamp> {
    match wait {
        OpenWait::Sleep(length) => Some(now.plus(*length)),
        OpenWait::SleepUntil(until) => Some(*until),
        OpenWait::Event { timeout, .. } => Some(now.plus(*timeout)),
        OpenWait::Remote(_)
        | OpenWait::Patch
        | OpenWait::Child(_)
        | OpenWait::Instance(_)
        | OpenWait::Hook(_)
        | OpenWait::Payload(_)
        | OpenWait::Reply(_)
        | OpenWait::Send(_)
        | OpenWait::Resume(_)
        | OpenWait::Rollback { .. } => None,
    }
}

/// Results in parts that fit a message each (rule W20).
fn parts(results: Vec<AttemptEnd>) -> Vec<Vec<AttemptEnd>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = 0;
    for end in results {
        let size = end_bytes(&end);
        if bytes > 0 && bytes + size > PART_BYTES {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        if let Some(part) = parts.last_mut() {
            part.push(end);
        }
    }
    parts
}
