//! What the loop and the services of one coordinator share.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use everstep_broker::Broker;
use everstep_engine::{batch::Rules, lifecycle::Lifecycle, place::Room};
use everstep_protocol::{
    CallHash, CoordinatorId, Incarnation, InstanceUid, Run, SessionId, Timestamp, message::OpenSession,
    start::StartReply,
};
use everstep_store::{Rejected, Store};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::Instant;

use crate::{
    access::Keyring,
    arrival::{Arrival, Share},
    bound::Bound,
    calendars::Calendars,
    chance::Chance,
    metrics::Metrics,
    replying::Replying,
    schema::Schemas,
    service::later::Later,
    settings::Settings,
};

/// Streams of events that one coordinator serves at once.
const STREAMS_MAX: usize = 200;

/// Shared by the loop, the turns and the services.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: CoordinatorId,
    pub(crate) incarnation: Incarnation,
    pub(crate) settings: Settings,
    pub(crate) rules: Rules,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) chance: Arc<dyn Chance>,
    pub(crate) metrics: Metrics,
    pub(crate) bound: Bound,
    pub(crate) arrivals: mpsc::UnboundedSender<Arrival>,
    pub(crate) lifecycles: mpsc::UnboundedSender<Lifecycle>,
    pub(crate) rejections: mpsc::UnboundedSender<Rejection>,
    /// Run tasks that go to their queue in a moment.
    pub(crate) later: Later,
    /// Compiled schemas of hooks.
    pub(crate) schemas: Schemas,
    /// Cron expressions, read.
    pub(crate) calendars: Calendars,
    /// What the store has said of access tokens.
    pub(crate) keys: Keyring,
    /// Callers of webhooks that wait for an answer.
    pub(crate) replying: Replying,
    room: Mutex<Room>,
    sessions: RwLock<HashMap<SessionId, Arc<OpenSession>>>,
    sent: Mutex<Vec<(InstanceUid, Run)>>,
    duties: RwLock<HashSet<&'static str>>,
    /// Sessions whose work loop stands still, as far as heard here.
    still: Mutex<HashSet<SessionId>>,
    declared: Mutex<HashSet<String>>,
    pub(crate) clock: Clock,
    pub(crate) near: Mutex<Vec<(Timestamp, InstanceUid, CallHash)>>,
    pub(crate) near_changed: Notify,
    pub(crate) backlog: Notify,
    pub(crate) orphans: Notify,
    /// Letters between instances were written.
    pub(crate) mail: Notify,
    /// An instance was deleted: its journal is to be removed.
    pub(crate) sweep: Notify,
    /// A bulk operation was begun.
    pub(crate) bulks: Notify,
    /// A schedule was changed.
    pub(crate) schedules: Notify,
    /// Places for streams of events.
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) stopping: AtomicBool,
    pub(crate) turned_ms: AtomicU64,
    /// Whether the store answered when it was asked last.
    pub(crate) store_answers: AtomicBool,
    pub(crate) began: Instant,
}

/// A rejected message on its way to its record.
#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) record: Rejected,
    pub(crate) message: Option<Share>,
    pub(crate) reply: Option<(crate::arrival::ReplyTo, StartReply)>,
}

/// When the database's clock was last read. Says when to look, never what is due (rule W18).
#[derive(Debug)]
pub(crate) struct Clock {
    offset: AtomicI64,
    began: Instant,
}

impl Clock {
    pub(crate) fn read(&self, now: Timestamp) {
        self.offset.store(now.0 - self.elapsed(), Ordering::Relaxed);
    }

    /// The database's time by now, as far as known.
    pub(crate) fn estimate(&self) -> Timestamp {
        Timestamp(self.offset.load(Ordering::Relaxed) + self.elapsed())
    }

    fn elapsed(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}

/// The ends of the shared channels that their one reader takes.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) arrivals: mpsc::UnboundedReceiver<Arrival>,
    pub(crate) lifecycles: mpsc::UnboundedReceiver<Lifecycle>,
    pub(crate) rejections: mpsc::UnboundedReceiver<Rejection>,
}

impl Shared {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        broker: Arc<dyn Broker>,
        settings: Settings,
        incarnation: Incarnation,
        chance: Arc<dyn Chance>,
    ) -> (Self, Ends) {
        let (arrivals, arrivals_end) = mpsc::unbounded_channel();
        let (lifecycles, lifecycles_end) = mpsc::unbounded_channel();
        let (rejections, rejections_end) = mpsc::unbounded_channel();
        let rules = Rules {
            limits: settings.limits,
            deaths_max: settings.deaths_max,
            retention: settings.retention(),
            compiles: crate::schema::compiles,
            restored_at: None,
        };
        let began = Instant::now();
        let mut room = Room::default();
        room.set_backlog(settings.window, HashSet::new(), HashSet::new());
        let metrics = Metrics::new();
        let bound = Bound::new(settings.rejected_bytes, metrics.clone());
        let shared = Self {
            id: chance.coordinator(),
            incarnation,
            rules,
            settings,
            store,
            broker,
            metrics,
            bound,
            chance,
            arrivals,
            lifecycles,
            rejections,
            later: Later::default(),
            schemas: Schemas::default(),
            calendars: Calendars::default(),
            keys: Keyring::default(),
            replying: Replying::default(),
            room: Mutex::new(room),
            sessions: RwLock::default(),
            sent: Mutex::default(),
            duties: RwLock::default(),
            still: Mutex::default(),
            declared: Mutex::default(),
            clock: Clock { offset: AtomicI64::new(0), began },
            near: Mutex::default(),
            near_changed: Notify::new(),
            backlog: Notify::new(),
            orphans: Notify::new(),
            mail: Notify::new(),
            sweep: Notify::new(),
            bulks: Notify::new(),
            schedules: Notify::new(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            stopping: AtomicBool::new(false),
            turned_ms: AtomicU64::new(0),
            // It has just told the incarnation.
            store_answers: AtomicBool::new(true),
            began,
        };
        let ends = Ends { arrivals: arrivals_end, lifecycles: lifecycles_end, rejections: rejections_end };
        (shared, ends)
    }

    pub(crate) fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session(&self, session: SessionId) -> Option<Arc<OpenSession>> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<OpenSession>> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// A session is live, or has a new inbox.
    pub(crate) fn know(&self, open: OpenSession) {
        let mut room = self.room();
        if self.settings.direct_grants {
            room.serve(open.session, &open.namespace, &open.workflows);
        } else {
            room.serve_queues_only(open.session, &open.namespace, &open.workflows);
        }
        room.runs(open.session, &open.build, open.pinned.as_slice().into());
        room.serve_pools(open.session, &open.namespace, &open.pools);
        drop(room);
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(open.session, Arc::new(open));
    }

    /// A session has ended.
    pub(crate) fn forget(&self, session: SessionId) {
        self.room().forget(session);
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }

    /// Hands an input to the loop; lost only when the coordinator stops, and then it comes again.
    pub(crate) fn submit(&self, arrival: Arrival) {
        if self.arrivals.send(arrival).is_err() {
            tracing::debug!("an input came after the loop had ended");
        }
    }

    pub(crate) fn take_sent(&self) -> Vec<(InstanceUid, Run)> {
        std::mem::take(&mut self.sent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add_sent(&self, rows: Vec<(InstanceUid, Run)>) {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).extend(rows);
    }

    /// Whether this coordinator has declared a task queue.
    pub(crate) fn has_declared(&self, queue: &str) -> bool {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).contains(queue)
    }

    pub(crate) fn declared(&self, queues: Vec<String>) {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).extend(queues);
    }

    pub(crate) fn has_duty(&self, name: &'static str) -> bool {
        self.duties.read().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    pub(crate) fn set_duties(&self, held: Vec<&'static str>) {
        for duty in crate::service::duties::ALL {
            self.metrics.duties.with_label_values(&[duty]).set(i64::from(held.contains(&duty)));
        }
        *self.duties.write().unwrap_or_else(PoisonError::into_inner) = held.into_iter().collect();
    }

    pub(crate) fn set_still(&self, sessions: HashSet<SessionId>) {
        *self.still.lock().unwrap_or_else(PoisonError::into_inner) = sessions;
    }

    /// The hosts of sessions whose work loop stands still.
    pub(crate) fn still(&self) -> Vec<String> {
        let still = self.still.lock().unwrap_or_else(PoisonError::into_inner).clone();
        still.into_iter().filter_map(|session| Some(self.session(session)?.host.clone())).collect()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
