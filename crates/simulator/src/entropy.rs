//! Randomness of the operating system, as the thread of a seed gets it: drawn from the seed.
//!
//! The hash keys of the standard library's maps, and whatever else a dependency draws for itself, come from `getrandom` of the C
//! library. This file defines that function for the programs that link it. A thread that was given a seed gets a repeatable
//! stream, all others get what the kernel gives. A run has a thread of its own, since hash keys are drawn once a thread.

use std::cell::Cell;

use crate::seed::mix;

thread_local! {
    static STATE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on this thread draws from this seed.
pub(crate) fn seed_thread(seed: u64) {
    STATE.set(Some(seed));
}

fn next() -> Option<u64> {
    // A thread that ends has no state any more; it may still ask.
    STATE
        .try_with(|state| {
            let drawn = state.get()?.wrapping_add(0x9e37_79b9_7f4a_7c15);
            state.set(Some(drawn));
            Some(mix(drawn))
        })
        .ok()
        .flatten()
}

#[allow(
    unsafe_code,
    reason = "a function of the C library is defined here, and the kernel is asked where no seed was given"
)]
mod symbol {
    use std::ffi::{c_int, c_long, c_uint, c_void};

    /// The number of the system call `getrandom`.
    #[cfg(target_arch = "x86_64")]
    const GETRANDOM: c_long = 318;
    #[cfg(target_arch = "aarch64")]
    const GETRANDOM: c_long = 278;

    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }

    /// As the C library's: fills `length` bytes at `buffer`, gives their count, or -1.
    ///
    /// # Safety
    /// As for the C library's: `buffer` is valid for writes of `length` bytes.
    // SAFETY: this has the signature and the meaning of the function whose place it takes, so that every caller of that one is
    // served; the linker takes the program's own definition before the library's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
        let mut at = 0;
        while at < length {
            let Some(drawn) = super::next() else {
                // SAFETY: the caller's buffer is handed on with its length.
                return unsafe { syscall(GETRANDOM, buffer, length, flags as c_int) } as isize;
            };
            for byte in drawn.to_le_bytes().into_iter().take(length - at) {
                // SAFETY: `at` is below `length`, for which the caller vouches.
                unsafe { buffer.cast::<u8>().add(at).write(byte) };
                at += 1;
            }
        }
        length as isize
    }
}

#[cfg(test)]
mod tests {
    //! Proves that what the standard library draws on a seeded thread repeats, and that other threads are left alone.
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    fn drawn(seed: Option<u64>) -> (u64, uuid::Uuid) {
        let run = move || {
            if let Some(seed) = seed {
                seed_thread(seed);
            }
            (RandomState::new().hash_one(7), uuid::Uuid::now_v7())
        };
        std::thread::spawn(run).join().expect("it does not panic")
    }

    #[test]
    fn maps_of_a_seeded_thread_have_the_same_keys_each_time() {
        assert_eq!(drawn(Some(1)).0, drawn(Some(1)).0);
        assert_ne!(drawn(Some(1)).0, drawn(Some(2)).0);
        assert_ne!(drawn(None), drawn(None));
    }
}
