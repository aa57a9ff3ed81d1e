//! The way of one process to the broker.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use everstep_broker::{
    Broker, Confirmation, Consume, Consumer, Declaration, Error, Health, MemoryBroker, Outgoing,
};
use everstep_protocol::topology::{LIFECYCLE_EXCHANGE, SESSIONS};
use tokio::sync::watch;

use super::wire::Wire;
use crate::{check::Watchers, clock::Clock, faults::Kind, life::Life};

/// A connection with faults on it.
#[derive(Debug)]
pub(crate) struct FaultyBroker {
    pub(crate) inner: MemoryBroker,
    pub(crate) wire: Wire,
    pub(crate) clock: Clock,
    pub(crate) life: Arc<Life>,
    pub(crate) watchers: Watchers,
}

impl FaultyBroker {
    /// What becomes of a message that nobody awaits a confirm for: zero, one or two go now, the others later.
    fn fate(&self, message: Outgoing, now: &mut Vec<Outgoing>) {
        let faults = &self.life.faults;
        if faults.comes(Kind::Drop) {
            self.unheard(&message, self.clock.now());
            return self.life.note(format_args!("lost on the way: {}", Named(&message)));
        }
        if faults.comes(Kind::Double) {
            self.later(message.clone());
        }
        if faults.comes(Kind::Delay) {
            self.later(message);
        } else {
            now.push(message);
        }
    }

    fn later(&self, message: Outgoing) {
        let millis = self.life.faults.draw(|draws| {
            if draws.once_in(20) { draws.between(1_000, 20_000) } else { draws.between(1, 400) }
        });
        self.life.note(format_args!("{millis} ms on the way: {}", Named(&message)));
        let until = self.clock.now() + millis as i64 * 1_000;
        self.unheard(&message, until);
        self.wire.delay(until, message);
    }

    /// Whether it was a sign of life, which is missed until then.
    fn unheard(&self, message: &Outgoing, until: i64) {
        if message.routing_key == SESSIONS {
            self.watchers.troubled(self.life.session(), until);
        }
    }

    fn note(&self, messages: &[Outgoing]) {
        for message in messages {
            self.life.note(format_args!("sends {}", Named(message)));
        }
    }
}

/// Where a message goes, and what it is. Messages of sessions bear how busy a thread was, which is of no account here.
struct Named<'a>(&'a Outgoing);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outgoing { exchange, routing_key, body, .. } = self.0;
        write!(f, "{exchange}/{routing_key}")?;
        if routing_key == SESSIONS || exchange == LIFECYCLE_EXCHANGE {
            return Ok(());
        }
        write!(f, " {}", &blake3::hash(body).to_hex()[..8])
    }
}

#[async_trait]
impl Broker for FaultyBroker {
    async fn declare(&self, topology: Vec<Declaration>) -> Result<(), Error> {
        self.life.passes("before it declares").await;
        self.inner.declare(topology).await
    }

    async fn send(&self, messages: Vec<Outgoing>) -> Result<(), Error> {
        self.life.passes("before it sends").await;
        // Whether the connection is up.
        self.inner.send(Vec::new()).await?;
        let mut now = Vec::with_capacity(messages.len());
        let mut messages = messages.into_iter();
        while let Some(message) = messages.next() {
            self.fate(message, &mut now);
            if messages.len() > 0 && self.life.faults.comes(Kind::CrashInCall) {
                self.life.end(format_args!("with a part of its messages sent"));
                break;
            }
        }
        self.note(&now);
        let sent = self.inner.send(now).await;
        self.life.passes("after it has sent").await;
        sent
    }

    async fn send_confirmed(
        &self,
        messages: Vec<Outgoing>,
        mandatory: bool,
    ) -> Result<Vec<Confirmation>, Error> {
        self.life.passes("before it publishes").await;
        let unheard = self.life.faults.comes(Kind::Unconfirmed);
        if unheard && self.life.faults.draw(|draws| draws.once_in(2)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            return Err(unavailable());
        }
        self.note(&messages);
        let confirmed = self.inner.send_confirmed(messages, mandatory).await;
        self.life.passes("after it has published").await;
        if unheard { Err(unavailable()) } else { confirmed }
    }

    async fn consume(&self, consume: Consume) -> Result<Consumer, Error> {
        self.life.passes("before it consumes").await;
        self.inner.consume(consume).await
    }

    async fn unroutable(&self, queues: Vec<String>, body: Bytes) -> Result<Vec<String>, Error> {
        self.life.passes("before it probes").await;
        self.inner.unroutable(queues, body).await
    }

    async fn depth(&self, queue: &str) -> Result<Option<u32>, Error> {
        self.life.passes("before it asks for a depth").await;
        self.inner.depth(queue).await
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.inner.health()
    }

    async fn close(&self) {
        self.life.passes("before it closes").await;
        self.inner.close().await;
    }
}

fn unavailable() -> Error {
    Error::Unavailable { reason: "the confirm was not heard".to_owned() }
}
