//! Draws: everything that is left to chance in a run comes from its seed, through one of these.
//!
//! Each purpose has a stream of its own, named, so that one more draw for one purpose does not change all others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A stream of draws.
#[derive(Clone, Debug)]
pub(crate) struct Draws(u64);

/// Spreads the bits of a number over all of it (the finaliser of `SplitMix64`).
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl Draws {
    /// The stream of this purpose.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        let mut state = mix(seed ^ 0x6576_6572_7374_6570);
        for byte in purpose.bytes() {
            state = mix(state ^ u64::from(byte));
        }
        Self(state)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below this one, which is more than zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A number between these, both included.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// True so many times in a million.
    pub(crate) fn hits(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    pub(crate) fn shuffle<T>(&mut self, of: &mut [T]) {
        for end in (1..of.len()).rev() {
            of.swap(end, self.below(end as u64 + 1) as usize);
        }
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }
}

/// A stream that several draw from.
#[derive(Clone, Debug)]
pub(crate) struct SharedDraws(Arc<Mutex<Draws>>);

impl SharedDraws {
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        Self(Arc::new(Mutex::new(Draws::new(seed, purpose))))
    }

    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Draws) -> T) -> T {
        draw(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Draws> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ_by_purpose() {
        let first = |purpose| Draws::new(7, purpose).next();
        assert_eq!(first("faults"), first("faults"));
        assert_ne!(first("faults"), first("workload"));
    }

    #[test]
    fn draws_stay_in_their_bounds() {
        let mut draws = Draws::new(1, "bounds");
        for _ in 0..1_000 {
            assert!((3..=5).contains(&draws.between(3, 5)));
        }
        assert!(!draws.hits(0));
        assert!(draws.hits(1_000_000));
    }
}
