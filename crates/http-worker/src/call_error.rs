//! What is known of a call that failed: the data of its error.

use everstep_sdk::Error;
use serde::{Deserialize, Serialize};

/// Whether the callee can know of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sent {
    /// Nothing of it was sent in this attempt.
    No,
    /// It was sent, in whole or in part, and no answer is known.
    Unknown,
    /// The callee has answered.
    Answered,
}

/// What is known of a call that failed. Read it from the error that the step gave:
///
/// ```
/// use everstep_http::CallError;
/// # use everstep_sdk::Error;
/// fn is_unknown_customer(error: &Error) -> bool {
///     CallError::of(error).is_some_and(|call| call.status == Some(404))
/// }
/// # assert!(!is_unknown_customer(&Error::failed("something else")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallError {
    /// Whether the callee can know of it.
    pub sent: Sent,
    /// The status of the answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The beginning of the answer's body, at most 1 KiB, with secrets replaced by their references.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

impl CallError {
    /// That of an error of an HTTP step; none of any other error.
    #[must_use]
    pub fn of(error: &Error) -> Option<Self> {
        error.name().starts_with("Http").then(|| error.data()).flatten()
    }
}

#[cfg(feature = "worker")]
impl CallError {
    pub(crate) const fn new(sent: Sent) -> Self {
        Self { sent, status: None, body: None }
    }
}
