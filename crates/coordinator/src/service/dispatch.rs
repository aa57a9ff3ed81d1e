//! Offers what waits in the store: runnable instances and remote steps that were not offered with their own commit, and
//! offers that nobody claimed (rule W15). Priority, fairness and limits will be decided here.

use std::{sync::Arc, time::Duration};

use everstep_protocol::{
    message::{RunTask, StepTask},
    topology, wire,
};
use everstep_store::Queue;

use super::duties::DISPATCH;
use crate::{sender::transient, shared::Shared};

const EVERY: Duration = Duration::from_millis(500);

/// Runs until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        if shared.has_duty(DISPATCH)
            && let Err(error) = offer(&shared).await
        {
            tracing::warn!(%error, "ready rows were not offered; tried again at once");
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = shared.backlog.notified() => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn offer(shared: &Shared) -> Result<(), crate::Error> {
    let (runs, steps) = shared.room().served();
    let queues: Vec<_> = runs
        .into_iter()
        .map(|(namespace, workflow)| Queue::Run(namespace, workflow))
        .chain(steps.into_iter().map(|(namespace, pool)| Queue::Step(namespace, pool)))
        .collect();
    if queues.is_empty() {
        return Ok(());
    }
    let settings = &shared.settings;
    let offers = shared.store.offer(&queues, settings.window, settings.offer_again).await?;
    let incarnation = shared.incarnation;
    let mut messages = Vec::with_capacity(offers.rows.len());
    for (queue, instance, subject) in offers.rows {
        messages.push(match (queue, subject.call()) {
            (Queue::Run(namespace, workflow), _) => transient(
                topology::run_queue(&namespace, &workflow),
                wire::encode(&RunTask { incarnation, instance }),
            ),
            (Queue::Step(namespace, pool), Some(call)) => transient(
                topology::step_queue(&namespace, &pool),
                wire::encode(&StepTask { incarnation, instance, call }),
            ),
            (Queue::Step(..), None) => continue,
        });
    }
    let mut runs = std::collections::HashSet::new();
    let mut steps = std::collections::HashSet::new();
    for queue in offers.backlog {
        match queue {
            Queue::Run(namespace, workflow) => drop(runs.insert((namespace, workflow))),
            Queue::Step(namespace, pool) => drop(steps.insert((namespace, pool))),
        }
    }
    shared.room().set_backlog(settings.window, runs, steps);
    if !messages.is_empty() {
        shared.broker.send(messages).await?;
    }
    Ok(())
}
