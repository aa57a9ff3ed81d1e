//! When a failed step is tried again (rules P10, P11, P12).
//!
//! Pure arithmetic over the pinned [`Policy`]: same arguments, same answer, no overflow at any attempt. The caller has
//! already set aside failures that are never retried (P13), and adds the delay to its own `now`, saturating.

use everstep_protocol::duration::Millis;
use everstep_protocol::policy::{Backoff, Class, Limit, Policy};
use everstep_protocol::{CallHash, Failure, InstanceUid};

/// Who says how long to wait before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The policy, with its backoff, `max_delay` and jitter.
    Policy,
    /// The error's `retry_after` or the step's delay function: used as it is (P12).
    After(Millis),
}

/// The wait before the next attempt, or `None` when there is no further one.
///
/// `attempt` is the one that failed, from 1; `elapsed` the time since the first one started. Attempts end when the
/// limit is used up, or when the next one would start later than `max_elapsed` after the first; both hold whoever
/// asked for the delay.
///
/// Jitter takes between nothing and half of the policy's delay away:
/// `delay - floor(r * (floor(delay / 2) + 1) / 2^64)`, where `r` is the `splitmix64` finish of the 64-bit FNV-1a hash of
/// `jitter_seed` followed by `attempt` as four bytes, little end first. The seed is [`jitter_seed`]. Waits
/// that double never shrink under it before `max_delay`, and none exceeds `max_delay`.
pub fn next_delay(
    policy: &Policy,
    attempt: u32,
    elapsed: Millis,
    asked: Asked,
    jitter_seed: &[u8],
) -> Option<Millis> {
    if let Limit::Times(retries) = policy.limit
        && attempt > retries
    {
        return None;
    }
    let delay = match asked {
        Asked::After(delay) => delay,
        Asked::Policy => own_delay(policy, attempt, jitter_seed),
    };
    within(policy, elapsed, delay)
}

/// The wait before the attempt that follows this failure. What may have taken effect is looked for by the next one, so that does not
/// begin before it would show (rule L7).
pub fn delay_after(
    policy: &Policy,
    failure: &Failure,
    attempt: u32,
    elapsed: Millis,
    asked: Asked,
    jitter_seed: &[u8],
) -> Option<Millis> {
    let delay = next_delay(policy, attempt, elapsed, asked, jitter_seed)?;
    match policy.class {
        Class::Lookup { visibility_lag } if !failure.sent.is_without_effect() => {
            within(policy, elapsed, delay.max(visibility_lag))
        }
        Class::Keyed | Class::Lookup { .. } | Class::AtMostOnce => Some(delay),
    }
}

fn within(policy: &Policy, elapsed: Millis, delay: Millis) -> Option<Millis> {
    match policy.max_elapsed {
        Some(max) if elapsed.saturating_add(delay) > max => None,
        _ => Some(delay),
    }
}

/// The seed of a step's jitter: its instance and its call, for inline and remote steps alike.
#[must_use]
pub fn jitter_seed(instance: InstanceUid, call: CallHash) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(instance.0.as_bytes());
    seed[16..].copy_from_slice(&call.0);
    seed
}

fn own_delay(policy: &Policy, attempt: u32, jitter_seed: &[u8]) -> Millis {
    let grown = backed_off(policy.backoff, policy.delay.as_u64(), attempt).min(policy.max_delay.as_u64());
    Millis(if policy.jitter { grown - taken_away(grown, jitter_seed, attempt) } else { grown })
}

fn backed_off(backoff: Backoff, delay: u64, attempt: u32) -> u64 {
    let factor = match backoff {
        Backoff::Constant => 1,
        Backoff::Linear => u64::from(attempt.max(1)),
        Backoff::Exponential => 2u64.saturating_pow(attempt.saturating_sub(1)),
    };
    delay.saturating_mul(factor)
}

fn taken_away(delay: u64, seed: &[u8], attempt: u32) -> u64 {
    let choices = u128::from(delay / 2) + 1;
    ((u128::from(mix(seed, attempt)) * choices) >> 64) as u64
}

fn mix(seed: &[u8], attempt: u32) -> u64 {
    let hash = seed.iter().chain(&attempt.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let hash = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    //! Proves the schedule of every policy at every attempt. Not: that timers keep to it.
    use proptest::prelude::*;

    use super::*;

    fn seconds(seconds: u64) -> Millis {
        Millis::from_secs(seconds)
    }

    fn delay(policy: &Policy, attempt: u32) -> Option<Millis> {
        next_delay(policy, attempt, Millis::ZERO, Asked::Policy, b"seed")
    }

    #[test]
    fn p10_limit_counts_retries() {
        for retries in [0, 1, 5, u32::MAX - 1] {
            let policy = Policy { limit: Limit::Times(retries), ..Policy::default() };
            assert!(retries == 0 || delay(&policy, retries).is_some(), "{retries}");
            assert_eq!(delay(&policy, retries + 1), None, "{retries}");
        }
        let policy = Policy { limit: Limit::Unlimited, ..Policy::default() };
        assert!(delay(&policy, u32::MAX).is_some());
    }

    #[test]
    fn p11_default_schedules() {
        let cases = [
            (Backoff::Exponential, [10, 20, 40, 80, 160]),
            (Backoff::Linear, [10, 20, 30, 40, 50]),
            (Backoff::Constant, [10, 10, 10, 10, 10]),
        ];
        for (backoff, expected) in cases {
            let policy = Policy { backoff, ..Policy::default() };
            let waits: Vec<_> = (1..).map_while(|attempt| delay(&policy, attempt)).collect();
            assert_eq!(waits, expected.map(seconds), "{backoff:?}");
        }
    }

    /// At the numbers where 32 and 64 bits end, with a base of 1 s and no cap to hide it.
    #[test]
    fn p11_waits_never_shrink() {
        for backoff in [Backoff::Exponential, Backoff::Linear, Backoff::Constant] {
            let policy = Policy {
                limit: Limit::Unlimited,
                delay: seconds(1),
                backoff,
                max_delay: Millis::MAX,
                ..Policy::default()
            };
            let attempts = (1..=300).chain([u32::MAX / 2, u32::MAX - 1, u32::MAX]);
            let waits: Vec<_> = attempts.map(|attempt| delay(&policy, attempt).unwrap()).collect();
            assert!(waits.is_sorted(), "{backoff:?} {waits:?}");
        }
    }

    #[test]
    fn p11_doubling_from_1_ms_starts_17_times_in_two_minutes() {
        let policy = Policy { limit: Limit::Unlimited, delay: Millis(1), ..Policy::default() };
        let mut now = Millis::ZERO;
        let starts = (1..).take_while(|attempt| {
            let before = now;
            now = now.saturating_add(delay(&policy, *attempt).unwrap());
            before <= seconds(120)
        });
        assert_eq!(starts.count(), 17);
    }

    #[test]
    fn p11_jittered_doubling_never_shrinks_before_its_cap() {
        let policy = Policy {
            limit: Limit::Unlimited,
            delay: Millis(1),
            max_delay: Millis::MAX,
            jitter: true,
            ..Policy::default()
        };
        for seed in 0..100u8 {
            let wait = |attempt| next_delay(&policy, attempt, Millis::ZERO, Asked::Policy, &[seed]);
            assert!((1..=64).map(wait).is_sorted(), "{seed}");
        }
    }

    #[test]
    fn p11_doubling_is_exact_until_the_width_ends() {
        let policy =
            Policy { limit: Limit::Unlimited, delay: Millis(1), max_delay: Millis::MAX, ..Policy::default() };
        for attempt in 1..=64 {
            assert_eq!(delay(&policy, attempt), Some(Millis(1 << (attempt - 1))));
        }
        for attempt in [65, 66, 70, 128, 129, u32::MAX] {
            assert_eq!(delay(&policy, attempt), Some(Millis::MAX), "{attempt}");
        }
        let none = Policy { delay: Millis::ZERO, ..policy };
        assert_eq!(delay(&none, u32::MAX), Some(Millis::ZERO));
    }

    #[test]
    fn p11_any_base_stops_at_max_delay() {
        let bases = [
            Millis(4_294_967_296),
            seconds(9_223_372_037),
            Millis(9_223_372_036_854_775_807),
            Millis::parse("100000 years").unwrap(),
            Millis::MAX,
        ];
        for base in bases {
            for backoff in [Backoff::Exponential, Backoff::Linear, Backoff::Constant] {
                let policy = Policy { limit: Limit::Unlimited, delay: base, backoff, ..Policy::default() };
                for attempt in (1..=80).chain([u32::MAX - 1, u32::MAX]) {
                    assert_eq!(delay(&policy, attempt), Some(seconds(86_400)), "{base} {attempt}");
                }
            }
        }
    }

    #[test]
    fn p11_max_elapsed_ends_it() {
        let policy = Policy { max_elapsed: Some(seconds(30)), ..Policy::default() };
        let at = |elapsed: u64| next_delay(&policy, 1, Millis(elapsed), Asked::Policy, b"");
        assert_eq!(at(20_000), Some(seconds(10)));
        assert_eq!(at(20_001), None);
        assert_eq!(at(u64::MAX), None);
        assert_eq!(next_delay(&policy, 1, seconds(20), Asked::After(seconds(11)), b""), None);
    }

    #[test]
    fn p11_jitter_is_the_same_for_one_step_and_spreads_over_many() {
        let policy = Policy { jitter: true, ..Policy::default() };
        let with = |seed: &[u8], attempt| next_delay(&policy, attempt, Millis::ZERO, Asked::Policy, seed);
        assert_eq!(with(b"instance/step", 1), with(b"instance/step", 1));
        let waits: Vec<_> =
            (0..1_000u32).map(|step| with(&step.to_be_bytes(), 1).unwrap().as_u64()).collect();
        assert!(waits.iter().all(|wait| (5_000..=10_000).contains(wait)));
        for band in 0..10 {
            let from = 5_000 + band * 500;
            let hits = waits.iter().filter(|wait| (from..from + 500).contains(*wait)).count();
            assert!((50..=150).contains(&hits), "{hits} of 1000 in {from}..");
        }
    }

    /// The formula is a promise: attempts recorded by one release are scheduled by the next.
    #[test]
    fn p11_jitter_does_not_change_between_releases() {
        let policy = Policy { jitter: true, limit: Limit::Unlimited, ..Policy::default() };
        let waits = [1, 2, 3, u32::MAX].map(|attempt| delay(&policy, attempt).unwrap().as_u64());
        assert_eq!(waits, JITTERED);
    }

    const JITTERED: [u64; 4] = [9_395, 12_549, 25_771, 72_104_124];

    #[test]
    fn p12_an_asked_delay_is_used_as_it_is() {
        let policy = Policy { jitter: true, max_delay: seconds(1), ..Policy::default() };
        for asked in [Millis::ZERO, Millis(1), seconds(7), Millis::MAX] {
            for attempt in 1..=5 {
                let wait = next_delay(&policy, attempt, Millis::ZERO, Asked::After(asked), b"s");
                assert_eq!(wait, Some(asked));
            }
            assert_eq!(next_delay(&policy, 6, Millis::ZERO, Asked::After(asked), b"s"), None);
        }
    }

    proptest! {
        #[test]
        fn p11_any_policy_at_any_attempt(
            delay: u64, max_delay: u64, attempt: u32, elapsed: u64, jitter: bool,
            max_elapsed: Option<u64>, seed: Vec<u8>,
            backoff in prop_oneof![Just(Backoff::Constant), Just(Backoff::Linear), Just(Backoff::Exponential)],
        ) {
            let policy = Policy {
                limit: Limit::Unlimited,
                delay: Millis(delay),
                backoff,
                max_delay: Millis(max_delay),
                max_elapsed: max_elapsed.map(Millis),
                jitter,
                ..Policy::default()
            };
            let wait = next_delay(&policy, attempt, Millis(elapsed), Asked::Policy, &seed);
            if let Some(wait) = wait {
                prop_assert!(wait.as_u64() <= max_delay);
                prop_assert!(wait.as_u64() >= delay.min(max_delay) / 2);
            } else {
                prop_assert!(max_elapsed.is_some());
            }
        }
    }
}
