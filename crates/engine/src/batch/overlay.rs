//! What later inputs of a batch see of what earlier ones have changed.

use everstep_protocol::{InstanceUid, Namespace, Timestamp};

use super::hooks;
use crate::{
    effect::Change,
    mailbox::{KnownEvent, SentEvent},
    rows::{Rows, Subject},
};

/// What later inputs of the batch see.
pub(super) fn overlay(
    rows: &mut Rows,
    namespace: &Namespace,
    uid: InstanceUid,
    change: Change,
    now: Timestamp,
) {
    match change {
        Change::Lease(subject, lease) => {
            rows.leases.insert((uid, subject), lease);
        }
        Change::LeaseEnd(subject) => {
            rows.leases.remove(&(uid, subject));
        }
        Change::Ready(subject, _) => {
            rows.ready.insert((uid, subject), now);
        }
        Change::ReadyEnd(subject) => {
            rows.ready.remove(&(uid, subject));
        }
        Change::Wait(wait) => drop(rows.waits.insert((uid, wait.call.hash()), wait)),
        Change::WaitEnd(call) => drop(rows.waits.remove(&(uid, call))),
        Change::Remote(row) => {
            rows.remotes.insert((uid, row.call.hash()), row);
        }
        Change::RemoteEnd(call) => {
            rows.remotes.remove(&(uid, call));
        }
        Change::Everything => {
            rows.leases.retain(|(other, _), _| *other != uid);
            rows.ready.retain(|(other, _), _| *other != uid);
            rows.waits.retain(|(other, _), _| *other != uid);
            rows.remotes.retain(|(other, _), _| *other != uid);
            rows.parked.remove(&uid);
            rows.controls.remove(&uid);
        }
        Change::Calls => {
            rows.leases.retain(|(other, subject), _| *other != uid || *subject == Subject::INSTANCE);
            rows.ready.retain(|(other, subject), _| *other != uid || *subject == Subject::INSTANCE);
            rows.waits.retain(|(other, _), _| *other != uid);
            rows.remotes.retain(|(other, _), _| *other != uid);
        }
        Change::WaitsDue => {
            for wait in rows.waits.iter_mut().filter(|((other, _), _)| *other == uid).map(|(_, wait)| wait) {
                wait.due_at = wait.due_at.map(|at| at.max(now));
            }
        }
        Change::Control(control) => {
            rows.controls.insert(uid, control);
        }
        Change::ControlEnd => {
            rows.controls.remove(&uid);
        }
        Change::Ended(at) => {
            rows.expiries.insert(uid, at);
        }
        Change::EndedNoMore => {
            rows.expiries.remove(&uid);
        }
        Change::Park(parked) => {
            rows.parked.insert(uid, parked);
        }
        Change::ParkEnd => drop(rows.parked.remove(&uid)),
        Change::Operation(operation, answer) => {
            rows.operations.insert((uid, operation), answer);
        }
        Change::Event(row) => {
            let SentEvent { id, kind, key, fingerprint, .. } = row.event.clone();
            rows.event_ids.insert((uid, id), KnownEvent { kind, key, fingerprint });
            rows.events.insert((uid, row.sequence), row);
        }
        Change::Delivery { sequence, delivery, .. } => {
            if let Some(row) = rows.events.get_mut(&(uid, sequence)) {
                row.delivery = delivery;
            }
        }
        Change::LetterEnd(number) => {
            rows.letters.remove(&number);
        }
        Change::Parent(parent) => {
            rows.parents.insert(uid, parent);
        }
        Change::Attribute(_) => {
            rows.attributed.insert(uid);
        }
        Change::Hook(..)
        | Change::HookEnd(..)
        | Change::HooksEnded
        | Change::HooksDrop
        | Change::Delete(_) => {
            hooks::overlay(rows, namespace, uid, change, now);
        }
        // No decision reads them.
        Change::Attributes(_)
        | Change::State(_)
        | Change::Outbox(_)
        | Change::Reply(..)
        | Change::Cut(_)
        | Change::Letter(_)
        | Change::Cascade(_)
        | Change::Child(_)
        | Change::ChildOver(_)
        | Change::Watcher(_)
        | Change::Conclude(_) => {}
    }
}
