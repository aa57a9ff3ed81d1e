//! Everything dies and is started again, and nobody is asked to do anything.

use everstep::{Error, Millis, Registry, Retry, Step, Workflow};
use everstep_conformance::{failing, noting};
use everstep_engine::Answer;
use everstep_store::{InstanceView, StatusWord};
use everstep_system_tests::{Gate, Log, World, on_both, world::name};
use futures::future::BoxFuture;

/// A step, a wait for an event or a sleep, a step.
fn waits(log: &Log) -> Registry {
    let log = log.clone();
    Registry::new().workflow_fn("waits", move |cx: Workflow, sleep: Option<u64>| {
        let log = log.clone();
        async move {
            cx.step("before", (), noting(&log, ())).await?;
            let got = match sleep {
                Some(millis) => cx.sleep("nap", millis).await.map(|()| 0)?,
                None => cx.event::<u64>("go").await?,
            };
            cx.step("after", (), noting(&log, got)).await
        }
    })
}

async fn is_waiting(world: &World, workflow: &str, id: &str) -> InstanceView {
    world.until(workflow, id, "it waits", |view| view.status == StatusWord::Waiting).await
}

/// Coordinator and worker die; another pair comes.
async fn all_die(world: &mut World, worker: usize, registry: Registry) -> usize {
    world.crash_worker(worker).await;
    world.crash_coordinator(world.coordinators_made() - 1).await;
    world.add_coordinator().await;
    world.add_worker(registry).await
}

/// A step that notes its name and then waits for the gate.
fn behind<T>(
    log: &Log,
    gate: &Gate,
    name: &'static str,
) -> impl Fn(Step, T) -> BoxFuture<'static, Result<(), Error>> + use<T> {
    let (log, gate) = (log.clone(), gate.clone());
    move |_, _| {
        let (log, gate) = (log.clone(), gate.clone());
        Box::pin(async move {
            log.push(name);
            gate.pass().await;
            Ok(())
        })
    }
}

on_both! {
    async fn b008_an_event_sent_after_everything_died_wakes_what_waited_for_it(setup) {
        let log = Log::new();
        let mut world = setup.serve(waits(&log)).await;
        world.begin("waits", "one", &None::<u64>).await;
        is_waiting(&world, "waits", "one").await;
        world.crash_worker(0).await;
        world.crash_coordinator(0).await;
        world.add_coordinator().await;
        assert_eq!(world.send("waits", "one", ("1", "go"), &7_u64).await, Answer::Done);
        world.add_worker(waits(&log)).await;
        assert_eq!(world.end("waits", "one").await.output::<u64>(), 7);
        assert_eq!(log.lines(), ["before 1", "after 1"]);
    }

    async fn b010_t37_what_slept_is_as_it_was_and_wakes_by_itself_and_not_early(setup) {
        let log = Log::new();
        let mut world = setup.serve(waits(&log)).await;
        world.begin("waits", "one", &Some(2_500_u64)).await;
        let before = is_waiting(&world, "waits", "one").await;
        all_die(&mut world, 0, waits(&log)).await;
        let after = world.view("waits", "one").await.expect("it is kept");
        assert_eq!(
            (after.uid, after.status, after.created_at, after.position, &after.waiting),
            (before.uid, before.status, before.created_at, before.position, &before.waiting)
        );
        world.end("waits", "one").await.output::<u64>();
        let journal = world.journal("waits", "one").await;
        let fired = journal.iter().find(|entry| entry.fact.word() == "fired").expect("it woke").at;
        assert!(fired >= before.waiting[0].due_at.expect("it has a time"), "not before its time");
        assert_eq!(log.lines(), ["before 1", "after 1"]);
    }

    async fn t38_a_step_that_ran_when_everything_died_runs_again_and_the_instance_ends(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let registry = || {
            let (log, gate) = (log.clone(), gate.clone());
            Registry::new().workflow_fn("slow", move |cx: Workflow, (): ()| {
                let (log, gate) = (log.clone(), gate.clone());
                async move {
                    let held = log.clone();
                    cx.step("first", (), noting(&log, ())).await?;
                    let slow = cx.step("slow", (), move |step: Step, (): ()| {
                        let (log, gate) = (held.clone(), gate.clone());
                        async move {
                            log.push(format!("slow {}", step.attempt()));
                            gate.pass().await;
                            Ok::<_, Error>(step.attempt())
                        }
                    });
                    slow.retry(Retry::constant(10)).await
                }
            })
        };
        let mut world = setup.serve(registry()).await;
        world.begin("slow", "one", &()).await;
        log.reached("slow 1", 1).await;
        all_die(&mut world, 0, registry()).await;
        log.reached("slow 2", 1).await;
        gate.open();
        assert_eq!(world.end("slow", "one").await.output::<u32>(), 2);
        assert_eq!(log.lines(), ["first 1", "slow 1", "slow 2"]);
    }

    async fn t39_a_second_worker_that_comes_while_a_step_runs_does_not_run_it_too(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let registry = || {
            let (log, gate) = (log.clone(), gate.clone());
            Registry::new().workflow_fn("slow", move |cx: Workflow, (): ()| {
                let (log, gate) = (log.clone(), gate.clone());
                async move {
                    let slow = move |step: Step, (): ()| {
                        let (log, gate) = (log.clone(), gate.clone());
                        async move {
                            log.push(format!("{} {}", step.instance_id(), step.attempt()));
                            if step.instance_id() == "one" {
                                gate.pass().await;
                            }
                            Ok::<_, Error>(())
                        }
                    };
                    cx.step("slow", (), slow).await
                }
            })
        };
        let mut world = setup.serve(registry()).await;
        world.begin("slow", "one", &()).await;
        log.reached("one 1", 1).await;
        world.add_worker(registry()).await;
        // Work passes through both meanwhile, for longer than a lease lasts without a heartbeat.
        for number in 0..8 {
            let id = format!("other-{number}");
            world.begin("slow", &id, &()).await;
            world.end("slow", &id).await;
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
        assert_eq!(log.count("one 1"), 1);
        gate.open();
        world.end("slow", "one").await.output::<()>();
        assert_eq!((log.count("one 1"), log.count("one 2")), (1, 0));
    }

    /// A wait that timed out, a step that takes a while, a second wait: the event comes into the gap, and then all die.
    async fn o03_an_event_in_the_gap_survives_the_death_of_everything(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let registry = || {
            let (log, gate) = (log.clone(), gate.clone());
            Registry::new().workflow_fn("gap", move |cx: Workflow, (): ()| {
                let (log, gate) = (log.clone(), gate.clone());
                async move {
                    let first = cx.event::<u64>("go").timeout(100).await.is_err_and(|error| error.is_timed_out());
                    let gap = cx.step("gap", (), behind::<()>(&log, &gate, "gap"));
                    gap.retry(Retry::constant(10)).await?;
                    Ok::<_, Error>((first, cx.event::<u64>("go").timeout("1 min").await?))
                }
            })
        };
        let mut world = setup.serve(registry()).await;
        world.begin("gap", "one", &()).await;
        log.reached("gap", 1).await;
        assert_eq!(world.send("gap", "one", ("1", "go"), &1_u64).await, Answer::Done);
        all_die(&mut world, 0, registry()).await;
        log.reached("gap", 2).await;
        gate.open();
        assert_eq!(world.end("gap", "one").await.output::<(bool, u64)>(), (true, 1));
    }

    /// Two events that came before their waits, and a death between the first and the second.
    async fn o04_two_early_events_keep_their_order_over_the_death_of_everything(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let registry = || {
            let (log, gate) = (log.clone(), gate.clone());
            Registry::new().workflow_fn("pair", move |cx: Workflow, (): ()| {
                let (log, gate) = (log.clone(), gate.clone());
                async move {
                    let first = cx.event::<u64>("msg").timeout("1 min").await?;
                    let mid = cx.step("mid", first, behind::<u64>(&log, &gate, "mid"));
                    mid.retry(Retry::constant(10)).await?;
                    Ok::<_, Error>((first, cx.event::<u64>("msg").timeout("1 min").await?))
                }
            })
        };
        let mut world = setup.start().await;
        world.begin("pair", "one", &()).await;
        for number in [1_u64, 2] {
            assert_eq!(world.send("pair", "one", (&number.to_string(), "msg"), &number).await, Answer::Done);
        }
        let worker = world.add_worker(registry()).await;
        log.reached("mid", 1).await;
        all_die(&mut world, worker, registry()).await;
        log.reached("mid", 2).await;
        gate.open();
        assert_eq!(world.end("pair", "one").await.output::<(u64, u64)>(), (1, 2));
    }

    /// A sleep of ten years, a retry that is due in as long, and a sleep that is paused over its wake time.
    async fn o01_o02_o07_moments_stand_when_all_coordinators_are_started_again(setup) {
        let log = Log::new();
        let registry = || {
            let (naps, told) = (waits(&log), log.clone());
            naps.workflow_fn("retries", move |cx: Workflow, (): ()| {
                let log = told.clone();
                async move {
                    let endless = Retry::exponential(Millis(u64::MAX)).max_delay("10 years").unlimited();
                    cx.step("retried", (), failing::<()>(&log, Error::failed("503"))).retry(endless).await
                }
            })
        };
        let mut world = setup.serve(registry()).await;
        world.begin("waits", "long", &Some(10 * 365 * 86_400_000_u64)).await;
        world.begin("waits", "paused", &Some(600_u64)).await;
        world.begin("retries", "one", &()).await;
        let names = [("waits", "long"), ("retries", "one")];
        let mut before = Vec::new();
        for (workflow, id) in names {
            before.push(is_waiting(&world, workflow, id).await.waiting);
        }
        world.until("waits", "paused", "it sleeps", |view| view.waits == 1).await;
        let paused = world.handle().pause(name("waits", "paused"), "p".to_owned()).await.unwrap();
        assert_eq!(paused, Answer::Done);
        all_die(&mut world, 0, registry()).await;
        // One that is not paused shows that its time has passed.
        world.begin("waits", "free", &Some(1_000_u64)).await;
        world.end("waits", "free").await;
        for ((workflow, id), before) in names.into_iter().zip(before) {
            assert_eq!(world.view(workflow, id).await.unwrap().waiting, before, "{workflow} {id}");
        }
        assert_eq!(world.view("waits", "paused").await.unwrap().status, StatusWord::Paused);
        assert_eq!((log.count("after 1"), log.count("retried 1"), log.count("retried 2")), (1, 1, 0));
        let resumed = world.handle().resume(name("waits", "paused"), "r".to_owned()).await.unwrap();
        assert_eq!(resumed, Answer::Done);
        world.end("waits", "paused").await.output::<u64>();
    }
}
