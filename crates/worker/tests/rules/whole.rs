//! The real worker, with its threads and queues, on the in-process broker, against the fake coordinator.

use std::time::{Duration, Instant};

use everstep_protocol::{Millis, journal::End};
use everstep_sdk::{Error, FailureKind, Registry, Retry, Step, Workflow};
use everstep_worker::{Error as WorkerError, Metrics};

use crate::{
    hub::{HEARTBEAT, Hub, Late, Running, State},
    rig::Log,
};

fn everything() -> Registry {
    Registry::new()
        .workflow_fn("w", |cx: Workflow, at: u64| async move {
            let doubled = cx.step("double", at, async |_: Step, at: u64| Ok::<_, Error>(at * 2)).await?;
            cx.sleep("nap", 150u64).await?;
            let (one, two) = futures::try_join!(
                cx.remote::<u64>("plus-one", doubled).on("pool"),
                cx.step("slow", doubled, async |_: Step, at: u64| {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    Ok::<_, Error>(at)
                })
            )?;
            cx.sleep("short", 20u64).await?;
            Ok::<_, Error>(one + two)
        })
        .function("plus-one", async |_: Step, at: u64| Ok::<_, Error>(at + 1))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_runs_everything_and_says_goodbye() {
    let hub = Hub::start();
    let worker = Running::start(&hub, everything(), |settings| settings.instances = 20);
    let instances: Vec<_> = (0..100u64).map(|at| (at, hub.create(at))).collect();
    for (at, instance) in instances {
        assert_eq!(hub.output::<u64>(instance).await, at * 4 + 1);
    }
    worker.stop().await.unwrap();
    assert_eq!(hub.until(|state| (state.goodbyes > 0).then_some(state.goodbyes)).await, 1);
    assert_eq!(hub.lock().co.fenced, 0);
    assert!(hub.lock().co.rows.leases.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn w14_a_stop_waits_for_what_runs_and_gives_the_rest_back() {
    let hub = Hub::start();
    let log = Log::default();
    let registry = {
        let log = log.clone();
        Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
            let log = log.clone();
            async move {
                cx.step("slow", (), move |_: Step, (): ()| {
                    log.add("begun");
                    async {
                        tokio::time::sleep(Duration::from_millis(300)).await;
                        Ok::<_, Error>(())
                    }
                })
                .await?;
                cx.step("next", (), async |_: Step, (): ()| Ok::<_, Error>(())).await
            }
        })
    };
    let worker = Running::start(&hub, registry, |settings| settings.slots = 1);
    let (one, two) = (hub.create(()), hub.create(()));
    hub.until(|state| {
        let held = [one, two].iter().all(|uid| state.co.heads[uid].epoch.0 > 0);
        (held && log.count("begun") == 1).then_some(())
    })
    .await;
    worker.stop().await.unwrap();
    // By giving back or by the goodbye, whichever arrives first.
    hub.until(|state| (state.co.is_ready(one) && state.co.is_ready(two)).then_some(())).await;
    let state = hub.lock();
    let written: usize = [one, two].iter().map(|uid| state.co.journal[uid].len()).sum();
    assert_eq!(written, 3, "one step was recorded, nothing was begun after the stop");
    assert_eq!(log.count("begun"), 1);
}

/// A heartbeat that was made under the lease is compared after its end, so that its answer speaks of a lease that is over.
#[tokio::test(flavor = "multi_thread")]
async fn w27_the_answer_to_a_heartbeat_about_the_lease_that_a_suspend_ended_costs_no_body() {
    for late in [Late::Before, Late::Behind] {
        let hub = Hub::start();
        hub.lock().late = Some(late);
        let metrics = Metrics::default();
        let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
            for _ in 0..4 {
                cx.sleep("nap", 150u64).await?;
            }
            Ok::<_, Error>(())
        });
        let worker = Running::start(&hub, registry, |settings| settings.metrics = metrics.clone());
        let instance = hub.create(());
        hub.output::<()>(instance).await;
        assert_eq!(metrics.replays.get(), 0);
        worker.stop().await.unwrap();
    }
}

fn waiting(log: &Log, retry: fn() -> Retry) -> Registry {
    let log = log.clone();
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            let step = cx.step("wait", (), move |step: Step, (): ()| {
                let log = log.clone();
                async move {
                    step.cancelled().await;
                    log.add("cancelled");
                    std::future::pending::<Result<(), Error>>().await
                }
            });
            let error = step.retry(retry()).timeout("100ms").await.unwrap_err();
            Ok::<_, Error>((error.kind() == FailureKind::TimedOut, error.to_string()))
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn p14_a_timeout_cancels_is_retried_and_can_be_caught() {
    let hub = Hub::start();
    let log = Log::default();
    let worker = Running::start(&hub, waiting(&log, || Retry::constant("10ms").limit(1)), |_| {});
    let instance = hub.create(());
    let (timed_out, message) = hub.output::<(bool, String)>(instance).await;
    assert!(timed_out && message.contains("attempt 2") && message.contains("100"), "{message}");
    assert_eq!(log.count("cancelled"), 2);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w34_a_blocking_step_is_written_off_after_its_grace() {
    let hub = Hub::start();
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let step = cx.step("block", (), async |_: Step, (): ()| {
            std::thread::sleep(Duration::from_millis(1500));
            Ok::<_, Error>(())
        });
        let error = step.retry(Retry::none()).timeout("50ms").await.unwrap_err();
        Ok::<_, Error>((error.kind() == FailureKind::TimedOut, error.to_string()))
    });
    let worker =
        Running::start(&hub, registry, |settings| settings.timeout_grace = Duration::from_millis(100));
    let begin = Instant::now();
    let instance = hub.create(());
    let (timed_out, message) = hub.output::<(bool, String)>(instance).await;
    assert!(timed_out && message.contains("overlaps"), "{message}");
    assert!(begin.elapsed() < Duration::from_millis(1400));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn p12_a_delay_function_that_panics_is_recorded() {
    let hub = Hub::start();
    let registry =
        Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
            let retry = Retry::constant("10ms").limit(1).delay_with(|attempt, _: &Error| -> Option<u64> {
                assert!(attempt > 1, "no idea");
                Some(5)
            });
            cx.step("a", (), async |step: Step, (): ()| {
                if step.attempt() == 1 { Err(Error::failed("first")) } else { Ok(step.attempt()) }
            })
            .retry(retry)
            .await
        });
    let worker = Running::start(&hub, registry, |_| {});
    let instance = hub.create(());
    assert_eq!(hub.output::<u32>(instance).await, 2);
    let journal = format!("{:?}", hub.lock().co.journal[&instance]);
    assert!(journal.contains("first (the delay function panicked: no idea)"), "{journal}");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn w12_a_body_that_blocks_is_named_and_everything_else_is_given_back() {
    let hub = Hub::start();
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, blocks: bool| async move {
        if blocks {
            std::thread::sleep(Duration::from_secs(2));
        }
        cx.step("long", (), async |_: Step, (): ()| {
            tokio::time::sleep(Duration::from_mins(1)).await;
            Ok::<_, Error>(())
        })
        .await
    });
    let worker = Running::start(&hub, registry, |settings| settings.poll_limit = Duration::from_millis(300));
    let good = hub.create(false);
    hub.until(|state| (state.co.heads[&good].epoch.0 > 0).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let bad = hub.create(true);
    match worker.ended().await {
        Err(WorkerError::Stuck { workflow, instance }) => {
            assert_eq!((workflow.as_str(), instance.as_str()), ("w", "order-2"));
        }
        other => panic!("{other:?}"),
    }
    let given_back =
        hub.until(|state| (!state.given_back.is_empty()).then(|| state.given_back.clone())).await;
    assert_eq!(given_back, [good]);
    let state = hub.lock();
    assert!(!state.co.is_ready(bad));
    assert_eq!(state.goodbyes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn w12_heartbeats_go_on_while_steps_and_bodies_block() {
    let hub = Hub::start();
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        std::thread::sleep(Duration::from_millis(500));
        cx.step("block", (), async |_: Step, (): ()| {
            std::thread::sleep(Duration::from_millis(500));
            Ok::<_, Error>(())
        })
        .await
    });
    let worker = Running::start(&hub, registry, |_| {});
    let instance = hub.create(());
    hub.until(|state| (state.co.heads[&instance].epoch.0 > 0).then_some(())).await;
    let before = hub.lock().heartbeats;
    let begin = Instant::now();
    hub.end(instance).await;
    let beats = hub.lock().heartbeats - before;
    let expected = begin.elapsed().as_millis() / HEARTBEAT.as_millis();
    assert!(beats as u128 + 3 >= expected, "{beats} of {expected}");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn w12_heartbeats_say_whether_the_work_loop_turns() {
    let hub = Hub::start();
    let registry = Registry::new().workflow_fn("w", |_: Workflow, (): ()| async move {
        std::future::ready(()).await;
        std::thread::sleep(Duration::from_millis(2_500));
        Ok::<_, Error>(())
    });
    let worker = Running::start(&hub, registry, |_| {});
    let said = |state: &mut State| std::mem::take(&mut state.turned);
    hub.until(|state| (state.turned.len() > 2).then_some(())).await;
    // With nothing to do, and nobody to wake it by an answer, it comes round each second.
    hub.lock().mute = true;
    let idle = hub.until(|state| (state.turned.len() > 25).then(|| said(state))).await;
    assert!(idle.iter().all(|turned| *turned < Millis(1_500)), "{idle:?}");
    hub.lock().mute = false;
    let instance = hub.create(());
    hub.end(instance).await;
    let blocked = said(&mut hub.lock());
    assert!(blocked.iter().any(|turned| *turned > Millis(2_000)), "{blocked:?}");
    let after = hub.until(|state| (state.turned.len() > 3).then(|| said(state))).await;
    assert!(after.last().is_some_and(|turned| *turned < Millis(1_500)), "{after:?}");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn w10_told_that_its_session_is_unknown_it_opens_a_new_one() {
    let hub = Hub::start();
    let worker = Running::start(&hub, everything(), |_| {});
    let instance = hub.create(1u64);
    hub.until(|state| {
        (state.co.journal[&instance].len() > 1).then(|| {
            for session in state.sessions() {
                state.forget(session, true);
            }
        })
    })
    .await;
    assert_eq!(hub.output::<u64>(instance).await, 5);
    assert!(hub.lock().opened >= 2);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn w10_unanswered_it_starts_nothing_more() {
    let hub = Hub::start();
    let log = Log::default();
    let registry = {
        let log = log.clone();
        Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
            let log = log.clone();
            async move {
                let steps = (0..2u32).map(|at| {
                    let log = log.clone();
                    cx.step("a", at, move |_: Step, _: u32| {
                        log.add("begun");
                        async {
                            tokio::time::sleep(Duration::from_millis(800)).await;
                            Ok::<_, Error>(())
                        }
                    })
                });
                futures::future::try_join_all(steps).await?;
                Ok::<_, Error>(())
            }
        })
    };
    let worker = Running::start(&hub, registry, |settings| settings.slots = 1);
    let instance = hub.create(());
    hub.until(|_| (log.count("begun") == 1).then_some(())).await;
    hub.lock().deaf = true;
    // The first step ends at 800 ms; two thirds of the lease are over at 400 ms.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(log.count("begun"), 1);
    hub.lock().deaf = false;
    hub.end(instance).await;
    assert_eq!(log.count("begun"), 2);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn w07_a_broker_that_goes_and_comes_back_loses_nothing() {
    let hub = Hub::start();
    let worker = Running::start(&hub, everything(), |_| {});
    let instances: Vec<_> = (0..30u64).map(|at| (at, hub.create(at))).collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        worker.broker.cut();
        tokio::time::sleep(Duration::from_millis(60)).await;
        worker.broker.restore();
    }
    for (at, instance) in instances {
        assert_eq!(hub.output::<u64>(instance).await, at * 4 + 1);
    }
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn w39_an_unknown_function_is_a_failure_that_is_retried() {
    let hub = Hub::start();
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let call = cx.remote::<u64>("nobody", ()).on("pool").retry(Retry::constant("10ms").limit(1));
        let error = call.await.unwrap_err();
        Ok::<_, Error>(error.kind() == FailureKind::UnknownFunction)
    });
    let worker = Running::start(&hub, registry, |_| {});
    let instance = hub.create(());
    assert!(hub.output::<bool>(instance).await);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_messages_are_dropped() {
    use everstep_broker::{Broker, Outgoing};
    let hub = Hub::start();
    let worker = Running::start(&hub, everything(), |_| {});
    let queues = hub
        .until(|_| {
            let queues = hub.broker.queues();
            let readable = |queue: &&String| {
                ["everstep.inbox.", "everstep.run.", "everstep.step."]
                    .iter()
                    .any(|prefix| queue.starts_with(prefix))
            };
            let ours: Vec<_> = queues.iter().filter(readable).cloned().collect();
            (ours.len() >= 3).then_some(ours)
        })
        .await;
    for queue in queues {
        let garbage =
            ["", "garbage", "\u{84}"].map(|body| Outgoing::to_queue(queue.clone(), body.as_bytes().to_vec()));
        hub.broker.send(garbage.into()).await.unwrap();
    }
    let instance = hub.create(1u64);
    assert_eq!(hub.output::<u64>(instance).await, 5);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn p09_a_panic_of_a_step_leaves_the_worker_alive() {
    let hub = Hub::start();
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        cx.step("a", (), async |step: Step, (): ()| {
            assert!(step.attempt() > 1, "the first time");
            Ok::<_, Error>(())
        })
        .retry(Retry::constant("10ms"))
        .await
    });
    let worker = Running::start(&hub, registry, |_| {});
    let instance = hub.create(());
    assert!(matches!(hub.end(instance).await, End::Complete(_)));
    assert_eq!(hub.lock().co.journal[&instance].len(), 5);
    worker.stop().await.unwrap();
}
