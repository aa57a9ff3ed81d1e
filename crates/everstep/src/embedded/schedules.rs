//! Schedules of the embedded system: what starts instances at their times, as on the fleet (rules S1 to S16).

use everstep_coordinator::{BackfillRequest, OfSchedule, Triggered};
use everstep_engine::schedule::{Definition, Outcome};
use everstep_protocol::{
    InstanceUid, Namespace, ScheduleId, Timestamp,
    start::{StartOutcome, StartReply},
};

use super::{Embedded, EmbeddedError, InstanceHandle, ScheduleView};

impl Embedded {
    /// Creates a schedule, or puts this one in the place of the one that there is. The same again changes nothing.
    ///
    /// ```
    /// # use everstep::embedded::{Embedded, Overlap, Schedule, When};
    /// # async fn example(everstep: &Embedded) -> Result<(), Box<dyn std::error::Error>> {
    /// let nightly = Schedule {
    ///     overlap: Overlap::QueueOne,
    ///     ..Schedule::starts("report", &"all", When::cron("30 2 * * *").zone("Europe/Berlin"))?
    /// };
    /// everstep.put_schedule("nightly", &nightly).await?;
    /// for (due, _) in everstep.next_runs("nightly", 3).await? {
    ///     println!("{due}");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn put_schedule(&self, id: &str, schedule: &Definition) -> Result<ScheduleView, EmbeddedError> {
        let id = ScheduleId::new(id)?;
        Ok(self.handle.put_schedule(of(&id), schedule).await?.0)
    }

    /// What the store says of a schedule.
    pub async fn schedule(&self, id: &str) -> Result<Option<ScheduleView>, EmbeddedError> {
        let id = ScheduleId::new(id)?;
        Ok(self.handle.store().schedule(&NAMESPACE, &id).await?.what)
    }

    /// Schedules, in the order of their ids, after this one: at most 200, and fewer where their inputs are large. None are left if none come.
    pub async fn schedules(&self, after: Option<&str>) -> Result<Vec<ScheduleView>, EmbeddedError> {
        let after = after.map(ScheduleId::new).transpose()?;
        Ok(self.handle.store().schedules(&NAMESPACE, after.as_ref(), 200).await?.what)
    }

    /// The next due times of a schedule, at most so many, each with when it will be started; none if there is no such schedule.
    pub async fn next_runs(
        &self,
        id: &str,
        count: usize,
    ) -> Result<Vec<(Timestamp, Timestamp)>, EmbeddedError> {
        let id = ScheduleId::new(id)?;
        let found = self.handle.store().schedule(&NAMESPACE, &id).await?;
        Ok(found.what.map_or_else(Vec::new, |row| self.handle.next_runs(&row, found.now, count)))
    }

    /// Nothing more is started at due times, for this reason. None if there is no such schedule.
    pub async fn pause_schedule(
        &self,
        id: &str,
        note: Option<&str>,
    ) -> Result<Option<ScheduleView>, EmbeddedError> {
        let id = ScheduleId::new(id)?;
        Ok(self.handle.pause_schedule(of(&id), note).await?)
    }

    /// It goes on from now. None if there is no such schedule.
    pub async fn resume_schedule(&self, id: &str) -> Result<Option<ScheduleView>, EmbeddedError> {
        let id = ScheduleId::new(id)?;
        Ok(self.handle.resume_schedule(of(&id), None).await?)
    }

    /// Starts an instance at once; with a key it can be repeated without harm. None if there is no such schedule.
    ///
    /// Errors: [`EmbeddedError::NotStarted`] where the start is refused.
    pub async fn trigger_schedule(
        &self,
        id: &str,
        key: Option<&str>,
    ) -> Result<Option<InstanceHandle>, EmbeddedError> {
        let id = ScheduleId::new(id)?;
        let key = key.map_or_else(|| InstanceUid::generate().to_string(), str::to_owned);
        let Some(Triggered { id, outcome, row }) = self.handle.trigger_schedule(of(&id), &key).await? else {
            return Ok(None);
        };
        let workflow = row.definition.workflow.as_str();
        if let Outcome::Refused { code, message } = outcome {
            return Err(EmbeddedError::NotStarted(Box::new(StartReply {
                outcome: StartOutcome::Rejected,
                workflow: Some(workflow.to_owned()),
                id: Some(id.to_string()),
                status: None,
                code: Some(code),
                message: Some(message),
                owner: None,
                retry_safe: true,
            })));
        }
        Ok(Some(self.handle(workflow, id.as_str())?))
    }

    /// Stops all that is being made up for; what was started stays. None if there is no such schedule.
    pub async fn stop_backfill(&self, id: &str) -> Result<Option<ScheduleView>, EmbeddedError> {
        let id = ScheduleId::new(id)?;
        Ok(self.handle.stop_backfill(of(&id), None).await?)
    }

    /// Starts the due times of a span that has passed, side by side or one after the other; those that were started are there already. None
    /// if there is no such schedule.
    pub async fn backfill_schedule(
        &self,
        id: &str,
        (from, until): (Timestamp, Timestamp),
        side_by_side: bool,
    ) -> Result<Option<ScheduleView>, EmbeddedError> {
        let id = ScheduleId::new(id)?;
        let operation = InstanceUid::generate().to_string();
        let request = BackfillRequest { operation, from, until, beside: Some(side_by_side) };
        Ok(self.handle.backfill_schedule(of(&id), &request).await?)
    }

    /// Deletes a schedule; what it has started stays. False if there is no such schedule.
    pub async fn delete_schedule(&self, id: &str) -> Result<bool, EmbeddedError> {
        let id = ScheduleId::new(id)?;
        Ok(self.handle.delete_schedule(of(&id)).await?)
    }
}

static NAMESPACE: std::sync::LazyLock<Namespace> = std::sync::LazyLock::new(Namespace::default);

fn of(id: &ScheduleId) -> OfSchedule<'_> {
    OfSchedule { namespace: &NAMESPACE, id, by: None }
}
