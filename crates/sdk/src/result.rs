//! How code outside of workflows learns that an instance gave no output: one error for every way to ask.

use crate::Error;

/// Why an instance gave no output. `E` is the error of asking.
#[derive(Debug, thiserror::Error)]
pub enum ResultError<E: std::error::Error + 'static> {
    /// There is no such instance: it was not started, or is deleted.
    #[error("there is no instance {0}")]
    NotFound(String),
    /// It ended with an error.
    #[error("instance {instance} ended with an error: {error}")]
    Errored {
        /// Workflow and id.
        instance: String,
        /// The error.
        error: Error,
    },
    /// Somebody ended it.
    #[error("instance {instance} was terminated")]
    Terminated {
        /// Workflow and id.
        instance: String,
        /// Who and why.
        reason: Option<String>,
    },
    /// Somebody cancelled it, and it ended with that.
    #[error("instance {instance} was cancelled")]
    Cancelled {
        /// Workflow and id.
        instance: String,
        /// Who and why.
        reason: Option<String>,
    },
    /// Its output does not fit the type that was asked for.
    #[error("the output of instance {instance} does not fit: {reason}")]
    Misfit {
        /// Workflow and id.
        instance: String,
        /// What does not fit.
        reason: String,
    },
    /// Asking failed; the instance goes on, and asking again is safe.
    #[error(transparent)]
    Asking(#[from] E),
}
