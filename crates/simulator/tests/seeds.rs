//! Runs seeds: those that failed once, and some more. Proves that the same seed is the same run, and that nothing is found in these;
//! what many more seeds find is the work of `make sim`.

use std::{collections::BTreeSet, process::Command};

use everstep_simulator::{known, run, run_all};

/// So many lines of a failure's trace.
const LINES: usize = 60;
/// After so many steps it is enough: a busy seed takes long in a debug build.
const STEPS: u64 = 3_000;

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [1, 2, 5, 11] {
        // Each in a process of its own, as the command does that a failure prints.
        let traced = || {
            let sim = env!("CARGO_BIN_EXE_sim");
            let out = Command::new(sim).args(["--trace", "--seed", &seed.to_string()]).output();
            String::from_utf8_lossy(&out.expect("it runs").stdout).into_owned()
        };
        let (one, other) = (traced(), traced());
        assert!(one.lines().count() > 100, "seed {seed}: {one}");
        assert_eq!(one, other, "seed {seed}");
    }
}

/// Whatever ran in this process before: a seed that fails among many fails alone.
#[test]
fn the_same_seed_is_the_same_run_after_others() {
    // Of these, 11 has a coordinator that dies while producers ask it.
    for seed in [5, 11] {
        let hashes: BTreeSet<_> = (0..3).map(|_| run(seed, false).hash).collect();
        assert_eq!(hashes.len(), 1, "seed {seed}: {hashes:?}");
    }
}

#[test]
fn nothing_is_found_in_some_seeds_and_in_those_that_failed_once() {
    let failures = std::sync::Mutex::new(Vec::new());
    let known = known();
    let least = known.len() as u64 + 5;
    let sum = run_all(
        known.into_iter().chain(1_000..1_040),
        2,
        |sum| sum.seeds >= least && sum.steps >= STEPS,
        |outcome| failures.lock().expect("nobody panics").extend(outcome.failure(LINES)),
    );
    let failures = failures.into_inner().expect("nobody panics");
    assert!(failures.is_empty(), "{}\n{sum}", failures.join("\n\n"));
    assert!(sum.steps > 1_000, "{sum}");
}
