//! Entries about compensations and about outputs of earlier runs.

use everstep_protocol::{
    Call, Fingerprint, Policy, Position,
    journal::{Compensated, Compensating, Fact, Marks, Reusable, Rollback, Undone, UndoneEnd},
};
use serde::{Deserialize, Serialize};

use super::{
    Error, Line,
    read::{digits, need},
    write::raw,
};

/// One compensation.
#[derive(Serialize, Deserialize)]
pub(super) struct UndoneLine {
    call: Call,
    outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

impl Line {
    pub(super) fn of_saga(self) -> Result<Fact, String> {
        Ok(match self.kind.as_str() {
            "compensating" => Fact::Compensating(Compensating {
                call: need("call", self.call)?,
                called_after: Position(need("called_after", self.called_after)?),
                failure: self.error.map(Error::failure).transpose()?,
                steps: need("steps", self.steps)?,
            }),
            "compensated" => {
                let steps = need("compensations", self.compensations)?.into_iter().map(UndoneLine::undone);
                Fact::Compensated(Compensated { steps: steps.collect::<Result<_, _>>()?, more: 0 })
            }
            "rollback" => Fact::Rollback(Rollback { reason: self.message }),
            _ => {
                let (marks, output) = (self.marks(), self.output()?);
                Fact::Reusable(Reusable {
                    call: need("call", self.call)?,
                    key: need("key", self.key)?.parse().map_err(|error| format!("key: {error}"))?,
                    input: Fingerprint::from_bytes(digits(
                        "fingerprint",
                        &need("fingerprint", self.fingerprint)?,
                    )?),
                    policy: Policy::default(),
                    marks,
                    output,
                })
            }
        })
    }

    pub(super) fn marked(self, marks: Marks) -> Self {
        let Marks { compensated, sensitive, reused, found } = marks;
        Self { compensated, sensitive, reused, found, ..self }
    }

    pub(super) fn of_compensating(self, compensating: &Compensating) -> Self {
        Self {
            called_after: Some(compensating.called_after.0),
            error: compensating.failure.as_ref().map(Error::of),
            steps: Some(compensating.steps),
            ..self
        }
    }

    pub(super) fn of_compensated(self, compensated: &Compensated) -> Self {
        Self { compensations: Some(compensated.steps.iter().map(UndoneLine::of).collect()), ..self }
    }

    pub(super) fn of_reusable(self, reusable: &Reusable) -> Self {
        Self {
            call: Some(reusable.call.clone()),
            key: Some(reusable.key.to_string()),
            fingerprint: Some(reusable.input.to_string()),
            output: (!reusable.marks.sensitive).then(|| raw(&reusable.output)),
            ..self.marked(reusable.marks)
        }
    }
}

impl UndoneLine {
    fn undone(self) -> Result<Undone, String> {
        let end = match self.outcome.as_str() {
            "done" => UndoneEnd::Done,
            "skipped" => UndoneEnd::Skipped,
            "failed" => UndoneEnd::Failed(need("compensations: error", self.error)?.failure()?),
            other => return Err(format!("compensations: outcome: {other:?} is not known")),
        };
        Ok(Undone { call: self.call, end })
    }

    fn of(undone: &Undone) -> Self {
        let (outcome, error) = match &undone.end {
            UndoneEnd::Done => ("done", None),
            UndoneEnd::Failed(failure) => ("failed", Some(Error::of(failure))),
            UndoneEnd::Skipped => ("skipped", None),
        };
        Self { call: undone.call.clone(), outcome: outcome.to_owned(), error }
    }
}
