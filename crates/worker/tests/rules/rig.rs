//! One instance, one worker, one coordinator, all on this thread: messages are moved and attempts run by hand.

use std::{
    collections::VecDeque,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use everstep_engine::{What, retry::Asked};
use everstep_protocol::{
    BuildName, Failure, FailureKind, InstanceUid, Millis, Payload, SessionId, Timestamp,
    hook::StartHook,
    journal::{End, Entry, Fact, Outcome, Parked},
    message::{CoordinatorItem, Grant, WorkerItem},
};
use everstep_sdk::{Registry, Step, host::panic_message};
use everstep_worker::{
    Metrics,
    clock::Now,
    hosted::{Ended, Env, Finish, Hosted, Order, Out},
    watch::Watch,
};
use futures::FutureExt;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use crate::coordinator::Coordinator;

/// Runs the workflow once for each of its moves, crashing after that one, with bodies that are kept over a suspend and without:
/// the output is the same.
pub fn crash_at_any_move<T>(registry: impl Fn() -> Registry, output: &T)
where
    T: DeserializeOwned + PartialEq + std::fmt::Debug,
{
    crash_at_any_move_of(|| Rig::new(registry()), output);
}

/// The same, of an instance that has something to begin with.
pub fn crash_at_any_move_of<T>(rig: impl Fn() -> Rig, output: &T)
where
    T: DeserializeOwned + PartialEq + std::fmt::Debug,
{
    for caches in [false, true] {
        let begin = || Rig { caches, ..rig() };
        let mut moves = 0;
        let mut whole = begin();
        while whole.move_on() {
            moves += 1;
        }
        assert!(moves > 8, "{moves}");
        for (crash_after, counts) in (0..=moves).flat_map(|at| [(at, false), (at, true)]) {
            let mut rig = begin();
            for _ in 0..crash_after {
                rig.move_on();
            }
            if rig.co.end(rig.uid).is_none() {
                rig.crash(counts);
            }
            let came: T = rig.output();
            assert_eq!(came, *output, "crash after {crash_after}, kept {caches}: {:?}", rig.words());
        }
    }
}

pub struct Rig {
    pub co: Coordinator,
    pub uid: InstanceUid,
    pub session: SessionId,
    pub build: BuildName,
    pub registry: Registry,
    pub metrics: Metrics,
    pub hosted: Option<Hosted>,
    /// Whether bodies are kept over a suspend.
    pub caches: bool,
    pub kept: Option<Hosted>,
    /// Entries that came with grants.
    pub granted: usize,
    /// From the worker, not sent yet.
    pub out: VecDeque<WorkerItem>,
    /// For the worker, not received yet.
    pub inbox: VecDeque<CoordinatorItem>,
    pub orders: VecDeque<Order>,
    pub cancelled: Vec<u64>,
    pub finished: Vec<Finish>,
    /// Reports that the worker made, repetitions too.
    pub reports: usize,
    /// How long each attempt takes.
    pub ran_for: u64,
    pub at: Instant,
    foreign: Arc<Mutex<bool>>,
}

impl Rig {
    pub fn new(registry: Registry) -> Self {
        Self::with_input(registry, ())
    }

    pub fn with_input(registry: Registry, input: impl Serialize) -> Self {
        let mut co = Coordinator::new();
        let uid = co.start("w", &Payload::encode(&input).unwrap());
        Self::of(co, uid, registry)
    }

    /// An instance that is started with this token.
    pub fn with_token(registry: Registry, token: &str) -> Self {
        let mut co = Coordinator::new();
        let hook = StartHook::new(token.parse().unwrap());
        let uid = co.start_with("w", &Payload::null(), Some(hook));
        Self::of(co, uid, registry)
    }

    fn of(co: Coordinator, uid: InstanceUid, registry: Registry) -> Self {
        Self {
            co,
            uid,
            session: SessionId::generate(),
            build: "b1".parse().unwrap(),
            registry,
            metrics: Metrics::default(),
            hosted: None,
            caches: false,
            kept: None,
            granted: 0,
            out: VecDeque::new(),
            inbox: VecDeque::new(),
            orders: VecDeque::new(),
            cancelled: Vec::new(),
            finished: Vec::new(),
            reports: 0,
            ran_for: 5,
            at: Instant::now(),
            foreign: Arc::default(),
        }
    }

    /// The same, with the lease: the body has made its first calls.
    pub fn held(registry: Registry) -> Self {
        let mut rig = Self::new(registry);
        rig.claim();
        rig.exchange();
        rig
    }

    fn env(&self) -> Arc<Env> {
        let foreign = self.foreign.clone();
        Arc::new(Env {
            registry: self.registry.clone(),
            build: self.build.clone(),
            session: self.session,
            limits: self.co.rules.limits,
            linger: Duration::from_millis(100),
            caches: self.caches,
            interceptor: None,
            watch: Arc::new(Watch::default()),
            metrics: self.metrics.clone(),
            foreign: Arc::new(move |_, _| *foreign.lock().unwrap() = true),
        })
    }

    pub fn now(&self) -> Now {
        Now { at: self.at, db: self.co.now }
    }

    pub fn advance(&mut self, millis: u64) {
        self.at += Duration::from_millis(millis);
        self.co.now = self.co.now.plus(Millis(millis));
    }

    /// The worker asks for the lease; the grant is in the inbox.
    pub fn claim(&mut self) {
        let have = self.kept.as_ref().map(Hosted::have);
        let said = self.co.hear(self.session, &self.build, WorkerItem::Claim { instance: self.uid, have });
        self.inbox.extend(said.into_iter().map(|(_, item)| item));
    }

    /// The worker takes what is in its inbox.
    pub fn receive(&mut self) -> bool {
        let any = !self.inbox.is_empty();
        while let Some(item) = self.inbox.pop_front() {
            self.take(item);
        }
        any
    }

    pub fn take(&mut self, item: CoordinatorItem) {
        let now = self.now();
        match item {
            CoordinatorItem::Grant(grant) => match &mut self.hosted {
                Some(hosted) if hosted.epoch() >= grant.epoch => hosted.granted(grant),
                Some(hosted) if hosted.is_followed_by(&grant) => {
                    let mut out = Vec::new();
                    hosted.suspended(&mut out);
                    self.act(out);
                    self.begin(grant);
                }
                _ => self.begin(grant),
            },
            CoordinatorItem::Entries(entries) => {
                if let Some(hosted) = &mut self.hosted {
                    hosted.entries(entries);
                }
            }
            CoordinatorItem::Ack(ack) => {
                if let Some(hosted) = self.hosted.as_mut().filter(|hosted| hosted.epoch() == ack.epoch) {
                    hosted.ack(ack, now);
                }
            }
            CoordinatorItem::Fence { epoch, .. } => {
                if self.hosted.as_ref().is_some_and(|hosted| hosted.epoch() <= epoch) {
                    self.hosted = None;
                    self.orders.clear();
                }
            }
            CoordinatorItem::NotGranted { .. } | CoordinatorItem::Offer { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn begin(&mut self, grant: Grant) {
        self.granted += grant.entries.len();
        self.hosted = Some(match self.kept.take().filter(|kept| kept.fits(&grant)) {
            Some(mut kept) => {
                kept.resume(grant);
                kept
            }
            None => Hosted::new(self.env(), grant),
        });
    }

    /// The instance takes its turn.
    pub fn turn(&mut self) {
        let now = self.now();
        let Some(hosted) = &mut self.hosted else { return };
        if std::mem::take(&mut *self.foreign.lock().unwrap()) {
            hosted.foreign();
        }
        let mut out = Vec::new();
        hosted.turn(now, &mut out);
        self.act(out);
    }

    fn act(&mut self, out: Vec<Out>) {
        for out in out {
            match out {
                Out::Send(item, _) => {
                    self.reports += usize::from(matches!(item, WorkerItem::Report(_)));
                    self.out.push_back(item);
                }
                Out::Start(order) => self.orders.push_back(*order),
                Out::Cancel { number } => {
                    self.cancelled.push(number);
                    self.orders.retain(|order| order.number != number);
                }
                Out::Finished(finish) => {
                    self.finished.push(finish);
                    self.kept = self.hosted.take().filter(Hosted::is_asleep);
                }
            }
        }
    }

    /// Everything that the worker said reaches the coordinator, and its answers the inbox.
    pub fn flush(&mut self) -> bool {
        let any = !self.out.is_empty();
        while let Some(item) = self.out.pop_front() {
            self.send(item);
        }
        any
    }

    /// Somebody resumes a hook, which must be there.
    pub fn resume(&mut self, token: &str, id: &str, payload: &str) {
        let (answer, said) = self.co.resume(token, id, payload);
        assert_eq!(answer, everstep_engine::Answer::Done);
        self.hear(said);
    }

    /// What the coordinator says reaches the inbox.
    pub fn hear(&mut self, said: crate::coordinator::Said) {
        let session = self.session;
        self.inbox.extend(said.into_iter().filter(|(to, _)| *to == session).map(|(_, item)| item));
    }

    pub fn send(&mut self, item: WorkerItem) {
        let said = self.co.hear(self.session, &self.build, item);
        let session = self.session;
        self.inbox.extend(said.into_iter().filter(|(to, _)| *to == session).map(|(_, item)| item));
    }

    /// Messages go to and fro until nothing moves. Attempts do not run.
    pub fn exchange(&mut self) {
        for _ in 0..1000 {
            self.turn();
            if !self.flush() && !self.receive() {
                return;
            }
            self.receive();
        }
        panic!("worker and coordinator talk without end");
    }

    /// Runs the oldest attempt to its end. Its outcome is told, and no turn taken.
    pub fn attempt(&mut self) -> bool {
        let Some(order) = self.orders.pop_front() else { return false };
        let (step, _cancel) = Step::new(
            order.info.clone(),
            Arc::new({
                let told = order.progress.clone();
                move |progress| *told.lock().unwrap() = Some(progress)
            }),
            order.last.clone(),
        );
        let run = order.run.clone();
        let looked = step.clone();
        let result =
            futures::executor::block_on(AssertUnwindSafe(async move { run(step).await }).catch_unwind())
                .unwrap_or_else(|panic| {
                    Err(Failure::new(FailureKind::Panicked, panic_message(panic.as_ref())))
                });
        self.advance(self.ran_for);
        self.finish_found(&order, result, looked.was_found());
        true
    }

    pub fn finish(&mut self, order: &Order, result: Result<Payload, Failure>) {
        self.finish_found(order, result, false);
    }

    fn finish_found(&mut self, order: &Order, result: Result<Payload, Failure>, found: bool) {
        let ended = Ended {
            number: order.number,
            attempt: order.info.attempt,
            ran_for: Millis(self.ran_for),
            result,
            found,
            asked: Asked::Policy,
            reference: None,
        };
        if let Some(hosted) = &mut self.hosted {
            hosted.ended(ended);
        }
    }

    /// Time goes on to the next wait that is due, and it fires.
    pub fn wait(&mut self) -> bool {
        let Some(due) = self.co.next_due() else { return false };
        self.advance(due.since(self.co.now).as_u64());
        // Since `since` rounds down.
        if due > self.co.now {
            self.advance(1);
        }
        self.fire();
        true
    }

    pub fn fire(&mut self) {
        let said = self.co.fire();
        let session = self.session;
        self.inbox.extend(said.into_iter().filter(|(to, _)| *to == session).map(|(_, item)| item));
    }

    /// One move of the whole: messages, else an attempt, else a claim, else time. False when nothing is left to do.
    pub fn move_on(&mut self) -> bool {
        self.exchange();
        if self.co.end(self.uid).is_some() || self.co.rows.parked.contains_key(&self.uid) {
            return false;
        }
        if self.attempt() {
            return true;
        }
        if self.co.is_ready(self.uid) {
            self.claim();
            return true;
        }
        self.wait()
    }

    /// Somebody sends an event; the worker is told of it if it holds the instance.
    pub fn event(&mut self, id: &str, kind: &str, payload: &str) {
        let said = self.co.send(self.uid, id, kind, payload);
        let session = self.session;
        self.inbox.extend(said.into_iter().filter(|(to, _)| *to == session).map(|(_, item)| item));
    }

    /// Runs until the instance has ended or is parked.
    pub fn run(&mut self) {
        for _ in 0..100_000 {
            if !self.move_on() {
                return;
            }
        }
        panic!("it does not end: {:?}", self.words());
    }

    /// The worker dies with everything it holds; a new one is there.
    pub fn crash(&mut self, counts: bool) {
        self.hosted = None;
        self.kept = None;
        self.out.clear();
        self.inbox.clear();
        self.orders.clear();
        let (session, slots) = (self.session, 100);
        self.co.on(self.uid, What::LeaseEnded { session, epoch: None, slots, counts, progress: Vec::new() });
        self.session = SessionId::generate();
    }

    pub fn output<T: DeserializeOwned>(&mut self) -> T {
        self.run();
        match self.co.end(self.uid) {
            Some(End::Complete(output)) => output.decode().unwrap(),
            other => panic!("{other:?}, parked {:?}, {:?}", self.parked(), self.words()),
        }
    }

    pub fn failure(&mut self) -> Failure {
        self.run();
        match self.co.end(self.uid) {
            Some(End::Errored(failure)) => failure.clone(),
            other => panic!("{other:?}, {:?}", self.words()),
        }
    }

    pub fn parked(&self) -> Option<Parked> {
        self.co.rows.parked.get(&self.uid).cloned()
    }

    pub fn journal(&self) -> &[Entry] {
        &self.co.journal[&self.uid]
    }

    /// The journal in short: kind, name, count, and what came of it.
    pub fn words(&self) -> Vec<String> {
        let word = |entry: &Entry| match &entry.fact {
            Fact::Attempted(attempted) => {
                let outcome = match &attempted.outcome {
                    Outcome::Succeeded(_) => "ok".to_owned(),
                    Outcome::Failed { failure, retry_at: None } => format!("failed {}", failure.name),
                    Outcome::Failed { failure, retry_at: Some(at) } => {
                        format!("{} again in {}", failure.name, at.since(entry.at).as_u64())
                    }
                    Outcome::Unknown { failure, asks, .. } => {
                        format!("unknown {}{}", failure.name, if *asks { " asks" } else { "" })
                    }
                };
                format!("{}{} {} {outcome}", attempted.call.name, attempted.call.count, attempted.attempt)
            }
            Fact::Intended(intended) => {
                format!("intended {}{} {}", intended.call.name, intended.call.count, intended.attempt)
            }
            Fact::Withdrawn(withdrawn) => {
                format!("withdrawn {}{} {}", withdrawn.call.name, withdrawn.call.count, withdrawn.attempt)
            }
            Fact::Resolved(resolved) => {
                format!("resolved {}{} {}", resolved.call.name, resolved.call.count, resolved.choice.word())
            }
            Fact::Opened(opened) => format!("opened {}{}", opened.call.name, opened.call.count),
            Fact::Fired { call } => format!("fired {}{}", call.name, call.count),
            Fact::Delivered(delivered) => {
                let call = &delivered.call;
                format!("delivered {}{} {}", call.name, call.count, delivered.payload.as_str())
            }
            Fact::Received(received) => {
                let call = &received.call;
                format!("received {}{} {}", call.name, call.count, received.payload.as_str())
            }
            Fact::Registered(registered) => {
                format!("registered {}{}", registered.call.name, registered.call.count)
            }
            Fact::Closed(closed) if closed.hook.is_some() => {
                format!("let go {}{}", closed.call.name, closed.call.count)
            }
            Fact::Closed(closed) => format!("closed {}{}", closed.call.name, closed.call.count),
            Fact::Patched(patched) => format!("patched {}{}", patched.call.name, patched.call.count),
            other => other.word().to_owned(),
        };
        self.journal().iter().map(word).collect()
    }

    pub fn elapsed(&self, since: Timestamp) -> u64 {
        self.co.now.since(since).as_u64()
    }
}

/// What step functions did, in order.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn count(&self, what: &str) -> usize {
        self.all().iter().filter(|done| *done == what).count()
    }
}
