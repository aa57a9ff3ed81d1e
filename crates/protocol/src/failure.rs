//! How user work fails, in the form in which it is recorded, replayed and shown.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Millis, Payload};

/// What kind of failure it was. Callers act differently on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The user's code returned an error.
    Error,
    /// The attempt took longer than its timeout (rule P14).
    TimedOut,
    /// The worker died while the attempt ran (rule W11).
    WorkerLost,
    /// The user's code panicked (rule P9).
    Panicked,
    /// The value is over its size limit (rule P4): permanent.
    TooLarge,
    /// The value has no JSON form (rule P3): permanent.
    Unserialisable,
    /// The call itself is not valid: a bad name, duration or policy. Permanent.
    Invalid,
    /// A limit of the instance is reached (rule P4): permanent.
    LimitReached,
    /// No registered function has this name (remote steps).
    UnknownFunction,
    /// The instance was cancelled while the call was open (rule P30): permanent.
    Cancelled,
}

/// What is known of the effect of an attempt that failed (rules L7, L9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sent {
    /// Nothing: it may have taken effect.
    #[default]
    Unknown,
    /// It failed before anything was sent: there is no effect, and it may be tried again.
    No,
    /// Whoever was asked has refused for sure: there is no effect, and there will be none.
    Refused,
}

impl Sent {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    #[must_use]
    /// Whether nothing is known.
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Whether it is known that nothing took effect.
    #[must_use]
    pub const fn is_without_effect(self) -> bool {
        !matches!(self, Self::Unknown)
    }
}

/// What is shown in place of a message that nobody but the code may see.
const HIDDEN: &str = "hidden, since it came of a step that is marked sensitive";

/// A recorded failure. Name and message reach the journal and the instance's error unchanged (rule P13).
///
/// Displayed, also for debugging, it says no more than [`shown_message`](Self::shown_message).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure it was.
    pub kind: FailureKind,
    /// The error's own name, such as `CardDeclined`; `Error` where the code gave none.
    pub name: String,
    /// The error's own message; may be empty.
    pub message: String,
    /// Further data that the code attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Payload>,
    /// The code said that no further attempt may be made (rule P13).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permanent: bool,
    /// The code asked for the next attempt after this time (rule P12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Millis>,
    /// It came of a step that is marked sensitive: message and data are for the code alone, wherever the code hands it on as it
    /// is (rule P44).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
    /// What the code knows of its effect.
    #[serde(default, skip_serializing_if = "Sent::is_unknown")]
    pub sent: Sent,
}

impl Failure {
    /// A failure of this kind with the kind's own name.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let name = match kind {
            FailureKind::Error => "Error",
            FailureKind::TimedOut => "TimedOut",
            FailureKind::WorkerLost => "WorkerLost",
            FailureKind::Panicked => "Panicked",
            FailureKind::TooLarge => "TooLarge",
            FailureKind::Unserialisable => "Unserialisable",
            FailureKind::Invalid => "Invalid",
            FailureKind::LimitReached => "LimitReached",
            FailureKind::UnknownFunction => "UnknownFunction",
            FailureKind::Cancelled => "Cancelled",
        };
        Self {
            kind,
            name: name.to_owned(),
            message: message.into(),
            data: None,
            permanent: kind.is_permanent(),
            retry_after: None,
            sensitive: false,
            sent: Sent::Unknown,
        }
    }

    /// The same, which came before anything was sent: it has no effect (rule L9).
    #[must_use]
    pub const fn not_sent(mut self) -> Self {
        self.sent = Sent::No;
        self
    }

    /// The same, of a step that is sensitive or not. What was sensitive before stays so.
    #[must_use]
    pub fn of_sensitive(mut self, sensitive: bool) -> Self {
        self.sensitive |= sensitive;
        self
    }

    /// Its message as anybody may see it.
    #[must_use]
    pub fn shown_message(&self) -> &str {
        if self.sensitive { HIDDEN } else { &self.message }
    }

    /// Its data as anybody may see it.
    #[must_use]
    pub fn shown_data(&self) -> Option<&Payload> {
        self.data.as_ref().filter(|_| !self.sensitive)
    }
}

crate::every! {
    /// Every kind.
    pub FailureKind:
        Error, TimedOut, WorkerLost, Panicked, TooLarge, Unserialisable, Invalid, LimitReached, UnknownFunction,
        Cancelled,
}

impl FailureKind {
    /// The word in records and views. Never changes.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::TimedOut => "timed_out",
            Self::WorkerLost => "worker_lost",
            Self::Panicked => "panicked",
            Self::TooLarge => "too_large",
            Self::Unserialisable => "unserialisable",
            Self::Invalid => "invalid",
            Self::LimitReached => "limit_reached",
            Self::UnknownFunction => "unknown_function",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether no further attempt could end differently.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        match self {
            Self::TooLarge | Self::Unserialisable | Self::Invalid | Self::LimitReached | Self::Cancelled => {
                true
            }
            Self::Error | Self::TimedOut | Self::WorkerLost | Self::Panicked | Self::UnknownFunction => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.shown_message())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, message: _, data: _, permanent, retry_after, sensitive, sent } = self;
        f.debug_struct("Failure")
            .field("kind", kind)
            .field("name", name)
            .field("message", &self.shown_message())
            .field("data", &self.shown_data())
            .field("permanent", permanent)
            .field("retry_after", retry_after)
            .field("sensitive", sensitive)
            .field("sent", sent)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p44_a_sensitive_failure_is_displayed_without_its_message_and_data() {
        let data = Some(Payload::from_text(r#""hunter2""#).unwrap());
        let failure = Failure { data, ..Failure::new(FailureKind::Error, "bad token hunter2") };
        assert_eq!(failure.to_string(), "Error: bad token hunter2");
        assert_eq!((failure.shown_message(), failure.shown_data().is_some()), ("bad token hunter2", true));
        let failure = failure.of_sensitive(true).of_sensitive(false);
        assert!(failure.sensitive && failure.message.contains("hunter2"), "it is real for the code");
        for text in [format!("{failure}"), format!("{failure:?}"), failure.shown_message().to_owned()] {
            assert!(!text.is_empty() && !text.contains("hunter2"), "{text}");
        }
        assert!(failure.to_string().contains("Error") && failure.shown_data().is_none());
    }
}
