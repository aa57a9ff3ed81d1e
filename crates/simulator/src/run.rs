//! Runs seeds: each on a thread of its own, since what the standard library draws, it draws once a thread.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use crate::{
    check::{Breach, Tally},
    entropy,
    report::{Outcome, Sum},
    world::World,
};

/// Debug builds nest deeply where a program does.
const STACK: usize = 64 << 20;

/// Seeds that failed once, each with what it had found.
const KNOWN: &str = include_str!("../seeds.txt");

/// The seeds that failed once.
#[must_use]
pub fn known() -> Vec<u64> {
    KNOWN.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

/// Runs one seed; with `shows`, all of its trace is printed.
///
/// # Panics
/// If no thread can be started.
#[must_use]
pub fn run(seed: u64, shows: bool) -> Outcome {
    let whole = move || {
        entropy::seed_thread(seed);
        catch_unwind(AssertUnwindSafe(|| World::new(seed, shows).map(World::run)))
    };
    let thread = thread::Builder::new().name(format!("seed {seed}")).stack_size(STACK).spawn(whole);
    match thread.expect("a thread can be started").join() {
        Ok(Ok(Ok(outcome))) => outcome,
        Ok(Ok(Err(reason))) => broken(seed, reason),
        Ok(Err(_)) | Err(_) => broken(seed, "the simulator itself panicked".to_owned()),
    }
}

fn broken(seed: u64, what: String) -> Outcome {
    Outcome {
        seed,
        hash: String::new(),
        plan: String::new(),
        breach: Some(Breach { checker: "world", what }),
        tally: Tally::default(),
        faults: BTreeMap::new(),
        kills: 0,
        past_a_freeze: 0,
        virtual_micros: 0,
        last: Vec::new(),
    }
}

/// Runs seeds from the first on, so many at once, until `enough` says so or there are no more. `done` sees each.
pub fn run_all(
    seeds: impl Iterator<Item = u64> + Send,
    at_once: usize,
    enough: impl Fn(&Sum) -> bool + Sync,
    done: impl Fn(&Outcome) + Sync,
) -> Sum {
    let began = Instant::now();
    let (seeds, sum) = (Mutex::new(seeds), Mutex::new(Sum::default()));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = seeds.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(seed) = seed else { return };
                    let outcome = run(seed, false);
                    done(&outcome);
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    sum.add(&outcome);
                    sum.took = began.elapsed();
                    if enough(&sum) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    sum.took = began.elapsed();
    sum
}
