//! Remote steps: rule W39.

use std::time::{Duration, Instant};

use everstep::{Error, FailureKind, Registry, Retry, Step, Workflow};
use everstep_engine::Answer;
use everstep_protocol::{Millis, Pool, StepKey, journal::Outcome};
use everstep_store::StatusWord;
use everstep_system_tests::{Gate, Log, World, on_both, within};

fn caller() -> Registry {
    Registry::new()
        .workflow_fn("caller", |cx: Workflow, (function, limit): (String, u32)| async move {
            let call = cx.remote::<u32>("square", 7_u32).on("numbers").function(function);
            call.retry(Retry::constant("30ms").limit(limit)).timeout("20s").await
        })
        .workflow_fn("hasty", |cx: Workflow, (): ()| async move {
            let call = cx
                .remote::<u32>("held", 7_u32)
                .on("numbers")
                .retry(Retry::constant("30ms").limit(1))
                .timeout("300ms");
            let error = call.await.expect_err("it takes too long");
            Ok::<_, Error>(error.is_timed_out())
        })
}

fn numbers(log: &Log, gate: &Gate, late: &Gate) -> Registry {
    let (held, waits, late) = (log.clone(), gate.clone(), late.clone());
    let told = log.clone();
    Registry::new()
        .function("held", move |step: Step, n: u32| {
            let (log, gate, late) = (held.clone(), waits.clone(), late.clone());
            async move {
                log.push(format!("held {}", step.attempt()));
                tokio::select! {
                    () = gate.pass() => Ok::<_, Error>(n * n),
                    () = step.cancelled() => {
                        log.push("cancelled");
                        late.pass().await;
                        Ok(n)
                    }
                }
            }
        })
        .function("flaky", move |step: Step, n: u32| {
            let log = told.clone();
            async move {
                log.push(format!("flaky {}", step.idempotency_key()));
                if step.attempt() < 3 { Err(Error::failed("again").named("Flaky")) } else { Ok(n * n) }
            }
        })
        .function(
            "permanent",
            |_: Step, _: u32| async move { Err::<u32, _>(Error::permanent("").named("Never")) },
        )
        .function("panics", |_: Step, _: u32| async move {
            std::future::ready(()).await;
            assert!(std::hint::black_box(false), "a remote panic");
            Ok::<u32, Error>(0)
        })
}

async fn pool(world: &mut World, registry: Registry) -> usize {
    world
        .add_worker_with(registry, |settings| {
            settings.pools = vec![Pool::new("numbers").expect("a valid name")];
            settings.shutdown_grace = Duration::from_millis(100);
        })
        .await
}

on_both! {
    async fn w39_a_remote_step_is_retried_under_one_key(setup) {
        let (log, gate, late) = (Log::new(), Gate::closed(), Gate::closed());
        let mut world = setup.serve(caller()).await;
        pool(&mut world, numbers(&log, &gate, &late)).await;
        world.begin("caller", "flaky", &("flaky", 5)).await;
        assert_eq!(world.end("caller", "flaky").await.output::<u32>(), 49);
        let view = world.view("caller", "flaky").await.expect("it exists");
        let input = everstep_protocol::Payload::encode(&7).expect("a form");
        let key = StepKey::derive(view.uid.0, 1, "step", "square", 1, &input).expect("canonical");
        assert_eq!(log.count(&format!("flaky {key}")), 3);
        let attempts = world.attempts("caller", "flaky").await;
        let numbers: Vec<_> = attempts.iter().map(|(_, attempt)| attempt.attempt.0).collect();
        assert_eq!(numbers, [1, 2, 3], "{}", world.report("caller", "flaky").await);
        for (id, function, name) in [("permanent", "permanent", "Never"), ("panics", "panics", "Panicked"), ("limited", "flaky", "Flaky")] {
            world.begin("caller", id, &(function, 1)).await;
            assert_eq!(world.end("caller", id).await.error().name, name);
            let expected = if id == "permanent" { 1 } else { 2 };
            assert_eq!(world.attempts("caller", id).await.len(), expected, "{id}");
        }
    }

    async fn w39_an_unknown_function_fails_by_name(setup) {
        let (log, gate, late) = (Log::new(), Gate::closed(), Gate::closed());
        let mut world = setup.serve(caller()).await;
        pool(&mut world, numbers(&log, &gate, &late)).await;
        world.begin("caller", "one", &("nobody", 0)).await;
        let end = world.end("caller", "one").await;
        assert_eq!(end.error().name, "UnknownFunction");
        assert!(end.error().message.contains("nobody"), "{end:?}");
        let attempts = world.attempts("caller", "one").await;
        assert!(matches!(&attempts[0].1.outcome, Outcome::Failed { failure, .. } if failure.kind == FailureKind::UnknownFunction));
    }

    async fn w39_the_death_of_a_pool_worker_counts_and_its_goodbye_does_not(setup) {
        let (log, gate, late) = (Log::new(), Gate::closed(), Gate::closed());
        let mut world = setup.serve(caller()).await;
        let first = pool(&mut world, numbers(&log, &gate, &late)).await;
        world.begin("caller", "one", &("held", 5)).await;
        log.reached("held 1", 1).await;
        let waiting = world.view("caller", "one").await.expect("it exists");
        assert_eq!(waiting.status, StatusWord::Waiting, "the caller holds no slot");
        world.stop_worker(first).await;
        let second = pool(&mut world, numbers(&log, &gate, &late)).await;
        log.reached("held 1", 2).await;
        world.crash_worker(second).await;
        pool(&mut world, numbers(&log, &gate, &late)).await;
        log.reached("held 2", 1).await;
        gate.open();
        assert_eq!(world.end("caller", "one").await.output::<u32>(), 49);
        let attempts = world.attempts("caller", "one").await;
        let kinds: Vec<_> = attempts.iter().map(|(_, attempt)| match &attempt.outcome {
            Outcome::Failed { failure, .. } | Outcome::Unknown { failure, .. } => Some(failure.kind),
            Outcome::Succeeded(_) => None,
        }).collect();
        assert_eq!(kinds, [Some(FailureKind::WorkerLost), None]);
    }

    async fn w39_a_remote_step_that_takes_too_long_is_cancelled_and_times_out(setup) {
        let (log, gate, late) = (Log::new(), Gate::closed(), Gate::closed());
        late.open();
        let mut world = setup.serve(caller()).await;
        pool(&mut world, numbers(&log, &gate, &late)).await;
        world.begin("hasty", "one", &()).await;
        assert!(world.end("hasty", "one").await.output::<bool>());
        log.reached("cancelled", 2).await;
        assert_eq!(world.attempts("hasty", "one").await.len(), 2);
    }

    async fn w39_terminate_cancels_the_remote_step(setup) {
        let (log, gate, late) = (Log::new(), Gate::closed(), Gate::closed());
        let mut world = setup.serve(caller()).await;
        pool(&mut world, numbers(&log, &gate, &late)).await;
        world.begin("caller", "one", &("held", 5)).await;
        log.reached("held 1", 1).await;
        assert_eq!(world.terminate("caller", "one", "op").await, Answer::Done);
        log.reached("cancelled", 1).await;
        late.open();
        assert_eq!(world.end("caller", "one").await.status, "terminated");
        // The pool's worker is free for others.
        gate.open();
        world.begin("caller", "two", &("held", 5)).await;
        assert_eq!(world.end("caller", "two").await.output::<u32>(), 49);
        assert_eq!(world.attempts("caller", "one").await.len(), 0);
    }

    async fn p30_terminate_cancels_the_remote_step_without_waiting_for_a_heartbeat(setup) {
        let (log, gate, late) = (Log::new(), Gate::closed(), Gate::closed());
        late.open();
        let setup = setup.coordinator(|settings| {
            settings.lease = Millis(180_000);
            settings.heartbeat = Millis(60_000);
        });
        let mut world = setup.serve(caller()).await;
        pool(&mut world, numbers(&log, &gate, &late)).await;
        world.begin("caller", "one", &("held", 5)).await;
        log.reached("held 1", 1).await;
        assert_eq!(world.terminate("caller", "one", "op").await, Answer::Done);
        let terminated = Instant::now();
        log.reached("cancelled", 1).await;
        // Long before the next heartbeat, and before its own timeout cancels it.
        assert!(terminated.elapsed() < Duration::from_secs(10), "{:?}", terminated.elapsed());
    }

    async fn w39_remote_steps_survive_the_death_of_the_caller_and_of_the_coordinator(setup) {
        let (log, gate, late) = (Log::new(), Gate::closed(), Gate::closed());
        let kind = setup.kind();
        let mut world = setup.serve(caller()).await;
        pool(&mut world, numbers(&log, &gate, &late)).await;
        for number in 0..10 {
            world.begin("caller", &format!("c-{number}"), &("held", 5)).await;
        }
        log.reached("held 1", 10).await;
        world.crash_worker(0).await;
        world.crash_coordinator(0).await;
        world.add_coordinator().await;
        gate.open();
        world.add_worker(caller()).await;
        within("ten ends", everstep_system_tests::DEADLINE, world.ends().count(10)).await;
        assert!(world.ends().all().iter().all(|end| end.output::<u32>() == 49));
        if kind == everstep_system_tests::Kind::Fleet {
            assert_eq!(log.count("held 1"), 10, "the pool worker's leases lived on");
        }
    }
}
