//! Schedules as people operate them (rules S1, S11 to S15). What is due is started by `fire`, which the service `schedules` calls.

mod fire;

use everstep_engine::{
    action::{Action, Target},
    schedule::{
        Definition, DefinitionError, Look, OperateError, Outcome, State, Turn, next_runs, triggered_id,
    },
};
use everstep_protocol::{InstanceId, Namespace, ScheduleId, Scope, Timestamp, crash::around};
use everstep_store::{Dated, ScheduleChange, ScheduleRow};

use super::Handle;
use crate::{calendars::Moments, error::Error};

/// So often a change is made again that somebody else came before.
const ATTEMPTS: usize = 20;

/// Why an operation on a schedule failed. Nothing has changed, unless it says that nobody knows.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// A field is refused.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// Its cron expression or zone is refused.
    #[error(transparent)]
    Calendar(#[from] everstep_calendar::Error),
    /// It makes no sense now.
    #[error(transparent)]
    Operate(#[from] OperateError),
    /// Others were faster each time.
    #[error(
        "the schedule is being changed or started all the time; nothing has changed, trying again is safe"
    )]
    Busy,
    /// Others were faster each time, but an instance was started before.
    #[error(
        "instance {id} was started, but the schedule is being changed or started all the time, so it is not noted there; \
         trying again with the same key is safe"
    )]
    NotNoted {
        /// The instance.
        id: InstanceId,
    },
    /// The coordinator failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl From<everstep_store::Error> for ScheduleError {
    fn from(error: everstep_store::Error) -> Self {
        Self::Engine(error.into())
    }
}

/// Which schedule, and who asks as they say.
#[derive(Clone, Copy, Debug)]
pub struct OfSchedule<'a> {
    /// Its namespace.
    pub namespace: &'a Namespace,
    /// Its id.
    pub id: &'a ScheduleId,
    /// Who asks, as they say themselves: nobody checks that.
    pub by: Option<&'a str>,
}

/// A span that is to be made up for.
#[derive(Clone, Debug)]
pub struct BackfillRequest {
    /// By what a repetition of the request is known.
    pub operation: String,
    /// Due times from here on.
    pub from: Timestamp,
    /// Due times before this.
    pub until: Timestamp,
    /// Whether they are started side by side; none for as the schedule's overlap says.
    pub beside: Option<bool>,
}

/// A start by hand, and what the schedule says afterwards.
#[derive(Clone, Debug)]
pub struct Triggered {
    /// The instance.
    pub id: InstanceId,
    /// What came of its start.
    pub outcome: Outcome,
    /// The schedule.
    pub row: ScheduleRow,
}

impl Handle {
    /// Creates a schedule, or puts this definition in the place of the one that there is; the same again changes nothing. True if it was created.
    /// What was due before is started first, as it was asked for then.
    pub async fn put_schedule(
        &self,
        of: OfSchedule<'_>,
        definition: &Definition,
    ) -> Result<(ScheduleRow, bool), ScheduleError> {
        definition.check()?;
        let moments = self.shared.calendars.of(definition)?;
        self.check_start(of, definition)?;
        for _ in 0..ATTEMPTS {
            let Dated { now, what: row } = self.shared.store.schedule(of.namespace, of.id).await?;
            let look = Look { id: of.id, definition, times: &moments, now };
            let turn = match &row {
                Some(row) if row.definition == *definition => return Ok((row.clone(), false)),
                Some(row) if row.wake_at.is_some_and(|at| at <= now) || !row.state.pending.is_empty() => {
                    self.fire(vec![row.clone()], now).await?;
                    continue;
                }
                Some(row) => look.replaced(&row.definition, &self.kept(of, row, now))?,
                None => look.created()?,
            };
            let version = row.as_ref().map(|row| row.version);
            if self.write(of, version, Some((definition.clone(), turn)), ("put", None)).await?
                && let Some(row) = self.shared.store.schedule(of.namespace, of.id).await?.what
            {
                return Ok((row, version.is_none()));
            }
        }
        Err(ScheduleError::Busy)
    }

    /// Nothing more is started at due times. None if there is no such schedule.
    pub async fn pause_schedule(
        &self,
        of: OfSchedule<'_>,
        note: Option<&str>,
    ) -> Result<Option<ScheduleRow>, ScheduleError> {
        let pause = |look: &Look<'_>, row: &ScheduleRow| Ok(look.paused(&row.state, note.map(str::to_owned)));
        self.change(of, ("pause", note.map(str::to_owned)), pause).await
    }

    /// It goes on from now. None if there is no such schedule.
    pub async fn resume_schedule(
        &self,
        of: OfSchedule<'_>,
        note: Option<&str>,
    ) -> Result<Option<ScheduleRow>, ScheduleError> {
        let resume = |look: &Look<'_>, row: &ScheduleRow| Ok(look.resumed(&row.state));
        self.change(of, ("resume", note.map(str::to_owned)), resume).await
    }

    /// Due times of a span that has passed are started as if they were due now; those that were started are there already. None if there is no
    /// such schedule.
    pub async fn backfill_schedule(
        &self,
        of: OfSchedule<'_>,
        span: &BackfillRequest,
    ) -> Result<Option<ScheduleRow>, ScheduleError> {
        let BackfillRequest { operation, from, until, beside } = span;
        let backfill = |look: &Look<'_>, row: &ScheduleRow| {
            Ok(look.backfilled(&row.state, operation, (*from, *until), *beside)?)
        };
        self.change(of, ("backfill", Some(format!("from {from} until {until}"))), backfill).await
    }

    /// Of the span that was asked for by this name, or of all of them, nothing more is started; what was started stays. None if there is no such
    /// schedule.
    pub async fn stop_backfill(
        &self,
        of: OfSchedule<'_>,
        operation: Option<&str>,
    ) -> Result<Option<ScheduleRow>, ScheduleError> {
        let stop = |look: &Look<'_>, row: &ScheduleRow| Ok(look.given_up(&row.state, operation));
        self.change(of, ("stop-backfill", operation.map(str::to_owned)), stop).await
    }

    /// Starts an instance at once, whatever is open or paused. The same operation again is the same instance. None if there is no such schedule.
    pub async fn trigger_schedule(
        &self,
        of: OfSchedule<'_>,
        operation: &str,
    ) -> Result<Option<Triggered>, ScheduleError> {
        let Some(row) = self.shared.store.schedule(of.namespace, of.id).await?.what else { return Ok(None) };
        let id = triggered_id(of.id, operation);
        let outcome = self.start_for(&row, &id, id.as_str()).await;
        if outcome == Outcome::Unknown {
            return Err(Error::Unknown { doing: "start an instance of a schedule" }.into());
        }
        let triggered = |look: &Look<'_>, row: &ScheduleRow| Ok(look.triggered(&row.state, &id, &outcome));
        let row = self.change(of, ("trigger", Some(id.to_string())), triggered).await;
        let is_there = matches!(outcome, Outcome::Started | Outcome::Existed);
        let row = row.map_err(|error| match error {
            ScheduleError::Busy if is_there => ScheduleError::NotNoted { id: id.clone() },
            other => other,
        })?;
        Ok(row.map(|row| Triggered { id, outcome, row }))
    }

    /// Deletes a schedule; what it has started stays. False if there is no such schedule.
    pub async fn delete_schedule(&self, of: OfSchedule<'_>) -> Result<bool, ScheduleError> {
        for _ in 0..ATTEMPTS {
            let Some(row) = self.shared.store.schedule(of.namespace, of.id).await?.what else {
                return Ok(false);
            };
            if self.write(of, Some(row.version), None, ("delete", None)).await? {
                return Ok(true);
            }
        }
        Err(ScheduleError::Busy)
    }

    /// The next due times of a schedule after a moment, each with when it will be started; none of one that is paused or used up.
    #[must_use]
    pub fn next_runs(&self, row: &ScheduleRow, now: Timestamp, count: usize) -> Vec<(Timestamp, Timestamp)> {
        let left = row.definition.limit.map_or(u64::MAX, |limit| limit.saturating_sub(row.state.taken));
        let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        match self.shared.calendars.of(&row.definition) {
            Ok(moments) if row.state.paused.is_none() => {
                next_runs(&row.definition, &row.id, &moments, now.max(row.state.settled), count)
            }
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    /// Where a schedule stands before it is changed. Nothing is kept of one whose expression cannot be read any more.
    fn kept(&self, of: OfSchedule<'_>, row: &ScheduleRow, now: Timestamp) -> State {
        self.shared.calendars.of(&row.definition).map_or_else(
            |_| row.state.clone(),
            |times| Look { id: of.id, definition: &row.definition, times: &times, now }.kept(&row.state),
        )
    }

    async fn change(
        &self,
        of: OfSchedule<'_>,
        what: (&'static str, Option<String>),
        decide: impl Fn(&Look<'_>, &ScheduleRow) -> Result<Turn, ScheduleError>,
    ) -> Result<Option<ScheduleRow>, ScheduleError> {
        for _ in 0..ATTEMPTS {
            let Dated { now, what: row } = self.shared.store.schedule(of.namespace, of.id).await?;
            let Some(row) = row else { return Ok(None) };
            let moments: Moments = self.shared.calendars.of(&row.definition)?;
            let look = Look { id: of.id, definition: &row.definition, times: &moments, now };
            let turn = decide(&look, &row)?;
            if self.write(of, Some(row.version), Some((row.definition, turn)), what.clone()).await? {
                return Ok(self.shared.store.schedule(of.namespace, of.id).await?.what);
            }
        }
        Err(ScheduleError::Busy)
    }

    async fn write(
        &self,
        of: OfSchedule<'_>,
        version: Option<u64>,
        after: Option<(Definition, Turn)>,
        (operation, detail): (&'static str, Option<String>),
    ) -> Result<bool, ScheduleError> {
        let (namespace, id) = (of.namespace.clone(), of.id.clone());
        let action = Action::done(&self.by, Scope::Of(namespace.clone()), Target::Schedule(&id), operation);
        let action = action.naming(of.by).saying(detail);
        let change = ScheduleChange { namespace, id, version, after, action };
        let written = around("commit.schedule_change", self.shared.store.change_schedule(&change)).await?;
        self.shared.schedules.notify_one();
        Ok(written)
    }
}
