//! The embedded store's clock, and the one place that reads the system's (rule W18): with a single process there is no
//! database server whose clock all could share.
//!
//! It never goes backwards, also across restarts: it begins at the time of the last commit. Where the system's clock was
//! set back, it runs at half speed until the other has caught up, so that leases and sleeps take longer but nothing
//! stands still and no wake-up is early.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use everstep_protocol::Timestamp;

/// Tells the time in microseconds since 1970: a clock that a test or a simulation keeps. It must never go back.
pub type GivenClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A clock shared by the store's threads.
pub(super) enum Clock {
    /// The system's.
    System(Mutex<Anchor>),
    /// Somebody else's.
    Given(GivenClock),
}

/// The last moment at which this clock agreed with the system's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    micros: i64,
    at: Instant,
}

impl Clock {
    /// A clock that begins no earlier than this.
    pub(super) fn new(last: Timestamp) -> Self {
        Self::System(Mutex::new(Anchor { micros: last.0, at: Instant::now() }))
    }

    pub(super) fn now(&self) -> Timestamp {
        match self {
            Self::System(anchor) => {
                let mut anchor = anchor.lock().unwrap_or_else(PoisonError::into_inner);
                Timestamp(anchor.read(system_micros(), Instant::now()))
            }
            Self::Given(clock) => clock(),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System(_) => "Clock::System",
            Self::Given(_) => "Clock::Given",
        })
    }
}

impl Anchor {
    fn read(&mut self, system: i64, at: Instant) -> i64 {
        let elapsed = i64::try_from(at.saturating_duration_since(self.at).as_micros()).unwrap_or(i64::MAX);
        let least = self.micros.saturating_add(elapsed / 2);
        if system < least {
            return least;
        }
        *self = Self { micros: system, at };
        system
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the clock module of the embedded store")]
fn system_micros() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn w18_follows_the_system_and_never_goes_back() {
        let begin = Instant::now();
        let after = |millis| begin + Duration::from_millis(millis);
        let mut anchor = Anchor { micros: 0, at: begin };
        assert_eq!(anchor.read(1_000_000, begin), 1_000_000);
        assert_eq!(anchor.read(1_010_000, after(10)), 1_010_000);
        // Set back by a second: half speed until the system's has caught up.
        assert_eq!(anchor.read(20_000, after(20)), 1_015_000);
        assert_eq!(anchor.read(1_010_000, after(1010)), 1_510_000);
        assert_eq!(anchor.read(2_020_000, after(2020)), 2_020_000);
        assert_eq!(anchor.read(2_030_000, after(2030)), 2_030_000);
    }

    #[test]
    fn w18_begins_after_the_last_commit() {
        let clock = Clock::new(Timestamp(i64::MAX - 1_000_000_000));
        let first = clock.now();
        assert!(first.0 >= i64::MAX - 1_000_000_000);
        assert!(clock.now() >= first);
    }
}
