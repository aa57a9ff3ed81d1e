//! Somebody else in the database, with a transaction that takes long: promise 5. What it has locked waits for it, and nothing else does.

use std::{process::Command, time::Duration};

use everstep::{Error, Registry, Workflow};
use everstep_broker::Properties;
use everstep_system_tests::{DEADLINE, Kind, Log, Setup, World, within};
use everstep_testbed::Process;

use crate::storms::{busy, load};

const COUNT: usize = 40;
/// Longer than all that others do meanwhile, on a slow machine too; it is ended by hand.
const LONG: u32 = 120;

fn waits() -> Registry {
    Registry::new().workflow_fn("waits", |cx: Workflow, (): ()| async move {
        cx.event::<u64>("go").await?;
        Ok::<_, Error>(())
    })
}

/// A transaction that has locked an instance's head, and has a snapshot of everything.
async fn lock(world: &World, id: &str) -> Process {
    let sql = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM journal; \
         SELECT id FROM instance WHERE name = '{id}' FOR UPDATE; SELECT pg_sleep({LONG}); COMMIT"
    );
    let mut psql = Command::new("psql");
    psql.args(["-X", "-q", "-A", "-t", "-c", &sql, world.urls().0]);
    let process = Process::spawn("psql", &mut psql).expect("psql is there");
    let asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND wait_event = 'PgSleep'";
    world.eventually("it sleeps with its locks", async || world.sql(asked) == "1").await;
    process
}

async fn tell(world: &World, id: &str) {
    let body = format!(r#"{{"workflow":"waits","id":"{id}","type":"go","payload":1}}"#);
    let properties = Properties { message_id: Some(format!("go-{id}")), ..Properties::default() };
    world.publish_event(body, properties).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promise_5_a_long_transaction_of_somebody_else_holds_up_what_it_has_locked_alone() {
    let log = Log::new();
    let mut world = Setup::new(Kind::Fleet).start().await;
    world.add_worker(busy(&log)).await;
    world.add_worker(waits()).await;
    for id in ["locked", "free"] {
        world.begin("waits", id, &()).await;
        world.until("waits", id, "it waits", |view| view.waits == 1).await;
    }
    let mut stranger = lock(&world, "locked").await;
    // An event of what is locked first: those of others do not wait behind it.
    tell(&world, "locked").await;
    tell(&world, "free").await;
    load(&world, COUNT).await;
    world.end("waits", "free").await.output::<()>();
    within("all others end", DEADLINE, world.ends().count(COUNT + 1)).await;
    assert!(stranger.wait(Duration::ZERO).is_err(), "it is still there");
    let view = world.view("waits", "locked").await.expect("it exists");
    assert!(view.ended_at.is_none(), "what is locked waits: {view:?}");
    world.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'");
    drop(stranger);
    world.end("waits", "locked").await.output::<()>();
    check_busy(&world, &log);
}

/// The ends of others are no part of the load.
fn check_busy(world: &World, log: &Log) {
    let ended = world.ends().all().into_iter().filter(|end| end.workflow == "busy").count();
    assert_eq!(ended, COUNT);
    assert_eq!(log.lines().len(), 4 * COUNT, "nothing ran twice");
    assert!(world.ends().doubled().is_empty());
}
