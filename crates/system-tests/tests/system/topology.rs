//! Queues that are there in another kind than they would be declared in serve as they are: rule W14.

use everstep_protocol::{Namespace, topology};
use everstep_system_tests::{Kind, Log, Setup, World};

use crate::storms::{busy, check, load};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w14_queues_of_another_kind_serve_as_they_are() {
    let log = Log::new();
    let mut world = Setup::new(Kind::Fleet).coordinators(0).start().await;
    let run_queue = topology::run_queue(&Namespace::default(), &"busy".parse().expect("a valid name"));
    declare_quorum(&world, topology::SESSIONS, true);
    declare_quorum(&world, &topology::report_queue(0), true);
    declare_quorum(&world, &run_queue, false);
    world.add_coordinator().await;
    world.add_worker(busy(&log)).await;
    load(&world, 20).await;
    check(&world, &log, 20).await;
    let vhost = world.installation().name();
    let list = ["list_queues", "-p", vhost, "name", "type", "--no-table-headers"];
    let listed = tokio::task::block_in_place(|| world.installation().ctl(&list)).expect("they can be listed");
    let kind_of = |queue: &str| {
        let mut lines = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.find(|line| line[0] == queue).map(|line| line[1].to_owned()).expect("it is there")
    };
    for queue in [topology::SESSIONS, &topology::report_queue(0), &run_queue] {
        assert_eq!(kind_of(queue), "quorum", "{listed}");
    }
}

/// Declares a queue as an operator may.
fn declare_quorum(world: &World, queue: &str, single_active_consumer: bool) {
    let vhost = world.installation().name();
    let program = format!(
        "{{new, _}} = rabbit_amqqueue:declare(rabbit_misc:r(<<\"{vhost}\">>, queue, <<\"{queue}\">>), true, false, \
         [{{<<\"x-queue-type\">>, longstr, <<\"quorum\">>}}] ++ \
         [{{<<\"x-single-active-consumer\">>, bool, true}} || {single_active_consumer}], none, <<\"operator\">>), ok."
    );
    tokio::task::block_in_place(|| world.installation().ctl(&["eval", &program])).expect("it is declared");
}
