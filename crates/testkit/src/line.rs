//! The worker's way to the broker, on which it may die before or after each report.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use everstep_broker::{
    Broker, Confirmation, Consume, Consumer, Declaration, Error, Health, MemoryBroker, Outgoing,
};
use everstep_protocol::{
    message::{AttemptEnd, AttemptOutcome, FromWorker, LedgerItem, Report, Then, WorkerItem},
    wire,
};
use tokio::sync::watch;

use crate::{life::Life, stage::Board};

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) inner: MemoryBroker,
    pub(crate) life: Arc<Life>,
    pub(crate) board: Arc<Board>,
}

impl Line {
    /// What reports among these messages say, if any.
    fn reports(&self, messages: &[Outgoing]) -> Option<String> {
        let mut reports = Vec::new();
        for message in messages {
            let decoded = wire::decode::<FromWorker>("message of a worker", &message.body);
            let Ok(message) = decoded else { continue };
            reports.extend(message.items.iter().filter_map(|item| self.report(item)));
        }
        (!reports.is_empty()).then(|| reports.join("; "))
    }

    fn report(&self, item: &WorkerItem) -> Option<String> {
        let said = match item {
            WorkerItem::Report(report) => said(report),
            WorkerItem::StepReport { outcome, .. } => format!("a remote step {}", word(outcome)),
            WorkerItem::Claim { .. }
            | WorkerItem::GiveBack { .. }
            | WorkerItem::Ask { .. }
            | WorkerItem::StepClaim { .. }
            | WorkerItem::StepGiveBack { .. } => return None,
        };
        Some(format!("{}: {said}", self.board.name(item.instance())))
    }
}

fn said(report: &Report) -> String {
    let results = report.results.iter().map(|AttemptEnd { call, attempt, outcome, .. }| {
        format!("{call}, attempt {attempt}, {}", word(outcome))
    });
    let opened = report.opened.iter().map(|open| format!("{} opened", open.call));
    let then = match &report.then {
        Then::Continue => None,
        Then::Suspend => Some("suspended".to_owned()),
        Then::End(_) => Some("ended".to_owned()),
        Then::Again(_) => Some("went on as new".to_owned()),
        Then::Park(_) => Some("parked".to_owned()),
    };
    let ledger = report.ledger.iter().map(|item| match item {
        LedgerItem::Intend(intent) => format!("{}, attempt {}, announced", intent.call, intent.attempt),
        LedgerItem::Withdraw(withdrawn) => {
            format!("{}, attempt {}, withdrawn", withdrawn.call, withdrawn.attempt)
        }
        LedgerItem::Dropped(end) => format!("{}, attempt {}, dropped", end.call, end.attempt),
    });
    results.chain(opened).chain(ledger).chain(then).collect::<Vec<_>>().join(", ")
}

const fn word(outcome: &AttemptOutcome) -> &'static str {
    match outcome {
        AttemptOutcome::Succeeded(_) => "succeeded",
        AttemptOutcome::Failed { .. } => "failed",
        AttemptOutcome::Unknown { .. } => "unknown",
    }
}

#[async_trait]
impl Broker for Line {
    async fn declare(&self, topology: Vec<Declaration>) -> Result<(), Error> {
        self.inner.declare(topology).await
    }

    async fn send(&self, messages: Vec<Outgoing>) -> Result<(), Error> {
        let reports = self.reports(&messages);
        if let Some(reports) = &reports {
            self.life.pass(|| format!("before the report ({reports})")).await;
        } else if self.life.is_over() {
            std::future::pending::<()>().await;
        }
        self.inner.send(messages).await?;
        if let Some(reports) = &reports {
            self.life.pass(|| format!("after the report ({reports})")).await;
        }
        Ok(())
    }

    async fn send_confirmed(
        &self,
        messages: Vec<Outgoing>,
        mandatory: bool,
    ) -> Result<Vec<Confirmation>, Error> {
        self.inner.send_confirmed(messages, mandatory).await
    }

    async fn consume(&self, consume: Consume) -> Result<Consumer, Error> {
        self.inner.consume(consume).await
    }

    async fn unroutable(&self, queues: Vec<String>, body: Bytes) -> Result<Vec<String>, Error> {
        self.inner.unroutable(queues, body).await
    }

    async fn depth(&self, queue: &str) -> Result<Option<u32>, Error> {
        self.inner.depth(queue).await
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.inner.health()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
