//! The system under a test: the coordinator and the worker as they are in production, a store in memory and the in-process
//! broker, all on one thread whose clock stands still unless it is moved.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use everstep_broker::{Broker, MemoryBroker};
use everstep_coordinator::{Coordinator, Handle};
use everstep_engine::start::NameKey;
use everstep_protocol::{BuildName, Namespace, Position, Timestamp, Token, journal::Entry};
use everstep_sdk::Registry;
use everstep_store::{
    Cursor, Filter, HookView, InstanceView, Instances, Range, Schedule, Views,
    sqlite::{SqliteStore, Stir},
};
use everstep_worker::{Loops, OnStuck, Worker};
use tokio::{sync::watch, task::JoinSet, time::Instant};

use crate::{
    CoordinatorSettings, KitError, WorkerSettings,
    chance::Sequence,
    life::{Life, Points},
    line::Line,
    stage::{Board, Stage},
    watchdog::Watches,
};

/// The build that the code under test bears.
pub(crate) const BUILD: &str = "test";

/// The most bytes of a journal read at once.
const JOURNAL_BYTES: usize = 8 << 20;

/// What a system is made of.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) registry: Registry,
    pub(crate) coordinator: CoordinatorSettings,
    pub(crate) worker: WorkerSettings,
    pub(crate) began_at: Timestamp,
    pub(crate) seed: u64,
}

#[derive(Debug)]
pub(crate) struct System {
    pub(crate) registry: Registry,
    pub(crate) handle: Handle,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) board: Arc<Board>,
    pub(crate) watches: Watches,
    pub(crate) commits: watch::Sender<u64>,
    pub(crate) pools: Vec<everstep_protocol::Pool>,
    /// How many operations the test asked for: each has an id of its own.
    pub(crate) operations: AtomicU64,
    began: (Instant, Timestamp),
    life: Arc<Mutex<Arc<Life>>>,
    /// Coordinator and worker, which end with this.
    _tasks: JoinSet<()>,
}

impl System {
    /// Starts everything on the current runtime.
    pub(crate) async fn start(plan: Plan, points: Arc<Points>, watches: Watches) -> Result<Self, KitError> {
        let began = (Instant::now(), plan.began_at);
        let commits = watch::Sender::new(0);
        let store = SqliteStore::in_memory(
            Arc::new(move || clock(began)),
            Arc::new({
                let commits = commits.clone();
                move || commits.send_modify(|count| *count += 1)
            }),
        );
        let store = Arc::new(store.map_err(KitError::system)?);
        let hub = MemoryBroker::new();
        let way: Arc<dyn Broker> = Arc::new(hub.connection());
        let chance = Arc::new(Sequence::new(plan.seed));
        let coordinator = Coordinator::with_chance(store.clone(), way, plan.coordinator, chance);
        let coordinator = coordinator.await.map_err(KitError::system)?;
        let handle = coordinator.handle();
        let board = Arc::new(Board::default());
        let life = Arc::new(Mutex::new(Arc::new(Life::new(points.clone()))));
        let mut tasks = JoinSet::new();
        let failing = board.clone();
        tasks.spawn(async move {
            if let Err(error) = coordinator.run(std::future::pending()).await {
                failing.problem(format!("the coordinator has ended: {error}"));
            }
        });
        let pools = plan.worker.pools.clone();
        let lives = Lives {
            registry: plan.registry.clone(),
            settings: plan.worker,
            hub,
            board: board.clone(),
            watches: watches.clone(),
            points,
            life: life.clone(),
        };
        tasks.spawn(lives.run());
        Ok(Self {
            registry: plan.registry,
            handle,
            store,
            board,
            watches,
            commits,
            pools,
            operations: AtomicU64::new(0),
            began,
            life,
            _tasks: tasks,
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        clock(self.began)
    }

    pub(crate) fn crash(&self) {
        self.life.lock().unwrap_or_else(PoisonError::into_inner).crash();
    }

    pub(crate) async fn view(&self, name: &NameKey) -> Result<Option<InstanceView>, KitError> {
        self.store.instance(name).await.map_err(KitError::system)
    }

    pub(crate) async fn hook(
        &self,
        namespace: &Namespace,
        token: &Token,
    ) -> Result<Option<HookView>, KitError> {
        self.store.hook(namespace, token).await.map_err(KitError::system)
    }

    /// All instances, oldest first.
    pub(crate) async fn instances(&self) -> Result<Vec<InstanceView>, KitError> {
        let filter = Filter { namespace: Namespace::default(), ..Filter::default() };
        let mut cursor: Option<Cursor> = None;
        let mut all = Vec::new();
        loop {
            let page =
                self.store.instances(&filter, cursor.as_ref(), 1_000).await.map_err(KitError::system)?;
            all.extend(page.rows);
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        all.reverse();
        Ok(all)
    }

    pub(crate) async fn journal(&self, view: &InstanceView) -> Result<Vec<Entry>, KitError> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let after = entries.last().map_or(Position(0), |entry| entry.position);
            let range = Range { uid: view.uid, run: view.run, after };
            let read = self.store.journal(vec![range], JOURNAL_BYTES).await.map_err(KitError::system)?;
            match read.into_iter().next() {
                Some(more) if !more.is_empty() => entries.extend(more),
                Some(_) | None => return Ok(entries),
            }
        }
    }

    pub(crate) async fn stir(&self) -> Result<Stir, KitError> {
        self.store.stir().await.map_err(KitError::system)
    }

    /// The next moment at which a wait is due; now, if one is due already.
    pub(crate) async fn next_due(&self) -> Result<Option<Timestamp>, KitError> {
        let due = self.store.due(None, 1).await.map_err(KitError::system)?;
        Ok(due.rows.first().map(|_| due.now).or(due.next))
    }

    /// Moves the clock.
    pub(crate) async fn jump(&self, to: Timestamp) {
        let micros = u64::try_from(to.0.saturating_sub(self.now().0)).unwrap_or(0);
        tokio::time::advance(Duration::from_micros(micros)).await;
    }

    /// A moment of the runtime's clock on the system's.
    pub(crate) fn moment(&self, at: Instant) -> Timestamp {
        let (began, began_at) = self.began;
        Timestamp(began_at.0.saturating_add(micros(at.saturating_duration_since(began))))
    }
}

fn clock((began, began_at): (Instant, Timestamp)) -> Timestamp {
    Timestamp(began_at.0.saturating_add(micros(began.elapsed())))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The worker's lives, one after the other.
struct Lives {
    registry: Registry,
    settings: WorkerSettings,
    hub: MemoryBroker,
    board: Arc<Board>,
    watches: Watches,
    points: Arc<Points>,
    life: Arc<Mutex<Arc<Life>>>,
}

impl Lives {
    async fn run(self) {
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner).clone();
        loop {
            if let Err(error) = self.live(&life).await {
                return self.board.problem(format!("the worker has ended: {error}"));
            }
            life = Arc::new(Life::new(self.points.clone()));
            *self.life.lock().unwrap_or_else(PoisonError::into_inner) = life.clone();
        }
    }

    /// Until it crashes.
    async fn live(&self, life: &Arc<Life>) -> Result<(), everstep_worker::Error> {
        let connection = self.hub.connection();
        let way = Line { inner: connection.clone(), life: life.clone(), board: self.board.clone() };
        let settings = WorkerSettings {
            build: BuildName::new(BUILD).ok(),
            loops: Loops::Current,
            on_stuck: OnStuck::Abandon,
            interceptor: Some(Arc::new(Stage { life: life.clone(), board: self.board.clone() })),
            ..self.settings.clone()
        };
        let worker = Worker::new(self.registry.clone(), Arc::new(way), settings)?;
        self.watches.add(worker.watch());
        let ended = tokio::select! {
            biased;
            () = life.crashed() => Ok(()),
            ended = worker.run(std::future::pending()) => ended,
        };
        // What a crash looks like to the others.
        connection.close().await;
        ended
    }
}
