//! Records what can never be accepted, then settles it: the row is the record, a copy in the rejected queue a courtesy
//! (rule W17). Never blocks the messages behind it: they are read on meanwhile.

use std::{sync::Arc, time::Duration};

use everstep_broker::{HeaderValue, Outgoing, Properties};
use everstep_protocol::{Epoch, Namespace, Payload, SessionId, crash::around, message::WorkerItem, topology};
use everstep_store::{ErrorKind, MessageName, Rejected};
use tokio::sync::mpsc;

use crate::{
    arrival::Share,
    reply::{self, UNSENT_PAUSE},
    shared::{Rejection, Shared},
};

const PAGE: usize = 100;

/// Codes of reports that prove lost history (rule W2): the engine's own, which no producer waits for.
const SET_ASIDE: [&str; 2] = ["incarnation", "epoch"];

/// Bytes of a rejected body that are kept.
pub(crate) const KEPT_BYTES: usize = 1 << 20;
/// Bytes of the reason in a copy's header: headers have to fit into one frame.
const REASON_BYTES: usize = 1 << 10;

/// Runs until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>, mut rejections: mpsc::UnboundedReceiver<Rejection>) {
    let mut batch = Vec::new();
    while rejections.recv_many(&mut batch, PAGE).await > 0 {
        let records: Vec<_> = batch.iter().map(|rejection| rejection.record.clone()).collect();
        shared.bound.add(&records);
        record(&shared, records).await;
        let mut messages = Vec::new();
        for rejection in &batch {
            shared.metrics.rejected.with_label_values(&[known_code(&rejection.record.code)]).inc();
            messages.extend((!SET_ASIDE.contains(&&*rejection.record.code)).then(|| copy(rejection)));
            messages.extend(rejection.reply.as_ref().map(|(to, reply)| reply::message(to, reply)));
        }
        let handed_over = match around("publish.rejected", shared.broker.send(messages)).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "copies of rejected messages were not sent; their records stand");
                tokio::time::sleep(UNSENT_PAUSE).await;
                false
            }
        };
        for rejection in batch.drain(..) {
            match rejection.message {
                // A copy is a courtesy, a reply is owed: without it the message comes again.
                Some(share) if handed_over || rejection.reply.is_none() => share.done(),
                Some(share) => share.again(),
                None => {}
            }
        }
    }
}

/// Whether an item brings results that exist nowhere else.
pub(crate) const fn is_report(item: &WorkerItem) -> bool {
    matches!(item, WorkerItem::Report(_) | WorkerItem::StepReport { .. })
}

/// Keeps a report that proves lost history, for a person to look at; then its message is settled. It is sent again and again,
/// since nothing may answer it, and recorded once.
pub(crate) fn set_aside(
    shared: &Shared,
    code: &'static str,
    session: SessionId,
    report: &WorkerItem,
    message: Option<Share>,
) {
    let (what, of) = match report {
        WorkerItem::Report(report) => (report.epoch, format!("report-{}", report.number)),
        WorkerItem::StepReport { call, epoch, .. } => {
            (*epoch, format!("step-{}", uuid::Uuid::from_bytes(call.0).simple()))
        }
        other => (Epoch(0), format!("{other:?}")),
    };
    let instance = report.instance();
    let mut body = serde_json::to_vec(report).unwrap_or_default();
    let body_bytes = body.len() as u64;
    body.truncate(KEPT_BYTES);
    let record = Rejected {
        namespace: shared.session(session).map_or_else(Namespace::default, |open| open.namespace.clone()),
        code: code.to_owned(),
        reason: format!(
            "session {session} reports on instance {instance} under epoch {what}, which this installation never gave: \
             the database has lost history"
        ),
        headers: Payload::null(),
        body,
        body_bytes,
        message: Some(MessageName {
            app_id: session.to_string(),
            message_id: format!("{instance}-{what}-{of}"),
        }),
        decided: None,
    };
    if shared.rejections.send(Rejection { record, message, reply: None }).is_err() {
        tracing::debug!("a report is set aside when it comes again: the coordinator is stopping");
    }
}

/// Records them. What the store will never take is recorded without what it may be that the store does not take: one bad
/// record must not keep the others, or itself, for ever.
async fn record(shared: &Shared, records: Vec<Rejected>) {
    if keep(shared, &records).await {
        return;
    }
    for record in records {
        if keep(shared, std::slice::from_ref(&record)).await {
            continue;
        }
        let reduced = Rejected {
            reason:
                "the record of this message was refused by the store; body, headers and reason are left out"
                    .to_owned(),
            headers: Payload::null(),
            body: Vec::new(),
            message: None,
            decided: None,
            ..record
        };
        if !keep(shared, &[reduced]).await {
            tracing::error!("a rejected message could not be recorded in any form");
        }
    }
}

/// Writes records, again and again while the store is away. False if it will never take them.
async fn keep(shared: &Shared, records: &[Rejected]) -> bool {
    let mut pause = Duration::from_millis(50);
    while let Err(error) = around("commit.rejected", shared.store.reject(records)).await {
        match error.kind() {
            ErrorKind::Refused | ErrorKind::Corrupt => {
                tracing::error!(%error, count = records.len(), "records of rejected messages are refused");
                return false;
            }
            ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::NotMigrated | ErrorKind::InUse => {
                tracing::warn!(%error, "rejected messages were not recorded; tried again");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
    true
}

fn copy(rejection: &Rejection) -> Outgoing {
    let record = &rejection.record;
    let mut properties = Properties { persistent: true, ..Properties::default() };
    let mut reason = format!("{}: {}", record.code, record.reason);
    reason.truncate(floor_char_boundary(&reason, REASON_BYTES));
    properties.headers.insert(topology::REASON_HEADER.to_owned(), HeaderValue::Text(reason));
    Outgoing::to_queue(topology::rejected_queue(&record.namespace), record.body.clone()).with(properties)
}

/// The last end of a character at or before a length.
fn floor_char_boundary(text: &str, length: usize) -> usize {
    (0..=length.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default()
}

/// The codes that records are counted by.
pub(crate) const CODES: [&str; 26] = [
    "content_type",
    "body",
    "unknown_field",
    "attributes",
    "hook",
    "hook_retention",
    reply::HOOK_HELD,
    "name",
    "input",
    "too_large",
    "no_identity",
    "conflict",
    reply::NOT_SERVED,
    "reply_to",
    "dead_letter",
    "unwritable",
    "broken",
    "incarnation",
    "epoch",
    reply::ENDED,
    reply::EVENT_ID_TAKEN,
    reply::MAILBOX_FULL,
    reply::NOT_FOUND,
    reply::HOOK_NOT_FOUND,
    reply::PAYLOAD_MISFIT,
    "resume_id_taken",
];

/// Labels stay bounded whatever the record says.
fn known_code(code: &str) -> &'static str {
    CODES.into_iter().find(|known| *known == code).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    //! Proves how a copy is made and that one bad record holds nothing up. Not: what is recorded; see the store's conformance.
    use super::*;

    fn rejected(reason: String) -> Rejected {
        Rejected {
            namespace: Namespace::default(),
            code: "body".to_owned(),
            reason,
            headers: Payload::null(),
            body: b"x".to_vec(),
            body_bytes: 1,
            message: None,
            decided: None,
        }
    }

    #[test]
    fn w17_the_reason_in_a_copy_is_cut_between_characters() {
        let reason = |reason: String| {
            let copy = copy(&Rejection { record: rejected(reason), message: None, reply: None });
            match copy.properties.headers.get(topology::REASON_HEADER) {
                Some(HeaderValue::Text(text)) => text.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(reason("short".to_owned()), "body: short");
        let cut = reason("\u{e9}".repeat(2_000));
        assert_eq!((cut.len(), cut.chars().last()), (REASON_BYTES, Some('\u{e9}')));
        assert_eq!(reason(format!("x{}", "\u{e9}".repeat(2_000))).len(), REASON_BYTES - 1);
    }
}
