//! Faults that are planted in the production code, each a mistake that an engineer could make, to see that the checkers find it.
//!
//! They are there in builds with the feature `planted` alone. Each is asked for where it is planted: `planted("its name")`.

use std::fmt;

use crate::{check::Breach, report::Sum, run::run_all};

mod proof;

pub use proof::{Proved, prove};

const COORDINATOR: &str = "everstep-coordinator";
const ENGINE: &str = "everstep-engine";
const SIMULATOR: &str = "everstep-simulator";
const WORKER: &str = "everstep-worker";

/// A fault, and an ordinary test that goes red with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub name: &'static str,
    /// The package of the test.
    pub package: &'static str,
    /// Empty where there is none yet.
    pub test: &'static str,
}

const fn fault(name: &'static str, package: &'static str, test: &'static str) -> Fault {
    Fault { name, package, test }
}

/// The faults.
pub static FAULTS: [Fault; 42] = [
    fault("epoch_unchecked", ENGINE, "w02_an_older_epoch_is_fenced"),
    fault("report_twice", ENGINE, "w04_a_report_is_taken_once_and_in_order"),
    fault("suspend_overtakes", ENGINE, "w03_newer_entries_keep_the_lease_and_the_waits"),
    fault("fold_anywhere", ENGINE, "w36_a_refused_fold_closes_and_opens_nothing"),
    fault("claim_taken", ENGINE, "w07_two_claims_in_one_batch_give_one_lease"),
    fault("epoch_kept", ENGINE, "w02_every_grant_bears_a_higher_epoch"),
    fault("lost_forgotten", ENGINE, "w11_a_loss_is_one_entry_with_slots_and_session"),
    fault("given_back_forgotten", ENGINE, "w07_a_lease_given_back_is_ready_again_and_uncounted"),
    fault("event_twice", ENGINE, "p22_events_are_kept_before_anybody_waits_and_read_in_order"),
    fault("event_accepted_twice", ENGINE, "p24_a_repeated_event_gets_its_first_answer_whatever_became_of_it"),
    fault("event_wakes_nobody", ENGINE, "p22_an_event_in_the_same_batch_after_a_suspend_wakes_the_instance"),
    fault("event_newest_first", ENGINE, "p22_a_new_wait_takes_the_oldest_event_that_fits"),
    fault("token_stolen", ENGINE, "h36_h37_h38_the_second_who_creates_a_token_gets_a_stored_conflict"),
    fault("end_unheard", ENGINE, "p36_a_parent_waits_for_its_child_and_holds_nothing"),
    fault("letter_lost", ENGINE, "h63_a_payload_on_its_way_to_the_old_owner_is_redirected_exactly_once"),
    fault("remote_retry_forgotten", ENGINE, "w39_a_failure_waits_for_the_policys_delay"),
    fault("due_wakes_nobody", ENGINE, "p21_a_wait_times_out_once_and_never_early"),
    fault("step_claimed_twice", ENGINE, "w39_a_repeated_claim_gets_the_same_grant_and_another_session_none"),
    fault("step_fence_unchecked", ENGINE, "w39_a_late_report_is_fenced"),
    fault("lost_step_called_again", ENGINE, "l07_the_lease_of_a_remote_step_is_its_intent"),
    fault("unknown_called_again", ENGINE, "l07_what_its_holder_left_is_charged_by_class"),
    fault("restart_keeps_waits", ENGINE, "p31_a_restart_is_a_new_run_with_the_same_beginning"),
    fault("nobody_asked", ENGINE, "l07_an_unknown_outcome_asks_and_other_branches_go_on"),
    fault("report_sent_once", WORKER, "w07_a_lost_report_is_sent_again_after_a_second"),
    fault("loser_told_twice", WORKER, ""),
    fault("begins_before_intent", WORKER, "l05_nothing_begins_before_its_intent_is_acknowledged"),
    fault("attempt_in_key", WORKER, "p08_the_first_attempt_pins_key_and_policy"),
    fault("generation_not_in_key", WORKER, "p36_each_generation_has_its_own_journal_keys_and_draws"),
    fault("entries_out_of_order", WORKER, "w01_acks_that_overtake_each_other_are_fed_by_position"),
    fault("ended_session_goes_on", WORKER, "w10_told_that_its_session_is_unknown_it_opens_a_new_one"),
    fault("looks_never", WORKER, "l06_it_looks_before_every_call_and_what_it_finds_is_the_output"),
    fault(
        "unknown_taken_for_done",
        SIMULATOR,
        "what_is_answered_is_committed_however_often_the_store_refuses",
    ),
    fault("settled_before_commit", COORDINATOR, "w20_a_message_is_settled_after_its_commit"),
    fault("offered_once", COORDINATOR, "w15_what_nobody_claims_is_offered_again"),
    fault("unconfirmed_kept", COORDINATOR, "w06_a_lease_that_nobody_confirms_is_ended"),
    fault("orphans_left", COORDINATOR, "w10_the_leases_of_an_ended_session_are_handed_on"),
    fault("silent_for_ever", COORDINATOR, "w08_a_session_that_is_silent_for_a_lease_is_ended"),
    fault("kept_body_of_another_run", ENGINE, "w27_a_claim_that_names_what_it_has_is_granted_the_rest"),
    fault("pin_unchecked", ENGINE, "p40_the_first_to_take_it_up_decides_the_build"),
    fault("gap_unseen", COORDINATOR, "w08_after_a_gap_nobody_has_been_silent"),
    fault("ended_unobserved", COORDINATOR, "w09_after_a_gap_an_inbox_that_is_not_there_ends_nothing"),
    fault(
        "reconnect_unnoticed",
        COORDINATOR,
        "w08_an_inbox_that_was_not_there_since_the_coordinators_reconnect_waits_a_whole_lease",
    ),
];

/// What became of one fault.
#[derive(Clone, Debug)]
pub struct Hunted {
    /// Its name.
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

#[cfg(test)]
mod tests {
    //! Proves that the page about the simulator names each fault with its test.
    use super::*;

    #[test]
    fn the_page_names_each_fault_with_its_test() {
        let page = include_str!("../../../docs/simulator.md");
        for Fault { name, package, test } in FAULTS {
            if test.is_empty() {
                assert!(page.contains(&format!("| `{name}` |")), "docs/simulator.md has no row for {name}");
                continue;
            }
            let package = package.trim_start_matches("everstep-");
            let is_row = |line: &str| {
                line.starts_with(&format!("| `{name}` |"))
                    && line.ends_with(&format!("| {package}: `{test}` |"))
            };
            assert!(
                page.lines().any(is_row),
                "docs/simulator.md has no row for {name} with {package}: {test}"
            );
        }
    }
}
