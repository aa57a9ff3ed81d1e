//! Parallel steps: the order of outcomes is replayed, and a crash at any point changes nothing.

use everstep_protocol::{Position, journal::Fact};
use everstep_sdk::{Either, Error, Registry, Retry, Step, Workflow};

use crate::rig::{Log, Rig, crash_at_any_move};

/// Three steps at once, then a step whose input is the order in which they came back.
fn three(log: &Log) -> Registry {
    let log = log.clone();
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            let order = std::sync::Mutex::new(String::new());
            let one = |name: &'static str| {
                let (log, cx, order) = (log.clone(), &cx, &order);
                async move {
                    cx.step(name, (), move |_: Step, (): ()| {
                        log.add(name);
                        async { Ok::<_, Error>(()) }
                    })
                    .await?;
                    order.lock().unwrap().push_str(name);
                    Ok::<_, Error>(())
                }
            };
            futures::try_join!(one("a"), one("b"), one("c"))?;
            let order = order.into_inner().unwrap();
            cx.step("order", order, async |_: Step, order: String| Ok::<_, Error>(order)).await
        }
    })
}

#[test]
fn p07_a_join_replays_in_the_order_of_arrival() {
    for crash_after in 0..12 {
        let log = Log::default();
        let mut rig = Rig::new(three(&log));
        rig.claim();
        rig.exchange();
        // c ends first, then a, then b.
        rig.orders.rotate_right(1);
        for _ in 0..crash_after {
            rig.move_on();
        }
        let before = rig.words();
        rig.crash(false);
        let order = rig.output::<String>();
        if before.len() >= 4 {
            assert_eq!(order, "cab", "crash after {crash_after}: {:?}", rig.words());
        }
        assert_eq!(order.len(), 3);
        assert_eq!(rig.parked(), None);
        let again = rig.journal().iter().filter(|entry| matches!(entry.fact, Fact::Attempted(_))).count();
        assert_eq!(again, 4, "{:?}", rig.words());
    }
}

/// Steps, sleeps, a retry, a race: crash at each move, with and without counting.
#[test]
fn p07_a_crash_at_any_move_changes_nothing() {
    fn registry() -> Registry {
        Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
            let first = cx.step("first", 1u32, async |_: Step, one: u32| Ok::<_, Error>(one)).await?;
            let flaky = cx
                .step("flaky", first, async |step: Step, _: u32| {
                    if step.attempt() == 1 { Err(Error::failed("once")) } else { Ok(10u32) }
                })
                .retry(Retry::constant("30s").limit(20))
                .await?;
            cx.sleep("nap", "1 min").await?;
            let (left, right) = futures::try_join!(
                cx.step("left", flaky, async |_: Step, x: u32| Ok::<_, Error>(x)),
                async {
                    cx.sleep("short", "10ms").await?;
                    cx.step("right", flaky, async |_: Step, x: u32| Ok::<_, Error>(x + 1)).await
                }
            )?;
            Ok::<_, Error>(first + left + right)
        })
    }
    crash_at_any_move(registry, &22u32);
}

/// The helpers of the context, each with something that would differ if replay took another course.
#[test]
fn p07_bounded_fan_outs_and_races_survive_a_crash_at_any_move() {
    async fn echo(_step: Step, value: u64) -> Result<u64, Error> {
        Ok(value)
    }
    fn registry() -> Registry {
        Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
            let each = cx.each(1..=5u64).at_most(2).run(|n| cx.step("each", n, echo)).await;
            let (place, won) = cx.race((0..2u64).map(|n| cx.step("run", n, echo))).await;
            let asked = match cx.either(cx.step("ask", 7u64, echo), cx.sleep("patience", "1h")).await {
                Either::First(answer) => answer?,
                Either::Second(_) => 0,
            };
            let joined = cx.join_all((0..3u64).map(|n| cx.step("all", n, echo))).await;
            let sum = |all: Vec<Result<u64, Error>>| all.into_iter().sum::<Result<u64, Error>>();
            Ok::<_, Error>((sum(each)?, place, won?, asked, sum(joined)?))
        })
    }
    crash_at_any_move(registry, &(15u64, 0usize, 0u64, 7u64, 3u64));
}

#[test]
fn p07_the_loser_of_a_race_is_cancelled_and_its_outcome_ignored() {
    let log = Log::default();
    let registry = {
        let log = log.clone();
        Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
            let log = log.clone();
            async move {
                let won = {
                    let run = |name: &'static str| {
                        let log = log.clone();
                        cx.step(name, (), move |_: Step, (): ()| {
                            log.add(name);
                            async move { Ok::<_, Error>(name.to_owned()) }
                        })
                    };
                    futures::future::select(run("slow"), run("fast")).await.factor_first().0?
                };
                cx.sleep("after", "1h").await?;
                Ok::<_, Error>(won)
            }
        })
    };
    let mut rig = Rig::held(registry);
    let slow = rig.orders.pop_front().unwrap();
    rig.attempt();
    rig.exchange();
    assert_eq!(rig.cancelled, [slow.number]);
    rig.finish(&slow, Ok(everstep_protocol::Payload::null()));
    assert_eq!(rig.output::<String>(), "fast");
    assert_eq!(log.all(), ["fast"]);
    assert_eq!(rig.words(), ["started", "fast1 1 ok", "opened after1", "fired after1", "ended"]);
}

#[test]
fn p07_a_late_outcome_that_was_recorded_before_the_drop_is_skipped() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let run = |name: &'static str| cx.step(name, (), async |_: Step, (): ()| Ok::<_, Error>(()));
        futures::future::select(run("one"), run("two")).await.factor_first().0?;
        cx.sleep("after", "1h").await
    });
    let mut rig = Rig::held(registry);
    rig.attempt();
    rig.turn();
    rig.attempt();
    rig.turn();
    rig.run();
    assert_eq!(rig.words(), ["started", "one1 1 ok", "two1 1 ok", "opened after1", "fired after1", "ended"]);
}

#[test]
fn w28_an_outcome_says_what_the_body_had_seen_when_it_called() {
    let log = Log::default();
    let mut rig = Rig::new(three(&log));
    rig.run();
    let called: Vec<_> = rig
        .journal()
        .iter()
        .filter_map(|entry| match &entry.fact {
            Fact::Attempted(attempted) => Some(attempted.called_after),
            _ => None,
        })
        .collect();
    assert_eq!(called, [1, 1, 1, 4].map(Position));
}

#[test]
fn p07_a_fan_out_of_thousands() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let steps = (0..3000u64).map(|at| cx.step("part", at, async |_: Step, at: u64| Ok::<_, Error>(at)));
        Ok::<_, Error>(futures::future::try_join_all(steps).await?.iter().sum::<u64>())
    });
    let mut rig = Rig::held(registry);
    assert_eq!(rig.orders.len(), 3000);
    while rig.attempt() {}
    assert_eq!(rig.output::<u64>(), (0..3000).sum::<u64>());
}
