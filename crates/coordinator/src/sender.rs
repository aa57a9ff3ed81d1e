//! From effects to messages: one message per worker and turn, tasks for the queues. Sent after the commit; what is lost here
//! is made good by resends and heartbeats.

use std::collections::BTreeMap;

use everstep_broker::{Outgoing, Properties};
use everstep_engine::{Effect, Head};
use everstep_protocol::{
    Position, SessionId,
    crash::around,
    journal::Entry,
    limits::PART_BYTES,
    message::{CoordinatorItem, Entries, Grant, RunTask, StepTask, ToWorker},
    topology, wire,
};
use everstep_store::Range;

use crate::shared::Shared;

/// Engine messages are dropped by the broker after this long: by then they have been sent again (rule W7).
const EXPIRATION_MS: u32 = 10_000;

/// Sends what a committed batch decided. False if a live connection did not take it: the inputs are to come again.
pub(crate) async fn send(shared: &Shared, effects: Vec<Effect>) -> bool {
    if effects.is_empty() {
        return true;
    }
    let mut outbound = Outbound::default();
    let mut unread = Vec::new();
    for effect in effects {
        outbound.add(shared, effect, &mut unread);
    }
    if !unread.is_empty() && !read(shared, unread, &mut outbound).await {
        return false;
    }
    let messages = outbound.messages(shared);
    if messages.is_empty() {
        return true;
    }
    shared.metrics.messages_sent.inc_by(messages.len() as u64);
    match around("publish.turn", shared.broker.send(messages)).await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, "messages of a committed batch were not sent; they are made again");
            false
        }
    }
}

/// Answers a worker that asked for entries: a read, not a decision.
pub(crate) async fn send_entries(shared: &Shared, session: SessionId, asked: Vec<Asked>) -> bool {
    let ranges: Vec<_> = asked.iter().map(|asked| asked.range).collect();
    let Ok(parts) = shared.store.journal(ranges, PART_BYTES).await else {
        return false;
    };
    let mut outbound = Outbound::default();
    for (asked, entries) in asked.into_iter().zip(parts) {
        shared.metrics.entries_read.add("lack", entries.len() as u64);
        let last = entries.last().map_or(asked.range.after, |entry| entry.position);
        let item = Entries { instance: asked.range.uid, epoch: asked.epoch, last, entries, pause: None };
        outbound.item(session, CoordinatorItem::Entries(item));
    }
    around("publish.entries", shared.broker.send(outbound.messages(shared))).await.is_ok()
}

/// A part of a journal that a worker asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) range: Range,
    pub(crate) epoch: everstep_protocol::Epoch,
}

/// A message of the engine to a queue of its own.
pub(crate) fn transient(queue: String, body: bytes::Bytes) -> Outgoing {
    lasting(queue, body, EXPIRATION_MS)
}

/// The same, dropped by the broker after so many milliseconds.
pub(crate) fn lasting(queue: String, body: bytes::Bytes, expiration_ms: u32) -> Outgoing {
    Outgoing::to_queue(queue, body)
        .with(Properties { expiration_ms: Some(expiration_ms), ..Properties::default() })
}

#[derive(Debug, Default)]
struct Outbound {
    workers: BTreeMap<SessionId, Vec<CoordinatorItem>>,
    tasks: Vec<Outgoing>,
}

/// A grant whose journal is still to be read.
struct Unread {
    session: SessionId,
    head: Box<Head>,
    direct: bool,
    after: Position,
}

impl Outbound {
    fn item(&mut self, session: SessionId, item: CoordinatorItem) {
        self.workers.entry(session).or_default().push(item);
    }

    fn add(&mut self, shared: &Shared, effect: Effect, unread: &mut Vec<Unread>) {
        match effect {
            Effect::Item(session, item) => self.item(session, item),
            Effect::Reply(to, response) => shared.replying.tell(&to, &response),
            Effect::StepGrant(session, grant) => self.item(session, CoordinatorItem::StepGrant(*grant)),
            Effect::Push { session, head, entries } => {
                let item = Entries {
                    instance: head.uid,
                    epoch: head.epoch,
                    last: head.position,
                    entries,
                    pause: None,
                };
                self.item(session, CoordinatorItem::Entries(item));
            }
            Effect::Grant { session, head, direct, after, entries } => {
                if entries.is_empty() && after < head.position {
                    unread.push(Unread { session, head, direct, after });
                } else {
                    self.item(session, grant(shared, &head, direct, entries));
                }
            }
            Effect::Offer { namespace, workflow, build, instance, kept_by } => {
                let task = RunTask { incarnation: shared.incarnation, instance };
                let queue = match build {
                    None => topology::run_queue(&namespace, &workflow),
                    Some(build) => topology::pinned_run_queue(&namespace, &workflow, &build),
                };
                let task = transient(queue, wire::encode(&task));
                match kept_by {
                    None => self.tasks.push(task),
                    Some(session) => {
                        self.item(session, CoordinatorItem::Offer { instance });
                        shared.later.add(instance, task);
                    }
                }
            }
            Effect::OfferStep { namespace, pool, instance, call } => {
                let task = StepTask { incarnation: shared.incarnation, instance, call };
                self.tasks.push(transient(topology::step_queue(&namespace, &pool), wire::encode(&task)));
            }
        }
    }

    fn messages(self, shared: &Shared) -> Vec<Outgoing> {
        let mut messages = self.tasks;
        for (session, items) in self.workers {
            let Some(known) = shared.session(session) else {
                tracing::debug!(%session, "messages for a session that is not known are left out");
                continue;
            };
            for items in split(items) {
                let envelope =
                    ToWorker { incarnation: shared.incarnation, coordinator: shared.id, session, items };
                messages.push(transient(known.inbox.clone(), wire::encode(&envelope)));
            }
        }
        messages
    }
}

/// Cuts a worker's items into messages of bounded size (rule W20). A single larger item goes alone.
fn split(items: Vec<CoordinatorItem>) -> Vec<Vec<CoordinatorItem>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = 0;
    for item in items {
        let size = size(&item);
        if bytes + size > PART_BYTES && bytes > 0 {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        parts.last_mut().expect("there is always a last part").push(item);
    }
    parts
}

fn size(item: &CoordinatorItem) -> usize {
    let entries =
        |entries: &[Entry]| entries.iter().map(|entry| entry.fact.payload_bytes() as usize).sum::<usize>();
    match item {
        CoordinatorItem::Grant(grant) => 256 + entries(&grant.entries),
        CoordinatorItem::Entries(pushed) => 128 + entries(&pushed.entries),
        CoordinatorItem::StepGrant(grant) => 512 + grant.remote.input.len(),
        _ => 128,
    }
}

/// Reads the first part of the journals that are granted.
async fn read(shared: &Shared, unread: Vec<Unread>, outbound: &mut Outbound) -> bool {
    let ranges = unread
        .iter()
        .map(|grant| Range { uid: grant.head.uid, run: grant.head.run, after: grant.after })
        .collect();
    let parts = match shared.store.journal(ranges, PART_BYTES).await {
        Ok(parts) => parts,
        Err(error) => {
            tracing::warn!(%error, "journals of granted instances were not read; heartbeats repeat the grants");
            return false;
        }
    };
    for (unread, mut entries) in unread.into_iter().zip(parts) {
        // Entries written after this decision are not this grant's: they are pushed.
        entries.retain(|entry| entry.position <= unread.head.position);
        shared.metrics.entries_read.add("grant", entries.len() as u64);
        let grant = grant(shared, &unread.head, unread.direct, entries);
        outbound.item(unread.session, grant);
    }
    true
}

fn grant(shared: &Shared, head: &Head, direct: bool, entries: Vec<Entry>) -> CoordinatorItem {
    CoordinatorItem::Grant(Grant {
        instance: head.uid,
        epoch: head.epoch,
        namespace: head.namespace.clone(),
        workflow: head.workflow.clone(),
        id: head.id.clone(),
        run: head.run,
        generation: head.generation,
        now: shared.clock.estimate(),
        reports: head.reports,
        last: head.position,
        entries,
        direct,
        restored_at: head.doubted(shared.rules.restored_at),
    })
}
