//! Asks store and broker for what the doctor is told. Each question has a deadline, so that one that is away hides nothing else.

use std::{collections::BTreeSet, time::Duration};

use everstep_store::Error as StoreError;
use tokio::time::timeout;

use super::Handle;
use crate::{
    doctor::{Diagnosis, Facts, StoreFacts, diagnose},
    service::{duties, served},
    shared::Shared,
};

/// How long store and broker may take.
const WITHIN: Duration = Duration::from_secs(5);
/// The most queues that are shown of those that nobody serves.
const OTHERS: u32 = 100;

impl Handle {
    /// Looks at the state of the installation, as far as this coordinator sees it.
    pub async fn diagnose(&self) -> Diagnosis {
        let shared = &self.shared;
        let topology = crate::coordinator::topology(shared);
        let looks = async {
            tokio::join!(timeout(WITHIN, store(shared)), timeout(WITHIN, shared.broker.drifted(topology)))
        };
        let (store, drift) = looks.await;
        let store = match store {
            Ok(facts) => facts.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", WITHIN.as_secs())),
        };
        let health = shared.broker.health().borrow().clone();
        let reason = || health.last_error.as_deref().unwrap_or("not connected").to_owned();
        diagnose(&Facts {
            store,
            broker: (!(health.publishing && health.consuming)).then(reason),
            blocked: health.blocked,
            drift: drift.ok().and_then(Result::ok),
            served: served(shared).iter().map(ToString::to_string).collect::<BTreeSet<_>>(),
            still: shared.still(),
            stopped: shared.bound.stopped_now(),
            duties: &duties::ALL,
            heartbeat: shared.settings.heartbeat,
            lease: shared.settings.lease,
        })
    }
}

async fn store(shared: &Shared) -> Result<StoreFacts, StoreError> {
    let store = &shared.store;
    Ok(StoreFacts {
        checkup: store.checkup().await?,
        sessions: store.sessions().await?,
        depths: store.depths(&served(shared), OTHERS).await?,
        attention: store.attention_counts().await?,
        orphans: !store.orphans(1).await?.is_empty(),
    })
}
