//! The scene of a run, drawn from its seed: who takes part, how each is set up, what is to be done, and when faults cease.

use std::time::Duration;

use everstep_coordinator::Settings as CoordinatorSettings;
use everstep_protocol::{Millis, Pin};
use everstep_worker::Settings as WorkerSettings;

use crate::{
    faults::{Kind, Rates},
    seed::Draws,
    workload::{
        BUILDS, build,
        outside::{By, Planned},
        program::{self, Pace, Program, Shape},
        schedules::{self, PlannedSchedule},
    },
};

/// What a run is made of.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) rates: Rates,
    pub(crate) coordinators: usize,
    pub(crate) workers: usize,
    /// Workers that serve the pool alone.
    pub(crate) pools: usize,
    pub(crate) coordinator: CoordinatorSettings,
    pub(crate) worker: WorkerSettings,
    pub(crate) planned: Vec<Planned>,
    pub(crate) schedules: Vec<PlannedSchedule>,
    pub(crate) pace: Pace,
    /// The longest turn of a process while much goes on, in milliseconds: the shorter, the finer all of them mix, and the longer,
    /// the fuller batches get.
    pub(crate) grain: u64,
    /// When faults cease, in microseconds.
    pub(crate) calm_at: i64,
    /// A person interferes once in so many looks; never, if zero.
    pub(crate) interferes: u64,
    /// So far apart the clocks of processes run, in parts per million.
    pub(crate) drift: u64,
}

impl Scene {
    pub(crate) fn draw(seed: u64) -> Self {
        let draws = &mut Draws::new(seed, "scene");
        let rates = Rates::draw(&mut Draws::new(seed, "rates"));
        let pace = if draws.once_in(4) { Pace::Slow } else { Pace::Busy };
        let instances = match pace {
            _ if draws.once_in(5) => draws.between(1, 4),
            Pace::Slow => draws.between(5, 60),
            Pace::Busy => draws.between(20, 200),
        };
        let calm_at = draws.between(3_000, 60_000);
        let workers = draws.between(1, 3) as usize;
        Self {
            coordinators: draws.between(1, 3) as usize,
            workers,
            pools: draws.between(1, 2) as usize,
            coordinator: coordinator(draws),
            worker: worker(draws),
            planned: planned(seed, draws, (instances, pace, workers), calm_at, &rates),
            schedules: schedules(seed, (instances, pace), calm_at),
            pace,
            grain: *draws.pick(&[5, 10, 20, 40]),
            rates,
            calm_at: calm_at as i64 * 1_000,
            interferes: if draws.once_in(3) { draws.between(2, 12) } else { 0 },
            drift: if draws.once_in(3) { draws.between(1, 20_000) } else { 0 },
        }
    }
}

/// Small batches and windows meet more of what happens between them.
fn coordinator(draws: &mut Draws) -> CoordinatorSettings {
    let default = CoordinatorSettings::default();
    CoordinatorSettings {
        batch: *draws.pick(&[1, 4, 32, 256]),
        second_at: *draws.pick(&[1, 4, 64]),
        report_queues: draws.between(1, 4) as u32,
        report_prefetch: *draws.pick(&[1, 10, 200]),
        window: *draws.pick(&[1, 5, 1_000]),
        direct_grants: !draws.once_in(4),
        // What dies often is parked often, and a person lets it go on.
        deaths_max: *draws.pick(&[3, 10, 50]),
        cancel_within: Millis(draws.between(1_000, 20_000)),
        // Who calls a webhook is patient for longer than that.
        webhook_reply_within: Millis(draws.between(100, 2_500)),
        ..default
    }
}

fn worker(draws: &mut Draws) -> WorkerSettings {
    WorkerSettings {
        slots: *draws.pick(&[1, 4, 100]),
        instances: *draws.pick(&[1, 5, 1_000]),
        cache_bytes: if draws.once_in(2) { 0 } else { 64 << 20 },
        linger: Duration::from_millis(*draws.pick(&[0, 100])),
        ..WorkerSettings::default()
    }
}

fn planned(
    seed: u64,
    draws: &mut Draws,
    (instances, pace, workers): (u64, Pace, usize),
    calm_at: u64,
    rates: &Rates,
) -> Vec<Planned> {
    let programs = &mut Draws::new(seed, "programs");
    let shape = Shape::draw(programs, instances, pace);
    let last = match pace {
        _ if draws.once_in(2) => 500,
        Pace::Slow => calm_at,
        Pace::Busy => calm_at.min(5_000),
    };
    let one = |number| {
        let program = program::draw(programs, shape);
        Planned {
            id: format!("i{number}"),
            after: Duration::from_millis(draws.between(0, last)),
            by: by(draws, rates, &program),
            program,
            events: draws.between(0, 4),
            pin: pin(draws, workers),
            pinned_then: if draws.once_in(12) { pin(draws, workers) } else { None },
        }
    };
    (0..instances).map(one).collect()
}

fn schedules(seed: u64, (instances, pace): (u64, Pace), calm_at: u64) -> Vec<PlannedSchedule> {
    let draws = &mut Draws::new(seed, "schedules");
    let shape = Shape::draw(draws, instances, pace);
    schedules::plan(draws, shape, calm_at)
}

/// To a build that a worker has, or none.
fn pin(draws: &mut Draws, workers: usize) -> Option<Pin> {
    match draws.below(8) {
        0 => Some(Pin::First),
        1 => Some(Pin::Build(build(draws.below(workers.min(BUILDS.len()) as u64) as usize))),
        _ => None,
    }
}

fn by(draws: &mut Draws, rates: &Rates, program: &Program) -> By {
    match draws.below(4) {
        0 | 1 => By::Handle,
        // What only an emptied broker had is lost with it, and a start whose token is taken is refused.
        2 if rates.of(Kind::Wipe) == 0 && program.token.is_none() => By::Forgotten,
        _ => By::Message,
    }
}
