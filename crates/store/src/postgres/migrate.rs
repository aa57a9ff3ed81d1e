//! The schema: numbered files, applied in order, each in a transaction of its own, never taken back. Several processes may
//! try at once: one applies, the others wait, and find nothing to do.

use std::time::Duration;

use tokio_postgres::{Client, Config, error::SqlState};

use super::{PostgresSettings, fault::Fault, tls::Dialer};
use crate::{Error, ErrorKind};

const MIGRATING: &str = "migrating the database";
const CHECKING: &str = "checking the schema's version";

/// Any number that nothing else on the server uses.
const LOCK: i64 = 0x0065_7665_7273_7465;
const LOCK_EVERY: Duration = Duration::from_millis(200);
const LOCK_TRIES: u32 = 300;
const TRIES: u32 = 10;

struct Migration {
    version: i32,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "tables",
    sql: include_str!("../../../../migrations/postgres/0001_tables.sql"),
}];

/// A migration that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its number.
    pub version: i32,
    /// Its name.
    pub name: String,
}

/// Brings a database up to date. Answers with what was applied; nothing if it was up to date. Repeating is safe.
pub async fn migrate(settings: impl Into<PostgresSettings>) -> Result<Vec<Applied>, Error> {
    let client = open(&settings.into(), MIGRATING).await?;
    // The lock is the session's: it ends with the connection, also if this fails or is dropped.
    lock(&client).await?;
    apply_all(&client).await.map_err(|fault| fault.into_error(MIGRATING))
}

/// Whether the schema is new enough for this version. A newer one is fine: migrations are made so that the version before
/// them still works.
pub(super) async fn check(config: &Config, dialer: &Dialer) -> Result<(), Error> {
    let client = dialer.dial(config).await.map_err(|fault| fault.into_error(CHECKING))?;
    let needed = MIGRATIONS.last().map_or(0, |migration| migration.version);
    let found = client.query_one("SELECT coalesce(max(version), 0) FROM everstep_migration", &[]).await;
    let found: i32 = match found {
        Ok(row) => row.get(0),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => 0,
        Err(error) => return Err(Fault::from(error).into_error(CHECKING)),
    };
    if found < needed {
        let reason = format!("the schema has version {found}, this version needs {needed}");
        return Err(Error::new(ErrorKind::NotMigrated, CHECKING, reason));
    }
    Ok(())
}

/// The newest version that this program knows.
pub(super) fn known() -> u32 {
    MIGRATIONS.last().map_or(0, |migration| migration.version.unsigned_abs())
}

/// A connection for what is done once.
pub(super) async fn open(settings: &PostgresSettings, doing: &'static str) -> Result<Client, Error> {
    let config = settings.plain_config()?;
    settings.dialer()?.dial(&config).await.map_err(|fault| fault.into_error(doing))
}

/// Waiting inside the database would block `CREATE INDEX CONCURRENTLY`, so the lock is polled.
async fn lock(client: &Client) -> Result<(), Error> {
    for _ in 0..LOCK_TRIES {
        let row = client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await;
        let row = row.map_err(|error| Fault::from(error).into_error(MIGRATING))?;
        if row.get(0) {
            return Ok(());
        }
        tokio::time::sleep(LOCK_EVERY).await;
    }
    Err(Error::new(ErrorKind::Unavailable, MIGRATING, "another process has been migrating for a minute"))
}

async fn apply_all(client: &Client) -> Result<Vec<Applied>, Fault> {
    client
        .batch_execute(
            "SET lock_timeout = '2s'; SET client_min_messages = warning;
             CREATE TABLE IF NOT EXISTS everstep_migration (
                 version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
             )",
        )
        .await?;
    let rows = client.query("SELECT version FROM everstep_migration", &[]).await?;
    let known: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    let mut applied = Vec::new();
    for migration in MIGRATIONS.iter().filter(|migration| !known.contains(&migration.version)) {
        apply(client, migration).await?;
        applied.push(Applied { version: migration.version, name: migration.name.to_owned() });
    }
    Ok(applied)
}

/// A lock that is not free within its timeout is tried again: waiting for it longer would stop everybody behind us.
async fn apply(client: &Client, migration: &Migration) -> Result<(), Fault> {
    let note = format!(
        "INSERT INTO everstep_migration (version, name) VALUES ({}, '{}')",
        migration.version, migration.name
    );
    let script = format!("BEGIN;\n{}\n;{note};COMMIT", migration.sql);
    let mut tries = 0;
    loop {
        let Err(error) = client.batch_execute(&script).await else {
            return Ok(());
        };
        client.batch_execute("ROLLBACK").await?;
        tries += 1;
        if error.code() != Some(&SqlState::LOCK_NOT_AVAILABLE) || tries >= TRIES {
            return Err(error.into());
        }
        tracing::info!(migration = migration.name, tries, "a table is locked, trying again");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
