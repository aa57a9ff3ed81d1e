//! Deletes what is past its time, in bounded batches.

use std::{sync::Arc, time::Duration};

use super::duties::CLEAN;
use crate::shared::Shared;

const EVERY: Duration = Duration::from_mins(1);
const LIMIT: u32 = 1_000;

/// Runs until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(EVERY).await;
        while shared.has_duty(CLEAN) {
            match shared.store.clean(LIMIT).await {
                Ok(count) if count >= u64::from(LIMIT) => tokio::task::yield_now().await,
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "cleaning failed; it is tried again in a minute");
                    break;
                }
            }
        }
    }
}
