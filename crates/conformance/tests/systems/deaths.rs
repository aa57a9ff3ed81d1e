//! O-12, O-13 and O-14: workers that are frozen and thawed, steps that kill whoever runs them, workers that are told to stop.

use std::time::Duration;

use everstep::{Error, Registry, Retry, Step, Workflow};
use everstep_broker::{Outgoing, Properties};
use everstep_conformance::echo;
use everstep_protocol::{InstanceUid, Namespace, WorkflowName, journal::Outcome, topology};
use everstep_system_tests::{Gate, Kind, Log, Way, on_both};

/// A step of which each worker's copy waits for its own gate and gives its own name; another step after it.
fn works(log: &Log, gate: &Gate, who: &'static str) -> Registry {
    let (log, gate) = (log.clone(), gate.clone());
    Registry::new().workflow_fn("works", move |cx: Workflow, (): ()| {
        let (log, gate) = (log.clone(), gate.clone());
        async move {
            let noted = log.clone();
            let work = cx.step("work", (), move |step: Step, (): ()| {
                let (log, gate) = (noted.clone(), gate.clone());
                async move {
                    log.push(format!("{who} {}", step.attempt()));
                    gate.pass().await;
                    Ok::<_, Error>(who.to_owned())
                }
            });
            let did = work.retry(Retry::constant(10)).await?;
            cx.step("next", did, move |_: Step, did: String| {
                log.push(format!("next after {did} on {who}"));
                async move { Ok::<_, Error>(did) }
            })
            .await
        }
    })
}

/// Small instances beside whatever goes wrong.
fn healthy(registry: Registry) -> Registry {
    registry.workflow_fn("healthy", |cx: Workflow, number: u64| async move {
        let mut sum = 0;
        for _ in 0..5 {
            sum += cx.step("s", number, echo::<u64>).await?;
        }
        Ok::<_, Error>(sum)
    })
}

on_both! {
    async fn o12_a_frozen_worker_that_thaws_changes_nothing_that_its_successor_has_done(setup) {
        let log = Log::new();
        let (held, open) = (Gate::closed(), Gate::closed());
        open.open();
        let mut world = setup.serve(works(&log, &held, "a")).await;
        world.begin("works", "one", &()).await;
        log.reached("a 1", 1).await;
        world.worker_way(0, Way::Frozen);
        let successor = world.add_worker(works(&log, &open, "b")).await;
        let end = world.end("works", "one").await;
        assert_eq!(end.output::<String>(), "b");
        // Its step ends, and it comes back, and what it says is late.
        held.open();
        world.worker_way(0, Way::Open);
        world.stop_worker(successor).await;
        world.begin("works", "two", &()).await;
        assert_eq!(world.end("works", "two").await.output::<String>(), "a", "it takes work again");
        let attempts = world.attempts("works", "one").await;
        let outputs: Vec<_> = attempts.iter().filter(|(_, done)| matches!(done.outcome, Outcome::Succeeded(_))).collect();
        assert_eq!(outputs.len(), 2, "one of each step: {attempts:?}");
        assert_eq!(log.count("next after b on b"), 1);
        assert!(world.ends().doubled().is_empty());
    }

    async fn o13_a_step_that_kills_every_worker_is_tried_as_often_as_its_policy_says_and_starves_nobody(setup) {
        let log = Log::new();
        let registry = |gate: &Gate| {
            let (log, gate) = (log.clone(), gate.clone());
            healthy(Registry::new().workflow_fn("kills", move |cx: Workflow, (): ()| {
                let (log, gate) = (log.clone(), gate.clone());
                async move {
                    let kill = cx.step("kill", (), move |step: Step, (): ()| {
                        let (log, gate) = (log.clone(), gate.clone());
                        async move {
                            log.push(format!("kill {}", step.attempt()));
                            gate.pass().await;
                            Ok::<_, Error>(())
                        }
                    });
                    kill.retry(Retry::constant(20).limit(3)).await
                }
            }))
        };
        let never = Gate::closed();
        let mut world = setup.serve(registry(&never)).await;
        world.begin("kills", "one", &()).await;
        for number in 0..20_u64 {
            world.begin("healthy", &number.to_string(), &number).await;
        }
        let mut worker = 0;
        for attempt in 1..=4 {
            log.reached(&format!("kill {attempt}"), 1).await;
            world.crash_worker(worker).await;
            worker = world.add_worker(registry(&never)).await;
        }
        let end = world.end("kills", "one").await;
        assert_eq!(end.error().name, "WorkerLost", "{end:?}");
        for number in 0..20_u64 {
            assert_eq!(world.end("healthy", &number.to_string()).await.output::<u64>(), 5 * number);
        }
        let tried: Vec<_> = log.lines();
        assert_eq!(tried, ["kill 1", "kill 2", "kill 3", "kill 4"], "the first and three retries");
        assert_eq!(world.attempts("kills", "one").await.len(), 4);
    }

    /// What is no task, no claim and no report, in each queue of the engine, among healthy work.
    async fn o13_garbage_in_the_queues_of_the_engine_is_set_aside(setup) {
        let world = setup.serve(healthy(Registry::new())).await;
        world.begin("healthy", "first", &1_u64).await;
        world.end("healthy", "first").await;
        let workflow = WorkflowName::new("healthy").unwrap();
        let mut queues = vec![topology::SESSIONS.to_owned(), topology::run_queue(&Namespace::default(), &workflow)];
        queues.extend(world.queues().into_iter().filter(|queue| {
            queue.starts_with("everstep.report.") || queue.starts_with("everstep.inbox.")
        }));
        let nobody = everstep_protocol::message::RunTask {
            incarnation: everstep_protocol::Incarnation(1),
            instance: InstanceUid::generate(),
        };
        let bodies = [
            b"not json".to_vec(),
            Vec::new(),
            b"{}".to_vec(),
            vec![0xdf, 0xff, 0xff, 0xff, 0xff],
            everstep_protocol::wire::encode(&nobody).to_vec(),
        ];
        for queue in &queues {
            for body in &bodies {
                let message = Outgoing::to_queue(queue.clone(), body.clone()).with(Properties::default());
                world.broker().send_confirmed(vec![message], false).await.expect("the broker is there");
            }
        }
        for number in 0..20_u64 {
            world.begin("healthy", &number.to_string(), &number).await;
        }
        for number in 0..20_u64 {
            assert_eq!(world.end("healthy", &number.to_string()).await.output::<u64>(), 5 * number);
        }
        // An inbox of a fleet belongs to its worker's connection: nobody else can look into it.
        let is_open = |queue: &String| world.kind() == Kind::Embedded || !queue.starts_with("everstep.inbox.");
        for queue in queues.into_iter().filter(is_open) {
            world.eventually("nothing is left there", async || {
                matches!(world.broker().depth(&queue).await, Ok(Some(0) | None))
            }).await;
        }
    }

    /// A worker that is told to stop finishes what ends within its grace, and hands the rest on at once: that counts against nobody.
    async fn o14_a_deploy_ends_short_steps_and_hands_long_ones_on_without_a_lost_attempt(setup) {
        let log = Log::new();
        let (short, long) = (Gate::closed(), Gate::closed());
        let registry = || {
            let (log, short, long) = (log.clone(), short.clone(), long.clone());
            Registry::new().workflow_fn("step", move |cx: Workflow, is_long: bool| {
                let (log, gate) = (log.clone(), if is_long { long.clone() } else { short.clone() });
                async move {
                    let step = cx.step("s", is_long, move |step: Step, is_long: bool| {
                        let (log, gate) = (log.clone(), gate.clone());
                        async move {
                            log.push(format!("{is_long} {}", step.attempt()));
                            gate.pass().await;
                            Ok::<_, Error>(step.attempt())
                        }
                    });
                    step.retry(Retry::constant(10).limit(1)).await
                }
            })
        };
        let mut world = setup.worker(|settings| settings.shutdown_grace = Duration::from_millis(700)).serve(registry()).await;
        world.begin("step", "short", &false).await;
        world.begin("step", "long", &true).await;
        log.reached("false 1", 1).await;
        log.reached("true 1", 1).await;
        let mut workers = 1;
        // Ten deploys in a row, under a step that outlasts each.
        for round in 0..10 {
            workers = world.add_worker(registry()).await;
            if round == 0 {
                short.open();
            }
            world.stop_worker(workers - 1).await;
            log.reached("true 1", round + 2).await;
        }
        assert_eq!(world.end("step", "short").await.output::<u32>(), 1);
        long.open();
        assert_eq!(world.end("step", "long").await.output::<u32>(), 1, "no attempt was lost");
        assert_eq!(log.count("false 1"), 1);
        assert_eq!(workers, 10);
    }
}
