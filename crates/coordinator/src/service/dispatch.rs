//! Offers what waits in the store: runnable instances and remote steps that were not offered with their own commit, and
//! offers that nobody claimed (rule W15). Priority, fairness and limits will be decided here.

use std::{collections::HashSet, sync::Arc, time::Duration};

use everstep_engine::place::RunQueue;
use everstep_protocol::{
    Millis,
    crash::around,
    message::{RunTask, StepTask},
    topology, wire,
};
use everstep_store::Queue;

use super::duties::DISPATCH;
use crate::{sender::transient, shared::Shared};

const EVERY: Duration = Duration::from_millis(500);

/// Runs until the coordinator stops. One holds the duty and offers; the others only look which queues hold work back, so that
/// each may offer what its own commits make runnable.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let done = if shared.has_duty(DISPATCH) { offer(&shared).await } else { look(&shared).await };
        if let Err(error) = done {
            tracing::warn!(%error, "ready rows were not offered; tried again at once");
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(EVERY) => {}
            () = shared.backlog.notified() => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// The queues that live sessions serve.
pub(crate) fn served(shared: &Shared) -> Vec<Queue> {
    let (runs, steps) = shared.room().served();
    let runs = runs.into_iter().map(|RunQueue { namespace, workflow, build }| match build {
        None => Queue::Run(namespace, workflow),
        Some(build) => Queue::Pinned(namespace, workflow, build),
    });
    runs.chain(steps.into_iter().map(|(namespace, pool)| Queue::Step(namespace, pool))).collect()
}

async fn look(shared: &Shared) -> Result<(), crate::Error> {
    let queues = served(shared);
    if !queues.is_empty() {
        let settings = &shared.settings;
        let backlog = shared.store.backlog(&queues, settings.window, settings.offer_again).await?;
        note(shared, backlog);
    }
    Ok(())
}

/// Every queue may be offered a window more by this coordinator, but for those that hold work back.
fn note(shared: &Shared, backlog: Vec<Queue>) {
    let mut runs = HashSet::new();
    let mut steps = HashSet::new();
    for queue in backlog {
        match queue {
            Queue::Run(namespace, workflow) => {
                runs.insert(RunQueue { namespace, workflow, build: None });
            }
            Queue::Pinned(namespace, workflow, build) => {
                runs.insert(RunQueue { namespace, workflow, build: Some(build) });
            }
            Queue::Step(namespace, pool) => drop(steps.insert((namespace, pool))),
        }
    }
    shared.room().set_backlog(shared.settings.window, runs, steps);
}

async fn offer(shared: &Shared) -> Result<(), crate::Error> {
    let queues = served(shared);
    if queues.is_empty() {
        return Ok(());
    }
    let settings = &shared.settings;
    let again =
        if everstep_protocol::planted("offered_once") { Millis(1 << 40) } else { settings.offer_again };
    let offers = around("commit.offer", shared.store.offer(&queues, settings.window, again)).await?;
    let incarnation = shared.incarnation;
    let mut messages = Vec::with_capacity(offers.rows.len());
    for (queue, instance, subject) in offers.rows {
        messages.push(match (queue, subject.call()) {
            (Queue::Run(namespace, workflow), _) => transient(
                topology::run_queue(&namespace, &workflow),
                wire::encode(&RunTask { incarnation, instance }),
            ),
            (Queue::Pinned(namespace, workflow, build), _) => transient(
                topology::pinned_run_queue(&namespace, &workflow, &build),
                wire::encode(&RunTask { incarnation, instance }),
            ),
            (Queue::Step(namespace, pool), Some(call)) => transient(
                topology::step_queue(&namespace, &pool),
                wire::encode(&StepTask { incarnation, instance, call }),
            ),
            (Queue::Step(..), None) => continue,
        });
    }
    note(shared, offers.backlog);
    if !messages.is_empty() {
        around("publish.offer", shared.broker.send(messages)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Proves that a coordinator without the duty goes on offering, and that an offer that nobody claims is made again. Not: what is offered; see the store's conformance.
    use everstep_broker::{MemoryBroker, QueueDeclaration, QueueKind};
    use everstep_protocol::{
        BuildName, Incarnation, Namespace, SessionId, WorkflowName, message::OpenSession,
    };
    use everstep_store::sqlite::SqliteStore;

    use super::*;
    use crate::{
        Settings,
        rehearsal::{self, Hand, Rehearsal},
    };

    #[tokio::test]
    async fn w15_without_the_duty_the_window_is_renewed_all_the_same() {
        let dir = std::env::temp_dir().join(format!("everstep-dispatch-{}", uuid::Uuid::now_v7()));
        let store = Arc::new(SqliteStore::open(&dir.join("everstep.db")).expect("it opens"));
        let broker = Arc::new(MemoryBroker::new().connection());
        let settings = Settings { window: 2, ..Settings::default() };
        let (shared, _ends) =
            Shared::new(store, broker, settings, Incarnation(1), Arc::new(crate::SystemChance));
        let (namespace, workflow) = (Namespace::default(), WorkflowName::new("w").expect("a valid name"));
        shared.know(OpenSession {
            session: SessionId::generate(),
            namespace: namespace.clone(),
            workflows: vec![workflow.clone()],
            pinned: Vec::new(),
            pools: Vec::new(),
            functions: Vec::new(),
            build: BuildName::new("b").expect("a valid name"),
            inbox: "inbox".to_owned(),
            slots: 1,
            instances: 1,
            host: "host".to_owned(),
        });
        let offers = || (0..3).map(|_| shared.room().offer(&namespace, &workflow, None)).collect::<Vec<_>>();
        assert!(!shared.has_duty(DISPATCH));
        assert_eq!(offers(), [true, true, false]);
        look(&shared).await.expect("the store answers");
        assert_eq!(offers(), [true, true, false]);
        drop(std::fs::remove_dir_all(dir));
    }

    #[tokio::test]
    async fn w15_what_nobody_claims_is_offered_again() {
        let hand = Hand::default();
        let coordinator = Rehearsal::at(&hand);
        let shared = &coordinator.shared;
        let workflow = rehearsal::named("one").workflow;
        let queue = topology::run_queue(&Namespace::default(), &workflow);
        let declaration = QueueDeclaration::new(queue.clone(), QueueKind::Classic);
        shared.broker.declare(vec![declaration.into()]).await.expect("it is declared");
        coordinator.start("one", None).await;
        coordinator.opens().await;
        let offered = async || {
            offer(shared).await.expect("the store answers");
            shared.broker.depth(&queue).await.expect("the broker answers")
        };
        assert_eq!(offered().await, Some(1));
        assert_eq!(offered().await, Some(1), "it has been offered");
        hand.moves(6);
        // Tasks that were not taken may still be there: they are hints.
        assert_eq!(offered().await, Some(2));
    }
}
