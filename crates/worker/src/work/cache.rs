//! Bodies of suspended instances, kept for their next lease (rule W27): with one at hand a wake costs what was written since,
//! not the whole journal. Bounded by bytes; whatever was longest asleep is let go first. Nothing counts on it.

use std::collections::{BTreeMap, HashMap};

use everstep_protocol::{InstanceUid, message::Have};

use crate::hosted::Hosted;

pub(super) struct Cache {
    limit: u64,
    bytes: u64,
    sleepers: HashMap<InstanceUid, Sleeper>,
    /// By how long they have been asleep, longest first.
    order: BTreeMap<u64, InstanceUid>,
    next: u64,
}

struct Sleeper {
    hosted: Hosted,
    bytes: u64,
    number: u64,
}

impl Cache {
    /// Holds at most so many bytes; with 0 nothing is kept.
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, bytes: 0, sleepers: HashMap::new(), order: BTreeMap::new(), next: 0 }
    }

    pub(super) fn put(&mut self, instance: InstanceUid, hosted: Hosted) {
        self.take(instance);
        let bytes = hosted.bytes();
        if bytes > self.limit {
            return;
        }
        let number = self.next;
        self.next += 1;
        self.bytes += bytes;
        self.order.insert(number, instance);
        self.sleepers.insert(instance, Sleeper { hosted, bytes, number });
        while self.bytes > self.limit {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.take(oldest);
        }
    }

    pub(super) fn take(&mut self, instance: InstanceUid) -> Option<Hosted> {
        let sleeper = self.sleepers.remove(&instance)?;
        self.order.remove(&sleeper.number);
        self.bytes -= sleeper.bytes;
        Some(sleeper.hosted)
    }

    pub(super) fn have(&self, instance: InstanceUid) -> Option<Have> {
        self.sleepers.get(&instance).map(|sleeper| sleeper.hosted.have())
    }

    pub(super) fn clear(&mut self) {
        self.sleepers.clear();
        self.order.clear();
        self.bytes = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.sleepers.len()
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}
