//! O-15 and O-16: a connection that breaks after the work and before the answer; queues that an operator purges, deletes or doubles.

use std::time::Duration;

use everstep::{Error, Registry, Retry, Step, Workflow};
use everstep_broker::{Declaration, Outgoing, Properties};
use everstep_conformance::noting;
use everstep_engine::Answer;
use everstep_protocol::{
    Incarnation, Namespace, WorkflowName, journal::Outcome, message::RunTask, topology, wire,
};
use everstep_system_tests::{Gate, Kind, Log, Way, World, on_both};

/// Pays behind a gate, then ships; each leaves a line.
fn ships(log: &Log, gate: &Gate) -> Registry {
    let (log, gate) = (log.clone(), gate.clone());
    Registry::new().workflow_fn("ships", move |cx: Workflow, (): ()| {
        let (log, gate) = (log.clone(), gate.clone());
        async move {
            let (paid, shipped) = (log.clone(), log.clone());
            let id = cx.instance_id().to_owned();
            let pay = cx.step("pay", id.clone(), move |step: Step, id: String| {
                let (log, gate) = (paid.clone(), gate.clone());
                async move {
                    log.push(format!("pay {id}"));
                    gate.pass().await;
                    Ok::<_, Error>(step.attempt())
                }
            });
            pay.retry(Retry::constant(10)).await?;
            cx.step("ship", id, move |_: Step, id: String| {
                shipped.push(format!("ship {id}"));
                async move { Ok::<_, Error>(()) }
            })
            .await
        }
    })
}

async fn outputs(world: &World, id: &str) -> usize {
    let attempts = world.attempts("ships", id).await;
    attempts.iter().filter(|(_, done)| matches!(done.outcome, Outcome::Succeeded(_))).count()
}

/// Steps, a sleep, an event.
fn mixed(log: &Log) -> Registry {
    let log = log.clone();
    Registry::new().workflow_fn("mixed", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            cx.step("before", (), noting(&log, ())).await?;
            cx.sleep("nap", 700).await?;
            let got: u64 = cx.event("go").timeout("1 min").await?;
            cx.step("after", (), noting(&log, got)).await
        }
    })
}

on_both! {
    async fn o15_a_connection_that_breaks_around_the_report_ships_once(setup) {
        let rounds = if setup.kind() == Kind::Fleet { 8 } else { 15 };
        let (log, gate) = (Log::new(), Gate::closed());
        gate.open();
        let world = setup.serve(ships(&log, &gate)).await;
        for round in 0..rounds {
            let id = format!("o-{round}");
            world.begin("ships", &id, &()).await;
            // Some cuts come before the work ends, some with its report, some after the answer.
            log.reached(&format!("pay {id}"), 1).await;
            tokio::time::sleep(Duration::from_millis(round % 5)).await;
            world.worker_way(0, Way::Cut);
            tokio::time::sleep(Duration::from_millis(30)).await;
            world.worker_way(0, Way::Open);
            world.end("ships", &id).await.output::<()>();
            assert_eq!(outputs(&world, &id).await, 2, "{id}: one of each");
            assert!(log.count(&format!("ship {id}")) <= 2, "{id}");
        }
        assert!(world.ends().doubled().is_empty());
    }

    /// While the work ends the connection is there and carries nothing; the result is not lost, and not made twice.
    async fn o15_a_result_that_came_of_it_while_nothing_was_carried_is_reported_afterwards(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let world = setup.serve(ships(&log, &gate)).await;
        world.begin("ships", "one", &()).await;
        log.reached("pay one", 1).await;
        world.worker_way(0, Way::Frozen);
        gate.open();
        tokio::time::sleep(Duration::from_millis(800)).await;
        world.worker_way(0, Way::Open);
        world.end("ships", "one").await.output::<()>();
        assert_eq!(outputs(&world, "one").await, 2);
        assert_eq!(log.count("ship one"), 1);
    }

    async fn o16_every_queue_of_the_engine_is_deleted_under_load_and_everything_ends(setup) {
        let log = Log::new();
        let world = setup.serve(mixed(&log)).await;
        let count = 30;
        for number in 0..count {
            world.begin("mixed", &number.to_string(), &()).await;
        }
        let mut queues = vec![topology::run_queue(&Namespace::default(), &WorkflowName::new("mixed").unwrap())];
        queues.extend(world.queues().into_iter().filter(|queue| queue.starts_with("everstep.report.")));
        queues.push(topology::SESSIONS.to_owned());
        for queue in queues {
            world.broker().declare(vec![Declaration::delete_queue(queue.clone())]).await.expect("it is deleted");
            world.eventually("it is there again", async || {
                matches!(world.broker().depth(&queue).await, Ok(Some(_)))
            }).await;
        }
        for number in 0..count {
            assert_eq!(world.send("mixed", &number.to_string(), ("1", "go"), &7_u64).await, Answer::Done);
        }
        for number in 0..count {
            assert_eq!(world.end("mixed", &number.to_string()).await.output::<u64>(), 7);
        }
        assert!(world.ends().doubled().is_empty());
    }

    /// Timers, waits and retries do not live in the broker.
    async fn o16_a_purge_changes_no_wake_time(setup) {
        let log = Log::new();
        let world = setup.serve(mixed(&log)).await;
        for number in 0..10 {
            world.begin("mixed", &number.to_string(), &()).await;
        }
        log.reached("before 1", 10).await;
        for _ in 0..10 {
            world.purge();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for number in 0..10 {
            let id = number.to_string();
            assert_eq!(world.send("mixed", &id, ("1", "go"), &7_u64).await, Answer::Done);
            assert_eq!(world.end("mixed", &id).await.output::<u64>(), 7);
            let journal = world.journal("mixed", &id).await;
            let fired: Vec<_> = journal.iter().filter(|entry| entry.fact.word() == "fired").collect();
            assert_eq!(fired.len(), 1, "{id}");
        }
    }

    /// An operator who moves messages may double them.
    async fn o16_doubled_tasks_are_recognised(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        gate.open();
        let world = setup.serve(ships(&log, &gate)).await;
        let queue = topology::run_queue(&Namespace::default(), &WorkflowName::new("ships").unwrap());
        for number in 0..20 {
            let id = number.to_string();
            world.begin("ships", &id, &()).await;
            let uid = world.view("ships", &id).await.expect("it exists").uid;
            let task = wire::encode(&RunTask { incarnation: Incarnation(1), instance: uid });
            let twice = (0..2).map(|_| Outgoing::to_queue(queue.clone(), task.clone()).with(Properties::default()));
            world.broker().send_confirmed(twice.collect(), false).await.expect("the broker is there");
        }
        for number in 0..20 {
            let id = number.to_string();
            world.end("ships", &id).await.output::<()>();
            assert_eq!(outputs(&world, &id).await, 2);
            assert_eq!((log.count(&format!("pay {id}")), log.count(&format!("ship {id}"))), (1, 1), "{id}");
        }
    }
}
