//! What later inputs of a batch see of tokens that earlier ones claimed, moved or let go.

use everstep_protocol::{InstanceUid, Namespace, Timestamp};

use crate::{effect::Change, hook::HookRow, rows::Rows};

/// Applies a change to the loaded rows.
pub(super) fn overlay(
    rows: &mut Rows,
    namespace: &Namespace,
    uid: InstanceUid,
    change: Change,
    now: Timestamp,
) {
    match change {
        Change::Hook(token, row) => {
            rows.hooks.insert((namespace.clone(), token), row);
        }
        Change::HookEnd(token, owner, _) => {
            let key = (namespace.clone(), token);
            if rows.hooks.get(&key).is_some_and(|row| row.owner == owner) {
                rows.hooks.remove(&key);
            }
        }
        Change::HooksEnded => rows.hooks.retain(|_, row| row.owner != uid || keep(row, now)),
        Change::HooksDrop => {
            rows.hooks.retain(|_, row| row.owner != uid || row.id == everstep_protocol::HookId::START);
        }
        _ => {}
    }
}

/// What becomes of a row at the end of its owner: whether it is kept, by its retention.
pub(super) fn keep(row: &mut HookRow, now: Timestamp) -> bool {
    row.ended = true;
    row.retain_until.is_some_and(|until| until > now)
}
