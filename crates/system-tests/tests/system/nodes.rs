//! A RabbitMQ of three nodes, one of which dies under load (`kill -9`): nothing is lost, nothing that was recorded is run again, and
//! work goes on without it. The node that dies is the one with the sessions queue; the vhost's default are quorum queues.
//!
//! Not here: classic queues, which are refused for as long as their node is down; two nodes of three; a partition.

use std::time::{Duration, Instant};

use everstep_system_tests::{Kind, Log, Setup, World};
use everstep_testbed::{Down, UNSOUND};

use crate::storms::{busy, sound_runs};

const COUNT: usize = 100;
/// Everything has ended by then, on a slow machine too.
const LIMIT: Duration = Duration::from_secs(90);

/// How many instances are there, and how many of them are open.
fn counted(world: &World) -> (usize, usize) {
    let text = world.sql("SELECT count(*), count(*) FILTER (WHERE status = 0) FROM instance");
    let (all, open) = text.split_once('|').expect("two columns");
    (all.parse().expect("a number"), open.parse().expect("a number"))
}

/// Kills the node that has the sessions queue. Gives its number.
fn kill_leader(world: &mut World) -> usize {
    let nodes = world.nodes();
    let vhost = nodes[0].vhost().to_owned();
    tokio::task::block_in_place(|| {
        let listed = nodes[0]
            .ctl(&["list_queues", "-p", &vhost, "name", "pid", "--no-table-headers"])
            .expect("queues can be listed");
        let line = listed.lines().find(|line| line.starts_with("everstep.sessions"));
        let line = line.expect("it is declared");
        let number = nodes.iter().position(|node| line.contains(&node.name())).expect("a node has it");
        nodes[number].down(Down::Crash).expect("it is killed");
        number
    })
}

/// What a node that lives says of all queues.
fn queues(world: &mut World, died: usize) -> String {
    let node = &world.nodes()[(died + 1) % 3];
    let columns = ["name", "state", "messages_ready", "messages_unacknowledged", "consumers"];
    let list = [&["list_queues", "-p", node.vhost()][..], &columns].concat();
    tokio::task::block_in_place(|| node.ctl(&list)).unwrap_or_else(|error| error.to_string())
}

async fn a_node_of_three_dies(default_queue_type: &'static str) {
    let log = Log::new();
    let setup = Setup::new(Kind::Fleet).own_broker(3).default_queue_type(default_queue_type).coordinators(2);
    let mut world = setup.start().await;
    world.add_worker(busy(&log)).await;
    world.add_worker(busy(&log)).await;
    for number in 0..COUNT / 2 {
        world.publish_until_confirmed("busy", &format!("b-{number}")).await;
    }
    log.grown(COUNT).await;
    let died = kill_leader(&mut world);
    let began = Instant::now();
    for number in COUNT / 2..COUNT {
        world.publish_until_confirmed("busy", &format!("b-{number}")).await;
    }
    println!("{default_queue_type}: a producer was done {:?} after node {died} had died", began.elapsed());
    while counted(&world) != (COUNT, 0) {
        if began.elapsed() > LIMIT {
            panic!(
                "of {COUNT} instances there are, and are open: {:?}; sessions: {}; queues:\n{}",
                counted(&world),
                world.sql("SELECT id, opened_at, heard_at, ended_at, everstep_clock() FROM session"),
                queues(&mut world, died),
            );
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("{default_queue_type}: all was over {:?} after node {died} had died", began.elapsed());
    let repeated = sound_runs(&log, COUNT).expect("nothing that was recorded is run again");
    println!("{default_queue_type}: {repeated} step runs repeated");
    for (what, sql) in UNSOUND {
        world.eventually(what, async || world.sql(sql) == "0").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w14_a_node_of_three_dies_and_quorum_queues_go_on_without_it() {
    a_node_of_three_dies("quorum").await;
}
