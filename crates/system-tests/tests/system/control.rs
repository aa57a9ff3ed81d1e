//! Control of instances: rules P29 (pause), P30 (cancel), P31 (restart), P32 (delete). Not here: terminate and retry
//! (`instances`), HTTP (the coordinator's own tests).

use everstep::{Error, Registry, Step, Workflow};
use everstep_engine::{Answer, Status};
use everstep_protocol::{
    Call, CallKind, CallName, Millis, Pool, Position, Run,
    journal::{End, Entry, Fact},
    start::StartOutcome,
};
use everstep_store::{Range, StatusWord};
use everstep_system_tests::{Gate, Log, World, on_both, world::name};

/// Two steps; the first waits for the gate.
fn two_steps(log: &Log, gate: &Gate) -> Registry {
    let (log, gate) = (log.clone(), gate.clone());
    Registry::new().workflow_fn("two", move |cx: Workflow, (): ()| {
        let (log, gate) = (log.clone(), gate.clone());
        async move {
            let first = log.clone();
            cx.step("first", (), move |_: Step, (): ()| {
                let (log, gate) = (first.clone(), gate.clone());
                async move {
                    log.push("first");
                    gate.pass().await;
                    Ok::<_, Error>(())
                }
            })
            .await?;
            cx.step("second", (), move |_: Step, (): ()| {
                let log = log.clone();
                async move {
                    log.push("second");
                    Ok::<_, Error>(())
                }
            })
            .await
        }
    })
}

async fn pause(world: &World, workflow: &str, id: &str) {
    let answer = world.handle().pause(name(workflow, id), format!("pause {id}")).await;
    assert_eq!(answer.expect("it is decided"), Answer::Done);
}

async fn resume(world: &World, workflow: &str, id: &str) {
    let answer = world.handle().resume(name(workflow, id), format!("resume {id}")).await;
    assert_eq!(answer.expect("it is decided"), Answer::Done);
}

async fn is(world: &World, workflow: &str, id: &str, status: StatusWord) {
    world.until(workflow, id, status.word(), |view| view.status == status).await;
}

/// The journal of a run.
async fn journal_of(world: &World, workflow: &str, id: &str, run: u32) -> Vec<Entry> {
    let uid = world.view(workflow, id).await.expect("it exists").uid;
    let range = Range { uid, run: Run(run), after: Position(0) };
    world.store().journal(vec![range], usize::MAX).await.expect("the store answers").remove(0)
}

fn step(name: &str) -> Call {
    Call { kind: CallKind::Step, name: CallName::new(name).expect("a valid name"), count: 1 }
}

on_both! {
    async fn p29_what_runs_finishes_and_nothing_begins_until_the_resume(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let world = setup.serve(two_steps(&log, &gate)).await;
        world.begin("two", "one", &()).await;
        log.reached("first", 1).await;
        pause(&world, "two", "one").await;
        assert_eq!(world.view("two", "one").await.expect("it exists").status, StatusWord::Pausing);
        gate.open();
        is(&world, "two", "one", StatusWord::Paused).await;
        assert_eq!(world.attempts("two", "one").await.len(), 1, "the result is kept");
        assert_eq!(log.count("second"), 0);
        resume(&world, "two", "one").await;
        assert_eq!(world.end("two", "one").await.status, "complete");
        assert_eq!((log.count("first"), log.count("second")), (1, 1));
    }

    async fn p29_nothing_runs_while_paused_though_the_worker_dies_while_pausing(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let mut world = setup.serve(two_steps(&log, &gate)).await;
        world.begin("two", "one", &()).await;
        log.reached("first", 1).await;
        pause(&world, "two", "one").await;
        world.crash_worker(0).await;
        world.add_worker(two_steps(&log, &gate)).await;
        is(&world, "two", "one", StatusWord::Paused).await;
        world.crash_coordinator(0).await;
        world.add_coordinator().await;
        // Another instance runs to its end: whoever could have taken up the paused one had the time to.
        gate.open();
        world.begin("two", "other", &()).await;
        assert_eq!(world.end("two", "other").await.status, "complete");
        assert_eq!(world.view("two", "one").await.expect("it exists").status, StatusWord::Paused);
        assert_eq!((log.count("first"), log.count("second")), (2, 1), "those of the other");
        resume(&world, "two", "one").await;
        assert_eq!(world.end("two", "one").await.status, "complete");
    }

    async fn p29_a_timer_that_comes_due_meanwhile_fires_at_the_resume(setup) {
        let registry = Registry::new().workflow_fn("nap", |cx: Workflow, length: String| async move {
            cx.sleep("nap", length).await
        });
        let world = setup.serve(registry).await;
        world.begin("nap", "paused", "150ms").await;
        is(&world, "nap", "paused", StatusWord::Waiting).await;
        pause(&world, "nap", "paused").await;
        // One that sleeps longer and is not paused ends: the other's time is long past.
        world.begin("nap", "free", "1500ms").await;
        assert_eq!(world.end("nap", "free").await.status, "complete");
        let view = world.view("nap", "paused").await.expect("it exists");
        assert_eq!((view.status, view.waits, view.position), (StatusWord::Paused, 1, Position(2)), "it did not fire");
        resume(&world, "nap", "paused").await;
        assert_eq!(world.end("nap", "paused").await.status, "complete");
    }

    async fn p29_resume_during_pausing_goes_on_where_it_stands(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let world = setup.serve(two_steps(&log, &gate)).await;
        world.begin("two", "one", &()).await;
        log.reached("first", 1).await;
        for round in 0..20 {
            let (paused, resumed) = (format!("p{round}"), format!("r{round}"));
            assert_eq!(world.handle().pause(name("two", "one"), paused).await.expect("decided"), Answer::Done);
            assert_eq!(world.handle().resume(name("two", "one"), resumed).await.expect("decided"), Answer::Done);
        }
        gate.open();
        assert_eq!(world.end("two", "one").await.status, "complete");
        assert_eq!((log.count("first"), log.count("second")), (1, 1));
    }

    async fn p29_remote_steps_pause_too(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let registry = Registry::new().workflow_fn("far", |cx: Workflow, (): ()| async move {
            cx.remote::<u32>("held", 1_u32).on("far").await?;
            cx.remote::<u32>("held", 2_u32).on("far").await
        });
        let (told, held) = (log.clone(), gate.clone());
        let pool = Registry::new().function("held", move |_: Step, n: u32| {
            let (log, gate) = (told.clone(), held.clone());
            async move {
                log.push(format!("held {n}"));
                gate.pass().await;
                Ok::<_, Error>(n)
            }
        });
        let mut world = setup.serve(registry).await;
        let pools = |settings: &mut everstep_system_tests::world::WorkerSettings| {
            settings.pools = vec![Pool::new("far").expect("a valid name")];
        };
        world.add_worker_with(pool, pools).await;
        world.begin("far", "one", &()).await;
        log.reached("held 1", 1).await;
        is(&world, "far", "one", StatusWord::Waiting).await;
        pause(&world, "far", "one").await;
        assert_eq!(world.view("far", "one").await.expect("it exists").status, StatusWord::Pausing, "it runs still");
        gate.open();
        is(&world, "far", "one", StatusWord::Paused).await;
        assert_eq!(log.count("held 2"), 0);
        resume(&world, "far", "one").await;
        assert_eq!(world.end("far", "one").await.status, "complete");
    }

    async fn p30_a_cancel_reaches_what_is_open_once_and_clean_up_runs(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let (told, held) = (log.clone(), gate.clone());
        let registry = Registry::new().workflow_fn("booking", move |cx: Workflow, how: String| {
            let (log, gate) = (told.clone(), held.clone());
            async move {
                let cleaned = log.clone();
                let work = async {
                    let (hang, _) = (log.clone(), gate.clone());
                    let hung = cx.step("hang", (), move |step: Step, (): ()| {
                        let log = hang.clone();
                        async move {
                            log.push("hang");
                            step.cancelled().await;
                            log.push("told");
                            Ok::<_, Error>(())
                        }
                    });
                    let nap = cx.sleep("nap", "1 day");
                    // Both are open at the cancel, and both end with it.
                    let (hung, nap) = futures::join!(hung, nap);
                    assert!(nap.is_err_and(|error| error.is_cancelled()));
                    hung
                };
                let result = cx
                    .on_cancel(work, || async {
                        assert!(cx.is_cancelled());
                        cx.sleep("breathe", "20ms").await?;
                        cx.step("clean up", (), move |_: Step, (): ()| {
                            let log = cleaned.clone();
                            async move {
                                log.push("clean up");
                                Ok::<_, Error>(())
                            }
                        })
                        .await
                    })
                    .await;
                if how == "value" { Ok("kept") } else { result.map(|()| "done") }
            }
        });
        let world = setup.serve(registry).await;
        for (how, status) in [("error", "cancelled"), ("value", "complete")] {
            let before = log.count("hang");
            world.begin("booking", how, how).await;
            log.reached("hang", before + 1).await;
            world.until("booking", how, "the sleep is recorded", |view| view.waits == 1).await;
            let reason = Some("ann".to_owned());
            let cancel = world.handle().cancel(name("booking", how), "c".to_owned(), reason, None).await;
            assert_eq!(cancel.expect("it is decided"), Answer::Done);
            assert_eq!(world.end("booking", how).await.status, status);
            let words: Vec<_> = world.journal("booking", how).await.iter().map(|entry| entry.fact.word()).collect();
            assert_eq!(words, ["started", "opened", "cancelled", "opened", "fired", "attempted", "ended"], "{how}");
            let again = world.handle().cancel(name("booking", how), "c".to_owned(), None, None).await;
            assert_eq!(again.expect("it is decided"), Answer::Done, "the first answer");
        }
        assert_eq!((log.count("told"), log.count("clean up")), (2, 2), "the attempt is told, and clean-up runs once");
        let journal = world.journal("booking", "error").await;
        let last = &journal.last().expect("it has entries").fact;
        assert!(matches!(last, Fact::Ended(End::Cancelled { reason: Some(reason) }) if reason == "ann"), "{last:?}");
        assert_eq!(world.view("booking", "error").await.expect("it exists").status, StatusWord::Cancelled);
    }

    async fn p30_a_replay_meets_the_cancel_where_it_came(setup) {
        let log = Log::new();
        let registry = |log: &Log| {
            let log = log.clone();
            Registry::new().workflow_fn("slow", move |cx: Workflow, (): ()| {
                let log = log.clone();
                async move {
                    let cancelled = cx.sleep("nap", "1 day").await.is_err_and(|error| error.is_cancelled());
                    log.push(format!("cancelled {cancelled}"));
                    cx.sleep("clean up", "400ms").await?;
                    Ok::<_, Error>(cancelled)
                }
            })
        };
        let mut world = setup.serve(registry(&log)).await;
        world.begin("slow", "one", &()).await;
        is(&world, "slow", "one", StatusWord::Waiting).await;
        let cancel = world.handle().cancel(name("slow", "one"), "c".to_owned(), None, None).await;
        assert_eq!(cancel.expect("it is decided"), Answer::Done);
        log.reached("cancelled true", 1).await;
        world.crash_worker(0).await;
        world.add_worker(registry(&log)).await;
        assert!(world.end("slow", "one").await.output::<bool>());
        assert!(log.count("cancelled true") >= 2 && log.count("cancelled false") == 0);
    }

    async fn p30_at_its_deadline_a_cancelled_instance_is_terminated(setup) {
        let registry = Registry::new().workflow_fn("stubborn", |cx: Workflow, (): ()| async move {
            let _ = cx.sleep("nap", "1 day").await;
            cx.sleep("not now", "1 day").await
        });
        let world = setup.serve(registry).await;
        world.begin("stubborn", "one", &()).await;
        is(&world, "stubborn", "one", StatusWord::Waiting).await;
        let within = Some(Millis(300));
        let cancel = world.handle().cancel(name("stubborn", "one"), "c".to_owned(), None, within).await;
        assert_eq!(cancel.expect("it is decided"), Answer::Done);
        assert_eq!(world.end("stubborn", "one").await.status, "terminated");
    }

    async fn p31_a_restart_runs_again_with_the_same_keys_and_keeps_the_earlier_journal(setup) {
        let log = Log::new();
        let told = log.clone();
        let registry = Registry::new().workflow_fn("again", move |cx: Workflow, n: u64| {
            let log = told.clone();
            async move {
                let drawn: u64 = cx.random();
                let keyed = move |step: Step, _: (u64, u64)| {
                    let log = log.clone();
                    async move {
                        log.push(step.idempotency_key().to_owned());
                        Ok::<_, Error>(1_u64)
                    }
                };
                cx.step("keyed", (n, drawn), keyed).await?;
                Ok::<_, Error>(cx.run())
            }
        });
        let world = setup.serve(registry).await;
        world.begin("again", "one", &7_u64).await;
        assert_eq!(world.end("again", "one").await.output::<u32>(), 1);
        let restart = world.handle().restart(name("again", "one"), "r".to_owned(), None).await;
        assert_eq!(restart.expect("it is decided"), Answer::Done);
        let is_second = |view: &everstep_store::InstanceView| view.run == Run(2) && view.status == StatusWord::Complete;
        let view = world.until("again", "one", "run 2 complete", is_second).await;
        assert_eq!(view.steps, 1);
        let keys = log.lines();
        assert_eq!((keys.len(), &keys[0]), (2, &keys[1]), "the same key, though its input was drawn");
        for run in [1, 2] {
            let words: Vec<_> = journal_of(&world, "again", "one", run).await.iter().map(|entry| entry.fact.word()).collect();
            assert_eq!(words, ["started", "attempted", "ended"], "run {run}");
        }
        let again = world.handle().restart(name("again", "one"), "r".to_owned(), None).await;
        assert_eq!(again.expect("it is decided"), Answer::Done);
        assert_eq!(world.view("again", "one").await.expect("it exists").run, Run(2), "the same operation does nothing more");
    }

    async fn p31_a_restart_from_a_step_keeps_what_was_called_before(setup) {
        let log = Log::new();
        let told = log.clone();
        let registry = Registry::new().workflow_fn("three", move |cx: Workflow, (): ()| {
            let log = told.clone();
            async move {
                for name in ["a", "b", "c"] {
                    let log = log.clone();
                    cx.step(name, (), move |step: Step, (): ()| {
                        let log = log.clone();
                        async move {
                            log.push(step.name().to_owned());
                            Ok::<_, Error>(())
                        }
                    })
                    .await?;
                }
                Ok::<_, Error>(cx.run())
            }
        });
        let world = setup.serve(registry).await;
        world.begin("three", "one", &()).await;
        world.end("three", "one").await;
        let unknown = world.handle().restart(name("three", "one"), "u".to_owned(), Some(step("d"))).await;
        assert!(matches!(&unknown, Err(everstep_coordinator::Error::UnknownStep(_))), "{unknown:?}");
        assert_eq!(world.view("three", "one").await.expect("it exists").run, Run(1), "nothing has changed");
        let restart = world.handle().restart(name("three", "one"), "r".to_owned(), Some(step("b"))).await;
        assert_eq!(restart.expect("it is decided"), Answer::Done);
        let is_second = |view: &everstep_store::InstanceView| view.run == Run(2) && view.status == StatusWord::Complete;
        world.until("three", "one", "run 2 complete", is_second).await;
        assert_eq!(log.lines(), ["a", "b", "c", "b", "c"]);
    }

    async fn p32_a_deleted_instance_is_gone_and_its_id_is_free(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let world = setup.serve(two_steps(&log, &gate)).await;
        world.begin("two", "one", &()).await;
        log.reached("first", 1).await;
        let uid = world.view("two", "one").await.expect("it exists").uid;
        let refused = world.handle().delete(name("two", "one"), "d".to_owned(), false).await;
        assert_eq!(refused.expect("it is decided"), Answer::Forbidden(StatusWord::Running));
        let deleted = world.handle().delete(name("two", "one"), "e".to_owned(), true).await;
        assert_eq!(deleted.expect("it is decided"), Answer::Done);
        assert_eq!(world.end("two", "one").await.status, "terminated", "the world is told");
        assert!(world.view("two", "one").await.is_none());
        world.eventually("its journal is removed", async || {
            let range = Range { uid, run: Run(1), after: Position(0) };
            world.store().journal(vec![range], usize::MAX).await.expect("the store answers")[0].is_empty()
        }).await;
        let gone = world.handle().terminate(name("two", "one"), "t".to_owned(), None).await;
        assert_eq!(gone.expect("it is decided"), Answer::NotFound);
        gate.open();
        assert_eq!(world.start("two", "one", &()).await.outcome, StartOutcome::Created);
    }

    async fn p28_operations_on_what_has_ended_say_how(setup) {
        let registry = Registry::new().workflow_fn("quick", |_: Workflow, (): ()| async move { Ok::<_, Error>(()) });
        let world = setup.serve(registry).await;
        world.begin("quick", "one", &()).await;
        world.end("quick", "one").await;
        let (handle, one) = (world.handle(), || name("quick", "one"));
        let answers = [
            handle.pause(one(), "p".to_owned()).await,
            handle.resume(one(), "r".to_owned()).await,
            handle.cancel(one(), "c".to_owned(), None, None).await,
        ];
        for answer in answers {
            assert_eq!(answer.expect("it is decided"), Answer::Refused(Status::Complete));
        }
    }
}
