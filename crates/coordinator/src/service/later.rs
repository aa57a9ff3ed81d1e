//! Run tasks that wait a moment before they go to their queue: whoever may have kept the body of the instance was told first, by
//! its inbox (rule W27). Losing them delays work like any lost task: the duty `dispatch` offers again.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use everstep_broker::Outgoing;
use everstep_protocol::{InstanceUid, crash::around};
use tokio::{sync::Notify, time::Instant};

use crate::shared::Shared;

/// How long a wake is for the one that may have the body.
const FIRST: Duration = Duration::from_millis(200);

/// Run tasks that wait.
#[derive(Debug, Default)]
pub(crate) struct Later {
    waiting: Mutex<Waiting>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    tasks: HashMap<InstanceUid, Outgoing>,
    /// By when they go to their queue; some have been claimed since.
    order: VecDeque<(Instant, InstanceUid)>,
}

impl Later {
    pub(crate) fn add(&self, instance: InstanceUid, task: Outgoing) {
        let mut waiting = self.waiting();
        waiting.tasks.insert(instance, task);
        waiting.order.push_back((Instant::now() + FIRST, instance));
        self.added.notify_one();
    }

    /// Somebody has it.
    pub(crate) fn claimed(&self, instance: InstanceUid) {
        self.waiting().tasks.remove(&instance);
    }

    fn next(&self) -> Option<Instant> {
        self.waiting().order.front().map(|(at, _)| *at)
    }

    fn due(&self, now: Instant) -> Vec<Outgoing> {
        let mut waiting = self.waiting();
        let Waiting { tasks, order } = &mut *waiting;
        let count = order.iter().take_while(|(at, _)| *at <= now).count();
        order.drain(..count).filter_map(|(_, instance)| tasks.remove(&instance)).collect()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        match shared.later.next() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => shared.later.added.notified().await,
        }
        let messages = shared.later.due(Instant::now());
        if !messages.is_empty()
            && let Err(error) = around("publish.later", shared.broker.send(messages)).await
        {
            tracing::debug!(%error, "run tasks were not sent; they are offered again");
        }
    }
}
