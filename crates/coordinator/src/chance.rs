//! What a start gets that only chance gives: the instance's internal id, and the seed of what its code draws (rule W33).

use std::fmt;

use everstep_protocol::{CoordinatorId, InstanceUid, Timestamp};

/// Where it comes from. A test or a simulation brings its own, so that a run can be repeated: keys and draws follow from it.
pub trait Chance: fmt::Debug + Send + Sync + 'static {
    /// An id that was never given before; later ones sort after earlier ones.
    fn instance(&self) -> InstanceUid;

    /// The coordinator's own id, drawn once at its start.
    fn coordinator(&self) -> CoordinatorId {
        CoordinatorId::generate()
    }

    /// This process's own clock, if it has one that is not the store's: only to say how far they differ (rule W18).
    fn wall(&self) -> Option<Timestamp> {
        None
    }

    /// 32 bytes that nobody can guess.
    fn seed(&self) -> [u8; 32];
}

/// The system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemChance;

impl Chance for SystemChance {
    fn instance(&self) -> InstanceUid {
        InstanceUid::generate()
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "it is compared with the database's clock for people, and decides nothing"
    )]
    fn wall(&self) -> Option<Timestamp> {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
        i64::try_from(since.as_micros()).ok().map(Timestamp)
    }

    fn seed(&self) -> [u8; 32] {
        rand::random()
    }
}
