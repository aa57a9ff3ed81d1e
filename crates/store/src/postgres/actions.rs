//! The audit log. What is recorded is one parameter, an array of texts, of whichever statement does what it tells of.

use async_trait::async_trait;
use everstep_engine::action::Action;
use everstep_protocol::Scope;
use tokio_postgres::Row;

use super::{
    PostgresStore,
    fault::Fault,
    rows::{clean, time},
    trip::params,
};
use crate::{ActionFilter, ActionRow, Actions, Error};

/// The end of a statement that has done something to the rows of `done`, each with its time as `at`: so many records are written.
macro_rules! recorded {
    ($param:literal) => {
        concat!(
            " INSERT INTO action (at, namespace, target, operation, who, came_from, named, outcome, detail)
            SELECT at, a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8] FROM done, (SELECT ",
            $param,
            "::text[] AS a) given"
        )
    };
}
pub(super) use recorded;

/// An action as [`recorded!`] takes it.
pub(super) fn record(action: &Action) -> Vec<Option<String>> {
    let text = |text: &str| Some(clean(text).into_owned());
    vec![
        Some(action.scope.to_string()),
        text(&action.target),
        text(action.operation),
        text(&action.by.who),
        text(&action.by.from),
        action.named.as_deref().and_then(text),
        text(&action.outcome.text()),
        action.detail.as_deref().and_then(text),
    ]
}

/// Newest first, of those that an index gives in that order.
macro_rules! list {
    ($which:literal) => {
        concat!(
            "SELECT number, at, namespace, target, operation, who, came_from, named, outcome, detail FROM action
            WHERE ",
            $which,
            " AND number < $3::bigint AND ($4::text IS NULL OR who = $4::text
                OR left(who, length($4::text) + 2) = $4::text || ' (')
            AND ($5::text IS NULL OR operation = $5::text)
            AND ($6::bigint IS NULL OR at >= $6::bigint) AND ($7::bigint IS NULL OR at < $7::bigint)
            ORDER BY number DESC LIMIT $8::bigint"
        )
    };
}

/// By the key.
const ALL: &str = list!("$1::text = '*' AND ($2::text IS NULL OR target = $2::text)");
/// By the index `action_by_namespace`.
const OF_NAMESPACE: &str = list!("namespace = $1::text AND $2::text IS NULL");
/// By the index `action_by_target`.
const OF_TARGET: &str = list!("namespace = $1::text AND target = $2::text");

#[async_trait]
impl Actions for PostgresStore {
    async fn actions(
        &self,
        filter: &ActionFilter,
        below: Option<u64>,
        limit: u32,
    ) -> Result<Vec<ActionRow>, Error> {
        let ActionFilter { within, target, who, operation, from, before } = filter;
        let params = params![
            within.to_string(),
            target.as_deref(),
            below.and_then(|below| i64::try_from(below).ok()).unwrap_or(i64::MAX),
            who.as_deref(),
            operation.as_deref(),
            from.map(|at| at.0),
            before.map(|at| at.0),
            i64::from(limit),
        ];
        let sql = match (within, target) {
            (Scope::All, _) => ALL,
            (Scope::Of(_), None) => OF_NAMESPACE,
            (Scope::Of(_), Some(_)) => OF_TARGET,
        };
        self.read("reading the audit log", sql, params, row).await
    }
}

fn row(row: &Row) -> Result<ActionRow, Fault> {
    Ok(ActionRow {
        number: row.try_get::<_, i64>(0)? as u64,
        at: time(row, 1)?,
        scope: row.try_get::<_, &str>(2)?.parse().map_err(Fault::corrupt)?,
        target: row.try_get(3)?,
        operation: row.try_get(4)?,
        who: row.try_get(5)?,
        from: row.try_get(6)?,
        named: row.try_get(7)?,
        outcome: row.try_get(8)?,
        detail: row.try_get(9)?,
    })
}
