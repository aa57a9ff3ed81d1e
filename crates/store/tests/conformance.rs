//! One suite over both stores: what the port promises, driven through the engine's own batches. Both stores run the same
//! cases; what only one of them can do is proved in its own file.
//!
//! Proves: rows come back exactly as they were decided, side rows follow their heads, and a transaction is all or nothing.
//! Not: what is decided (the engine's tests), how fast, and what happens when a server dies.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

mod conformance {
    pub(crate) mod access;
    pub(crate) mod actions;
    pub(crate) mod audits;
    pub(crate) mod bulks;
    pub(crate) mod control;
    pub(crate) mod events;
    pub(crate) mod fixture;
    pub(crate) mod hooks;
    pub(crate) mod journals;
    pub(crate) mod ledger;
    pub(crate) mod letters;
    pub(crate) mod lifecycle;
    pub(crate) mod names;
    pub(crate) mod questions;
    pub(crate) mod records;
    pub(crate) mod remote;
    pub(crate) mod scene;
    pub(crate) mod schedule;
    pub(crate) mod schedules;
    pub(crate) mod sessions;
    pub(crate) mod transactions;
    pub(crate) mod views;
}

use conformance::*;

macro_rules! suite {
    ($store:ident, $fixture:ty: $($module:ident::{$($case:ident),* $(,)?}),* $(,)?) => {
        mod $store {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let fixture = <$fixture as crate::fixture::Fixture>::create().await;
                    crate::$module::$case(crate::fixture::Fixture::store(&fixture)).await;
                })*
            })*
        }
    };
}

macro_rules! suites {
    ($($cases:tt)*) => {
        suite!(postgres, crate::fixture::Postgres: $($cases)*);
        suite!(sqlite, crate::fixture::Sqlite: $($cases)*);
        suite!(memory, crate::fixture::Memory: $($cases)*);
    };
}

suites! {
    lifecycle::{
        a_start_is_written_as_one,
        an_instance_runs_from_start_to_end,
        changes_of_one_row_in_one_batch_fold_together,
        a_wake_in_a_batch_goes_to_the_holder,
        a_parked_instance_waits_for_a_person,
        p08_what_is_asked_about_a_key_and_what_was_decided_are_read_back,
        an_operation_keeps_its_first_answer,
        a_holder_that_dies_leaves_the_instance_ready,
        texts_with_nul_are_taken,
    },
    audits::{
        w42_whatever_has_a_reason_to_move_is_no_suspect,
        w42_an_idle_instance_is_made_runnable,
        w42_a_wait_that_is_gone_is_opened_again_from_the_journal,
        w42_a_wait_of_which_more_is_gone_asks_a_person,
        w42_a_lease_of_nobody_ends,
        w42_a_remote_step_that_nobody_offers_is_offered,
        w42_a_remote_step_that_is_gone_asks_a_person,
        w42_l07_a_step_at_most_once_whose_lease_is_lost_is_not_called_again,
        w42_a_wait_that_no_event_finds_is_found_again,
        w42_a_wait_for_a_hook_that_is_gone_is_over,
        w42_a_child_that_tells_nobody_is_asked_again,
        w42_what_was_found_is_kept_and_listed,
    },
    control::{
        p29_waits_of_a_paused_instance_are_not_due_until_the_resume,
        p28_pausing_paused_and_cancelled_are_shown_and_listed,
        w06_heartbeats_say_which_holders_are_to_let_go,
        p30_a_cancel_clears_what_is_open_and_has_a_deadline,
        p31_a_new_run_has_its_own_journal_and_the_earlier_one_stays,
        p36_journals_before_the_last_generation_are_removed_in_small_parts,
        p32_what_is_past_its_retention_is_found_and_deleted_in_small_parts,
    },
    remote::{
        w39_a_remote_step_has_a_lease_of_its_own,
        a_remote_step_is_tried_again,
        p30_an_end_clears_everything_and_names_who_held_its_steps,
        steps_of_one_name_in_two_instances_are_apart,
    },
    events::{
        p22_events_are_kept_and_read_in_order,
        p22_an_event_finds_the_oldest_wait,
        p22_an_event_that_returns_keeps_its_payload,
        p31_what_an_earlier_run_got_does_not_return,
        p36_an_event_that_returned_outlives_the_journal_that_it_was_in,
        p24_an_event_is_known_by_its_id,
        p25_unread_and_mistyped_events_are_shown,
        p26_a_key_takes_only_its_own,
        what_happens_in_one_batch_is_written_as_it_ends,
        an_end_leaves_no_waits_for_events,
    },
    hooks::{
        h01_h02_a_token_has_one_owner_which_every_loser_is_told,
        h36_a_token_taken_meanwhile_is_a_conflict,
        h12_h15_h16_h19_what_has_no_retention_is_free_at_the_end,
        h17_h19_what_is_kept_is_looked_up_until_its_time,
        h06_h41_h48_payloads_are_kept_and_come_in_order,
        h21_h37_h52_a_body_creates_and_lets_go,
        h58_an_answer_is_kept_with_its_request_and_the_first_one_stays,
        h59_h70_a_token_is_moved_by_its_owner,
        h32_h55_a_token_whose_claimant_was_deleted_is_free,
        h66_a_crash_between_claim_and_wake_heals,
        h60_a_takeover_ends_every_await,
        h45_w22_a_letter_to_whoever_has_a_token_is_kept_and_taken,
        p31_a_restart_takes_back_what_is_kept,
    },
    letters::{
        w22_letters_are_found_in_order_and_taken_once,
        w22_a_page_of_letters_ends_at_its_bytes,
        w22_a_letter_that_is_being_taken_is_taken_by_one,
        w22_a_letter_says_whether_its_addressee_is_about_to_start,
        w22_an_end_tells_everybody_who_waits_for_it,
        p30_a_cascade_reaches_attached_children_of_its_run,
        p36_parent_and_children_are_shown,
        p36_children_and_waits_of_earlier_generations_are_forgotten,
        p32_a_deleted_instance_leaves_no_ties,
    },
    names::{
        p27_a_name_is_given_once,
        a_name_taken_meanwhile_is_a_conflict,
        a_message_decided_meanwhile_is_a_conflict,
        the_decision_on_a_message_is_kept,
        ids_differ_by_their_bytes,
    },
    journals::{
        every_fact_comes_back_exactly,
        a_range_ends_at_its_bytes,
        a_range_ends_after_a_thousand,
        ranges_are_answered_in_order,
    },
    transactions::{
        w19_a_head_is_decided_by_one_at_a_time,
        a_dropped_transaction_is_all_or_nothing,
        refused_rows_leave_nothing,
        w18_time_never_goes_back,
        unknown_heads_are_neither_here_nor_elsewhere,
        needs_may_repeat_themselves,
        nothing_to_write_writes_nothing,
        a_large_batch_is_written_whole,
    },
    sessions::{
        w10_a_session_that_has_ended_never_comes_back,
        w09_a_session_is_ended_by_the_inbox_that_cannot_be_reached,
        w06_heartbeats_find_the_leases_and_how_far_their_heads_are,
        w27_who_kept_a_body_is_noted_until_it_is_granted,
        w09_after_a_gap_only_what_was_heard_since_ends_early,
        w08_silence_counts_only_while_it_could_be_heard,
        w08_who_is_heard_between_the_look_and_the_end_lives,
        leases_of_ended_sessions_are_orphans,
        all_sessions_end_at_once,
        p05_what_attempts_told_is_kept_beyond_their_session,
    },
    schedule::{
        w23_due_waits_come_in_order_from_the_mark,
        w15_offers_keep_to_the_window,
        w15_a_backlog_is_seen_without_taking_anything,
        offers_are_made_again,
        o22_queues_that_nobody_serves_are_counted,
        w15_queues_are_apart,
        p40_what_is_pinned_waits_in_the_queue_of_its_build,
        a_duty_has_one_holder,
    },
    records::{
        the_outbox_keeps_a_message_until_it_is_sent,
        w17_a_message_is_rejected_once,
        w17_a_message_without_a_workflow_is_rejected_once,
        w17_what_records_take_is_measured_by_namespace,
        rejected_bodies_need_not_be_text,
        a_young_record_is_not_cleaned,
    },
    bulks::{
        p33_a_bulk_operation_is_begun_once_and_goes_on_where_it_stands,
        p33_one_that_is_over_stays_so,
    },
    schedules::{
        s05_a_schedule_is_changed_by_whoever_has_read_its_last_version,
        s05_no_version_comes_again_under_an_id,
        s10_pages_are_bounded_by_bytes,
        s05_those_whose_time_has_come_are_found_earliest_first_and_settled_together,
        s15_who_changed_a_schedule_is_recorded_also_when_it_is_gone,
        s01_schedules_are_listed_by_their_ids_and_kept_exactly,
    },
    access::{
        a01_a_token_is_kept_exactly_and_given_once,
        a03_a_token_is_revoked_once_and_opens_nothing_then,
        a03_tokens_are_listed_newest_first_within_their_scope,
        a03_the_use_of_a_token_is_noted_and_young_ones_are_not_cleaned,
    },
    actions::{
        a06_what_is_done_to_an_instance_is_recorded_with_it_once,
        a06_an_action_and_its_record_are_one,
        a06_what_is_done_to_bulk_operations_and_tokens_is_recorded_with_it,
        a06_records_are_found_by_what_they_say,
        a06_any_text_is_recorded_up_to_its_bound,
    },
    ledger::{
        l14_calls_are_found_by_instance_reference_and_key,
    },
    questions::{
        l08_a_question_is_kept_with_its_wait_and_answered_once,
        l08_questions_are_listed_and_counted_over_all_workflows,
        l08_a_question_beside_other_waits_is_shown_first,
    },
    views::{
        ends_are_told_once_in_the_order_of_their_commits,
        a_page_of_ends_is_bounded_by_bytes,
        p28_every_status_is_shown,
        lists_filter_by_status_and_workflow,
        lists_filter_by_the_beginning_of_the_id,
        p40_what_is_open_is_listed_and_nothing_else,
        p40_what_is_open_and_of_a_status_is_both,
        p33_lists_say_how_each_has_ended_if_asked,
        p39_how_compensations_ended_is_in_the_view,
        pages_are_not_shifted_by_new_instances,
        p35_a_workflow_is_served_while_a_session_lives,
        waits_are_shown_earliest_first,
        p37_lists_filter_by_attributes_and_status,
        p37_attributes_and_state_are_replaced_and_last_as_long_as_their_instance,
    },
}
