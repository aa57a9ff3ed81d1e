//! What people do with a schedule (rules S1, S11, S12, S13).

use everstep_protocol::{InstanceId, Timestamp};

use super::{Backfill, Definition, Look, Outcome, Overlap, Paused, Run, State, Turn};

/// The most spans that wait to be made up for.
const BACKFILLS_MAX: usize = 10;

/// Why an operation is refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperateError {
    /// It would never start anything.
    #[error("the schedule is refused, since it has no due time after now ({now}); nothing has changed")]
    NothingToCome {
        /// The store's time.
        now: Timestamp,
    },
    /// A span is empty.
    #[error(
        "until {until} is refused, it must be later than from ({from}), and a span lies before now; nothing has changed"
    )]
    EmptySpan {
        /// Its begin.
        from: Timestamp,
        /// Its end.
        until: Timestamp,
    },
    /// As many spans as may be are made up for already.
    #[error(
        "a backfill is refused, since {BACKFILLS_MAX} are under way; try again when one is done; nothing has changed"
    )]
    TooManyBackfills,
}

impl Look<'_> {
    /// Where a new schedule stands.
    pub fn created(&self) -> Result<Turn, OperateError> {
        self.something_comes()?;
        Ok(self.stands(State::new(self.now)))
    }

    /// What was asked for takes the place of what was before: due times count from now on. What is paused, waits or is open stays so.
    /// Not while something is pending.
    pub fn replaced(&self, before: &Definition, state: &State) -> Result<Turn, OperateError> {
        if before == self.definition {
            return Ok(self.stands(state.clone()));
        }
        self.something_comes()?;
        Ok(self.stands(State { settled: state.settled.max(self.now), ..state.clone() }))
    }

    fn something_comes(&self) -> Result<(), OperateError> {
        match self.definition.due_after(self.times, self.now) {
            Some(_) => Ok(()),
            None => Err(OperateError::NothingToCome { now: self.now }),
        }
    }

    /// Nothing more is started at due times, and what waits goes on waiting. A second pause keeps the first one's time.
    #[must_use]
    pub fn paused(&self, state: &State, note: Option<String>) -> Turn {
        let since = state.paused.as_ref().map_or(self.now, |paused| paused.since);
        self.stands(State { paused: Some(Paused { since, note }), ..state.clone() })
    }

    /// It goes on from now: what was due during the pause is passed over.
    #[must_use]
    pub fn resumed(&self, state: &State) -> Turn {
        if state.paused.is_none() {
            return self.stands(state.clone());
        }
        self.stands(State { paused: None, settled: state.settled.max(self.now), ..state.clone() })
    }

    /// Due times of a span are started as if they were due now. Both ends are in the past; the first is in it, the last is not.
    pub fn backfilled(
        &self,
        state: &State,
        operation: &str,
        (from, until): (Timestamp, Timestamp),
        beside: Option<bool>,
    ) -> Result<Turn, OperateError> {
        // What is to come, comes by itself.
        let until = until.min(self.now);
        if until <= from {
            return Err(OperateError::EmptySpan { from, until });
        }
        if state.backfills.iter().any(|backfill| backfill.operation == operation) {
            return Ok(self.stands(state.clone()));
        }
        if state.backfills.len() >= BACKFILLS_MAX {
            return Err(OperateError::TooManyBackfills);
        }
        let beside = beside.unwrap_or(self.definition.overlap == Overlap::Allow);
        let settled = Timestamp(from.0.saturating_sub(1));
        let mut state = state.clone();
        state.backfills.push(Backfill { operation: operation.to_owned(), settled, until, beside });
        Ok(self.stands(state))
    }

    /// Somebody has started an instance at once: later due times find it open. The same one again is noted once.
    #[must_use]
    pub fn triggered(&self, state: &State, id: &InstanceId, outcome: &Outcome) -> Turn {
        let mut state = state.clone();
        let is_known = state.recent.iter().any(|action| action.instance.as_ref() == Some(id));
        if let Some(action) = self.action(outcome, None, id).filter(|_| !is_known) {
            state.note(action);
            if self.definition.overlap != Overlap::Allow && !matches!(outcome, Outcome::Refused { .. }) {
                state.keep_open(Run {
                    workflow: self.definition.workflow.clone(),
                    id: id.clone(),
                    since: self.now,
                });
            }
        }
        self.stands(state)
    }
}
