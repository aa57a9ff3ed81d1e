//! One granted instance: its journal fed to its body, its attempts, its reports. A state machine: what happens to it is
//! told by the methods, [`Hosted::turn`] does everything that follows and says what to send, start and cancel.
//!
//! | what is told | what it does |
//! | --- | --- |
//! | [`granted`](Hosted::granted), [`entries`](Hosted::entries) | fills the journal's buffer |
//! | [`ack`](Hosted::ack) | derives the entries of the report from its own copy (rule W1) |
//! | [`ended`](Hosted::ended) | an attempt has its outcome |
//! | [`foreign`](Hosted::foreign) | something else woke the body (rule W30) |
//! | [`stop`](Hosted::stop) | starts nothing more, reports what runs, gives back |
//!
//! Invariants: the body is fed strictly by position; while a fold, suspend, end or park is unanswered nothing is fed and
//! nothing starts; throwing the body away means nothing (rule W29). No clock, no I/O, no threads in here.

mod call;
mod feed;
mod fold;
mod journal;
mod linger;
mod port;
mod report;
mod reports;
mod saga;
mod sleep;
mod trace;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use everstep_engine::{replay::Replay, report::Reporter};
use everstep_protocol::{
    Attribute, AttributeName, AttributeValue, Call, Epoch, Failure, InstanceUid, Payload, Position, StepKey,
    Timestamp,
    journal::{Cancelled, Compensated, ParkCode, Parked, Rollback, Withdrawn},
    message::{Ack, Again, AttemptEnd, Entries, Grant, Held, WorkerItem},
};
use everstep_sdk::host::{Body, Host, InstanceInfo};
use everstep_telemetry::label::Label;
use tokio::time::Instant;

use crate::{
    clock::{Now, Resend},
    watch::Polled,
};
use call::Known;
pub(crate) use call::{asked_delay, told};
use journal::Journal;
use linger::Linger;
pub use port::{Ended, Env, Finish, ForeignListener, Order, Out, Progress};
use reports::Reports;
use trace::Traced;
pub(crate) use trace::trace_remote;

/// One granted instance.
pub struct Hosted {
    env: Arc<Env>,
    uid: InstanceUid,
    epoch: Epoch,
    info: InstanceInfo,
    who: Polled,
    /// Whose the lines are that the body logs.
    label: Label,
    /// The trace that the instance is in, if it is in one.
    trace: Option<Box<Traced>>,
    journal: Journal,
    life: Life,
    replay: Replay,
    /// The time that the body sees; see [`feed`].
    clock: Timestamp,
    /// Up to here the body repeats what it has done before: it logs nothing.
    quiet_until: Position,
    /// Calls without an outcome, by number.
    calls: HashMap<u64, Known>,
    used: Used,
    waits: HashMap<Call, Waiting>,
    /// Attempts that run or wait for a slot, by the call's number.
    running: BTreeSet<u64>,
    ended: Vec<Ended>,
    told: Told,
    shown: Shown,
    reports: Reports,
    linger: Linger,
    stop: Stop,
    /// The instance is being paused: nothing begins here.
    hold: bool,
    /// The instance was cancelled, as the body knows.
    cancelled: Option<Cancelled>,
    /// It is to end with a rollback, as the body knows.
    rollback: Option<Asked>,
    /// How its compensations ended.
    compensated: Option<Compensated>,
    /// The keys of the steps that have a compensation.
    undo_keys: HashMap<Call, StepKey>,
    foreign: bool,
    finished: bool,
    /// So many drifted outputs are counted.
    drift_counted: u64,
}

/// What the limits count (rule P4).
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// Steps that the body has called.
    steps: u64,
    /// Bytes of the entries whose content the body could see.
    bytes: u64,
    /// Up to here entries were counted: an outcome may be seen before its entry is fed (rule W36).
    counted: Position,
}

impl Used {
    fn entry(&mut self, position: Position, bytes: u64) {
        if position > self.counted {
            self.counted = position;
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }
}

/// A rollback that somebody asks for.
#[derive(Clone, Debug)]
struct Asked {
    rollback: Rollback,
    /// The body was thrown away for it: it had not ended by itself before.
    thrown_away: bool,
}

/// What replay said may run and was not acted on yet.
#[derive(Debug, Default)]
struct Told {
    starts: Vec<u64>,
    opens: Vec<u64>,
    charges: Vec<(u64, AttemptEnd)>,
    /// Attempts to be announced.
    intents: Vec<u64>,
    /// Announced attempts that are not begun here.
    withdrawn: Vec<Withdrawn>,
}

impl Told {
    fn is_empty(&self) -> bool {
        self.starts.is_empty()
            && self.opens.is_empty()
            && self.charges.is_empty()
            && self.intents.is_empty()
            && self.withdrawn.is_empty()
    }
}

/// What the body has published and set since it was last reported (rule P37).
#[derive(Debug, Default)]
struct Shown {
    state: Option<Payload>,
    attributes: BTreeMap<AttributeName, Option<AttributeValue>>,
}

impl Shown {
    fn add(&mut self, state: Option<Payload>, attributes: Vec<Attribute>) {
        if state.is_some() {
            self.state = state;
        }
        self.attributes.extend(attributes.into_iter().map(|Attribute { name, value }| (name, value)));
    }

    fn take(&mut self) -> (Option<Payload>, Vec<Attribute>) {
        let attributes = std::mem::take(&mut self.attributes).into_iter();
        (self.state.take(), attributes.map(|(name, value)| Attribute { name, value }).collect())
    }
}

/// A recorded wait of a call.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// When it is due, if time ends it.
    due: Option<Timestamp>,
    /// The time of the latest entry about it.
    at: Timestamp,
    /// Another worker runs it.
    remote: bool,
}

/// Whether the worker stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    No,
    /// Nothing new may start.
    Asked,
    /// Something that may run was not started: the instance must be given back, not suspended.
    Unstarted,
}

/// What the body is doing.
enum Life {
    /// The first entry is not here yet.
    Unborn,
    /// It waits for its calls.
    Waiting(Host, Body),
    /// It has returned.
    Done(Result<Payload, Failure>),
    /// It goes on as the next generation.
    Again(Again),
    /// It cannot go on.
    Parked(Parked),
}

impl Hosted {
    /// Takes up a lease. The workflow must be registered.
    #[must_use]
    pub fn new(env: Arc<Env>, grant: Grant) -> Self {
        let info = InstanceInfo {
            namespace: grant.namespace.clone(),
            workflow: grant.workflow.clone(),
            id: grant.id.clone(),
            uid: grant.instance,
            run: grant.run,
            generation: grant.generation,
        };
        let who = Polled {
            instance: grant.instance,
            epoch: grant.epoch,
            workflow: grant.workflow.clone(),
            id: grant.id.clone(),
        };
        let label = Label {
            namespace: grant.namespace.clone(),
            workflow: grant.workflow.clone(),
            instance: grant.id.clone(),
            run: Some(grant.run),
            session: Some(env.session),
            step: None,
        };
        if grant.last > Position(1) {
            env.metrics.replays.inc();
        }
        let mut hosted = Self {
            uid: grant.instance,
            epoch: grant.epoch,
            info,
            who,
            label,
            trace: None,
            journal: Journal::default(),
            life: Life::Unborn,
            replay: Replay::new(env.build.clone(), Position(0)),
            clock: Timestamp(0),
            quiet_until: grant.last,
            calls: HashMap::new(),
            used: Used::default(),
            waits: HashMap::new(),
            running: BTreeSet::new(),
            ended: Vec::new(),
            told: Told::default(),
            shown: Shown::default(),
            reports: Reports::after(grant.reports),
            linger: Linger::No,
            stop: Stop::No,
            hold: false,
            cancelled: None,
            rollback: None,
            compensated: None,
            undo_keys: HashMap::new(),
            foreign: false,
            finished: false,
            drift_counted: 0,
            env,
        };
        hosted.replay.held_by(hosted.env.session, hosted.epoch);
        hosted.replay.restored(grant.restored_at);
        hosted.granted(grant);
        hosted
    }

    /// The lease's epoch.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The last position that the body was fed.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.replay.position()
    }

    /// What a heartbeat says of it (rule W6).
    #[must_use]
    pub fn held(&self) -> Held {
        Held {
            instance: self.uid,
            epoch: self.epoch,
            position: self.journal.have(self.replay.position()),
            run: Some(self.info.run),
            reports: Some(self.reports.answered()),
        }
    }

    /// How many recorded outcomes were used although the code now gives them another input (rule P8).
    #[must_use]
    pub const fn drifted(&self) -> u64 {
        self.replay.drifted()
    }

    /// How many attempts run or wait for a slot.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether nothing is under way: nothing runs and no report is unanswered.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.running.is_empty() && self.reports.is_empty()
    }

    /// The lease was granted, or its grant was repeated.
    pub fn granted(&mut self, grant: Grant) {
        self.journal.begin(grant.entries, grant.last, self.replay.position());
    }

    /// Further entries, or the word that the instance is being paused, or no longer (rule P29).
    pub fn entries(&mut self, entries: Entries) {
        self.hold = entries.pause.unwrap_or(self.hold);
        self.journal.add(entries.entries, entries.last, self.replay.position());
    }

    /// A report was taken, or not.
    pub fn ack(&mut self, ack: Ack, now: Now) {
        self.acknowledged(ack, now);
    }

    /// An attempt has its outcome.
    pub fn ended(&mut self, ended: Ended) {
        self.ended.push(ended);
    }

    /// An attempt will not be started: the worker stops.
    pub fn unstarted(&mut self, number: u64) {
        if self.running.remove(&number) {
            self.stop = Stop::Unstarted;
            self.withdraw(number);
        }
    }

    /// Something other than its own calls woke the body.
    pub fn foreign(&mut self) {
        self.foreign = true;
    }

    /// Nothing new may start here; what runs is reported, then the lease is given back.
    pub fn stop(&mut self) {
        self.stop = self.stop.max(Stop::Asked);
    }

    /// The way to the coordinators was closed and is open again: what is unanswered is sent again at once.
    pub fn hurry(&mut self, now: Now) {
        self.reports.hurry(now.at);
        self.journal.hurry(now.at);
    }

    /// An invariant is broken: the instance is parked, the worker lives on.
    pub fn broken(&mut self, message: &str) {
        self.throw_away();
        self.told = Told::default();
        let message = format!("the worker failed on this instance, which is a bug of the engine: {message}");
        self.life = Life::Parked(Parked::new(ParkCode::Broken, message));
    }

    /// When something is due without anybody telling.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        [self.reports.deadline(), self.journal.deadline(), self.linger.deadline()].into_iter().flatten().min()
    }

    /// Does everything that follows from what was told, and from the time.
    pub fn turn(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.finished {
            return;
        }
        if let Some(finish) = self.reports.finish() {
            if finish == Finish::GivenBack {
                out.push(self.give_back());
            }
            self.finish(finish, out);
            return;
        }
        if let Some(after) = self.journal.ask(self.replay.position(), now.at) {
            let ask = WorkerItem::Ask { instance: self.uid, epoch: self.epoch, run: self.info.run, after };
            out.push(Out::Send(ask, Resend::FIRST));
        }
        self.linger.tick(now.at);
        if !self.reports.is_settling() {
            self.feed(out);
            self.park_foreign(out);
            self.tell(now, out);
            self.act(now, out);
        }
        self.resend(now, out);
    }

    /// The lease is over, from outside: attempts are cancelled, nothing is reported.
    pub fn dismiss(&mut self, out: &mut Vec<Out>) {
        self.lease_ends(None);
        self.cancel_all(out);
        self.throw_away();
        self.finished = true;
    }

    fn finish(&mut self, finish: Finish, out: &mut Vec<Out>) {
        self.lease_ends(Some(finish));
        if finish == Finish::Suspended && self.env.caches && matches!(self.life, Life::Waiting(..)) {
            self.fall_asleep();
        } else {
            self.dismiss(out);
        }
        // A body that is kept counts each once.
        let drifted = self.replay.drifted();
        self.env.metrics.drifted.inc_by(drifted.saturating_sub(self.drift_counted));
        self.drift_counted = drifted;
        out.push(Out::Finished(finish));
    }

    fn cancel_all(&mut self, out: &mut Vec<Out>) {
        let running = std::mem::take(&mut self.running);
        out.extend(running.into_iter().map(|number| Out::Cancel { number }));
    }

    /// Drops the body, if there is one. Nothing it drops means anything (rule W29).
    fn throw_away(&mut self) {
        if let Life::Waiting(host, body) = std::mem::replace(&mut self.life, Life::Unborn) {
            self.env.watch.during(&self.who, || host.discard(body));
        }
    }

    fn give_back(&self) -> Out {
        Out::Send(WorkerItem::GiveBack { instance: self.uid, epoch: self.epoch }, Resend::FIRST)
    }

    fn reporter(&self) -> Reporter {
        Reporter { session: self.env.session, build: self.env.build.clone() }
    }

    /// Every entry that is known of is fed.
    fn is_live(&self) -> bool {
        !matches!(self.life, Life::Unborn) && self.replay.position() >= self.journal.last()
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.throw_away();
    }
}

impl fmt::Debug for Hosted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosted")
            .field("instance", &self.uid)
            .field("epoch", &self.epoch)
            .field("position", &self.replay.position())
            .finish_non_exhaustive()
    }
}
