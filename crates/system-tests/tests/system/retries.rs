//! Retries, timeouts and lost attempts: rules P10 to P16, W11. Not here: the arithmetic of delays (the engine's own tests).

use std::time::Duration;

use everstep::{Error, FailureKind, Policy, Registry, Retry, Step, Workflow};
use everstep_engine::Answer;
use everstep_protocol::{
    Millis,
    journal::{Fact, Outcome, ParkCode},
};
use everstep_store::StatusWord;
use everstep_system_tests::{Gate, Log, World, on_both};

/// How long after each failed attempt the next was due, in milliseconds; none after the last.
async fn delays(world: &World, workflow: &str, id: &str) -> Vec<Option<u64>> {
    let attempts = world.attempts(workflow, id).await;
    attempts.iter().map(|(entry, attempt)| attempt.retry_at().map(|at| at.since(entry.at).as_u64())).collect()
}

fn failure(outcome: &Outcome) -> &everstep_protocol::Failure {
    match outcome {
        Outcome::Failed { failure, .. } | Outcome::Unknown { failure, .. } => failure,
        Outcome::Succeeded(output) => panic!("it succeeded with {}", output.as_str()),
    }
}

/// A step that never ends, whose loss the body catches.
fn deadly(log: &Log, retry: fn() -> Retry) -> Registry {
    let log = log.clone();
    Registry::new().workflow_fn("deadly", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            let step = cx.step("kill", (), move |_: Step, (): ()| {
                log.push("kill");
                std::future::pending::<Result<(), Error>>()
            });
            let error = step.retry(retry()).await.expect_err("it was lost");
            Ok::<_, Error>(error.is_worker_lost())
        }
    })
}

on_both! {
    async fn p10_a_limit_of_n_is_n_plus_one_attempts_and_the_record_shows_the_policy(setup) {
        let log = Log::new();
        let told = log.clone();
        let registry = Registry::new().workflow_fn("limits", move |cx: Workflow, limit: Option<u32>| {
            let log = told.clone();
            async move {
                let name = format!("{limit:?}");
                let step = cx.step("fail", name, move |_: Step, name: String| {
                    log.push(name);
                    async { Err::<(), _>(Error::failed("no")) }
                });
                match limit {
                    Some(limit) => step.retry(Retry::constant("5ms").limit(limit)).await,
                    None => step.await,
                }
            }
        });
        let world = setup.serve(registry).await;
        for limit in [0, 1, 4] {
            let id = format!("limit-{limit}");
            world.begin("limits", &id, &Some(limit)).await;
            assert_eq!(world.end("limits", &id).await.error().message, "no");
            assert_eq!(log.count(&format!("{:?}", Some(limit))), limit as usize + 1);
            let attempts = world.attempts("limits", &id).await;
            let numbers: Vec<_> = attempts.iter().map(|(_, attempt)| attempt.attempt.0).collect();
            assert_eq!(numbers, (1..=limit + 1).collect::<Vec<_>>());
        }
        world.begin("limits", "default", &None::<u32>).await;
        world.until("limits", "default", "waiting for a retry", |view| view.status == StatusWord::Waiting).await;
        let attempts = world.attempts("limits", "default").await;
        assert_eq!(attempts[0].1.policy, Policy::default());
        assert_eq!(delays(&world, "limits", "default").await, [Some(10_000)]);
        assert_eq!(world.terminate("limits", "default", "enough").await, Answer::Done);
    }

    async fn p11_p12_delays_grow_by_policy_and_what_the_error_asks_for_is_used_as_it_is(setup) {
        let registry = Registry::new().workflow_fn("delays", |cx: Workflow, kind: String| async move {
            let asks = kind == "retry_after";
            let step = cx.step("fail", (), move |step: Step, (): ()| async move {
                let error = Error::failed(format!("no {}", step.attempt()));
                Err::<(), _>(if asks { error.retry_after("30ms") } else { error })
            });
            let retry = match kind.as_str() {
                "constant" => Retry::constant("20ms"),
                "linear" => Retry::linear("20ms"),
                "capped" => Retry::exponential("20ms").max_delay("50ms"),
                "function" => Retry::exponential("1 hour").delay_with(|attempt, error: &Error| {
                    (error.message() == format!("no {attempt}")).then_some(u64::from(attempt) * 15)
                }),
                "panics" => Retry::constant("25ms").delay_with(|_, _: &Error| -> Option<u64> { panic!("no idea") }),
                _ => Retry::exponential("20ms"),
            };
            step.retry(retry.limit(3)).await
        });
        let world = setup.serve(registry).await;
        let cases: [(&str, [u64; 3]); 7] = [
            ("constant", [20, 20, 20]),
            ("linear", [20, 40, 60]),
            ("exponential", [20, 40, 80]),
            ("capped", [20, 40, 50]),
            ("retry_after", [30, 30, 30]),
            ("function", [15, 30, 45]),
            ("panics", [25, 25, 25]),
        ];
        for (kind, expected) in cases {
            world.begin("delays", kind, &kind).await;
            let end = world.end("delays", kind).await;
            let seen = delays(&world, "delays", kind).await;
            assert_eq!(seen[..3], expected.map(Some), "{kind}");
            assert_eq!(seen[3], None, "{kind}");
            assert!(end.error().message.starts_with("no 4"), "{kind}: {end:?}");
            let attempts = world.attempts("delays", kind).await;
            for pair in attempts.windows(2) {
                let due = pair[0].1.retry_at().expect("another attempt follows");
                assert!(pair[1].1.started_at >= due, "{kind}: never early");
            }
            if kind == "panics" {
                let message = &failure(&attempts[0].1.outcome).message;
                assert!(message.contains("no idea"), "the fact is recorded: {message}");
            }
        }
    }

    async fn p13_a_permanent_error_is_the_last_attempt_and_reaches_the_end_unchanged(setup) {
        let registry = Registry::new().workflow_fn("permanent", |cx: Workflow, message: String| async move {
            let step = cx.step("fail", message, |_: Step, message: String| async move {
                Err::<(), _>(Error::permanent(message).named("Declined").retry_after("1ms"))
            });
            step.await
        });
        let world = setup.serve(registry).await;
        for (id, message) in [("said", "card \u{1F4B3} declined"), ("empty", "")] {
            world.begin("permanent", id, message).await;
            let end = world.end("permanent", id).await;
            assert_eq!((end.error().name.as_str(), end.error().message.as_str()), ("Declined", message));
            let attempts = world.attempts("permanent", id).await;
            assert_eq!(attempts.len(), 1);
            let failure = failure(&attempts[0].1.outcome);
            assert_eq!((failure.name.as_str(), failure.message.as_str(), failure.permanent), ("Declined", message, true));
        }
    }

    async fn p14_a_timeout_fires_the_signal_is_recorded_and_can_be_caught(setup) {
        let log = Log::new();
        let told = log.clone();
        let registry = Registry::new().workflow_fn("slow", move |cx: Workflow, (): ()| {
            let log = told.clone();
            async move {
                let step = cx.step("hang", (), move |step: Step, (): ()| {
                    let log = log.clone();
                    async move {
                        step.cancelled().await;
                        log.push(format!("cancelled {}", step.attempt()));
                        // Whatever it still says is refused.
                        Ok::<_, Error>("too late".to_owned())
                    }
                });
                let error = step.timeout("150ms").retry(Retry::constant("10ms").limit(1)).await.expect_err("it hangs");
                Ok::<_, Error>((error.is_timed_out(), error.name().to_owned()))
            }
        });
        let world = setup.serve(registry).await;
        world.begin("slow", "one", &()).await;
        assert_eq!(world.end("slow", "one").await.output::<(bool, String)>(), (true, "TimedOut".to_owned()));
        let attempts = world.attempts("slow", "one").await;
        assert_eq!(attempts.len(), 2);
        assert!(attempts.iter().all(|(_, attempt)| failure(&attempt.outcome).kind == FailureKind::TimedOut));
        for (entry, attempt) in &attempts {
            assert!(entry.at.since(attempt.started_at).as_u64() >= 150, "never before its time");
        }
        log.reached("cancelled 2", 1).await;
        assert_eq!(log.lines(), ["cancelled 1", "cancelled 2"]);
    }

    async fn p15_a_crash_counts_as_an_attempt_and_a_goodbye_does_not(setup) {
        fn registry(log: &Log, gate: &Gate) -> Registry {
            let (log, gate) = (log.clone(), gate.clone());
            Registry::new().workflow_fn("counted", move |cx: Workflow, (): ()| {
                let (log, gate) = (log.clone(), gate.clone());
                async move {
                    let step = cx.step("work", (), move |step: Step, (): ()| {
                        let (log, gate) = (log.clone(), gate.clone());
                        async move {
                            log.push(format!("attempt {}", step.attempt()));
                            gate.pass().await;
                            Ok::<_, Error>(step.attempt())
                        }
                    });
                    step.retry(Retry::constant("10ms").limit(5)).await
                }
            })
        }
        let (log, gate) = (Log::new(), Gate::closed());
        let setup = setup.worker(|settings| settings.shutdown_grace = Duration::from_millis(200));
        let mut world = setup.serve(registry(&log, &gate)).await;
        world.begin("counted", "one", &()).await;
        log.reached("attempt 1", 1).await;
        world.stop_worker(0).await;
        let second = world.add_worker(registry(&log, &gate)).await;
        log.reached("attempt 1", 2).await;
        world.crash_worker(second).await;
        gate.open();
        world.add_worker(registry(&log, &gate)).await;
        assert_eq!(world.end("counted", "one").await.output::<u32>(), 2, "{}", world.report("counted", "one").await);
        let journal = world.journal("counted", "one").await;
        let lost: Vec<_> = journal.iter().filter_map(|entry| if let Fact::Lost(lost) = &entry.fact { Some(lost.counts) } else { None }).collect();
        assert_eq!(lost.iter().filter(|counts| **counts).count(), 1, "one loss counts: {lost:?}");
        let attempts = world.attempts("counted", "one").await;
        let numbers: Vec<_> = attempts.iter().map(|(_, attempt)| attempt.attempt.0).collect();
        assert_eq!(numbers, [1, 2], "the lost attempt is recorded");
        assert_eq!(failure(&attempts[0].1.outcome).kind, FailureKind::WorkerLost);
    }

    async fn p15_a_loss_with_no_retry_left_is_a_failure_that_can_be_caught(setup) {
        let log = Log::new();
        let registry = deadly(&log, Retry::none);
        let mut world = setup.serve(registry.clone()).await;
        world.begin("deadly", "one", &()).await;
        log.reached("kill", 1).await;
        world.crash_worker(0).await;
        world.add_worker(registry).await;
        assert!(world.end("deadly", "one").await.output::<bool>());
        assert_eq!(log.count("kill"), 1);
    }

    /// The deaths are more than the coordinator takes in a row, and each uses up an attempt.
    async fn w11_a_step_that_kills_its_workers_uses_up_its_attempts_and_can_be_caught(setup) {
        let log = Log::new();
        let registry = deadly(&log, || Retry::constant("5ms").limit(3));
        let setup = setup.coordinator(|settings| settings.deaths_max = 2);
        let mut world = setup.start().await;
        world.begin("deadly", "one", &()).await;
        for death in 1..=4 {
            let worker = world.add_worker(registry.clone()).await;
            log.reached("kill", death).await;
            world.crash_worker(worker).await;
        }
        world.add_worker(registry).await;
        assert!(world.end("deadly", "one").await.output::<bool>(), "{}", world.report("deadly", "one").await);
        assert_eq!((log.count("kill"), world.attempts("deadly", "one").await.len()), (4, 4));
    }

    async fn p16_every_attempt_shows_start_end_worker_error_and_next_time(setup) {
        let registry = Registry::new().workflow_fn("shown", |cx: Workflow, (): ()| async move {
            let step = cx.step("work", (), |step: Step, (): ()| async move {
                tokio::time::sleep(Duration::from_millis(60)).await;
                if step.attempt() < 3 { Err(Error::failed(format!("no {}", step.attempt()))) } else { Ok(()) }
            });
            step.retry(Retry::constant("30ms")).await
        });
        let world = setup.serve(registry).await;
        world.begin("shown", "one", &()).await;
        world.end("shown", "one").await;
        let attempts = world.attempts("shown", "one").await;
        assert_eq!(attempts.len(), 3);
        for (number, (entry, attempt)) in (1_u32..).zip(&attempts) {
            assert_eq!(attempt.attempt.0, number);
            assert!(entry.at.since(attempt.started_at).as_u64() >= 60, "start and end are those of the attempt");
            assert_eq!((attempt.build.as_str(), attempt.session), ("build-1", attempts[0].1.session));
            match &attempt.outcome {
                Outcome::Failed { failure, retry_at } => {
                    assert_eq!(failure.message, format!("no {number}"));
                    assert_eq!(retry_at.expect("another follows").since(entry.at), Millis(30));
                }
                Outcome::Succeeded(_) => assert_eq!(number, 3),
                Outcome::Unknown { .. } => panic!("a step without a class is never unknown"),
            }
        }
    }

    async fn w11_an_instance_whose_holders_die_again_and_again_is_parked(setup) {
        fn registry(log: &Log) -> Registry {
            let log = log.clone();
            Registry::new().workflow_fn("deadly", move |cx: Workflow, (): ()| {
                let log = log.clone();
                async move {
                    let step = cx.step("kill", (), move |_: Step, (): ()| {
                        log.push("kill");
                        std::future::pending::<Result<(), Error>>()
                    });
                    step.retry(Retry::constant("5ms").unlimited()).await
                }
            })
        }
        let log = Log::new();
        let setup = setup.coordinator(|settings| settings.deaths_max = 3);
        let mut world = setup.start().await;
        world.begin("deadly", "one", &()).await;
        for death in 1..=3 {
            let worker = world.add_worker(registry(&log)).await;
            log.reached("kill", death).await;
            world.crash_worker(worker).await;
        }
        let parked = world.until("deadly", "one", "parked", |view| view.status == StatusWord::Attention).await;
        assert_eq!(parked.parked.expect("it says why").1.code, ParkCode::Poison);
        // A person lets it go on: it is run again.
        world.add_worker(registry(&log)).await;
        assert_eq!(world.retry("deadly", "one", "go on").await, Answer::Done);
        log.reached("kill", 4).await;
    }
}
