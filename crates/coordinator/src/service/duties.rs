//! Duties: what exactly one coordinator does at a time. Held by a short lease in the store, so that a coordinator that dies is
//! replaced within seconds. Nothing breaks if two hold one for a moment: every duty only repeats what is safe to repeat.

use std::{sync::Arc, time::Duration};

use everstep_protocol::{Millis, crash::around};

use crate::shared::Shared;

/// Names duties and lists them: one that is not listed would never be taken.
macro_rules! duties {
    ($($(#[$doc:meta])* $name:ident = $word:literal;)+) => {
        $($(#[$doc])* pub(crate) const $name: &str = $word;)+
        pub(crate) const ALL: [&str; [$($word),+].len()] = [$($name),+];
    };
}

duties! {
    /// Ends silent sessions.
    WATCH = "watch";
    /// Finds due waits.
    TIMERS = "timers";
    /// Offers what waits in the store.
    DISPATCH = "dispatch";
    /// Publishes lifecycle messages again.
    OUTBOX = "outbox";
    /// Deletes what is past its time.
    CLEAN = "clean";
    /// Goes on with operations on many instances.
    BULK = "bulk";
    /// Looks whether every open instance has a reason to move.
    AUDIT = "audit";
    /// Starts what schedules have due.
    SCHEDULES = "schedules";
}

const TTL: Millis = Millis(3_000);
const EVERY: Duration = Duration::from_secs(1);

/// Takes and keeps duties until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let taking = around("commit.duties", shared.store.duties(shared.id, &ALL, TTL));
        let held = tokio::time::timeout(Duration::from_secs(2), taking).await;
        // No answer means that the lease may run out: hold nothing until it is known again.
        shared.set_duties(held.ok().and_then(Result::ok).unwrap_or_default());
        tokio::time::sleep(EVERY).await;
    }
}
