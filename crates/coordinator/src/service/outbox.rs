//! Publishes lifecycle messages with confirms, and the holder of the duty publishes again what was never confirmed. A row
//! leaves the outbox only after its confirm: at least once, with a stable message id.

use std::{sync::Arc, time::Duration};

use everstep_broker::{Confirmation, Outgoing, Properties};
use everstep_engine::lifecycle::Lifecycle;
use everstep_protocol::{InstanceUid, Millis, Run, crash::around, topology};
use tokio::sync::mpsc;

use super::duties::OUTBOX;
use crate::{shared::Shared, traces};

const PAGE: usize = 500;
const EVERY: Duration = Duration::from_secs(5);
/// A row that is older was lost between commit and publication, or its confirm was.
const OLDER: Millis = Millis(10_000);

/// Publishes what the loop's commits put in the outbox.
pub(crate) async fn run(shared: Arc<Shared>, mut lifecycles: mpsc::UnboundedReceiver<Lifecycle>) {
    let mut batch = Vec::new();
    while lifecycles.recv_many(&mut batch, PAGE).await > 0 {
        let messages = batch
            .drain(..)
            .map(|lifecycle: Lifecycle| {
                let row = (lifecycle.instance, lifecycle.head.run);
                (row, message(lifecycle.routing_key(), lifecycle.message_id(), lifecycle.body()))
            })
            .collect();
        publish(&shared, messages).await;
    }
}

/// Publishes again what stayed in the outbox, and deletes confirmed rows when no batch does.
pub(crate) async fn repeat(shared: Arc<Shared>) {
    let mut ticks = 0_u32;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let sent = shared.take_sent();
        if !sent.is_empty() && around("commit.outbox", shared.store.sent(&sent)).await.is_err() {
            shared.add_sent(sent);
        }
        ticks += 1;
        if u64::from(ticks).is_multiple_of(EVERY.as_secs()) && shared.has_duty(OUTBOX) {
            again(&shared).await;
        }
    }
}

async fn again(shared: &Shared) {
    match shared.store.outbox(OLDER, PAGE as u32).await {
        Ok(rows) if rows.is_empty() => {}
        Ok(rows) => {
            let messages = rows
                .into_iter()
                .map(|row| ((row.uid, row.run), message(row.routing_key, row.message_id, row.body)))
                .collect();
            publish(shared, messages).await;
        }
        Err(error) => tracing::warn!(%error, "the outbox was not read; tried again in seconds"),
    }
}

async fn publish(shared: &Shared, mut batch: Vec<((InstanceUid, Run), Outgoing)>) {
    let spans = traces::sending(shared, &mut batch).await;
    let (rows, messages): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    shared.metrics.messages_sent.inc_by(messages.len() as u64);
    match around("publish.lifecycle", shared.broker.send_confirmed(messages, false)).await {
        Ok(confirmations) => {
            let mut sent = Vec::with_capacity(rows.len());
            for (at, (row, confirmation)) in rows.into_iter().zip(confirmations).enumerate() {
                let (outcome, done) = match confirmation {
                    Confirmation::Confirmed | Confirmation::Unroutable => ("confirmed", true),
                    Confirmation::Refused => ("refused", false),
                    Confirmation::Unknown => ("unknown", false),
                };
                if !done && let Some(Some(span)) = spans.get(at) {
                    span.failed(outcome);
                }
                shared.metrics.lifecycles.with_label_values(&[outcome]).inc();
                if done {
                    sent.push(row);
                }
            }
            shared.add_sent(sent);
        }
        Err(error) => {
            for span in spans.iter().flatten() {
                span.failed("unavailable");
            }
            tracing::warn!(%error, messages = rows.len(), "lifecycle messages stay in the outbox");
        }
    }
}

fn message(routing_key: String, message_id: String, body: String) -> Outgoing {
    Outgoing::to_exchange(topology::LIFECYCLE_EXCHANGE, routing_key, body.into_bytes()).with(Properties {
        message_id: Some(message_id),
        app_id: Some("everstep".to_owned()),
        content_type: Some("application/json".to_owned()),
        persistent: true,
        ..Properties::default()
    })
}
