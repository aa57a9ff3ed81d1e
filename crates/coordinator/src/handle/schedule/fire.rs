//! Starts what schedules have due (rules S5, S8, S10). First it is written what is to be started, then it is started, then it is written what
//! came of it: whoever comes upon the first alone does the second again, which makes no second instance.

use std::time::Duration;

use everstep_engine::{
    bulk::Act,
    mailbox::OWN_APP_ID,
    schedule::{Counts, Due, DueKind, Look, Outcome, Overlap, Run, State, Turn, instance_id},
    start::{MessageKey, NameKey},
};
use everstep_protocol::{InstanceId, Millis, Timestamp, WorkflowName, crash::around, start::StartOutcome};
use everstep_store::{ScheduleRow, ScheduleWrite};
use futures::{StreamExt, stream};
use tokio::sync::Semaphore;

use super::{OfSchedule, ScheduleError};
use crate::{
    StartRequest,
    error::{Error, ErrorKind},
    handle::{Handle, act::Whom, prepare},
};

/// Starts that are under way at once: the loop has other work, too.
const STARTS_AT_ONCE: usize = 100;
/// Reads of statuses at once.
const LOOKS_AT_ONCE: usize = 8;
/// What cannot be read now is looked at again after so long.
const UNREADABLE: Millis = Millis::from_secs(60);
/// The same where it may be the store that does not answer.
const UNANSWERED: Millis = Millis::from_secs(5);
/// So long is waited for the answer of an instance that is asked to end. It is asked again as long as it is open.
const ASKED_WITHIN: Duration = Duration::from_secs(2);
/// So often what came of starts is noted again that somebody else came before.
const ATTEMPTS: usize = 5;
/// After a failure of the store.
const PAUSE: Duration = Duration::from_millis(50);

impl Handle {
    /// One turn of each of these schedules. True if any has moved on.
    pub(crate) async fn fire(&self, rows: Vec<ScheduleRow>, now: Timestamp) -> Result<bool, Error> {
        let turns = stream::iter(rows).map(|row| self.choose(row, now)).buffered(LOOKS_AT_ONCE);
        let chosen: Vec<Chosen> = turns.collect().await;
        let (fresh, mut pending): (Vec<_>, Vec<_>) =
            chosen.into_iter().partition(|chosen| chosen.write.is_some());
        let writes: Vec<ScheduleWrite> = fresh.iter().filter_map(|chosen| chosen.write.clone()).collect();
        let written = around("commit.schedule", self.shared.store.settle_schedules(&writes)).await?;
        let mut moved = !pending.is_empty();
        for (chosen, written) in fresh.into_iter().zip(written) {
            if written {
                moved = true;
                self.count(chosen.before, &chosen.row.state);
                pending.push(chosen);
            }
        }
        pending
            .retain(|chosen| !chosen.row.state.pending.is_empty() || !chosen.row.state.stopping.is_empty());
        self.start_pending(pending.into_iter().map(|chosen| chosen.row).collect()).await?;
        Ok(moved)
    }

    /// What one schedule comes to. What is pending already is not chosen again. One of which something cannot be read is put off: others are not
    /// to wait for it.
    async fn choose(&self, row: ScheduleRow, now: Timestamp) -> Chosen {
        let before = row.state.counts;
        if !row.state.pending.is_empty() {
            return Chosen { row, before, write: None };
        }
        let put_off = |pause| Turn { state: row.state.clone(), wake_at: Some(now.plus(pause)) };
        let turn = match (self.shared.calendars.of(&row.definition), self.ended_of(&row).await) {
            (Ok(moments), Ok(ended)) => {
                let look = Look { id: &row.id, definition: &row.definition, times: &moments, now };
                look.turn(&row.state, &ended)
            }
            (Err(error), _) => {
                tracing::warn!(%error, schedule = %row.id, "a schedule cannot be read and starts nothing");
                put_off(UNREADABLE)
            }
            (_, Err(error)) => {
                tracing::warn!(%error, schedule = %row.id, "what a schedule has started was not read; it is put off");
                put_off(UNANSWERED)
            }
        };
        let (namespace, id, version) = (row.namespace.clone(), row.id.clone(), row.version);
        let row = ScheduleRow { version: version + 1, state: turn.state.clone(), ..row };
        Chosen { row, before, write: Some(ScheduleWrite { namespace, id, version, turn }) }
    }

    /// Which of the instances that were open have ended, or are gone.
    async fn ended_of(&self, row: &ScheduleRow) -> Result<Vec<(WorkflowName, InstanceId)>, Error> {
        let mut ended = Vec::new();
        for Run { workflow, id, .. } in &row.state.open {
            let name =
                NameKey { namespace: row.namespace.clone(), workflow: workflow.clone(), id: id.clone() };
            if self.shared.store.status(&name).await?.is_none_or(everstep_engine::Status::is_ended) {
                ended.push((workflow.clone(), id.clone()));
            }
        }
        Ok(ended)
    }

    /// Asks what a newer due time takes the place of to end. That is done whenever the schedule is looked at, until it has ended: whoever was to
    /// ask before may have died. By the name of the operation it is done once, and again if it is to end in another way.
    async fn stop_others(&self, row: &ScheduleRow) {
        let reason = Some(format!("a later due time of schedule {} takes its place", row.id));
        let (word, act) = match row.definition.overlap {
            Overlap::CancelOther => ("cancel", Act::Cancel { reason, within: None, rollback: false }),
            Overlap::TerminateOther => ("terminate", Act::Terminate { reason, rollback: false }),
            Overlap::Skip | Overlap::QueueOne | Overlap::Queue { .. } | Overlap::Allow => return,
        };
        let State { open, stopping, .. } = &row.state;
        let asked = open.iter().filter(|run| stopping.contains(&run.id)).map(async |run| {
            let (workflow, id) = (run.workflow.clone(), run.id.clone());
            let name = NameKey { namespace: row.namespace.clone(), workflow, id };
            let operation = format!("schedule:{}:{word}:{}", row.id, run.since.0);
            let asked = self.act(Whom::named(name), operation, act.clone());
            let (schedule, instance) = (&row.id, &run.id);
            match tokio::time::timeout(ASKED_WITHIN, asked).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, %schedule, %instance, "an instance was not asked to end; it is asked again");
                }
                Err(_) => {
                    tracing::warn!(%schedule, %instance, "an instance that is to end does not answer; it is asked again");
                }
            }
        });
        futures::future::join_all(asked).await;
    }

    /// Starts what is pending, so many at once, and notes what came of it. Nobody waits for what another schedule asks to end.
    async fn start_pending(&self, rows: Vec<ScheduleRow>) -> Result<(), Error> {
        let room = Semaphore::new(STARTS_AT_ONCE);
        let (asking, others) = rows.into_iter().partition(|row| !row.state.stopping.is_empty());
        let (others, asking) = futures::join!(self.start_some(others, &room), self.start_some(asking, &room));
        others.and(asking)
    }

    async fn start_some(&self, rows: Vec<ScheduleRow>, room: &Semaphore) -> Result<(), Error> {
        let settled = rows.into_iter().map(async |row| {
            self.stop_others(&row).await;
            let starts = row.state.pending.iter().map(async |due| {
                let _place = room.acquire().await;
                (*due, self.start_due(&row, *due).await)
            });
            let outcomes = futures::future::join_all(starts).await;
            (row, outcomes)
        });
        let mut settled: Vec<(ScheduleRow, Vec<(Due, Outcome)>)> = futures::future::join_all(settled).await;
        settled.retain(|(_, outcomes)| !outcomes.is_empty());
        self.note(settled).await
    }

    async fn start_due(&self, row: &ScheduleRow, due: Due) -> Outcome {
        let id = instance_id(&row.id, due.at);
        // What was asked for again is another request, but for the instance that there may be.
        let message = match due.kind {
            DueKind::Planned => id.to_string(),
            DueKind::Backfill | DueKind::BackfillBeside => format!("{id} again {}", due.start_at.0),
        };
        let outcome = self.start_for(row, &id, &message).await;
        if outcome != Outcome::Unknown {
            let lateness = self.shared.clock.estimate().since(due.start_at);
            self.shared.metrics.schedules.lateness.observe(lateness.as_u64() as f64 / 1000.0);
        }
        outcome
    }

    /// Starts an instance of a schedule, under an id that it can be repeated with, also when that instance is deleted meanwhile.
    pub(super) async fn start_for(&self, row: &ScheduleRow, id: &InstanceId, message: &str) -> Outcome {
        let key = MessageKey {
            namespace: row.namespace.clone(),
            workflow: row.definition.workflow.clone(),
            app_id: OWN_APP_ID.to_owned(),
            message_id: format!("schedule {message}"),
        };
        let outcome = match self.start(request(row, id.clone(), Some(key))).await {
            Ok(reply) => match reply.outcome {
                StartOutcome::Created => Outcome::Started,
                StartOutcome::Exists => Outcome::Existed,
                StartOutcome::Conflict | StartOutcome::Rejected => Outcome::Refused {
                    code: reply.code.unwrap_or_else(|| "rejected".to_owned()),
                    message: reply.message.unwrap_or_else(|| "the start can never be accepted".to_owned()),
                },
                StartOutcome::Accepted | StartOutcome::Unknown => Outcome::Unknown,
            },
            Err(Error::Undecided { code, reason }) => Outcome::Refused { code, message: reason },
            Err(error) if error.kind() == ErrorKind::Refused => {
                Outcome::Refused { code: "input".to_owned(), message: error.to_string() }
            }
            Err(error) => {
                tracing::warn!(%error, schedule = %row.id, "what came of a schedule's start is not known; it is made again");
                Outcome::Unknown
            }
        };
        let word = match &outcome {
            Outcome::Started => "started",
            Outcome::Existed => "existed",
            Outcome::Refused { .. } => "refused",
            Outcome::Unknown => "unknown",
        };
        self.shared.metrics.schedules.starts.inc(word);
        outcome
    }

    /// Notes what came of starts. Where somebody has changed a schedule meanwhile, it is noted there.
    async fn note(&self, mut settled: Vec<(ScheduleRow, Vec<(Due, Outcome)>)>) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            let mut writes = Vec::with_capacity(settled.len());
            for (row, outcomes) in &settled {
                let now = self.shared.clock.estimate();
                let turn = match self.shared.calendars.of(&row.definition) {
                    Ok(moments) => {
                        let look = Look { id: &row.id, definition: &row.definition, times: &moments, now };
                        look.settle(&row.state, outcomes.clone())
                    }
                    Err(_) => Turn { state: row.state.clone(), wake_at: Some(now.plus(UNREADABLE)) },
                };
                let (namespace, id) = (row.namespace.clone(), row.id.clone());
                writes.push(ScheduleWrite { namespace, id, version: row.version, turn });
            }
            let written = around("commit.schedule", self.shared.store.settle_schedules(&writes)).await?;
            let mut left = Vec::new();
            for ((row, outcomes), written) in settled.into_iter().zip(written) {
                if written {
                    continue;
                }
                let found = self.shared.store.schedule(&row.namespace, &row.id).await?.what;
                // Of one that is gone there is nothing to note; what another has noted is not pending any more.
                let is_same = |found: &ScheduleRow| {
                    found.created_at == row.created_at && !found.state.pending.is_empty()
                };
                if let Some(row) = found.filter(is_same) {
                    left.push((row, outcomes));
                }
            }
            if left.is_empty() {
                return Ok(());
            }
            settled = left;
            tokio::time::sleep(PAUSE).await;
        }
        // Whoever looks next finds it pending, and the instances there.
        Ok(())
    }

    fn count(&self, before: Counts, after: &State) {
        let skipped = after.counts.skipped.saturating_sub(before.skipped);
        let missed = after.counts.missed.saturating_sub(before.missed);
        self.shared.metrics.schedules.skipped.with_label_values(&["overlap"]).inc_by(skipped);
        self.shared.metrics.schedules.skipped.with_label_values(&["missed"]).inc_by(missed);
    }

    /// Whether an instance could be started as it is asked for.
    pub(super) fn check_start(
        &self,
        of: OfSchedule<'_>,
        definition: &everstep_engine::schedule::Definition,
    ) -> Result<(), ScheduleError> {
        let row = ScheduleRow {
            namespace: of.namespace.clone(),
            id: of.id.clone(),
            version: 0,
            created_at: Timestamp(0),
            changed_at: Timestamp(0),
            wake_at: None,
            definition: definition.clone(),
            state: State::default(),
        };
        prepare(&self.shared, request(&row, instance_id(of.id, Timestamp(0)), None))?;
        Ok(())
    }
}

/// One schedule of a round.
struct Chosen {
    /// As it stands after its turn.
    row: ScheduleRow,
    before: Counts,
    /// What is to be written first; none where something is pending already.
    write: Option<ScheduleWrite>,
}

fn request(row: &ScheduleRow, id: InstanceId, message: Option<MessageKey>) -> StartRequest {
    let definition = &row.definition;
    StartRequest {
        namespace: row.namespace.clone(),
        workflow: definition.workflow.clone(),
        id: Some(id),
        input: definition.input.clone(),
        retention: definition.retention,
        pin: definition.pin.clone(),
        strict: definition.strict,
        attributes: definition.attributes_of(&row.id),
        hook: None,
        message,
    }
}
