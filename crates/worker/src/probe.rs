//! How a worker stands, for probes.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use everstep_broker::Broker;

use crate::{metrics::Metrics, watch::Watch};

/// What a worker's session has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No coordinator has opened it yet.
    Opening,
    /// Heartbeats are unanswered.
    Paused,
    /// Open, and answered.
    Up,
    /// It was told to stop.
    Stopping,
    /// The worker is gone.
    Ended,
}

/// One worker's phase, which probes read: other workers of the process have their own, though they share the gauge.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phases(Arc<AtomicU8>);

impl Phases {
    fn is(&self, phase: Phase) -> bool {
        self.0.load(Ordering::Acquire) == phase as u8
    }
}

/// What the link says of itself. However it goes, the worker has ended then.
#[derive(Debug)]
pub(crate) struct Telling {
    phases: Phases,
    metrics: Metrics,
}

impl Telling {
    pub(crate) const fn new(phases: Phases, metrics: Metrics) -> Self {
        Self { phases, metrics }
    }

    /// From now on it is so. Who stops does not come back.
    pub(crate) fn set(&self, phase: Phase) {
        let before = self.phases.0.load(Ordering::Acquire);
        if phase < Phase::Stopping && before >= Phase::Stopping as u8 {
            return;
        }
        self.phases.0.store(phase as u8, Ordering::Release);
        if phase != Phase::Stopping {
            self.metrics.session_up.set(i64::from(phase == Phase::Up));
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.set(Phase::Ended);
    }
}

/// Answers how a worker stands. May be asked from any thread.
#[derive(Clone)]
pub struct Probe {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) phases: Phases,
    pub(crate) watch: Arc<Watch>,
    pub(crate) poll_limit: Duration,
}

impl Probe {
    /// What only a restart mends, in words. The worker sees it too and ends its process; this is for where it does not.
    #[must_use]
    pub fn dead(&self) -> Vec<&'static str> {
        let parts = [
            (self.watch.stuck(self.poll_limit).is_none(), "a body blocks the work loop"),
            (!self.phases.is(Phase::Ended), "the worker has ended"),
        ];
        lacks(&parts)
    }

    /// What else keeps it from working, in words.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let unanswered = self.phases.is(Phase::Opening) || self.phases.is(Phase::Paused);
        let outage = self.broker.health().borrow().outage();
        let parts = [
            (outage.is_none(), outage.unwrap_or_default()),
            (!unanswered, "no coordinator answers its session"),
            (!self.phases.is(Phase::Stopping), "it is stopping"),
        ];
        lacks(&parts)
    }
}

fn lacks(parts: &[(bool, &'static str)]) -> Vec<&'static str> {
    parts.iter().filter(|(there, _)| !there).map(|(_, text)| *text).collect()
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("poll_limit", &self.poll_limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! Proves that a worker's probe is about that worker, whoever else counts on the same metrics. Not: when the link says what.
    use everstep_broker::MemoryBroker;

    use super::*;

    #[test]
    fn a_worker_is_not_ready_because_another_one_is() {
        let metrics = Metrics::default();
        let probe = |phases: &Phases| Probe {
            broker: Arc::new(MemoryBroker::new()),
            phases: phases.clone(),
            watch: Arc::default(),
            poll_limit: Duration::from_secs(10),
        };
        let (one, two) = (Phases::default(), Phases::default());
        let [first, second] = [&one, &two].map(|phases| Telling::new(phases.clone(), metrics.clone()));
        first.set(Phase::Up);
        assert_eq!(probe(&one).missing(), Vec::<&str>::new());
        assert_eq!(probe(&two).missing(), ["no coordinator answers its session"]);
        second.set(Phase::Up);
        first.set(Phase::Stopping);
        first.set(Phase::Up);
        assert_eq!(probe(&one).missing(), ["it is stopping"], "who stops does not come back");
        drop(first);
        assert_eq!((probe(&one).dead(), metrics.session_up.get()), (vec!["the worker has ended"], 0));
        assert_eq!((probe(&two).dead(), probe(&two).missing()), (vec![], vec![]));
    }
}
