//! The broker port: what the engine needs from a message broker, and nothing about how one works inside.
//!
//! Two implementations stand behind it: [`amqp`] for RabbitMQ (the only module that names lapin) and [`memory`]
//! for the embedded mode, users' tests and the simulator. One conformance suite (`tests/conformance.rs`) holds
//! both to the same behaviour.
//!
//! What a caller may build on:
//! * at-least-once: a delivery that was not settled comes again, a settle that was lost means it comes again;
//! * order per queue and consumer, except for what was requeued or redelivered;
//! * [`Broker::send`] gives no guarantee beyond "handed to a live connection": whoever needs more repeats (W7);
//! * an error or a missed deadline means *unknown*, never "not sent": repeat with the same message id;
//! * consumers survive reconnects; between [`Incoming::Disconnected`] and the next [`Incoming::Connected`]
//!   nothing arrives, and settles of deliveries from before do nothing.
//!
//! What it does not do: no order between queues, no transactions, no dead-lettering by the consumer
//! (a rejected message is a record in the store, W17).

pub mod amqp;
mod consumer;
mod error;
pub mod memory;
mod message;
mod topology;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

pub use crate::amqp::{AmqpBroker, AmqpSettings};
pub use crate::consumer::{Consumer, Delivery, Incoming, Settle};
pub use crate::error::{Error, ErrorKind};
pub use crate::memory::MemoryBroker;
pub use crate::message::{Confirmation, HeaderValue, Message, Outgoing, Properties};
pub use crate::topology::{Consume, Declaration, QueueDeclaration, QueueKind, Source};

/// A connection to a broker. Cheap to share behind an [`Arc`]; every method may be called from many tasks.
#[async_trait]
pub trait Broker: Send + Sync + Debug + 'static {
    /// Declares what is missing. Idempotent, remembered, and repeated by the implementation after each reconnect.
    ///
    /// Where the user lacks the right to configure, an object that already exists counts as declared.
    /// [`Error::Unavailable`] if no connection came up in time: the declarations are remembered all the same.
    async fn declare(&self, topology: Vec<Declaration>) -> Result<(), Error>;

    /// Hands messages to a live connection, in order, without awaiting confirms. For the engine's own messages.
    ///
    /// Resolves when they were written. [`Error::Unavailable`] at once without a live connection, or after the
    /// send deadline; some of the messages may have gone out then. A message no queue takes is dropped silently.
    async fn send(&self, messages: Vec<Outgoing>) -> Result<(), Error>;

    /// Publishes and awaits a confirm for each message; the results stand in the order of the input.
    ///
    /// With `mandatory` a message that no queue takes is reported as [`Confirmation::Unroutable`].
    async fn send_confirmed(
        &self,
        messages: Vec<Outgoing>,
        mandatory: bool,
    ) -> Result<Vec<Confirmation>, Error>;

    /// Starts a supervised consumer. Returns at once, whether the broker is up or not.
    async fn consume(&self, consume: Consume) -> Result<Consumer, Error>;

    /// Which of these queues nothing can be routed to right now (W9).
    ///
    /// A queue that exists gets a message with this body that expires after a second.
    async fn unroutable(&self, queues: Vec<String>, body: Bytes) -> Result<Vec<String>, Error>;

    /// Messages ready for delivery in a queue (not those held by consumers); `None` if there is no such queue.
    async fn depth(&self, queue: &str) -> Result<Option<u32>, Error>;

    /// Which of these exchanges and queues were missing, or are not as declared. What was missing is declared again.
    ///
    /// [`Error::Unavailable`] if nothing is known of one of them.
    async fn drifted(&self, topology: Vec<Declaration>) -> Result<Vec<Drift>, Error> {
        let mut drifted = Vec::new();
        for declaration in topology {
            let name = declaration.name().to_owned();
            let missing = matches!(declaration, Declaration::Queue(_)) && self.depth(&name).await?.is_none();
            let declared = self.declare(vec![declaration]).await;
            drifted.extend(Drift::of(name, missing, declared)?);
        }
        Ok(drifted)
    }

    /// The state of the connections, to await changes on.
    fn health(&self) -> watch::Receiver<Health>;

    /// Sends what was settled, closes the connections and stops all consumers. Afterwards calls fail with
    /// [`Error::Closed`]. To be awaited before the runtime ends.
    async fn close(&self);
}

/// An exchange or queue that is not as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Its name.
    pub name: String,
    /// What the broker says.
    pub reason: String,
}

impl Drift {
    /// What a declaration came to, of a queue that was missing before or not.
    fn of(name: String, was_missing: bool, declared: Result<(), Error>) -> Result<Option<Self>, Error> {
        match declared {
            Ok(()) if was_missing => {
                let reason = "it was not there, and was declared again".to_owned();
                Ok(Some(Self { name, reason }))
            }
            Ok(()) => Ok(None),
            Err(Error::Refused { reason }) => Ok(Some(Self { name, reason })),
            Err(error) => Err(error),
        }
    }
}

/// What works at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Messages can be published.
    pub publishing: bool,
    /// Consumers can receive.
    pub consuming: bool,
    /// The broker has stopped taking messages (memory or disk alarm).
    pub blocked: bool,
    /// How many connections were established so far.
    pub generation: u64,
    /// Which of them publishes: another number each time that one takes the place of an earlier one.
    pub publisher: u64,
    /// Why the last attempt or connection failed (refused password, missing vhost, ...); kept until a success.
    pub last_error: Option<Arc<str>>,
}

impl Health {
    /// Both ways are open and not blocked.
    pub fn is_up(&self) -> bool {
        self.outage().is_none()
    }

    /// What keeps it from working, in words for a probe.
    #[must_use]
    pub fn outage(&self) -> Option<&'static str> {
        if !(self.publishing && self.consuming) {
            Some("the broker is away")
        } else if self.blocked {
            Some("the broker takes nothing")
        } else {
            None
        }
    }
}
