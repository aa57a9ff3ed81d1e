//! What one input does to one instance.
//!
//! | input | held by the sender | held by another | ready | waiting | paused | parked | ended |
//! | --- | --- | --- | --- | --- | --- | --- | --- |
//! | claim | grant again | not granted | **lease** | not granted | not granted | not granted | not granted |
//! | report | **append**, then go on, release, end, begin again or park | fence | fence | fence | fence | fence | fence |
//! | give back | **release**, ready | nothing | nothing | nothing | nothing | nothing | nothing |
//! | due | append, push | append, push | append | **append, ready** | nothing | append | nothing |
//! | lease ended | **append loss**, ready (or parked) | nothing | nothing | nothing | nothing | nothing | nothing |
//! | step report | append, push | append, push | append | **append, ready** | append | append | fence |
//! | step lease ended | append, push | append, push | append | append | append | append | nothing |
//! | event | append, push | append, push | append | **append, ready** | append | append | refused |
//! | payload of a hook | append, push | append, push | append | **append, ready** | append | append | refused |
//! | letter: an answer | append, push | append, push | append | **append, ready** | append | append | nothing |
//! | terminate | **end** | **end** | **end** | **end** | **end** | **end** | refused |
//! | rollback | **append**, push | **append**, push | **append** | **append, ready** | **append, ready** | **append, ready** | refused |
//! | pause | **tell** | **tell** | **paused** | **paused** | nothing | refused | refused |
//! | resume | nothing | nothing | nothing | nothing | **ready** | refused | refused |
//! | cancel | **append**, push | **append**, push | **append** | **append, ready** | **append, ready** | **append** | refused |
//! | overdue | end, or append | end, or append | end, or append | end, or append | end, or append | end, or append | nothing |
//! | restart | **new run**, ready | **new run**, ready | **new run** | **new run, ready** | **new run, ready** | **new run, ready** | **new run, ready** |
//! | delete | refused | refused | refused | refused | refused | refused | **gone** |
//! | expire | nothing | nothing | nothing | nothing | nothing | nothing | gone |
//! | unwritable | **park** | **park** | **park** | **park** | **park** | nothing | nothing |
//! | retry | refused | refused | refused | refused | refused | **ready** | refused |
//! | resolve | append, push | append, push | append | **append, ready** | append | append | refused |
//! | breach | mended | mended | mended | mended | mended | mended | nothing |
//! | pin | **noted** | **noted** | **ready** elsewhere | **noted** | **noted** | **noted** | **noted** |
//!
//! An event that no open wait fits is kept, in every open state alike. A letter with an event, a terminate or a cancel does what
//! these do; one that asks how an instance ends changes nothing of it. An answer that no call waits for means nothing.
//!
//! While a pause waits for the holder to give its lease up, nothing that the lease's end brings makes the instance ready. What
//! people may do in which status is the table of [`transition`](crate::transition), which decisions obey.

mod again;
mod cancel;
mod control;
mod delete;
mod due;
mod event;
mod hook;
mod lease;
mod letter;
mod mend;
mod pause;
mod pin;
mod question;
mod report;
mod restart;
mod rollback;
mod step;

use std::collections::BTreeMap;

use everstep_protocol::{
    InstanceUid, Position, SessionId, Timestamp, Token,
    journal::{Entry, Fact, Lost},
    limits::{Limits, PART_BYTES},
};

pub(crate) use event::awaiting;
pub(crate) use question::of as asked;
pub use question::{Rekeying, Resolution, Unparking};
pub use restart::Prepared;

use crate::{
    effect::{Answer, Change, Decision, Effect},
    head::Head,
    hook::HookRow,
    input::What,
    place::{Place, Taker},
    report::kept,
    retention,
    rows::{Control, Lease, Rows, Subject},
    status::{Sides, StatusWord},
};

/// What every decision is made with, beside the input.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The side rows that the input named.
    pub rows: &'a Rows,
    /// The batch's time, by the database's clock (rule W18).
    pub now: Timestamp,
    /// The installation's limits.
    pub limits: &'a Limits,
    /// How many holders may die in a row without progress before the instance is parked (rule W11).
    pub deaths_max: u32,
    /// How long ended instances are kept (rule P32).
    pub retention: &'a retention::Rules,
    /// Says why a JSON Schema cannot be used (rule H57).
    pub compiles: crate::batch::Compiles,
    /// When an older database was restored: what was done after that nobody knows (rule L7).
    pub restored_at: Option<Timestamp>,
    /// Where the instance goes if it becomes runnable.
    pub place: Place,
    /// Whom a lease would go to, where that matters: the instance is pinned to a build, or may be by this (rule P40).
    pub taker: Option<&'a Taker>,
}

/// What one input does to one instance. `head` is the head as locked, with earlier inputs of the batch applied.
#[must_use]
pub fn decide(head: &Head, what: &What, context: Context<'_>) -> Decision {
    let mut draft = Draft::new(head, context);
    let answer = match what {
        What::Claim { session, have } => lease::claim(&mut draft, *session, *have),
        What::GiveBack { session, epoch } => lease::give_back(&mut draft, *session, *epoch),
        What::LeaseEnded { session, epoch, slots, counts, progress } => {
            let loss = Lost { slots: *slots, counts: *counts, session: *session, progress: progress.clone() };
            lease::ended(&mut draft, *epoch, loss)
        }
        What::Report { session, build, report } => report::report(&mut draft, *session, build, report),
        What::Due { call } => due::due(&mut draft, *call),
        What::StepClaim { session, call } => step::claim(&mut draft, *session, *call),
        What::StepReport { session, build, call, epoch, ran_for, outcome, progress, found, reference } => {
            let from =
                step::From { session: *session, build, call: *call, progress: kept(progress.as_ref()) };
            step::report(
                &mut draft,
                &from,
                *epoch,
                &step::Ending { ran_for: *ran_for, outcome, found: *found, reference: reference.as_ref() },
            )
        }
        What::StepLeaseEnded { session, build, call, epoch, counts, unstarted, progress } => {
            let from =
                step::From { session: *session, build, call: *call, progress: kept(progress.as_ref()) };
            step::ended(&mut draft, &from, *epoch, (*counts, *unstarted))
        }
        What::Event(event) => event::accept(&mut draft, event),
        What::Payload(payload) => hook::resume(&mut draft, payload),
        What::Letter(letter) => letter::take(&mut draft, letter),
        What::Terminate { operation, reason } => control::terminate(&mut draft, operation, reason.as_ref()),
        What::Abandon { operation, reason } => control::abandon(&mut draft, operation, reason.as_ref()),
        What::Rollback { operation, reason } => rollback::rollback(&mut draft, operation, reason.as_ref()),
        What::Pause { operation } => pause::pause(&mut draft, operation),
        What::Resume { operation } => pause::resume(&mut draft, operation),
        What::Cancel { operation, reason, within, rollback } => {
            let asked = cancel::Asked { reason: reason.as_ref(), within: *within, rollback: *rollback };
            cancel::cancel(&mut draft, operation, &asked)
        }
        What::Overdue => cancel::overdue(&mut draft),
        What::Restart { operation, prepared } => restart::restart(&mut draft, operation, prepared.as_ref()),
        What::Delete { operation, terminate } => delete::delete(&mut draft, operation, *terminate),
        What::Expire => delete::expire(&mut draft),
        What::Breach(breach) => mend::mend(&mut draft, breach),
        What::Unwritable { message } => control::unwritable(&mut draft, message),
        What::Rekey { operation, rekeying } => control::rekey(&mut draft, operation, rekeying),
        What::Retry { operation } => control::retry(&mut draft, operation),
        What::Resolve { operation, resolution } => question::resolve(&mut draft, operation, resolution),
        What::Pin { operation, pin } => pin::pin(&mut draft, operation, pin.as_ref()),
    };
    draft.finish(answer)
}

/// A decision in the making.
struct Draft<'a> {
    head: Head,
    before: &'a Head,
    context: Context<'a>,
    /// The pause and cancel in force, as this decision leaves them.
    control: Option<Control>,
    /// Tokens whose rows this decision has changed.
    hooks: BTreeMap<Token, Option<HookRow>>,
    /// The last entries of the run before, where a generation follows.
    last: Vec<Entry>,
    entries: Vec<Entry>,
    changes: Vec<Change>,
    effects: Vec<Effect>,
}

impl<'a> Draft<'a> {
    fn new(head: &'a Head, context: Context<'a>) -> Self {
        Self {
            head: head.clone(),
            before: head,
            context,
            control: context.rows.controls.get(&head.uid).copied(),
            hooks: BTreeMap::new(),
            last: Vec::new(),
            entries: Vec::new(),
            changes: Vec::new(),
            effects: Vec::new(),
        }
    }

    fn uid(&self) -> InstanceUid {
        self.before.uid
    }

    fn lease(&self) -> Option<Lease> {
        self.context.rows.leases.get(&(self.uid(), Subject::INSTANCE)).copied()
    }

    fn is_ready(&self) -> bool {
        self.context.rows.ready.contains_key(&(self.uid(), Subject::INSTANCE))
    }

    fn is_parked(&self) -> bool {
        self.context.rows.parked.contains_key(&self.uid())
    }

    /// The status that people see.
    fn status(&self) -> StatusWord {
        let sides = Sides {
            leased: self.lease().is_some(),
            ready: self.is_ready(),
            parked: self.is_parked(),
            // What people may do is the same as where it waits for anything else.
            asks: false,
            paused: self.is_paused(),
            steps_leased: false,
        };
        StatusWord::derive(self.head.status, sides)
    }

    /// Appends one entry at the next position (rule W1).
    fn append(&mut self, fact: Fact) {
        self.head.position = self.head.position.next();
        self.head.journal_bytes = self.head.journal_bytes.saturating_add(fact.payload_bytes());
        self.entries.push(Entry { position: self.head.position, at: self.context.now, fact });
    }

    /// Appends entries that were built for the positions after the head's.
    fn append_all(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.append(entry.fact.clone());
        }
    }

    /// Grants the lease to a session: the epoch grows, reports are counted from 1 again.
    fn grant(&mut self, session: SessionId, direct: bool, after: Position) {
        if let Some(pin) = self.context.taker.cloned().and_then(Taker::pin) {
            self.head.pin = Some(pin);
        }
        if !everstep_protocol::planted("epoch_kept") {
            self.head.epoch = self.head.epoch.next();
        }
        self.head.reports = 0;
        self.head.cached = None;
        self.changes.push(Change::Lease(Subject::INSTANCE, Lease { session, epoch: self.head.epoch }));
        let is_all = self.entries.len() as u64 == self.head.position.0.saturating_sub(after.0);
        // A restart may begin with a long journal: one that is more than a part is read in parts (rules W20, W26).
        let bytes: u64 = self.entries.iter().map(|entry| entry.fact.payload_bytes()).sum();
        let entries = if is_all && bytes <= PART_BYTES as u64 { self.entries.clone() } else { Vec::new() };
        self.effects.push(Effect::Grant {
            session,
            head: Box::new(self.head.clone()),
            direct,
            after,
            entries,
        });
    }

    /// The instance can go on and nobody holds it: a direct grant, or a ready row and an offer. The one place where an
    /// instance becomes runnable, so that it is never forgotten (promise 5). A paused one becomes so when it is resumed (rule P29).
    fn make_runnable(&mut self) {
        if self.is_paused() {
            return;
        }
        match self.context.place {
            Place::Direct(session) => {
                let cached = self.head.cached.filter(|cached| cached.session == session);
                self.grant(session, true, cached.map_or(Position(0), |cached| cached.position));
            }
            Place::Queue => {
                self.changes.push(Change::Ready(Subject::INSTANCE, None));
                self.effects.push(Effect::Offer {
                    namespace: self.head.namespace.clone(),
                    workflow: self.head.workflow.clone(),
                    build: self.head.pinned_to().cloned(),
                    instance: self.head.uid,
                    kept_by: self.head.cached.map(|cached| cached.session),
                });
            }
        }
    }

    /// Entries were appended by somebody other than the holder: they go to the holder, or make the instance runnable if
    /// nobody holds it and it waits.
    fn wake(&mut self) {
        if let Some(lease) = self.lease() {
            self.effects.push(Effect::Push {
                session: lease.session,
                head: Box::new(self.head.clone()),
                entries: self.entries.clone(),
            });
        } else if !self.is_ready() && !self.is_parked() {
            self.make_runnable();
        }
    }

    fn finish(self, answer: Answer) -> Decision {
        let changed = self.head != *self.before;
        Decision {
            head: changed.then_some(self.head),
            last: self.last,
            entries: self.entries,
            changes: self.changes,
            effects: self.effects,
            answer,
        }
    }
}
