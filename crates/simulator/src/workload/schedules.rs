//! Whoever keeps schedules: creates, changes, pauses and resumes them, makes up for spans, starts by hand and deletes, at moments that are
//! drawn, and repeats what was not answered.

use std::time::Duration;

use everstep_coordinator::{BackfillRequest, OfSchedule, ScheduleError};
use everstep_engine::schedule::{CatchUp, Definition, Overlap, When, Which};
use everstep_protocol::{Millis, Namespace, ScheduleId, Timestamp};
use tokio::time::sleep;

use super::{
    WORKFLOW,
    outside::Outside,
    program::{self, Program, Shape},
};
use crate::{clock::BEGAN, seed::Draws};

/// A schedule that is to be kept.
#[derive(Clone, Debug)]
pub(crate) struct PlannedSchedule {
    id: ScheduleId,
    after: Duration,
    definition: Definition,
    /// What is done with it, each after a pause.
    deeds: Vec<(Duration, Deed)>,
}

/// What is done with a schedule.
#[derive(Clone, Debug)]
enum Deed {
    Put(Box<Definition>),
    Pause,
    Resume,
    Trigger,
    /// Of so long before.
    Backfill(Millis),
    StopBackfill,
    Delete,
}

/// The schedules of a run: none in most.
pub(crate) fn plan(draws: &mut Draws, shape: Shape, calm_at: u64) -> Vec<PlannedSchedule> {
    let count = if draws.once_in(3) { draws.between(1, 3) } else { 0 };
    (0..count).map(|number| planned(draws, shape, number, calm_at)).collect()
}

fn planned(draws: &mut Draws, shape: Shape, number: u64, calm_at: u64) -> PlannedSchedule {
    // Due times go on for a while after faults have ceased.
    let until = calm_at + draws.between(1_000, 12_000);
    let after = draws.between(0, calm_at / 2);
    let count = if draws.once_in(2) { 0 } else { draws.between(1, 6) };
    let deeds = (0..count).map(|_| {
        let pause = Duration::from_millis(draws.between(100, 5_000));
        (pause, deed(draws, shape, until))
    });
    let deeds = deeds.collect();
    PlannedSchedule {
        id: ScheduleId::new(format!("s{number}")).expect("a letter and a digit are an id"),
        after: Duration::from_millis(after),
        definition: definition(draws, shape, until),
        deeds,
    }
}

fn deed(draws: &mut Draws, shape: Shape, until: u64) -> Deed {
    match draws.below(9) {
        0 | 1 => Deed::Pause,
        2 | 3 => Deed::Resume,
        4 => Deed::Trigger,
        5 => Deed::Backfill(Millis(draws.between(2_000, 10_000))),
        6 if draws.once_in(3) => Deed::Delete,
        6 => Deed::StopBackfill,
        _ => Deed::Put(Box::new(definition(draws, shape, until))),
    }
}

/// Starts programs that end soon, or not so soon.
fn definition(draws: &mut Draws, shape: Shape, until: u64) -> Definition {
    let shape = shape.brief(draws.between(1, 4));
    let program = Program { again: 0, token: None, ..program::draw(draws, shape) };
    Definition {
        overlap: *draws.pick(&[
            Overlap::Skip,
            Overlap::QueueOne,
            Overlap::Queue { max: 2 },
            Overlap::Queue { max: 1_000 },
            Overlap::CancelOther,
            Overlap::TerminateOther,
            Overlap::Allow,
        ]),
        catch_up: catch_up(draws),
        jitter: Millis(if draws.once_in(3) { draws.between(1, 3_000) } else { 0 }),
        limit: draws.once_in(8).then(|| draws.between(1, 6)),
        from: draws.once_in(8).then(|| moment(draws.below(until))),
        until: Some(moment(until)),
        ..Definition::starts(WORKFLOW, &program, when(draws, until)).expect("the workflow's name is valid")
    }
}

fn when(draws: &mut Draws, until: u64) -> When {
    match draws.below(6) {
        0 => When::At { at: moment(draws.below(until) / 1_000 * 1_000) },
        1 | 2 => When::cron(&format!("*/{} * * * * *", draws.pick(&[1, 2, 3, 5]))),
        _ => {
            let every = draws.between(1, 6);
            When::Every { every: Millis::from_secs(every), offset: Millis::from_secs(draws.below(every)) }
        }
    }
}

/// Mostly everything is caught up, so that each due time can be asked for.
fn catch_up(draws: &mut Draws) -> CatchUp {
    let which = *draws.pick(&[Which::All, Which::All, Which::Latest, Which::None]);
    let within = if draws.once_in(4) { draws.between(1_000, 15_000) } else { 86_400_000 };
    CatchUp { which, within: Millis(within) }
}

/// The store's time so many milliseconds after the run began.
const fn moment(millis: u64) -> Timestamp {
    Timestamp(BEGAN + millis as i64 * 1_000)
}

impl Outside {
    /// Keeps one schedule. In the end it goes on, if it was paused, so that what waits comes.
    pub(super) async fn keeps(self, planned: PlannedSchedule) {
        let PlannedSchedule { id, after, definition, deeds } = planned;
        sleep(after).await;
        self.insists(&id, "put", &Deed::Put(Box::new(definition))).await;
        for (number, (pause, deed)) in deeds.into_iter().enumerate() {
            sleep(pause).await;
            self.insists(&id, &format!("deed-{number}"), &deed).await;
        }
        self.insists(&id, "goes-on", &Deed::Resume).await;
    }

    /// Does it until it is answered.
    async fn insists(&self, id: &ScheduleId, operation: &str, deed: &Deed) {
        self.trace.note("keeper", format_args!("{operation} of {id}"));
        loop {
            if let Some(desk) = self.desks.any(&self.draws)
                && let Some(true) = desk.answers(does(&desk.handle, id, operation, deed)).await
            {
                return;
            }
            sleep(Duration::from_millis(self.draws.draw(|draws| draws.between(50, 1_500)))).await;
        }
    }
}

/// Whether it was answered: also that it makes no sense, which it would be told again.
async fn does(desk: &everstep_coordinator::Handle, id: &ScheduleId, operation: &str, deed: &Deed) -> bool {
    let namespace = Namespace::default();
    let of = OfSchedule { namespace: &namespace, id, by: Some("the simulator") };
    let done = match deed {
        Deed::Put(definition) => desk.put_schedule(of, definition).await.map(drop),
        Deed::Pause => desk.pause_schedule(of, None).await.map(drop),
        Deed::Resume => desk.resume_schedule(of, None).await.map(drop),
        Deed::Trigger => desk.trigger_schedule(of, operation).await.map(drop),
        Deed::Backfill(span) => {
            let Ok(dated) = desk.store().schedule(&namespace, id).await else { return false };
            let span = BackfillRequest {
                operation: operation.to_owned(),
                from: dated.now.minus(*span),
                until: dated.now,
                beside: None,
            };
            desk.backfill_schedule(of, &span).await.map(drop)
        }
        Deed::StopBackfill => desk.stop_backfill(of, None).await.map(drop),
        Deed::Delete => desk.delete_schedule(of).await.map(drop),
    };
    match done {
        Ok(())
        | Err(ScheduleError::Definition(_) | ScheduleError::Calendar(_) | ScheduleError::Operate(_)) => true,
        Err(ScheduleError::Busy | ScheduleError::NotNoted { .. } | ScheduleError::Engine(_)) => false,
    }
}
