//! What a journal says of steps that may not simply be called again: that an attempt is about to begin, that it never began, and
//! what a person decided where nobody knows what came of one (rules L5 to L8).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{Marks, is_default};
use crate::{
    Attempt, BuildName, Call, Epoch, Failure, Fingerprint, Payload, Policy, Position, Run, SessionId, StepKey,
};

/// An attempt is about to begin: its worker starts it when it knows that this entry is written, and at no other time. An intent
/// that no outcome follows, and whose holder is gone, is one of which nobody knows whether it took effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intended {
    /// The step.
    pub call: Call,
    /// Which attempt, from 1.
    pub attempt: Attempt,
    /// The last position the body had seen when it made the call.
    pub called_after: Position,
    /// The idempotency key of the step.
    pub key: StepKey,
    /// The fingerprint of the input.
    pub input: Fingerprint,
    /// The policy, with the class; pinned by the first record.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: Policy,
    /// What the code says of the step.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub marks: Marks,
    /// The build of the worker that means to run it.
    pub build: BuildName,
    /// Its session.
    pub session: SessionId,
    /// The epoch of its lease.
    pub epoch: Epoch,
}

/// An intent was given back unused: the attempt never began, and its number is free again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawn {
    /// The step.
    pub call: Call,
    /// Which attempt.
    pub attempt: Attempt,
}

/// A person has decided what is to be taken for the outcome of an attempt of which nobody knows it (rule L8).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resolved {
    /// The step.
    pub call: Call,
    /// The attempt that was asked about.
    pub attempt: Attempt,
    /// What was decided.
    pub choice: Choice,
    /// Who decided, as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The step is sensitive, and so is the output (rule P44).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
}

/// What a person decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// It took effect: this is the step's output.
    Done(Payload),
    /// It is to be run again: one more attempt.
    Again,
    /// The step has failed.
    Fail(Failure),
}

impl Choice {
    /// The word shown to people, and asked for.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Again => "again",
            Self::Fail(_) => "fail",
        }
    }
}

/// A person has decided under which key a step goes on that has attempts and no outcome, and to which the code now gives another
/// input (rule P8). A restart carries what was decided for an old key into the new run, where it stands before the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rekeyed {
    /// The step.
    pub call: Call,
    /// The input that was decided about: that which the code gives it now.
    pub input: Fingerprint,
    /// The key of the old input, which is kept; without one it goes on under the key of its new input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<StepKey>,
    /// Who decided, as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Rekeyed {
    /// What was chosen.
    #[must_use]
    pub const fn choice(&self) -> KeyChoice {
        if self.kept.is_some() { KeyChoice::OldKey } else { KeyChoice::NewKey }
    }
}

/// Under which key a step goes on whose input has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChoice {
    /// That of the old input, which its attempts so far have sent: a service that has done the work does nothing more.
    OldKey,
    /// One of the new input: if an attempt so far took effect, the next is another effect.
    NewKey,
}

impl KeyChoice {
    /// The word shown to people, and asked for.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::OldKey => "old_key",
            Self::NewKey => "new_key",
        }
    }
}

/// Which question of an instance: by its run, and the position of the entry that asks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuestionId {
    /// The run.
    pub run: Run,
    /// The entry.
    pub position: Position,
}

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.run, self.position)
    }
}

/// The text is not that of a question's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no id of a question, which is a run and a position with a dot between, such as 1.7")]
pub struct NotAQuestionId;

impl FromStr for QuestionId {
    type Err = NotAQuestionId;

    fn from_str(text: &str) -> Result<Self, NotAQuestionId> {
        let (run, position) = text.split_once('.').ok_or(NotAQuestionId)?;
        let id = Self {
            run: Run(run.parse().map_err(|_| NotAQuestionId)?),
            position: Position(position.parse().map_err(|_| NotAQuestionId)?),
        };
        if id.to_string() == text { Ok(id) } else { Err(NotAQuestionId) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_known_by_its_text() {
        let id: QuestionId = "2.17".parse().unwrap();
        assert_eq!(
            (id, id.to_string().as_str()),
            (QuestionId { run: Run(2), position: Position(17) }, "2.17")
        );
        for text in ["", "2", "2.", ".7", "2.17 ", "02.1", "2-17", "parked"] {
            assert_eq!(text.parse::<QuestionId>(), Err(NotAQuestionId), "{text}");
        }
    }
}
