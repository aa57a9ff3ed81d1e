//! Ids that repeat: of instances, coordinators and sessions.

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering},
};

use everstep_coordinator::Chance;
use everstep_protocol::{CoordinatorId, InstanceUid, SessionId};
use uuid::{Builder, Uuid};

use crate::{
    clock::Clock,
    seed::{Draws, SharedDraws},
};

/// Draws ids from the seed. Those of one run never meet.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    clock: Clock,
    draws: SharedDraws,
    count: Arc<AtomicU16>,
}

impl Ids {
    pub(crate) fn new(seed: u64, clock: Clock) -> Self {
        Self { clock, draws: SharedDraws::new(seed, "ids"), count: Arc::default() }
    }

    fn id(&self) -> Uuid {
        let millis = self.clock.now() as u64 / 1_000;
        let mut random: [u8; 10] = self.draws.draw(Draws::bytes);
        // Later ones sort after earlier ones, also within a millisecond.
        let count = self.count.fetch_add(1, Ordering::Relaxed) & 0x0fff;
        random[..2].copy_from_slice(&count.to_be_bytes());
        Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    pub(crate) fn session(&self) -> SessionId {
        SessionId(self.id())
    }
}

impl Chance for Ids {
    fn instance(&self) -> InstanceUid {
        InstanceUid(self.id())
    }

    fn coordinator(&self) -> CoordinatorId {
        CoordinatorId(self.id())
    }

    fn seed(&self) -> [u8; 32] {
        self.draws.draw(Draws::bytes)
    }
}
