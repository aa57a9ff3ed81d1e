//! The broker's state and every transition of it. Synchronous; the caller holds the lock.
//!
//! Invariant: after each public method no queue holds a ready message while one of its consumers that may receive
//! has room. Nothing that runs under the lock may drop a live [`Settle`], which would take the lock again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use super::queue::{Clock, Queue, Stored};
use super::routing::Exchanges;
use crate::consumer::{Delivery, Incoming, Settle, SettleLane, Verdict};
use crate::topology::{Consume, Declaration, QueueDeclaration, QueueKind, Source};
use crate::{Error, Message, Outgoing};

pub(super) type ConsumerId = u64;
type ConnectionId = u64;

pub(super) struct State {
    queues: HashMap<String, Queue>,
    exchanges: Exchanges,
    consumers: BTreeMap<ConsumerId, Consumer>,
    connections: HashMap<ConnectionId, Connection>,
    last_id: u64,
    clock: Clock,
}

struct Connection {
    up: bool,
    generation: u64,
    /// What was declared here, to be declared again after each cut.
    declared: Vec<Declaration>,
}

struct Consumer {
    connection: ConnectionId,
    consume: Consume,
    /// The queue it sits on; `None` while its connection is cut or the queue is missing.
    queue: Option<String>,
    cancelled: bool,
    last_tag: u64,
    unsettled: BTreeMap<u64, Stored>,
    outgoing: UnboundedSender<Incoming>,
    lane: Arc<dyn SettleLane>,
}

impl Consumer {
    fn has_room(&self) -> bool {
        self.unsettled.len() < usize::from(self.consume.prefetch)
    }
}

impl State {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            queues: HashMap::new(),
            exchanges: Exchanges::default(),
            consumers: BTreeMap::new(),
            connections: HashMap::new(),
            last_id: 0,
            clock,
        }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn open_connection(&mut self) -> (u64, u64) {
        let (id, generation) = (self.next_id(), self.next_id());
        self.connections.insert(id, Connection { up: true, generation, declared: Vec::new() });
        (id, generation)
    }

    pub(super) fn check(&self, connection: ConnectionId) -> Result<(), Error> {
        match self.connections.get(&connection) {
            None => Err(Error::Closed),
            Some(Connection { up: false, .. }) => Err(Error::unavailable("the connection is cut")),
            Some(_) => Ok(()),
        }
    }

    /// Declares, now and after each cut. What cannot be declared now is remembered all the same, and what is deleted is forgotten.
    pub(super) fn declare_all(&mut self, id: ConnectionId, topology: Vec<Declaration>) -> Result<(), Error> {
        if let Some(connection) = self.connections.get_mut(&id) {
            for declaration in &topology {
                if let Declaration::DeleteQueue { name } = declaration {
                    let is_it = |known: &Declaration| matches!(known, Declaration::Queue(queue) if queue.name == *name);
                    connection.declared.retain(|known| !is_it(known));
                } else if !connection.declared.contains(declaration) {
                    connection.declared.push(declaration.clone());
                }
            }
        }
        self.check(id)?;
        topology.into_iter().try_for_each(|declaration| self.declare(declaration))
    }

    fn declare(&mut self, declaration: Declaration) -> Result<(), Error> {
        match declaration {
            Declaration::Exchange { name } => self.exchanges.declare(name),
            Declaration::Queue(queue) if queue.kind == QueueKind::Exclusive => {
                return Err(Error::refused("an exclusive queue is declared by consuming it"));
            }
            Declaration::Queue(queue) => self.declare_queue(queue)?,
            Declaration::DeleteQueue { name } => self.delete_queue(&name),
        }
        Ok(())
    }

    fn declare_queue(&mut self, declaration: QueueDeclaration) -> Result<(), Error> {
        for (exchange, pattern) in &declaration.bind {
            if !self.exchanges.bind(exchange, pattern, &declaration.name) {
                return Err(Error::refused(format!("no exchange {exchange}")));
            }
        }
        let name = declaration.name.clone();
        match self.queues.get(&name) {
            Some(queue) if !queue.same_arguments(&declaration) => {
                return Err(Error::refused(format!("queue {name} exists with other arguments")));
            }
            Some(_) => {}
            None => {
                self.queues.insert(name.clone(), Queue::new(declaration, self.clock.clone()));
            }
        }
        let waiting = |consumer: &&Consumer| {
            consumer.queue.is_none() && !consumer.cancelled && consumer.consume.queue.name() == name
        };
        if self.consumers.values().any(|consumer| waiting(&consumer)) {
            let ids: Vec<_> =
                self.consumers.iter().filter(|(_, consumer)| waiting(consumer)).map(|(id, _)| *id).collect();
            for id in ids {
                self.attach(id);
            }
        }
        Ok(())
    }

    fn delete_queue(&mut self, name: &str) {
        self.exchanges.unbind_queue(name);
        let Some(queue) = self.queues.remove(name) else { return };
        let mut declarers = Vec::new();
        for id in queue.consumers {
            if let Some(consumer) = self.consumers.get_mut(&id) {
                consumer.queue = None;
                consumer.unsettled.clear();
                announce(consumer, Incoming::Disconnected);
                declarers.extend(matches!(consumer.consume.queue, Source::Declared(_)).then_some(id));
            }
        }
        // Whoever consumes a queue by its declaration declares it again, as on a server.
        for id in declarers {
            self.attach(id);
        }
    }

    /// Whether a queue took it.
    pub(super) fn publish(&mut self, outgoing: Outgoing) -> Result<bool, Error> {
        let Outgoing { exchange, routing_key, body, properties } = outgoing;
        let expiration_ms = properties.expiration_ms;
        let message =
            Message { body, properties, routing_key, exchange: exchange.into_owned(), redelivered: false };
        if message.exchange.is_empty() {
            let Some(queue) = self.queues.get_mut(&message.routing_key) else { return Ok(false) };
            let name = message.routing_key.clone();
            queue.push(message, expiration_ms);
            self.dispatch(&name);
            return Ok(true);
        }
        let names = self
            .exchanges
            .route(&message.exchange, &message.routing_key)
            .ok_or_else(|| Error::refused(format!("no exchange {}", message.exchange)))?;
        for name in &names {
            if let Some(queue) = self.queues.get_mut(name) {
                queue.push(message.clone(), expiration_ms);
                self.dispatch(name);
            }
        }
        Ok(!names.is_empty())
    }

    pub(super) fn consume(
        &mut self,
        connection: ConnectionId,
        consume: Consume,
        outgoing: UnboundedSender<Incoming>,
        lane: &dyn Fn(ConsumerId) -> Arc<dyn SettleLane>,
    ) -> Result<ConsumerId, Error> {
        if !self.connections.contains_key(&connection) {
            return Err(Error::Closed);
        }
        let id = self.next_id();
        let consumer = Consumer {
            connection,
            consume,
            queue: None,
            cancelled: false,
            last_tag: 0,
            unsettled: BTreeMap::new(),
            outgoing,
            lane: lane(id),
        };
        self.consumers.insert(id, consumer);
        self.attach(id);
        Ok(id)
    }

    /// Puts a consumer on its queue, if that exists and its connection is up.
    fn attach(&mut self, id: ConsumerId) {
        let Some(consumer) = self.consumers.get(&id) else { return };
        let Some(Connection { up: true, generation, .. }) = self.connections.get(&consumer.connection) else {
            return;
        };
        let name = consumer.consume.queue.actual_name(*generation);
        if let Source::Declared(mut declaration) = consumer.consume.queue.clone() {
            declaration.name.clone_from(&name);
            if !self.queues.contains_key(&name)
                && let Err(error) = self.declare_queue(declaration)
            {
                tracing::warn!(queue = name, %error, "cannot consume");
                return;
            }
        }
        let (Some(queue), Some(consumer)) = (self.queues.get_mut(&name), self.consumers.get_mut(&id)) else {
            return;
        };
        if consumer.queue.is_some() {
            return; // declare_queue found it waiting
        }
        queue.consumers.push_back(id);
        consumer.queue = Some(name.clone());
        announce(consumer, Incoming::Connected { queue: name.clone() });
        self.dispatch(&name);
    }

    /// Takes a consumer off its queue and gives back what it has unsettled.
    fn detach(&mut self, id: ConsumerId) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let unsettled = std::mem::take(&mut consumer.unsettled);
        let Some(name) = consumer.queue.take() else { return };
        self.leave(id, &name);
        if let Some(queue) = self.queues.get_mut(&name) {
            unsettled.into_values().rev().for_each(|stored| queue.put_back(stored));
            self.dispatch(&name);
        }
    }

    fn leave(&mut self, id: ConsumerId, name: &str) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        queue.consumers.retain(|other| *other != id);
        if queue.declaration.kind == QueueKind::Exclusive && queue.consumers.is_empty() {
            self.queues.remove(name);
            self.exchanges.unbind_queue(name);
        }
    }

    /// No more deliveries. What was handed out can still be settled; dropped, it goes back.
    pub(super) fn cancel(&mut self, id: ConsumerId) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        consumer.cancelled = true;
        let name = consumer.queue.clone();
        if consumer.unsettled.is_empty() {
            self.consumers.remove(&id);
        }
        if let Some(name) = name {
            self.leave(id, &name);
            self.dispatch(&name);
        }
    }

    pub(super) fn settle(&mut self, id: ConsumerId, tag: u64, verdict: Verdict) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let Some(stored) = consumer.unsettled.remove(&tag) else { return };
        let name = consumer.queue.clone();
        if consumer.cancelled && consumer.unsettled.is_empty() {
            self.consumers.remove(&id);
        }
        let Some(name) = name else { return };
        if let (Verdict::Requeue, Some(queue)) = (verdict, self.queues.get_mut(&name)) {
            queue.put_back(stored);
        }
        self.dispatch(&name);
    }

    pub(super) fn dropped(&mut self, id: ConsumerId, tag: u64) {
        if self.consumers.get(&id).is_some_and(|consumer| consumer.cancelled) {
            self.settle(id, tag, Verdict::Requeue);
        }
    }

    /// Hands ready messages to consumers with room.
    fn dispatch(&mut self, name: &str) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        while !queue.ready.is_empty() {
            let candidates = if queue.declaration.single_active_consumer { 1 } else { queue.consumers.len() };
            let with_room = |id: &ConsumerId| self.consumers.get(id).is_some_and(Consumer::has_room);
            let Some(place) = queue.consumers.iter().take(candidates).position(with_room) else { return };
            let Some(stored) = queue.pop() else { return };
            let id = queue.consumers[place];
            if candidates > 1 {
                queue.consumers.rotate_left(place + 1);
            }
            if let Some(consumer) = self.consumers.get_mut(&id)
                && let Some(stored) = deliver(consumer, stored)
            {
                // Its owner is dropping it: the cancel that follows is anticipated.
                consumer.cancelled = true;
                queue.consumers.retain(|other| *other != id);
                queue.ready.push_front(stored);
            }
        }
    }

    pub(super) fn purge(&mut self, queue: &str) -> usize {
        self.queues.get_mut(queue).map_or(0, |queue| std::mem::take(&mut queue.ready).len())
    }

    pub(super) fn depth(&mut self, queue: &str) -> Option<u32> {
        let queue = self.queues.get_mut(queue)?;
        queue.drop_expired();
        Some(queue.ready.len() as u32)
    }

    pub(super) fn queue_names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.queues.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// In order of creation, so that a simulation repeats.
    fn consumers_of(&self, connection: ConnectionId) -> Vec<ConsumerId> {
        let of_it = |(id, consumer): (&u64, &Consumer)| (consumer.connection == connection).then_some(*id);
        self.consumers.iter().filter_map(of_it).collect()
    }

    /// False if it was not up.
    pub(super) fn cut(&mut self, connection: ConnectionId) -> bool {
        match self.connections.get_mut(&connection) {
            Some(connection) if connection.up => connection.up = false,
            Some(_) | None => return false,
        }
        for id in self.consumers_of(connection) {
            self.detach(id);
            match self.consumers.get_mut(&id) {
                Some(consumer) if consumer.cancelled => drop(self.consumers.remove(&id)),
                Some(consumer) => announce(consumer, Incoming::Disconnected),
                None => {}
            }
        }
        true
    }

    /// The new generation; `None` if it was not cut.
    pub(super) fn restore(&mut self, id: ConnectionId) -> Option<u64> {
        let generation = self.next_id();
        match self.connections.get_mut(&id) {
            Some(connection) if !connection.up => {
                connection.up = true;
                connection.generation = generation;
                self.declare_again(id);
            }
            Some(_) | None => return None,
        }
        for id in self.consumers_of(id) {
            self.attach(id);
        }
        Some(generation)
    }

    fn declare_again(&mut self, id: ConnectionId) {
        let declared = self.connections.get(&id).map(|connection| connection.declared.clone());
        for declaration in declared.unwrap_or_default() {
            if let Err(error) = self.declare(declaration) {
                tracing::warn!(%error, "cannot declare again");
            }
        }
    }

    /// All queues and exchanges go, with what is in them.
    pub(super) fn wipe(&mut self) {
        for id in self.consumers.keys().copied().collect::<Vec<_>>() {
            let Some(consumer) = self.consumers.get_mut(&id) else { continue };
            consumer.unsettled.clear();
            if consumer.queue.take().is_some() {
                announce(consumer, Incoming::Disconnected);
            }
        }
        self.queues.clear();
        self.exchanges = Exchanges::default();
    }

    pub(super) fn close(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
        for id in self.consumers_of(connection) {
            self.detach(id);
            self.consumers.remove(&id);
        }
    }
}

fn announce(consumer: &Consumer, incoming: Incoming) {
    // A failure means that its owner is dropping it; the cancel follows.
    let _ = consumer.outgoing.send(incoming);
}

/// Returns the message if the consumer is gone.
fn deliver(consumer: &mut Consumer, stored: Stored) -> Option<Stored> {
    consumer.last_tag += 1;
    let tag = consumer.last_tag;
    let settle = Settle::new(tag, consumer.lane.clone());
    let delivery = Delivery::new(stored.message.clone(), settle);
    let Err(returned) = consumer.outgoing.send(Incoming::Delivery(delivery)) else {
        consumer.unsettled.insert(tag, stored);
        return None;
    };
    if let Incoming::Delivery(delivery) = returned.0 {
        delivery.split().1.defuse();
    }
    Some(stored)
}
