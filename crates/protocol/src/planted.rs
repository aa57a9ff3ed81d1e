//! Faults planted on purpose, to see that the simulator and the tests find them (`make planted`). In every other build there are
//! none: the question is answered `false` when it is compiled, and what hangs on it is gone.

/// Whether the fault of this name is planted. Only a build with the feature `planted` knows any, one at a time.
#[doc(hidden)]
#[cfg(not(feature = "planted"))]
#[must_use]
#[inline]
pub const fn planted(_name: &'static str) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use chosen::{choose, planted};

#[cfg(feature = "planted")]
mod chosen {
    use std::sync::{
        Once,
        atomic::{AtomicU64, Ordering},
    };

    /// Names the fault of a process that chooses none itself: of a test.
    const VARIABLE: &str = "EVERSTEP_PLANTED";

    /// A hash of the name of the fault that is planted; zero if none is.
    static CHOSEN: AtomicU64 = AtomicU64::new(0);
    static READ: Once = Once::new();

    const fn hash(name: &str) -> u64 {
        let (bytes, mut at, mut hash) = (name.as_bytes(), 0, 0xcbf2_9ce4_8422_2325_u64);
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        hash
    }

    fn set(name: Option<&str>) {
        CHOSEN.store(name.map_or(0, hash), Ordering::SeqCst);
    }

    /// Plants the fault of this name in this process, in place of any other; none if there is no name.
    pub fn choose(name: Option<&str>) {
        READ.call_once(|| ());
        set(name);
    }

    /// Whether the fault of this name is planted.
    #[must_use]
    pub fn planted(name: &'static str) -> bool {
        READ.call_once(|| set(std::env::var(VARIABLE).ok().as_deref()));
        let chosen = CHOSEN.load(Ordering::Relaxed);
        chosen != 0 && chosen == hash(name)
    }
}
