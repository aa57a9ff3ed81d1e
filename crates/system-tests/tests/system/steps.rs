//! Steps: rules P1 to P9, L1 to L3. Not here: retries (`retries`), remote steps (`remote`).

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use everstep::{Error, FailureKind, Registry, Retry, Step, Workflow};
use everstep_engine::{
    Answer,
    decide::{Rekeying, Unparking},
};
use everstep_protocol::{
    Payload, StepKey,
    journal::{Fact, KeyChoice, Outcome, ParkCode, QuestionId},
};
use everstep_store::StatusWord;
use everstep_system_tests::{
    Gate, Log, on_both,
    world::{WorkerSettings, name},
};
use futures::{StreamExt as _, future, stream::FuturesUnordered};

fn build(name: &str) -> impl FnOnce(&mut WorkerSettings) {
    let build = everstep_protocol::BuildName::new(name).expect("a valid name");
    move |settings| settings.build = Some(build)
}

fn quick() -> Retry {
    Retry::constant("20ms").limit(10)
}

/// A step that logs its name, and waits at the gate if there is one for it.
async fn logged(log: Log, gate: Option<Gate>, line: String) -> Result<String, Error> {
    log.push(line.clone());
    if let Some(gate) = gate {
        gate.pass().await;
    }
    Ok(line)
}

/// Runs steps `names` one after the other; `held` waits at the gate.
fn chain(names: &'static [&'static str], log: &Log, held: &'static str, gate: &Gate) -> Registry {
    let (log, gate) = (log.clone(), gate.clone());
    Registry::new().workflow_fn("chain", move |cx: Workflow, (): ()| {
        let (log, gate) = (log.clone(), gate.clone());
        async move {
            let mut outputs = Vec::new();
            for name in names {
                let (log, gate) = (log.clone(), (*name == held).then(|| gate.clone()));
                let step = cx.step(name, name, move |_step: Step, line: String| {
                    logged(log.clone(), gate.clone(), line)
                });
                outputs.push(step.retry(quick()).await?);
            }
            cx.sleep("rest", "400ms").await?;
            Ok::<_, Error>(outputs)
        }
    })
}

on_both! {
    async fn p01_a_recorded_output_is_never_produced_again_after_a_crash_at_each_step(setup) {
        let mut world = setup.start().await;
        for (at, held) in ["a", "b", "c", "rest"].into_iter().enumerate() {
            let (log, gate, id) = (Log::new(), Gate::closed(), format!("crash-in-{held}"));
            let first = world.add_worker(chain(&["a", "b", "c"], &log, held, &gate)).await;
            world.begin("chain", &id, &()).await;
            if held == "rest" {
                world.until("chain", &id, "sleeping", |view| view.status == StatusWord::Waiting).await;
            } else {
                log.reached(held, 1).await;
            }
            world.crash_worker(first).await;
            gate.open();
            let second = world.add_worker(chain(&["a", "b", "c"], &log, held, &gate)).await;
            let end = world.end("chain", &id).await;
            assert_eq!(end.output::<Vec<String>>(), ["a", "b", "c"]);
            let runs = ["a", "b", "c"].map(|name| log.count(name));
            let mut expected = [1; 3];
            if at < 3 {
                expected[at] = 2;
            }
            assert_eq!(runs, expected, "crash in {held}\n{}", world.report("chain", &id).await);
            world.stop_worker(second).await;
        }
    }

    async fn p02_calls_of_one_name_are_counted_also_in_a_loop_and_over_a_crash(setup) {
        fn registry(log: &Log, gate: &Gate) -> Registry {
            let (log, gate) = (log.clone(), gate.clone());
            Registry::new().workflow_fn("ticks", move |cx: Workflow, (): ()| {
                let (log, gate) = (log.clone(), gate.clone());
                async move {
                    let mut sum = Vec::new();
                    for round in 0..5_u32 {
                        let (log, gate) = (log.clone(), gate.clone());
                        let tick = cx.step("tick", round, move |step: Step, round: u32| {
                            let (log, gate) = (log.clone(), gate.clone());
                            async move {
                                log.push(format!("tick {round}"));
                                if round == 2 {
                                    gate.pass().await;
                                }
                                Ok::<_, Error>((round, step.count()))
                            }
                        });
                        sum.push(tick.retry(quick()).await?);
                        // Another kind of call of the same name is another call.
                        cx.sleep("tick", 1).await?;
                    }
                    Ok::<_, Error>(sum)
                }
            })
        }
        let (log, gate) = (Log::new(), Gate::closed());
        let mut world = setup.serve(registry(&log, &gate)).await;
        world.begin("ticks", "one", &()).await;
        log.reached("tick 2", 1).await;
        world.crash_worker(0).await;
        gate.open();
        world.add_worker(registry(&log, &gate)).await;
        let output = world.end("ticks", "one").await.output::<Vec<(u32, u32)>>();
        assert_eq!(output, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]);
        assert_eq!([0, 1, 2, 3, 4].map(|round| log.count(&format!("tick {round}"))), [1, 1, 2, 1, 1]);
        let counts: Vec<_> = world.attempts("ticks", "one").await.iter().filter(|(_, attempt)| matches!(attempt.outcome, Outcome::Succeeded(_))).map(|(_, attempt)| attempt.call.count).collect();
        assert_eq!(counts, [1, 2, 3, 4, 5]);
    }

    async fn p02_names_are_any_text_without_control_characters(setup) {
        let registry = Registry::new().workflow_fn("names", |cx: Workflow, (): ()| async move {
            let longest = "\u{1F40C}".repeat(256);
            let step = |name: &str| cx.step(name, (), |step: Step, (): ()| async move { Ok::<_, Error>(step.name().to_owned()) });
            assert_eq!(step(&longest).await?, longest);
            let mut errors = Vec::new();
            for wrong in [String::new(), "a\nb".to_owned(), "\u{7f}".to_owned(), format!("{longest}x")] {
                let error = step(&wrong).await.expect_err("the name is refused");
                assert_eq!(error.kind(), FailureKind::Invalid);
                errors.push(error.to_string());
                cx.sleep(&wrong, 0).await.expect_err("the name is refused");
            }
            Ok::<_, Error>(errors)
        });
        let world = setup.serve(registry).await;
        world.begin("names", "one", &()).await;
        assert_eq!(world.end("names", "one").await.output::<Vec<String>>().len(), 4);
        assert_eq!(world.attempts("names", "one").await.len(), 1);
    }

    async fn p07_a_fan_out_of_a_thousand_steps(setup) {
        let registry = Registry::new().workflow_fn("fan", |cx: Workflow, width: u32| async move {
            let all = (0..width).map(|number| cx.step("part", number, |_: Step, number: u32| async move { Ok::<_, Error>(number) }));
            let parts = future::try_join_all(all).await?;
            cx.sleep("rest", "300ms").await?;
            Ok::<_, Error>(parts.iter().sum::<u32>())
        });
        let world = setup.serve(registry).await;
        world.begin("fan", "one", &1_000).await;
        assert_eq!(world.end("fan", "one").await.output::<u32>(), 499_500);
        assert_eq!(world.view("fan", "one").await.expect("it exists").steps, 1_000);
    }

    async fn p03_values_survive_exactly_and_what_has_no_json_form_is_refused_by_name(setup) {
        let log = Log::new();
        let told = log.clone();
        let registry = Registry::new().workflow_fn("values", move |cx: Workflow, (): ()| {
            let log = told.clone();
            async move {
                cx.step("unit", (), |_: Step, (): ()| async { Ok::<_, Error>(()) }).await?;
                let numbers = (u64::MAX, i64::MIN, 9_007_199_254_740_993_u64, f64::MIN_POSITIVE);
                let numbers: (u64, i64, u64, f64) =
                    cx.step("numbers", numbers, |_: Step, numbers: (u64, i64, u64, f64)| async move { Ok::<_, Error>(numbers) }).await?;
                let text: String = cx.step("text", "a\0b\u{1F600}", |_: Step, text: String| async move { Ok::<_, Error>(text) }).await?;
                let log_ = log.clone();
                let nan = cx.step("not a number", (), move |_: Step, (): ()| {
                    log_.push("nan");
                    async { Ok::<_, Error>(vec![Some(1.0), Some(f64::NAN)]) }
                });
                let nan = nan.await.expect_err("NaN is refused");
                let infinite = cx.step("endless", f64::INFINITY, |_: Step, _: f64| async { Ok::<_, Error>(()) });
                let infinite = infinite.await.expect_err("infinity is refused");
                assert_eq!((nan.kind(), infinite.kind()), (FailureKind::Unserialisable, FailureKind::Unserialisable));
                Ok::<_, Error>((numbers.0.to_string(), numbers, text, nan.to_string(), infinite.to_string()))
            }
        });
        let world = setup.serve(registry).await;
        world.begin("values", "one", &()).await;
        let end = world.end("values", "one").await;
        let (exact, numbers, text, nan, infinite) = end.output::<(String, (u64, i64, u64, f64), String, String, String)>();
        assert_eq!(exact, u64::MAX.to_string());
        assert_eq!(numbers, (u64::MAX, i64::MIN, 9_007_199_254_740_993, f64::MIN_POSITIVE));
        assert_eq!(text, "a\0b\u{1F600}");
        assert!(nan.contains("not a number"), "the error names the step: {nan}");
        assert!(infinite.contains("endless"), "the error names the step: {infinite}");
        assert_eq!(log.count("nan"), 1, "never retried");
        let unit = &world.attempts("values", "one").await[0].1;
        assert_eq!(unit.outcome, Outcome::Succeeded(Payload::null()));
    }

    async fn p04_the_limit_itself_is_accepted_and_one_byte_more_refused(setup) {
        let log = Log::new();
        let told = log.clone();
        let registry = Registry::new()
            .workflow_fn("sizes", move |cx: Workflow, length: usize| {
                let log = told.clone();
                async move {
                    let made = cx.step("make", length, move |_: Step, length: usize| {
                        log.push("make");
                        async move { Ok::<_, Error>("x".repeat(length)) }
                    });
                    match made.retry(quick()).await {
                        Ok(text) => Ok::<_, Error>(format!("made {}", text.len())),
                        Err(error) => Ok(format!("{:?} {}", error.kind(), error.message())),
                    }
                }
            })
            .workflow_fn("many", |cx: Workflow, steps: u32| async move {
                for step in 0..steps {
                    cx.sleep("not counted", 0).await?;
                    cx.step("counted", step, |_: Step, step: u32| async move { Ok::<_, Error>(step) }).await?;
                }
                Ok::<_, Error>(steps)
            })
            .workflow_fn("take", |_cx: Workflow, text: String| async move { Ok::<_, Error>(text.len()) });
        let setup = setup.coordinator(|settings| {
            settings.limits.output_bytes = 1_000;
            settings.limits.input_bytes = 500;
            settings.limits.steps = 5;
        });
        let world = setup.serve(registry).await;
        // The text's own two quotes count.
        world.begin("sizes", "exact", &998).await;
        world.begin("sizes", "over", &999).await;
        world.begin("many", "exact", &5).await;
        world.begin("many", "over", &6).await;
        world.begin("take", "exact", &"x".repeat(498)).await;
        assert_eq!(world.end("sizes", "exact").await.output::<String>(), "made 998");
        let over = world.end("sizes", "over").await.output::<String>();
        assert!(over.starts_with("TooLarge") && over.contains("1001") && over.contains("1000"), "{over}");
        assert_eq!(log.count("make"), 2, "too large is permanent");
        assert_eq!(world.end("many", "exact").await.output::<u32>(), 5);
        let error = world.end("many", "over").await.error().clone();
        assert_eq!(error.name, "LimitReached", "{error:?}");
        assert_eq!(world.end("take", "exact").await.output::<usize>(), 498);
        let refused = world.handle().start(world.request("take", Some("over"), &"x".repeat(499))).await;
        let refused = refused.expect_err("one byte more is refused").to_string();
        assert!(refused.contains("501") && refused.contains("500"), "{refused}");
        assert!(world.view("take", "over").await.is_none());
    }

    async fn p05_a_step_is_told_everything_about_itself(setup) {
        let registry = Registry::new().workflow_fn("told", |cx: Workflow, delay: u64| async move {
            cx.step("other", (), |_: Step, (): ()| async { Ok::<_, Error>(()) }).await?;
            for _ in 0..2 {
                cx.step("look", (), |_: Step, (): ()| async { Ok::<_, Error>(()) }).await?;
            }
            let look = cx.step("look", (), |step: Step, (): ()| async move {
                let before: Option<u32> = step.last_progress();
                step.heartbeat(step.attempt() * 7)?;
                if step.attempt() < 3 {
                    return Err(Error::failed("not yet"));
                }
                Ok(serde_json::json!({
                    "name": step.name(), "count": step.count(), "attempt": step.attempt(),
                    "key": step.idempotency_key(), "limit": format!("{:?}", step.policy().limit),
                    "instance": step.instance_id(), "workflow": step.workflow(), "namespace": step.namespace(),
                    "before": before, "cancelled": step.is_cancelled(),
                }))
            });
            look.retry(Retry::constant(delay).limit(4)).await
        });
        let world = setup.serve(registry).await;
        world.begin("told", "one", &20_u64).await;
        let told = world.end("told", "one").await.output::<serde_json::Value>();
        let (_, record) = world.attempts("told", "one").await.pop().expect("it has attempts");
        let expected = serde_json::json!({
            "name": "look", "count": 3, "attempt": 3, "key": record.key.to_string(), "limit": "Times(4)",
            "instance": "one", "workflow": "told", "namespace": "default", "before": 14, "cancelled": false,
        });
        assert_eq!(told, expected);
    }

    async fn p06_a_final_failure_is_replayed_and_never_run_again(setup) {
        fn registry(log: &Log, gate: &Gate) -> Registry {
            let (log, gate) = (log.clone(), gate.clone());
            Registry::new().workflow_fn("fails", move |cx: Workflow, (): ()| {
                let (log, gate) = (log.clone(), gate.clone());
                async move {
                    let failing = log.clone();
                    let failed = cx.step("fail", (), move |_: Step, (): ()| {
                        failing.push("fail");
                        async { Err::<(), _>(Error::failed("out of stock").named("Stock").with_data([1, 2])) }
                    });
                    let error = failed.retry(Retry::none()).await.expect_err("it fails");
                    cx.step("after", (), move |_: Step, (): ()| logged(log.clone(), Some(gate.clone()), "after".to_owned())).retry(quick()).await?;
                    assert_eq!(error.data::<Vec<u32>>(), Some(vec![1, 2]));
                    Err::<(), _>(error)
                }
            })
        }
        let (log, gate) = (Log::new(), Gate::closed());
        let mut world = setup.serve(registry(&log, &gate)).await;
        world.begin("fails", "one", &()).await;
        log.reached("after", 1).await;
        world.crash_worker(0).await;
        gate.open();
        world.add_worker(registry(&log, &gate)).await;
        let end = world.end("fails", "one").await;
        assert_eq!((end.error().name.as_str(), end.error().message.as_str()), ("Stock", "out of stock"));
        assert_eq!(log.count("fail"), 1);
    }

    async fn p07_parallel_outcomes_are_replayed_in_the_order_in_which_they_arrived(setup) {
        fn registry(log: &Log, gates: &[Gate; 4]) -> Registry {
            let (log, gates) = (log.clone(), gates.clone());
            Registry::new().workflow_fn("parallel", move |cx: Workflow, (): ()| {
                let (log, gates) = (log.clone(), gates.clone());
                async move {
                    let mut all = FuturesUnordered::new();
                    for (name, gate) in ["a", "b", "c"].into_iter().zip(gates.clone()) {
                        let log = log.clone();
                        all.push(cx.step(name, name, move |_: Step, line: String| logged(log.clone(), Some(gate.clone()), line)).retry(quick()));
                    }
                    let mut order = Vec::new();
                    while let Some(outcome) = all.next().await {
                        order.push(outcome?);
                    }
                    let (log, gate) = (log.clone(), gates[3].clone());
                    cx.step("last", (), move |_: Step, (): ()| logged(log.clone(), Some(gate.clone()), "last".to_owned())).retry(quick()).await?;
                    Ok::<_, Error>(order)
                }
            })
        }
        let (log, gates) = (Log::new(), std::array::from_fn(|_| Gate::closed()));
        let mut world = setup.serve(registry(&log, &gates)).await;
        world.begin("parallel", "one", &()).await;
        for name in ["a", "b", "c"] {
            log.reached(name, 1).await;
        }
        for (at, done) in [(2, 1), (0, 2), (1, 3)] {
            gates[at].open();
            world.until("parallel", "one", "an outcome more", |view| view.steps >= done).await;
        }
        log.reached("last", 1).await;
        world.crash_worker(0).await;
        gates[3].open();
        world.add_worker(registry(&log, &gates)).await;
        assert_eq!(world.end("parallel", "one").await.output::<Vec<String>>(), ["c", "a", "b"]);
        assert_eq!(["a", "b", "c"].map(|name| log.count(name)), [1; 3]);
    }

    async fn p07_the_loser_of_a_race_is_cancelled_and_its_late_outcome_ignored(setup) {
        fn registry(log: &Log, late: &Gate, gate: &Gate) -> Registry {
            let (log, late, gate) = (log.clone(), late.clone(), gate.clone());
            Registry::new().workflow_fn("race", move |cx: Workflow, (): ()| {
                let (log, late, gate) = (log.clone(), late.clone(), gate.clone());
                async move {
                    let (slow_log, late) = (log.clone(), late.clone());
                    let slow = cx.step("slow", "slow", move |step: Step, name: String| {
                        let (log, late) = (slow_log.clone(), late.clone());
                        async move {
                            log.push("slow");
                            step.cancelled().await;
                            log.push("cancelled");
                            late.pass().await;
                            Ok::<_, Error>(name)
                        }
                    });
                    let started = log.clone();
                    let fast = cx.step("fast", "fast", move |_: Step, name: String| {
                        let log = started.clone();
                        async move {
                            log.reached("slow", 1).await;
                            Ok::<_, Error>(name)
                        }
                    });
                    let winner = match future::select(slow.retry(quick()), fast.retry(quick())).await {
                        future::Either::Left((winner, _)) | future::Either::Right((winner, _)) => winner?,
                    };
                    let (log, gate) = (log.clone(), gate.clone());
                    cx.step("after", (), move |_: Step, (): ()| logged(log.clone(), Some(gate.clone()), "after".to_owned())).retry(quick()).await?;
                    Ok::<_, Error>(winner)
                }
            })
        }
        let (log, late, gate) = (Log::new(), Gate::closed(), Gate::closed());
        let mut world = setup.serve(registry(&log, &late, &gate)).await;
        world.begin("race", "one", &()).await;
        log.reached("cancelled", 1).await;
        log.reached("after", 1).await;
        late.open();
        world.crash_worker(0).await;
        gate.open();
        world.add_worker(registry(&log, &late, &gate)).await;
        assert_eq!(world.end("race", "one").await.output::<String>(), "fast");
        assert_eq!(log.count("slow"), 1, "{}", world.report("race", "one").await);
        let slow = world.attempts("race", "one").await.into_iter().filter(|(_, attempt)| attempt.call.name.as_str() == "slow").count();
        assert_eq!(slow, 0, "{}", world.report("race", "one").await);
    }

    async fn p08_a_changed_input_uses_the_record_under_another_build_and_parks_under_the_same(setup) {
        fn registry(input: u32, log: &Log, gate: &Gate) -> Registry {
            let (log, gate) = (log.clone(), gate.clone());
            Registry::new().workflow_fn("drift", move |cx: Workflow, (): ()| {
                let (log, gate) = (log.clone(), gate.clone());
                async move {
                    let counting = log.clone();
                    let first: u32 = cx.step("first", input, move |_: Step, input: u32| {
                        counting.push("first");
                        async move { Ok::<_, Error>(input) }
                    }).await?;
                    cx.step("second", (), move |_: Step, (): ()| logged(log.clone(), Some(gate.clone()), "second".to_owned())).retry(quick()).await?;
                    Ok::<_, Error>(first)
                }
            })
        }
        for (id, changed) in [("other", "build-2"), ("same", "build-1")] {
            let (log, gate) = (Log::new(), Gate::closed());
            let mut world = setup.clone().serve(registry(1, &log, &gate)).await;
            world.begin("drift", id, &()).await;
            log.reached("second", 1).await;
            world.crash_worker(0).await;
            gate.open();
            let worker = world.add_worker_with(registry(2, &log, &gate), build(changed)).await;
            if id == "same" {
                let parked = world.until("drift", id, "parked", |view| view.status == StatusWord::Attention).await;
                let (_, parked) = parked.parked.expect("it says why");
                assert_eq!(parked.code, ParkCode::JournalMismatch, "{parked:?}");
                assert!(parked.message.contains("first"), "it names the call: {parked:?}");
                // P41: the fixed code continues it.
                world.stop_worker(worker).await;
                world.add_worker_with(registry(1, &log, &gate), build("build-3")).await;
                assert_eq!(world.retry("drift", id, "fixed").await, Answer::Done);
            }
            assert_eq!(world.end("drift", id).await.output::<u32>(), 1);
            assert_eq!(log.count("first"), 1);
        }
    }

    async fn p08_attempts_without_outcome_and_another_input_park_the_call(setup) {
        fn registry(input: u32, log: &Log) -> Registry {
            let log = log.clone();
            Registry::new().workflow_fn("pinned", move |cx: Workflow, (): ()| {
                let log = log.clone();
                async move {
                    let step = cx.step("charge", input, move |step: Step, input: u32| {
                        log.push(format!("charge {input}"));
                        async move { if step.attempt() == 1 { Err(Error::failed("again")) } else { Ok(input) } }
                    });
                    step.retry(Retry::constant("1s")).await
                }
            })
        }
        let log = Log::new();
        let mut world = setup.serve(registry(1, &log)).await;
        world.begin("pinned", "one", &()).await;
        world.until("pinned", "one", "waiting for its retry", |view| view.status == StatusWord::Waiting).await;
        world.crash_worker(0).await;
        let worker = world.add_worker_with(registry(2, &log), build("build-2")).await;
        let parked = world.until("pinned", "one", "parked", |view| view.status == StatusWord::Attention).await;
        assert_eq!(parked.parked.expect("it says why").1.code, ParkCode::InputChanged);
        assert_eq!(log.count("charge 2"), 0);
        world.stop_worker(worker).await;
        world.add_worker_with(registry(1, &log), build("build-3")).await;
        assert_eq!(world.retry("pinned", "one", "back").await, Answer::Done);
        assert_eq!(world.end("pinned", "one").await.output::<u32>(), 1);
    }

    async fn p08_a_person_chooses_the_key_under_which_another_input_goes_on(setup) {
        fn registry(input: u32) -> Registry {
            Registry::new().workflow_fn("pinned", move |cx: Workflow, (): ()| async move {
                let step = cx.step("charge", input, async |step: Step, input: u32| {
                    if step.attempt() == 1 { Err(Error::failed("again")) } else { Ok(input) }
                });
                step.retry(Retry::constant("1s")).await
            })
        }
        let mut world = setup.serve(registry(1)).await;
        for id in ["old_key", "new_key"] {
            world.begin("pinned", id, &()).await;
            world.until("pinned", id, "waiting for its retry", |view| view.status == StatusWord::Waiting).await;
        }
        world.crash_worker(0).await;
        world.add_worker_with(registry(2), build("build-2")).await;
        for (id, choice) in [("old_key", KeyChoice::OldKey), ("new_key", KeyChoice::NewKey)] {
            let view = world.until("pinned", id, "parked", |view| view.status == StatusWord::Attention).await;
            let position = view.parked.and_then(|(_, parked)| parked.changed?.asked_at).expect("it asks");
            let question = QuestionId { run: view.run, position };
            let rekeying = Rekeying { question, choice: Unparking::Key(choice), by: Some("ann".to_owned()), why: None };
            let answer = world.handle().rekey(&name("pinned", id), "op".to_owned(), rekeying).await;
            assert_eq!(answer.expect("it is answered"), Answer::Done);
            assert_eq!(world.end("pinned", id).await.output::<u32>(), 2);
            let attempts = world.attempts("pinned", id).await;
            // Between them perhaps one that was lost with its worker.
            let [(_, first), .., (_, last)] = &attempts[..] else { panic!("{attempts:?}") };
            assert_ne!(first.input, last.input);
            assert_eq!(first.key == last.key, choice == KeyChoice::OldKey, "{id}");
            let sent = last.key;
            // A run from the beginning makes the same calls under the same keys.
            let restarted = world.handle().restart(name("pinned", id), "again".to_owned(), None).await;
            assert_eq!(restarted.expect("it is restarted"), Answer::Done);
            world.until("pinned", id, "it ends again", |view| view.run.0 == 2 && view.end.is_some()).await;
            let again = world.attempts("pinned", id).await;
            let keys: Vec<_> = again.iter().map(|(_, attempted)| attempted.key).collect();
            assert!(!keys.is_empty() && keys.iter().all(|key| *key == sent), "{id}: {again:?}");
        }
    }

    async fn p09_a_panic_in_a_step_is_a_failed_attempt_and_one_of_the_body_parks(setup) {
        let broken = Arc::new(AtomicU32::new(1));
        let registry = |broken: &Arc<AtomicU32>| {
            let broken = Arc::clone(broken);
            Registry::new()
                .workflow_fn("step", |cx: Workflow, (): ()| async move {
                    let step = cx.step("panics", (), |step: Step, (): ()| async move {
                        assert!(step.attempt() > 2, "attempt {} goes wrong", step.attempt());
                        Ok::<_, Error>(step.attempt())
                    });
                    step.retry(quick()).await
                })
                .workflow_fn("body", move |cx: Workflow, (): ()| {
                    let broken = Arc::clone(&broken);
                    async move {
                        let value: u32 = cx.step("before", (), |_: Step, (): ()| async { Ok::<_, Error>(7) }).await?;
                        assert!(broken.load(Ordering::SeqCst) == 0, "the body is broken");
                        Ok::<_, Error>(value)
                    }
                })
        };
        let mut world = setup.serve(registry(&broken)).await;
        world.begin("step", "one", &()).await;
        world.begin("body", "one", &()).await;
        assert_eq!(world.end("step", "one").await.output::<u32>(), 3, "the worker lives on");
        let attempts = world.attempts("step", "one").await;
        let Outcome::Failed { failure, .. } = &attempts[0].1.outcome else { panic!("{attempts:?}") };
        assert_eq!(failure.kind, FailureKind::Panicked);
        assert!(failure.message.contains("attempt 1 goes wrong"), "{failure:?}");
        let parked = world.until("body", "one", "parked", |view| view.status == StatusWord::Attention).await;
        let (_, parked) = parked.parked.expect("it says why");
        assert_eq!(parked.code, ParkCode::BodyPanicked);
        assert!(parked.message.contains("the body is broken"), "{parked:?}");
        world.stop_worker(0).await;
        broken.store(0, Ordering::SeqCst);
        world.add_worker_with(registry(&broken), build("build-2")).await;
        assert_eq!(world.retry("body", "one", "deployed").await, Answer::Done);
        assert_eq!(world.end("body", "one").await.output::<u32>(), 7);
    }

    async fn l01_the_key_is_derived_from_the_call_and_the_same_for_all_attempts(setup) {
        let registry = Registry::new().workflow_fn("keys", |cx: Workflow, (): ()| async move {
            let mut seen = Vec::new();
            for round in 0..2_u32 {
                let step = cx.step("charge", ("b", round), |step: Step, _: (String, u32)| async move {
                    if step.attempt() < 3 { Err(Error::failed("again")) } else { Ok(step.idempotency_key().to_owned()) }
                });
                seen.push(step.retry(quick()).await?);
            }
            Ok::<_, Error>(seen)
        });
        let world = setup.serve(registry).await;
        world.begin("keys", "one", &()).await;
        let l03_seen = world.end("keys", "one").await.output::<Vec<String>>();
        let view = world.view("keys", "one").await.expect("it exists");
        let attempts = world.attempts("keys", "one").await;
        assert_eq!(attempts.len(), 6);
        for (round, seen) in l03_seen.iter().enumerate() {
            let input = Payload::encode(&("b", round)).expect("it has a JSON form");
            let key = StepKey::derive(view.uid.0, view.generation.0, "step", "charge", round as u32 + 1, &input).expect("it is canonical");
            assert_eq!(*seen, key.to_string());
            assert!(attempts[round * 3..][..3].iter().all(|(_, attempt)| attempt.key == key));
        }
        assert_ne!(l03_seen[0], l03_seen[1]);
    }

    async fn w28_an_outcome_says_what_the_body_knew_when_it_called(setup) {
        let registry = Registry::new().workflow_fn("knows", |cx: Workflow, (): ()| async move {
            let step = |name: &str| cx.step(name, (), |_: Step, (): ()| async { Ok::<_, Error>(()) });
            step("a").await?;
            let (b, c) = future::join(step("b"), step("c")).await;
            b?;
            c?;
            Ok::<_, Error>(())
        });
        let world = setup.serve(registry).await;
        world.begin("knows", "one", &()).await;
        world.end("knows", "one").await;
        let journal = world.journal("knows", "one").await;
        assert!(matches!(journal[0].fact, Fact::Started(_)));
        assert!(journal.iter().zip(1..).all(|(entry, position)| entry.position.0 == position), "W1: dense");
        let after: Vec<_> = world.attempts("knows", "one").await.iter().map(|(_, attempt)| attempt.called_after.0).collect();
        assert_eq!(after, [1, 2, 2]);
    }
}
