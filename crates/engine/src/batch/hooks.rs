//! What later inputs of a batch see of tokens that earlier ones claimed, moved or let go.

use everstep_protocol::{InstanceUid, Namespace, Timestamp};

use crate::{
    effect::Change,
    hook::{HookRow, TokenKey},
    rows::Rows,
};

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
            forget(rows, &key, owner);
        }
        Change::HooksEnded => rows.hooks.retain(|_, row| row.owner != uid || keep(row, now)),
        Change::HooksDrop => {
            rows.hooks.retain(|_, row| row.owner != uid || row.id == everstep_protocol::HookId::START);
        }
        // Its rows are deleted behind all else, so that whoever claims one in this batch has to replace it.
        Change::Delete(_) => {
            let left = rows.hooks.extract_if(|_, row| row.owner == uid).map(|(key, _)| key);
            rows.orphans.extend(left.collect::<Vec<_>>().into_iter().map(|key| (key, uid)));
        }
        _ => {}
    }
}

/// A row is deleted, if it is still this owner's.
pub(super) fn forget(rows: &mut Rows, key: &TokenKey, owner: InstanceUid) {
    if rows.hooks.get(key).is_some_and(|row| row.owner == owner) {
        rows.hooks.remove(key);
    }
    if rows.orphans.get(key) == Some(&owner) {
        rows.orphans.remove(key);
    }
}

/// What becomes of a row at the end of its owner: whether it is kept, by its retention.
pub(super) fn keep(row: &mut HookRow, now: Timestamp) -> bool {
    row.ended = true;
    row.retain_until.is_some_and(|until| until > now)
}
