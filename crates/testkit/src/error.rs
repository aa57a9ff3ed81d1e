//! Why a test did not get what it asked for.

use everstep_protocol::{Failure, journal::Parked};
use everstep_sdk::Error;

use crate::Status;

/// Why the kit could not give what was asked. Nothing in here is worth a retry: the same test gives the same answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KitError {
    /// A name, duration, mock or saved journal that is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The start was refused.
    #[error("{workflow} {id} was not started: {reason}")]
    NotStarted {
        /// The workflow.
        workflow: String,
        /// The id.
        id: String,
        /// Why.
        reason: String,
    },
    /// The instance ended with an error; [`KitError::workflow_error`] gives it.
    #[error("{instance} ended with an error: {error:?}")]
    Errored {
        /// Workflow and id.
        instance: String,
        /// What the workflow returned.
        error: Error,
    },
    /// The instance was terminated.
    #[error("{instance} was terminated")]
    Terminated {
        /// Workflow and id.
        instance: String,
    },
    /// The instance was cancelled.
    #[error("{instance} was cancelled")]
    Cancelled {
        /// Workflow and id.
        instance: String,
    },
    /// The instance is parked: its code does what cannot be replayed, or contradicts its journal.
    #[error("{instance} is parked ({}): {}", parked.code.word(), parked.message)]
    Parked {
        /// Workflow and id.
        instance: String,
        /// Why.
        parked: Parked,
    },
    /// A person is asked what came of a step, and nothing else goes on (rule L8).
    #[error("{instance} asks a person what came of {call}: {reason}")]
    Asked {
        /// Workflow and id.
        instance: String,
        /// The step.
        call: String,
        /// What is known of it.
        reason: String,
    },
    /// What was waited for cannot come any more.
    #[error("{instance} will never come to {wanted}: it is {}{}", status.word(), reason(why.as_deref()))]
    Unreachable {
        /// Workflow and id.
        instance: String,
        /// What was waited for.
        wanted: String,
        /// In which status it is.
        status: Status,
        /// The error that it ended with.
        why: Option<Box<Failure>>,
    },
    /// Nothing goes on, and nothing will.
    #[error("nothing goes on while waiting for {wanted}: {reason}")]
    Standstill {
        /// What was waited for.
        wanted: String,
        /// What there is to know about it.
        reason: String,
    },
    /// The output, or the output of a step, is not of the type that the test asks for.
    #[error("{what}: {reason}")]
    Misfit {
        /// Whose output.
        what: String,
        /// Why.
        reason: String,
    },
    /// The code contradicts a journal.
    #[error("{instance} cannot be replayed: {reason}")]
    Replay {
        /// Workflow and id.
        instance: String,
        /// Names the entry, and the call, that disagree.
        reason: String,
    },
    /// The system under the test failed, which is a bug of the kit or the engine.
    #[error("the test system failed: {0}")]
    System(String),
}

impl KitError {
    /// The error that the workflow ended with, if that is what this is.
    #[must_use]
    pub const fn workflow_error(&self) -> Option<&Error> {
        match self {
            Self::Errored { error, .. } => Some(error),
            Self::Invalid(_)
            | Self::NotStarted { .. }
            | Self::Terminated { .. }
            | Self::Cancelled { .. }
            | Self::Parked { .. }
            | Self::Asked { .. }
            | Self::Unreachable { .. }
            | Self::Standstill { .. }
            | Self::Misfit { .. }
            | Self::Replay { .. }
            | Self::System(_) => None,
        }
    }

    pub(crate) fn system(error: impl std::fmt::Display) -> Self {
        Self::System(error.to_string())
    }

    pub(crate) fn invalid(error: impl std::fmt::Display) -> Self {
        Self::Invalid(error.to_string())
    }
}

fn reason(why: Option<&Failure>) -> String {
    why.map(|failure| format!(" ({failure})")).unwrap_or_default()
}
