//! Measures what the records of rejected messages take, so that intake stops before they fill the disk (rule W17).

use std::{sync::Arc, time::Duration};

use crate::shared::Shared;

const EVERY: Duration = Duration::from_secs(5);

/// Runs until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let namespaces = &shared.settings.namespaces;
    loop {
        match shared.store.rejected_bytes(namespaces).await {
            Ok(sizes) => {
                for (namespace, bytes) in namespaces.iter().zip(sizes) {
                    shared.bound.measured(namespace, bytes);
                }
            }
            Err(error) => tracing::warn!(%error, "rejected records were not measured; tried again"),
        }
        // Reaching the bound is noticed at once where it happens, and everywhere at the next measure.
        drop(tokio::time::timeout(EVERY, shared.bound.near.notified()).await);
    }
}
