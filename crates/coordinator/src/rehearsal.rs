//! A coordinator without its loop, for tests: what it is sent waits until the test gives it its turn, so that something else can
//! happen just before.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use everstep_broker::MemoryBroker;
use everstep_engine::{
    Head, Input, Writes,
    hook::{HookEnd, HookRow, TokenKey},
    rows::{Lease, Needs, Subject},
    start::{NameKey, Start},
};
use everstep_protocol::{
    BuildName, Epoch, Fingerprint, HookId, Incarnation, InstanceUid, Namespace, Payload, Position, Run,
    SessionId, Timestamp,
    hook::StartHook,
    journal::Other,
    message::{Heartbeat, OpenSession},
};
use everstep_store::{Store, sqlite::SqliteStore};

use crate::{
    Settings, SystemChance,
    arrival::Arrival,
    handle::Handle,
    shared::{Ends, Shared},
    turn::turn,
};

pub(crate) struct Rehearsal {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ends: Ends,
    dir: PathBuf,
}

/// A clock that a test moves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hand(Arc<AtomicI64>);

impl Hand {
    pub(crate) fn moves(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

impl Rehearsal {
    /// With a store in memory, whose clock is this one.
    pub(crate) fn at(hand: &Hand) -> Self {
        let hand = hand.clone();
        let clock = Arc::new(move || hand.now());
        let store = Arc::new(SqliteStore::in_memory(clock, Arc::new(|| ())).expect("it opens"));
        Self::with(store)
    }

    pub(crate) fn with(store: Arc<dyn Store>) -> Self {
        let broker = Arc::new(MemoryBroker::new().connection());
        let (shared, ends) =
            Shared::new(store, broker, Settings::default(), Incarnation(1), Arc::new(SystemChance));
        Self { shared: Arc::new(shared), ends, dir: PathBuf::new() }
    }

    pub(crate) fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("everstep-rehearsal-{}", uuid::Uuid::now_v7()));
        let store = Arc::new(SqliteStore::open(&dir.join("everstep.db")).expect("it opens"));
        let broker = Arc::new(MemoryBroker::new().connection());
        let (shared, ends) =
            Shared::new(store, broker, Settings::default(), Incarnation(1), Arc::new(SystemChance));
        Self { shared: Arc::new(shared), ends, dir }
    }

    pub(crate) fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.shared))
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// What was sent next; it waits for its turn.
    pub(crate) async fn next(&mut self) -> Arrival {
        self.ends.arrivals.recv().await.expect("the sender lives as long")
    }

    pub(crate) async fn turn(&self, arrival: Arrival) {
        let finished = turn(Arc::clone(&self.shared), vec![arrival]).await;
        assert!(finished.again.is_empty(), "nobody else is there");
    }

    /// Starts an instance, with this token if any.
    pub(crate) async fn start(&self, id: &str, token: Option<&str>) -> InstanceUid {
        let start = start(id, token);
        let uid = start.uid;
        self.turn(Arrival::new(Input::Start(Box::new(start)))).await;
        assert_eq!(self.store().find(&named(id)).await.expect("it is looked up"), Some(uid));
        uid
    }

    /// A session is open, and known here.
    pub(crate) async fn opens(&self) -> SessionId {
        let session = SessionId::generate();
        let open = open(session);
        assert!(self.store().open_session(&open).await.expect("it is noted"));
        self.shared.know(open);
        session
    }

    /// The session holds the instance.
    pub(crate) async fn leases(&self, uid: InstanceUid, session: SessionId) {
        let lease = Lease { session, epoch: Epoch(1) };
        self.write(Writes { leases: vec![(uid, Subject::INSTANCE, lease)], ..Writes::default() }).await;
    }

    pub(crate) async fn lives(&self, session: SessionId) -> bool {
        let live = self.store().sessions().await.expect("they are listed");
        live.iter().any(|live| live.open.session == session)
    }

    /// The token goes to the second of these from the first, as by force.
    pub(crate) async fn take_over(&self, token: &str, (old, old_id): (InstanceUid, &str), new: InstanceUid) {
        let key: TokenKey = (Namespace::default(), token.parse().expect("a token"));
        let view =
            self.store().hook(&key.0, &key.1).await.expect("it is looked up").expect("somebody has it");
        let from = Some(Other { workflow: named(old_id).workflow, id: named(old_id).id });
        let id = HookId { run: Run(1), position: Position(2) };
        let hooks = vec![(key.clone(), HookRow { owner: new, id, from, ..view.hook })];
        let hook_deletes = vec![(key, old, HookEnd::Own)];
        self.write(Writes { hooks, hook_deletes, ..Writes::default() }).await;
    }

    /// The row of a token becomes another.
    pub(crate) async fn alter(&self, token: &str, change: impl FnOnce(&mut HookRow)) {
        let key: TokenKey = (Namespace::default(), token.parse().expect("a token"));
        let view =
            self.store().hook(&key.0, &key.1).await.expect("it is looked up").expect("somebody has it");
        let mut row = view.hook;
        let hook_deletes = vec![(key.clone(), row.owner, HookEnd::Own)];
        change(&mut row);
        self.write(Writes { hooks: vec![(key, row)], hook_deletes, ..Writes::default() }).await;
    }

    pub(crate) async fn write(&self, writes: Writes) {
        let written = self.store().transact(Needs::default(), Box::new(move |_| writes));
        written.await.expect("it is written");
    }

    pub(crate) async fn head(&self, uid: InstanceUid) -> Head {
        let (send, receive) = std::sync::mpsc::channel();
        let decide = move |loaded: everstep_engine::batch::Loaded| {
            send.send(loaded.heads[&uid].clone()).expect("it is asked for");
            Writes::default()
        };
        let needs = Needs { heads: vec![uid], ..Needs::default() };
        self.store().transact(needs, Box::new(decide)).await.expect("it is loaded");
        receive.recv().expect("it was loaded")
    }
}

impl Drop for Rehearsal {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

pub(crate) fn named(id: &str) -> NameKey {
    NameKey {
        namespace: Namespace::default(),
        workflow: "fulfil".parse().expect("a name"),
        id: id.parse().expect("an id"),
    }
}

/// Of a session that holds nothing and has heard every answer before.
pub(crate) fn heartbeat(session: SessionId, number: u64) -> Heartbeat {
    Heartbeat {
        session,
        number,
        answered: number - 1,
        inbox: open(session).inbox,
        held: Vec::new(),
        steps: Vec::new(),
        running: 0,
        turned: None,
        credits: Vec::new(),
        progress: Vec::new(),
    }
}

/// A session of a worker that serves the one workflow. Nobody has its inbox.
pub(crate) fn open(session: SessionId) -> OpenSession {
    OpenSession {
        session,
        namespace: Namespace::default(),
        workflows: vec![named("any").workflow],
        pinned: Vec::new(),
        pools: Vec::new(),
        functions: Vec::new(),
        build: BuildName::new("b").expect("a name"),
        inbox: everstep_protocol::topology::inbox(session),
        slots: 1,
        instances: 1,
        host: "host".to_owned(),
    }
}

pub(crate) fn start(id: &str, token: Option<&str>) -> Start {
    let token = token.map(|token| token.parse().expect("a token"));
    Start {
        uid: InstanceUid::generate(),
        name: named(id),
        input: Payload::null(),
        fingerprint: Fingerprint::of(&Payload::null()).expect("null has a canonical form"),
        seed: [0; 32],
        retention: everstep_engine::retention::Own::default(),
        pin: None,
        strict: false,
        attributes: Vec::new(),
        message: None,
        trace: None,
        letter: None,
        hook: token.map(StartHook::new),
    }
}
