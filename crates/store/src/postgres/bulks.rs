//! Operations on many instances.

use async_trait::async_trait;
use everstep_engine::{
    access::Asker,
    action::Action,
    bulk::{Bulk, Progress, State},
};
use everstep_protocol::{InstanceId, InstanceUid, Namespace};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    PostgresStore,
    actions::{record, recorded},
    fault::Fault,
    rows::{clean, name, time, time_if_any},
    trip::{Params, params},
};
use crate::{BulkRow, Bulks, Cursor, Error, bulk};

/// It and its record are one statement, so there is none without one.
const BEGIN: &str = concat!(
    "WITH done AS (
        INSERT INTO bulk (namespace, id, created_at, state, looked_at, matched, done, refused, request, begun_by)
        VALUES ($1::text, $2::text, everstep_clock(), 0, 0, 0, 0, 0, $3::text, $4::text)
        ON CONFLICT DO NOTHING RETURNING created_at AS at)",
    recorded!("$5")
);
const ONE: &str = "SELECT * FROM bulk WHERE namespace = $1::text AND id = $2::text";
/// By the index `bulk_by_time`.
const LIST: &str =
    "SELECT * FROM bulk WHERE namespace = $1::text ORDER BY created_at DESC, id LIMIT $2::bigint";
/// By the index `bulk_running`.
const RUNNING: &str = "SELECT * FROM bulk WHERE state = 0 ORDER BY created_at LIMIT $1::bigint";
const ADVANCE: &str = "UPDATE bulk
    SET cursor = coalesce($3::uuid, cursor), looked_at = $4::bigint, matched = $5::bigint, done = $6::bigint,
        refused = $7::bigint, state = CASE WHEN $3::uuid IS NULL THEN 1 ELSE 0 END,
        ended_at = CASE WHEN $3::uuid IS NULL THEN everstep_clock() END
    WHERE namespace = $1::text AND id = $2::text AND state = 0 AND cursor IS NOT DISTINCT FROM $8::uuid";
const STOP: &str = concat!(
    "WITH done AS (
        UPDATE bulk SET state = 2, ended_at = everstep_clock()
        WHERE namespace = $1::text AND id = $2::text AND state = 0 RETURNING ended_at AS at)",
    recorded!("$3")
);

#[async_trait]
impl Bulks for PostgresStore {
    async fn begin_bulk(
        &self,
        namespace: &Namespace,
        id: &InstanceId,
        bulk: &Bulk,
        by: &Asker,
    ) -> Result<BulkRow, Error> {
        const DOING: &str = "beginning a bulk operation";
        let action = record(&Action::bulk_begun(by, namespace, id, bulk));
        let who = clean(&by.who);
        let params = params![namespace.as_str(), id.as_str(), bulk.to_text(), who.into_owned(), action];
        self.execute(DOING, BEGIN, params).await?;
        let begun = self.bulk(namespace, id).await?;
        begun.ok_or_else(|| Fault::corrupt("it is not there").into_error(DOING))
    }

    async fn bulk(&self, namespace: &Namespace, id: &InstanceId) -> Result<Option<BulkRow>, Error> {
        let params = params![namespace.as_str(), id.as_str()];
        Ok(self.read("reading a bulk operation", ONE, params, row).await?.pop())
    }

    async fn bulks(&self, namespace: &Namespace, limit: u32) -> Result<Vec<BulkRow>, Error> {
        let params = |rows| params![namespace.as_str(), rows];
        self.readable("listing bulk operations", LIST, params, limit).await
    }

    async fn running_bulks(&self, limit: u32) -> Result<Vec<BulkRow>, Error> {
        self.readable("looking for bulk operations", RUNNING, |rows| params![rows], limit).await
    }

    async fn advance_bulk(
        &self,
        row: &BulkRow,
        progress: &Progress,
        next: Option<Cursor>,
    ) -> Result<bool, Error> {
        let params = params![
            row.namespace.as_str(),
            row.id.as_str(),
            next.map(|cursor| cursor.0.0),
            progress.looked_at as i64,
            progress.matched as i64,
            progress.done as i64,
            progress.refused as i64,
            row.cursor.map(|cursor| cursor.0.0),
        ];
        Ok(self.execute("going on with a bulk operation", ADVANCE, params).await? == 1)
    }

    async fn stop_bulk(
        &self,
        namespace: &Namespace,
        id: &InstanceId,
        by: &Asker,
    ) -> Result<Option<BulkRow>, Error> {
        let action = record(&Action::bulk_stopped(by, namespace, id));
        let params = params![namespace.as_str(), id.as_str(), action];
        self.execute("stopping a bulk operation", STOP, params).await?;
        self.bulk(namespace, id).await
    }
}

impl PostgresStore {
    /// The first rows that can be read, at most `limit`: as many more are asked for as could not be read.
    async fn readable<'a>(
        &self,
        doing: &'static str,
        sql: &'static str,
        params: impl Fn(i64) -> Params<'a> + Send,
        limit: u32,
    ) -> Result<Vec<BulkRow>, Error> {
        let mut asked = i64::from(limit);
        loop {
            let one = |found: &Row| Ok(row(found).map_err(|_| found.try_get(1)));
            let found = self.read(doing, sql, params(asked), one).await?;
            let is_all = (found.len() as i64) < asked;
            let (mut rows, mut unreadable) = (Vec::new(), Vec::<String>::new());
            for row in found {
                match row {
                    Ok(row) => rows.push(row),
                    Err(id) => unreadable.push(id.map_err(|error| Fault::from(error).into_error(doing))?),
                }
            }
            if is_all || rows.len() >= limit as usize {
                bulk::warn(&unreadable);
                return Ok(rows);
            }
            asked = i64::from(limit) + unreadable.len() as i64;
        }
    }
}

fn row(row: &Row) -> Result<BulkRow, Fault> {
    let state: i16 = row.try_get(4)?;
    let cursor: Option<Uuid> = row.try_get(5)?;
    let count = |at: usize| Ok::<_, Fault>(row.try_get::<_, i64>(at)? as u64);
    Ok(BulkRow {
        namespace: name(row, 0)?,
        id: name(row, 1)?,
        created_at: time(row, 2)?,
        ended_at: time_if_any(row, 3)?,
        state: State::from_code(state).ok_or_else(|| Fault::corrupt(format!("unknown state {state}")))?,
        cursor: cursor.map(|cursor| Cursor(InstanceUid(cursor))),
        progress: Progress { looked_at: count(6)?, matched: count(7)?, done: count(8)?, refused: count(9)? },
        bulk: Bulk::from_text(row.try_get(10)?).map_err(Fault::corrupt)?,
        by: row.try_get(11)?,
    })
}
