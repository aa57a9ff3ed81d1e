//! Sagas in whole instances, on virtual time: rules P38, P39, P44 and L4. Every finished run is replayed a second time by the kit.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use everstep::{Compensation, Error, Retry, Step, StepOutcome, Undo, Workflow};
use everstep_testkit::{
    Kit, KitError, Mock, Run, Status, TestKit, crash_everywhere,
    journal::{End, Fact, Outcome, UndoneEnd},
};

/// What is held in the world, each under the key of the step that took it: a service that honours keys.
#[derive(Clone, Debug, Default)]
struct World(Arc<Mutex<Vec<(String, String)>>>);

impl World {
    fn take(&self, step: &Step, what: &str) -> String {
        let mut held = self.0.lock().unwrap();
        let taken = (step.idempotency_key().to_owned(), what.to_owned());
        if !held.contains(&taken) {
            held.push(taken);
        }
        what.to_owned()
    }

    fn give_back(&self, step: &Step) {
        let mut held = self.0.lock().unwrap();
        held.retain(|(key, _)| Some(key.as_str()) != step.undoes());
    }

    fn held(&self) -> Vec<String> {
        let mut held: Vec<String> = self.0.lock().unwrap().iter().map(|(_, what)| what.clone()).collect();
        held.sort();
        held
    }
}

/// Books what it is told, two at once, a remote step between, then sleeps, and fails.
fn trip(world: &World) -> TestKit {
    let (booked, remote) = (world.clone(), world.clone());
    let kit = TestKit::new().workflow_fn("trip", move |cx: Workflow, (): ()| {
        let world = booked.clone();
        async move {
            let book = |what: &str| {
                let (take, give) = (world.clone(), world.clone());
                cx.step(what, what, move |step: Step, what: String| {
                    let world = take.clone();
                    async move { Ok::<_, Error>(world.take(&step, &what)) }
                })
                .retry(Retry::constant("1s").limit(4))
                .compensate_with(
                    Compensation::new(move |step: Step, _: Undo<String, String>| {
                        let world = give.clone();
                        async move {
                            world.give_back(&step);
                            Ok::<_, Error>(())
                        }
                    })
                    .retry(Retry::constant("1s").limit(4)),
                )
            };
            let give = world.clone();
            book("flight").await?;
            let (hotel, car) = futures::join!(book("hotel"), book("car"));
            hotel.and(car)?;
            let insured: String = cx
                .remote("insurance", "insurance")
                .on("insurers")
                .retry(Retry::constant("1s").limit(4))
                .compensate(move |step: Step, _: Undo<String, String>| {
                    let world = give.clone();
                    async move {
                        world.give_back(&step);
                        Ok::<_, Error>(())
                    }
                })
                .await?;
            cx.sleep("until the day", "30 days").await?;
            book("seat").await?;
            Err::<(), _>(Error::permanent(format!("{insured} was refused")).named("Refused"))
        }
    });
    kit.pool("insurers").function("insurance", move |step: Step, what: String| {
        let world = remote.clone();
        async move { Ok::<_, Error>(world.take(&step, &what)) }
    })
}

/// The compensations of a journal in the order of their entries, and what came of each attempt.
async fn compensations(run: &Run) -> Vec<(String, bool)> {
    let journal = run.journal().await.unwrap();
    let of = |fact: &Fact| match fact {
        Fact::Attempted(attempted) if attempted.call.kind.word() == "compensation" => {
            let succeeded = matches!(attempted.outcome, Outcome::Succeeded(_));
            Some((format!("{} #{}", attempted.call.name, attempted.call.count), succeeded))
        }
        _ => None,
    };
    journal.iter().filter_map(|entry| of(&entry.fact)).collect()
}

async fn words(run: &Run) -> Vec<&'static str> {
    run.journal().await.unwrap().iter().map(|entry| entry.fact.word()).collect()
}

#[test]
fn p38_a_workflow_that_fails_takes_back_what_it_did_in_reverse_order_of_call() {
    let world = World::default();
    trip(&world).run(async move |kit| {
        let run = kit.start_instance("trip", &()).await.unwrap();
        assert_eq!(run.error().await.unwrap().name(), "Refused");
        assert_eq!(world.held(), Vec::<String>::new());
        let undone: Vec<String> = compensations(&run).await.into_iter().map(|(call, _)| call).collect();
        assert_eq!(undone, ["seat #1", "insurance #1", "car #1", "hotel #1", "flight #1"]);
        let words = words(&run).await;
        assert_eq!(words[words.len() - 2..], ["compensated", "ended"]);
        assert_eq!(words.iter().filter(|word| **word == "compensating").count(), 1);
    });
}

#[test]
fn p38_a_rollback_of_a_sleeping_instance_replays_to_where_it_stands_and_takes_that_back() {
    let world = World::default();
    trip(&world).run(async move |kit| {
        let run = kit.start_instance("trip", &()).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        kit.settle().await.unwrap();
        run.roll_back("ann").await.unwrap();
        let End::Terminated { reason } = run.end().await.unwrap() else { panic!() };
        assert_eq!(reason.as_deref(), Some("ann"));
        assert_eq!(world.held(), Vec::<String>::new());
        assert!(!words(&run).await.contains(&"cancelled"));
    });
}

#[test]
fn p38_a_cancel_takes_back_only_with_a_rollback() {
    for rollback in [false, true] {
        let world = World::default();
        trip(&world).run(async move |kit| {
            let run = kit.start_instance("trip", &()).await.unwrap();
            run.step::<String>("insurance").await.unwrap();
            if rollback {
                run.cancel_and_roll_back("ann").await.unwrap();
            } else {
                run.cancel("ann").await.unwrap();
            }
            let end = run.end().await.unwrap();
            assert!(matches!(end, End::Cancelled { .. }), "{end:?}");
            assert_eq!(world.held().is_empty(), rollback, "{:?}", world.held());
        });
    }
}

#[test]
fn p38_p43_a_rollback_comes_to_the_same_wherever_its_worker_crashes() {
    let report = crash_everywhere(|| {
        let world = World::default();
        (trip(&world), async move |kit: Kit| {
            kit.mock(Mock::compensation("car").fails(1, Error::failed("busy"))).unwrap();
            let run = kit.start_instance_as("trip", "one", &()).await.unwrap();
            let error = run.error().await.unwrap();
            (error.name().to_owned(), world.held())
        })
    });
    let compensating = |point: &&String| point.contains("compensation");
    assert!(report.points.iter().filter(compensating).count() >= 10, "{:#?}", report.points);
}

/// A workflow of one step whose compensation is mocked, and which fails.
fn one() -> TestKit {
    TestKit::new().workflow_fn("one", |cx: Workflow, (): ()| async move {
        for n in 1..=3_u32 {
            cx.step("work", n, async |_: Step, n: u32| Ok::<_, Error>(n))
                .compensate_with(
                    Compensation::new(async |_: Step, _: Undo<u32, u32>| Ok::<_, Error>(()))
                        .retry(Retry::constant("1 min").limit(2)),
                )
                .await?;
        }
        Err::<(), _>(Error::failed("enough"))
    })
}

#[test]
fn p39_a_compensation_that_exhausts_its_retries_does_not_stop_the_others_and_is_listed() {
    one().run(async move |kit| {
        kit.mock(Mock::compensation("work").nth(2).always_fails(Error::failed("jammed"))).unwrap();
        let run = kit.start_instance("one", &()).await.unwrap();
        assert_eq!(run.error().await.unwrap().message(), "enough");
        let attempts = compensations(&run).await;
        let of = |call: &str| attempts.iter().filter(|(name, _)| name == call).count();
        assert_eq!((of("work #3"), of("work #2"), of("work #1")), (1, 3, 1), "{attempts:?}");
        let journal = run.journal().await.unwrap();
        let Fact::Compensated(compensated) = &journal[journal.len() - 2].fact else { panic!() };
        let ends: Vec<(u32, bool)> = compensated
            .steps
            .iter()
            .map(|undone| (undone.call.count, matches!(undone.end, UndoneEnd::Done)))
            .collect();
        assert_eq!(ends, [(3, true), (2, false), (1, true)]);
    });
}

#[test]
fn p38_compensations_are_paused_and_terminated_like_anything_else_and_not_cancelled() {
    one().time_by_hand().run(async move |kit| {
        kit.mock(Mock::compensation("work").nth(3).fails(2, Error::failed("busy"))).unwrap();
        let run = kit.start_instance("one", &()).await.unwrap();
        kit.advance("1 s").await.unwrap();
        run.pause().await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Paused);
        run.resume().await.unwrap();
        kit.advance("1 s").await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Waiting);
        let view = run.view().await.unwrap();
        assert!(view.control.compensating_at.is_some(), "it waits for the retry of a compensation");
        run.cancel("too late").await.unwrap();
        run.roll_back("too late").await.unwrap();
        assert!(!words(&run).await.contains(&"cancelled"));
        run.terminate("enough of it").await.unwrap();
        assert!(matches!(run.end().await.unwrap(), End::Terminated { .. }));
        assert_eq!(compensations(&run).await.len(), 1, "those that are left do not run");
    });
}

#[test]
fn p31_p38_a_restart_after_a_rollback_runs_all_of_it_again() {
    let world = World::default();
    trip(&world).run(async move |kit| {
        let run = kit.start_instance("trip", &()).await.unwrap();
        run.error().await.unwrap();
        run.restart().await.unwrap();
        run.error().await.unwrap();
        assert_eq!(compensations(&run).await.len(), 5);
        // From a step: what was compensated is not kept, though it came before.
        run.restart_from("seat").await.unwrap();
        run.error().await.unwrap();
        assert_eq!(compensations(&run).await.len(), 5);
        assert_eq!(world.held(), Vec::<String>::new());
        // Nor does reuse take it over.
        run.restart_and_reuse().await.unwrap();
        run.error().await.unwrap();
        assert!(!words(&run).await.contains(&"reusable"));
    });
}

#[test]
fn p39_code_that_no_longer_registers_a_compensation_is_reported_and_the_former_code_goes_on() {
    let registers = Arc::new(AtomicBool::new(true));
    let code = registers.clone();
    let kit = TestKit::new().workflow_fn("changed", move |cx: Workflow, (): ()| {
        let registers = code.load(Ordering::Relaxed);
        async move {
            let step = cx.step("work", (), async |_: Step, (): ()| Ok::<_, Error>(1));
            let step = if registers {
                step.compensate(async |_: Step, _: Undo<(), u32>| Ok::<_, Error>(()))
            } else {
                step
            };
            step.await?;
            cx.sleep("long", "30 days").await
        }
    });
    kit.time_by_hand().run(async move |kit| {
        let run = kit.start_instance("changed", &()).await.unwrap();
        run.step::<u32>("work").await.unwrap();
        kit.advance("1 s").await.unwrap();
        registers.store(false, Ordering::Relaxed);
        kit.crash_worker();
        kit.advance("1 s").await.unwrap();
        run.roll_back("ann").await.unwrap();
        kit.advance("1 s").await.unwrap();
        let error = run.end().await.unwrap_err();
        let KitError::Parked { parked, .. } = &error else { panic!("{error:?}") };
        assert_eq!(parked.code.word(), "compensation_missing");
        assert!(parked.message.contains("step \"work\" #1"), "{}", parked.message);
        registers.store(true, Ordering::Relaxed);
        run.retry().await.unwrap();
        kit.advance("1 s").await.unwrap();
        assert!(matches!(run.end().await.unwrap(), End::Terminated { .. }));
        assert_eq!(compensations(&run).await, [("work #1".to_owned(), true)]);
    });
}

#[test]
fn p44_a_sensitive_output_is_real_for_the_code_and_in_no_export() {
    let kit = TestKit::new().workflow_fn("secret", |cx: Workflow, (): ()| async move {
        let token: String = cx
            .step("log in", (), async |step: Step, (): ()| match step.attempt() {
                1 => Err(Error::failed("busy").with_data("hunter2")),
                _ => Ok("hunter2".to_owned()),
            })
            .sensitive()
            .compensate(async |_: Step, undo: Undo<(), String>| match undo.outcome {
                StepOutcome::Completed(token) if token == "hunter2" => Ok::<_, Error>(()),
                _ => Err(Error::permanent("another token")),
            })
            .await?;
        Err::<(), _>(Error::failed(format!("{} characters", token.len())))
    });
    kit.run(async move |kit| {
        let run = kit.start_instance("secret", &()).await.unwrap();
        assert_eq!(run.error().await.unwrap().message(), "7 characters");
        assert_eq!(compensations(&run).await, [("log in #1".to_owned(), true)]);
        let export = run.export().await.unwrap();
        assert!(export.contains("\"sensitive\": true") && !export.contains("hunter2"), "{export}");
        let error = kit.replay(&export).unwrap_err().to_string();
        assert!(error.contains("sensitive"), "{error}");
    });
}

/// Messages and data of errors, as code saw them.
type Seen = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// A sensitive step that fails with a secret, whose compensation fails with it too, in a child; the parent hands the error on.
fn leaking(seen: Seen) -> TestKit {
    let code = TestKit::new().workflow_fn("leak", |cx: Workflow, (): ()| async move {
        cx.step("log in", (), async |_: Step, (): ()| {
            Err::<(), _>(Error::permanent("no user hunter2").named("NoUser").with_data("hunter2"))
        })
        .sensitive()
        .compensate(async |_: Step, undo: Undo<(), ()>| match undo.outcome {
            StepOutcome::Failed(error) => {
                // What it says is the code's own, and the mark is the step's.
                Err::<(), _>(Error::permanent(format!("still {}", error.message())))
            }
            _ => Ok(()),
        })
        .await
    });
    code.workflow_fn("parent", move |cx: Workflow, (): ()| {
        let seen = seen.clone();
        async move {
            let error = cx.child::<()>("leak", "leak", ()).await.unwrap_err();
            seen.lock().unwrap().push((error.message().to_owned(), error.data()));
            // Displayed it does not say more than anybody may see.
            let wrapped = Error::permanent(format!("the child failed: {error}"));
            assert!(wrapped.message().contains("NoUser") && !wrapped.message().contains("hunter2"));
            Err::<(), _>(error)
        }
    })
}

#[test]
fn p44_a_sensitive_error_is_real_for_the_code_and_hidden_wherever_it_is_handed_on() {
    let seen = Seen::default();
    leaking(seen.clone()).run(async move |kit| {
        let run = kit.start_instance("parent", &()).await.unwrap();
        let error = run.error().await.unwrap();
        assert_eq!((error.name(), error.is_sensitive()), ("NoUser", true));
        assert!(!format!("{error} {error:?}").contains("hunter2"));
        let real = ("no user hunter2".to_owned(), Some("hunter2".to_owned()));
        assert_eq!(seen.lock().unwrap()[..], [real], "its parent's code gets it as it is");
        let child = kit.instances().await.unwrap().into_iter().find(|run| run.workflow() == "leak").unwrap();
        for run in [&run, &child] {
            let export = run.export().await.unwrap();
            assert!(export.contains("NoUser") && !export.contains("hunter2"), "{export}");
            let error = kit.replay(&export).unwrap_err().to_string();
            assert!(error.contains("sensitive"), "the code would see something else: {error}");
        }
        let journal = child.journal().await.unwrap();
        let mut failures = 0;
        for entry in &journal {
            match &entry.fact {
                Fact::Attempted(attempted) => {
                    let Outcome::Failed { failure, .. } = &attempted.outcome else { panic!() };
                    assert!(failure.sensitive && attempted.marks.sensitive, "{attempted:?}");
                }
                Fact::Compensating(compensating) => assert!(compensating.failure.as_ref().unwrap().sensitive),
                Fact::Compensated(compensated) => {
                    let UndoneEnd::Failed(failure) = &compensated.steps[0].end else { panic!() };
                    assert!(failure.sensitive);
                }
                Fact::Ended(End::Errored(failure)) => assert!(failure.sensitive),
                _ => continue,
            }
            failures += 1;
        }
        assert_eq!(failures, 5, "the step, its compensation, their beginning, their list, the end");
    });
}

#[test]
fn l04_a_restart_with_reuse_calls_only_what_is_not_complete() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let kit = TestKit::new().workflow_fn("reuse", move |cx: Workflow, (): ()| {
        let counted = counted.clone();
        async move {
            let first = {
                let counted = counted.clone();
                cx.step("first", 1, move |_: Step, n: u32| {
                    counted.fetch_add(1, Ordering::Relaxed);
                    async move { Ok::<_, Error>(n) }
                })
            };
            let first: u32 = first.await?;
            cx.sleep("nap", "1 h").await?;
            let _: u32 = cx.remote("double", first).on("pool").await?;
            let last: u32 = cx.step("last", (), crate::never).retry(Retry::none()).await?;
            Ok::<_, Error>(last)
        }
    });
    let doubled = Arc::new(AtomicU32::new(0));
    let counting = doubled.clone();
    let kit = kit.pool("pool").function("double", move |_: Step, n: u32| {
        counting.fetch_add(1, Ordering::Relaxed);
        async move { Ok::<_, Error>(2 * n) }
    });
    kit.run(async move |kit| {
        let run = kit.start_instance("reuse", &()).await.unwrap();
        run.error().await.unwrap();
        kit.mock(Mock::step("last").returns(&7)).unwrap();
        run.restart_and_reuse().await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), 7);
        assert_eq!(
            (calls.load(Ordering::Relaxed), doubled.load(Ordering::Relaxed)),
            (1, 1),
            "neither ran again"
        );
        let journal = run.journal().await.unwrap();
        let reused = journal.iter().filter(|entry| match &entry.fact {
            Fact::Attempted(attempted) => attempted.marks.reused,
            _ => false,
        });
        assert_eq!(reused.count(), 2);
        // What the second run had from the first, a third has from the second.
        run.restart_and_reuse().await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), 7);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        // A plain restart runs everything.
        run.restart().await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), 7);
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    });
}
