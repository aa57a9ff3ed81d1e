//! How fast one caller may ask (rule A8). A caller is an access token that the coordinator has seen to be good; whoever has none, or presents
//! one for the first time, is their address. So nobody who guesses tokens makes the coordinator ask the store for each of them, and
//! nobody takes the turns of those who have one.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    time::Duration,
};

use everstep_protocol::AccessTokenId;
use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    middleware::NoOpMiddleware,
    state::keyed::DefaultKeyedStateStore,
};

/// Callers that are told apart at once; those beyond share one allowance.
const CALLERS_MAX: usize = 10_000;

/// How many requests of one caller are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// In a second, on and on; zero for as many as come.
    pub per_second: u32,
    /// At once, after a pause; zero for as many as in a second.
    pub burst: u32,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Asking {
    /// Whoever has this token.
    Token(AccessTokenId),
    /// Whoever is at this address.
    Peer(IpAddr),
    /// All whom nobody can tell apart.
    Others,
}

impl Asking {
    /// Somebody at an address. A host has all addresses of its network of IPv6.
    pub(super) fn at(address: Option<IpAddr>) -> Self {
        match address.map(|address| address.to_canonical()) {
            None => Self::Others,
            Some(IpAddr::V6(address)) => {
                let network = u128::from(address) & (u128::MAX << 64);
                Self::Peer(IpAddr::V6(Ipv6Addr::from(network)))
            }
            Some(address) => Self::Peer(address),
        }
    }

    /// The word in the metric.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Token(_) => "token",
            Self::Peer(_) | Self::Others => "address",
        }
    }
}

/// Counts what each caller asks.
pub(super) struct Pace<C: Clock = DefaultClock> {
    limiter: RateLimiter<Asking, DefaultKeyedStateStore<Asking>, C, NoOpMiddleware<C::Instant>>,
    clock: C,
}

impl<C: Clock> fmt::Debug for Pace<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").finish_non_exhaustive()
    }
}

impl Pace {
    /// None where there is no limit.
    pub(super) fn of(rate: Rate) -> Option<Self> {
        Self::with(rate, DefaultClock::default())
    }
}

impl<C: Clock + Clone> Pace<C> {
    fn with(rate: Rate, clock: C) -> Option<Self> {
        let per_second = NonZeroU32::new(rate.per_second)?;
        let burst = NonZeroU32::new(rate.burst).unwrap_or(per_second);
        let quota = Quota::per_second(per_second).allow_burst(burst);
        let limiter = RateLimiter::new(quota, DefaultKeyedStateStore::default(), clock.clone());
        Some(Self { limiter, clock })
    }

    /// Counts a request. The error is how long to wait for the next.
    pub(super) fn count(&self, asking: Asking) -> Result<(), Duration> {
        let asking = if self.limiter.len() < CALLERS_MAX { asking } else { self.make_room(asking) };
        self.limiter.check_key(&asking).map_err(|until| until.wait_time_from(self.clock.now()))
    }

    /// Whoever has paused for long enough is as good as new, and need not be known.
    fn make_room(&self, asking: Asking) -> Asking {
        self.limiter.retain_recent();
        if self.limiter.len() < CALLERS_MAX { asking } else { Asking::Others }
    }
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;
    use uuid::Uuid;

    use super::*;

    fn pace(per_second: u32, burst: u32) -> (Pace<FakeRelativeClock>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        (Pace::with(Rate { per_second, burst }, clock.clone()).unwrap(), clock)
    }

    fn at(text: &str) -> Asking {
        Asking::at(Some(text.parse().unwrap()))
    }

    #[test]
    fn a08_a_caller_is_served_so_fast_and_no_faster() {
        let (pace, clock) = pace(2, 3);
        let ann = at("10.0.0.7");
        for _ in 0..3 {
            assert_eq!(pace.count(ann), Ok(()), "a burst");
        }
        assert_eq!(pace.count(ann), Err(Duration::from_millis(500)));
        clock.advance(Duration::from_millis(499));
        assert_eq!(pace.count(ann), Err(Duration::from_millis(1)));
        clock.advance(Duration::from_millis(1));
        assert_eq!(pace.count(ann), Ok(()), "what was refused costs nothing");
        assert!(pace.count(ann).is_err());
        // Others are not to suffer.
        assert_eq!(pace.count(at("10.0.0.8")), Ok(()));
        assert_eq!(pace.count(Asking::Token(AccessTokenId(Uuid::nil()))), Ok(()));
        clock.advance(Duration::from_mins(1));
        let served = (0..10).filter(|_| pace.count(ann).is_ok()).count();
        assert_eq!(served, 3, "a pause is worth no more than a burst");
    }

    #[test]
    fn a08_without_a_rate_there_is_no_limit() {
        assert!(Pace::of(Rate::default()).is_none());
        let (pace, _) = pace(2, 0);
        assert_eq!(
            (0..5).filter(|_| pace.count(at("::1")).is_ok()).count(),
            2,
            "a burst is a second's worth"
        );
    }

    #[test]
    fn a08_a_host_is_one_caller_whatever_its_address() {
        assert_eq!(at("::ffff:10.0.0.7"), at("10.0.0.7"));
        assert_eq!(at("2001:db8:1:2::7"), at("2001:db8:1:2:ffff::1"));
        assert_ne!(at("2001:db8:1:2::7"), at("2001:db8:1:3::7"));
        assert_ne!(at("10.0.0.7"), at("10.0.0.8"));
    }

    #[test]
    fn a08_callers_without_number_share_what_is_left() {
        let (pace, clock) = pace(1, 1);
        for number in 0..CALLERS_MAX as u32 {
            assert_eq!(pace.count(Asking::at(Some(IpAddr::V4(number.into())))), Ok(()));
        }
        assert_eq!(pace.count(at("192.0.2.1")), Ok(()));
        assert!(pace.count(at("192.0.2.2")).is_err(), "it has the allowance of the one before");
        assert!(pace.limiter.len() <= CALLERS_MAX + 1);
        clock.advance(Duration::from_secs(10));
        assert_eq!(pace.count(at("192.0.2.2")), Ok(()));
        assert_eq!(pace.count(at("192.0.2.3")), Ok(()), "the others have paused, and are forgotten");
        assert_eq!(pace.limiter.len(), 2);
    }
}
