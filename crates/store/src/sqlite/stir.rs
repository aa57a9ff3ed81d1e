//! Whether anything goes on without waiting for a moment: for whoever moves a clock of their own.

use everstep_protocol::{Pool, Timestamp, WorkflowName};
use rusqlite::Connection;

use super::{SqliteStore, fault};
use crate::Error;

/// The row of an instance that is pinned names the queue of its build: its workflow is in the head.
const WORKFLOWS: &str =
    "SELECT DISTINCT instance.workflow FROM ready JOIN instance ON instance.uid = ready.uid
    WHERE pool IS NULL";

/// By the index `control_deadline`.
const DEADLINE: &str = "SELECT min(cancel_until) FROM control WHERE cancel_until IS NOT NULL";

/// What goes on by itself. Waits are not in here: see [`Schedule::due`](crate::Schedule::due).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stir {
    /// Instances and remote steps that somebody holds.
    pub held: u64,
    /// Instances that are runnable and held by nobody.
    pub runnable: u64,
    /// The workflows of those.
    pub workflows: Vec<WorkflowName>,
    /// Letters between instances that nobody has taken.
    pub letters: u64,
    /// The pools of remote steps that are runnable and held by nobody.
    pub pools: Vec<Pool>,
    /// The earliest deadline of a cancel (rule P30).
    pub deadline: Option<Timestamp>,
}

impl SqliteStore {
    /// What goes on at this moment.
    pub async fn stir(&self) -> Result<Stir, Error> {
        self.reader.read("looking what goes on", stir).await
    }
}

fn stir(connection: &Connection) -> fault::Result<Stir> {
    let count = |sql: &str| -> fault::Result<u64> {
        let count: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        Ok(count as u64)
    };
    let held = count("SELECT count(*) FROM lease")?;
    let runnable = count("SELECT count(*) FROM ready WHERE pool IS NULL")?;
    let letters = count("SELECT count(*) FROM mailbox")?;
    let mut workflows = Vec::new();
    let mut statement = connection.prepare_cached(WORKFLOWS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        workflows.push(super::column::name(row, 0)?);
    }
    let mut pools = Vec::new();
    let mut statement =
        connection.prepare_cached("SELECT DISTINCT pool FROM ready WHERE pool IS NOT NULL")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        pools.push(super::column::name(row, 0)?);
    }
    let deadline: Option<i64> = connection.prepare_cached(DEADLINE)?.query_row([], |row| row.get(0))?;
    let deadline = deadline.map(Timestamp);
    Ok(Stir { held, runnable, workflows, letters, pools, deadline })
}
