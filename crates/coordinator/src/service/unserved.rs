//! Says what waits for a worker that is not there: a metric for each workflow or pool, and one line a minute in the log.

use std::{sync::Arc, time::Duration};

use everstep_store::Queue;
use tokio::time::Instant;

use super::{dispatch::served, duties::DISPATCH};
use crate::{Error, shared::Shared};

/// How often it looks.
const EVERY: Duration = Duration::from_secs(15);
/// How often it says so in the log.
const SAY_EVERY: Duration = Duration::from_mins(1);
/// The most queues that are named: names come from outside, and there may be any number of them.
const NAMED: u32 = 20;

/// Runs until the coordinator stops; whoever offers looks. After a start workers have a while to come.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut said: Option<Instant> = None;
    loop {
        tokio::time::sleep(EVERY).await;
        if !shared.has_duty(DISPATCH) {
            note(&shared, &[]);
            continue;
        }
        match look(&shared).await {
            Ok(unserved) if unserved.is_empty() || said.is_some_and(|said| said.elapsed() < SAY_EVERY) => {}
            Ok(unserved) => {
                said = Some(Instant::now());
                tracing::warn!(waiting = words(&unserved), "no worker serves what is ready to run");
            }
            Err(error) => tracing::warn!(%error, "whether everything ready is served is not known"),
        }
    }
}

async fn look(shared: &Shared) -> Result<Vec<(Queue, u64)>, Error> {
    let unserved = shared.store.unserved(&served(shared), NAMED).await?;
    note(shared, &unserved);
    Ok(unserved)
}

/// What is served by now is not named any more.
fn note(shared: &Shared, unserved: &[(Queue, u64)]) {
    let gauge = &shared.metrics.unserved;
    gauge.reset();
    for (queue, count) in unserved {
        gauge.with_label_values(&[&queue.to_string()]).set(i64::try_from(*count).unwrap_or(i64::MAX));
    }
}

fn words(unserved: &[(Queue, u64)]) -> String {
    unserved.iter().map(|(queue, count)| format!("{count} of {queue}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    //! Proves what is named and counted. Not: what the store counts; see its conformance.
    use everstep_broker::MemoryBroker;
    use everstep_protocol::{
        BuildName, Incarnation, Namespace, SessionId, WorkflowName, message::OpenSession,
    };
    use everstep_store::sqlite::SqliteStore;

    use super::*;
    use crate::Settings;

    fn session(workflow: &str) -> OpenSession {
        OpenSession {
            session: SessionId::generate(),
            namespace: Namespace::default(),
            workflows: vec![WorkflowName::new(workflow).expect("a valid name")],
            pinned: Vec::new(),
            pools: Vec::new(),
            functions: Vec::new(),
            build: BuildName::new("b").expect("a valid name"),
            inbox: "inbox".to_owned(),
            slots: 1,
            instances: 1,
            host: "host".to_owned(),
        }
    }

    #[tokio::test]
    async fn o22_what_waits_for_nobody_is_named_and_counted_until_somebody_comes() {
        let dir = std::env::temp_dir().join(format!("everstep-unserved-{}", uuid::Uuid::now_v7()));
        let store = Arc::new(SqliteStore::open(&dir.join("everstep.db")).expect("it opens"));
        let broker = Arc::new(MemoryBroker::new().connection());
        let (shared, _ends) =
            Shared::new(store, broker, Settings::default(), Incarnation(1), Arc::new(crate::SystemChance));
        let row = |workflow: &str| everstep_engine::batch::ReadyRow {
            uid: everstep_protocol::InstanceUid::generate(),
            subject: everstep_engine::rows::Subject::INSTANCE,
            namespace: Namespace::default(),
            workflow: WorkflowName::new(workflow).expect("a valid name"),
            build: None,
            pool: None,
            ready_at: everstep_protocol::Timestamp(1),
            offered: false,
        };
        let ready = ["ghost", "ghost", "known"].map(row).to_vec();
        let writes = everstep_engine::Writes { ready, ..everstep_engine::Writes::default() };
        shared
            .store
            .transact(everstep_engine::rows::Needs::default(), Box::new(|_| writes))
            .await
            .expect("it is written");
        shared.know(session("known"));
        let unserved = look(&shared).await.expect("the store answers");
        assert_eq!(words(&unserved), "2 of workflow ghost");
        assert_eq!(shared.metrics.unserved.with_label_values(&["workflow ghost"]).get(), 2);
        shared.know(session("ghost"));
        assert_eq!(words(&look(&shared).await.expect("the store answers")), "");
        let families = shared.metrics.registry.gather();
        let named = families.iter().any(|family| family.name() == "everstep_unserved");
        assert!(!named, "who is served is not named any more");
        drop(std::fs::remove_dir_all(dir));
    }
}
