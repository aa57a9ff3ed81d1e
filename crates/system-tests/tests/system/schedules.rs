//! Schedules on whole systems: one start for each due time, whoever dies (rules S5, S8, S10). Not here: what becomes of a due time (the engine's
//! tests), routes (the coordinator's).

use std::collections::HashSet;

use everstep::{Error, Registry, Workflow};
use everstep_coordinator::{BackfillRequest, OfSchedule};
use everstep_engine::schedule::{CatchUp, Definition, Overlap, When, Which};
use everstep_protocol::{Millis, Namespace, ScheduleId, Timestamp};
use everstep_store::{Filter, ScheduleRow};
use everstep_system_tests::{Kind, Setup, World, on_both};

fn id(text: &str) -> ScheduleId {
    text.parse().expect("a valid id")
}

fn reports() -> Registry {
    Registry::new().workflow_fn("report", |cx: Workflow, n: u32| async move {
        if n > 0 {
            cx.sleep("a while", "1 day").await?;
        }
        Ok::<_, Error>(n)
    })
}

/// Each second; what was missed is made up for.
fn each_second(n: u32) -> Definition {
    Definition {
        overlap: Overlap::Allow,
        catch_up: CatchUp { which: Which::All, within: Millis::from_secs(3_600) },
        ..Definition::starts("report", &n, When::every(Millis::from_secs(1))).expect("it is good")
    }
}

async fn put(world: &World, name: &str, definition: &Definition) {
    let (namespace, id) = (Namespace::default(), id(name));
    let of = OfSchedule { namespace: &namespace, id: &id, by: None };
    world.handle().put_schedule(of, definition).await.expect("it is created");
}

async fn row(world: &World, name: &str) -> ScheduleRow {
    let found = world.store().schedule(&Namespace::default(), &id(name)).await.expect("the store answers");
    found.what.expect("it is there")
}

/// The ids of all instances of the workflow.
async fn instances(world: &World) -> Vec<String> {
    let (mut cursor, mut ids) = (None, Vec::new());
    loop {
        let filter = Filter { workflow: Some("report".parse().expect("a valid name")), ..Filter::default() };
        let page = world.store().instances(&filter, cursor.as_ref(), 200).await.expect("the store answers");
        ids.extend(page.rows.iter().map(|row| row.id.to_string()));
        cursor = page.next;
        if cursor.is_none() {
            return ids;
        }
    }
}

on_both! {
    /// Coordinators die and come; each second has its instance, and just one.
    async fn s05_each_due_time_is_started_once_whoever_dies(setup) {
        let mut world = setup.serve(reports()).await;
        put(&world, "ticks", &each_second(0)).await;
        let started = async |world: &World| row(world, "ticks").await.state.counts.started;
        for round in 0..2 {
            let before = started(&world).await;
            world.eventually("it goes on", async || started(&world).await > before).await;
            world.crash_coordinator(round).await;
            world.add_coordinator().await;
        }
        let before = started(&world).await;
        world.eventually("it goes on", async || started(&world).await > before + 1).await;
        let handle = world.handle();
        let (namespace, ticks) = (Namespace::default(), id("ticks"));
        let of = OfSchedule { namespace: &namespace, id: &ticks, by: None };
        handle.pause_schedule(of, None).await.expect("it is paused");
        world.eventually("nothing is pending", async || row(&world, "ticks").await.state.pending.is_empty()).await;
        let stands = row(&world, "ticks").await;
        let first = stands.created_at.0.div_euclid(1_000_000) + 1;
        let last = stands.state.settled.0.div_euclid(1_000_000);
        let expected: HashSet<String> = (first..=last)
            .map(|second| everstep_engine::schedule::instance_id(&ticks, Timestamp(second * 1_000_000)).to_string())
            .collect();
        let found = instances(&world).await;
        assert_eq!(found.iter().cloned().collect::<HashSet<_>>(), expected);
        assert_eq!(found.len(), expected.len(), "none is there twice");
        world.ends().count(expected.len()).await;
        assert_eq!(world.ends().doubled(), [], "and each has run once");
    }

    async fn s08_one_that_is_cancelled_makes_way_for_the_next(setup) {
        let world = setup.serve(reports()).await;
        let definition = Definition { overlap: Overlap::CancelOther, limit: Some(2), ..each_second(1) };
        put(&world, "ticks", &definition).await;
        world.eventually("the second is started", async || row(&world, "ticks").await.state.counts.started == 2).await;
        let stands = row(&world, "ticks").await.state;
        let ended: Vec<String> = world.ends().all().iter().map(|end| end.status.clone()).collect();
        assert_eq!((ended, stands.open.len()), (vec!["cancelled".to_owned()], 1));
    }

    /// What was started and not noted, since its coordinator died in between, is found again and noted once.
    async fn s05_what_is_pending_is_started_by_whoever_comes_next(setup) {
        let world = setup.serve(reports()).await;
        put(&world, "once", &Definition { when: When::every(Millis::from_secs(86_400)), ..each_second(0) }).await;
        let (namespace, once) = (Namespace::default(), id("once"));
        let of = OfSchedule { namespace: &namespace, id: &once, by: None };
        let span = BackfillRequest {
            operation: "op".to_owned(),
            from: Timestamp(0),
            until: Timestamp(30 * 86_400 * 1_000_000),
            beside: Some(true),
        };
        world.handle().backfill_schedule(of, &span).await.expect("it is begun").expect("it is there");
        world.eventually("all are started", async || {
            let counts = row(&world, "once").await.state.counts;
            counts.started + counts.existed == 30
        }).await;
        assert_eq!(instances(&world).await.len(), 30);
    }
}

/// Three coordinators on one database, of which each believes that it has the duty: the row is written by one, the instance made once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s05_several_coordinators_start_each_due_time_once() {
    let world = Setup::new(Kind::Fleet).coordinators(3).serve(reports()).await;
    for nth in 0..20 {
        put(&world, &format!("s-{nth}"), &Definition { limit: Some(3), ..each_second(0) }).await;
    }
    world
        .eventually("all have had their three", async || {
            let rows = world
                .store()
                .schedules(&Namespace::default(), None, 100)
                .await
                .expect("the store answers")
                .what;
            let done = |row: &ScheduleRow| row.state.counts.started + row.state.counts.existed == 3;
            rows.iter().all(|row| done(row) && row.state.pending.is_empty())
        })
        .await;
    let found = instances(&world).await;
    assert_eq!((found.iter().collect::<HashSet<_>>().len(), found.len()), (60, 60));
    world.ends().count(60).await;
    assert_eq!(world.ends().doubled(), []);
}

/// A thousand schedules are due at the same second: each is started, and other work goes on meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s10_many_that_are_due_at_once_are_started_in_pages_and_do_not_hold_up_the_loop() {
    const MANY: usize = 1_000;
    let world = Setup::new(Kind::Embedded).serve(reports()).await;
    let now =
        world.store().schedule(&Namespace::default(), &id("none")).await.expect("the store answers").now;
    let at = Timestamp((now.0 / 1_000_000 + 15) * 1_000_000);
    let definition = Definition { when: When::At { at }, ..each_second(0) };
    let handle = world.handle();
    let namespace = Namespace::default();
    for page in (0..MANY).collect::<Vec<_>>().chunks(100) {
        let puts = page.iter().map(async |nth| {
            let id = id(&format!("s-{nth}"));
            handle
                .put_schedule(OfSchedule { namespace: &namespace, id: &id, by: None }, &definition)
                .await
                .map(drop)
        });
        futures::future::try_join_all(puts).await.expect("they are created");
    }
    world.eventually("the first are started", async || !instances(&world).await.is_empty()).await;
    world.begin("report", "beside", &0).await;
    world.end("report", "beside").await;
    world.ends().count(MANY + 1).await;
    assert_eq!((instances(&world).await.len(), world.ends().doubled()), (MANY + 1, vec![]));
}
