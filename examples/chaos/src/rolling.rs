//! A deploy under load: each process is told to stop, awaited and started again, one after the other. No attempt fails, no lease is
//! lost, and nothing stands still for longer than a second.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{
    check::{all_ended, check},
    fleet::stop,
    look::Look,
    run::{Sitting, say},
};

/// How often all processes are restarted.
const ROUNDS: u32 = 2;
/// Nothing stands still for longer.
const STALL_MAX: Duration = Duration::from_secs(1);
/// A process that was started has so long until it takes work.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest time between two entries of one instance that has nothing to wait for.
const STALL: &str = "SELECT coalesce(max(gap), 0)::bigint FROM (SELECT at - lag(at) OVER \
    (PARTITION BY instance ORDER BY position) AS gap FROM journal \
    WHERE instance IN (SELECT id FROM instance WHERE workflow = 'sequence' AND created_at >= ";

/// Restarts everything, and tells whether nobody noticed.
pub(crate) async fn run(sitting: &mut Sitting, calm: f64) -> Result<bool> {
    let mut look = Look::at(sitting.fleet.postgres.url());
    let since = look.number("SELECT everstep_clock()").await?;
    let (ended, began) = (sitting.producer.ended(), Instant::now());
    let mut restarts = 0;
    for _ in 0..ROUNDS {
        for number in 0..sitting.fleet.coordinators.len() {
            tokio::task::block_in_place(|| stop(&mut sitting.fleet.coordinators[number].process))?;
            sitting.fleet.revive_coordinator(number).await?;
            restarts += 1;
        }
        for number in 0..sitting.fleet.workers.len() {
            tokio::task::block_in_place(|| stop(&mut sitting.fleet.workers[number].process))?;
            sitting.fleet.revive_worker(number)?;
            takes_work(&mut look, &sitting.fleet.host(number)).await?;
            restarts += 1;
        }
    }
    let rough = (sitting.producer.ended() - ended) as f64 / began.elapsed().as_secs_f64();
    let stall = look.number(&format!("{STALL}{since})) AS x")).await?;
    sitting.producer.enough();
    all_ended(&sitting.producer).await?;
    let found = check(&sitting.fleet, &sitting.producer).await?;
    let attempts = look.number("SELECT count(*) FROM journal WHERE kind = 2").await?;
    let lost = sitting.sessions.lost();
    let mut wrong = [found.lost.clone(), found.doubled.clone(), found.unsound.clone()].concat();
    // One entry an attempt, and one attempt a step, of which each has one effect.
    let failed = attempts - found.steps as i64;
    if failed != 0 {
        wrong.push(format!("{failed} attempts are in the journals beside one for each step"));
    }
    if lost.sessions + lost.leases > 0 || look.losses().await? > 0 {
        wrong.push(format!("sessions were ended or leases lost: {lost:?}"));
    }
    let stall_ms = stall / 1_000;
    if stall_ms > STALL_MAX.as_millis() as i64 {
        wrong.push(format!("an instance that had nothing to wait for stood still for {stall_ms} ms"));
    }
    say(&format!("undisturbed: {calm:.1}, while everything is restarted: {rough:.1} instances a second"));
    wrong.iter().take(10).for_each(|what| say(&format!("FAILED: {what}")));
    say(&format!(
        "rolling: {} steps, {restarts} restarts, {failed} failed attempts, {} lost, {} doubled, longest stall {stall_ms} ms",
        found.steps,
        found.lost.len(),
        found.doubled.len()
    ));
    Ok(wrong.is_empty())
}

/// Waits until a worker has its session.
async fn takes_work(look: &mut Look, host: &str) -> Result<()> {
    let began = Instant::now();
    while look.rows("SELECT 1 FROM session WHERE host = $1 AND ended_at IS NULL", &[&host]).await?.is_empty()
    {
        if began.elapsed() > PATIENCE {
            bail!("the worker {host} has no session {PATIENCE:?} after its start");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
