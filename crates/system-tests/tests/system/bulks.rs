//! Operations on many instances: rule P33. Not here: conditions and routes (the engine's and the coordinator's own tests).

use everstep::{Error, Registry, Step, Workflow};
use everstep_coordinator::BulkBegun;
use everstep_engine::bulk::{Act, Bulk, Progress, State, Statuses, Which};
use everstep_protocol::{InstanceId, Namespace};
use everstep_store::{BulkRow, StatusWord};
use everstep_system_tests::{World, on_both};

/// More than two pages.
const MANY: usize = 220;

fn sleeper() -> Registry {
    Registry::new().workflow_fn("sleeper", |cx: Workflow, (): ()| async move {
        cx.sleep("nap", "1 day").await?;
        Ok::<_, Error>(())
    })
}

fn id(text: &str) -> InstanceId {
    text.parse().expect("a valid id")
}

fn bulk(act: Act, status: Option<Statuses>) -> Bulk {
    let workflow = Some("sleeper".parse().expect("a valid name"));
    Bulk { act, which: Which { workflow, status, ..Which::default() } }
}

async fn begin(world: &World, name: &str, bulk: &Bulk) {
    let begun = world.handle().begin_bulk(&Namespace::default(), &id(name), bulk).await;
    assert!(matches!(begun, Ok(BulkBegun::Begun(_))), "{begun:?}");
}

async fn over(world: &World, name: &str) -> BulkRow {
    let row = async || {
        let row = world.store().bulk(&Namespace::default(), &id(name)).await.expect("the store answers");
        row.expect("it was begun")
    };
    world.eventually("the bulk operation is over", async || row().await.state != State::Running).await;
    row().await
}

async fn start(world: &World, count: usize) {
    for page in (0..count).collect::<Vec<_>>().chunks(100) {
        let requests = page.iter().map(|n| world.request("sleeper", Some(&format!("s-{n}")), &())).collect();
        world.handle().start_batch(requests).await.expect("they are started");
    }
}

on_both! {
    /// Its coordinator dies in the middle, and the next one goes on: each instance is operated once.
    async fn p33_a_bulk_operation_outlives_its_coordinator(setup) {
        let mut world = setup.start().await;
        start(&world, MANY).await;
        begin(&world, "restart", &bulk(Act::Restart, None)).await;
        let looked_at = async |world: &World| {
            let row = world.store().bulk(&Namespace::default(), &id("restart")).await.expect("the store answers");
            row.map_or(0, |row| row.progress.looked_at)
        };
        world.eventually("the first page is done", async || looked_at(&world).await > 0).await;
        world.crash_coordinator(0).await;
        world.add_coordinator().await;
        let row = over(&world, "restart").await;
        let all = MANY as u64;
        let expected = Progress { looked_at: all, matched: all, done: all, refused: 0 };
        assert_eq!((row.state, row.progress), (State::Done, expected));
        for n in 0..MANY {
            let view = world.view("sleeper", &format!("s-{n}")).await.expect("it exists");
            assert_eq!(view.run.0, 2, "s-{n} was restarted once");
        }
    }

    async fn p33_waiting_instances_are_paused_resumed_cancelled_and_deleted(setup) {
        let world = setup.serve(sleeper()).await;
        start(&world, 5).await;
        for n in 0..5 {
            world.until("sleeper", &format!("s-{n}"), "asleep", |view| view.status == StatusWord::Waiting).await;
        }
        let waiting = Some(Statuses::Only(StatusWord::Waiting));
        let counted = world.handle().count_bulk(&Namespace::default(), &bulk(Act::Pause, waiting)).await;
        let counted = counted.expect("they are counted");
        assert_eq!((counted.matched, counted.complete, counted.newest.len()), (5, true, 5));
        begin(&world, "pause", &bulk(Act::Pause, waiting)).await;
        assert_eq!(over(&world, "pause").await.progress.done, 5);
        // One that is created later is none of its business, and none of the next one's, which is about paused ones.
        world.begin("sleeper", "late", &()).await;
        world.until("sleeper", "late", "asleep", |view| view.status == StatusWord::Waiting).await;
        let paused = Some(Statuses::Only(StatusWord::Paused));
        begin(&world, "resume", &bulk(Act::Resume, paused)).await;
        assert_eq!(over(&world, "resume").await.progress, Progress { looked_at: 5, matched: 5, done: 5, refused: 0 });
        begin(&world, "cancel", &bulk(Act::Cancel { reason: None, within: None }, None)).await;
        assert_eq!(over(&world, "cancel").await.progress.done, 6, "what may not be open is not looked at");
        for n in 0..5 {
            world.end("sleeper", &format!("s-{n}")).await;
        }
        world.end("sleeper", "late").await;
        let cancelled = Some(Statuses::Only(StatusWord::Cancelled));
        begin(&world, "delete", &bulk(Act::Delete { terminate: false }, cancelled)).await;
        assert_eq!(over(&world, "delete").await.progress.done, 6);
        assert_eq!(world.view("sleeper", "s-0").await, None);
    }

    async fn p33_an_error_chooses_and_a_stop_stops(setup) {
        async fn fail(_: Step, name: String) -> Result<(), Error> {
            Err(Error::permanent("no").named(name))
        }
        let registry = Registry::new().workflow_fn("sleeper", |cx: Workflow, name: String| async move {
            cx.step("fail", name, fail).await
        });
        let world = setup.serve(registry).await;
        for (id, name) in [("a", "CardDeclined"), ("b", "OutOfStock"), ("c", "CardDeclined")] {
            world.begin("sleeper", id, name).await;
            world.end("sleeper", id).await;
        }
        let declined = |act| {
            let Bulk { act, which } = bulk(act, Some(Statuses::Only(StatusWord::Errored)));
            Bulk { act, which: Which { error: Some("CardDeclined".to_owned()), ..which } }
        };
        begin(&world, "restart", &declined(Act::Restart)).await;
        let row = over(&world, "restart").await;
        assert_eq!(row.progress, Progress { looked_at: 3, matched: 2, done: 2, refused: 0 });
        let runs = async |id: &str| world.view("sleeper", id).await.expect("it exists").run.0;
        assert_eq!([runs("a").await, runs("b").await, runs("c").await], [2, 1, 2]);
        let stopped = world.handle().stop_bulk(&Namespace::default(), &id("restart")).await.expect("it answers");
        assert_eq!(stopped.map(|row| row.state), Some(State::Done));
    }
}
