//! Reports: decodes what workers send, item by item an input of its own, all shares of one message (rule W16).

use std::sync::Arc;

use everstep_broker::{Consume, Incoming, QueueDeclaration, QueueKind, Settle};
use everstep_engine::{Input, What};
use everstep_protocol::{
    BuildName, SessionId,
    crash::at,
    message::{FromWorker, WorkerItem},
    topology, wire,
};
use everstep_store::Range;

use super::rejections;
use crate::{
    arrival::{Arrival, Share},
    sender::{self, Asked},
    shared::Shared,
};

/// Declares a report queue; coordinators and workers alike.
pub(crate) fn report_queue(index: u32) -> QueueDeclaration {
    let mut queue = QueueDeclaration::new(topology::report_queue(index), QueueKind::Classic);
    queue.single_active_consumer = true;
    queue
}

/// Reads one report queue.
pub(crate) async fn run(shared: Arc<Shared>, index: u32) -> Result<(), crate::Error> {
    let consume = Consume { queue: report_queue(index).into(), prefetch: shared.settings.report_prefetch };
    let mut consumer = shared.broker.consume(consume).await?;
    loop {
        if let Incoming::Delivery(delivery) = consumer.next().await {
            shared.metrics.messages.inc("report");
            let (message, settle) = delivery.split();
            match wire::decode::<FromWorker>("report", &message.body) {
                Ok(envelope) if envelope.incarnation == shared.incarnation => {
                    take(&shared, envelope, settle).await;
                }
                Ok(envelope) => {
                    tracing::error!(session = %envelope.session, incarnation = %envelope.incarnation,
                        "a report of another incarnation is set aside");
                    shared.metrics.set_aside.inc();
                    let FromWorker { session, items, .. } = envelope;
                    let reports: Vec<_> = items.into_iter().filter(rejections::is_report).collect();
                    let parts = Share::divide(settle, reports.len());
                    for (report, share) in reports.iter().zip(parts) {
                        rejections::set_aside(&shared, "incarnation", session, report, Some(share));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a message on a report queue is dropped");
                    shared.metrics.unreadable.with_label_values(&["report"]).inc();
                    at("ack.dropped", || settle.ack());
                }
            }
        }
    }
}

async fn take(shared: &Arc<Shared>, envelope: FromWorker, settle: Settle) {
    let FromWorker { session, credits, items, .. } = envelope;
    for credit in credits {
        if credit.coordinator == shared.id {
            shared.room().credit(session, credit.limit);
        }
    }
    let Some(build) = build_of(shared, session).await else {
        // Its leases are gone or will be; the session learns it from its next heartbeat (rule W10).
        tracing::debug!(%session, "a report of a session that is not known is dropped");
        at("ack.dropped", || settle.ack());
        return;
    };
    let mut asked = Vec::new();
    let mut inputs = Vec::with_capacity(items.len());
    for item in items {
        match input(item, session, &build) {
            Item::Input(input) => inputs.push(input),
            Item::Ask(ask) => asked.push(ask),
        }
    }
    if !asked.is_empty() {
        let shared = Arc::clone(shared);
        tokio::spawn(async move { answer(&shared, session, asked).await });
    }
    let parts = Share::divide(settle, inputs.len());
    for (input, share) in inputs.into_iter().zip(parts) {
        shared.submit(Arrival::from_message(input, share));
    }
}

/// The build of a session, which stands in every attempt record. A session opened elsewhere is looked up once.
async fn build_of(shared: &Shared, session: SessionId) -> Option<BuildName> {
    if let Some(open) = shared.session(session) {
        return Some(open.build.clone());
    }
    super::sessions::refresh(shared).await;
    shared.session(session).map(|open| open.build.clone())
}

#[allow(clippy::large_enum_variant, reason = "nearly every item is the large one")]
enum Item {
    Input(Input),
    Ask(Wanted),
}

/// Entries that a worker asks for: a read under no lock, for an instance that it says it holds.
struct Wanted {
    instance: everstep_protocol::InstanceUid,
    epoch: everstep_protocol::Epoch,
    run: everstep_protocol::Run,
    after: everstep_protocol::Position,
}

fn input(item: WorkerItem, session: SessionId, build: &BuildName) -> Item {
    let instance = item.instance();
    let build = build.clone();
    let what = match item {
        WorkerItem::Claim { have, .. } => What::Claim { session, have },
        WorkerItem::Report(report) => What::Report { session, build, report },
        WorkerItem::GiveBack { epoch, .. } => What::GiveBack { session, epoch },
        WorkerItem::StepClaim { call, .. } => What::StepClaim { session, call },
        WorkerItem::StepReport { call, epoch, ran_for, outcome, progress, found, reference, .. } => {
            What::StepReport { session, build, call, epoch, ran_for, outcome, progress, found, reference }
        }
        WorkerItem::StepGiveBack { call, epoch, unstarted, .. } => What::StepLeaseEnded {
            session,
            build,
            call,
            epoch: Some(epoch),
            counts: false,
            unstarted,
            progress: None,
        },
        WorkerItem::Ask { epoch, run, after, .. } => {
            return Item::Ask(Wanted { instance, epoch, run, after });
        }
    };
    Item::Input(Input::On { instance, what })
}

async fn answer(shared: &Shared, session: SessionId, wanted: Vec<Wanted>) {
    let asked = wanted
        .into_iter()
        .map(|wanted| Asked {
            range: Range { uid: wanted.instance, run: wanted.run, after: wanted.after },
            epoch: wanted.epoch,
        })
        .collect();
    if !sender::send_entries(shared, session, asked).await {
        tracing::debug!(%session, "entries were not sent; the worker asks again");
    }
}
