//! Which error of the database is which error of the port.

use deadpool_postgres::PoolError;
use tokio_postgres::error::{DbError, SqlState};

use crate::{Error, ErrorKind};

/// What went wrong, before it is known what was tried.
#[derive(Debug)]
pub(super) enum Fault {
    /// The database or the way to it.
    Database(Box<tokio_postgres::Error>),
    /// Something of ours.
    Own(ErrorKind, String),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(Box::new(error))
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Own(error.kind, error.reason)
    }
}

impl Fault {
    pub(super) fn corrupt(reason: impl std::fmt::Display) -> Self {
        Self::Own(ErrorKind::Corrupt, reason.to_string())
    }

    /// The connection takes no writes, and will not by itself: it was made to a database, or a replica, that takes none. Whoever has it
    /// gives it up, so that the next one is made to where writes go.
    pub(super) fn is_read_only(&self) -> bool {
        let Self::Database(error) = self else { return false };
        error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
    }

    pub(super) fn into_error(self, doing: &'static str) -> Error {
        match self {
            Self::Database(error) => {
                let reason = match error.as_db_error() {
                    Some(error) => format!("{} ({})", error.message(), error.code().code()),
                    None => with_source(&error),
                };
                Error::new(kind_of(&error), doing, reason)
            }
            Self::Own(kind, reason) => Error::new(kind, doing, reason),
        }
    }
}

/// The driver's own messages leave out the cause.
fn with_source(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

pub(super) fn of_pool(error: PoolError, doing: &'static str) -> Error {
    match error {
        PoolError::Backend(error)
        | PoolError::PostCreateHook(deadpool_postgres::HookError::Backend(error)) => {
            Fault::from(error).into_error(doing)
        }
        other => Error::new(ErrorKind::Unavailable, doing, other),
    }
}

fn kind_of(error: &tokio_postgres::Error) -> ErrorKind {
    match error.as_db_error() {
        Some(error) => kind_of_answer(error),
        // A value that was read and has not the type it should have; everything else without an answer of the database is
        // the connection.
        None if is_unreadable(error) => ErrorKind::Corrupt,
        None => ErrorKind::Unavailable,
    }
}

fn is_unreadable(error: &tokio_postgres::Error) -> bool {
    error.to_string().starts_with("error deserializing column")
}

fn kind_of_answer(error: &DbError) -> ErrorKind {
    let code = error.code();
    if *code == SqlState::UNIQUE_VIOLATION
        && matches!(error.table(), Some("instance_name" | "message_decision" | "hook" | "access_token"))
    {
        return ErrorKind::Conflict;
    }
    if *code == SqlState::UNDEFINED_TABLE
        || *code == SqlState::UNDEFINED_COLUMN
        || *code == SqlState::UNDEFINED_FUNCTION
    {
        return ErrorKind::NotMigrated;
    }
    match &code.code()[..2] {
        // Data, integrity, and limits of the server: the same rows would fail again.
        "22" | "23" | "54" => ErrorKind::Refused,
        // A damaged page or index.
        _ if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED => ErrorKind::Corrupt,
        // 08 connection, 25 transaction state, 40 rollback, 53 resources, 55 locks, 57 operator, 58 system, and all others.
        _ => ErrorKind::Unavailable,
    }
}
