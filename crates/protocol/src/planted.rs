//! Faults planted on purpose, to see that the simulator finds them (`make planted`). In every other build there are none: the
//! question is answered `false` when it is compiled, and what hangs on it is gone.

/// Whether the fault of this name is planted. Only a build with `--cfg planted` knows any, one at a time.
#[doc(hidden)]
#[cfg(not(planted))]
#[must_use]
#[inline]
pub const fn planted(_name: &'static str) -> bool {
    false
}

#[cfg(planted)]
pub use chosen::{choose, planted};

#[cfg(planted)]
mod chosen {
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A hash of the name of the fault that is planted; zero if none is.
    static CHOSEN: AtomicU64 = AtomicU64::new(0);

    const fn hash(name: &str) -> u64 {
        let (bytes, mut at, mut hash) = (name.as_bytes(), 0, 0xcbf2_9ce4_8422_2325_u64);
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        hash
    }

    /// Plants the fault of this name in this process, in place of any other; none if there is no name.
    pub fn choose(name: Option<&str>) {
        CHOSEN.store(name.map_or(0, hash), Ordering::SeqCst);
    }

    /// Whether the fault of this name is planted.
    #[must_use]
    pub fn planted(name: &'static str) -> bool {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        chosen != 0 && chosen == hash(name)
    }
}
