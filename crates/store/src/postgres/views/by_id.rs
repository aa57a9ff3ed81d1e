//! Instances by the beginning of their ids.

use deadpool_postgres::Object;
use uuid::Uuid;

use super::{Fault, Filter, params, rows_of};
use crate::view::{PREFIXED_MAX, behind};

pub(super) const BEGUN: &str = include_str!("../sql/begun.sql");

/// Those below an id, newest first, so many at most; none if more begin so than can be put in order.
pub(super) async fn newest(
    client: &Object,
    filter: &Filter,
    prefix: &str,
    before: Uuid,
    limited: usize,
) -> Result<Option<Vec<Uuid>>, Fault> {
    let workflow = filter.workflow.as_ref().map_or("", |workflow| workflow.as_str());
    let most = PREFIXED_MAX as i64 + 1;
    let params = params![filter.namespace.as_str(), workflow, prefix, behind(prefix), most];
    let found = rows_of(client, BEGUN, params).await?;
    if found.len() > PREFIXED_MAX {
        return Ok(None);
    }
    let mut ids = Vec::with_capacity(found.len());
    for row in &found {
        let id: Uuid = row.try_get(0)?;
        if id < before {
            ids.push(id);
        }
    }
    ids.sort_unstable_by(|one, other| other.cmp(one));
    ids.truncate(limited);
    Ok(Some(ids))
}
