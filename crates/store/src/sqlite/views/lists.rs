//! Which instances a list shows: their ids, newest first.

use everstep_protocol::{Attribute, AttributeValue, InstanceUid, WorkflowName};
use rusqlite::{Connection, ToSql, params};
use uuid::Uuid;

use super::{column, fault};
use crate::{
    Cursor, Filter, StatusWord,
    view::{COUNTED, PREFIXED_MAX, behind},
};

const BEGUN: &str = include_str!("../begun.sql");
/// By the index `attribute_value`, backwards.
const MARKED: &str = "(SELECT uid AS marked FROM attribute WHERE namespace = ?1 AND name = ?5 AND value = ?6)
    CROSS JOIN {table} ON uid = marked";
/// By the primary key.
const ALSO: &str = " AND EXISTS (SELECT 1 FROM attribute a WHERE a.uid = marked AND a.name = ?{name} AND a.value = ?{value})";
/// By the index `attribute_value`, and no further than it takes to tell rare from common.
const HOW_MANY: &str = "SELECT count(*) FROM (
        SELECT 1 FROM attribute WHERE namespace = ?1 AND name = ?2 AND value = ?3 LIMIT ?4
    )";

/// Those whose ids begin with the prefix, newest first, so many at most; none if more begin so than can be put in order.
pub(super) fn begun(
    connection: &Connection,
    filter: &Filter,
    prefix: &str,
    cursor: Option<Cursor>,
    limited: usize,
) -> fault::Result<Option<Vec<InstanceUid>>> {
    let workflow = filter.workflow.as_ref().map_or("", WorkflowName::as_str);
    let most = PREFIXED_MAX as i64 + 1;
    let values = params![filter.namespace.as_str(), workflow, prefix, behind(prefix), most];
    let mut statement = connection.prepare_cached(BEGUN)?;
    let mut uids = statement
        .query_map(values, |row| row.get(0).map(Uuid::from_bytes).map(InstanceUid))?
        .collect::<Result<Vec<_>, _>>()?;
    if uids.len() > PREFIXED_MAX {
        return Ok(None);
    }
    uids.retain(|uid| cursor.is_none_or(|cursor| *uid < cursor.0));
    uids.sort_unstable_by(|one, other| other.cmp(one));
    uids.truncate(limited);
    Ok(Some(uids))
}

/// The ids of a page, newest first. What is open, what has ended and what failed is found by an index of its own; what has attributes
/// by the rarest of them, which is read backwards from the cursor.
pub(super) fn listed(
    connection: &Connection,
    filter: &Filter,
    cursor: Option<Cursor>,
    limit: u64,
) -> fault::Result<Vec<InstanceUid>> {
    let (table, condition) = match filter.status {
        Some(status) => condition(status),
        None if filter.open => ("instance", "status = 0"),
        None => ("instance", "TRUE"),
    };
    let (after, workflow) = (cursor.map(|cursor| *cursor.0.0.as_bytes()), &filter.workflow);
    let pairs = rarest_first(connection, filter)?;
    // ?1 to ?4 are always there; two more for each attribute.
    let others: String = (1..pairs.len())
        .map(|place| {
            let (name, value) = (5 + 2 * place, 6 + 2 * place);
            ALSO.replace("{name}", &name.to_string()).replace("{value}", &value.to_string())
        })
        .collect();
    let from = if pairs.is_empty() { table.to_owned() } else { MARKED.replace("{table}", table) };
    let sql = format!(
        "SELECT uid FROM {from} WHERE namespace = ?1 AND {} AND {} AND {condition}{others} ORDER BY {} DESC LIMIT ?2",
        if workflow.is_some() { "workflow = ?3" } else { "?3 IS NULL" },
        match (after.is_some(), pairs.is_empty()) {
            (false, _) => "?4 IS NULL",
            (true, true) => "uid < ?4",
            (true, false) => "marked < ?4",
        },
        if pairs.is_empty() { "uid" } else { "marked" },
    );
    let workflow: Option<&str> = workflow.as_ref().map(WorkflowName::as_str);
    let (namespace, limit) = (filter.namespace.as_str(), limit as i64);
    let mut values: Vec<&dyn ToSql> = vec![&namespace, &limit, &workflow, &after];
    for (name, value) in &pairs {
        values.push(name);
        values.push(value);
    }
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(&values[..])?;
    let mut uids = Vec::new();
    while let Some(row) = rows.next()? {
        uids.push(column::uid(row, 0)?);
    }
    Ok(uids)
}

/// Names and values of the attributes, the one that fewest have first.
fn rarest_first<'a>(connection: &Connection, filter: &'a Filter) -> fault::Result<Vec<(&'a str, &'a str)>> {
    let pair = |attribute: &'a Attribute| {
        (attribute.name.as_str(), attribute.value.as_ref().map_or("null", AttributeValue::as_json))
    };
    let mut pairs: Vec<_> = filter.attributes.iter().map(|attribute| (0, pair(attribute))).collect();
    if pairs.len() > 1 {
        let mut statement = connection.prepare_cached(HOW_MANY)?;
        for (count, (name, value)) in &mut pairs {
            let values = params![filter.namespace.as_str(), *name, *value, COUNTED as i64];
            *count = statement.query_row(values, |row| row.get::<_, i64>(0))?;
        }
        pairs.sort_by_key(|(count, _)| *count);
    }
    Ok(pairs.into_iter().map(|(_, pair)| pair).collect())
}

/// [`StatusWord::derive`] as a condition on a table; a test holds the two together. `status > 1` names the partial index of
/// what failed.
const fn condition(status: StatusWord) -> (&'static str, &'static str) {
    let open = match status {
        StatusWord::Running => {
            "status = 0 AND uid IN (SELECT uid FROM lease WHERE subject = zeroblob(16))
            AND NOT EXISTS (SELECT 1 FROM control WHERE control.uid = instance.uid AND paused_at IS NOT NULL)"
        }
        StatusWord::Pausing => {
            "status = 0 AND uid IN (SELECT uid FROM control WHERE paused_at IS NOT NULL)
            AND EXISTS (SELECT 1 FROM lease WHERE lease.uid = instance.uid)"
        }
        StatusWord::Paused => {
            "status = 0 AND uid IN (SELECT uid FROM control WHERE paused_at IS NOT NULL)
            AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.uid = instance.uid)"
        }
        StatusWord::Attention => {
            "status = 0 AND uid IN (SELECT uid FROM attention UNION SELECT uid FROM wait WHERE kind = 7)
            AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.uid = instance.uid AND subject = zeroblob(16))
            AND (EXISTS (SELECT 1 FROM attention WHERE attention.uid = instance.uid) OR (
                NOT EXISTS (SELECT 1 FROM ready WHERE ready.uid = instance.uid AND subject = zeroblob(16))
                AND NOT EXISTS (SELECT 1 FROM control WHERE control.uid = instance.uid AND paused_at IS NOT NULL)))"
        }
        StatusWord::Queued => {
            "status = 0 AND uid IN (SELECT uid FROM ready WHERE subject = zeroblob(16))
            AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.uid = instance.uid AND subject = zeroblob(16))
            AND NOT EXISTS (SELECT 1 FROM attention WHERE attention.uid = instance.uid)"
        }
        StatusWord::Waiting => {
            "status = 0
            AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.uid = instance.uid AND subject = zeroblob(16))
            AND NOT EXISTS (SELECT 1 FROM attention WHERE attention.uid = instance.uid)
            AND NOT EXISTS (SELECT 1 FROM wait WHERE wait.uid = instance.uid AND wait.kind = 7)
            AND NOT EXISTS (SELECT 1 FROM ready WHERE ready.uid = instance.uid AND subject = zeroblob(16))
            AND NOT EXISTS (SELECT 1 FROM control WHERE control.uid = instance.uid AND paused_at IS NOT NULL)"
        }
        StatusWord::Complete => return ("ended", "status = 1"),
        StatusWord::Errored => return ("ended", "status > 1 AND status = 2"),
        StatusWord::Terminated => return ("ended", "status > 1 AND status = 3"),
        StatusWord::Cancelled => return ("ended", "status > 1 AND status = 4"),
    };
    ("instance", open)
}
