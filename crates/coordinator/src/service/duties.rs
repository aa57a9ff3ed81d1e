//! Duties: what exactly one coordinator does at a time. Held by a short lease in the store, so that a coordinator that dies is
//! replaced within seconds. Nothing breaks if two hold one for a moment: every duty only repeats what is safe to repeat.

use std::{sync::Arc, time::Duration};

use everstep_protocol::Millis;

use crate::shared::Shared;

/// Ends silent sessions.
pub(crate) const WATCH: &str = "watch";
/// Finds due waits.
pub(crate) const TIMERS: &str = "timers";
/// Offers what waits in the store.
pub(crate) const DISPATCH: &str = "dispatch";
/// Publishes lifecycle messages again.
pub(crate) const OUTBOX: &str = "outbox";
/// Deletes what is past its time.
pub(crate) const CLEAN: &str = "clean";

/// Goes on with operations on many instances.
pub(crate) const BULK: &str = "bulk";

const ALL: [&str; 6] = [WATCH, TIMERS, DISPATCH, OUTBOX, CLEAN, BULK];
const TTL: Millis = Millis(3_000);
const EVERY: Duration = Duration::from_secs(1);

/// Takes and keeps duties until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let held =
            tokio::time::timeout(Duration::from_secs(2), shared.store.duties(shared.id, &ALL, TTL)).await;
        // No answer means that the lease may run out: hold nothing until it is known again.
        shared.set_duties(held.ok().and_then(Result::ok).unwrap_or_default());
        tokio::time::sleep(EVERY).await;
    }
}
