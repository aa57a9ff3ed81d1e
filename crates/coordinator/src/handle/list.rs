//! Lists of instances by conditions. The store finds by namespace, workflow, status, attributes and the beginning of the id; the
//! other conditions are looked for in what it finds, a bounded number of instances for each page.

use everstep_engine::bulk::{Statuses, Which};
use everstep_protocol::{InstanceUid, Millis, Namespace, Timestamp};
use everstep_store::{Cursor, Filter, Page};
use uuid::Uuid;

use super::{Handle, bulk::fits};
use crate::error::Error;

/// Instances that one page looks at, at most: then it ends, however few it has found, and its cursor goes on.
const LOOKED_AT: usize = 2_000;
/// What is read of the store at once, where not all will fit.
const READ: u32 = 200;
/// By how much the clock of whoever made an id may be ahead of the database's.
const AHEAD: Millis = Millis::from_secs(60 * 60);
/// How long it may take from the making of an id to its commit, outages included.
const LATE: Millis = Millis::from_secs(24 * 60 * 60);

/// Which instances to list: those that fulfil every condition.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Of this namespace.
    pub namespace: Namespace,
    /// The conditions that bulk operations have too.
    pub which: Which,
    /// With an id that begins so.
    pub id_prefix: Option<String>,
}

impl Wanted {
    fn filter(&self) -> Filter {
        let (open, status) = match self.which.status {
            None => (false, None),
            Some(Statuses::Open) => (true, None),
            Some(Statuses::Only(status)) => (false, Some(status)),
        };
        Filter {
            namespace: self.namespace.clone(),
            workflow: self.which.workflow.clone(),
            status,
            open,
            ends: self.which.error.is_some(),
            attributes: self.which.attributes.clone(),
            id_prefix: self.id_prefix.clone(),
        }
    }

    /// Whether the store alone finds what is wanted.
    fn is_plain(&self) -> bool {
        let Which { created_from, created_before, ended_from, ended_before, error, .. } = &self.which;
        let times = [created_from, created_before, ended_from, ended_before];
        self.id_prefix.is_none() && error.is_none() && times.iter().all(|time| time.is_none())
    }

    /// Where the search begins: ids are ordered by the time at which they were made, which is about when the instance was created.
    fn begin(&self) -> Option<Cursor> {
        let before = self.which.created_before?;
        Some(Cursor(id_of(Timestamp(before.0.saturating_add_unsigned(AHEAD.0.saturating_mul(1000))))))
    }

    /// Whether nothing that was created late enough can follow.
    fn is_past(&self, uid: InstanceUid) -> bool {
        self.which.created_from.is_some_and(|from| {
            let made = Timestamp(from.0.saturating_sub_unsigned(LATE.0.saturating_mul(1000)));
            uid < id_of(made)
        })
    }
}

/// Below every id that was made at this time or later.
fn id_of(at: Timestamp) -> InstanceUid {
    let millis = u64::try_from(at.0 / 1000).unwrap_or(0).min((1 << 48) - 1);
    InstanceUid(Uuid::from_u128(u128::from(millis) << 80))
}

impl Handle {
    /// A page of instances, newest first. It may be shorter than `limit`, or empty, though another follows.
    pub async fn list(&self, wanted: &Wanted, cursor: Option<Cursor>, limit: u32) -> Result<Page, Error> {
        let filter = wanted.filter();
        if wanted.is_plain() {
            return Ok(self.shared.store.instances(&filter, cursor.as_ref(), limit).await?);
        }
        let mut cursor = cursor.or_else(|| wanted.begin());
        let mut found = Page::default();
        let mut looked_at = 0;
        loop {
            let page = self.shared.store.instances(&filter, cursor.as_ref(), READ).await?;
            looked_at += page.looked_at;
            for view in page.rows {
                if wanted.is_past(view.uid) {
                    return Ok(Page { next: None, ..found });
                }
                if !fits(&wanted.which, &view) {
                    continue;
                }
                if found.rows.len() == limit as usize {
                    let last = found.rows.last().map(|last| Cursor(last.uid));
                    return Ok(Page { next: last, ..found });
                }
                found.rows.push(view);
            }
            if page.next.is_none() || looked_at >= LOOKED_AT {
                return Ok(Page { next: page.next, ..found });
            }
            cursor = page.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_by_the_time_at_which_they_were_made() {
        let made = Uuid::from_u128((1_700_000_000_123_u128 << 80) | (7 << 76) | 5);
        let at = |millis: i64| id_of(Timestamp(millis * 1000));
        assert!(at(1_700_000_000_123) < InstanceUid(made) && InstanceUid(made) < at(1_700_000_000_124));
        assert_eq!(id_of(Timestamp(-5)), InstanceUid(Uuid::nil()));
        let wanted = |which| Wanted { which, ..Wanted::default() };
        let late = wanted(Which { created_from: Some(Timestamp(1_700_086_400_124_000)), ..Which::default() });
        assert!(late.is_past(InstanceUid(made)));
        let early =
            wanted(Which { created_from: Some(Timestamp(1_700_086_400_123_000)), ..Which::default() });
        assert!(!early.is_past(InstanceUid(made)) && early.begin().is_none());
    }
}
