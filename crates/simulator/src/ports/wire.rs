//! Messages that are still on their way when others have arrived.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use everstep_broker::{Broker, MemoryBroker, Outgoing};
use futures::FutureExt;

/// The way to the broker, as long as it can be.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    connection: MemoryBroker,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By when they arrive, then in the order in which they were sent.
    messages: BTreeMap<(i64, u64), Outgoing>,
    count: u64,
}

impl Wire {
    pub(crate) fn new(connection: MemoryBroker) -> Self {
        Self { connection, waiting: Arc::default() }
    }

    pub(crate) fn delay(&self, until: i64, message: Outgoing) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.count += 1;
        let number = waiting.count;
        waiting.messages.insert((until, number), message);
    }

    /// Hands over what arrives by now.
    pub(crate) fn arrive(&self, now: i64) {
        let mut due = Vec::new();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            while let Some(first) = waiting.messages.first_entry()
                && first.key().0 <= now
            {
                due.push(first.remove());
            }
        }
        if !due.is_empty() {
            // Refused where an exchange is gone with an emptied broker: lost, as on the way.
            let _ = self.connection.send(due).now_or_never();
        }
    }

    /// Forgets everything: the broker has gone.
    pub(crate) fn lose_all(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).messages.clear();
    }
}
