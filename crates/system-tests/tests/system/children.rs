//! Children, results and events between instances on whole systems: rules P36 and W22, cascades of P30 to P32. Not here: what
//! each letter does (the engine's tests).

use everstep::{Error, Registry, Retry, Step, Workflow};
use everstep_engine::{Answer, rows::WaitKind};
use everstep_protocol::{Millis, journal::Fact};
use everstep_store::StatusWord;
use everstep_system_tests::{Gate, Kind, Log, Setup, World, on_both, world::name};

/// `sum` adds up what `square` makes of each number; each square is noted, and passes a gate.
fn family(log: &Log, gate: &Gate) -> Registry {
    let (log, gate) = (log.clone(), gate.clone());
    Registry::new()
        .workflow_fn("sum", |cx: Workflow, numbers: Vec<u64>| async move {
            let squares = numbers.iter().map(|n| cx.child::<u64>("square", "square", n));
            let squares = futures::future::try_join_all(squares).await?;
            Ok::<_, Error>(squares.iter().sum::<u64>())
        })
        .workflow_fn("square", move |cx: Workflow, n: u64| {
            let (log, gate) = (log.clone(), gate.clone());
            async move {
                let square = move |_: Step, n: u64| {
                    let (log, gate) = (log.clone(), gate.clone());
                    async move {
                        log.push("square");
                        gate.pass().await;
                        Ok::<_, Error>(n * n)
                    }
                };
                cx.step("square", n, square).retry(Retry::constant("20ms").limit(50)).await
            }
        })
        .workflow_fn("sleeper", |cx: Workflow, (): ()| async move {
            cx.child::<()>("nap", "nap", ()).id("nap-1").await
        })
        .workflow_fn("loose", |cx: Workflow, (): ()| async move {
            cx.child::<()>("nap", "nap", ()).id("nap-2").detached().await
        })
        .workflow_fn("nap", |cx: Workflow, (): ()| async move { cx.sleep("nap", "1 day").await })
}

fn open() -> Gate {
    let gate = Gate::closed();
    gate.open();
    gate
}

async fn children(world: &World, workflow: &str, id: &str) -> Vec<(String, String)> {
    let view = world.view(workflow, id).await.expect("it exists");
    let child =
        |child: &everstep_store::ChildView| (child.name.workflow.to_string(), child.name.id.to_string());
    view.children.iter().map(child).collect()
}

/// Waits until an instance has so many children, and gives their ids.
async fn until_children(world: &World, workflow: &str, id: &str, count: usize) -> Vec<String> {
    world
        .eventually("it has its children", async || children(world, workflow, id).await.len() >= count)
        .await;
    children(world, workflow, id).await.into_iter().map(|(_, id)| id).collect()
}

/// The parent waits for the child that bears this id, which exists.
async fn sleeps(world: &World, workflow: &str, child: &str) {
    world.begin(workflow, "p", &()).await;
    world.until("nap", child, "it sleeps", |view| view.status == StatusWord::Waiting).await;
    world.until(workflow, "p", "it waits", |view| view.status == StatusWord::Waiting).await;
}

on_both! {
    async fn p36_a_parent_gets_the_results_of_its_children_and_holds_nothing(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        // With room for one instance, a parent that held its worker would never see its children run.
        let setup = setup.worker(|settings| settings.instances = 1);
        let world = setup.serve(family(&log, &gate)).await;
        world.begin("sum", "one", &[1, 2, 3]).await;
        log.reached("square", 1).await;
        let waits = |view: &everstep_store::InstanceView| {
            view.status == StatusWord::Waiting && view.waiting.iter().all(|wait| wait.kind == WaitKind::Instance)
        };
        world.until("sum", "one", "it waits for its children", waits).await;
        let born = children(&world, "sum", "one").await;
        assert_eq!(born.len(), 3);
        let child = world.until("square", &born[0].1, "it is born", |view| view.parent.is_some()).await;
        assert_eq!(child.parent.map(|parent| parent.name.id.to_string()).as_deref(), Some("one"));
        gate.open();
        assert_eq!(world.end("sum", "one").await.output::<u64>(), 14);
        assert_eq!(log.count("square"), 3);
    }

    async fn w22_what_a_dead_coordinator_left_is_carried_by_the_next(setup) {
        let (log, gate) = (Log::new(), open());
        let mut world = setup.serve(family(&log, &gate)).await;
        // Coordinators die at any moment: between a parent's commit and its child's start, between a child's end and its parent.
        let mut coordinator = 0;
        for round in 0..6 {
            for n in 0..5 {
                world.begin("sum", &format!("{round}-{n}"), &[1, 2, 3, 4]).await;
            }
            log.grown(round * 5 + 1).await;
            world.crash_coordinator(coordinator).await;
            coordinator = world.add_coordinator().await;
        }
        for round in 0..6 {
            for n in 0..5 {
                let id = format!("{round}-{n}");
                assert_eq!(world.end("sum", &id).await.output::<u64>(), 30, "{id}");
                assert_eq!(children(&world, "sum", &id).await.len(), 4, "{id}");
            }
        }
        let store = world.store();
        world.eventually("no letter is left", async || {
            store.letters(0, 10).await.expect("it reads").letters.is_empty()
        }).await;
    }

    async fn w22_children_survive_deaths_of_workers_and_purges(setup) {
        let (log, gate) = (Log::new(), open());
        let mut world = setup.serve(family(&log, &gate)).await;
        let mut worker = 0;
        for round in 0..4 {
            for n in 0..5 {
                world.begin("sum", &format!("{round}-{n}"), &[1, 2, 3]).await;
            }
            world.purge();
            world.crash_worker(worker).await;
            worker = world.add_worker(family(&log, &gate)).await;
            world.purge();
        }
        for round in 0..4 {
            for n in 0..5 {
                assert_eq!(world.end("sum", &format!("{round}-{n}")).await.output::<u64>(), 14);
            }
        }
    }

    async fn p30_terminate_and_cancel_reach_attached_children_only(setup) {
        let world = setup.serve(family(&Log::new(), &Gate::closed())).await;
        sleeps(&world, "sleeper", "nap-1").await;
        sleeps(&world, "loose", "nap-2").await;
        for workflow in ["sleeper", "loose"] {
            assert_eq!(world.terminate(workflow, "p", "o").await, Answer::Done);
        }
        assert_eq!(world.end("nap", "nap-1").await.status, "terminated");
        let spared = world.view("nap", "nap-2").await.expect("it exists");
        assert_eq!(spared.status, StatusWord::Waiting, "a detached child stays");
        // A cancel: the child ends by itself.
        world.handle().delete(name("nap", "nap-1"), "d1".to_owned(), false).await.expect("it is decided");
        world.handle().delete(name("sleeper", "p"), "d2".to_owned(), false).await.expect("it is decided");
        sleeps(&world, "sleeper", "nap-1").await;
        let within = Some(Millis(60_000));
        world.handle().cancel(name("sleeper", "p"), "c".to_owned(), None, within).await.expect("it is decided");
        let cancelled = |view: &everstep_store::InstanceView| view.status == StatusWord::Cancelled;
        world.until("nap", "nap-1", "it is cancelled", cancelled).await;
        world.until("sleeper", "p", "it is cancelled", cancelled).await;
    }

    async fn p31_p32_restart_and_delete_end_attached_children(setup) {
        let world = setup.serve(family(&Log::new(), &Gate::closed())).await;
        world.begin("sum", "r", &[1]).await;
        let first = until_children(&world, "sum", "r", 1).await.remove(0);
        world.handle().restart(name("sum", "r"), "r".to_owned(), None).await.expect("it is decided");
        let terminated = |view: &everstep_store::InstanceView| view.status == StatusWord::Terminated;
        world.until("square", &first, "the child of the earlier run is over", terminated).await;
        let second = until_children(&world, "sum", "r", 2).await;
        assert!(second.iter().any(|child| *child != first), "the new run has a child of its own: {second:?}");
        world.handle().delete(name("sum", "r"), "d".to_owned(), true).await.expect("it is decided");
        for child in second {
            world.until("square", &child, "it is terminated with its parent", terminated).await;
        }
    }

    async fn p36_events_and_results_between_instances(setup) {
        let registry = Registry::new()
            .workflow_fn("asker", |cx: Workflow, (): ()| async move {
                let other = cx.instance("answerer", "a");
                for n in 0..10_u64 {
                    other.send("n", n).await?;
                }
                let refused = cx.instance("answerer", "nobody").send("n", 1).await.expect_err("nobody is there");
                let sum: u64 = other.result().await?;
                let late = other.send("n", 1).await.expect_err("it has ended");
                Ok::<_, Error>((sum, refused.name().to_owned(), late.name().to_owned()))
            })
            .workflow_fn("answerer", |cx: Workflow, (): ()| async move {
                let mut got = Vec::new();
                for _ in 0..10 {
                    got.push(cx.event::<u64>("n").timeout("1 min").await?);
                }
                assert_eq!(got, (0..10).collect::<Vec<_>>(), "in the order in which they were sent");
                Ok::<_, Error>(got.iter().sum::<u64>())
            });
        let world = setup.serve(registry).await;
        world.begin("answerer", "a", &()).await;
        world.begin("asker", "q", &()).await;
        let expected = (45, "InstanceNotFound".to_owned(), "InstanceEnded".to_owned());
        assert_eq!(world.end("asker", "q").await.output::<(u64, String, String)>(), expected);
        let journal = world.journal("answerer", "a").await;
        assert_eq!(journal.iter().filter(|entry| matches!(entry.fact, Fact::Delivered(_))).count(), 10);
    }

    async fn p36_a_child_of_a_workflow_that_nobody_serves_waits_visibly(setup) {
        let parent = Registry::new().workflow_fn("parent", |cx: Workflow, (): ()| async move {
            cx.child::<u64>("c", "later", ()).id("c-1").await
        });
        let mut world = setup.serve(parent).await;
        world.begin("parent", "p", &()).await;
        let unserved = |view: &everstep_store::InstanceView| view.status == StatusWord::Queued && !view.served;
        world.until("later", "c-1", "nobody serves it", unserved).await;
        let late = Registry::new().workflow_fn("later", |_: Workflow, (): ()| async move { Ok::<_, Error>(7_u64) });
        world.add_worker(late).await;
        assert_eq!(world.end("parent", "p").await.output::<u64>(), 7);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p36_two_coordinators_start_each_child_once() {
    let (log, gate) = (Log::new(), open());
    let world = Setup::new(Kind::Fleet).coordinators(2).serve(family(&log, &gate)).await;
    for n in 0..10 {
        world.begin("sum", &n.to_string(), &[1, 2, 3, 4, 5]).await;
    }
    for n in 0..10 {
        assert_eq!(world.end("sum", &n.to_string()).await.output::<u64>(), 55);
        assert_eq!(children(&world, "sum", &n.to_string()).await.len(), 5);
    }
    assert_eq!(log.count("square"), 50, "each child ran once");
}
