//! Finds due waits and hands them to the loop. The holder of the duty scans the store; every coordinator also fires the near
//! waits that it wrote itself, so that a short sleep is not late while another holds the duty (rules P20, W23).

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError},
    time::Duration,
};

use everstep_engine::{Input, What};
use everstep_protocol::{CallHash, InstanceUid, Millis, Timestamp};
use tokio::time::Instant;

use super::duties::TIMERS;
use crate::{arrival::Arrival, shared::Shared};

/// Due waits taken by one scan.
const PAGE: u32 = 256;
/// The loop sleeps no longer than this.
const LONGEST: Duration = Duration::from_secs(1);
/// Waits due within this are kept in memory by whoever wrote them.
const NEAR: Millis = Millis(5_000);
/// The mark stays behind by more than a transaction lasts whose waits may be earlier than what was scanned: one statement may
/// take 5 s, and one that is idle is ended after 2 s. Should a transaction ever take longer, the scan from zero finds its waits.
const BEHIND: Millis = Millis(10_000);
/// How often the scan begins from zero.
const FROM_ZERO: Duration = Duration::from_secs(30);

/// Runs until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut timers = Timers { near: BTreeSet::new(), mark: None, zero_at: Instant::now() };
    loop {
        let pause = timers.turn(&shared).await;
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => {}
            () = shared.near_changed.notified() => {}
        }
    }
}

struct Timers {
    near: BTreeSet<(Timestamp, InstanceUid, CallHash)>,
    mark: Option<Timestamp>,
    zero_at: Instant,
}

impl Timers {
    async fn turn(&mut self, shared: &Arc<Shared>) -> Duration {
        self.gather(shared);
        let pause = self.fire_near(shared).await;
        if shared.has_duty(TIMERS) { pause.min(self.scan(shared).await) } else { pause }
    }

    fn gather(&mut self, shared: &Shared) {
        let horizon = shared.clock.estimate().plus(NEAR);
        let fresh = std::mem::take(&mut *shared.near.lock().unwrap_or_else(PoisonError::into_inner));
        self.near.extend(fresh.into_iter().filter(|(due_at, _, _)| *due_at <= horizon));
    }

    /// Fires what this coordinator wrote itself and is due by the estimated clock; the decision checks by the real one.
    async fn fire_near(&mut self, shared: &Arc<Shared>) -> Duration {
        loop {
            let now = shared.clock.estimate();
            let mut due = Vec::new();
            while let Some(first) = self.near.first().copied()
                && first.0 <= now
                && due.len() < PAGE as usize
            {
                self.near.pop_first();
                due.push(first);
            }
            if due.is_empty() {
                let next = self.near.first().map(|(due_at, _, _)| until(*due_at, now));
                return next.unwrap_or(LONGEST).min(LONGEST);
            }
            fire(shared, due, now).await;
        }
    }

    /// Scans the store page by page while there is something due.
    async fn scan(&mut self, shared: &Arc<Shared>) -> Duration {
        if self.zero_at.elapsed() > FROM_ZERO {
            self.mark = None;
            self.zero_at = Instant::now();
        }
        loop {
            let due = match shared.store.due(self.mark, PAGE).await {
                Ok(due) => due,
                Err(error) => {
                    tracing::warn!(%error, "due waits were not read; tried again in a second");
                    return LONGEST;
                }
            };
            shared.clock.read(due.now);
            if due.rows.is_empty() {
                self.mark = Some(due.now.minus(BEHIND));
                return due.next.map_or(LONGEST, |next| until(next, due.now)).min(LONGEST);
            }
            for row in &due.rows {
                self.near.remove(&(row.2, row.0, row.1));
            }
            let rows = due.rows.into_iter().map(|(uid, call, due_at)| (due_at, uid, call)).collect();
            fire(shared, rows, due.now).await;
        }
    }
}

fn until(due_at: Timestamp, now: Timestamp) -> Duration {
    // Rounded up: a wake-up is never early.
    Duration::from_micros(u64::try_from(due_at.0.saturating_sub(now.0)).unwrap_or(0))
        .max(Duration::from_micros(200))
}

/// Hands due waits to the loop and waits until they are decided, so that the next scan does not find them again.
async fn fire(shared: &Arc<Shared>, due: Vec<(Timestamp, InstanceUid, CallHash)>, now: Timestamp) {
    let mut answers = Vec::with_capacity(due.len());
    for (due_at, instance, call) in due {
        shared.metrics.timer_lateness.observe(now.since(due_at).as_u64() as f64 / 1000.0);
        let (arrival, answer) = Arrival::answered(Input::On { instance, what: What::Due { call } });
        shared.submit(arrival);
        answers.push(answer);
    }
    for answer in answers {
        // An input that was given up is found again by the next scan.
        drop(answer.await);
    }
}

#[cfg(test)]
mod tests {
    //! Proves how far the mark stays behind. Not: what a scan finds; see the store's conformance.
    use everstep_store::postgres::PostgresSettings;

    use super::*;

    #[test]
    fn w23_the_mark_stays_behind_the_longest_transaction() {
        let settings = PostgresSettings::new("");
        assert!(settings.statement_timeout + settings.idle_timeout < BEHIND.to_std());
    }
}
