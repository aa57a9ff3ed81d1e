//! Says whether store and broker answer, for metrics and probes: each coordinator of its own ways to them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use everstep_protocol::{Timestamp, crash::around};
use everstep_store::Present;
use tokio::time::Instant;

use crate::{Error, shared::Shared};

/// How often it looks at the broker's connections.
const EVERY: Duration = Duration::from_secs(1);
/// How often it asks the store.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// How long the store may take.
const WITHIN: Duration = Duration::from_secs(2);

/// Is seen for the first time, and only then believes what was read of the database's life: whoever begins another one
/// (`everstep restored`) looks first who is there. Learns the database's time by the way. Waits for a store that is away.
///
/// Errors: the database has begun another life since.
pub(crate) async fn appear(shared: &Shared) -> Result<(), Error> {
    loop {
        if let Some(now) = present(shared, None).await
            && let Some(same_life) = store(shared).await
        {
            shared.clock.read(now);
            return same_life;
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Runs until the coordinator stops.
///
/// Errors: the database has begun another life, of which this coordinator knows nothing.
pub(crate) async fn run(shared: Arc<Shared>) -> Result<(), Error> {
    let mut next = Instant::now();
    let mut offset = None;
    loop {
        broker(&shared);
        if next <= Instant::now() {
            next = Instant::now() + ASK_EVERY;
            store(&shared).await.unwrap_or(Ok(()))?;
            let before = shared.chance.wall();
            let heard = present(&shared, offset).await;
            let after = shared.chance.wall();
            offset = heard
                .zip(before.zip(after))
                .map(|(heard, (before, after))| heard.0 - before.0.midpoint(after.0));
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Says that this coordinator is there, with its version and how far its clock was behind the store's last time. Answers with the store's
/// time.
async fn present(shared: &Shared, clock_offset: Option<i64>) -> Option<Timestamp> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let present = Present { id: shared.id, version, heard_at: Timestamp(0), clock_offset };
    let noting = around("commit.present", shared.store.present(&present));
    tokio::time::timeout(WITHIN, noting).await.ok()?.ok()
}

fn broker(shared: &Shared) {
    let health = shared.broker.health();
    let health = health.borrow();
    let metrics = &shared.metrics;
    metrics.broker_up.set(i64::from(health.is_up()));
    metrics.broker_blocked.set(i64::from(health.blocked));
    metrics.broker_connections.set(i64::try_from(health.generation).unwrap_or(i64::MAX));
}

/// Whether the store answers, and if it does, whether its life is still the one that this coordinator began in.
async fn store(shared: &Shared) -> Option<Result<(), Error>> {
    let answered = tokio::time::timeout(WITHIN, shared.store.incarnation()).await;
    let now = answered.ok().and_then(Result::ok);
    let is_up = now.is_some();
    shared.store_answers.store(is_up, Ordering::Relaxed);
    shared.metrics.store_up.set(i64::from(is_up));
    shared.metrics.store_failures.inc_by(u64::from(!is_up));
    now.map(|now| {
        let mine = shared.incarnation;
        if now == mine { Ok(()) } else { Err(Error::AnotherLife { mine: mine.0, now: now.0 }) }
    })
}

#[cfg(test)]
mod tests {
    //! Proves what probes are told of the store, and that a coordinator lives no longer than the life it began in. That probes do not ask
    //! shows in the types: they cannot wait.
    use everstep_protocol::Incarnation;

    use super::*;
    use crate::rehearsal::{Hand, Rehearsal};

    #[tokio::test]
    async fn w02_a_coordinator_ends_with_the_life_that_it_began_in() {
        let mut coordinator = Rehearsal::new();
        appear(&coordinator.shared).await.expect("it is the same life");
        Arc::get_mut(&mut coordinator.shared).expect("nobody else has it").incarnation = Incarnation(7);
        let shared = Arc::clone(&coordinator.shared);
        for ended in [appear(&shared).await, run(shared).await] {
            let error = ended.expect_err("it is another life");
            assert!(matches!(error, Error::AnotherLife { mine: 7, now: 1 }), "{error}");
        }
    }

    /// A session that was heard before a coordinator began was not heard since: rules W8 and W9 ask which.
    #[tokio::test]
    async fn w08_a_coordinator_knows_the_stores_time_from_the_beginning() {
        let hand = Hand::default();
        hand.moves(1_000_000_000);
        let coordinator = Rehearsal::at(&hand);
        appear(&coordinator.shared).await.expect("it is the same life");
        let (known, is) = (coordinator.shared.clock.estimate(), hand.now());
        assert!(known >= is && known < is.plus(everstep_protocol::Millis(60_000)), "{known:?} {is:?}");
    }

    #[tokio::test]
    async fn an_outage_of_the_store_is_no_reason_for_a_restart() {
        let coordinator = Rehearsal::new();
        let handle = coordinator.handle();
        assert_eq!((handle.dead(), handle.missing()), (vec![], vec![]), "it answered at the start");
        coordinator.shared.store_answers.store(false, Ordering::Relaxed);
        assert_eq!((handle.dead(), handle.missing()), (vec![], vec!["the store is away"]));
        assert!(matches!(store(&coordinator.shared).await, Some(Ok(()))));
        assert_eq!((handle.dead(), handle.missing()), (vec![], vec![]));
    }
}
