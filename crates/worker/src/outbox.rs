//! Packs what the work loop wants to say into messages: one per report queue and flush, in parts of 512 KiB (rule W20).

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use everstep_broker::{Outgoing, Properties, Settle};
use everstep_protocol::{
    Failure, Incarnation, Payload, SessionId,
    journal::{Undone, UndoneEnd},
    limits::PART_BYTES,
    message::{
        AttemptEnd, AttemptOutcome, Credit, FromWorker, LedgerItem, Open, OpenWait, Report, Then, WorkerItem,
    },
    topology, wire,
};

/// What an item has around its payloads, at most about.
const FRAME_BYTES: usize = 400;

/// What the work loop hands to the sender in one go.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) session: SessionId,
    pub(crate) incarnation: Incarnation,
    /// The items, with the time after which each is worth nothing.
    pub(crate) items: Vec<(WorkerItem, Duration)>,
    /// Tasks that were answered by these items: settled once they are handed over.
    pub(crate) settles: Vec<Settle>,
}

/// Gathers items by report queue.
#[derive(Debug)]
pub(crate) struct Outbox {
    queues: u32,
    /// The credits that each queue was told last.
    told: BTreeMap<u32, Vec<Credit>>,
    gathered: BTreeMap<(u32, SessionId, Incarnation), Vec<(WorkerItem, Duration)>>,
    settles: Vec<Settle>,
}

impl Outbox {
    pub(crate) fn new(queues: u32) -> Self {
        Self { queues, told: BTreeMap::new(), gathered: BTreeMap::new(), settles: Vec::new() }
    }

    pub(crate) fn add(&mut self, parcel: Parcel) {
        for (item, life) in parcel.items {
            let queue = topology::report_index(item.instance(), self.queues);
            let key = (queue, parcel.session, parcel.incarnation);
            self.gathered.entry(key).or_default().push((item, life));
        }
        self.settles.extend(parcel.settles);
    }

    /// The messages to send now, and the tasks to settle once they are handed over.
    pub(crate) fn flush(&mut self, credits: &[Credit]) -> (Vec<Outgoing>, Vec<Settle>) {
        let mut messages = Vec::with_capacity(self.gathered.len());
        for ((queue, session, incarnation), items) in std::mem::take(&mut self.gathered) {
            let news = self.told.get(&queue).is_none_or(|told| told != credits);
            let mut credits = if news { credits.to_vec() } else { Vec::new() };
            if news {
                self.told.insert(queue, credits.clone());
            }
            for (items, life) in parts(items) {
                let credits = std::mem::take(&mut credits);
                let body = wire::encode(&FromWorker { incarnation, session, credits, items });
                messages.push(transient(topology::report_queue(queue), body, life));
            }
        }
        (messages, std::mem::take(&mut self.settles))
    }
}

/// An engine message: not persistent, dropped when its sender would have sent it again (rule W7).
pub(crate) fn transient(queue: String, body: Bytes, life: Duration) -> Outgoing {
    let expiration_ms = Some(u32::try_from(life.as_millis()).unwrap_or(u32::MAX));
    Outgoing::to_queue(queue, body).with(Properties { expiration_ms, ..Properties::default() })
}

fn parts(items: Vec<(WorkerItem, Duration)>) -> Vec<(Vec<WorkerItem>, Duration)> {
    let mut parts: Vec<(Vec<WorkerItem>, Duration)> = Vec::new();
    let mut bytes = 0;
    for (item, life) in items {
        let size = item_bytes(&item);
        match parts.last_mut() {
            Some((part, longest)) if bytes + size <= PART_BYTES => {
                part.push(item);
                *longest = (*longest).max(life);
                bytes += size;
            }
            _ => {
                parts.push((vec![item], life));
                bytes = size;
            }
        }
    }
    parts
}

fn item_bytes(item: &WorkerItem) -> usize {
    match item {
        WorkerItem::Report(report) => report_bytes(report),
        WorkerItem::StepReport { outcome, progress, .. } => {
            FRAME_BYTES + outcome_bytes(outcome) + progress.as_ref().map_or(0, Payload::len)
        }
        WorkerItem::Claim { .. }
        | WorkerItem::GiveBack { .. }
        | WorkerItem::Ask { .. }
        | WorkerItem::StepClaim { .. }
        | WorkerItem::StepGiveBack { .. } => FRAME_BYTES,
    }
}

fn report_bytes(report: &Report) -> usize {
    let results: usize = report.results.iter().map(end_bytes).sum();
    let opened: usize = report.opened.iter().map(open_bytes).sum();
    let then = match &report.then {
        Then::Continue | Then::Suspend => 0,
        Then::End(everstep_protocol::journal::End::Complete(output)) => output.len(),
        Then::Again(again) => again.input.len(),
        Then::End(_) | Then::Park(_) => FRAME_BYTES,
    };
    let closed: usize = report.closed.iter().map(|closed| 64 + closed.call.name.as_str().len()).sum();
    let shown = report.state.as_ref().map_or(0, Payload::len) + 400 * report.attributes.len();
    let undone = |undone: &Undone| match &undone.end {
        UndoneEnd::Failed(failure) => FRAME_BYTES + failure_bytes(failure),
        UndoneEnd::Done | UndoneEnd::Skipped => FRAME_BYTES,
    };
    let compensated: usize = report.compensated.iter().flat_map(|over| &over.steps).map(undone).sum();
    let ledger: usize = report.ledger.iter().map(ledger_bytes).sum();
    FRAME_BYTES + results + opened + closed + then + compensated + shown + ledger
}

fn ledger_bytes(item: &LedgerItem) -> usize {
    match item {
        LedgerItem::Intend(intent) => FRAME_BYTES + intent.call.name.as_str().len(),
        LedgerItem::Withdraw(withdrawn) => FRAME_BYTES + withdrawn.call.name.as_str().len(),
        LedgerItem::Dropped(end) => end_bytes(end),
    }
}

/// About how many bytes the end of an attempt takes in a message.
pub(crate) fn end_bytes(end: &AttemptEnd) -> usize {
    FRAME_BYTES + end.call.name.as_str().len() + outcome_bytes(&end.outcome)
}

fn open_bytes(open: &Open) -> usize {
    let input = match &open.wait {
        OpenWait::Remote(remote) => remote.input.len(),
        OpenWait::Event { types, .. } => types.iter().map(|kind| kind.as_str().len()).sum(),
        OpenWait::Child(child) => {
            let metadata = child.hook.as_ref().map(|hook| hook.metadata.as_ref().map_or(0, Payload::len));
            child.input.len() + metadata.map_or(0, |bytes| 1024 + bytes)
        }
        OpenWait::Send(sending) => sending.payload.len(),
        OpenWait::Hook(hook) => 1024 + hook.bytes(),
        OpenWait::Reply(reply) => 1024 + reply.response.bytes(),
        OpenWait::Resume(resuming) => 1024 + resuming.payload.len(),
        OpenWait::Payload(_) => 1024,
        OpenWait::Sleep(_) | OpenWait::SleepUntil(_) | OpenWait::Patch | OpenWait::Instance(_) => 0,
        OpenWait::Rollback { failure, .. } => failure.as_ref().map_or(0, failure_bytes),
    };
    FRAME_BYTES + open.call.name.as_str().len() + input
}

fn outcome_bytes(outcome: &AttemptOutcome) -> usize {
    match outcome {
        AttemptOutcome::Succeeded(output) => output.len(),
        AttemptOutcome::Failed { failure, .. } | AttemptOutcome::Unknown { failure, .. } => {
            failure_bytes(failure)
        }
    }
}

pub(crate) fn failure_bytes(failure: &Failure) -> usize {
    failure.message.len() + failure.data.as_ref().map_or(0, Payload::len)
}

#[cfg(test)]
mod tests {
    //! Proves how items are packed. Not: that they arrive.
    use everstep_protocol::{Epoch, FailureKind, InstanceUid, Millis, Payload};

    use super::*;

    fn parcel(items: Vec<WorkerItem>) -> Parcel {
        let life = Duration::from_secs(1);
        Parcel {
            session: SessionId::generate(),
            incarnation: Incarnation(1),
            items: items.into_iter().map(|item| (item, life)).collect(),
            settles: Vec::new(),
        }
    }

    fn sizes(messages: &[Outgoing]) -> Vec<usize> {
        let read = |message: &Outgoing| wire::decode::<FromWorker>("message", &message.body).unwrap();
        messages.iter().map(|message| read(message).items.len()).collect()
    }

    #[test]
    fn w16_one_message_per_queue_and_flush() {
        let instance = InstanceUid::generate();
        let mut outbox = Outbox::new(4);
        outbox.add(parcel(vec![
            WorkerItem::Claim { instance, have: None },
            WorkerItem::Claim { instance, have: None },
        ]));
        let (messages, _) = outbox.flush(&[]);
        assert_eq!(sizes(&messages), [2]);
        let queue = topology::report_queue(topology::report_index(instance, 4));
        assert_eq!(messages[0].routing_key, queue);
        assert_eq!(messages[0].properties.expiration_ms, Some(1000));
        assert!(!messages[0].properties.persistent);
        assert!(outbox.flush(&[]).0.is_empty());
    }

    #[test]
    fn w20_messages_are_split_at_512_kib() {
        let instance = InstanceUid::generate();
        let item = |bytes: usize| WorkerItem::StepReport {
            instance,
            call: everstep_protocol::CallHash([0; 16]),
            epoch: Epoch(1),
            ran_for: Millis(1),
            outcome: AttemptOutcome::Succeeded(Payload::encode(&"x".repeat(bytes)).unwrap()),
            progress: None,
            found: false,
            reference: None,
        };
        let mut outbox = Outbox::new(1);
        outbox.add(parcel(vec![item(200_000), item(200_000), item(200_000), item(900_000), item(1)]));
        let (messages, _) = outbox.flush(&[]);
        assert_eq!(sizes(&messages), [2, 1, 1, 1]);
        let failure = Failure::new(FailureKind::Error, "x".repeat(300_000));
        assert!(outcome_bytes(&AttemptOutcome::Failed { failure, retry_in: None }) >= 300_000);
    }

    #[test]
    fn w35_credits_are_told_when_they_change() {
        let instance = InstanceUid::generate();
        let credit = Credit { coordinator: everstep_protocol::CoordinatorId::generate(), limit: 7 };
        let mut outbox = Outbox::new(1);
        let mut told = |credits: &[Credit]| {
            outbox.add(parcel(vec![WorkerItem::Claim { instance, have: None }]));
            let (messages, _) = outbox.flush(credits);
            wire::decode::<FromWorker>("message", &messages[0].body).unwrap().credits
        };
        assert_eq!(told(&[credit]), [credit]);
        assert_eq!(told(&[credit]), []);
        assert_eq!(told(&[Credit { limit: 8, ..credit }]).len(), 1);
    }
}
