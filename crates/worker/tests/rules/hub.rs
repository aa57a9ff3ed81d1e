//! The fake coordinator at the queues of an in-process broker, on real time. Every session gets short leases.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use everstep_broker::{
    Broker, Consume, Consumer, Incoming, MemoryBroker, Outgoing, QueueDeclaration, QueueKind,
};
use everstep_engine::{What, rows::Subject};
use everstep_protocol::{
    BuildName, CoordinatorId, Incarnation, InstanceUid, Millis, Payload, SessionId, Timestamp,
    journal::End,
    message::{
        CoordinatorItem, FromWorker, Heard, Opened, RunTask, SessionMessage, StepTask, Then, ToWorker,
        WorkerItem,
    },
    topology, wire,
};
use everstep_sdk::Registry;
use everstep_worker::{Error, OnStuck, Settings, Worker};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};

use crate::coordinator::{Coordinator, Said};

const INCARNATION: Incarnation = Incarnation(3);
pub const HEARTBEAT: Duration = Duration::from_millis(100);
const OFFER_AGAIN: Duration = Duration::from_secs(1);

/// The fake coordinator and what it knows of sessions.
#[derive(Clone)]
pub struct Hub {
    pub state: Arc<Mutex<State>>,
    pub broker: MemoryBroker,
}

pub struct State {
    pub co: Coordinator,
    begin: Instant,
    base: Timestamp,
    id: CoordinatorId,
    sessions: HashMap<SessionId, (String, BuildName)>,
    pub opened: usize,
    pub goodbyes: usize,
    pub given_back: Vec<InstanceUid>,
    pub heartbeats: usize,
    /// How long ago the work loop had come round, by each heartbeat.
    pub turned: Vec<Millis>,
    /// Answers nothing.
    pub deaf: bool,
    /// Hears heartbeats and does not answer them.
    pub mute: bool,
    /// Heartbeats that were made before a suspend are compared after it, and so answered.
    pub late: Option<Late>,
    offered_at: Instant,
}

/// Where the answer to a heartbeat stands that was compared after a suspend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// It overtakes the answer to the suspend.
    Before,
    /// Right behind it.
    Behind,
}

impl Hub {
    pub fn start() -> Self {
        let co = Coordinator::new();
        let state = State {
            base: co.now,
            co,
            begin: Instant::now(),
            id: CoordinatorId::generate(),
            sessions: HashMap::new(),
            opened: 0,
            goodbyes: 0,
            given_back: Vec::new(),
            heartbeats: 0,
            turned: Vec::new(),
            deaf: false,
            mute: false,
            late: None,
            offered_at: Instant::now(),
        };
        let hub = Self { state: Arc::new(Mutex::new(state)), broker: MemoryBroker::new() };
        let serving = hub.clone();
        // A thread of its own: the tests block runtimes on purpose.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serving.serve());
        });
        hub
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn create(&self, input: impl Serialize) -> InstanceUid {
        let mut state = self.lock();
        state.tick();
        state.co.start("w", &Payload::encode(&input).unwrap())
    }

    pub async fn end(&self, instance: InstanceUid) -> End {
        self.until(|state| state.co.end(instance).cloned()).await
    }

    pub async fn output<T: DeserializeOwned>(&self, instance: InstanceUid) -> T {
        match self.end(instance).await {
            End::Complete(output) => output.decode().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Polls the state until there is an answer; twenty seconds are a failure.
    pub async fn until<T>(&self, mut ask: impl FnMut(&mut State) -> Option<T>) -> T {
        for _ in 0..4000 {
            if let Some(answer) = ask(&mut self.lock()) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it does not come")
    }

    async fn serve(self) {
        let connection = self.broker.connection();
        let consume = async |queue: String| {
            let queue = QueueDeclaration::new(queue, QueueKind::Classic).single_active_consumer();
            connection.consume(Consume::new(queue, 100)).await.unwrap()
        };
        // Both sides declare the task queues; a task that no queue takes would be offered again after 5 s.
        let namespace = "default".parse().unwrap();
        let tasks = [
            topology::run_queue(&namespace, &"w".parse().unwrap()),
            topology::step_queue(&namespace, &"pool".parse().unwrap()),
        ];
        let tasks = tasks.map(|queue| QueueDeclaration::new(queue, QueueKind::Classic).into());
        connection.declare(tasks.into()).await.unwrap();
        let mut sessions = consume(topology::SESSIONS.to_owned()).await;
        let mut reports = consume(topology::report_queue(0)).await;
        loop {
            let mut out = Vec::new();
            tokio::select! {
                incoming = sessions.next() => self.take(incoming, &mut sessions, &mut out, State::session),
                incoming = reports.next() => self.take(incoming, &mut reports, &mut out, State::report),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
            {
                let mut state = self.lock();
                state.tick();
                let said = state.co.fire();
                state.say(said, &mut out);
                state.offer(&mut out);
            }
            connection.send(out).await.unwrap();
        }
    }

    fn take<T: DeserializeOwned>(
        &self,
        incoming: Incoming,
        consumer: &mut Consumer,
        out: &mut Vec<Outgoing>,
        act: fn(&mut State, T, &mut Vec<Outgoing>),
    ) {
        let mut next = Some(incoming);
        while let Some(incoming) = next {
            if let Incoming::Delivery(delivery) = incoming {
                let message = wire::decode("message", &delivery.body).unwrap();
                delivery.ack();
                let mut state = self.lock();
                state.tick();
                if !state.deaf {
                    act(&mut state, message, out);
                }
            }
            next = consumer.try_next();
        }
    }
}

impl State {
    fn tick(&mut self) {
        let passed = i64::try_from(self.begin.elapsed().as_micros()).unwrap();
        self.co.now = Timestamp(self.base.0 + passed);
    }

    fn session(&mut self, message: SessionMessage, out: &mut Vec<Outgoing>) {
        match message {
            SessionMessage::Open(open) => {
                self.opened += 1;
                let lease = Millis(600);
                let heartbeat = Millis(u64::try_from(HEARTBEAT.as_millis()).unwrap());
                let opened = Opened { lease, heartbeat, limits: self.co.rules.limits };
                self.sessions.insert(open.session, (open.inbox, open.build));
                self.say(vec![(open.session, CoordinatorItem::Opened(opened))], out);
            }
            SessionMessage::Heartbeat(heartbeat) => {
                self.heartbeats += 1;
                self.turned.extend(heartbeat.turned);
                if self.mute {
                    return;
                }
                let session = heartbeat.session;
                if !self.sessions.contains_key(&session) {
                    let item = CoordinatorItem::UnknownSession;
                    out.push(self.message(session, &heartbeat.inbox, vec![item]));
                    return;
                }
                let heard =
                    Heard { number: heartbeat.number, not_yours: Vec::new(), steps_not_yours: Vec::new() };
                self.say(vec![(session, CoordinatorItem::Heard(heard))], out);
            }
            SessionMessage::Goodbye { session } => {
                self.goodbyes += 1;
                let said = self.forget(session, false);
                self.say(said, out);
            }
            SessionMessage::Beat { .. } => {}
        }
    }

    /// The session has ended.
    pub fn forget(&mut self, session: SessionId, counts: bool) -> Said {
        self.sessions.remove(&session);
        let held: Vec<_> = self
            .co
            .rows
            .leases
            .iter()
            .filter(|(_, lease)| lease.session == session)
            .map(|(key, _)| *key)
            .collect();
        let mut said = Said::new();
        for (uid, subject) in held {
            let what = match subject.call() {
                None => What::LeaseEnded { session, epoch: None, slots: 10, counts, progress: Vec::new() },
                Some(call) => What::StepLeaseEnded {
                    session,
                    build: "b1".parse().unwrap(),
                    call,
                    epoch: None,
                    counts,
                    unstarted: false,
                    progress: None,
                },
            };
            said.extend(self.co.on(uid, what).1);
        }
        said
    }

    pub fn sessions(&self) -> Vec<SessionId> {
        self.sessions.keys().copied().collect()
    }

    fn report(&mut self, message: FromWorker, out: &mut Vec<Outgoing>) {
        assert_eq!(message.incarnation, INCARNATION);
        let Some((_, build)) = self.sessions.get(&message.session).cloned() else { return };
        for item in message.items {
            if let WorkerItem::GiveBack { instance, .. } = &item {
                self.given_back.push(*instance);
            }
            let heard = heard_late(&item);
            if let Some(heard) = heard.clone().filter(|_| self.late == Some(Late::Before)) {
                self.say(vec![(message.session, heard)], out);
            }
            let mut said = self.co.hear(message.session, &build, item);
            if self.late == Some(Late::Behind) {
                said.extend(heard.map(|heard| (message.session, heard)));
            }
            self.say(said, out);
        }
    }

    fn say(&mut self, said: Said, out: &mut Vec<Outgoing>) {
        for (session, item) in said {
            if let Some((inbox, _)) = self.sessions.get(&session) {
                out.push(self.message(session, inbox, vec![item]));
            }
        }
    }

    fn message(&self, session: SessionId, inbox: &str, items: Vec<CoordinatorItem>) -> Outgoing {
        let message = ToWorker { incarnation: INCARNATION, coordinator: self.id, session, items };
        Outgoing::to_queue(inbox, wire::encode(&message))
    }

    fn offer(&mut self, out: &mut Vec<Outgoing>) {
        if self.sessions.is_empty() || self.deaf {
            return;
        }
        let namespace = "default".parse().unwrap();
        let mut offers = std::mem::take(&mut self.co.offers);
        // As the real one: what nobody has claimed is offered again. A worker drops a task of what it still holds.
        if self.offered_at.elapsed() > OFFER_AGAIN {
            self.offered_at = Instant::now();
            offers = self.co.rows.ready.keys().copied().collect();
        }
        for (instance, subject) in &offers {
            let (instance, incarnation) = (*instance, INCARNATION);
            out.push(if *subject == Subject::INSTANCE {
                let queue = topology::run_queue(&namespace, &"w".parse().unwrap());
                Outgoing::to_queue(queue, wire::encode(&RunTask { incarnation, instance }))
            } else {
                let queue = topology::step_queue(&namespace, &"pool".parse().unwrap());
                let call = subject.call().unwrap();
                Outgoing::to_queue(queue, wire::encode(&StepTask { incarnation, instance, call }))
            });
        }
    }
}

/// The answer to a heartbeat that named a lease which this report ends.
fn heard_late(item: &WorkerItem) -> Option<CoordinatorItem> {
    let WorkerItem::Report(report) = item else { return None };
    let not_yours = vec![(report.instance, report.epoch)];
    let heard = Heard { number: 0, not_yours, steps_not_yours: Vec::new() };
    (report.then == Then::Suspend).then_some(CoordinatorItem::Heard(heard))
}

/// A worker under test.
pub struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
    pub broker: MemoryBroker,
}

impl Running {
    pub fn start(hub: &Hub, registry: Registry, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            build: Some("b1".parse().unwrap()),
            pools: vec!["pool".parse().unwrap()],
            report_queues: 1,
            on_stuck: OnStuck::Abandon,
            ..Settings::default()
        };
        change(&mut settings);
        let broker = hub.broker.connection();
        let worker = Worker::new(registry, Arc::new(broker.clone()), settings).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(worker.run(async move {
            // Dropping the sender stops it too.
            let _ = stopped.await;
        }));
        Self { stop, task, broker }
    }

    pub async fn stop(self) -> Result<(), Error> {
        let _ = self.stop.send(());
        self.task.await.unwrap()
    }

    pub async fn ended(self) -> Result<(), Error> {
        let _stop = self.stop;
        self.task.await.unwrap()
    }
}
