//! Faults that are planted in the production code, each a mistake that an engineer could make, to see that the checkers find it.
//!
//! They are there in builds with the feature `planted` alone. Each is asked for where it is planted: `planted("its name")`.

use std::fmt;

use crate::{check::Breach, report::Sum, run::run_all};

/// The faults, by name.
pub const FAULTS: [&str; 41] = [
    "epoch_unchecked",
    "report_twice",
    "suspend_overtakes",
    "fold_anywhere",
    "claim_taken",
    "epoch_kept",
    "lost_forgotten",
    "given_back_forgotten",
    "event_twice",
    "event_accepted_twice",
    "event_wakes_nobody",
    "event_newest_first",
    "token_stolen",
    "end_unheard",
    "letter_lost",
    "remote_retry_forgotten",
    "due_wakes_nobody",
    "step_claimed_twice",
    "step_fence_unchecked",
    "lost_step_called_again",
    "unknown_called_again",
    "restart_keeps_waits",
    "nobody_asked",
    "report_sent_once",
    "loser_told_twice",
    "begins_before_intent",
    "attempt_in_key",
    "generation_not_in_key",
    "entries_out_of_order",
    "ended_session_goes_on",
    "looks_never",
    "unknown_taken_for_done",
    "settled_before_commit",
    "offered_once",
    "unconfirmed_kept",
    "orphans_left",
    "silent_for_ever",
    "kept_body_of_another_run",
    "pin_unchecked",
    "gap_unseen",
    "ended_unobserved",
];

/// What became of one fault.
#[derive(Clone, Debug)]
pub struct Hunted {
    pub fault: &'static str,
    /// So many seeds were run until it was found, or in all.
    pub seeds: u64,
    /// Which seed found it, and what.
    pub found: Option<(u64, Breach)>,
}

/// Plants a fault and runs seeds until one finds it. None if this build has no faults.
#[must_use]
pub fn hunt(fault: &'static str, seeds: u64, at_once: usize) -> Option<Hunted> {
    plant(Some(fault))?;
    let found = std::sync::Mutex::new(None);
    let enough = |sum: &Sum| !sum.failed.is_empty();
    let sum = run_all(0..seeds, at_once, enough, |outcome| {
        if let (Some(breach), Ok(mut found)) = (&outcome.breach, found.lock()) {
            found.get_or_insert((outcome.seed, breach.clone()));
        }
    });
    plant(None)?;
    Some(Hunted { fault, seeds: sum.seeds, found: found.into_inner().ok()? })
}

/// Plants this fault in place of any other.
#[cfg(feature = "planted")]
#[allow(clippy::unnecessary_wraps, reason = "a build without faults has none to plant")]
pub fn plant(fault: Option<&str>) -> Option<()> {
    everstep_protocol::choose_planted(fault);
    Some(())
}

/// This build has no faults to plant.
#[cfg(not(feature = "planted"))]
pub const fn plant(_fault: Option<&str>) -> Option<()> {
    None
}

impl fmt::Display for Hunted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, seeds, found } = self;
        match found {
            Some((seed, breach)) => {
                let what: String = breach.what.chars().take(90).collect();
                write!(f, "{fault:<26} {seeds:>5} {:<8} seed {seed}: {what}", breach.checker)
            }
            None => write!(f, "{fault:<26} {seeds:>5} NOT FOUND"),
        }
    }
}
