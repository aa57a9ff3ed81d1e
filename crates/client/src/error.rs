//! How asking a coordinator fails.

use std::fmt;

use everstep_protocol::{AttributeError, InstanceId, WorkflowName, journal::Other, name::NameError};
use serde::Deserialize;

/// Why there is no answer, or which one it is.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The address of the API cannot be used. Trying again gives the same answer.
    #[error("the address {url:?} is refused: {reason}")]
    Url {
        /// The address.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The coordinator could not be reached, or its answer was lost.
    #[error("no answer from {url}: {reason}{}", if *.is_sent { "; it is not known whether it was done" } else { "; nothing was sent" })]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// What went wrong.
        reason: String,
        /// The request may have arrived.
        is_sent: bool,
        /// Sending the same again is done once.
        is_repeatable: bool,
    },
    /// Nobody knows whether an instance was started (rule H26). That is not "it failed": the instance that is named may exist.
    #[error(
        "it is not known whether instance {id} of workflow {workflow} was started: {stage}: {reason}; {}",
        if *.is_repeatable { "trying again is safe" } else { "look whether there is one before you try again" }
    )]
    StartUnknown {
        /// The workflow.
        workflow: String,
        /// The id that the instance has if it was started.
        id: String,
        /// How far the start is known to have come.
        stage: StartStage,
        /// What went wrong.
        reason: String,
        /// Sending the same again starts no second one.
        is_repeatable: bool,
    },
    /// The coordinator refused, and says why.
    #[error("{}{}", .0.detail, if .0.retry_safe { "; trying again is safe" } else { "" })]
    Problem(Box<Problem>),
    /// Whoever answered is no coordinator, or one that this version does not understand.
    #[error(
        "{url} answered {status} in a way that is not understood: {reason}; is it an everstep coordinator?"
    )]
    Alien {
        /// Where it was asked.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What is not understood.
        reason: String,
    },
    /// A name breaks its rule; nothing was sent.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An attribute breaks its rule; nothing was sent.
    #[error(transparent)]
    Attributes(#[from] AttributeError),
    /// A value has no JSON form that could be sent; nothing was.
    #[error("the {what} cannot be sent: {reason}")]
    Value {
        /// Which value.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// A problem as the coordinator tells it (RFC 9457). Fields that this version does not know are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// The code, by which programs and the error pages know it.
    pub code: String,
    /// What is wrong.
    pub detail: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Sending the same again does no harm and may help.
    pub retry_safe: bool,
    /// Who has the token that a start asked for.
    pub owner: Option<Other>,
}

/// How far a start is known to have come whose outcome is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStage {
    /// It was sent, and no whole answer came: it may not even have arrived.
    Sent,
    /// A coordinator has it, and its store did not confirm the decision in time.
    Deciding,
}

impl fmt::Display for StartStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sent => "it was sent, and no answer came",
            Self::Deciding => "a coordinator has it, and the decision was not confirmed",
        })
    }
}

/// A failed start, which is an unknown one unless it is known that nothing was started.
pub(crate) fn unknown_start(
    error: Error,
    workflow: &WorkflowName,
    id: &InstanceId,
    is_repeatable: bool,
) -> Error {
    let (stage, reason) = match error {
        Error::Unreachable { reason, is_sent: true, .. } => (StartStage::Sent, reason),
        Error::Problem(problem) if problem.code == "unknown" => (StartStage::Deciding, problem.detail),
        error => return error,
    };
    let (workflow, id) = (workflow.to_string(), id.to_string());
    Error::StartUnknown { workflow, id, stage, reason, is_repeatable }
}

impl Error {
    /// What was sent under an id that only this call knows cannot be sent again.
    pub(crate) fn repeatable_if(self, can_be: bool) -> Self {
        match self {
            Self::Unreachable { url, reason, is_sent, is_repeatable } => {
                Self::Unreachable { url, reason, is_sent, is_repeatable: is_repeatable && can_be }
            }
            error => error,
        }
    }

    /// Whether sending the same again does no harm and may help.
    #[must_use]
    pub fn is_retry_safe(&self) -> bool {
        match self {
            Self::Unreachable { is_sent, is_repeatable, .. } => !is_sent || *is_repeatable,
            Self::StartUnknown { is_repeatable, .. } => *is_repeatable,
            Self::Problem(problem) => problem.retry_safe,
            Self::Url { .. }
            | Self::Alien { .. }
            | Self::Name(_)
            | Self::Attributes(_)
            | Self::Value { .. } => false,
        }
    }

    /// The code of the problem that the coordinator told, such as `conflict`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => Some(&problem.code),
            Self::StartUnknown { .. } => Some("unknown"),
            _ => None,
        }
    }
}
