//! The questions that wait for a person, read for lists and counts.

use everstep_engine::start::NameKey;
use everstep_protocol::{Run, Timestamp};
use rusqlite::{Connection, Row, params};

use super::{column, fault::Result, load};
use crate::{AskedView, AttentionCount, AttentionFilter, AttentionMark, AttentionView};

const LIST: &str = "SELECT q.uid, i.namespace, i.workflow, i.id, i.run, q.since, q.code, q.message, q.call_kind, q.call_name,
    q.call_count, q.body FROM (
        SELECT uid, at AS since, zeroblob(16) AS call, code, message, NULL AS call_kind, NULL AS call_name, NULL AS call_count,
            changed AS body FROM attention
        UNION ALL
        SELECT uid, since, call, NULL, NULL, call_kind, call_name, call_count, awaited FROM wait WHERE kind = 7
    ) q JOIN instance i ON i.uid = q.uid
    WHERE i.namespace = ?1 AND (?2 = '' OR i.workflow = ?2) AND (?3 = '' OR coalesce(q.code, 'unknown_outcome') = ?3)
    AND q.since <= ?4 AND (q.since, q.uid, q.call) > (?5, ?6, ?7)
    ORDER BY q.since, q.uid, q.call LIMIT ?8";
const COUNTS: &str =
    "SELECT code, sum(?1 - since < 3600000000), sum(?1 - since BETWEEN 3600000000 AND 86399999999),
    sum(?1 - since >= 86400000000) FROM (
        SELECT code, at AS since FROM attention
        UNION ALL
        SELECT 'unknown_outcome', since FROM wait WHERE kind = 7
    ) GROUP BY code ORDER BY code";

pub(super) fn list(
    connection: &Connection,
    filter: &AttentionFilter,
    now: Timestamp,
    after: Option<AttentionMark>,
    limit: u32,
) -> Result<Vec<AttentionView>> {
    let workflow = filter.workflow.as_ref().map_or("", |workflow| workflow.as_str());
    let before = filter.older_than.map_or(now, |age| now.minus(age)).0;
    let (since, uid, call) =
        after.map_or((i64::MIN, [0; 16], [0; 16]), |mark| (mark.since.0, *mark.uid.0.as_bytes(), mark.call));
    let mut statement = connection.prepare_cached(LIST)?;
    let mut rows = statement.query(params![
        filter.namespace.as_str(),
        workflow,
        filter.kind.as_deref().unwrap_or_default(),
        before,
        since,
        uid,
        call,
        limit,
    ])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(view(row)?);
    }
    Ok(found)
}

pub(super) fn counts(connection: &Connection, now: Timestamp) -> Result<Vec<AttentionCount>> {
    let mut statement = connection.prepare_cached(COUNTS)?;
    let mut rows = statement.query([now.0])?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        let by_age = [column::count(row, 1)?, column::count(row, 2)?, column::count(row, 3)?];
        counts.push(AttentionCount { kind: row.get(0)?, by_age });
    }
    Ok(counts)
}

fn view(row: &Row<'_>) -> Result<AttentionView> {
    let asked = if row.get::<_, Option<String>>(6)?.is_some() {
        AskedView::Parked(load::parked(row, 6, 11)?)
    } else {
        AskedView::Unknown(column::call(row, 8)?, Box::new(column::packed(row, 11, "question")?))
    };
    Ok(AttentionView {
        uid: column::uid(row, 0)?,
        name: NameKey {
            namespace: column::name(row, 1)?,
            workflow: column::name(row, 2)?,
            id: column::name(row, 3)?,
        },
        run: Run(row.get(4)?),
        since: column::time(row, 5)?,
        asked,
    })
}
