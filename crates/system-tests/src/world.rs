//! A system with everything that a test does to it.

use std::{
    fmt::Write as _,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use everstep::Registry;
use everstep_broker::{
    AmqpBroker, AmqpSettings, Broker, Confirmation, Health, MemoryBroker, Outgoing, Properties,
};
use everstep_coordinator::{Coordinator, Handle, StartRequest};
use everstep_engine::{Answer, start::NameKey};
use everstep_protocol::{
    BuildName, InstanceId, Millis, Namespace, Payload, Position, WorkflowName,
    journal::{Attempted, Entry, Fact, Opened},
    start::{StartOutcome, StartReply},
    topology,
};
use everstep_store::{
    ErrorKind, InstanceView, Range, Store,
    postgres::{self, PostgresSettings, PostgresStore},
    sqlite::SqliteStore,
};
use everstep_testbed::Installation;
use everstep_worker::{OnStuck, Worker};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::{
    DEADLINE, End,
    ends::Ends,
    node::{Node, closing, until},
    proxy::{self, Proxy, Way},
    stub::Stub,
    within,
};

/// Settings of a coordinator.
pub type CoordinatorSettings = everstep_coordinator::Settings;
/// Settings of a worker.
pub type WorkerSettings = everstep_worker::Settings;

/// Which back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SQLite and the in-process broker: the parts of the embedded mode.
    Embedded,
    /// PostgreSQL and RabbitMQ.
    Fleet,
}

/// A system in the making.
#[derive(Clone, Debug)]
pub struct Setup {
    kind: Kind,
    coordinators: usize,
    coordinator: CoordinatorSettings,
    worker: WorkerSettings,
}

#[derive(Debug)]
enum Site {
    Embedded { dir: tempfile::TempDir, hub: MemoryBroker },
    Fleet { installation: Installation },
}

#[derive(Debug)]
struct CoordinatorNode {
    node: Node,
    handle: Handle,
    proxy: Option<Proxy>,
}

#[derive(Debug)]
struct WorkerNode {
    node: Node,
    proxy: Option<Proxy>,
}

/// A running system.
#[derive(Debug)]
pub struct World {
    setup: Setup,
    coordinators: Vec<Option<CoordinatorNode>>,
    workers: Vec<Option<WorkerNode>>,
    observer: Option<Arc<dyn Store>>,
    producer: Arc<dyn Broker>,
    ends: Ends,
    /// Last, so that nothing uses it when it is removed.
    site: Site,
}

impl Setup {
    /// One coordinator; quick to notice a death, slow enough for a machine that is busy.
    pub fn new(kind: Kind) -> Self {
        trace();
        let report_queues = if kind == Kind::Embedded { 1 } else { 4 };
        Self {
            kind,
            coordinators: 1,
            coordinator: CoordinatorSettings {
                lease: Millis(3_000),
                heartbeat: Millis(300),
                unroutable: Millis(500),
                offer_again: Millis(1_500),
                report_queues,
                ..CoordinatorSettings::default()
            },
            worker: WorkerSettings {
                report_queues,
                on_stuck: OnStuck::Abandon,
                build: Some(BuildName::new("build-1").expect("a valid name")),
                shutdown_grace: Duration::from_secs(2),
                ..WorkerSettings::default()
            },
        }
    }

    /// The back end.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// So many coordinators; SQLite carries one.
    pub fn coordinators(mut self, count: usize) -> Self {
        self.coordinators = count;
        self
    }

    /// Changes the coordinators' settings.
    pub fn coordinator(mut self, change: impl FnOnce(&mut CoordinatorSettings)) -> Self {
        change(&mut self.coordinator);
        self
    }

    /// Changes the settings of every worker.
    pub fn worker(mut self, change: impl FnOnce(&mut WorkerSettings)) -> Self {
        change(&mut self.worker);
        self
    }

    /// Starts it without workers.
    pub async fn start(self) -> World {
        let (site, producer, observer): (_, Arc<dyn Broker>, Option<Arc<dyn Store>>) = match self.kind {
            Kind::Embedded => {
                let hub = MemoryBroker::new();
                let producer = Arc::new(hub.connection());
                (Site::Embedded { dir: tempfile::tempdir().expect("a directory"), hub }, producer, None)
            }
            Kind::Fleet => {
                let made = tokio::task::spawn_blocking(|| Installation::fresh("st"));
                let installation = made.await.expect("no panic").expect("the servers run: make services-up");
                postgres::migrate(&installation.postgres).await.expect("a fresh database can be migrated");
                let settings =
                    PostgresSettings { pool_max: 2, ..PostgresSettings::new(&installation.postgres) };
                let observer = PostgresStore::connect(settings).await.expect("it is migrated");
                let producer = AmqpBroker::connect(AmqpSettings::new(installation.amqp.clone(), "test"));
                up(&producer).await;
                (Site::Fleet { installation }, Arc::new(producer), Some(Arc::new(observer)))
            }
        };
        let ends = Ends::listen(Arc::clone(&producer)).await;
        let (coordinators, workers) = (Vec::new(), Vec::new());
        let count = self.coordinators;
        let mut world = World { setup: self, coordinators, workers, observer, producer, ends, site };
        for _ in 0..count {
            world.add_coordinator().await;
        }
        world
    }

    /// Starts it with one worker.
    pub async fn serve(self, registry: Registry) -> World {
        let mut world = self.start().await;
        world.add_worker(registry).await;
        world
    }
}

/// Parts: coordinators and workers that come and go.
impl World {
    /// One coordinator more; gives its number.
    pub async fn add_coordinator(&mut self) -> usize {
        let settings = self.setup.coordinator.clone();
        let (ready, handle) = oneshot::channel();
        let run = |store: Arc<dyn Store>,
                   broker: Arc<dyn Broker>,
                   stopped,
                   ready: oneshot::Sender<Handle>| async move {
            let coordinator = Coordinator::new(store, Arc::clone(&broker), settings).await.map_err(text)?;
            drop(ready.send(coordinator.handle()));
            closing(broker, coordinator.run(until(stopped))).await.map_err(text)
        };
        let (node, proxy) = match &self.site {
            Site::Embedded { dir, hub } => {
                let path = dir.path().join("everstep.db");
                let connection = hub.connection();
                let broker: Arc<dyn Broker> = Arc::new(connection.clone());
                let main = |stopped| async move { run(open(path).await?, broker, stopped, ready).await };
                (Node::spawn(Some(connection), main), None)
            }
            Site::Fleet { installation } => {
                let proxy = Proxy::start(proxy::target(&installation.amqp)).await;
                let url = proxy.url(&installation.amqp);
                let settings =
                    PostgresSettings { pool_max: 4, ..PostgresSettings::new(&installation.postgres) };
                let main = |stopped| async move {
                    let store = Arc::new(PostgresStore::connect(settings).await.map_err(text)?);
                    let broker = Arc::new(AmqpBroker::connect(AmqpSettings::new(url, "coordinator")));
                    run(store, broker, stopped, ready).await
                };
                (Node::spawn(None, main), Some(proxy))
            }
        };
        let mut node = node;
        let handle = tokio::select! {
            handle = handle => handle,
            ended = node.ended() => panic!("the coordinator has ended: {ended:?}"),
        };
        let handle = handle.expect("it runs");
        self.coordinators.push(Some(CoordinatorNode { node, handle, proxy }));
        let start = topology::start_queue(&Namespace::default());
        self.eventually("the topology is declared", async || {
            matches!(self.producer.depth(&start).await, Ok(Some(_)))
        })
        .await;
        self.coordinators.len() - 1
    }

    /// Changes the settings of coordinators that are added from now on.
    pub fn change_coordinators(&mut self, change: impl FnOnce(&mut CoordinatorSettings)) {
        change(&mut self.setup.coordinator);
    }

    /// One worker more; gives its number.
    pub async fn add_worker(&mut self, registry: Registry) -> usize {
        self.add_worker_with(registry, |_| {}).await
    }

    /// One worker more, with settings of its own.
    pub async fn add_worker_with(
        &mut self,
        registry: Registry,
        change: impl FnOnce(&mut WorkerSettings),
    ) -> usize {
        let mut settings = self.setup.worker.clone();
        change(&mut settings);
        let run = |broker: Arc<dyn Broker>, stopped| async move {
            let worker = Worker::new(registry, Arc::clone(&broker), settings).map_err(text)?;
            closing(broker, worker.run(until(stopped))).await.map_err(text)
        };
        let worker = match &self.site {
            Site::Embedded { hub, .. } => {
                let connection = hub.connection();
                let broker: Arc<dyn Broker> = Arc::new(connection.clone());
                WorkerNode {
                    node: Node::spawn(Some(connection), |stopped| run(broker, stopped)),
                    proxy: None,
                }
            }
            Site::Fleet { installation } => {
                let proxy = Proxy::start(proxy::target(&installation.amqp)).await;
                let url = proxy.url(&installation.amqp);
                let main = |stopped| async move {
                    run(Arc::new(AmqpBroker::connect(AmqpSettings::new(url, "worker"))), stopped).await
                };
                WorkerNode { node: Node::spawn(None, main), proxy: Some(proxy) }
            }
        };
        self.workers.push(Some(worker));
        self.workers.len() - 1
    }

    /// Kills a worker without a goodbye.
    pub async fn crash_worker(&mut self, number: usize) {
        self.workers[number].take().expect("it runs").node.crash().await;
    }

    /// Stops a worker gracefully.
    pub async fn stop_worker(&mut self, number: usize) {
        self.workers[number].take().expect("it runs").node.stop().await;
    }

    /// A worker that runs; it may end by itself.
    pub fn worker(&mut self, number: usize) -> &mut Node {
        &mut self.workers[number].as_mut().expect("it runs").node
    }

    /// Kills a coordinator.
    pub async fn crash_coordinator(&mut self, number: usize) {
        let CoordinatorNode { node, handle, .. } = self.coordinators[number].take().expect("it runs");
        drop(handle);
        node.crash().await;
    }

    /// Stops a coordinator gracefully.
    pub async fn stop_coordinator(&mut self, number: usize) {
        let CoordinatorNode { node, handle, .. } = self.coordinators[number].take().expect("it runs");
        drop(handle);
        node.stop().await;
    }

    /// Changes the way between a worker and the broker. Embedded knows only open and cut.
    pub fn worker_way(&self, number: usize, way: Way) {
        let worker = self.workers[number].as_ref().expect("it runs");
        set_way(worker.proxy.as_ref(), &worker.node, way);
    }

    /// Changes the way between everybody and the broker.
    pub fn every_way(&self, way: Way) {
        for worker in self.workers.iter().flatten() {
            set_way(worker.proxy.as_ref(), &worker.node, way);
        }
        for coordinator in self.coordinators.iter().flatten() {
            set_way(coordinator.proxy.as_ref(), &coordinator.node, way);
        }
    }

    /// A stub of a worker that serves a workflow, with no session yet.
    pub async fn stub(&self, workflow: &str) -> Stub {
        Stub::new(Arc::clone(&self.producer), workflow, self.setup.worker.report_queues).await
    }

    /// The back end.
    pub fn kind(&self) -> Kind {
        self.setup.kind
    }

    /// A coordinator's handle.
    pub fn handle(&self) -> Handle {
        let live = self.coordinators.iter().flatten().next().expect("a coordinator runs");
        live.handle.clone()
    }

    /// The store, to look.
    pub fn store(&self) -> Arc<dyn Store> {
        match &self.observer {
            Some(observer) => Arc::clone(observer),
            None => Arc::clone(self.handle().store()),
        }
    }

    /// The producer's broker.
    pub fn broker(&self) -> &Arc<dyn Broker> {
        &self.producer
    }

    /// The embedded file.
    pub fn file(&self) -> PathBuf {
        match &self.site {
            Site::Embedded { dir, .. } => dir.path().join("everstep.db"),
            Site::Fleet { .. } => panic!("a fleet has no file"),
        }
    }
}

/// What producers and operators do.
impl World {
    /// Starts an instance through a coordinator's handle.
    pub async fn start<I: Serialize + ?Sized>(&self, workflow: &str, id: &str, input: &I) -> StartReply {
        let request = self.request(workflow, Some(id), input);
        let handle = self.handle();
        within("the answer to a start", DEADLINE, async {
            loop {
                match handle.start(request.clone()).await {
                    Ok(reply) => return reply,
                    // Repeating with the same id is what the error asks for.
                    Err(everstep_coordinator::Error::Unknown { .. }) => {}
                    Err(error) => panic!("start {workflow} {id}: {error}"),
                }
            }
        })
        .await
    }

    /// The request that [`World::start`] sends.
    pub fn request<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: Option<&str>,
        input: &I,
    ) -> StartRequest {
        StartRequest {
            namespace: Namespace::default(),
            workflow: WorkflowName::new(workflow).expect("a valid name"),
            id: id.map(|id| InstanceId::new(id).expect("a valid id")),
            input: Payload::encode(input).expect("it has a JSON form"),
            message: None,
        }
    }

    /// Starts an instance that does not exist yet.
    pub async fn begin<I: Serialize + ?Sized>(&self, workflow: &str, id: &str, input: &I) {
        let reply = self.start(workflow, id, input).await;
        assert!(matches!(reply.outcome, StartOutcome::Created | StartOutcome::Exists), "{reply:?}");
    }

    /// Publishes a start message as any producer would.
    pub async fn publish(&self, body: impl Into<bytes::Bytes>, properties: Properties) {
        let message = Outgoing::to_exchange(topology::START_EXCHANGE, "default", body)
            .with(Properties { persistent: true, ..properties });
        within("a start message is taken", DEADLINE, async {
            // A queue that was declared a moment ago may not be bound yet: a producer sends again what was not routed.
            loop {
                let sent = self
                    .producer
                    .send_confirmed(vec![message.clone()], true)
                    .await
                    .expect("the broker is there");
                match sent[..] {
                    [Confirmation::Confirmed] => return,
                    [Confirmation::Unroutable] => tokio::time::sleep(Duration::from_millis(10)).await,
                    _ => panic!("a start message was {sent:?}"),
                }
            }
        })
        .await;
    }

    /// Terminates an instance.
    pub async fn terminate(&self, workflow: &str, id: &str, operation: &str) -> Answer {
        let asked = self
            .handle()
            .terminate(name(workflow, id), operation.to_owned(), Some("a test".to_owned()))
            .await;
        asked.expect("the coordinator answers")
    }

    /// Lets a parked instance go on.
    pub async fn retry(&self, workflow: &str, id: &str, operation: &str) -> Answer {
        self.handle().retry(name(workflow, id), operation.to_owned()).await.expect("the coordinator answers")
    }

    /// Removes what is ready in every engine queue: tasks, reports, session messages, inboxes. Start queues keep theirs. Says
    /// how many messages were lost.
    pub fn purge(&self) -> usize {
        self.purge_those(&[
            "everstep.run.",
            "everstep.step.",
            "everstep.report.",
            "everstep.sessions",
            "everstep.inbox.",
        ])
    }

    /// Removes what is ready in queues under these prefixes.
    pub fn purge_those(&self, prefixes: &[&str]) -> usize {
        match &self.site {
            Site::Embedded { hub, .. } => {
                let queues = hub.queues();
                let wanted =
                    queues.iter().filter(|queue| prefixes.iter().any(|prefix| queue.starts_with(prefix)));
                wanted.map(|queue| hub.purge(queue)).sum()
            }
            Site::Fleet { installation } => {
                let prefixes: Vec<_> = prefixes.iter().map(|prefix| format!("<<\"{prefix}\">>")).collect();
                let program = format!(
                    "lists:sum([case rabbit_amqqueue:purge(Q) of {{ok, C}} -> C; _ -> 0 end || \
                     Q <- rabbit_amqqueue:list(<<\"{}\">>), begin {{resource, _, queue, N}} = amqqueue:get_name(Q), \
                     lists:any(fun(P) -> string:prefix(N, P) =/= nomatch end, [{}]) end]).",
                    installation.name(),
                    prefixes.join(", "),
                );
                let purged = tokio::task::block_in_place(|| installation.ctl(&["eval", &program]));
                purged.expect("queues can be purged").trim().parse().expect("a sum")
            }
        }
    }

    /// The names of all queues.
    pub fn queues(&self) -> Vec<String> {
        match &self.site {
            Site::Embedded { hub, .. } => hub.queues(),
            Site::Fleet { installation } => {
                let listed = tokio::task::block_in_place(|| {
                    installation.ctl(&[
                        "list_queues",
                        "-p",
                        installation.name(),
                        "name",
                        "--no-table-headers",
                    ])
                });
                listed.expect("queues can be listed").lines().map(|line| line.trim().to_owned()).collect()
            }
        }
    }
}

/// What a test sees.
impl World {
    /// Instances that ended.
    pub fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Waits until an instance has ended; a test that waits too long fails with its journal.
    pub async fn end(&self, workflow: &str, id: &str) -> End {
        let ended = tokio::time::timeout(DEADLINE, self.ends.of(workflow, id)).await;
        let Ok(end) = ended else {
            panic!("{workflow} {id} has not ended within {DEADLINE:?}\n{}", self.report(workflow, id).await);
        };
        end
    }

    /// What the store says of an instance.
    pub async fn view(&self, workflow: &str, id: &str) -> Option<InstanceView> {
        self.store().instance(&name(workflow, id)).await.expect("the store answers")
    }

    /// Waits until what the store says of an instance is as wanted.
    pub async fn until(
        &self,
        workflow: &str,
        id: &str,
        what: &str,
        wanted: impl Fn(&InstanceView) -> bool,
    ) -> InstanceView {
        let began = Instant::now();
        loop {
            if let Some(view) = self.view(workflow, id).await
                && wanted(&view)
            {
                return view;
            }
            let late = began.elapsed() > DEADLINE;
            assert!(
                !late,
                "{workflow} {id}: {what}: not within {DEADLINE:?}\n{}",
                self.report(workflow, id).await
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until something that can only be asked is true.
    pub async fn eventually(&self, what: &str, mut ask: impl AsyncFnMut() -> bool) {
        within(what, DEADLINE, async {
            while !ask().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    /// The journal of an instance.
    pub async fn journal(&self, workflow: &str, id: &str) -> Vec<Entry> {
        let view = self.view(workflow, id).await.expect("it exists");
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let after = entries.last().map_or(Position(0), |entry| entry.position);
            let range = Range { uid: view.uid, run: view.run, after };
            let part = self.store().journal(vec![range], 1 << 20).await.expect("the store answers").remove(0);
            if part.is_empty() {
                return entries;
            }
            entries.extend(part);
        }
    }

    /// The ended attempts in the journal of an instance.
    pub async fn attempts(&self, workflow: &str, id: &str) -> Vec<(Entry, Attempted)> {
        let journal = self.journal(workflow, id).await;
        let attempts = journal.into_iter().filter_map(|entry| match &entry.fact {
            Fact::Attempted(attempted) => Some((entry.clone(), attempted.clone())),
            _ => None,
        });
        attempts.collect()
    }

    /// The waits in the journal of an instance.
    pub async fn opened(&self, workflow: &str, id: &str) -> Vec<Opened> {
        let journal = self.journal(workflow, id).await;
        let opened = journal.into_iter().filter_map(|entry| match entry.fact {
            Fact::Opened(opened) => Some(opened),
            _ => None,
        });
        opened.collect()
    }

    /// View and journal as text, for a test that failed.
    pub async fn report(&self, workflow: &str, id: &str) -> String {
        if self.observer.is_none() && self.coordinators.iter().flatten().next().is_none() {
            return "no coordinator runs".to_owned();
        }
        let Some(view) = self.view(workflow, id).await else { return "it does not exist".to_owned() };
        let mut text = format!("{view:#?}\n");
        for entry in self.journal(workflow, id).await {
            let fact: String = format!("{:?}", entry.fact).chars().take(500).collect();
            let _ = writeln!(text, "{} {} {fact}", entry.position, entry.at);
        }
        text
    }
}

/// The full name of an instance.
pub fn name(workflow: &str, id: &str) -> NameKey {
    NameKey {
        namespace: Namespace::default(),
        workflow: WorkflowName::new(workflow).expect("a valid name"),
        id: InstanceId::new(id).expect("a valid id"),
    }
}

fn set_way(proxy: Option<&Proxy>, node: &Node, way: Way) {
    match (proxy, way) {
        (Some(proxy), way) => proxy.set(way),
        (None, Way::Open) => node.memory().restore(),
        (None, Way::Cut | Way::Frozen) => node.memory().cut(),
    }
}

/// Opens the file. A coordinator that was killed a moment ago may not have let go of it yet: here it shares a process with
/// its successor, which a real one cannot.
async fn open(path: PathBuf) -> Result<Arc<dyn Store>, String> {
    let began = Instant::now();
    loop {
        let path = path.clone();
        match tokio::task::spawn_blocking(move || SqliteStore::open(&path)).await.map_err(text)? {
            Ok(store) => return Ok(Arc::new(store)),
            Err(error) if error.kind() == ErrorKind::InUse && began.elapsed() < Duration::from_secs(10) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => return Err(text(error)),
        }
    }
}

async fn up(broker: &AmqpBroker) {
    let mut health = broker.health();
    let up = within("the broker", DEADLINE, health.wait_for(Health::is_up));
    drop(up.await.expect("it is watched"));
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// `RUST_LOG` shows what coordinators and workers say.
fn trace() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer();
        drop(subscriber.try_init());
    });
}
