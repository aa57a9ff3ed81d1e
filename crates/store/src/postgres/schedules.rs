//! Schedules.

use async_trait::async_trait;
use everstep_engine::schedule::{Definition, State};
use everstep_protocol::{Namespace, ScheduleId};
use tokio_postgres::Row;

use super::{
    PostgresStore,
    actions::{record, recorded},
    fault::Fault,
    rows::{name, time, time_if_any},
    trip::{Params, params},
};
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

/// Rows that are read in one order, with how many there were before bytes bounded them: a row is read if those before it have fewer bytes. That
/// a text is long is known without reading it.
macro_rules! page {
    ($which:literal, $limit:literal, $order:literal, $bytes:literal) => {
        concat!(
            "SELECT namespace, id, version, created_at, changed_at, wake_at, definition, state, found FROM (
                SELECT *, count(*) OVER () AS found,
                    sum(octet_length(definition) + octet_length(state)) OVER (ORDER BY ",
            $order,
            ") - octet_length(definition) - octet_length(state) AS before
                FROM (SELECT * FROM schedule WHERE ",
            $which,
            " ORDER BY ",
            $order,
            " LIMIT ",
            $limit,
            "::bigint) part) bounded WHERE before < ",
            $bytes,
            "::bigint ORDER BY ",
            $order
        )
    };
}

const ONE: &str = select!("WHERE namespace = $1::text AND id = $2::text");
/// By the key.
const LIST: &str = page!("namespace = $1::text AND id > $2::text", "$3", "id", "$4");
/// By the index `schedule_due`.
const WOKEN: &str = page!(
    "wake_at IS NOT NULL AND wake_at <= $1::bigint
        AND (wake_at, namespace, id) > ($2::bigint, $3::text, $4::text)",
    "$5",
    "wake_at, namespace, id",
    "$6"
);
/// By the same index.
const NEXT: &str = "SELECT wake_at FROM schedule WHERE wake_at IS NOT NULL AND wake_at > $1::bigint ORDER BY wake_at LIMIT 1";
/// Each is found by its key, in the order of the keys, so that two of these wait for each other in no circle.
const SETTLE: &str = "UPDATE schedule s SET version = s.version + 1, state = new.state, wake_at = new.wake_at
    FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[])
              AS given (namespace, id, version, state, wake_at) ORDER BY 1, 2) new
    WHERE s.namespace = new.namespace AND s.id = new.id AND s.version = new.version
    RETURNING s.namespace, s.id";
/// A change and its record are one statement, so there is no change without one.
const CREATE: &str = concat!(
    "WITH done AS (
        INSERT INTO schedule (namespace, id, version, created_at, changed_at, wake_at, definition, state)
        SELECT $1::text, $2::text, nextval('schedule_version'), now, now, $3::bigint, $4::text, $5::text FROM everstep_clock() AS now
        ON CONFLICT DO NOTHING RETURNING created_at AS at)",
    recorded!("$6")
);
const CHANGE: &str = concat!(
    "WITH done AS (
        UPDATE schedule SET version = version + 1, changed_at = everstep_clock(), wake_at = $3::bigint,
            definition = $4::text, state = $5::text
        WHERE namespace = $1::text AND id = $2::text AND version = $7::bigint RETURNING changed_at AS at)",
    recorded!("$6")
);
const DELETE: &str = concat!(
    "WITH done AS (
        DELETE FROM schedule WHERE namespace = $1::text AND id = $2::text AND version = $3::bigint RETURNING everstep_clock() AS at)",
    recorded!("$4")
);

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
    ) -> Result<Listed, Error> {
        const DOING: &str = "listing schedules";
        let now = self.clock(DOING).await?;
        let after = after.map_or("", ScheduleId::as_str);
        let params = |at: &Place, left: i64| {
            let after = if at.id.is_empty() { after.to_owned() } else { at.id.clone() };
            params![namespace.as_str(), after, left, SCHEDULE_PAGE_BYTES as i64]
        };
        let (what, next) = self.readable_schedules(DOING, LIST, params, limit).await?;
        let next = next.map(|place| ScheduleId::new(place.id)).transpose();
        Ok(Listed { now, what, next: next.map_err(|error| Fault::corrupt(error).into_error(DOING))? })
    }

    async fn woken_schedules(&self, limit: u32) -> Result<Woken, Error> {
        const DOING: &str = "looking for due schedules";
        let now = self.clock(DOING).await?;
        let params = |at: &Place, left: i64| {
            let (namespace, id) = (at.namespace.clone(), at.id.clone());
            params![now.0, at.wake_at, namespace, id, left, SCHEDULE_PAGE_BYTES as i64]
        };
        let (rows, _) = self.readable_schedules(DOING, WOKEN, params, limit).await?;
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
        let ScheduleChange { namespace, id, version, after, action } = change;
        let action = record(action);
        let version = version.map(|version| version as i64);
        let (namespace, id) = (namespace.as_str(), id.as_str());
        let changed = match after {
            None => {
                let params = params![namespace, id, version, action];
                self.execute(DOING, DELETE, params).await?
            }
            Some((definition, turn)) => {
                let (definition, state) = (definition.to_text(), turn.state.to_text());
                let wake_at = turn.wake_at.map(|at| at.0);
                let mut params = params![namespace, id, wake_at, definition, state, action];
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
        let found = self.actions(&changes_of(namespace, id), None, limit).await?;
        Ok(found.into_iter().map(ChangeRow::from).collect())
    }
}

impl PostgresStore {
    /// The rows of a page that can be read, and after which place to go on if there are more. What cannot be read is passed over.
    async fn readable_schedules<'a>(
        &self,
        doing: &'static str,
        sql: &'static str,
        params: impl Fn(&Place, i64) -> Params<'a> + Send,
        limit: u32,
    ) -> Result<(Vec<ScheduleRow>, Option<Place>), Error> {
        let (mut place, mut rows) = (Place::default(), Vec::new());
        loop {
            let left = i64::from(limit) - rows.len() as i64;
            let one = |found: &Row| Ok((Place::of(found)?, row(found).ok(), found.try_get::<_, i64>(8)?));
            let found = self.read(doing, sql, params(&place, left), one).await?;
            let Some((last, _, all)) = found.last() else { return Ok((rows, None)) };
            let (is_cut, is_all) = (*all > found.len() as i64, *all < left && *all == found.len() as i64);
            place = last.clone();
            let mut unreadable = Vec::new();
            for (place, row, _) in found {
                match row {
                    Some(row) => rows.push(row),
                    None => unreadable.push(place.id),
                }
            }
            warn(&unreadable);
            let is_full = rows.len() == limit as usize || (is_cut && !rows.is_empty());
            if is_all || is_full {
                return Ok((rows, (!is_all).then_some(place)));
            }
        }
    }
}

/// A place in the order of a page; before all others if nothing else is said.
#[derive(Clone, Debug)]
struct Place {
    wake_at: i64,
    namespace: String,
    id: String,
}

impl Default for Place {
    fn default() -> Self {
        Self { wake_at: i64::MIN, namespace: String::new(), id: String::new() }
    }
}

impl Place {
    fn of(row: &Row) -> Result<Self, Fault> {
        let wake_at: Option<i64> = row.try_get(5)?;
        Ok(Self { wake_at: wake_at.unwrap_or(i64::MIN), namespace: row.try_get(0)?, id: row.try_get(1)? })
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
