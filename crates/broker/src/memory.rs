//! The in-process broker: the embedded mode, users' tests, the simulator.
//!
//! One state behind one mutex; a publish routes, matches consumers and hands over in one go, so there are no tasks,
//! no clocks and no I/O here. Same behaviour as RabbitMQ as far as the port goes (prefetch, round robin, single
//! active consumer, requeue in place, redelivered flag, exclusive queues, expiry, mandatory). Nothing survives the
//! process; dead-letter targets are accepted and ignored, since the port has no way to give a message up.
//!
//! Several parties ("processes") share one broker: [`MemoryBroker::connection`] opens another connection, whose
//! [`Broker::close`] is what a crash looks like to the others. [`MemoryBroker::cut`] and [`MemoryBroker::restore`]
//! play an outage of one connection.

mod queue;
mod routing;
mod state;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use self::state::{ConsumerId, State};
use crate::consumer::{Consumer, SettleLane, Verdict};
use crate::topology::{Consume, Declaration};
use crate::{Broker, Confirmation, Error, Health, Outgoing};

/// Life of the messages that [`Broker::unroutable`] sends.
const PING_EXPIRATION_MS: u32 = 1_000;

/// One connection to an in-process broker. A clone is the same connection.
#[derive(Clone)]
pub struct MemoryBroker {
    hub: Hub,
    connection: Arc<Connection>,
}

#[derive(Clone)]
struct Hub(Arc<Mutex<State>>);

struct Connection {
    id: u64,
    health: watch::Sender<Health>,
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryBroker {
    /// A new, empty broker and a first connection to it.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(Instant::now))
    }

    /// The same, with a clock of one's own, by which messages expire: for parties that do not share one runtime's.
    pub fn with_clock(clock: Arc<dyn Fn() -> Instant + Send + Sync>) -> Self {
        Self::open(Hub(Arc::new(Mutex::new(State::new(clock)))))
    }

    /// Another connection to the same broker, as another process would have.
    pub fn connection(&self) -> Self {
        Self::open(self.hub.clone())
    }

    fn open(hub: Hub) -> Self {
        let (id, generation) = hub.lock().open_connection();
        let (publishing, consuming, publisher) = (true, true, generation);
        let health = Health { publishing, consuming, generation, publisher, ..Health::default() };
        Self { hub, connection: Arc::new(Connection { id, health: watch::Sender::new(health) }) }
    }

    /// Removes all ready messages of a queue and says how many there were.
    pub fn purge(&self, queue: &str) -> usize {
        self.hub.lock().purge(queue)
    }

    /// Names of all queues, sorted.
    pub fn queues(&self) -> Vec<String> {
        self.hub.lock().queue_names()
    }

    /// Removes all queues and exchanges with all messages, as if a new, empty broker had taken the place of this one. Each
    /// connection declares what it had declared when it is [restored](Self::restore) after a [cut](Self::cut).
    pub fn wipe(&self) {
        self.hub.lock().wipe();
    }

    /// Cuts this connection: unsettled deliveries go back, exclusive queues go, consumers hear
    /// [`crate::Incoming::Disconnected`], calls fail with [`Error::Unavailable`].
    pub fn cut(&self) {
        if self.hub.lock().cut(self.connection.id) {
            self.connection.health.send_modify(|health| {
                health.publishing = false;
                health.consuming = false;
            });
        }
    }

    /// Ends [`MemoryBroker::cut`]: consumers are on again.
    pub fn restore(&self) {
        if let Some(generation) = self.hub.lock().restore(self.connection.id) {
            self.connection.health.send_modify(|health| {
                health.publishing = true;
                health.consuming = true;
                health.generation = generation;
                health.publisher = generation;
            });
        }
    }

    fn publish(&self, messages: Vec<Outgoing>) -> Result<Vec<bool>, Error> {
        let mut state = self.hub.lock();
        state.check(self.connection.id)?;
        messages.into_iter().map(|message| state.publish(message)).collect()
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    async fn declare(&self, topology: Vec<Declaration>) -> Result<(), Error> {
        self.hub.lock().declare_all(self.connection.id, topology)
    }

    async fn send(&self, messages: Vec<Outgoing>) -> Result<(), Error> {
        let mut state = self.hub.lock();
        state.check(self.connection.id)?;
        for message in messages {
            state.publish(message)?;
        }
        Ok(())
    }

    async fn send_confirmed(
        &self,
        messages: Vec<Outgoing>,
        mandatory: bool,
    ) -> Result<Vec<Confirmation>, Error> {
        let routed = self.publish(messages)?;
        let confirmation = |routed| match (routed, mandatory) {
            (false, true) => Confirmation::Unroutable,
            (true, _) | (false, false) => Confirmation::Confirmed,
        };
        Ok(routed.into_iter().map(confirmation).collect())
    }

    async fn consume(&self, consume: Consume) -> Result<Consumer, Error> {
        if consume.prefetch == 0 {
            return Err(Error::refused("a consumer needs a prefetch of at least 1"));
        }
        let (outgoing, incoming) = mpsc::unbounded_channel();
        let hub = self.hub.clone();
        let lane = move |consumer| Arc::new(Lane { hub: hub.clone(), consumer }) as Arc<dyn SettleLane>;
        let consumer = self.hub.lock().consume(self.connection.id, consume, outgoing, &lane)?;
        let guard = CancelGuard { hub: self.hub.clone(), consumer };
        Ok(Consumer::new(incoming, Some(Box::new(guard))))
    }

    async fn unroutable(&self, queues: Vec<String>, body: Bytes) -> Result<Vec<String>, Error> {
        let ping = |queue: &String| {
            let mut message = Outgoing::to_queue(queue.clone(), body.clone());
            message.properties.expiration_ms = Some(PING_EXPIRATION_MS);
            message
        };
        let routed = self.publish(queues.iter().map(ping).collect())?;
        Ok(queues.into_iter().zip(routed).filter(|(_, routed)| !routed).map(|(queue, _)| queue).collect())
    }

    async fn depth(&self, queue: &str) -> Result<Option<u32>, Error> {
        let mut state = self.hub.lock();
        state.check(self.connection.id)?;
        Ok(state.depth(queue))
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.connection.health.subscribe()
    }

    async fn close(&self) {
        self.hub.lock().close(self.connection.id);
        self.connection.health.send_modify(|health| {
            health.publishing = false;
            health.consuming = false;
        });
    }
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBroker").field("connection", &self.connection.id).finish_non_exhaustive()
    }
}

/// Settles of one consumer; deliveries of before a cut have tags the state no longer knows.
struct Lane {
    hub: Hub,
    consumer: ConsumerId,
}

impl SettleLane for Lane {
    fn settle(&self, tag: u64, verdict: Verdict) {
        self.hub.lock().settle(self.consumer, tag, verdict);
    }

    fn dropped(&self, tag: u64) {
        self.hub.lock().dropped(self.consumer, tag);
    }
}

struct CancelGuard {
    hub: Hub,
    consumer: ConsumerId,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.hub.lock().cancel(self.consumer);
    }
}

#[cfg(test)]
mod tests {
    //! Proves what the embedded broker has beside the port: an emptied one, and a clock of somebody else's.
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::{Incoming, QueueDeclaration, QueueKind};

    #[tokio::test]
    async fn an_emptied_broker_gets_back_what_its_connections_had_declared() {
        let broker = MemoryBroker::new();
        let queue = QueueDeclaration::new("q", QueueKind::Classic).bind("x", "key");
        broker.declare(vec![Declaration::exchange("x"), queue.into()]).await.unwrap();
        let mut consumer = broker.consume(Consume::new("q", 1)).await.unwrap();
        assert!(matches!(consumer.next().await, Incoming::Connected { .. }));
        broker.wipe();
        assert_eq!(broker.queues(), Vec::<String>::new());
        broker.cut();
        broker.restore();
        assert_eq!(broker.queues(), ["q"]);
        broker.send(vec![Outgoing::to_exchange("x", "key", "body")]).await.unwrap();
        loop {
            if let Incoming::Delivery(delivery) = consumer.next().await {
                assert_eq!(&delivery.body[..], b"body");
                break;
            }
        }
    }

    #[tokio::test]
    async fn what_is_declared_while_the_connection_is_cut_is_declared_when_it_is_back() {
        let broker = MemoryBroker::new();
        broker.cut();
        let queue = QueueDeclaration::new("q", QueueKind::Classic);
        assert!(broker.declare(vec![queue.into()]).await.is_err());
        broker.restore();
        assert_eq!(broker.queues(), ["q"]);
    }

    #[tokio::test]
    async fn messages_expire_by_the_clock_that_was_given() {
        let (began, millis) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let now = millis.clone();
        let clock = move || began + Duration::from_millis(now.load(Ordering::Relaxed));
        let broker = MemoryBroker::with_clock(Arc::new(clock));
        broker.declare(vec![QueueDeclaration::new("q", QueueKind::Classic).into()]).await.unwrap();
        let mut message = Outgoing::to_queue("q", "body");
        message.properties.expiration_ms = Some(1_000);
        broker.send(vec![message]).await.unwrap();
        millis.store(999, Ordering::Relaxed);
        assert_eq!(broker.depth("q").await.unwrap(), Some(1));
        millis.store(1_000, Ordering::Relaxed);
        assert_eq!(broker.depth("q").await.unwrap(), Some(0));
    }
}
