//! Schedules.

use async_trait::async_trait;
use everstep_engine::schedule::{Definition, State};
use everstep_protocol::{Namespace, ScheduleId};
use tokio_postgres::Row;

use super::{
    PostgresStore,
    fault::Fault,
    rows::{name, time, time_if_any},
    trip::{Params, params},
};
use crate::{
    ChangeRow, Dated, Error, ScheduleChange, ScheduleRow, ScheduleWrite, Schedules, Woken, schedules::warn,
};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT namespace, id, version, created_at, changed_at, wake_at, definition, state FROM schedule ",
            $rest
        )
    };
}

const ONE: &str = select!("WHERE namespace = $1::text AND id = $2::text");
const LIST: &str = select!("WHERE namespace = $1::text AND id > $2::text ORDER BY id LIMIT $3::bigint");
/// By the index `schedule_due`.
const WOKEN: &str =
    select!("WHERE wake_at IS NOT NULL AND wake_at <= $1::bigint ORDER BY wake_at LIMIT $2::bigint");
/// By the same index.
const NEXT: &str = "SELECT wake_at FROM schedule WHERE wake_at IS NOT NULL AND wake_at > $1::bigint ORDER BY wake_at LIMIT 1";
/// Each is found by its key, in the order of the keys, so that two of these wait for each other in no circle.
const SETTLE: &str = "UPDATE schedule s SET version = s.version + 1, state = new.state, wake_at = new.wake_at
    FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[])
              AS given (namespace, id, version, state, wake_at) ORDER BY 1, 2) new
    WHERE s.namespace = new.namespace AND s.id = new.id AND s.version = new.version
    RETURNING s.namespace, s.id";
/// A change and its record are one statement, so there is no change without one.
const CREATE: &str = "WITH done AS (
        INSERT INTO schedule (namespace, id, version, created_at, changed_at, wake_at, definition, state)
        SELECT $1::text, $2::text, 1, now, now, $3::bigint, $4::text, $5::text FROM everstep_clock() AS now
        ON CONFLICT DO NOTHING RETURNING created_at AS at)
    INSERT INTO schedule_change (namespace, id, at, operation, who, detail)
    SELECT $1::text, $2::text, at, $6::text, $7::text, $8::text FROM done";
const CHANGE: &str = "WITH done AS (
        UPDATE schedule SET version = version + 1, changed_at = everstep_clock(), wake_at = $3::bigint,
            definition = $4::text, state = $5::text
        WHERE namespace = $1::text AND id = $2::text AND version = $9::bigint RETURNING changed_at AS at)
    INSERT INTO schedule_change (namespace, id, at, operation, who, detail)
    SELECT $1::text, $2::text, at, $6::text, $7::text, $8::text FROM done";
const DELETE: &str = "WITH done AS (
        DELETE FROM schedule WHERE namespace = $1::text AND id = $2::text AND version = $3::bigint RETURNING everstep_clock() AS at)
    INSERT INTO schedule_change (namespace, id, at, operation, who, detail)
    SELECT $1::text, $2::text, at, $4::text, $5::text, $6::text FROM done";
/// By the index `schedule_change_of`.
const CHANGES: &str = "SELECT at, operation, who, detail FROM schedule_change
    WHERE namespace = $1::text AND id = $2::text ORDER BY number DESC LIMIT $3::bigint";

#[async_trait]
impl Schedules for PostgresStore {
    async fn schedule(
        &self,
        namespace: &Namespace,
        id: &ScheduleId,
    ) -> Result<Dated<Option<ScheduleRow>>, Error> {
        const DOING: &str = "reading a schedule";
        let now = self.clock(DOING).await?;
        let mut found = self.read(DOING, ONE, params![namespace.as_str(), id.as_str()], row).await?;
        Ok(Dated { now, what: found.pop() })
    }

    async fn schedules(
        &self,
        namespace: &Namespace,
        after: Option<&ScheduleId>,
        limit: u32,
    ) -> Result<Dated<Vec<ScheduleRow>>, Error> {
        const DOING: &str = "listing schedules";
        let now = self.clock(DOING).await?;
        let after = after.map_or("", ScheduleId::as_str);
        let params = |rows| params![namespace.as_str(), after, rows];
        Ok(Dated { now, what: self.readable_schedules(DOING, LIST, params, limit).await? })
    }

    async fn woken_schedules(&self, limit: u32) -> Result<Woken, Error> {
        const DOING: &str = "looking for due schedules";
        let now = self.clock(DOING).await?;
        let rows = self.readable_schedules(DOING, WOKEN, |rows| params![now.0, rows], limit).await?;
        let next = self.read(DOING, NEXT, params![now.0], |row| time(row, 0)).await?.pop();
        Ok(Woken { now, rows, next })
    }

    async fn settle_schedules(&self, writes: &[ScheduleWrite]) -> Result<Vec<bool>, Error> {
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        let column = |of: &dyn Fn(&ScheduleWrite) -> String| writes.iter().map(of).collect::<Vec<_>>();
        let params = params![
            column(&|write| write.namespace.to_string()),
            column(&|write| write.id.to_string()),
            writes.iter().map(|write| write.version as i64).collect::<Vec<_>>(),
            column(&|write| write.turn.state.to_text()),
            writes.iter().map(|write| write.turn.wake_at.map(|at| at.0)).collect::<Vec<_>>(),
        ];
        let key = |row: &Row| Ok::<(Namespace, ScheduleId), Fault>((name(row, 0)?, name(row, 1)?));
        let written: std::collections::HashSet<_> =
            self.read("settling schedules", SETTLE, params, key).await?.into_iter().collect();
        Ok(writes
            .iter()
            .map(|write| written.contains(&(write.namespace.clone(), write.id.clone())))
            .collect())
    }

    async fn change_schedule(&self, change: &ScheduleChange) -> Result<bool, Error> {
        const DOING: &str = "changing a schedule";
        let ScheduleChange { namespace, id, version, after, operation, by, detail } = change;
        let version = version.map(|version| version as i64);
        let (namespace, id) = (namespace.as_str(), id.as_str());
        let changed = match after {
            None => {
                let params = params![namespace, id, version, *operation, by.as_deref(), detail.as_deref()];
                self.execute(DOING, DELETE, params).await?
            }
            Some((definition, turn)) => {
                let (definition, state) = (definition.to_text(), turn.state.to_text());
                let wake_at = turn.wake_at.map(|at| at.0);
                let (by, detail) = (by.as_deref(), detail.as_deref());
                let mut params = params![namespace, id, wake_at, definition, state, *operation, by, detail];
                let statement = if version.is_some() { CHANGE } else { CREATE };
                if let Some(version) = version {
                    params.push(Box::new(version));
                }
                self.execute(DOING, statement, params).await?
            }
        };
        Ok(changed == 1)
    }

    async fn schedule_changes(
        &self,
        namespace: &Namespace,
        id: &ScheduleId,
        limit: u32,
    ) -> Result<Vec<ChangeRow>, Error> {
        let params = params![namespace.as_str(), id.as_str(), i64::from(limit)];
        let one = |row: &Row| {
            let (operation, by, detail) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            Ok(ChangeRow { at: time(row, 0)?, operation, by, detail })
        };
        self.read("reading changes of a schedule", CHANGES, params, one).await
    }
}

impl PostgresStore {
    /// The first rows that can be read, at most `limit`: as many more are asked for as could not be read.
    async fn readable_schedules<'a>(
        &self,
        doing: &'static str,
        sql: &'static str,
        params: impl Fn(i64) -> Params<'a> + Send,
        limit: u32,
    ) -> Result<Vec<ScheduleRow>, Error> {
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
                warn(&unreadable);
                return Ok(rows);
            }
            asked = i64::from(limit) + unreadable.len() as i64;
        }
    }
}

fn row(row: &Row) -> Result<ScheduleRow, Fault> {
    Ok(ScheduleRow {
        namespace: name(row, 0)?,
        id: name(row, 1)?,
        version: row.try_get::<_, i64>(2)? as u64,
        created_at: time(row, 3)?,
        changed_at: time(row, 4)?,
        wake_at: time_if_any(row, 5)?,
        definition: Definition::from_text(row.try_get(6)?).map_err(Fault::corrupt)?,
        state: State::from_text(row.try_get(7)?).map_err(Fault::corrupt)?,
    })
}
