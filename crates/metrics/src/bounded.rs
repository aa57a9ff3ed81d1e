//! Label values that come from outside, such as names of workflows and steps: the first so many have series of their own, all others
//! share one. Whoever makes up names can then fill neither this process's memory nor Prometheus's.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

/// The label value of all names past the bound.
pub const OTHER: &str = "other";

type Make<V> = Box<dyn Fn(&str, &str) -> V + Send + Sync>;
type Nested<V> = HashMap<Box<str>, HashMap<Box<str>, V>>;

/// Handles by two names, at most so many pairs of them; shared by a process.
pub struct Bounded<V> {
    max: usize,
    make: Make<V>,
    known: RwLock<(usize, Nested<V>)>,
    other: V,
}

impl<V: Clone> Bounded<V> {
    /// At most `max` pairs of names get what `make` makes of them; the rest shares what it makes of [`OTHER`].
    pub fn new(max: usize, make: impl Fn(&str, &str) -> V + Send + Sync + 'static) -> Self {
        let other = make(OTHER, OTHER);
        Self { max, make: Box::new(make), known: RwLock::default(), other }
    }

    /// The handle of a pair, made if there is room; none if there is not.
    fn named(&self, one: &str, two: &str) -> Option<V> {
        let found = |known: &Nested<V>| known.get(one).and_then(|inner| inner.get(two)).cloned();
        if let Some(handle) = found(&self.known.read().unwrap_or_else(PoisonError::into_inner).1) {
            return Some(handle);
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = found(&known.1) {
            return Some(handle);
        }
        if known.0 >= self.max {
            return None;
        }
        let handle = (self.make)(one, two);
        known.0 += 1;
        known.1.entry(one.into()).or_default().insert(two.into(), handle.clone());
        Some(handle)
    }
}

impl<V> fmt::Debug for Bounded<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded").field("max", &self.max).finish_non_exhaustive()
    }
}

/// One loop's own handles, taken from what the process shares: a name that was seen before costs no lock and no allocation.
pub struct Local<V> {
    shared: Arc<Bounded<V>>,
    known: Nested<V>,
}

impl<V: Clone> Local<V> {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(shared: Arc<Bounded<V>>) -> Self {
        Self { shared, known: HashMap::new() }
    }

    /// The handle of these names, or the one of all others.
    pub fn get(&mut self, one: &str, two: &str) -> &V {
        let is_known = self.known.get(one).is_some_and(|inner| inner.contains_key(two));
        if !is_known {
            let Some(handle) = self.shared.named(one, two) else { return &self.shared.other };
            self.known.entry(one.into()).or_default().insert(two.into(), handle);
        }
        &self.known[one][two]
    }
}

impl<V> fmt::Debug for Local<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("shared", &self.shared).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! Proves that names from outside make no more series than the bound, whoever asks, and that those who came first keep theirs.
    use prometheus::{IntCounterVec, Opts};

    use super::*;

    #[test]
    fn past_the_bound_names_share_one_series() {
        let counters = IntCounterVec::new(Opts::new("n", "help"), &["workflow", "step"]).unwrap();
        let of = counters.clone();
        let shared = Arc::new(Bounded::new(3, move |one, two| of.with_label_values(&[one, two])));
        let (mut here, mut there) = (Local::new(Arc::clone(&shared)), Local::new(shared));
        for n in 0..100 {
            here.get("w", &format!("s{n}")).inc();
            there.get("w", &format!("s{}", 99 - n)).inc();
        }
        let count = |step| counters.with_label_values(&["w", step]).get();
        assert_eq!((count("s0"), count("s99"), count("s1")), (2, 2, 2));
        assert_eq!(counters.with_label_values(&[OTHER, OTHER]).get(), 200 - 6);
        let series = prometheus::core::Collector::collect(&counters)[0].get_metric().len();
        assert_eq!(series, 3 + 1);
    }
}
