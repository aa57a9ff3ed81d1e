//! Counts what the store holds, for the metrics: what waits in queues for a worker, and what is open. Autoscalers go by the former.

use std::{sync::Arc, time::Duration};

use everstep_store::{Depth, OpenCount, Queue};
use tokio::time::Instant;

use super::duties::DISPATCH;
use crate::{Error, metrics::Metrics, shared::Shared};

/// How often it measures the queues.
const EVERY: Duration = Duration::from_secs(15);
/// The most queues that are measured of those that are served: names come from outside, and there may be any number of them.
const NAMED: usize = 200;
/// The most that are measured of all others.
const OTHERS: u32 = 20;
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

/// Measures the queues that are served, by name, and some that are not. What is not measured is not shown.
async fn depths(shared: &Shared) -> Result<(), Error> {
    let mut served: Vec<_> = super::dispatch::served(shared)
        .into_iter()
        .map(|queue| (matches!(queue, Queue::Pinned(..)), queue.to_string(), queue))
        .collect();
    served.sort_unstable_by(|(one, name, _), (other, named, _)| (one, name).cmp(&(other, named)));
    served.truncate(NAMED);
    let queues: Vec<_> = served.iter().map(|(.., queue)| queue.clone()).collect();
    let found = shared.store.depths(&queues, OTHERS).await;
    // Whoever scales by a queue needs to see that it is empty. One of a build is there while something waits in it.
    let unpinned = served.iter().filter(|(is_pinned, ..)| !is_pinned).map(|(_, name, _)| name.as_str());
    show_depths(&shared.metrics, unpinned, found)
}

/// What is not known is not shown: an old number would be taken for a new one.
fn show_depths<'a>(
    metrics: &Metrics,
    served: impl Iterator<Item = &'a str>,
    found: Result<Vec<Depth>, everstep_store::Error>,
) -> Result<(), Error> {
    let (ready, oldest) = (&metrics.ready, &metrics.oldest);
    ready.reset();
    oldest.reset();
    let found = found?;
    for queue in served {
        ready.with_label_values(&[queue]).set(0);
        oldest.with_label_values(&[queue]).set(0);
    }
    for depth in found {
        let queue = depth.queue.to_string();
        ready.with_label_values(&[&queue]).set(signed(depth.rows));
        oldest.with_label_values(&[&queue]).set(signed(depth.oldest.as_u64() / 1_000));
    }
    Ok(())
}

async fn open(shared: &Shared) -> Result<(), Error> {
    show_open(&shared.metrics, shared.store.open_counts().await)
}

fn show_open(metrics: &Metrics, counts: Result<Vec<OpenCount>, everstep_store::Error>) -> Result<(), Error> {
    metrics.open.reset();
    for count in counts? {
        metrics.open.with_label_values(&[count.status.word(), count.reason]).set(signed(count.instances));
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
    use everstep_protocol::WorkflowName;

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
        assert_eq!(shown(&shared.metrics), 0);
    }

    fn shown(metrics: &Metrics) -> usize {
        let census = ["everstep_queue_ready", "everstep_queue_oldest_seconds", "everstep_open_instances"];
        let families = metrics.registry.gather();
        families.iter().filter(|family| census.contains(&family.name())).count()
    }

    fn away() -> everstep_store::Error {
        everstep_store::Error::new(everstep_store::ErrorKind::Unavailable, "count", "it is away".to_owned())
    }

    #[test]
    fn what_cannot_be_counted_is_not_shown_as_it_was() {
        let metrics = Metrics::new();
        let status = everstep_store::StatusWord::Queued;
        show_open(&metrics, Ok(vec![OpenCount { status, reason: "", instances: 3 }]))
            .expect("it was counted");
        show_depths(&metrics, ["workflow w"].into_iter(), Ok(Vec::new())).expect("it was measured");
        assert_eq!(shown(&metrics), 3);
        show_open(&metrics, Err(away())).expect_err("it is away");
        show_depths(&metrics, ["workflow w"].into_iter(), Err(away())).expect_err("it is away");
        assert_eq!(shown(&metrics), 0);
    }

    #[tokio::test]
    async fn a_served_queue_is_measured_however_many_others_hold_work() {
        let coordinator = Rehearsal::new();
        let shared = &coordinator.shared;
        let others = (0..30).map(|number| format!("a{number}"));
        for name in others.chain(["z".to_owned()]) {
            let mut start = rehearsal::start("one", None);
            start.name.workflow = WorkflowName::new(name).expect("a name");
            turn(Arc::clone(shared), vec![Arrival::new(Input::Start(Box::new(start)))]).await;
        }
        let served = |name: &str| WorkflowName::new(name).expect("a name");
        let start = rehearsal::start("one", None);
        let session = everstep_protocol::SessionId::generate();
        shared.room().serve_queues_only(session, &start.name.namespace, &[served("z"), served("zz")]);
        depths(shared).await.expect("the store answers");
        let ready = |queue: &str| shared.metrics.ready.with_label_values(&[queue]).get();
        assert_eq!((ready("workflow z"), ready("workflow zz")), (1, 0));
        let series = prometheus::core::Collector::collect(&shared.metrics.ready)[0].get_metric().len();
        assert_eq!(series, 2 + OTHERS as usize);
    }
}
