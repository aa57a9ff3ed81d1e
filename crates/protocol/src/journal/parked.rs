//! Why an instance is parked: the question that a person is asked.

use serde::{Deserialize, Serialize};

use crate::{Call, Fingerprint, Position, StepKey};

/// Why an instance is parked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// What kind of trouble.
    pub code: ParkCode,
    /// A sentence that names the entry and what the code asked for.
    pub message: String,
    /// Of a step with another input that a person may let go on: which, and what is asked (rule P8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Box<Changed>>,
}

impl Parked {
    /// Without a call that a person could decide about.
    #[must_use]
    pub fn new(code: ParkCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), changed: None }
    }
}

/// A step with attempts and no outcome, to which the code now gives another input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The step.
    pub call: Call,
    /// The input that the code gives it now.
    pub input: Fingerprint,
    /// The key of the old input, which its attempts so far have sent.
    pub key: StepKey,
    /// The entry that asks, where an open question is kept; not in that entry itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Position>,
}

/// The kinds of trouble that park an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkCode {
    /// Replay asks for something the journal contradicts (rule P41).
    JournalMismatch,
    /// The body panicked (rule W34).
    BodyPanicked,
    /// The body awaited something that is not a step, sleep or wait (rule W30).
    ForeignAwait,
    /// A suspend left nothing to wait for (rule W3).
    NothingToWaitFor,
    /// Its holders died again and again without progress (rule W11).
    Poison,
    /// An invariant of the engine is broken for this instance.
    Broken,
    /// A step with attempts but no outcome is called with another input (rule P8).
    InputChanged,
    /// A journal entry or payload cannot be read.
    Unreadable,
    /// A rollback has to take back a step for which the code no longer registers a compensation (rule P39).
    CompensationMissing,
}

crate::every! {
    /// Every code.
    pub ParkCode:
        JournalMismatch, BodyPanicked, ForeignAwait, NothingToWaitFor, Poison, Broken, InputChanged, Unreadable,
        CompensationMissing,
}

impl ParkCode {
    /// The word shown to people and used in filters.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::JournalMismatch => "journal_mismatch",
            Self::BodyPanicked => "body_panicked",
            Self::ForeignAwait => "foreign_await",
            Self::NothingToWaitFor => "nothing_to_wait_for",
            Self::Poison => "poison",
            Self::Broken => "broken",
            Self::InputChanged => "input_changed",
            Self::Unreadable => "unreadable",
            Self::CompensationMissing => "compensation_missing",
        }
    }
}
