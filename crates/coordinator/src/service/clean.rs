//! Deletes what is past its time, in bounded batches: ended instances whose retention is over (rule P32), journals of deleted
//! instances, records.

use std::{sync::Arc, time::Duration};

use everstep_engine::{Answer, Input, What};
use everstep_protocol::crash::around;
use everstep_store::Error;

use super::duties::CLEAN;
use crate::{arrival::Arrival, shared::Shared};

const EVERY: Duration = Duration::from_mins(1);
const LIMIT: u32 = 1_000;
/// Instances deleted in one round, before journals are removed.
const INSTANCES: u32 = 100;

/// Runs until the coordinator stops. Whoever deletes an instance wakes it, if it has the duty.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(EVERY) => {}
            () = shared.sweep.notified() => {}
        }
        while shared.has_duty(CLEAN) {
            match round(&shared).await {
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "cleaning failed; it is tried again in a minute");
                    break;
                }
            }
        }
    }
}

/// One bounded round. True if there may be more to do.
async fn round(shared: &Arc<Shared>) -> Result<bool, Error> {
    let (found, deleted) = expire(shared).await?;
    let swept = around("commit.sweep", shared.store.sweep(LIMIT)).await?;
    let cleaned = around("commit.clean", shared.store.clean(LIMIT)).await?;
    Ok((found >= INSTANCES && deleted > 0) || swept >= u64::from(LIMIT) || cleaned >= u64::from(LIMIT))
}

/// Deletes instances through the loop, like everything that is done to them. Answers with how many were past their time, and how
/// many of them are gone.
async fn expire(shared: &Arc<Shared>) -> Result<(u32, u32), Error> {
    let expired = shared.store.expired(INSTANCES).await?;
    let mut answers = Vec::with_capacity(expired.len());
    for instance in expired {
        let (arrival, answer) = Arrival::answered(Input::On { instance, what: What::Expire });
        shared.submit(arrival);
        answers.push(answer);
    }
    let (found, mut deleted) = (answers.len() as u32, 0);
    for answer in answers {
        deleted += u32::from(matches!(answer.await, Ok(Ok(told)) if told.answer == Answer::Done));
    }
    Ok((found, deleted))
}
