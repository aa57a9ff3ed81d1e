//! One suite over both brokers: proves that RabbitMQ behind the port and the in-process broker do the same, and that
//! both do what the port promises. It does not prove anything about a cluster, a memory alarm or TLS.
//!
//! `amqp::*` needs a RabbitMQ in `EVERSTEP_TEST_AMQP_URL` and fails without one. Nothing sleeps to synchronise: each
//! wait is for an event, with a deadline that only a failure reaches.

#[path = "conformance/delivery.rs"]
mod delivery;
#[path = "conformance/outage.rs"]
mod outage;
#[path = "conformance/rig.rs"]
mod rig;
#[path = "conformance/routing.rs"]
mod routing;

macro_rules! conformance {
    ($($group:ident: $($name:ident)*;)*) => {
        mod memory {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::$group::$name(crate::rig::Rig::memory()).await;
            })*)*
        }
        mod amqp {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::$group::$name(crate::rig::Rig::amqp()).await;
            })*)*
        }
    };
}

conformance! {
    delivery:
        messages_arrive_in_order_with_their_properties
        an_ack_removes_and_an_unsettled_message_comes_again
        a_requeued_message_comes_again
        prefetch_bounds_what_is_held
        acks_out_of_order_free_their_places
        one_of_two_consumers_is_active_and_the_other_takes_over
        two_consumers_share_a_queue
        a_cancelled_consumer_gives_back_what_it_was_not_asked_for;
    routing:
        an_exclusive_queue_goes_with_its_connection
        a_topic_exchange_routes_by_pattern
        unroutable_messages_are_told
        confirmed_messages_are_there
        a_window_larger_than_the_limit_is_confirmed
        a_conflicting_declaration_is_refused
        depth_counts_ready_messages
        what_expired_is_not_delivered;
    outage:
        a_consumer_survives_an_outage
        settles_from_before_an_outage_do_nothing
        sending_fails_fast_while_down_and_works_again
        topology_comes_back_with_the_connection
        a_consumer_waits_for_its_queue
        a_deleted_queue_is_consumed_again_once_it_is_back
        a_deleted_queue_is_declared_again_by_whoever_consumes_it
        what_differs_from_its_declaration_is_named
        a_closed_broker_says_so
        settles_right_before_close_count;
}
