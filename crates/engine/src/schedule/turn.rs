//! A turn of one schedule: what becomes of the due times that have come, and when to look again (rules S5 to S12).
//!
//! It has two halves, and each is written before the next thing is done. [`Look::turn`] chooses what is to be started and keeps it as `pending`;
//! then the instances are started, each under an id that follows from its due time; [`Look::settle`] notes what came of that. Whoever finds
//! something pending starts it again, which makes no second instance.

use everstep_protocol::{InstanceId, Millis, ScheduleId, Timestamp, WorkflowName};

use super::{Action, ActionKind, CatchUp, Definition, Due, DueKind, Overlap, Run, State, Times, Which};

/// The most starts of one schedule in one turn: others are not to wait for it.
const STARTS_MAX: usize = 100;
/// The most due times that one turn looks at.
const LOOKED_AT_MAX: usize = 1_000;
/// After so long what is pending is somebody else's to start: whoever chose it has died.
const PENDING: Millis = Millis::from_secs(5);
/// After so long a start of which nobody knows what came of it is made again.
const AGAIN: Millis = Millis::from_secs(1);

/// One schedule at one moment.
#[derive(Clone, Copy)]
pub struct Look<'a> {
    /// Its id.
    pub id: &'a ScheduleId,
    /// What was asked for.
    pub definition: &'a Definition,
    /// The moments that its expression names.
    pub times: &'a dyn Times,
    /// The moment, by the store's clock.
    pub now: Timestamp,
}

impl std::fmt::Debug for Look<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Look").field("id", self.id).field("now", &self.now).finish_non_exhaustive()
    }
}

/// What a turn comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Where the schedule stands now.
    pub state: State,
    /// When to look again; none if nothing is to come.
    pub wake_at: Option<Timestamp>,
}

/// What came of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An instance was created.
    Started,
    /// It was there already.
    Existed,
    /// It is refused, and would be again.
    Refused {
        /// The code.
        code: String,
        /// Why.
        message: String,
    },
    /// Nobody knows yet.
    Unknown,
}

impl Look<'_> {
    /// Chooses what is to be started, knowing which of the open instances have ended. Not while something is pending.
    #[must_use]
    pub fn turn(&self, state: &State, ended: &[(WorkflowName, InstanceId)]) -> Turn {
        let mut state = state.clone();
        state
            .open
            .retain(|run| !ended.iter().any(|(workflow, id)| *workflow == run.workflow && *id == run.id));
        let State { open, stopping, .. } = &mut state;
        stopping.retain(|id| open.iter().any(|run| run.id == *id));
        if state.paused.is_none() {
            let may_begin = |due: &Due| state.open.is_empty() && due.start_at <= self.now;
            if state.queue.first().is_some_and(may_begin) {
                let first = state.queue.remove(0);
                state.pending.push(first);
            }
            self.miss(&mut state);
            self.take(&mut state);
        }
        self.make_up(&mut state);
        self.stands(state)
    }

    /// Notes what came of the starts. What is not pending any more was noted by somebody else.
    #[must_use]
    pub fn settle(&self, state: &State, outcomes: Vec<(Due, Outcome)>) -> Turn {
        let mut state = state.clone();
        for (due, outcome) in outcomes {
            let id = super::instance_id(self.id, due.at);
            let Some(action) = self.action(&outcome, Some(due.at), &id) else { continue };
            let Some(place) = state.pending.iter().position(|pending| *pending == due) else { continue };
            state.pending.remove(place);
            let refused = action.kind == ActionKind::Refused;
            state.note(action);
            if refused && due.kind == DueKind::Planned {
                self.give_back(&mut state);
            }
            let is_tracked = match due.kind {
                DueKind::Planned => self.definition.overlap != Overlap::Allow,
                DueKind::Backfill => true,
                DueKind::BackfillBeside => false,
            };
            if is_tracked && !refused {
                state.keep_open(Run { workflow: self.definition.workflow.clone(), id, since: self.now });
            }
        }
        if state.pending.is_empty() {
            self.stands(state)
        } else {
            Turn { state, wake_at: Some(self.now.plus(AGAIN)) }
        }
    }

    /// What was refused was not started, so it does not count against the limit. What was due while the limit was reached is passed over.
    fn give_back(&self, state: &mut State) {
        if self.is_used_up(state) {
            state.settled = state.settled.max(self.now);
        }
        state.taken = state.taken.saturating_sub(1);
    }

    /// What is noted of a start; nothing as long as nobody knows.
    pub(super) fn action(
        &self,
        outcome: &Outcome,
        due: Option<Timestamp>,
        id: &InstanceId,
    ) -> Option<Action> {
        let of = |kind| Action { instance: Some(id.clone()), ..Action::new(kind, due, self.now) };
        Some(match outcome {
            Outcome::Started => of(ActionKind::Started),
            Outcome::Existed => of(ActionKind::Existed),
            Outcome::Refused { code, message } => {
                let (code, message) = (Some(code.clone()), Some(message.clone()));
                Action { code, message, ..Action::new(ActionKind::Refused, due, self.now) }
            }
            Outcome::Unknown => return None,
        })
    }

    /// A state with when to look again.
    #[must_use]
    pub fn stands(&self, state: State) -> Turn {
        let wake_at = self.wake_at(&state);
        Turn { state, wake_at }
    }

    /// Passes over what nobody started in time. Of more than a turn looks at, the rest is not counted.
    fn miss(&self, state: &mut State) {
        let horizon = self.now.minus(self.definition.catch_up.horizon());
        let mut missed = 0;
        let mut last = None;
        while let Some(due) = self.definition.due_after(self.times, state.settled)
            && self.definition.starts_at(self.id, self.times, due) < horizon
        {
            if missed == LOOKED_AT_MAX as u64 {
                self.pass_over(state, horizon);
                break;
            }
            missed += 1;
            last = Some(due);
            state.settled = due;
        }
        self.note_missed(state, last, missed);
    }

    /// Passes over everything that is started before a moment. Of those that are due before it, only the last may be started after it: the
    /// jitter never reaches the next one.
    fn pass_over(&self, state: &mut State, horizon: Timestamp) {
        let Some(last) = self.last_before(horizon, state.settled) else { return };
        let is_missed = self.definition.starts_at(self.id, self.times, last) < horizon;
        state.settled = if is_missed { last } else { Timestamp(last.0.saturating_sub(1)) };
    }

    /// The last due time after one moment and before another. Halves what is left at each look, so that it takes about as long whatever lies
    /// between.
    pub(super) fn last_before(&self, end: Timestamp, begin: Timestamp) -> Option<Timestamp> {
        let next = |moment| self.definition.due_after(self.times, moment).filter(|due| *due < end);
        let (mut last, mut none_from) = (next(begin)?, end);
        loop {
            let middle = Timestamp(last.0 + (none_from.0 - last.0) / 2);
            if middle == last {
                return Some(last);
            }
            match next(middle) {
                Some(due) => last = due,
                None => none_from = middle,
            }
        }
    }

    fn note_missed(&self, state: &mut State, last: Option<Timestamp>, count: u64) {
        if count > 0 {
            let times = (count > 1).then_some(count);
            state.note(Action { times, ..Action::new(ActionKind::Missed, last, self.now) });
        }
    }

    /// Takes the due times that have come, in their order.
    fn take(&self, state: &mut State) {
        let latest = self.definition.catch_up.which == Which::Latest;
        let most = if latest { LOOKED_AT_MAX } else { STARTS_MAX.saturating_sub(state.pending.len()) };
        let mut dues: Vec<Due> = Vec::new();
        let mut settled = state.settled;
        let mut more = false;
        while let Some(due) = self.definition.due_after(self.times, settled) {
            let start_at = self.definition.starts_at(self.id, self.times, due);
            if start_at > self.now {
                break;
            }
            if dues.len() == most {
                more = true;
                break;
            }
            dues.push(Due { at: due, start_at, kind: DueKind::Planned });
            settled = due;
        }
        let last = dues.len().saturating_sub(1);
        let mut missed = (None, 0);
        for (index, due) in dues.into_iter().enumerate() {
            if self.is_used_up(state) {
                break;
            }
            state.settled = due.at;
            let is_late = self.now.since(due.start_at) > CatchUp::LATE;
            if latest && is_late && (more || index < last) {
                missed = (Some(due.at), missed.1 + 1);
            } else {
                state.place(self.definition.overlap, due, self.now);
            }
        }
        self.note_missed(state, missed.0, missed.1);
    }

    /// Takes due times of the first span that is to be made up for.
    fn make_up(&self, state: &mut State) {
        while let Some(backfill) = state.backfills.first() {
            let (beside, until) = (backfill.beside, backfill.until);
            let next = self.definition.due_after(self.times, backfill.settled).filter(|due| *due < until);
            let Some(at) = next else {
                let done = state.backfills.remove(0);
                state.close(done);
                continue;
            };
            let waits = !state.open.is_empty() || !state.pending.is_empty() || state.has_queue();
            let is_full = if beside { state.pending.len() >= STARTS_MAX } else { waits };
            if is_full {
                return;
            }
            let kind = if beside { DueKind::BackfillBeside } else { DueKind::Backfill };
            state.pending.push(Due { at, start_at: self.now, kind });
            state.backfills[0].settled = at;
        }
    }

    pub(super) fn is_used_up(&self, state: &State) -> bool {
        self.definition.limit.is_some_and(|limit| state.taken >= limit)
    }

    fn wake_at(&self, state: &State) -> Option<Timestamp> {
        if !state.pending.is_empty() {
            return Some(self.now.plus(PENDING));
        }
        let is_due = state.paused.is_none() && !self.is_used_up(state);
        let due = if is_due { self.definition.due_after(self.times, state.settled) } else { None };
        let due = due.map(|due| self.definition.starts_at(self.id, self.times, due));
        let beside = state.backfills.first().is_some_and(|backfill| backfill.beside);
        let in_turn = !beside && !state.backfills.is_empty();
        let free = || state.look_again(self.now).unwrap_or(self.now);
        // What waits keeps a span in its turn waiting, too.
        let in_turn = (in_turn && !state.has_queue()).then(free);
        // What was asked to end is asked until it has ended: whoever was to ask may have died.
        let stopping = (!state.stopping.is_empty()).then(free);
        [due, state.queue_at(self.now), in_turn, stopping, beside.then_some(self.now)]
            .into_iter()
            .flatten()
            .min()
    }
}
