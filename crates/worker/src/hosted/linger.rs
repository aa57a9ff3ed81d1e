//! Whether an instance with a wait due soon is kept (rule W27): the push is waited for, but not for ever.

use std::time::Duration;

use tokio::time::Instant;

/// How long after a wait was due its push is waited for before the instance is suspended after all.
const PUSH_GRACE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Linger {
    #[default]
    No,
    Until(Instant),
    /// The push did not come.
    Over,
}

impl Linger {
    /// Whether to be kept, with a wait that is due in `left`.
    pub(super) fn for_wait(&mut self, left: Duration, now: Instant) -> bool {
        match *self {
            Self::No => {
                *self = Self::Until(now + left + PUSH_GRACE);
                true
            }
            Self::Until(until) => now < until,
            Self::Over => false,
        }
    }

    pub(super) fn tick(&mut self, now: Instant) {
        if matches!(*self, Self::Until(until) if until <= now) {
            *self = Self::Over;
        }
    }

    pub(super) const fn deadline(self) -> Option<Instant> {
        match self {
            Self::Until(until) => Some(until),
            Self::No | Self::Over => None,
        }
    }
}
