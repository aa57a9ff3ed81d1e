//! The sitting: first undisturbed, then one fault after another, then everything ends and is looked at.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use tokio::task::JoinHandle;

use crate::{
    Arguments,
    check::{all_ended, check},
    fault::{Kind, hit},
    fleet::Fleet,
    load::Producer,
    look::Look,
    rolling,
    sessions::Sessions,
    tally::Tally,
};

/// Of a hundred calls of the service so many fail before their effect, and as many after it.
const FAILING_PERCENT: u8 = 1;
/// Processes that were just started are not measured.
const WARM_UP: Duration = Duration::from_secs(5);
/// Longer than a lease: who was to lose one has lost it.
const SETTLE: Duration = Duration::from_secs(11);
/// From one fault to the next, in milliseconds at most.
const PAUSE_MS: u64 = 700;

/// A sitting that is under way.
pub(crate) struct Sitting {
    pub(crate) fleet: Fleet,
    pub(crate) producer: Producer,
    pub(crate) sessions: Sessions,
    tasks: Vec<JoinHandle<()>>,
}

impl Sitting {
    async fn begin(arguments: &Arguments) -> Result<Self> {
        let failing = if arguments.rolling { 0 } else { FAILING_PERCENT };
        let fleet = Fleet::start(failing).await?;
        let (desks, database) = (fleet.desks()?, fleet.postgres.url());
        let (producer, mut tasks) = Producer::begin(&fleet.rabbit.url(), &database, desks, arguments.rate);
        let (sessions, watching) = Sessions::watch(fleet.addresses());
        tasks.push(watching);
        Ok(Self { fleet, producer, sessions, tasks })
    }

    /// Instances that end in a second, over this time.
    async fn throughput(&self, during: Duration) -> f64 {
        let (ended, began) = (self.producer.ended(), Instant::now());
        tokio::time::sleep(during).await;
        (self.producer.ended() - ended) as f64 / began.elapsed().as_secs_f64()
    }
}

impl Drop for Sitting {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Runs all of it, and tells whether it was good.
pub(crate) async fn run(arguments: &Arguments) -> Result<bool> {
    let seed = arguments.seed.unwrap_or_else(rand::random);
    say(&format!("seed {seed}; servers and processes are started ..."));
    let mut sitting = Sitting::begin(arguments).await?;
    tokio::time::sleep(WARM_UP).await;
    let calm = sitting.throughput(Duration::from_secs(arguments.calm)).await;
    say(&format!("undisturbed: {calm:.1} instances a second"));
    if calm == 0.0 {
        bail!("nothing has ended in {} s without any fault", arguments.calm);
    }
    if arguments.rolling {
        return rolling::run(&mut sitting, calm).await;
    }
    let kinds: Vec<Kind> =
        Kind::ALL.into_iter().filter(|kind| arguments.only.is_none_or(|only| only == *kind)).collect();
    let mut tally = Tally::of(&kinds, arguments.least);
    let (ended, began) = (sitting.producer.ended(), Instant::now());
    let until = began + Duration::from_secs_f64(arguments.minutes * 60.0);
    let mut rng = StdRng::seed_from_u64(seed);
    while Instant::now() < until {
        for gentle in [false, true] {
            let mut block: Vec<Kind> =
                kinds.iter().copied().filter(|kind| kind.is_gentle() == gentle).collect();
            block.shuffle(&mut rng);
            faults(&mut sitting, &block, until, &mut rng, &mut tally).await?;
        }
    }
    let rough = (sitting.producer.ended() - ended) as f64 / began.elapsed().as_secs_f64();
    tally.throughput = (calm, rough);
    say(&format!("disturbed: {rough:.1} instances a second"));
    sitting.producer.enough();
    if let Err(error) = all_ended(&sitting.producer).await {
        tally.breaches.push(error.to_string());
    }
    let found = check(&sitting.fleet, &sitting.producer).await?;
    tally.sent_again = sitting.producer.sent_again();
    say(&format!("starts that were in a wiped broker alone and were sent again: {}", tally.sent_again));
    say(&tally.table());
    let wrong = tally.wrong(&found);
    for what in &wrong {
        say(&format!("FAILED: {what}"));
    }
    say(&tally.line(&found));
    Ok(wrong.is_empty())
}

/// One fault after the other, each once. What is gentle must have cost no session its life a lease later.
async fn faults(
    sitting: &mut Sitting,
    block: &[Kind],
    until: Instant,
    rng: &mut StdRng,
    tally: &mut Tally,
) -> Result<()> {
    if block.is_empty() || Instant::now() >= until {
        return Ok(());
    }
    let gentle = block.iter().all(|kind| kind.is_gentle());
    let mut look = Look::at(sitting.fleet.postgres.url());
    let before = (sitting.sessions.lost(), look.losses().await?);
    for kind in block {
        if Instant::now() >= until {
            break;
        }
        let fault = hit(&mut sitting.fleet, &sitting.producer, *kind, rng).await?;
        let slowest = fault.healing.times.iter().max().map_or(0, Duration::as_millis);
        let hits = fault.healing.times.len() + fault.healing.stuck.len();
        let effect = if fault.took_effect { "" } else { ", without effect" };
        let lasted = fault.lasted.as_millis();
        say(&format!(
            "{kind}, over after {lasted} ms: {hits} hit, the last went on after {slowest} ms{effect}"
        ));
        tally.add(&fault);
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..PAUSE_MS))).await;
    }
    tokio::time::sleep(SETTLE).await;
    let after = (sitting.sessions.lost(), look.losses().await?);
    if gentle && before != after {
        tally.breaches.push(format!(
            "sessions ended or leases were lost though every worker lived: {before:?} before, {after:?} after {block:?}"
        ));
    }
    Ok(())
}

/// One line, at once: whoever watches wants to see it.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{text}").and_then(|()| out.flush()));
}
