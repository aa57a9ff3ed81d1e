//! What people do with a schedule (rules S1, S11, S12, S13).

use everstep_protocol::{InstanceId, Timestamp};

use super::{
    Action, ActionKind, Backfill, Definition, Due, DueKind, Look, Outcome, Overlap, Paused, Run, State, Turn,
};

/// The most spans that wait to be made up for.
const BACKFILLS_MAX: usize = 10;
/// The most due times of a span.
const SPAN_MAX: usize = 10_000;

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
    /// There are more due times in a span than are made up for at once.
    #[error(
        "until {until} is refused, the span from {from} must have at most {SPAN_MAX} due times; ask for it in parts; nothing has changed"
    )]
    SpanTooLong {
        /// Its begin.
        from: Timestamp,
        /// Its end.
        until: Timestamp,
    },
}

impl Look<'_> {
    /// Where a new schedule stands.
    pub fn created(&self) -> Result<Turn, OperateError> {
        self.something_comes()?;
        Ok(self.stands(State::new(self.now)))
    }

    /// What was asked for takes the place of what was before: due times count from now on. What is paused, waits or is open stays so, and what
    /// waits is started as it is asked for now: a schedule is changed since what it starts was wrong. Not while something is pending, and after
    /// [`Look::kept`] of the definition before.
    pub fn replaced(&self, before: &Definition, state: &State) -> Result<Turn, OperateError> {
        if before == self.definition {
            return Ok(self.stands(state.clone()));
        }
        self.something_comes()?;
        let mut state = State { settled: state.settled.max(self.now), ..state.clone() };
        if !matches!(self.definition.overlap, Overlap::CancelOther | Overlap::TerminateOther) {
            state.stopping.clear();
        }
        let is_asked_anew = !state.stopping.is_empty();
        let Turn { state, wake_at } = self.stands(state);
        Ok(Turn { state, wake_at: if is_asked_anew { Some(self.now) } else { wake_at } })
    }

    /// Before a schedule is changed or paused: a due time that has come and waits for its jitter is kept among what waits. There is one at most,
    /// since the jitter ends before the next one. While an earlier one is open it is skipped now where it would be then.
    #[must_use]
    pub fn kept(&self, state: &State) -> State {
        let mut state = state.clone();
        if state.paused.is_some() || self.is_used_up(&state) {
            return state;
        }
        let Some(at) = self.last_before(Timestamp(self.now.0.saturating_add(1)), state.settled) else {
            return state;
        };
        let start_at = self.definition.starts_at(self.id, self.times, at);
        if start_at > self.now {
            state.settled = at;
            if self.definition.overlap == Overlap::Skip && state.is_busy() {
                state.note(Action::new(ActionKind::Overlap, Some(at), self.now));
            } else {
                state.taken += 1;
                state.queue.push(Due { at, start_at, kind: DueKind::Planned });
            }
        }
        state
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
        self.stands(State { paused: Some(Paused { since, note }), ..self.kept(state) })
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
        let is_known = state.backfills.iter().any(|backfill| backfill.operation == operation)
            || state.made_up.iter().any(|done| done == operation);
        if is_known {
            return Ok(self.stands(state.clone()));
        }
        if state.backfills.len() >= BACKFILLS_MAX {
            return Err(OperateError::TooManyBackfills);
        }
        let beside = beside.unwrap_or(self.definition.overlap == Overlap::Allow);
        let settled = Timestamp(from.0.saturating_sub(1));
        let next = |due: &Timestamp| self.definition.due_after(self.times, *due).filter(|due| *due < until);
        if std::iter::successors(next(&settled), next).nth(SPAN_MAX).is_some() {
            return Err(OperateError::SpanTooLong { from, until });
        }
        let mut state = state.clone();
        state.backfills.push(Backfill { operation: operation.to_owned(), settled, until, beside });
        Ok(self.stands(state))
    }

    /// Of the span that was asked for by this name, or of all of them, nothing more is started. What was started stays.
    #[must_use]
    pub fn given_up(&self, state: &State, operation: Option<&str>) -> Turn {
        let mut state = state.clone();
        let is_meant = |backfill: &mut Backfill| operation.is_none_or(|one| backfill.operation == one);
        let gone: Vec<Backfill> = state.backfills.extract_if(.., is_meant).collect();
        for backfill in gone {
            state.close(backfill);
        }
        self.stands(state)
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
