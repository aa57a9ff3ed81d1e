//! Ends cancelled instances that did not end by themselves in time (rule P30).

use std::{sync::Arc, time::Duration};

use everstep_engine::{Input, What};

use super::duties::TIMERS;
use crate::{arrival::Arrival, shared::Shared};

const EVERY: Duration = Duration::from_secs(1);
const PAGE: u32 = 256;

/// Runs until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(EVERY).await;
        if !shared.has_duty(TIMERS) {
            continue;
        }
        match shared.store.overdue(PAGE).await {
            Ok(overdue) => {
                let mut answers = Vec::with_capacity(overdue.len());
                for instance in overdue {
                    let (arrival, answer) = Arrival::answered(Input::On { instance, what: What::Overdue });
                    shared.submit(arrival);
                    answers.push(answer);
                }
                for answer in answers {
                    // One that was given up is found again.
                    drop(answer.await);
                }
            }
            Err(error) => tracing::warn!(%error, "overdue cancels were not read; tried again in a second"),
        }
    }
}
