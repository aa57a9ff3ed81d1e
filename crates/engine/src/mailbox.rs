//! Events on their way to the calls that wait for them: the rows, which of them a batch needs, and which event meets which
//! wait (rules P21, P22, P26).
//!
//! What holds after every decision: no open wait has an unread event that fits it. So a new event goes to the oldest wait
//! that it fits, a new wait takes the oldest event that fits, and nothing else ever needs to be compared.

use std::collections::BTreeMap;

use everstep_protocol::{
    CallHash, EventKey, EventType, Fingerprint, InstanceUid, Payload, Position, Run, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::rows::{Needs, Rows, WaitKind, WaitRow};

/// The application id of what instances send. No producer may have it.
pub const OWN_APP_ID: &str = "everstep";

/// By what an event is known when it is sent again (rule P24).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventId {
    /// The application id of an AMQP message; empty if it has none, and over HTTP.
    pub app_id: String,
    /// The sender's id for the event.
    pub id: String,
}

/// An event as it is sent, after the checks at the edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentEvent {
    /// By what a repetition is known.
    pub id: EventId,
    /// Its type.
    pub kind: EventType,
    /// Its correlation key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<EventKey>,
    /// What it says.
    pub payload: Payload,
    /// The fingerprint of the payload.
    pub fingerprint: Fingerprint,
}

/// What is known of an event by its id, for as long as the instance is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEvent {
    /// Its type.
    pub kind: EventType,
    /// Its correlation key.
    pub key: Option<EventKey>,
    /// The fingerprint of its payload.
    pub fingerprint: Fingerprint,
}

/// An accepted event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Its number among the events of the instance, from 1, given under the head's lock.
    pub sequence: u64,
    /// What was sent.
    pub event: SentEvent,
    /// When it was accepted.
    pub received_at: Timestamp,
    /// The call that got it; none while it is unread.
    pub delivery: Option<Delivery>,
}

/// Where an event was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The call that waited.
    pub call: CallHash,
    /// The run whose journal has the entry.
    pub run: Run,
    /// The entry's position.
    pub position: Position,
}

/// What the wait of an event waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// The types.
    pub types: Vec<EventType>,
    /// Only events with this key.
    pub key: Option<EventKey>,
    /// The position of the entry that opened the wait: waits are served in this order.
    pub opened: Position,
}

impl Awaited {
    /// Whether an event of this type and key ends the wait.
    #[must_use]
    pub fn fits(&self, kind: &EventType, key: Option<&EventKey>) -> bool {
        self.types.contains(kind) && self.key.as_ref().is_none_or(|wanted| Some(wanted) == key)
    }
}

/// One row for each type of each open wait, by which a new event finds the oldest wait that it fits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AwaitedKey {
    /// The instance.
    pub uid: InstanceUid,
    /// The type.
    pub kind: EventType,
    /// Only events with this key.
    pub key: Option<EventKey>,
    /// See [`Awaited::opened`].
    pub opened: Position,
}

/// A type, and a key or none, of one instance.
pub type Topic = (InstanceUid, EventType, Option<EventKey>);

/// Rows of one instance to load: the first `limit` in their order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Query {
    /// The instance.
    pub uid: InstanceUid,
    /// The type.
    pub kind: EventType,
    /// For events: only those with this key, if any. For waits: those without a key, and those with this one.
    pub key: Option<EventKey>,
    /// How many of the batch's inputs may use one up.
    pub limit: u32,
}

/// The event that a call got, and the waits that it fits if it returns: the first `limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReturnQuery {
    /// The instance.
    pub uid: InstanceUid,
    /// The call.
    pub call: CallHash,
    /// How many of the batch's inputs may use a wait up.
    pub limit: u32,
}

impl Needs {
    /// The oldest unread events of each type and key that is asked for: one for each wait that may take one, so that the inputs
    /// of a batch never run out of loaded events before the store does (rule W21).
    #[must_use]
    pub fn unread_queries(&self) -> Vec<Query> {
        let takers = |uid, kind: &EventType| {
            self.unread.iter().filter(|other| other.0 == uid && other.1 == *kind).count()
        };
        queries(&self.unread, takers)
    }

    /// The oldest waits for each type and key of a new event: one for each input that may end a wait. Whoever takes a hook ends all
    /// waits for it (rule H60).
    #[must_use]
    pub fn waiter_queries(&self) -> Vec<Query> {
        queries(
            &self.waiters,
            |uid, kind| if kind.hook().is_some() { HOOK_WAITS } else { self.wait_ends(uid) },
        )
    }

    /// The events of calls that are closed.
    #[must_use]
    pub fn return_queries(&self) -> Vec<ReturnQuery> {
        let query = |(uid, call): &(InstanceUid, CallHash)| {
            let limit = bounded(self.wait_ends(*uid));
            ReturnQuery { uid: *uid, call: *call, limit }
        };
        let mut queries: Vec<_> = self.returns.iter().map(query).collect();
        queries.sort_unstable();
        queries.dedup();
        queries
    }

    /// How many waits of an instance the inputs may end.
    fn wait_ends(&self, uid: InstanceUid) -> usize {
        self.waiters.iter().filter(|other| other.0 == uid).count()
            + self.returns.iter().filter(|other| other.0 == uid).count()
            + self.waits.iter().filter(|other| other.0 == uid).count()
    }
}

fn queries(subjects: &[Topic], limit: impl Fn(InstanceUid, &EventType) -> usize) -> Vec<Query> {
    let query = |(uid, kind, key): &Topic| Query {
        uid: *uid,
        kind: kind.clone(),
        key: key.clone(),
        limit: bounded(limit(*uid, kind)),
    };
    let mut queries: Vec<_> = subjects.iter().map(query).collect();
    queries.sort_unstable();
    queries.dedup();
    queries
}

/// More than an instance has waits for one hook.
const HOOK_WAITS: usize = 1 << 20;

fn bounded(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Whether an event may end a wait: the payload of a hook is one.
fn is_for_events(wait: &WaitRow) -> bool {
    matches!(wait.kind, WaitKind::Event | WaitKind::Hook)
}

/// The loaded events and event waits of one instance, as a decision changes them.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    events: BTreeMap<u64, EventRow>,
    waits: BTreeMap<Position, WaitRow>,
}

impl Mailbox {
    pub(crate) fn of(rows: &Rows, uid: InstanceUid) -> Self {
        let events = rows.events.range((uid, 0)..=(uid, u64::MAX));
        let waits = rows.waits.iter().filter(|((other, _), wait)| *other == uid && is_for_events(wait));
        Self {
            events: events.map(|((_, sequence), row)| (*sequence, row.clone())).collect(),
            waits: waits
                .filter_map(|(_, wait)| Some((wait.awaited.as_ref()?.opened, wait.clone())))
                .collect(),
        }
    }

    /// The oldest wait that an event of this type and key ends.
    pub(crate) fn waiter(&self, kind: &EventType, key: Option<&EventKey>) -> Option<&WaitRow> {
        self.waits.values().find(|wait| wait.awaited.as_ref().is_some_and(|awaited| awaited.fits(kind, key)))
    }

    /// The oldest unread event that ends this wait.
    pub(crate) fn unread(&self, awaited: &Awaited) -> Option<&EventRow> {
        let fits = |row: &&EventRow| awaited.fits(&row.event.kind, row.event.key.as_ref());
        if everstep_protocol::planted("event_newest_first") {
            return self.events.values().rev().filter(|row| row.delivery.is_none()).find(fits);
        }
        self.events.values().filter(|row| row.delivery.is_none()).find(fits)
    }

    /// The event that a call of this run got after this position. The same call of an earlier run keeps what it got.
    pub(crate) fn delivered(&self, run: Run, call: CallHash, after: Position) -> Option<&EventRow> {
        let its =
            |delivery: Delivery| delivery.run == run && delivery.call == call && delivery.position > after;
        self.events.values().find(|row| row.delivery.is_some_and(its))
    }

    /// An event is delivered, or returns.
    pub(crate) fn set(&mut self, sequence: u64, delivery: Option<Delivery>) {
        if let Some(row) = self.events.get_mut(&sequence) {
            row.delivery = delivery;
        }
    }

    /// A wait is over.
    pub(crate) fn close(&mut self, wait: &WaitRow) {
        if let Some(awaited) = &wait.awaited {
            self.waits.remove(&awaited.opened);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Proves how many waits a batch loads for what it may end. Not: which event meets which wait; see `tests/decide_events.rs`.
    use everstep_protocol::{HookId, Position};

    use super::*;

    #[test]
    fn h60_whoever_takes_a_hook_has_all_its_waits_and_an_event_has_one_for_each_input() {
        let uid = InstanceUid(uuid::Uuid::from_u128(1));
        let hook = EventType::of_hook(HookId { run: Run(1), position: Position(2) });
        let paid = EventType::new("paid").unwrap();
        let needs = Needs {
            waiters: vec![(uid, hook.clone(), None), (uid, paid.clone(), None), (uid, paid.clone(), None)],
            ..Needs::default()
        };
        let limits: Vec<_> =
            needs.waiter_queries().into_iter().map(|query| (query.kind, query.limit)).collect();
        assert_eq!(limits.len(), 2, "{limits:?}");
        // Three inputs may end a wait of an event; an instance may have far more awaits of one hook than a batch has inputs.
        assert!(limits.contains(&(paid, 3)), "{limits:?}");
        assert!(limits.iter().any(|(kind, limit)| *kind == hook && *limit >= 1_000_000), "{limits:?}");
    }
}
