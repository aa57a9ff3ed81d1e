//! Time in a test: it stands still while anything goes on, and jumps to the next moment that something waits for.

use std::time::Duration;

use everstep_protocol::Timestamp;
use tokio::time::{Instant, sleep};

use crate::{KitError, system::System};

/// After so long without a commit, nothing goes on that needs no time.
const SETTLED: Duration = Duration::from_millis(1);
/// Something else in the test may still act: so long is waited before it is given up.
const GRACE: Duration = Duration::from_mins(1);
/// The same where time is moved by hand: long enough for whoever moves it at once.
const GRACE_BY_HAND: Duration = Duration::from_millis(10);
/// So long may steps run by themselves in one wait.
const BUSY_MAX: Duration = Duration::from_hours(2);

/// Who moves the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    /// The kit, whenever a test waits for something and nothing else goes on.
    Kit,
    /// The test.
    Hand,
}

/// What goes on.
#[derive(Debug)]
enum Motion {
    /// Something that comes to an end by itself, with the attempts that run.
    Busy(Vec<String>),
    /// Nothing until this moment.
    Until(Timestamp),
    /// Nothing at all.
    None,
}

impl System {
    /// Waits until `check` gives a value, and lets everything else go on meanwhile.
    pub(crate) async fn wait<T>(
        &self,
        mover: Mover,
        wanted: &str,
        mut check: impl AsyncFnMut() -> Result<Option<T>, KitError>,
    ) -> Result<T, KitError> {
        let mut commits = self.commits.subscribe();
        let began = Instant::now();
        let mut skipped = Duration::ZERO;
        let mut still_since = None;
        loop {
            commits.borrow_and_update();
            if let Some(value) = check().await? {
                return Ok(value);
            }
            self.health()?;
            if settles(&mut commits).await {
                continue;
            }
            let grace = match self.motion().await? {
                Motion::Busy(attempts) => {
                    still_since = None;
                    if began.elapsed().saturating_sub(skipped) > BUSY_MAX {
                        return Err(standstill(wanted, format!("it has run for {BUSY_MAX:?}: {attempts:?}")));
                    }
                    // Heartbeats are commits too, so this always ends.
                    drop(commits.changed().await);
                    continue;
                }
                Motion::Until(moment) if mover == Mover::Kit => {
                    let from = Instant::now();
                    self.jump(moment).await;
                    skipped += from.elapsed();
                    continue;
                }
                Motion::Until(_) => GRACE_BY_HAND,
                Motion::None => GRACE,
            };
            if still_since.get_or_insert_with(Instant::now).elapsed() > grace {
                return Err(standstill(wanted, self.why().await?));
            }
            if grace == GRACE {
                // The engine's own heartbeats are commits too.
                drop(commits.changed().await);
            }
        }
    }

    /// Moves the clock by this much, stopping wherever something is due.
    pub(crate) async fn advance(&self, by: Duration) -> Result<(), KitError> {
        let mut commits = self.commits.subscribe();
        let target = Instant::now() + by;
        loop {
            commits.borrow_and_update();
            self.health()?;
            if settles(&mut commits).await {
                continue;
            }
            if Instant::now() >= target {
                return Ok(());
            }
            let end = self.moment(target);
            match self.motion().await? {
                Motion::Busy(_) => {
                    tokio::select! {
                        _ = commits.changed() => {}
                        () = tokio::time::sleep_until(target) => {}
                    }
                }
                Motion::Until(moment) => self.jump(moment.min(end)).await,
                Motion::None => self.jump(end).await,
            }
        }
    }

    async fn motion(&self) -> Result<Motion, KitError> {
        let stir = self.stir().await?;
        let running = self.board.running();
        let now = self.now();
        let served = stir.pools.iter().any(|pool| self.pools.contains(pool));
        let hang_until = running.hang_until.map(|at| self.moment(at)).filter(|at| *at > now);
        let only_hangs = running.busy.is_empty() && hang_until.is_some();
        let runnable = stir.workflows.iter().any(|workflow| self.registry.definition(workflow).is_some());
        if runnable || stir.letters > 0 || served || (stir.held > 0 && !only_hangs) {
            return Ok(Motion::Busy(running.busy));
        }
        let next = [self.next_due().await?, hang_until, stir.deadline].into_iter().flatten().min();
        Ok(match next {
            Some(next) if next <= now => Motion::Busy(running.busy),
            Some(next) => Motion::Until(next),
            None => Motion::None,
        })
    }

    /// What went wrong beside the test.
    pub(crate) fn health(&self) -> Result<(), KitError> {
        let problems = self.board.take_problems();
        if problems.is_empty() { Ok(()) } else { Err(KitError::System(problems.join("; "))) }
    }

    /// What every open instance waits for, in words.
    async fn why(&self) -> Result<String, KitError> {
        let mut reasons = Vec::new();
        for view in self.instances().await? {
            if view.end.is_some() || view.ended_at.is_some() {
                continue;
            }
            let waits: Vec<_> = view
                .waiting
                .iter()
                .map(|wait| match wait.due_at {
                    Some(due_at) => format!("{} until {due_at}", wait.call),
                    None => wait.call.to_string(),
                })
                .collect();
            let status = view.status.word();
            reasons.push(format!("{}/{} is {status} [{}]", view.workflow, view.id, waits.join(", ")));
        }
        let stir = self.stir().await?;
        for workflow in stir.workflows {
            if self.registry.definition(&workflow).is_none() {
                reasons.push(format!(
                    "nobody serves workflow {workflow}: register it, or mock it with `mock_workflow`"
                ));
            }
        }
        for pool in stir.pools {
            if !self.pools.contains(&pool) {
                reasons.push(format!("nobody serves pool {pool}: name it with `pool`"));
            }
        }
        let now = self.now();
        if reasons.is_empty() {
            reasons.push("no instance is open".to_owned());
        }
        Ok(format!("at {now}: {}", reasons.join("; ")))
    }
}

/// Whether something was committed before everything was still.
async fn settles(commits: &mut tokio::sync::watch::Receiver<u64>) -> bool {
    tokio::select! {
        biased;
        _ = commits.changed() => true,
        () = sleep(SETTLED) => false,
    }
}

fn standstill(wanted: &str, reason: String) -> KitError {
    KitError::Standstill { wanted: wanted.to_owned(), reason }
}
