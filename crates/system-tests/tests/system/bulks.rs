//! Operations on many instances: rule P33. Not here: conditions and routes (the engine's and the coordinator's own tests).

use std::future::{Ready, ready};

use everstep::{Error, Registry, Step, Undo, Workflow};
use everstep_coordinator::{BulkBegun, Each};
use everstep_engine::bulk::{Act, Again, Bulk, Progress, State, Statuses, Which};
use everstep_protocol::{Attribute, Call, CallKind, InstanceId, Namespace, WorkflowName};
use everstep_store::{BulkRow, StatusWord};
use everstep_system_tests::{Log, World, on_both};

/// More than two pages.
const MANY: usize = 220;
const RESTART: Act = Act::Restart { how: Again::Whole };

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

/// A step or compensation that notes itself.
fn noting<T>(
    log: &Log,
    word: &'static str,
) -> impl Fn(Step, T) -> Ready<Result<(), Error>> + Send + Sync + use<T> {
    let log = log.clone();
    move |step, _| {
        log.push(format!("{word} {}", step.instance_id()));
        ready(Ok(()))
    }
}

/// Two steps that note themselves, the first with a compensation; then it waits, unless it is told otherwise.
fn worker(log: &Log) -> Registry {
    let log = log.clone();
    Registry::new().workflow_fn("sleeper", move |cx: Workflow, wait: bool| {
        let log = log.clone();
        async move {
            cx.step("reserve", (), noting::<()>(&log, "reserve"))
                .compensate(noting::<Undo<(), ()>>(&log, "release"))
                .await?;
            cx.step("charge", (), noting::<()>(&log, "charge")).await?;
            if wait {
                cx.sleep("nap", "1 day").await?;
            }
            Ok::<_, Error>(())
        }
    })
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
        begin(&world, "restart", &bulk(RESTART, None)).await;
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
        begin(&world, "cancel", &bulk(Act::Cancel { reason: None, within: None, rollback: false }, None)).await;
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
        begin(&world, "restart", &declined(RESTART)).await;
        let row = over(&world, "restart").await;
        assert_eq!(row.progress, Progress { looked_at: 3, matched: 2, done: 2, refused: 0 });
        let runs = async |id: &str| world.view("sleeper", id).await.expect("it exists").run.0;
        assert_eq!([runs("a").await, runs("b").await, runs("c").await], [2, 1, 2]);
        let stopped = world.handle().stop_bulk(&Namespace::default(), &id("restart")).await.expect("it answers");
        assert_eq!(stopped.map(|row| row.state), Some(State::Done));
    }

    async fn p33_attributes_choose(setup) {
        let world = setup.serve(sleeper()).await;
        for (id, words) in [("a", vec!["region=eu", "vip=true"]), ("b", vec!["region=eu"]), ("c", vec!["vip=true"])] {
            let attributes = words.iter().map(|words| Attribute::from_words(words).expect("an attribute")).collect();
            let request = world.request("sleeper", Some(id), &());
            let request = everstep_coordinator::StartRequest { attributes, ..request };
            world.handle().start(request).await.expect("it is started");
        }
        let both = ["region=eu", "vip=true"].map(|words| Attribute::from_words(words).expect("an attribute"));
        let chosen = |act: Act, status| {
            let Bulk { act, which } = bulk(act, status);
            Bulk { act, which: Which { attributes: both.to_vec(), ..which } }
        };
        let terminate = chosen(Act::Terminate { reason: None, rollback: false }, None);
        let counted = world.handle().count_bulk(&Namespace::default(), &terminate).await.expect("they are counted");
        assert_eq!((counted.matched, counted.newest[0].id.as_str()), (1, "a"));
        begin(&world, "terminate", &terminate).await;
        assert_eq!(over(&world, "terminate").await.progress, Progress { looked_at: 1, matched: 1, done: 1, refused: 0 });
        let terminated = Some(Statuses::Only(StatusWord::Terminated));
        begin(&world, "restart", &chosen(RESTART, terminated)).await;
        assert_eq!(over(&world, "restart").await.progress.done, 1);
        assert_eq!(world.view("sleeper", "a").await.expect("it exists").run.0, 2);
    }

    /// One that never came to the step is refused, and holds the others up in nothing.
    async fn p31_p33_many_are_run_again_from_a_step_or_with_the_outputs_of_before(setup) {
        let log = Log::new();
        let world = setup.serve(worker(&log)).await;
        for id in ["a", "b"] {
            world.begin("sleeper", id, &false).await;
            world.end("sleeper", id).await;
        }
        world.begin("unserved", "x", &false).await;
        let charge = Call { kind: CallKind::Step, name: "charge".parse().expect("a name"), count: 1 };
        let from = Act::Restart { how: Again::From(charge) };
        begin(&world, "from", &bulk(from.clone(), None)).await;
        assert_eq!(over(&world, "from").await.progress, Progress { looked_at: 2, matched: 2, done: 2, refused: 0 });
        log.reached("charge a", 2).await;
        log.reached("charge b", 2).await;
        assert_eq!((log.count("reserve a"), log.count("reserve b")), (1, 1));
        for id in ["a", "b"] {
            world.until("sleeper", id, "over", |view| view.run.0 == 2 && view.ended_at.is_some()).await;
        }
        begin(&world, "reuse", &bulk(Act::Restart { how: Again::Reuse }, None)).await;
        assert_eq!(over(&world, "reuse").await.progress.done, 2);
        for id in ["a", "b"] {
            world.until("sleeper", id, "over", |view| view.run.0 == 3 && view.ended_at.is_some()).await;
        }
        assert_eq!((log.count("reserve a"), log.count("charge b")), (1, 2), "outputs were taken over");
        let which = Which { workflow: Some("unserved".parse().expect("a name")), ..Which::default() };
        begin(&world, "refused", &Bulk { act: from, which }).await;
        assert_eq!(over(&world, "refused").await.progress, Progress { looked_at: 1, matched: 1, done: 0, refused: 1 });
    }

    async fn p33_p38_many_are_rolled_back(setup) {
        let log = Log::new();
        let world = setup.serve(worker(&log)).await;
        for id in ["a", "b"] {
            world.begin("sleeper", id, &true).await;
            world.until("sleeper", id, "asleep", |view| view.status == StatusWord::Waiting).await;
        }
        let roll_back = Act::Terminate { reason: Some("recalled".to_owned()), rollback: true };
        begin(&world, "rollback", &bulk(roll_back, None)).await;
        assert_eq!(over(&world, "rollback").await.progress.done, 2);
        for id in ["a", "b"] {
            assert_eq!(world.end("sleeper", id).await.status, "terminated");
            assert_eq!(log.count(&format!("release {id}")), 1);
        }
        world.begin("sleeper", "c", &true).await;
        world.until("sleeper", "c", "asleep", |view| view.status == StatusWord::Waiting).await;
        begin(&world, "cancel", &bulk(Act::Cancel { reason: None, within: None, rollback: true }, None)).await;
        assert_eq!(world.end("sleeper", "c").await.status, "cancelled");
        assert_eq!(log.count("release c"), 1);
    }

    /// A list is answered in its order: what is there twice is told twice and done once, and the same key again is the same answer.
    async fn p33_a_list_of_ids_has_an_outcome_each(setup) {
        let world = setup.serve(sleeper()).await;
        for id in ["a", "b"] {
            world.begin("sleeper", id, &()).await;
        }
        let workflow: WorkflowName = "sleeper".parse().expect("a name");
        let operate = async |key: &str, ids: &[&str], act: Act| {
            let ids: Vec<InstanceId> = ids.iter().map(|text| id(text)).collect();
            world.handle().operate_each(&Namespace::default(), &workflow, &ids, key, &act).await.expect("it is answered")
        };
        let restarted = operate("one", &["a", "nobody", "a", "b"], RESTART).await;
        assert_eq!(restarted, [Each::Done, Each::NotFound, Each::Done, Each::Done]);
        assert_eq!(operate("one", &["a"], RESTART).await, [Each::Done], "it was done");
        assert_eq!(world.view("sleeper", "a").await.expect("it exists").run.0, 2, "once");
        let terminate = Act::Terminate { reason: None, rollback: false };
        assert_eq!(operate("two", &["b"], terminate.clone()).await, [Each::Done]);
        let mixed = operate("three", &["a", "b"], terminate).await;
        assert_eq!(mixed, [Each::Done, Each::NotAllowed { status: "terminated" }]);
        assert_eq!(operate("four", &["b"], Act::Retry).await, [Each::NotAllowed { status: "terminated" }]);
        let nothing = Call { kind: CallKind::Step, name: "nothing".parse().expect("a name"), count: 1 };
        let from = operate("five", &["a"], Act::Restart { how: Again::From(nothing) }).await;
        assert!(matches!(&from[..], [Each::Refused { reason }] if reason.contains("has not called")), "{from:?}");
    }
}
