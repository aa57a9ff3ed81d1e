//! Virtual time: of the world, of the store in it, and of the broker in it.
//!
//! Every process has a clock of its own besides, that of its runtime, which runs while the process does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use everstep_protocol::Timestamp;
use tokio::time::Instant;

/// When every run begins, for the store: in 2027.
pub(crate) const BEGAN: i64 = 1_800_000_000_000_000;

/// The world's clock, in microseconds since the run began.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    now: Arc<AtomicI64>,
    stored: Arc<AtomicI64>,
    base: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { now: Arc::default(), stored: Arc::default(), base: Instant::now() }
    }

    pub(crate) fn now(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, now: i64) {
        self.now.store(now, Ordering::Relaxed);
    }

    /// The store's time: that of the world, and a little later each time it is asked.
    pub(crate) fn store_time(&self) -> Timestamp {
        let at = self.now().max(self.stored.load(Ordering::Relaxed) + 1);
        self.stored.store(at, Ordering::Relaxed);
        Timestamp(BEGAN + at)
    }

    /// The broker's time.
    pub(crate) fn broker_time(&self) -> Instant {
        self.base + Duration::from_micros(self.now() as u64)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
