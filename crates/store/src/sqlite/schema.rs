//! Connections and migrations. A migration is numbered, forward only, and runs when the store is opened.

use std::{path::Path, time::Duration};

use everstep_protocol::Timestamp;
use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::fault::{Fault, Result};
use crate::{Error, ErrorKind};

/// The migrations in order; the database's `user_version` says how many it has had.
const MIGRATIONS: [&str; 1] = [include_str!("../../../../migrations/sqlite/0001_first.sql")];

/// Statements that stay prepared: all of them.
const STATEMENTS: usize = 256;

/// The writing connection, migrated.
pub(super) fn open_writer(path: &Path) -> Result<Connection> {
    let mut connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    // Rows of a few hundred bytes with their keys: larger pages keep the trees flat. Only a new file takes it.
    connection.pragma_update(None, "page_size", 8192)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    // A commit is durable when it is answered (promise 1).
    connection.pragma_update(None, "synchronous", "full")?;
    // 64 MiB of log between checkpoints: most pages are written again before they have to go to the main file.
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 8192, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", 256 << 20, |_| Ok(()))?;
    configure(&connection)?;
    migrate(&mut connection)?;
    Ok(connection)
}

/// The one connection of a store in memory, migrated.
pub(super) fn open_memory() -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_in_memory_with_flags(flags)?;
    configure(&connection)?;
    migrate(&mut connection)?;
    Ok(connection)
}

/// A connection that only reads.
pub(super) fn open_reader(path: &Path) -> Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    configure(&connection)?;
    Ok(connection)
}

fn configure(connection: &Connection) -> Result<()> {
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cache_size", -64 * 1024)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Plans do not depend on what is bound. Without this a statement on a table with a partial index is planned anew at each
    // execution.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

fn migrate(connection: &mut Connection) -> Result<()> {
    let done: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let done = done as usize;
    if done > MIGRATIONS.len() {
        let reason = format!("its schema {done} is newer than this version's {}", MIGRATIONS.len());
        return Err(Fault::Said(Error::new(ErrorKind::Corrupt, "opening the embedded store", reason)));
    }
    for (number, migration) in MIGRATIONS.iter().enumerate().skip(done) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", number as u32 + 1)?;
        transaction.commit()?;
    }
    Ok(())
}

/// The newest version that this program knows.
pub(super) const fn known() -> u32 {
    MIGRATIONS.len() as u32
}

/// The time of the last commit.
pub(super) fn last_at(connection: &Connection) -> Result<Timestamp> {
    Ok(Timestamp(connection.query_row("SELECT last_at FROM installation", [], |row| row.get(0))?))
}
