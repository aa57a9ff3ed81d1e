//! What a fault hits, and when that goes on. How healing is defined stands at the top of `main.rs`.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::look::Look;

/// How often it is looked.
const EVERY: Duration = Duration::from_millis(25);
/// What has not gone on for this long is stuck.
const PATIENCE: Duration = Duration::from_secs(75);

/// How far a fault reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// What the worker of this name and process held.
    Worker {
        host: String,
        /// It heals only once somebody else has it.
        elsewhere: bool,
    },
    /// All that was under way.
    All,
    /// All remote steps that were under way.
    Steps,
}

/// An instance that was hit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) instance: Uuid,
    /// It heals under this epoch or a higher one.
    pub(crate) epoch: i64,
    /// It heals with an entry after this one.
    pub(crate) position: i64,
}

/// What became of those that were hit.
#[derive(Debug, Default)]
pub(crate) struct Healing {
    pub(crate) times: Vec<Duration>,
    /// Instances that have not healed.
    pub(crate) stuck: Vec<Uuid>,
}

/// Looks until all have healed.
pub(crate) async fn watch(url: String, mut hits: Vec<Hit>, since: Instant) -> Healing {
    let mut look = Look::at(url);
    let mut healing = Healing::default();
    while !hits.is_empty() && since.elapsed() < PATIENCE {
        // The database may be what was hit: it is asked again.
        if let Ok(healed) = look.healed(&hits).await {
            let took = since.elapsed();
            let healed: HashSet<Uuid> = healed.into_iter().collect();
            hits.retain(|hit| !healed.contains(&hit.instance));
            healing.times.extend(std::iter::repeat_n(took, healed.len()));
        }
        tokio::time::sleep(EVERY).await;
    }
    healing.stuck = hits.into_iter().map(|hit| hit.instance).collect();
    healing
}
