//! Says whether store and broker answer, for metrics and probes: each coordinator of its own ways to them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use everstep_protocol::{Timestamp, crash::around};
use everstep_store::Present;
use tokio::time::Instant;

use crate::shared::Shared;

/// How often it looks at the broker's connections.
const EVERY: Duration = Duration::from_secs(1);
/// How often it asks the store.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// How long the store may take.
const WITHIN: Duration = Duration::from_secs(2);

/// Runs until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut next = Instant::now();
    let mut offset = None;
    loop {
        broker(&shared);
        if next <= Instant::now() {
            next = Instant::now() + ASK_EVERY;
            store(&shared).await;
            offset = present(&shared, offset).await;
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Says that this coordinator is there, with its version and how far its clock was behind the store's last time. Answers with how far
/// it is now.
async fn present(shared: &Shared, clock_offset: Option<i64>) -> Option<i64> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let present = Present { id: shared.id, version, heard_at: Timestamp(0), clock_offset };
    let before = shared.chance.wall();
    let noting = around("commit.present", shared.store.present(&present));
    let heard = tokio::time::timeout(WITHIN, noting).await.ok()?.ok()?;
    let after = shared.chance.wall();
    before.zip(after).map(|(before, after)| heard.0 - before.0.midpoint(after.0))
}

fn broker(shared: &Shared) {
    let health = shared.broker.health();
    let health = health.borrow();
    let metrics = &shared.metrics;
    metrics.broker_up.set(i64::from(health.is_up()));
    metrics.broker_blocked.set(i64::from(health.blocked));
    metrics.broker_connections.set(i64::try_from(health.generation).unwrap_or(i64::MAX));
}

async fn store(shared: &Shared) {
    let answered = tokio::time::timeout(WITHIN, shared.store.incarnation()).await;
    let is_up = matches!(answered, Ok(Ok(_)));
    shared.store_answers.store(is_up, Ordering::Relaxed);
    shared.metrics.store_up.set(i64::from(is_up));
    shared.metrics.store_failures.inc_by(u64::from(!is_up));
}

#[cfg(test)]
mod tests {
    //! Proves what probes are told of the store. That they do not ask it shows in the types: they cannot wait.
    use super::*;
    use crate::rehearsal::Rehearsal;

    #[tokio::test]
    async fn an_outage_of_the_store_is_no_reason_for_a_restart() {
        let coordinator = Rehearsal::new();
        let handle = coordinator.handle();
        assert_eq!((handle.dead(), handle.missing()), (vec![], vec![]), "it answered at the start");
        coordinator.shared.store_answers.store(false, Ordering::Relaxed);
        assert_eq!((handle.dead(), handle.missing()), (vec![], vec!["the store is away"]));
        store(&coordinator.shared).await;
        assert_eq!((handle.dead(), handle.missing()), (vec![], vec![]));
    }
}
