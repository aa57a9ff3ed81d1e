//! Remembers the latest things, so many at least and twice as many at most.

use std::{collections::HashMap, hash::Hash, mem};

use everstep_protocol::Epoch;

const KEPT: usize = 8192;

/// The epochs of leases that ended lately.
#[derive(Debug)]
pub(crate) struct Recent<K> {
    new: HashMap<K, Epoch>,
    old: HashMap<K, Epoch>,
}

impl<K> Default for Recent<K> {
    fn default() -> Self {
        Self { new: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: Eq + Hash> Recent<K> {
    pub(crate) fn add(&mut self, key: K, epoch: Epoch) {
        if self.new.len() >= KEPT {
            self.old = mem::take(&mut self.new);
        }
        let known = self.new.entry(key).or_insert(epoch);
        *known = epoch.max(*known);
    }

    /// Whether this lease, or a later one, is known to be over.
    pub(crate) fn covers(&self, key: &K, epoch: Epoch) -> bool {
        [&self.new, &self.old].iter().any(|map| map.get(key).is_some_and(|over| *over >= epoch))
    }

    pub(crate) fn clear(&mut self) {
        self.new.clear();
        self.old.clear();
    }
}
