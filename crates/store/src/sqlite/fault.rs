//! What can go wrong inside a job, and which kind of error that is to a caller.

use rusqlite::ErrorCode;

use crate::{Error, ErrorKind};

pub(super) type Result<T> = std::result::Result<T, Fault>;

/// What went wrong inside a job.
#[derive(Debug)]
pub(super) enum Fault {
    /// What `SQLite` says.
    Sql(rusqlite::Error),
    /// An error as the caller gets it.
    Said(Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Said(error)
    }
}

impl Fault {
    /// A row holds what this version cannot read.
    pub(super) fn corrupt(what: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Said(Error::new(ErrorKind::Corrupt, what, reason))
    }

    pub(super) fn into_error(self, doing: &'static str) -> Error {
        match self {
            Self::Sql(error) => Error::new(kind(&error), doing, error),
            Self::Said(error) => error,
        }
    }

    /// A row with this key is there already: somebody was faster.
    pub(super) fn or_taken(error: rusqlite::Error, what: &'static str) -> Self {
        if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) {
            Self::Said(Error::new(ErrorKind::Conflict, what, "it is taken"))
        } else {
            Self::Sql(error)
        }
    }
}

pub(super) fn kind(error: &rusqlite::Error) -> ErrorKind {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => ErrorKind::Corrupt,
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::PermissionDenied
            | ErrorCode::ReadOnly
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted => ErrorKind::Unavailable,
            _ => ErrorKind::Refused,
        },
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => ErrorKind::Corrupt,
        _ => ErrorKind::Refused,
    }
}
