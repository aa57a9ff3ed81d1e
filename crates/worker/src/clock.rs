//! Two clocks: the process's own monotonic one, which times resends and timeouts, and an estimate of the database's, which
//! only says when to look (rule W18). No timer or lease is decided here.

use std::time::Duration;

use everstep_protocol::Timestamp;
use tokio::time::Instant;

/// A sample this much behind the estimate means that the database's clock went back, not that the message was slow.
const WENT_BACK: i64 = 10_000_000;

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// On the process's own clock.
    pub at: Instant,
    /// On the database's clock, as far as it is known: never ahead of it.
    pub db: Timestamp,
}

/// Estimates the database's clock from the times that messages bear.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    sample: Option<(Instant, Timestamp)>,
}

impl Clock {
    /// A message that bears this time of the database arrived.
    pub fn observe(&mut self, db: Timestamp, at: Instant) {
        let estimate = self.now(at).db;
        let behind = estimate.0.saturating_sub(db.0);
        // Messages arrive late by different amounts: the one that was least late is right.
        if self.sample.is_none() || !(0..=WENT_BACK).contains(&behind) {
            self.sample = Some((at, db));
        }
    }

    /// This moment on both clocks; zero on the database's while nothing was heard.
    #[must_use]
    pub fn now(&self, at: Instant) -> Now {
        let db = self.sample.map_or(Timestamp(0), |(then, db)| {
            let passed = i64::try_from(at.saturating_duration_since(then).as_micros()).unwrap_or(i64::MAX);
            Timestamp(db.0.saturating_add(passed))
        });
        Now { at, db }
    }
}

/// When something unanswered is sent again: after 1 s, doubling to 10 s (rule W7).
#[derive(Clone, Copy, Debug)]
pub struct Resend {
    at: Instant,
    interval: Duration,
}

impl Resend {
    /// The first interval.
    pub const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(10);

    /// It was sent now for the first time.
    #[must_use]
    pub fn begin(now: Instant) -> Self {
        Self { at: now + Self::FIRST, interval: Self::FIRST }
    }

    /// When it is due.
    #[must_use]
    pub const fn at(&self) -> Instant {
        self.at
    }

    /// The interval until it is due: the life of the message that was sent.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// The way was closed and is open again: it is due at once.
    pub fn hurry(&mut self, now: Instant) {
        self.at = now;
        self.interval = Self::FIRST / 2;
    }

    /// Whether it is due; if so the next interval begins.
    pub fn is_due(&mut self, now: Instant) -> bool {
        if now < self.at {
            return false;
        }
        self.interval = (self.interval * 2).min(Self::LONGEST);
        self.at = now + self.interval;
        true
    }
}

#[cfg(test)]
mod tests {
    //! Proves the schedule of resends and that the estimate follows the fastest message. Not: the database's clock itself.
    use super::*;

    #[test]
    fn w07_resends_double_to_ten_seconds() {
        let begin = Instant::now();
        let mut resend = Resend::begin(begin);
        assert!(!resend.is_due(begin + Duration::from_millis(999)));
        let mut at = resend.at();
        let mut waits = vec![at - begin];
        for _ in 0..5 {
            assert!(resend.is_due(at));
            waits.push(resend.at() - at);
            at = resend.at();
        }
        assert_eq!(waits, [1, 2, 4, 8, 10, 10].map(Duration::from_secs));
    }

    #[test]
    fn w18_the_estimate_is_that_of_the_least_late_message() {
        let begin = Instant::now();
        let mut clock = Clock::default();
        clock.observe(Timestamp(1_000_000), begin);
        clock.observe(Timestamp(1_000_500), begin + Duration::from_millis(10));
        assert_eq!(clock.now(begin + Duration::from_millis(20)).db, Timestamp(1_020_000));
        clock.observe(Timestamp(1_050_000), begin + Duration::from_millis(20));
        assert_eq!(clock.now(begin + Duration::from_millis(20)).db, Timestamp(1_050_000));
    }
}
