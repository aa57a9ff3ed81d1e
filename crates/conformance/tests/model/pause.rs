//! Pause and resume (O-07 among them): what runs ends, nothing begins, and no time is lost or made up.

use std::time::Duration;

use everstep::{Error, Retry, Step, Workflow};
use everstep_conformance::{noting, retry_delays};
use everstep_system_tests::{Gate, Log};
use everstep_testkit::{Kit, Run, Status, TestKit};
use futures::future::BoxFuture;

/// A step that notes its start and end, and takes so many seconds between.
fn slow(
    log: &Log,
    seconds: u64,
) -> impl Fn(Step, ()) -> BoxFuture<'static, Result<(), Error>> + Send + Sync + use<> {
    let log = log.clone();
    move |step, ()| {
        let log = log.clone();
        Box::pin(async move {
            log.push(format!("{} begins", step.name()));
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            log.push(format!("{} ends", step.name()));
            Ok(())
        })
    }
}

/// Two steps at once, of 4 and 6 s, then a third.
fn parallel(log: &Log) -> TestKit {
    let log = log.clone();
    TestKit::new().workflow_fn("parallel", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            let both = futures::join!(cx.step("a", (), slow(&log, 4)), cx.step("b", (), slow(&log, 6)));
            both.0.and(both.1)?;
            cx.step("c", (), noting(&log, "done".to_owned())).await
        }
    })
}

#[test]
fn b028_two_steps_that_run_both_end_and_a_third_does_not_begin() {
    let log = Log::new();
    parallel(&log).time_by_hand().run(async move |kit| {
        let run = kit.start_instance("parallel", &()).await.unwrap();
        kit.advance("1s").await.unwrap();
        run.pause().await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Pausing);
        kit.advance("1 min").await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Paused);
        assert_eq!(log.lines(), ["a begins", "b begins", "a ends", "b ends"]);
        run.resume().await.unwrap();
        assert_eq!(run.result::<String>().await.unwrap(), "done");
        assert_eq!(log.lines().len(), 5, "nothing ran again: {:?}", log.lines());
    });
}

/// A sequence of two steps; the first waits for the gate.
fn gated(log: &Log, gate: &Gate) -> TestKit {
    let (log, gate) = (log.clone(), gate.clone());
    TestKit::new().workflow_fn("gated", move |cx: Workflow, (): ()| {
        let (log, gate) = (log.clone(), gate.clone());
        async move {
            let held = log.clone();
            let first = cx.step("first", (), move |step: Step, (): ()| {
                let (log, gate) = (held.clone(), gate.clone());
                async move {
                    log.push(format!("first {}", step.attempt()));
                    gate.pass().await;
                    Ok::<_, Error>(())
                }
            });
            first.await?;
            cx.step("second", (), noting(&log, "done".to_owned())).await
        }
    })
}

#[test]
fn b027_b107_b108_a_pause_lets_the_step_end_and_the_resume_goes_on_to_the_output() {
    let (log, gate) = (Log::new(), Gate::closed());
    gated(&log, &gate).run(async move |kit| {
        let run = kit.start_instance("gated", &()).await.unwrap();
        log.reached("first 1", 1).await;
        run.pause().await.unwrap();
        gate.open();
        run.reaches(Status::Paused).await.unwrap();
        kit.advance("1 day").await.unwrap();
        assert_eq!(log.lines(), ["first 1"]);
        run.resume().await.unwrap();
        assert_eq!(run.result::<String>().await.unwrap(), "done");
        assert_eq!(log.lines(), ["first 1", "second 1"]);
    });
}

#[test]
fn b029_b109_a_resume_while_it_is_pausing_takes_the_pause_back() {
    let (log, gate) = (Log::new(), Gate::closed());
    gated(&log, &gate).run(async move |kit| {
        let run = kit.start_instance("gated", &()).await.unwrap();
        log.reached("first 1", 1).await;
        run.pause().await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Pausing);
        run.resume().await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Running);
        gate.open();
        assert_eq!(run.result::<String>().await.unwrap(), "done");
        assert_eq!(log.lines(), ["first 1", "second 1"]);
    });
}

/// A sleep of 10 s, then a step.
fn naps(log: &Log) -> TestKit {
    let log = log.clone();
    TestKit::new().workflow_fn("naps", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            cx.sleep("nap", "10s").await?;
            cx.step("after", (), noting(&log, ())).await
        }
    })
}

/// Paused after 3 s, resumed after so many; gives when the step ran, in seconds from the start.
async fn resumed_after(kit: &Kit, log: &Log, seconds: u64) -> u64 {
    let began = kit.now();
    let run = kit.start_instance("naps", &()).await.unwrap();
    kit.advance("3s").await.unwrap();
    run.pause().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Paused, "a sleep is paused at once");
    kit.advance(format!("{}s", seconds - 3)).await.unwrap();
    assert!(log.lines().is_empty(), "nothing ran while it was paused");
    run.resume().await.unwrap();
    kit.advance("30s").await.unwrap();
    run.result::<()>().await.unwrap();
    assert_eq!(log.lines(), ["after 1"]);
    let journal = run.journal().await.unwrap();
    journal.iter().find(|entry| entry.fact.word() == "attempted").unwrap().at.since(began).as_u64() / 1_000
}

#[test]
fn b030_o07_a_pause_past_the_wake_time_ends_the_sleep_at_the_resume() {
    let log = Log::new();
    naps(&log).time_by_hand().run(async move |kit| assert_eq!(resumed_after(&kit, &log, 20).await, 20));
}

#[test]
fn o07_a_pause_that_ends_before_the_wake_time_does_not_move_it() {
    let log = Log::new();
    naps(&log).time_by_hand().run(async move |kit| assert_eq!(resumed_after(&kit, &log, 6).await, 10));
}

/// Fails twice, then succeeds; each attempt takes 4 s.
fn third(log: &Log) -> TestKit {
    let log = log.clone();
    TestKit::new().workflow_fn("third", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            let third = cx.step("third", (), move |step: Step, (): ()| {
                let log = log.clone();
                async move {
                    log.push(step.attempt().to_string());
                    tokio::time::sleep(Duration::from_secs(4)).await;
                    if step.attempt() == 3 { Ok(()) } else { Err(Error::failed("again")) }
                }
            });
            third.retry(Retry::constant("5s")).await
        }
    })
}

#[test]
fn o07_paused_between_two_attempts_and_during_one_the_count_goes_on() {
    for (pause_after, running) in [("6s", false), ("2s", true)] {
        let log = Log::new();
        third(&log).time_by_hand().run(async move |kit| {
            let run = kit.start_instance("third", &()).await.unwrap();
            kit.advance(pause_after).await.unwrap();
            run.pause().await.unwrap();
            assert_eq!(run.status().await.unwrap(), if running { Status::Pausing } else { Status::Paused });
            kit.advance("30s").await.unwrap();
            assert_eq!((run.status().await.unwrap(), log.lines().len()), (Status::Paused, 1));
            run.resume().await.unwrap();
            kit.advance("1 min").await.unwrap();
            run.result::<()>().await.unwrap();
            assert_eq!(log.lines(), ["1", "2", "3"]);
            assert_eq!(retry_delays(&run.journal().await.unwrap()), [5_000, 5_000]);
        });
    }
}

/// A wait of 10 s for an event.
async fn waits(cx: Workflow, (): ()) -> Result<Option<u64>, Error> {
    match cx.event("x").timeout("10s").await {
        Ok(number) => Ok(Some(number)),
        Err(error) if error.is_timed_out() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn paused_wait(kit: &Kit) -> Run {
    let run = kit.start_instance("waits", &()).await.unwrap();
    kit.advance("3s").await.unwrap();
    run.pause().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Paused);
    run
}

#[test]
fn b031_an_event_after_a_pause_and_resume_completes_the_wait() {
    TestKit::new().workflow_fn("waits", waits).time_by_hand().run(async |kit| {
        let run = paused_wait(&kit).await;
        run.resume().await.unwrap();
        kit.advance("2s").await.unwrap();
        run.send("x", &7).await.unwrap();
        assert_eq!(run.result::<Option<u64>>().await.unwrap(), Some(7));
    });
}

/// An event that came before the timeout is never a timeout, however long the pause.
#[test]
fn o07_an_event_that_came_during_the_pause_beats_the_timeout() {
    TestKit::new().workflow_fn("waits", waits).time_by_hand().run(async |kit| {
        let run = paused_wait(&kit).await;
        kit.advance("2s").await.unwrap();
        run.send("x", &7).await.unwrap();
        kit.advance("15s").await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Paused);
        run.resume().await.unwrap();
        kit.advance("1s").await.unwrap();
        assert_eq!(run.result::<Option<u64>>().await.unwrap(), Some(7));
    });
}

#[test]
fn o07_a_paused_instance_is_terminated_restarted_paused_again_and_what_runs_is_not_resumed() {
    TestKit::new().workflow_fn("waits", waits).time_by_hand().run(async |kit| {
        let run = paused_wait(&kit).await;
        run.pause().await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Paused, "a double changes nothing");
        run.restart().await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        run.resume().await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Waiting);
        run.pause().await.unwrap();
        run.terminate("enough").await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Terminated);
        let refused = run.resume().await.unwrap_err().to_string();
        assert!(refused.contains("Terminated"), "{refused}");
    });
}

#[test]
fn o07_pauses_and_resumes_in_quick_turn_lose_no_step_and_double_none() {
    let log = Log::new();
    let told = log.clone();
    let kit = TestKit::new().workflow_fn("ten", move |cx: Workflow, (): ()| {
        let log = told.clone();
        async move {
            for number in 0..10 {
                let log = log.clone();
                let step = cx.step("half a second", number, move |_: Step, number: u32| {
                    let log = log.clone();
                    async move {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                        log.push(number.to_string());
                        Ok::<_, Error>(())
                    }
                });
                step.await?;
            }
            Ok::<_, Error>(())
        }
    });
    kit.time_by_hand().run(async move |kit| {
        let run = kit.start_instance("ten", &()).await.unwrap();
        for _ in 0..100 {
            for pauses in [true, false] {
                // It may have ended meanwhile, which refuses both.
                let _ = if pauses { run.pause().await } else { run.resume().await };
                kit.advance("20ms").await.unwrap();
            }
        }
        kit.advance("15s").await.unwrap();
        run.result::<()>().await.unwrap();
        assert_eq!(log.lines(), (0..10).map(|number| number.to_string()).collect::<Vec<_>>());
    });
}
