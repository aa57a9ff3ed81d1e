//! Why an instance is parked: the question that a person is asked.

use serde::{Deserialize, Serialize};

/// Why an instance is parked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// What kind of trouble.
    pub code: ParkCode,
    /// A sentence that names the entry and what the code asked for.
    pub message: String,
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
