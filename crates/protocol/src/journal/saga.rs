//! What a journal says of sagas: which steps have a compensation, that compensations have begun, and how each ended (rules P38,
//! P39).

use serde::{Deserialize, Serialize};

use super::is_default;
use crate::{Call, Failure, Fingerprint, Payload, Policy, Position, StepKey};

/// What the code says of a step beside its policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a mark of its own")]
pub struct Marks {
    /// It has a compensation: code that no longer registers one for it is reported (rule P39).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compensated: bool,
    /// Its output is shown to nobody but the code (rule P44).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
    /// Its outcome is that of an earlier run (rule L4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reused: bool,
    /// Its output is what was found by looking, not what a call of this attempt gave (rule L6).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub found: bool,
}

impl Marks {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The body has ended with an error, or was thrown away for a rollback, and its compensations begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compensating {
    /// The call that stands for the rollback.
    pub call: Call,
    /// The last position the body had seen when it ended.
    pub called_after: Position,
    /// What the body ended with; none if somebody asked for the rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// How many compensations there are to run.
    pub steps: u64,
}

/// How the compensations ended; followed by the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Compensated {
    /// Each, in the order in which they ran; at most [`COMPENSATIONS_LISTED`].
    pub steps: Vec<Undone>,
    /// How many more there were. Their attempts stand in the journal.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// How many compensations the outcome of a rollback lists.
pub const COMPENSATIONS_LISTED: usize = 1000;

/// One compensation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Undone {
    /// The compensation: its name and count are those of its step.
    pub call: Call,
    /// How it ended.
    pub end: UndoneEnd,
}

/// How a compensation ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoneEnd {
    /// It ran to its end.
    Done,
    /// It has used up its retries, or could not be retried.
    Failed(Failure),
    /// It did not run: one before it failed that was not to be passed over.
    Skipped,
}

/// Somebody ended the instance with a rollback: the body is thrown away where it stands, and its compensations begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollback {
    /// Who said so and why, as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The output of a step in an earlier run: a step of this run with the same input gets it without a call (rule L4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reusable {
    /// The step.
    pub call: Call,
    /// Its idempotency key.
    pub key: StepKey,
    /// The fingerprint of its input.
    pub input: Fingerprint,
    /// The policy that it had.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: Policy,
    /// What the code said of it.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub marks: Marks,
    /// Its output.
    pub output: Payload,
}

impl Compensated {
    /// Bytes of text in it.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |undone: &Undone| match &undone.end {
            UndoneEnd::Failed(failure) => failure.message.len(),
            UndoneEnd::Done | UndoneEnd::Skipped => 0,
        };
        self.steps.iter().map(|undone| bytes(undone) + undone.call.name.as_str().len()).sum()
    }
}
