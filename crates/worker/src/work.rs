//! The work loop: one thread that polls bodies and decides what runs. Every cause of work is one arm of one `match`.
//!
//! It takes everything that is there, acts on it, lets each instance that something happened to take its turn, and hands
//! what came of it to the link in one parcel. It does no I/O and never waits for user steps, which run elsewhere.

mod cache;
mod hold;
mod pool;
mod stop;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::Arc,
    time::Duration,
};

use everstep_broker::Settle;
use everstep_protocol::{
    BuildName, CallHash, CoordinatorId, Epoch, Incarnation, InstanceUid, SessionId,
    message::{CoordinatorItem, HeldStep, Opened, RunTask, StepTask, WorkerItem},
};
use everstep_sdk::Registry;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, sleep_until},
};

use crate::{
    attempt::{Attempts, Gone, Owner},
    board::Board,
    claim::Claims,
    clock::{Clock, Now, Resend},
    credit::Credits,
    hosted::{Ended, Env, Hosted, Out},
    link::ToLink,
    metrics::Metrics,
    outbox::Parcel,
    recent::Recent,
    remote::{Remotes, StepKey},
    settings::Interceptor,
    watch::Watch,
};

/// At most so many inputs are taken before the instances take their turns.
const INPUTS_MAX: usize = 1024;

/// With nothing to do the loop comes round this often all the same, so that heartbeats can say that it turns (rule W12).
const IDLE: Duration = Duration::from_secs(1);

/// Every cause of work.
#[derive(Debug)]
pub(crate) enum Input {
    /// A session is open: everything held under a former one is void.
    Session { session: SessionId, incarnation: Incarnation, opened: Opened },
    /// The session has ended: drop everything (rule W10).
    SessionOver,
    /// A coordinator said something.
    Items { coordinator: CoordinatorId, items: Vec<CoordinatorItem> },
    /// A coordinator says that these leases are not, or no longer, ours.
    NotOurs { instances: Vec<(InstanceUid, Epoch)>, steps: Vec<HeldStep> },
    /// A run task; there is room for it.
    Task { task: RunTask, settle: Settle, room: OwnedSemaphorePermit },
    /// A step task; there is room for it.
    StepTask { task: StepTask, settle: Settle, room: OwnedSemaphorePermit },
    /// The future of an attempt has gone.
    Gone(Gone),
    /// Something foreign woke a body (rule W30).
    Foreign(InstanceUid, Epoch),
    /// Heartbeats are unanswered, or answered again: whether nothing new may start (rule W10).
    Pause(bool),
    /// The broker was away and is back: what is unanswered goes out again.
    Reconnected,
    /// Stop gracefully.
    Stop,
}

/// What the loop is made of.
pub(crate) struct Parts {
    pub(crate) registry: Registry,
    pub(crate) build: BuildName,
    pub(crate) linger: Duration,
    pub(crate) cache_bytes: u64,
    pub(crate) shutdown_grace: Duration,
    pub(crate) metrics: Metrics,
    pub(crate) interceptor: Option<Arc<dyn Interceptor>>,
    pub(crate) attempts: Attempts,
    pub(crate) board: Arc<Board>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) room: Arc<Semaphore>,
    pub(crate) step_room: Arc<Semaphore>,
    /// Where inputs of other threads go, for what the loop itself hands out.
    pub(crate) inputs: mpsc::UnboundedSender<Input>,
    pub(crate) link: mpsc::UnboundedSender<ToLink>,
}

pub(crate) struct Work {
    parts: Parts,
    session: Option<Session>,
    clock: Clock,
    credits: Credits,
    held: HashMap<InstanceUid, Slot>,
    cache: cache::Cache,
    claims: Claims<InstanceUid>,
    step_claims: Claims<StepKey>,
    remotes: Remotes,
    steps_changed: bool,
    /// Leases that are over: a late repetition of their grant is given back, not run.
    over: Recent<InstanceUid>,
    steps_over: Recent<StepKey>,
    /// Instances that something happened to.
    touched: Vec<InstanceUid>,
    /// Instances whose account changed.
    changed: Vec<InstanceUid>,
    timers: BinaryHeap<Reverse<(Instant, InstanceUid)>>,
    items: Vec<(WorkerItem, Duration)>,
    settles: Vec<Settle>,
    stopping: Option<Instant>,
}

struct Session {
    env: Arc<Env>,
    incarnation: Incarnation,
}

/// A held instance with what belongs to holding it.
struct Slot {
    hosted: Hosted,
    _room: OwnedSemaphorePermit,
    touched: bool,
    timer: Option<Instant>,
    /// How many heartbeats were told that it is not held, while its suspend was unanswered.
    denied: u32,
}

impl Work {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            cache: cache::Cache::new(parts.cache_bytes),
            parts,
            session: None,
            clock: Clock::default(),
            credits: Credits::default(),
            held: HashMap::new(),
            claims: Claims::new(),
            step_claims: Claims::new(),
            remotes: Remotes::default(),
            steps_changed: false,
            over: Recent::default(),
            steps_over: Recent::default(),
            touched: Vec::new(),
            changed: Vec::new(),
            timers: BinaryHeap::new(),
            items: Vec::new(),
            settles: Vec::new(),
            stopping: None,
        }
    }

    /// Runs until stopped or abandoned.
    pub(crate) async fn run(mut self, mut inputs: mpsc::UnboundedReceiver<Input>) {
        let mut batch = Vec::with_capacity(INPUTS_MAX);
        loop {
            let idle = Instant::now() + IDLE;
            let deadline = self.deadline().map_or(idle, |at| at.min(idle));
            tokio::select! {
                biased;
                _ = inputs.recv_many(&mut batch, INPUTS_MAX) => {}
                () = sleep_until(deadline) => {}
            }
            let now = self.clock.now(Instant::now());
            for input in batch.drain(..) {
                self.apply(input, now);
            }
            self.due(now);
            self.turns(now);
            self.parts.attempts.launch();
            if self.parts.watch.is_abandoned() {
                break;
            }
            self.publish(now.at);
            if self.is_over(now.at) {
                break;
            }
        }
        self.parts.attempts.cancel_all();
        // The link says goodbye; if it has gone already there is nobody to tell.
        let _ = self.parts.link.send(ToLink::Bye);
    }

    fn apply(&mut self, input: Input, now: Now) {
        match input {
            Input::Session { session, incarnation, opened } => self.open(session, incarnation, opened),
            Input::SessionOver => self.drop_all(now),
            Input::Items { coordinator, items } => {
                self.credits.heard(coordinator, now.at);
                for item in items {
                    self.item(coordinator, item, now);
                }
            }
            Input::NotOurs { instances, steps } => {
                for (instance, epoch) in instances {
                    self.not_ours(instance, epoch, now);
                }
                for step in steps {
                    self.step_fence((step.instance, step.call), step.epoch, now);
                }
            }
            Input::Task { task, settle, room } => self.task(task, settle, room, now),
            Input::StepTask { task, settle, room } => self.step_task(task, settle, room, now),
            Input::Gone(gone) => {
                if let Some((owner, ended)) = self.parts.attempts.gone(gone, now.at) {
                    self.ended(owner, ended, now);
                }
            }
            Input::Foreign(instance, epoch) => self.with(instance, Some(epoch), Hosted::foreign),
            Input::Pause(paused) => self.parts.attempts.pause(paused, now.at),
            Input::Reconnected => self.hurry(now),
            Input::Stop => self.stop(now),
        }
    }

    /// What one item of a coordinator means.
    fn item(&mut self, coordinator: CoordinatorId, item: CoordinatorItem, now: Now) {
        match item {
            CoordinatorItem::Grant(grant) => {
                if grant.direct {
                    self.credits.received(coordinator);
                }
                self.clock.observe(grant.now, now.at);
                self.grant(grant, now);
            }
            CoordinatorItem::Entries(entries) => {
                self.with(entries.instance, Some(entries.epoch), |hosted| hosted.entries(entries));
            }
            CoordinatorItem::Ack(ack) => {
                self.clock.observe(ack.at, now.at);
                self.with(ack.instance, Some(ack.epoch), |hosted| hosted.ack(ack, now));
            }
            CoordinatorItem::Offer { instance } => self.offered(instance, now),
            CoordinatorItem::NotGranted { instance } => drop(self.claims.answered(instance)),
            CoordinatorItem::Fence { instance, epoch, .. } => self.fence(instance, epoch, now),
            CoordinatorItem::StepGrant(grant) => self.step_grant(grant, now),
            CoordinatorItem::StepFence { instance, call, epoch } => {
                self.step_fence((instance, call), epoch, now);
            }
            CoordinatorItem::StepAck { instance, call, epoch } => self.step_over((instance, call), epoch),
            // The session's own business, which the link has seen to.
            CoordinatorItem::Opened(_)
            | CoordinatorItem::Heard(_)
            | CoordinatorItem::UnknownSession
            | CoordinatorItem::Ping => {}
        }
    }

    fn open(&mut self, session: SessionId, incarnation: Incarnation, opened: Opened) {
        let inputs = self.parts.inputs.clone();
        let env = Env {
            registry: self.parts.registry.clone(),
            build: self.parts.build.clone(),
            session,
            limits: opened.limits,
            linger: self.parts.linger,
            caches: self.parts.cache_bytes > 0,
            interceptor: self.parts.interceptor.clone(),
            watch: self.parts.watch.clone(),
            metrics: self.parts.metrics.clone(),
            foreign: Arc::new(move |instance, epoch| {
                // A worker that has ended has no bodies.
                let _ = inputs.send(Input::Foreign(instance, epoch));
            }),
        };
        // What was kept belongs to the session that kept it.
        self.cache.clear();
        self.session = Some(Session { env: Arc::new(env), incarnation });
    }

    /// An attempt has its outcome.
    fn ended(&mut self, owner: Owner, ended: Ended, now: Now) {
        match owner {
            Owner::Call(instance, epoch, _) => self.with(instance, Some(epoch), |hosted| hosted.ended(ended)),
            Owner::Remote(instance, call, epoch) => self.step_ended((instance, call), epoch, ended, now),
        }
    }

    /// Everything that time brings.
    fn due(&mut self, now: Now) {
        for (owner, ended) in self.parts.attempts.tick(now.at) {
            self.ended(owner, ended, now);
        }
        for (instance, life) in self.claims.due(now.at) {
            self.parts.metrics.resends.inc();
            self.items.push((WorkerItem::Claim { instance, have: self.cache.have(instance) }, life));
        }
        for ((instance, call), life) in self.step_claims.due(now.at) {
            self.parts.metrics.resends.inc();
            self.items.push((WorkerItem::StepClaim { instance, call }, life));
        }
        self.items.extend(self.remotes.due(now.at));
        while let Some(Reverse((at, instance))) =
            self.timers.peek().copied().filter(|Reverse((at, _))| *at <= now.at)
        {
            self.timers.pop();
            if let Some(slot) = self.held.get_mut(&instance).filter(|slot| slot.timer == Some(at)) {
                slot.timer = None;
                self.touch(instance);
            }
        }
        self.overdue(now);
    }

    /// The broker was away: everything unanswered is due at once.
    fn hurry(&mut self, now: Now) {
        self.claims.hurry(now.at);
        self.step_claims.hurry(now.at);
        self.remotes.hurry(now.at);
        for instance in self.held.keys().copied().collect::<Vec<_>>() {
            self.with(instance, None, |hosted| hosted.hurry(now));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        [
            timer,
            self.parts.attempts.deadline(),
            self.claims.deadline(),
            self.step_claims.deadline(),
            self.remotes.deadline(),
            self.stop_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn send(&mut self, item: WorkerItem) {
        self.items.push((item, Resend::FIRST));
    }

    fn incarnation(&self) -> Option<Incarnation> {
        self.session.as_ref().map(|session| session.incarnation)
    }

    /// Shows what changed, and hands over what is to be sent. Only after the board is written, so that a heartbeat never
    /// says less than a report.
    fn publish(&mut self, now: Instant) {
        let held = &self.held;
        let changed = self.changed.drain(..).map(|instance| {
            let slot = held.get(&instance);
            (instance, slot.map(|slot| slot.hosted.held()))
        });
        let steps = std::mem::take(&mut self.steps_changed).then(|| self.remotes.held());
        let running = u32::try_from(self.parts.attempts.running()).unwrap_or(u32::MAX);
        let room = if self.stopping.is_some() { 0 } else { self.parts.room.available_permits() };
        self.parts.board.write(changed, steps, running, self.credits.windows(room, now), now);
        self.parts.metrics.held.set(self.held.len() as i64);
        self.parts.metrics.cached.set(self.cache.len() as i64);
        self.parts.metrics.cached_bytes.set(i64::try_from(self.cache.bytes()).unwrap_or(i64::MAX));
        let Some(session) = &self.session else {
            // Nobody can be asked now; what is lost is offered again.
            self.items.clear();
            self.settles.drain(..).for_each(Settle::ack);
            return;
        };
        if self.items.is_empty() && self.settles.is_empty() {
            return;
        }
        let parcel = Parcel {
            session: session.env.session,
            incarnation: session.incarnation,
            items: std::mem::take(&mut self.items),
            settles: std::mem::take(&mut self.settles),
        };
        // A link that has gone has said why; the owner ends the worker.
        let _ = self.parts.link.send(ToLink::Parcel(parcel));
    }
}

/// The attempts of an instance and of a remote step are told apart by their owner.
const fn owner_of_step(key: StepKey, epoch: Epoch) -> Owner {
    let (instance, call): (InstanceUid, CallHash) = key;
    Owner::Remote(instance, call, epoch)
}

/// What one turn of an instance asked for.
type Outs = Vec<Out>;
