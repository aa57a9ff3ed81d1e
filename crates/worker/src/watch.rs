//! Says which body is being polled, so that the link can tell a stuck one by name (rule W12).

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use everstep_protocol::{Epoch, InstanceId, InstanceUid, WorkflowName};

/// Whose code runs.
#[derive(Clone, Debug)]
pub struct Polled {
    /// The instance.
    pub instance: InstanceUid,
    /// The lease's epoch.
    pub epoch: Epoch,
    /// The workflow.
    pub workflow: WorkflowName,
    /// The instance's id.
    pub id: InstanceId,
}

/// Shared by the work loop, which writes, and the link, which looks.
#[derive(Debug)]
pub struct Watch {
    base: Instant,
    /// Microseconds since the base, plus one; zero while no body is polled.
    since: AtomicU64,
    polled: Mutex<Option<Polled>>,
    abandoned: AtomicBool,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            base: Instant::now(),
            since: AtomicU64::new(0),
            polled: Mutex::new(None),
            abandoned: AtomicBool::new(false),
        }
    }
}

impl Watch {
    /// Runs a piece of a body's code under watch. Says how long it took.
    pub fn during<T>(&self, polled: &Polled, code: impl FnOnce() -> T) -> (T, Duration) {
        *self.lock() = Some(polled.clone());
        let begin = Instant::now();
        self.since.store(self.micros(begin) + 1, Ordering::Release);
        let value = code();
        self.since.store(0, Ordering::Release);
        (value, begin.elapsed())
    }

    /// The body that has been polled for longer than the limit.
    #[must_use]
    pub fn stuck(&self, limit: Duration) -> Option<Polled> {
        let since = self.since.load(Ordering::Acquire).checked_sub(1)?;
        let polled_for = self.micros(Instant::now()).saturating_sub(since);
        let limit = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        if polled_for <= limit {
            return None;
        }
        let polled = self.lock().clone();
        // It may have come back while we looked.
        (self.since.load(Ordering::Acquire) == since + 1).then_some(polled).flatten()
    }

    /// Nobody waits for the work loop any more: it ends as soon as it comes back.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Whether nobody waits for the work loop any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.base).as_micros()).unwrap_or(u64::MAX - 1)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Polled>> {
        self.polled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
