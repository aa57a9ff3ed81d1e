//! The questions that wait for a person, read for lists and counts.

use everstep_engine::start::NameKey;
use everstep_protocol::Run;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    PostgresStore,
    fault::Fault,
    rows::{self, name, time, uid},
    trip::params,
};
use crate::{AskedView, AttentionCount, AttentionFilter, AttentionMark, AttentionView, Error};

const LIST: &str = include_str!("sql/attention.sql");
/// Indexes: `attention_by_age`, `wait_by_question`.
const COUNTS: &str = "SELECT q.code, count(*) FILTER (WHERE c.now - q.since < 3600000000),
        count(*) FILTER (WHERE c.now - q.since BETWEEN 3600000000 AND 86399999999),
        count(*) FILTER (WHERE c.now - q.since >= 86400000000)
    FROM (
        SELECT code, since FROM attention
        UNION ALL
        SELECT 'unknown_outcome', since FROM wait WHERE kind = 7
    ) q, (SELECT everstep_clock() AS now) c
    GROUP BY q.code ORDER BY q.code";

/// The list of questions.
#[doc(hidden)]
#[must_use]
pub const fn attention_list() -> &'static str {
    LIST
}

pub(super) async fn list(
    store: &PostgresStore,
    filter: &AttentionFilter,
    after: Option<&AttentionMark>,
    limit: u32,
) -> Result<Vec<AttentionView>, Error> {
    let workflow = filter.workflow.as_ref().map_or("", |workflow| workflow.as_str());
    let age = filter.older_than.map_or(0, rows::micros);
    let (since, after_uid, call) =
        after.map_or((i64::MIN, Uuid::nil(), [0; 16]), |mark| (mark.since.0, mark.uid.0, mark.call));
    let params = params![
        filter.namespace.as_str(),
        workflow,
        filter.kind.as_deref().unwrap_or_default(),
        age,
        since,
        after_uid,
        &call[..],
        i64::from(limit),
    ];
    store.read("listing questions", LIST, params, view).await
}

pub(super) async fn counts(store: &PostgresStore) -> Result<Vec<AttentionCount>, Error> {
    store
        .read("counting questions", COUNTS, params![], |row| {
            let count = |at| row.try_get::<_, i64>(at).map(|count| count as u64);
            Ok(AttentionCount { kind: row.try_get(0)?, by_age: [count(1)?, count(2)?, count(3)?] })
        })
        .await
}

fn view(row: &Row) -> Result<AttentionView, Fault> {
    let asked = match row.try_get::<_, Option<&str>>(6)? {
        Some(_) => AskedView::Parked(rows::parked(row, 6, 11)?),
        None => AskedView::Unknown(rows::call(row, 8)?, Box::new(rows::question(row.try_get(11)?)?)),
    };
    Ok(AttentionView {
        uid: uid(row, 0)?,
        name: NameKey { namespace: name(row, 1)?, workflow: name(row, 2)?, id: name(row, 3)? },
        run: Run(row.try_get::<_, i32>(4)? as u32),
        since: time(row, 5)?,
        asked,
    })
}
