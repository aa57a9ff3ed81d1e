//! The receiving side of the port, common to both implementations.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::message::{Message, Properties};

/// What a consumer hands out.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are deliveries, a box each would cost more")]
pub enum Incoming {
    /// The consumer is on; comes first, and again after each reconnect.
    Connected {
        /// The queue's name on the broker: the declared one, or for an exclusive queue the declared one with
        /// `.` and the connection's generation.
        queue: String,
    },
    /// A message.
    Delivery(Delivery),
    /// Nothing will come, and nothing can be settled, until the next `Connected`.
    Disconnected,
}

/// A received message with the right to settle it once.
#[derive(Debug)]
pub struct Delivery {
    /// The payload.
    pub body: Bytes,
    /// Everything else.
    pub properties: Properties,
    /// The key it was published with.
    pub routing_key: String,
    /// The exchange it was published to.
    pub exchange: String,
    /// It was delivered before, to somebody, and not settled.
    pub redelivered: bool,
    settle: Settle,
}

impl Delivery {
    pub(crate) fn new(message: Message, settle: Settle) -> Self {
        let Message { body, properties, routing_key, exchange, redelivered } = message;
        Self { body, properties, routing_key, exchange, redelivered, settle }
    }

    /// The same message once more, as a broker may deliver it; settling it does nothing.
    pub(crate) fn unsettled(&self) -> Self {
        Self {
            body: self.body.clone(),
            properties: self.properties.clone(),
            routing_key: self.routing_key.clone(),
            exchange: self.exchange.clone(),
            redelivered: self.redelivered,
            settle: Settle { tag: self.settle.tag, lane: None },
        }
    }

    /// The message and its settle handle apart.
    pub fn split(self) -> (Message, Settle) {
        let Self { body, properties, routing_key, exchange, redelivered, settle } = self;
        (Message { body, properties, routing_key, exchange, redelivered }, settle)
    }

    /// See [`Settle::ack`].
    pub fn ack(self) {
        self.settle.ack();
    }

    /// See [`Settle::requeue`].
    pub fn requeue(self) {
        self.settle.requeue();
    }
}

/// The right to settle one delivery. Both ways return at once; what is on its way when the connection dies is lost,
/// and the message comes again. Dropped unsettled, the message stays taken until the connection (or the cancelled
/// consumer) is gone, then it comes again.
pub struct Settle {
    tag: u64,
    lane: Option<Arc<dyn SettleLane>>,
}

impl Settle {
    pub(crate) fn new(tag: u64, lane: Arc<dyn SettleLane>) -> Self {
        Self { tag, lane: Some(lane) }
    }

    /// The message is done with.
    pub fn ack(mut self) {
        self.take(Verdict::Ack);
    }

    /// The message shall be delivered again, to anybody.
    pub fn requeue(mut self) {
        self.take(Verdict::Requeue);
    }

    /// Forgets the delivery without telling the lane.
    pub(crate) fn defuse(mut self) {
        self.lane = None;
    }

    fn take(&mut self, verdict: Verdict) {
        if let Some(lane) = self.lane.take() {
            lane.settle(self.tag, verdict);
        }
    }
}

impl Drop for Settle {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            lane.dropped(self.tag);
        }
    }
}

impl fmt::Debug for Settle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settle").field("tag", &self.tag).finish_non_exhaustive()
    }
}

/// How a delivery was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ack,
    Requeue,
}

/// Where settles go. Must not block.
pub(crate) trait SettleLane: Send + Sync {
    fn settle(&self, tag: u64, verdict: Verdict);
    /// The handle was dropped unsettled.
    fn dropped(&self, tag: u64);
}

/// A supervised consumer. Dropping it is the same as [`Consumer::cancel`].
pub struct Consumer {
    incoming: mpsc::UnboundedReceiver<Incoming>,
    /// Ends the consumer at the broker when dropped.
    guard: Option<Box<dyn Send + Sync>>,
}

impl Consumer {
    pub(crate) fn new(
        incoming: mpsc::UnboundedReceiver<Incoming>,
        guard: Option<Box<dyn Send + Sync>>,
    ) -> Self {
        Self { incoming, guard }
    }

    /// What comes next. Cancel-safe. Pends for ever once the broker was closed.
    pub async fn next(&mut self) -> Incoming {
        match self.incoming.recv().await {
            Some(incoming) => incoming,
            None => std::future::pending().await,
        }
    }

    /// What is here already.
    pub fn try_next(&mut self) -> Option<Incoming> {
        self.incoming.try_recv().ok()
    }

    /// Stops receiving. What was not handed out yet goes back to the queue; what was handed out can still be settled.
    pub fn cancel(self) {}
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // The broker first, so that what is drained below is not delivered here again.
        self.incoming.close();
        self.guard.take();
        while let Ok(incoming) = self.incoming.try_recv() {
            if let Incoming::Delivery(delivery) = incoming {
                delivery.requeue();
            }
        }
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").finish_non_exhaustive()
    }
}
