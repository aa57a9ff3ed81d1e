//! The embedded store: one file, one process (rule W13). For development, tests and small installations.
//!
//! | module | what for |
//! | --- | --- |
//! | `schema` | connections, migrations |
//! | `thread` | the threads that own the connections; transactions |
//! | `clock` | the one clock |
//! | `transaction`, `load`, `write` | a batch |
//! | `journal`, `sessions`, `schedule`, `records`, `bulks`, `schedules`, `access`, `audits`, `views` | the rest of the port |
//! | `stir` | what goes on, for those who keep the clock |
//!
//! Everything that is written goes through one thread, so heads are never locked elsewhere and nothing waits for a lock.
//! Reads have threads of their own: journals must not wait for commits, and nothing must wait for somebody's list.

mod access;
mod actions;
mod attention;
mod audits;
mod bulks;
mod clock;
mod column;
mod depths;
mod events;
mod fault;
mod hooks;
mod journal;
mod ledger;
mod letters;
mod load;
mod records;
mod schedule;
mod schedules;
mod schema;
mod sessions;
mod stir;
mod thread;
mod transaction;
mod views;
mod write;

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    sync::Arc,
};

use self::{
    clock::Clock,
    fault::{Fault, Result},
    thread::{Only, Reader, Writer},
};
pub use self::{clock::GivenClock, stir::Stir, thread::CommitListener};
use crate::{Error, ErrorKind};

const OPENING: &str = "opening the embedded store";

/// The embedded store. Dropping it finishes what was asked of it and gives the file free.
#[derive(Debug)]
pub struct SqliteStore {
    // Dropped in this order: the writer's connection, the last one, cleans up the log; then the lock goes.
    viewer: Reader,
    reader: Reader,
    writer: Writer,
    clock: Arc<Clock>,
    _lock: Option<File>,
}

impl SqliteStore {
    /// Opens the file, creating it and its directories, and brings its schema up to date. All former sessions end at
    /// once: their workers lived in the process that had it open, or must come back anyway (rule W13).
    ///
    /// Errors: [`ErrorKind::InUse`] if another process has it open; a retry helps once that has stopped.
    pub fn open(path: &Path) -> std::result::Result<Self, Error> {
        let io = |error: std::io::Error| Error::new(ErrorKind::Unavailable, OPENING, error);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(io)?;
        }
        let lock = lock(path)?;
        let sql = |fault: Fault| fault.into_error(OPENING);
        let connection = schema::open_writer(path).map_err(sql)?;
        let clock = Arc::new(Clock::new(schema::last_at(&connection).map_err(sql)?));
        begin_anew(&connection, &clock).map_err(sql)?;
        let reader = schema::open_reader(path).map_err(sql)?;
        let viewer = schema::open_reader(path).map_err(sql)?;
        Ok(Self {
            viewer: Reader::spawn("everstep-views", viewer).map_err(io)?,
            reader: Reader::spawn("everstep-reads", reader).map_err(io)?,
            writer: Writer::spawn(connection, Arc::clone(&clock)).map_err(io)?,
            clock,
            _lock: Some(lock),
        })
    }

    /// A store that lives in memory and ends with this value: for tests and simulations. It starts no thread: everything is
    /// done on the thread that asks, before the answer is first polled. Its time is that of `clock`, and `committed` is called
    /// after each write.
    pub fn in_memory(clock: GivenClock, committed: CommitListener) -> std::result::Result<Self, Error> {
        let sql = |fault: Fault| fault.into_error(OPENING);
        let connection = schema::open_memory().map_err(sql)?;
        let clock = Arc::new(Clock::Given(clock));
        begin_anew(&connection, &clock).map_err(sql)?;
        let only = Only::new(connection);
        Ok(Self {
            viewer: Reader::Here(only.clone()),
            reader: Reader::Here(only.clone()),
            writer: Writer::Here { only, clock: Arc::clone(&clock), committed },
            clock,
            _lock: None,
        })
    }
}

/// Nobody else is there: sessions have ended, duties are free, and what was offered was offered to nobody.
fn begin_anew(connection: &rusqlite::Connection, clock: &Clock) -> Result<()> {
    let transaction = connection.unchecked_transaction()?;
    let now = clock.now();
    sessions::end_all(&transaction, now)?;
    transaction.execute("DELETE FROM duty", [])?;
    transaction.execute("UPDATE ready SET offered_at = NULL WHERE offered_at IS NOT NULL", [])?;
    transaction.execute("UPDATE installation SET last_at = ?1", [now.0])?;
    transaction.commit()?;
    Ok(())
}

fn lock(path: &Path) -> std::result::Result<File, Error> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let file = File::options().create(true).truncate(false).write(true).open(&name);
    let file = file.map_err(|error| Error::new(ErrorKind::Unavailable, OPENING, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let reason = format!("another process holds {}", name.display());
            Err(Error::new(ErrorKind::InUse, OPENING, reason))
        }
        Err(TryLockError::Error(error)) => Err(Error::new(ErrorKind::Unavailable, OPENING, error)),
    }
}
