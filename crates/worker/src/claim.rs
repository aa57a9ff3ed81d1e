//! Claims that are not answered yet, of instances and of remote steps. Each keeps the room that a grant would take.

use std::{collections::HashMap, hash::Hash, time::Duration};

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::clock::Resend;

/// A claim that nobody has answered for so long has lost its task to somebody else.
const GIVEN_UP_AFTER: Duration = Duration::from_mins(1);

/// Unanswered claims by what they claim.
#[derive(Debug)]
pub(crate) struct Claims<K> {
    waiting: HashMap<K, Claim>,
    next: Option<Instant>,
}

#[derive(Debug)]
struct Claim {
    room: OwnedSemaphorePermit,
    resend: Resend,
    began: Instant,
}

impl<K: Eq + Hash + Copy> Claims<K> {
    pub(crate) fn new() -> Self {
        Self { waiting: HashMap::new(), next: None }
    }

    /// A claim is sent now. False, and the room is free again, if there is one already.
    pub(crate) fn begin(&mut self, key: K, room: OwnedSemaphorePermit, now: Instant) -> bool {
        if self.waiting.contains_key(&key) {
            return false;
        }
        let resend = Resend::begin(now);
        self.next = Some(self.next.map_or(resend.at(), |next| next.min(resend.at())));
        self.waiting.insert(key, Claim { room, resend, began: now });
        true
    }

    /// It is answered: gives the room that it kept.
    pub(crate) fn answered(&mut self, key: K) -> Option<OwnedSemaphorePermit> {
        self.waiting.remove(&key).map(|claim| claim.room)
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.next = None;
    }

    /// Claims that are due to be sent again.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<(K, Duration)> {
        if self.next.is_none_or(|next| now < next) {
            return Vec::new();
        }
        self.waiting.retain(|_, claim| now.saturating_duration_since(claim.began) < GIVEN_UP_AFTER);
        let mut due = Vec::new();
        for (key, claim) in &mut self.waiting {
            if claim.resend.is_due(now) {
                due.push((*key, claim.resend.interval()));
            }
        }
        self.next = self.waiting.values().map(|claim| claim.resend.at()).min();
        due
    }

    pub(crate) fn hurry(&mut self, now: Instant) {
        for claim in self.waiting.values_mut() {
            claim.resend.hurry(now);
        }
        if !self.waiting.is_empty() {
            self.next = Some(now);
        }
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.next
    }
}
