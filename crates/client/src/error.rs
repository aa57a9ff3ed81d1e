//! How asking a coordinator fails.

use everstep_protocol::{AttributeError, name::NameError};
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
}

impl Error {
    /// Whether sending the same again does no harm and may help.
    #[must_use]
    pub fn is_retry_safe(&self) -> bool {
        match self {
            Self::Unreachable { is_sent, is_repeatable, .. } => !is_sent || *is_repeatable,
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
            _ => None,
        }
    }
}
