//! The one error of the port. A variant exists only where a caller acts differently.

/// Why a call to the broker failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No live connection, or no answer in time. The outcome is unknown: repeating with the same id is safe.
    #[error("broker unavailable, a retry is safe: {reason}")]
    Unavailable {
        /// What was tried.
        reason: String,
    },
    /// The broker understood and refused: arguments, names or permissions are wrong. A retry gets the same answer.
    #[error("broker refused, a retry is pointless: {reason}")]
    Refused {
        /// The broker's words.
        reason: String,
    },
    /// This handle was closed by its owner.
    #[error("the broker connection was closed by its owner")]
    Closed,
}

/// What a caller should do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Repeat after a pause.
    RetryLater,
    /// Tell the operator: configuration.
    Refused,
    /// Stop: the owner has closed the connection.
    Closed,
}

impl Error {
    #[expect(clippy::needless_pass_by_value, reason = "takes texts and errors alike")]
    pub(crate) fn unavailable(reason: impl ToString) -> Self {
        Self::Unavailable { reason: reason.to_string() }
    }

    #[expect(clippy::needless_pass_by_value, reason = "takes texts and errors alike")]
    pub(crate) fn refused(reason: impl ToString) -> Self {
        Self::Refused { reason: reason.to_string() }
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unavailable { .. } => ErrorKind::RetryLater,
            Self::Refused { .. } => ErrorKind::Refused,
            Self::Closed => ErrorKind::Closed,
        }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retry_safe(&self) -> bool {
        self.kind() == ErrorKind::RetryLater
    }
}
