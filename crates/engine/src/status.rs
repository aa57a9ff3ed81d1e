//! The status that people see (rule P28): derived from the stored one and from which side rows exist, never stored (rule W24).

use crate::head::Status;

/// The status of rule P28.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusWord {
    /// Runnable, and nobody has it yet.
    Queued,
    /// A worker holds it.
    Running,
    /// It waits; the waits say for what and until when.
    Waiting,
    /// It is to be paused, and what was running has not ended yet.
    Pausing,
    /// Nothing runs until somebody resumes it.
    Paused,
    /// A person has to decide and nothing else can move.
    Attention,
    /// Ended with an output.
    Complete,
    /// Ended with an error.
    Errored,
    /// Ended by somebody.
    Terminated,
    /// Ended by itself, because somebody cancelled it.
    Cancelled,
}

/// Which side rows an open instance has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a row that is there or not")]
pub struct Sides {
    /// A lease of the instance itself.
    pub leased: bool,
    /// A ready row of the instance itself.
    pub ready: bool,
    /// It is parked.
    pub parked: bool,
    /// A question about one of its calls is open (rule L8).
    pub asks: bool,
    /// A pause.
    pub paused: bool,
    /// A lease of one of its remote steps; only a paused instance's status asks for it.
    pub steps_leased: bool,
}

everstep_protocol::every! {
    /// Every status.
    pub StatusWord: Queued, Running, Waiting, Pausing, Paused, Attention, Complete, Errored, Terminated, Cancelled
}

impl StatusWord {
    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Attention => "attention",
            Self::Complete => "complete",
            Self::Errored => "errored",
            Self::Terminated => "terminated",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of a word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }

    /// Whether nothing can happen any more by itself.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        match self {
            Self::Complete | Self::Errored | Self::Terminated | Self::Cancelled => true,
            Self::Queued | Self::Running | Self::Waiting | Self::Pausing | Self::Paused | Self::Attention => {
                false
            }
        }
    }

    /// Derives the status from the stored one and from which side rows exist.
    #[must_use]
    pub const fn derive(stored: Status, sides: Sides) -> Self {
        match stored {
            Status::Complete => Self::Complete,
            Status::Errored => Self::Errored,
            Status::Terminated => Self::Terminated,
            Status::Cancelled => Self::Cancelled,
            Status::Open if sides.leased && sides.paused => Self::Pausing,
            Status::Open if sides.leased => Self::Running,
            Status::Open if sides.parked => Self::Attention,
            Status::Open if sides.paused && sides.steps_leased => Self::Pausing,
            Status::Open if sides.paused => Self::Paused,
            Status::Open if sides.ready => Self::Queued,
            Status::Open if sides.asks => Self::Attention,
            Status::Open => Self::Waiting,
        }
    }
}
