//! A broker that takes nothing, since its memory or its disk is short: rules W7 and W8. Producers wait, what runs goes on, nothing is
//! lost and nothing runs twice, no session and no lease ends by it, and it can be seen. On a RabbitMQ of its own.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use everstep_system_tests::{DEADLINE, Kind, Log, Setup, World, within};

use tokio::sync::Semaphore;

use crate::storms::{busy_behind, check, load};

/// A connection that is blocked for longer is made anew: several times in the time of an alarm here.
const BLOCKED_MAX: Duration = Duration::from_secs(2);
/// Three times the lease.
const ALARM: Duration = Duration::from_secs(9);
const COUNT: usize = 40;

/// The sum of a metric over its labels.
fn metric(world: &World, name: &str) -> f64 {
    let families = world.handle().metrics().gather();
    let of_name = families.iter().filter(|family| family.name() == name);
    let mut sum = 0.0;
    for family in of_name {
        for metric in family.get_metric() {
            sum += metric.get_counter().get_value() + metric.get_gauge().get_value();
        }
    }
    sum
}

async fn under_an_alarm(raise: &[&str], lower: &[&str]) {
    let log = Log::new();
    let setup = Setup::new(Kind::Fleet).own_broker(1).blocked_max(BLOCKED_MAX);
    let gate = Arc::new(Semaphore::new(0));
    let mut world = setup.serve(busy_behind(&log, &gate)).await;
    load(&world, COUNT).await;
    world.until("busy", "b-0", "somebody works on it", |view| view.holder.is_some()).await;

    ctl(&mut world, raise);
    // Steps that run go on and end; that they have is told later.
    gate.add_permits(Semaphore::MAX_PERMITS);
    log.grown(1).await;
    world.eventually("it is seen", async || world.handle().missing() == ["the broker takes nothing"]).await;
    world.eventually("it is measured", async || metric(&world, "everstep_broker_blocked") > 0.0).await;
    let findings = format!("{:?}", world.handle().diagnose().await);
    assert!(findings.contains("alarm"), "{findings}");

    // A start over the API is committed; one over the broker waits.
    world.begin("busy", &format!("b-{COUNT}"), &()).await;
    let waiting = format!("b-{}", COUNT + 1);
    let began = Instant::now();
    tokio::select! {
        () = world.publish_until_confirmed("busy", &waiting) => panic!("a broker that takes nothing has confirmed"),
        () = tokio::time::sleep(ALARM) => {}
    }
    assert!(world.view("busy", &waiting).await.is_none(), "nobody has it");
    assert!(world.ends().is_empty(), "what is to be told is told later");
    assert_eq!(world.sql("SELECT count(*) FROM session WHERE ended_at IS NOT NULL"), "0");

    ctl(&mut world, lower);
    within("the producer's message is taken", DEADLINE, world.publish_until_confirmed("busy", &waiting))
        .await;
    println!("taken after {:?}", began.elapsed());
    check(&world, &log, COUNT + 2).await;
    assert_eq!(log.lines().len(), 4 * (COUNT + 2), "nothing ran twice");
    assert_eq!(world.sql("SELECT count(*) FROM session WHERE ended_at IS NOT NULL"), "0");
    let ended =
        ["everstep_sessions_ended_total", "everstep_leases_lost_total"].map(|name| metric(&world, name));
    assert!(ended.iter().all(|count| *count < 1.0), "sessions and leases that ended: {ended:?}");
    world.eventually("all is well", async || world.handle().missing().is_empty()).await;
    world.eventually("it is measured", async || metric(&world, "everstep_broker_blocked") < 1.0).await;
}

fn ctl(world: &mut World, arguments: &[&str]) {
    let node = &world.nodes()[0];
    tokio::task::block_in_place(|| node.ctl(arguments)).expect("the broker does as it is told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w08_a_memory_alarm_ends_nothing_and_loses_nothing() {
    let raise = ["set_vm_memory_high_watermark", "0.000001"];
    under_an_alarm(&raise, &["set_vm_memory_high_watermark", "0.6"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w08_a_disk_alarm_ends_nothing_and_loses_nothing() {
    under_an_alarm(&["set_disk_free_limit", "1000000GB"], &["set_disk_free_limit", "50MB"]).await;
}
