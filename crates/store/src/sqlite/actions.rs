//! The audit log.

use async_trait::async_trait;
use everstep_engine::action::Action;
use everstep_protocol::{Scope, Timestamp};
use rusqlite::{Connection, Row, params};

use super::{SqliteStore, column, fault};
use crate::{ActionFilter, ActionRow, Actions, Error};

const INSERT: &str =
    "INSERT INTO action (at, namespace, target, operation, who, came_from, named, outcome, detail)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

/// Newest first, of those that an index gives in that order.
macro_rules! list {
    ($which:literal) => {
        concat!(
            "SELECT number, at, namespace, target, operation, who, came_from, named, outcome, detail FROM action
            WHERE ",
            $which,
            " AND number < ?3 AND (?4 IS NULL OR who = ?4 OR substr(who, 1, length(?4) + 2) = ?4 || ' (')
            AND (?5 IS NULL OR operation = ?5) AND (?6 IS NULL OR at >= ?6) AND (?7 IS NULL OR at < ?7)
            ORDER BY number DESC LIMIT ?8"
        )
    };
}

/// By the key.
const ALL: &str = list!("?1 = '*' AND (?2 IS NULL OR target = ?2)");
/// By the index `action_by_namespace`.
const OF_NAMESPACE: &str = list!("namespace = ?1 AND ?2 IS NULL");
/// By the index `action_by_target`.
const OF_TARGET: &str = list!("namespace = ?1 AND target = ?2");

/// Writes a record, in the transaction that does what it tells of.
pub(super) fn record(connection: &Connection, action: &Action, now: Timestamp) -> fault::Result<()> {
    let Action { by, named, scope, target, operation, outcome, detail } = action;
    let (scope, outcome) = (scope.to_string(), outcome.text());
    let values = params![now.0, scope, target, operation, by.who, by.from, named, outcome, detail];
    connection.prepare_cached(INSERT)?.execute(values)?;
    Ok(())
}

#[async_trait]
impl Actions for SqliteStore {
    async fn actions(
        &self,
        filter: &ActionFilter,
        below: Option<u64>,
        limit: u32,
    ) -> Result<Vec<ActionRow>, Error> {
        let filter = filter.clone();
        let below = below.and_then(|below| i64::try_from(below).ok()).unwrap_or(i64::MAX);
        let work = move |connection: &Connection| {
            let ActionFilter { within, target, who, operation, from, before } = &filter;
            let sql = match (within, target) {
                (Scope::All, _) => ALL,
                (Scope::Of(_), None) => OF_NAMESPACE,
                (Scope::Of(_), Some(_)) => OF_TARGET,
            };
            let (from, before) = (from.map(|at| at.0), before.map(|at| at.0));
            let mut statement = connection.prepare_cached(sql)?;
            let values = params![within.to_string(), target, below, who, operation, from, before, limit];
            let mut found = statement.query(values)?;
            let mut rows = Vec::new();
            while let Some(found) = found.next()? {
                rows.push(row(found)?);
            }
            Ok(rows)
        };
        self.viewer.read("reading the audit log", work).await
    }
}

fn row(row: &Row<'_>) -> fault::Result<ActionRow> {
    let scope = column::text(row, 2)?.parse();
    Ok(ActionRow {
        number: column::count(row, 0)?,
        at: column::time(row, 1)?,
        scope: scope.map_err(|error| fault::Fault::corrupt("reading the audit log", error))?,
        target: row.get(3)?,
        operation: row.get(4)?,
        who: row.get(5)?,
        from: row.get(6)?,
        named: row.get(7)?,
        outcome: row.get(8)?,
        detail: row.get(9)?,
    })
}
