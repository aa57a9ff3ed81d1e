//! Schedules.

use async_trait::async_trait;
use everstep_engine::schedule::{Definition, State};
use everstep_protocol::{Namespace, ScheduleId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::{SqliteStore, actions::record, column, fault};
use crate::{
    Actions as _, ChangeRow, Dated, Error, Listed, SCHEDULE_PAGE_BYTES, ScheduleChange, ScheduleRow,
    ScheduleWrite, Schedules, Woken,
    schedules::{changes_of, warn},
};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT namespace, id, version, created_at, changed_at, wake_at, definition, state FROM schedule ",
            $rest
        )
    };
}

const ONE: &str = select!("WHERE namespace = ?1 AND id = ?2");
const LIST: &str = select!("WHERE namespace = ?1 AND id > ?2 ORDER BY id");
/// By the index `schedule_due`.
const WOKEN: &str = select!("WHERE wake_at IS NOT NULL AND wake_at <= ?1 ORDER BY wake_at, namespace, id");
/// By the same index.
const NEXT: &str = "SELECT min(wake_at) FROM schedule WHERE wake_at IS NOT NULL AND wake_at > ?1";
const SETTLE: &str = "UPDATE schedule SET version = version + 1, state = ?4, wake_at = ?5
    WHERE namespace = ?1 AND id = ?2 AND version = ?3";
/// Its versions begin far above those of one that was deleted: each creation is recorded, under a number that grows.
const CREATE: &str =
    "INSERT INTO schedule (namespace, id, version, created_at, changed_at, wake_at, definition, state)
    SELECT ?1, ?2, 1 + 4294967296 * coalesce(max(number), 0), ?3, ?3, ?4, ?5, ?6 FROM action WHERE true
    ON CONFLICT DO NOTHING";
const CHANGE: &str =
    "UPDATE schedule SET version = version + 1, changed_at = ?4, wake_at = ?5, definition = ?6, state = ?7
    WHERE namespace = ?1 AND id = ?2 AND version = ?3";
const DELETE: &str = "DELETE FROM schedule WHERE namespace = ?1 AND id = ?2 AND version = ?3";

#[async_trait]
impl Schedules for SqliteStore {
    async fn schedule(
        &self,
        namespace: &Namespace,
        id: &ScheduleId,
    ) -> Result<Dated<Option<ScheduleRow>>, Error> {
        let (key, now) = ((namespace.clone(), id.clone()), self.clock.now());
        let work = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(ONE)?;
            let found = statement.query_row(params![key.0.as_str(), key.1.as_str()], |found| Ok(row(found)));
            Ok(Dated { now, what: found.optional()?.transpose()? })
        };
        self.reader.read("reading a schedule", work).await
    }

    async fn schedules(
        &self,
        namespace: &Namespace,
        after: Option<&ScheduleId>,
        limit: u32,
    ) -> Result<Listed, Error> {
        let (namespace, now) = (namespace.clone(), self.clock.now());
        let after = after.map_or_else(String::new, ToString::to_string);
        let work = move |connection: &Connection| {
            let (what, is_all) = readable(connection, LIST, params![namespace.as_str(), after], limit)?;
            let next = what.last().filter(|_| !is_all).map(|row| row.id.clone());
            Ok(Listed { now, what, next })
        };
        self.viewer.read("listing schedules", work).await
    }

    async fn woken_schedules(&self, limit: u32) -> Result<Woken, Error> {
        let now = self.clock.now();
        let work = move |connection: &Connection| {
            let (rows, _) = readable(connection, WOKEN, params![now.0], limit)?;
            let next: Option<i64> = connection.prepare_cached(NEXT)?.query_row([now.0], |row| row.get(0))?;
            Ok(Woken { now, rows, next: next.map(Timestamp) })
        };
        self.reader.read("looking for due schedules", work).await
    }

    async fn settle_schedules(&self, writes: &[ScheduleWrite]) -> Result<Vec<bool>, Error> {
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        let writes = writes.to_vec();
        let work = move |connection: &Connection, _: Timestamp| {
            let mut statement = connection.prepare_cached(SETTLE)?;
            let mut settle = |write: &ScheduleWrite| {
                let wake_at = write.turn.wake_at.map(|at| at.0);
                let (namespace, id) = (write.namespace.as_str(), write.id.as_str());
                let values =
                    params![namespace, id, write.version as i64, write.turn.state.to_text(), wake_at];
                Ok(statement.execute(values)? == 1)
            };
            writes.iter().map(&mut settle).collect()
        };
        self.writer.write("settling schedules", work).await
    }

    async fn change_schedule(&self, change: &ScheduleChange) -> Result<bool, Error> {
        let change = change.clone();
        let work = move |connection: &Connection, now: Timestamp| {
            let done = write(connection, &change, now)? == 1;
            if done {
                record(connection, &change.action, now)?;
            }
            Ok(done)
        };
        self.writer.write("changing a schedule", work).await
    }

    async fn schedule_changes(
        &self,
        namespace: &Namespace,
        id: &ScheduleId,
        limit: u32,
    ) -> Result<Vec<ChangeRow>, Error> {
        let found = self.actions(&changes_of(namespace, id), None, limit).await?;
        Ok(found.into_iter().map(ChangeRow::from).collect())
    }
}

/// How many rows were changed.
fn write(connection: &Connection, change: &ScheduleChange, now: Timestamp) -> fault::Result<usize> {
    let (namespace, id) = (change.namespace.as_str(), change.id.as_str());
    let version = change.version.map(|version| version as i64);
    Ok(match (&change.after, version) {
        (None, version) => connection.prepare_cached(DELETE)?.execute(params![namespace, id, version])?,
        (Some((definition, turn)), None) => {
            let wake_at = turn.wake_at.map(|at| at.0);
            let values = params![namespace, id, now.0, wake_at, definition.to_text(), turn.state.to_text()];
            connection.prepare_cached(CREATE)?.execute(values)?
        }
        (Some((definition, turn)), Some(version)) => {
            let wake_at = turn.wake_at.map(|at| at.0);
            let (definition, state) = (definition.to_text(), turn.state.to_text());
            let values = params![namespace, id, version, now.0, wake_at, definition, state];
            connection.prepare_cached(CHANGE)?.execute(values)?
        }
    })
}

/// The first rows that can be read, at most `limit` and about so many bytes as a page has; and whether those are all.
fn readable(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    limit: u32,
) -> fault::Result<(Vec<ScheduleRow>, bool)> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(values)?;
    let (mut rows, mut unreadable) = (Vec::new(), Vec::new());
    let (mut bytes, mut is_all) = (0, false);
    while rows.len() < limit as usize && bytes < SCHEDULE_PAGE_BYTES {
        let Some(found) = found.next()? else {
            is_all = true;
            break;
        };
        match row(found) {
            Ok(row) => {
                bytes += column::text(found, 6)?.len() + column::text(found, 7)?.len();
                rows.push(row);
            }
            Err(_) => unreadable.push(column::text(found, 1)?.to_owned()),
        }
    }
    warn(&unreadable);
    Ok((rows, is_all))
}

fn row(row: &Row<'_>) -> fault::Result<ScheduleRow> {
    let corrupt = |error| fault::Fault::corrupt("reading a schedule", error);
    Ok(ScheduleRow {
        namespace: column::name(row, 0)?,
        id: column::name(row, 1)?,
        version: column::count(row, 2)?,
        created_at: column::time(row, 3)?,
        changed_at: column::time(row, 4)?,
        wake_at: column::time_if_any(row, 5)?,
        definition: Definition::from_text(column::text(row, 6)?).map_err(corrupt)?,
        state: State::from_text(column::text(row, 7)?).map_err(corrupt)?,
    })
}
