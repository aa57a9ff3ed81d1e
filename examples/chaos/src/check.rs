//! What is to be true once the load is over and everything has ended: every accepted instance is complete, each effect came exactly
//! once, and the journals are sound.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use everstep_examples::audit::charges;
use everstep_testbed::UNSOUND;

use crate::{fleet::Fleet, load::Producer, look::Look};

/// Work of a process that was killed goes on elsewhere in this time, for 99 of a hundred instances.
pub(crate) const ELSEWHERE_WITHIN: Duration = Duration::from_secs(5);
/// Without an ended instance for this long the run has failed.
const PATIENCE: Duration = Duration::from_mins(2);
const EVERY: Duration = Duration::from_millis(100);

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Effects that came.
    pub(crate) steps: u64,
    /// Accepted starts without a complete instance, and effects that never came.
    pub(crate) lost: Vec<String>,
    /// Effects that came more than once, or of nobody.
    pub(crate) doubled: Vec<String>,
    /// What else is wrong.
    pub(crate) unsound: Vec<String>,
}

/// Waits until all that was accepted has ended.
pub(crate) async fn all_ended(producer: &Producer) -> Result<()> {
    let mut last = (producer.ended(), Instant::now());
    loop {
        let (ended, accepted) = (producer.ended(), producer.accepted().len() as u64);
        if producer.is_done() && ended >= accepted {
            return Ok(());
        }
        if ended > last.0 {
            last = (ended, Instant::now());
        }
        if last.1.elapsed() > PATIENCE {
            bail!("{ended} of {accepted} instances have ended, and none more for {PATIENCE:?}");
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Looks at everything.
pub(crate) async fn check(fleet: &Fleet, producer: &Producer) -> Result<Found> {
    let mut look = Look::at(fleet.postgres.url());
    let mut found = Found::default();
    let rows = "SELECT n.id, i.status FROM instance_name n JOIN instance i ON i.id = n.instance";
    let mut statuses: HashMap<String, i16> = HashMap::new();
    for row in look.rows(rows, &[]).await? {
        statuses.insert(row.try_get(0)?, row.try_get(1)?);
    }
    let mut charges = charges(&fleet.directory.path().join("charges.jsonl"))?;
    for start in producer.accepted() {
        match statuses.get(&start.id) {
            Some(1) => {}
            status => found.lost.push(format!("{} has status {status:?}", start.id)),
        }
        for effect in start.shape.effects(&start.id) {
            match charges.remove(&effect) {
                Some(1) => found.steps += 1,
                None => found.lost.push(format!("{effect} never came")),
                Some(count) => found.doubled.push(format!("{effect} came {count} times")),
            }
        }
    }
    // A start that the broker has taken and not confirmed may be there too, once.
    found.doubled.extend(charges.into_iter().filter(|(_, count)| *count > 1).map(|(effect, _)| effect));
    for (what, sql) in UNSOUND {
        let count = look.number(sql).await?;
        if count != 0 {
            found.unsound.push(format!("{count} {what}"));
        }
    }
    Ok(found)
}
