//! One queue: its messages in order, and who sits on it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::state::ConsumerId;
use crate::Message;
use crate::topology::QueueDeclaration;

/// Tells the time by which messages expire.
pub(super) type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

pub(super) struct Queue {
    pub(super) declaration: QueueDeclaration,
    pub(super) ready: VecDeque<Stored>,
    /// In order of arrival; rotated to spread messages, unless only the first is active.
    pub(super) consumers: VecDeque<ConsumerId>,
    last_position: u64,
    clock: Clock,
}

pub(super) struct Stored {
    /// Place in the queue, kept by a requeue.
    position: u64,
    pub(super) message: Message,
    expires_at: Option<Instant>,
}

impl Queue {
    pub(super) fn new(declaration: QueueDeclaration, clock: Clock) -> Self {
        Self { declaration, ready: VecDeque::new(), consumers: VecDeque::new(), last_position: 0, clock }
    }

    pub(super) fn push(&mut self, message: Message, expiration_ms: Option<u32>) {
        self.last_position += 1;
        let expires_at = expiration_ms.map(|ms| (self.clock)() + Duration::from_millis(ms.into()));
        self.ready.push_back(Stored { position: self.last_position, message, expires_at });
    }

    pub(super) fn put_back(&mut self, mut stored: Stored) {
        stored.message.redelivered = true;
        let place = self.ready.partition_point(|other| other.position < stored.position);
        self.ready.insert(place, stored);
    }

    pub(super) fn pop(&mut self) -> Option<Stored> {
        self.drop_expired();
        self.ready.pop_front()
    }

    pub(super) fn drop_expired(&mut self) {
        while let Some(expires_at) = self.ready.front().and_then(|stored| stored.expires_at) {
            if (self.clock)() < expires_at {
                return;
            }
            self.ready.pop_front();
        }
    }

    /// Whether a declaration with these arguments would be taken.
    pub(super) fn same_arguments(&self, other: &QueueDeclaration) -> bool {
        self.declaration.kind == other.kind
            && self.declaration.single_active_consumer == other.single_active_consumer
            && self.declaration.dead_letter == other.dead_letter
    }
}
