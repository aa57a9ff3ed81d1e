//! Counts what the store holds, for the metrics: what waits in queues for a worker, and what is open. Autoscalers go by the former.

use std::{sync::Arc, time::Duration};

use everstep_store::Queue;
use tokio::time::Instant;

use super::duties::DISPATCH;
use crate::{Error, shared::Shared};

/// How often it measures the queues.
const EVERY: Duration = Duration::from_secs(15);
/// The most queues that are named: names come from outside, and there may be any number of them.
const NAMED: u32 = 200;
/// How often it counts what is open, at most.
const OPEN_EVERY: Duration = Duration::from_mins(1);
/// Counting reads whole tables: after it, so many times as long as it took passes before the next.
const SPARSE: u32 = 100;

/// Runs until the coordinator stops; whoever offers counts.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut next = Instant::now();
    loop {
        tokio::time::sleep(EVERY).await;
        if !shared.has_duty(DISPATCH) {
            forget(&shared);
            continue;
        }
        if let Err(error) = depths(&shared).await {
            tracing::warn!(%error, "how much waits in the queues is not known");
        }
        if next <= Instant::now() {
            let began = Instant::now();
            if let Err(error) = open(&shared).await {
                tracing::warn!(%error, "how many instances are open is not known");
            }
            next = Instant::now() + OPEN_EVERY.max(began.elapsed() * SPARSE);
        }
    }
}

/// Another coordinator says it by now.
fn forget(shared: &Shared) {
    shared.metrics.ready.reset();
    shared.metrics.oldest.reset();
    shared.metrics.open.reset();
}

async fn depths(shared: &Shared) -> Result<(), Error> {
    let depths = shared.store.depths(NAMED).await?;
    let (ready, oldest) = (&shared.metrics.ready, &shared.metrics.oldest);
    ready.reset();
    oldest.reset();
    // Whoever scales by a queue needs to see that it is empty. One of a build is there while something waits in it.
    let served = super::dispatch::served(shared).into_iter();
    let mut served: Vec<_> =
        served.filter(|queue| !matches!(queue, Queue::Pinned(..))).map(|queue| queue.to_string()).collect();
    served.sort_unstable();
    for queue in served.iter().take(NAMED as usize) {
        ready.with_label_values(&[queue]).set(0);
        oldest.with_label_values(&[queue]).set(0);
    }
    for depth in depths {
        let queue = depth.queue.to_string();
        ready.with_label_values(&[&queue]).set(signed(depth.rows));
        oldest.with_label_values(&[&queue]).set(signed(depth.oldest.as_u64() / 1_000));
    }
    Ok(())
}

async fn open(shared: &Shared) -> Result<(), Error> {
    let counts = shared.store.open_counts().await?;
    shared.metrics.open.reset();
    for count in counts {
        shared
            .metrics
            .open
            .with_label_values(&[count.status.word(), count.reason])
            .set(signed(count.instances));
    }
    Ok(())
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    //! Proves what is shown of what the store counts, and that nothing is while another coordinator does. Not: what the store counts;
    //! see its conformance.
    use everstep_engine::Input;

    use super::*;
    use crate::{arrival::Arrival, rehearsal, rehearsal::Rehearsal, turn::turn};

    #[tokio::test]
    async fn what_is_ready_and_what_is_open_is_shown_until_another_counts() {
        let coordinator = Rehearsal::new();
        let shared = &coordinator.shared;
        let starts =
            ["one", "two"].map(|id| Arrival::new(Input::Start(Box::new(rehearsal::start(id, None)))));
        turn(Arc::clone(shared), starts.into()).await;
        depths(shared).await.expect("the store answers");
        open(shared).await.expect("the store answers");
        let workflow = rehearsal::start("one", None).name.workflow;
        let queue = format!("workflow {workflow}");
        assert_eq!(shared.metrics.ready.with_label_values(&[&queue]).get(), 2);
        assert!(shared.metrics.oldest.with_label_values(&[&queue]).get() < 60);
        assert_eq!(shared.metrics.open.with_label_values(&["queued", ""]).get(), 2);
        forget(shared);
        let families = shared.metrics.registry.gather();
        let shown = ["everstep_queue_ready", "everstep_queue_oldest_seconds", "everstep_open_instances"];
        assert!(!families.iter().any(|family| shown.contains(&family.name())));
    }
}
