//! RabbitMQ behind the port: the only module that names lapin.
//!
//! Two connections, one to publish and one to consume, so that a broker that blocks publishers does not stop
//! consumers. Each is owned by one supervisor (`supervise`) which dials, waits for the first sign of trouble
//! (error, silence, a dead channel, a missed confirm, blocked for long) and starts again from nothing; lapin's own
//! recovery is off. Consumers (`consume`) and the topology are put back on each new connection.
//!
//! A publish that missed its deadline may still go out: lapin cannot take frames back. Hence "unknown".
//!
//! lapin logs each returned message with its payload at level warn (target `lapin::returned_messages`), which the
//! pings of W9 make a matter of routine: log filters should keep that target at `error`.

mod book;
mod confirm;
mod consume;
mod convert;
mod declare;
mod dial;
mod publish;
mod supervise;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::consume::{ConsumeLink, ConsumerTask, Lanes};
use self::declare::Topology;
use self::publish::PublishLink;
use self::supervise::{Context, supervise};
use crate::consumer::Consumer;
use crate::topology::{Consume, Declaration, QueueKind};
use crate::{Broker, Confirmation, Drift, Error, Health, Outgoing};

/// How long [`Broker::close`] waits for each of: settles to go out, connections to close.
const CLOSE_DEADLINE: Duration = Duration::from_secs(3);

/// How to reach RabbitMQ. All times have defaults that fit; see [`AmqpSettings::new`].
#[derive(Clone)]
pub struct AmqpSettings {
    /// `amqp://user:password@host:port/vhost` or `amqps://`; the vhost `/` is written `%2f`.
    pub url: String,
    /// Shown in RabbitMQ's management page, with `publish` or `consume` appended.
    pub connection_name: String,
    /// PEM certificates to trust for `amqps://` instead of the system's.
    pub ca_pem: Option<String>,
    /// Seconds; a peer silent for twice as long is dead. Default 10. A `heartbeat` in the URL wins.
    pub heartbeat_s: u16,
    /// Pause before the first redial, doubling up to `redial_max`, with jitter. Default 0.2 s.
    pub redial_min: Duration,
    /// Default 2 s.
    pub redial_max: Duration,
    /// Most time for connection and handshake. Default 10 s.
    pub dial_deadline: Duration,
    /// Most time until a message without confirm is written. Default 5 s.
    pub send_deadline: Duration,
    /// Most time until a message is confirmed, counted from when it was written. Default 10 s.
    pub confirm_deadline: Duration,
    /// A connection the broker keeps blocked for longer is rebuilt. Default 30 s.
    pub blocked_max: Duration,
    /// Most messages awaiting their confirms at a time. Default 512.
    pub publish_window: usize,
}

impl AmqpSettings {
    /// The defaults for this URL.
    pub fn new(url: impl Into<String>, connection_name: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            connection_name: connection_name.into(),
            ca_pem: None,
            heartbeat_s: 10,
            redial_min: Duration::from_millis(200),
            redial_max: Duration::from_secs(2),
            dial_deadline: Duration::from_secs(10),
            send_deadline: Duration::from_secs(5),
            confirm_deadline: Duration::from_secs(10),
            blocked_max: Duration::from_secs(30),
            publish_window: 512,
        }
    }

    /// All problems, one line each; empty means usable. Never contains the password.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err(error) = self.url.parse::<lapin::uri::AMQPUri>() {
            problems.push(format!("the broker URL is not valid: {error}"));
        }
        if self.publish_window == 0 {
            problems.push("the publish window must be at least 1".to_owned());
        }
        if self.redial_min.is_zero() || self.redial_max < self.redial_min {
            problems.push("the redial pauses must be above zero and in order".to_owned());
        }
        problems
    }
}

impl fmt::Debug for AmqpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpSettings").field("connection_name", &self.connection_name).finish_non_exhaustive()
    }
}

/// RabbitMQ. A clone is the same pair of connections; they close when the last clone is dropped, but only
/// [`Broker::close`] waits for it.
#[derive(Clone)]
pub struct AmqpBroker(Arc<Inner>);

struct Inner {
    settings: Arc<AmqpSettings>,
    runtime: tokio::runtime::Handle,
    shutdown: watch::Sender<bool>,
    health: Arc<watch::Sender<Health>>,
    publish: watch::Receiver<Option<Arc<PublishLink>>>,
    consume: watch::Receiver<Option<Arc<ConsumeLink>>>,
    topology: Arc<Topology>,
    lanes: Arc<Lanes>,
    supervisors: Mutex<Vec<JoinHandle<()>>>,
}

impl AmqpBroker {
    /// Starts to connect, on the current Tokio runtime, and never gives up: what goes wrong, a refused password
    /// included, is told by [`Broker::health`].
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn connect(settings: AmqpSettings) -> Self {
        let settings = Arc::new(settings);
        let runtime = tokio::runtime::Handle::current();
        let (shutdown, stopping) = watch::channel(false);
        let health = Arc::new(watch::Sender::new(Health::default()));
        let generations = Arc::new(AtomicU64::new(0));
        let topology = Arc::new(Topology::default());
        let context = Context { settings: settings.clone(), health: health.clone(), stopping, generations };
        let (publish_live, publish) = watch::channel(None);
        let (consume_live, consume) = watch::channel(None);
        let publisher = publish::Publish::new(settings.clone(), topology.clone());
        let supervisors = vec![
            runtime.spawn(supervise(publisher, context.clone(), publish_live)),
            runtime.spawn(supervise(consume::Consuming, context, consume_live)),
        ];
        Self(Arc::new(Inner {
            settings,
            runtime,
            shutdown,
            health,
            publish,
            consume,
            topology,
            lanes: Arc::default(),
            supervisors: Mutex::new(supervisors),
        }))
    }

    fn check_open(&self) -> Result<(), Error> {
        if *self.0.shutdown.borrow() { Err(Error::Closed) } else { Ok(()) }
    }

    /// The publish connection, if it is up right now.
    fn live(&self) -> Result<Arc<PublishLink>, Error> {
        self.check_open()?;
        if self.0.health.borrow().blocked {
            return Err(Error::unavailable("the broker has blocked publishing"));
        }
        self.0.publish.borrow().clone().ok_or_else(|| Error::unavailable("not connected"))
    }

    /// The publish connection, as soon as it is up.
    async fn live_soon(&self) -> Result<Arc<PublishLink>, Error> {
        self.check_open()?;
        let mut publish = self.0.publish.clone();
        let up = timeout(self.0.settings.send_deadline, publish.wait_for(Option::is_some)).await;
        match up {
            Ok(Ok(link)) => link.clone().ok_or(Error::Closed),
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => Err(Error::unavailable("not connected within the send deadline")),
        }
    }
}

#[async_trait]
impl Broker for AmqpBroker {
    async fn declare(&self, topology: Vec<Declaration>) -> Result<(), Error> {
        let exclusive =
            |queue: &Declaration| matches!(queue, Declaration::Queue(q) if q.kind == QueueKind::Exclusive);
        if topology.iter().any(exclusive) {
            return Err(Error::refused("an exclusive queue is declared by consuming it"));
        }
        self.0.topology.remember(&topology);
        let link = self.live_soon().await?;
        let declared = timeout(self.0.settings.confirm_deadline, declare::apply(&link.connection, &topology));
        let result = declared.await.unwrap_or_else(|_| Err(Error::unavailable("declaring took too long")));
        if let Err(Error::Refused { .. }) = &result {
            self.0.topology.forget(&topology);
        }
        result
    }

    async fn send(&self, messages: Vec<Outgoing>) -> Result<(), Error> {
        self.live()?.send(messages, self.0.settings.send_deadline).await
    }

    async fn send_confirmed(
        &self,
        messages: Vec<Outgoing>,
        mandatory: bool,
    ) -> Result<Vec<Confirmation>, Error> {
        self.live()?.confirmed.publish(messages, mandatory).await
    }

    async fn consume(&self, consume: Consume) -> Result<Consumer, Error> {
        self.check_open()?;
        if consume.prefetch == 0 {
            return Err(Error::refused("a consumer needs a prefetch of at least 1"));
        }
        let (outgoing, incoming) = mpsc::unbounded_channel();
        let task = ConsumerTask {
            consume,
            outgoing,
            live: self.0.consume.clone(),
            settings: self.0.settings.clone(),
            health: self.0.health.clone(),
            lanes: self.0.lanes.clone(),
        };
        self.0.runtime.spawn(task.run());
        // Closing the receiver is what the task listens for.
        Ok(Consumer::new(incoming, None))
    }

    async fn unroutable(&self, queues: Vec<String>, body: Bytes) -> Result<Vec<String>, Error> {
        self.live()?.unroutable(queues, body).await
    }

    async fn depth(&self, queue: &str) -> Result<Option<u32>, Error> {
        let link = self.live()?;
        timeout(self.0.settings.confirm_deadline, declare::depth(&link.connection, queue))
            .await
            .unwrap_or_else(|_| Err(Error::unavailable("asking for a queue's depth took too long")))
    }

    /// What is refused here stays remembered: it is declared when its namesake has gone.
    async fn drifted(&self, topology: Vec<Declaration>) -> Result<Vec<Drift>, Error> {
        let link = self.live()?;
        let looks = async {
            let mut drifted = Vec::new();
            for declaration in topology {
                let name = declaration.name().to_owned();
                let is_queue = matches!(declaration, Declaration::Queue(_));
                let was_missing = is_queue && declare::depth(&link.connection, &name).await?.is_none();
                let declared = declare::apply(&link.connection, std::slice::from_ref(&declaration)).await;
                drifted.extend(Drift::of(name, was_missing, declared)?);
            }
            Ok(drifted)
        };
        timeout(self.0.settings.confirm_deadline, looks)
            .await
            .unwrap_or_else(|_| Err(Error::unavailable("comparing the topology took too long")))
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.0.health.subscribe()
    }

    async fn close(&self) {
        let _ = timeout(CLOSE_DEADLINE, self.0.lanes.flush()).await;
        self.0.shutdown.send_replace(true);
        let supervisors =
            std::mem::take(&mut *self.0.supervisors.lock().unwrap_or_else(PoisonError::into_inner));
        for supervisor in supervisors {
            let _ = timeout(CLOSE_DEADLINE * 2, supervisor).await;
        }
    }
}

impl fmt::Debug for AmqpBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let health = self.0.health.borrow();
        f.debug_struct("AmqpBroker").field("health", &*health).finish_non_exhaustive()
    }
}

/// The next connection's number, unique in this process's broker handle.
fn next_generation(generations: &AtomicU64) -> u64 {
    generations.fetch_add(1, Ordering::Relaxed) + 1
}
