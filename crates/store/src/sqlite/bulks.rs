//! Operations on many instances.

use async_trait::async_trait;
use everstep_engine::{
    access::Asker,
    action::Action,
    bulk::{Bulk, Progress, State},
};
use everstep_protocol::{InstanceId, Namespace, Timestamp};
use rusqlite::{Connection, Params, Row, params};

use super::{SqliteStore, actions::record, column, fault};
use crate::{BulkRow, Bulks, Cursor, Error, bulk};

const BEGIN: &str =
    "INSERT INTO bulk (namespace, id, created_at, state, looked_at, matched, done, refused, request, begun_by)
    VALUES (?1, ?2, ?3, 0, 0, 0, 0, 0, ?4, ?5) ON CONFLICT DO NOTHING";
const ONE: &str =
    "SELECT namespace, id, created_at, ended_at, state, cursor, looked_at, matched, done, refused, request, begun_by
    FROM bulk WHERE namespace = ?1 AND id = ?2";
/// By the index `bulk_time`.
const LIST: &str =
    "SELECT namespace, id, created_at, ended_at, state, cursor, looked_at, matched, done, refused, request, begun_by
    FROM bulk WHERE namespace = ?1 ORDER BY created_at DESC, id";
/// By the index `bulk_running`.
const RUNNING: &str =
    "SELECT namespace, id, created_at, ended_at, state, cursor, looked_at, matched, done, refused, request, begun_by
    FROM bulk WHERE state = 0 ORDER BY created_at";
const ADVANCE: &str =
    "UPDATE bulk SET cursor = coalesce(?3, cursor), looked_at = ?4, matched = ?5, done = ?6, refused = ?7,
    state = CASE WHEN ?3 IS NULL THEN 1 ELSE 0 END, ended_at = CASE WHEN ?3 IS NULL THEN ?9 END
    WHERE namespace = ?1 AND id = ?2 AND state = 0 AND cursor IS ?8";
const STOP: &str = "UPDATE bulk SET state = 2, ended_at = ?3 WHERE namespace = ?1 AND id = ?2 AND state = 0";

#[async_trait]
impl Bulks for SqliteStore {
    async fn begin_bulk(
        &self,
        namespace: &Namespace,
        id: &InstanceId,
        bulk: &Bulk,
        by: &Asker,
    ) -> Result<BulkRow, Error> {
        const DOING: &str = "beginning a bulk operation";
        let action = Action::bulk_begun(by, namespace, id, bulk);
        let request = bulk.to_text();
        let key = (namespace.clone(), id.clone());
        let work = move |connection: &Connection, now: Timestamp| {
            let values = params![key.0.as_str(), key.1.as_str(), now.0, request, action.by.who];
            if connection.prepare_cached(BEGIN)?.execute(values)? == 1 {
                record(connection, &action, now)?;
            }
            Ok(rows(connection, ONE, params![key.0.as_str(), key.1.as_str()])?.pop())
        };
        let begun = self.writer.write(DOING, work).await?;
        begun.ok_or_else(|| fault::Fault::corrupt(DOING, "it is not there").into_error(DOING))
    }

    async fn bulk(&self, namespace: &Namespace, id: &InstanceId) -> Result<Option<BulkRow>, Error> {
        let key = (namespace.clone(), id.clone());
        let work = move |connection: &Connection| {
            Ok(rows(connection, ONE, params![key.0.as_str(), key.1.as_str()])?.pop())
        };
        self.viewer.read("reading a bulk operation", work).await
    }

    async fn bulks(&self, namespace: &Namespace, limit: u32) -> Result<Vec<BulkRow>, Error> {
        let namespace = namespace.clone();
        let work =
            move |connection: &Connection| readable(connection, LIST, params![namespace.as_str()], limit);
        self.viewer.read("listing bulk operations", work).await
    }

    async fn running_bulks(&self, limit: u32) -> Result<Vec<BulkRow>, Error> {
        let work = move |connection: &Connection| readable(connection, RUNNING, params![], limit);
        self.viewer.read("looking for bulk operations", work).await
    }

    async fn advance_bulk(
        &self,
        row: &BulkRow,
        progress: &Progress,
        next: Option<Cursor>,
    ) -> Result<bool, Error> {
        let (row, progress) = (row.clone(), *progress);
        let bytes = |cursor: Option<Cursor>| cursor.map(|cursor| *cursor.0.0.as_bytes());
        let work = move |connection: &Connection, now: Timestamp| {
            let values = params![
                row.namespace.as_str(),
                row.id.as_str(),
                bytes(next),
                progress.looked_at as i64,
                progress.matched as i64,
                progress.done as i64,
                progress.refused as i64,
                bytes(row.cursor),
                now.0,
            ];
            Ok(connection.prepare_cached(ADVANCE)?.execute(values)? == 1)
        };
        self.writer.write("going on with a bulk operation", work).await
    }

    async fn stop_bulk(
        &self,
        namespace: &Namespace,
        id: &InstanceId,
        by: &Asker,
    ) -> Result<Option<BulkRow>, Error> {
        let action = Action::bulk_stopped(by, namespace, id);
        let key = (namespace.clone(), id.clone());
        let work = move |connection: &Connection, now: Timestamp| {
            let values = params![key.0.as_str(), key.1.as_str(), now.0];
            if connection.prepare_cached(STOP)?.execute(values)? == 1 {
                record(connection, &action, now)?;
            }
            Ok(rows(connection, ONE, params![key.0.as_str(), key.1.as_str()])?.pop())
        };
        self.writer.write("stopping a bulk operation", work).await
    }
}

fn rows(connection: &Connection, sql: &str, values: impl Params) -> fault::Result<Vec<BulkRow>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(values)?;
    let mut rows = Vec::new();
    while let Some(found) = found.next()? {
        rows.push(row(found)?);
    }
    Ok(rows)
}

/// The first rows that can be read, at most `limit`.
fn readable(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    limit: u32,
) -> fault::Result<Vec<BulkRow>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(values)?;
    let (mut rows, mut unreadable) = (Vec::new(), Vec::new());
    while rows.len() < limit as usize
        && let Some(found) = found.next()?
    {
        match row(found) {
            Ok(row) => rows.push(row),
            Err(_) => unreadable.push(column::text(found, 1)?.to_owned()),
        }
    }
    bulk::warn(&unreadable);
    Ok(rows)
}

fn row(row: &Row<'_>) -> fault::Result<BulkRow> {
    let cursor: Option<[u8; 16]> = row.get(5)?;
    let request: String = row.get(10)?;
    let bulk = Bulk::from_text(&request)
        .map_err(|error| fault::Fault::corrupt("reading a bulk operation", error))?;
    Ok(BulkRow {
        namespace: column::name(row, 0)?,
        id: column::name(row, 1)?,
        created_at: column::time(row, 2)?,
        ended_at: column::time_if_any(row, 3)?,
        state: column::code(row, 4, State::from_code)?,
        cursor: cursor.map(|bytes| Cursor(everstep_protocol::InstanceUid(uuid::Uuid::from_bytes(bytes)))),
        progress: Progress {
            looked_at: column::count(row, 6)?,
            matched: column::count(row, 7)?,
            done: column::count(row, 8)?,
            refused: column::count(row, 9)?,
        },
        bulk,
        by: row.get(11)?,
    })
}
