//! Records what can never be accepted, then settles it: the row is the record, a copy in the rejected queue a courtesy
//! (rule W17). Never blocks the messages behind it: they are read on meanwhile.

use std::{sync::Arc, time::Duration};

use everstep_broker::{HeaderValue, Outgoing, Properties};
use everstep_protocol::topology;
use tokio::sync::mpsc;

use crate::{
    sender,
    shared::{Rejection, Shared},
};

const PAGE: usize = 100;

/// Runs until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>, mut rejections: mpsc::UnboundedReceiver<Rejection>) {
    let mut batch = Vec::new();
    while rejections.recv_many(&mut batch, PAGE).await > 0 {
        let records: Vec<_> = batch.iter().map(|rejection| rejection.record.clone()).collect();
        let mut pause = Duration::from_millis(50);
        while let Err(error) = shared.store.reject(&records).await {
            tracing::warn!(%error, "rejected messages were not recorded; tried again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
        let mut messages = Vec::new();
        for rejection in &batch {
            shared.metrics.rejected.with_label_values(&[known_code(&rejection.record.code)]).inc();
            messages.push(copy(rejection));
            messages.extend(rejection.reply.as_ref().map(|(to, reply)| sender::reply(to, reply)));
        }
        if let Err(error) = shared.broker.send(messages).await {
            tracing::warn!(%error, "copies of rejected messages were not sent; their records stand");
        }
        for rejection in batch.drain(..) {
            if let Some(share) = rejection.message {
                share.done();
            }
        }
    }
}

fn copy(rejection: &Rejection) -> Outgoing {
    let record = &rejection.record;
    let mut properties = Properties { persistent: true, ..Properties::default() };
    let reason = format!("{}: {}", record.code, record.reason);
    properties.headers.insert(topology::REASON_HEADER.to_owned(), HeaderValue::Text(reason));
    Outgoing::to_queue(topology::rejected_queue(&record.namespace), record.body.clone()).with(properties)
}

/// Labels stay bounded whatever the record says.
fn known_code(code: &str) -> &'static str {
    const CODES: [&str; 11] = [
        "content_type",
        "body",
        "unknown_field",
        "not_supported",
        "name",
        "input",
        "too_large",
        "no_identity",
        "conflict",
        "reply_to",
        "dead_letter",
    ];
    CODES.into_iter().find(|known| *known == code).unwrap_or("other")
}
