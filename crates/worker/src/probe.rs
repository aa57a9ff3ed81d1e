//! How a worker stands, for probes.

use std::{fmt, sync::Arc, time::Duration};

use everstep_broker::Broker;

use crate::{metrics::Metrics, watch::Watch};

/// Answers how a worker stands. May be asked from any thread.
#[derive(Clone)]
pub struct Probe {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) metrics: Metrics,
    pub(crate) watch: Arc<Watch>,
    pub(crate) poll_limit: Duration,
}

impl Probe {
    /// What only a restart mends, in words. The worker sees it too and ends its process; this is for where it does not.
    #[must_use]
    pub fn dead(&self) -> Vec<&'static str> {
        if self.watch.stuck(self.poll_limit).is_some() {
            vec!["a body blocks the work loop"]
        } else {
            Vec::new()
        }
    }

    /// What else keeps it from working, in words.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let parts = [
            (self.broker.health().borrow().is_up(), "the broker is away"),
            (self.metrics.session_up.get() == 1, "no coordinator answers its session"),
        ];
        parts.into_iter().filter(|(there, _)| !there).map(|(_, text)| text).collect()
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("poll_limit", &self.poll_limit).finish_non_exhaustive()
    }
}
