//! The crash matrix: a coordinator or a worker, each a process of its own, dies on either side of each commit, publish and ack, one row
//! for each point; another one goes on. Nothing that was accepted is lost, no effect comes under two keys, nothing that was recorded is
//! run again, and the journals are sound. And one row in which every message is delivered twice, and one in which a later version, which
//! writes fields that this one does not know, works beside it.
//!
//! What it does not prove: crashes at other places, of which the simulator makes every one; what the machine forgets that loses its power
//! (`make chaos`). Needs the feature `crash`: `make crash-matrix`.

mod places;
mod scene;

/// One module for each place, with a row for each side of it.
macro_rules! rows {
    ($($who:ident $row:ident $place:literal;)+) => {
        /// The places that have rows.
        const ROWS: [&str; [$($place),+].len()] = [$($place),+];

        $(mod $row {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn before() {
                crate::scene::$who(concat!($place, ".before")).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn after() {
                crate::scene::$who(concat!($place, ".after")).await;
            }
        })+
    };
}

rows! {
    coordinator crash_matrix_commit_turn "commit.turn";
    coordinator crash_matrix_commit_session_open "commit.session_open";
    coordinator crash_matrix_commit_session_heard "commit.session_heard";
    coordinator crash_matrix_commit_session_beat "commit.session_beat";
    coordinator crash_matrix_commit_session_goodbye "commit.session_goodbye";
    coordinator crash_matrix_commit_session_end "commit.session_end";
    coordinator crash_matrix_commit_progress "commit.progress";
    coordinator crash_matrix_commit_duties "commit.duties";
    coordinator crash_matrix_commit_duties_released "commit.duties_released";
    coordinator crash_matrix_commit_offer "commit.offer";
    coordinator crash_matrix_commit_outbox "commit.outbox";
    coordinator crash_matrix_commit_rejected "commit.rejected";
    coordinator crash_matrix_commit_sweep "commit.sweep";
    coordinator crash_matrix_commit_clean "commit.clean";
    coordinator crash_matrix_commit_schedule "commit.schedule";
    coordinator crash_matrix_commit_schedule_change "commit.schedule_change";
    coordinator crash_matrix_commit_bulk_begin "commit.bulk_begin";
    coordinator crash_matrix_commit_bulk_advance "commit.bulk_advance";
    coordinator crash_matrix_commit_bulk_stop "commit.bulk_stop";
    auditor crash_matrix_commit_breaches "commit.breaches";
    coordinator crash_matrix_commit_present "commit.present";
    coordinator crash_matrix_commit_access_token_made "commit.access_token_made";
    coordinator crash_matrix_commit_access_token_revoked "commit.access_token_revoked";
    coordinator crash_matrix_commit_access_token_used "commit.access_token_used";
    coordinator crash_matrix_publish_turn "publish.turn";
    coordinator crash_matrix_publish_entries "publish.entries";
    coordinator crash_matrix_publish_reply "publish.reply";
    coordinator crash_matrix_publish_rejected "publish.rejected";
    coordinator crash_matrix_publish_later "publish.later";
    coordinator crash_matrix_publish_offer "publish.offer";
    coordinator crash_matrix_publish_lifecycle "publish.lifecycle";
    coordinator crash_matrix_publish_beat "publish.beat";
    coordinator crash_matrix_publish_session_answer "publish.session_answer";
    coordinator crash_matrix_publish_ping "publish.ping";
    coordinator crash_matrix_ack_input "ack.input";
    coordinator crash_matrix_ack_dropped "ack.dropped";
    coordinator crash_matrix_ack_session "ack.session";
    worker crash_matrix_publish_reports "publish.reports";
    worker crash_matrix_publish_session "publish.session";
    worker crash_matrix_publish_goodbye "publish.goodbye";
    worker crash_matrix_publish_give_up "publish.give_up";
    worker crash_matrix_ack_task "ack.task";
    worker crash_matrix_ack_inbox "ack.inbox";
}

/// The points that are passed at each turn are also hit in mid-work.
mod crash_matrix_in_mid_work {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn commit_turn_before() {
        crate::scene::coordinator("commit.turn.before:25").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn commit_turn_after() {
        crate::scene::coordinator("commit.turn.after:25").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn publish_turn_after() {
        crate::scene::coordinator("publish.turn.after:20").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ack_input_before() {
        crate::scene::coordinator("ack.input.before:30").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn publish_reports_before() {
        crate::scene::worker("publish.reports.before:15").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn publish_reports_after() {
        crate::scene::worker("publish.reports.after:15").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_matrix_every_message_is_delivered_twice() {
    scene::twice().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w25_a_later_version_beside_this_one() {
    scene::side_by_side().await;
}

#[test]
fn crash_matrix_every_place_has_its_rows_and_no_commit_publish_or_ack_is_without_a_place() {
    places::all_are_there(&ROWS);
}
