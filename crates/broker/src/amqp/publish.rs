//! The publishing connection: one channel without confirms for the engine's own messages, one with confirms for
//! what must not be lost, one with confirms for pings, which must not queue behind a slow disk.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::poll;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{Channel, Connection};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::AmqpSettings;
use super::confirm::Confirmed;
use super::convert::{classify, short, to_amqp};
use super::declare::Topology;
use super::supervise::{Link, Role};
use crate::{Confirmation, Error, Health, Outgoing};

/// Life of a ping in a queue that exists.
const PING_EXPIRATION_MS: u32 = 1_000;

/// Opens publishing connections.
pub(super) struct Publish {
    settings: Arc<AmqpSettings>,
    topology: Arc<Topology>,
}

impl Publish {
    pub(super) fn new(settings: Arc<AmqpSettings>, topology: Arc<Topology>) -> Self {
        Self { settings, topology }
    }

    async fn confirmed(&self, connection: &Connection, broken: &Arc<Notify>) -> Result<Confirmed, Error> {
        let channel = connection.create_channel().await.map_err(|error| classify(&error))?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(|error| classify(&error))?;
        Ok(Confirmed::start(channel, &self.settings, broken.clone()))
    }
}

#[async_trait]
impl Role for Publish {
    type Link = PublishLink;
    const NAME: &'static str = "publish";

    async fn open(&self, connection: Arc<Connection>, _generation: u64) -> Result<PublishLink, Error> {
        self.topology.restore(&connection).await?;
        let broken = Arc::new(Notify::new());
        Ok(PublishLink {
            engine: connection.create_channel().await.map_err(|error| classify(&error))?,
            confirmed: self.confirmed(&connection, &broken).await?,
            pings: self.confirmed(&connection, &broken).await?,
            connection,
            broken,
        })
    }

    fn renewed(health: &mut Health, generation: u64) {
        health.publisher = generation;
    }

    fn show(health: &mut Health, up: bool) {
        health.publishing = up;
        if !up {
            health.blocked = false;
        }
    }
}

/// A live publishing connection.
pub(super) struct PublishLink {
    pub(super) connection: Arc<Connection>,
    engine: Channel,
    pub(super) confirmed: Confirmed,
    pings: Confirmed,
    broken: Arc<Notify>,
}

impl Link for PublishLink {
    fn is_alive(&self) -> bool {
        self.engine.status().connected() && self.confirmed.is_alive() && self.pings.is_alive()
    }

    fn broken(&self) -> &Notify {
        &self.broken
    }
}

impl PublishLink {
    /// Writes all messages in order; see [`crate::Broker::send`].
    pub(super) async fn send(&self, messages: Vec<Outgoing>, deadline: Duration) -> Result<(), Error> {
        let ready: Vec<_> = messages.into_iter().map(prepare).collect::<Result<_, _>>()?;
        let last = ready.len().saturating_sub(1);
        for (index, message) in ready.into_iter().enumerate() {
            let options = BasicPublishOptions::default();
            let Prepared { exchange, routing_key, body, properties } = message;
            let publishing = self.engine.basic_publish(exchange, routing_key, options, &body, properties);
            let mut publishing = std::pin::pin!(publishing);
            // The first poll queues the frames. The connection writes in order, so awaiting the last awaits all.
            let written = match poll!(publishing.as_mut()) {
                std::task::Poll::Ready(written) => written,
                std::task::Poll::Pending if index < last => continue,
                std::task::Poll::Pending => {
                    let Ok(written) = timeout(deadline, publishing).await else {
                        self.broken.notify_one();
                        return Err(Error::unavailable("not written within the send deadline"));
                    };
                    written
                }
            };
            if let Err(error) = written {
                self.broken.notify_one();
                return Err(Error::unavailable(error));
            }
        }
        Ok(())
    }

    /// See [`crate::Broker::unroutable`].
    pub(super) async fn unroutable(&self, queues: Vec<String>, body: Bytes) -> Result<Vec<String>, Error> {
        let ping = |queue: &String| {
            let mut message = Outgoing::to_queue(queue.clone(), body.clone());
            message.properties.expiration_ms = Some(PING_EXPIRATION_MS);
            message
        };
        let confirmations = self.pings.publish(queues.iter().map(ping).collect(), true).await?;
        if confirmations.contains(&Confirmation::Unknown) {
            return Err(Error::unavailable("a ping was not confirmed in time"));
        }
        let gone = |(queue, confirmation)| (confirmation == Confirmation::Unroutable).then_some(queue);
        Ok(queues.into_iter().zip(confirmations).filter_map(gone).collect())
    }
}

/// A message in lapin's terms.
pub(super) struct Prepared {
    pub(super) exchange: lapin::types::ShortString,
    pub(super) routing_key: lapin::types::ShortString,
    pub(super) body: Bytes,
    pub(super) properties: lapin::BasicProperties,
}

/// Refuses what the protocol cannot carry, before anything is sent.
pub(super) fn prepare(message: Outgoing) -> Result<Prepared, Error> {
    Ok(Prepared {
        exchange: short(&message.exchange)?,
        routing_key: short(&message.routing_key)?,
        properties: to_amqp(&message.properties)?,
        body: message.body,
    })
}
