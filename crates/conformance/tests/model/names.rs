//! O-09: one name many times, and names that could be taken for one another.

use everstep::{Error, Retry, Step, Workflow};
use everstep_conformance::{attempts, echo};
use everstep_system_tests::Log;
use everstep_testkit::{Kit, TestKit, crash_everywhere};

#[test]
fn b113_o09_a_name_is_anything_but_empty_long_or_with_control_characters() {
    let kit = TestKit::new().workflow_fn("named", |cx: Workflow, name: String| async move {
        cx.step(&name, &name, echo::<String>).await
    });
    kit.run(async |kit| {
        let family = "👨‍👩‍👧‍👦";
        let (longest, too_long) = ("𝕏".repeat(256), "x".repeat(257));
        let names =
            [" ", "two words", "é", "e\u{301}", "☃", family, "../x", "__proto__", &"x".repeat(255), &longest];
        for name in names {
            let run = kit.start_instance("named", name).await.unwrap();
            assert_eq!(run.result::<String>().await.unwrap(), name);
            let journal = run.journal().await.unwrap();
            assert_eq!(attempts(&journal)[0].1.call.name.as_str(), name, "whole, as it was written");
        }
        let far_too_long = "x".repeat(10_000);
        for name in ["", "a\nb", "a\u{0}b", &too_long, &far_too_long] {
            let run = kit.start_instance("named", name).await.unwrap();
            let error = run.error().await.unwrap();
            assert!(error.is_permanent() && error.message().contains("1 to 256"), "{error}");
            assert!(attempts(&run.journal().await.unwrap()).is_empty());
        }
    });
}

/// Each of two forms that look alike is a step of its own.
#[test]
fn o09_two_ways_to_write_one_letter_are_two_names() {
    let log = Log::new();
    let told = log.clone();
    let kit = TestKit::new().workflow_fn("forms", move |cx: Workflow, (): ()| {
        let log = told.clone();
        async move {
            Ok::<_, Error>((
                cx.step("é", (), crate::calls::counter(&log)).await?,
                cx.step("e\u{301}", (), crate::calls::counter(&log)).await?,
            ))
        }
    });
    kit.run(async |kit| {
        let run = kit.start_instance("forms", &()).await.unwrap();
        assert_eq!(run.result::<(usize, usize)>().await.unwrap(), (0, 1));
    });
}

/// Wherever the worker dies: each call keeps its own result. A step that had not been reported may run again, and gives a later
/// number; what was recorded never does. So what is compared is what came out, with each effect counted once per key.
fn comes_to<T>(
    workflow: fn(Workflow, Keyed) -> futures::future::BoxFuture<'static, Result<T, Error>>,
    expected: &T,
) where
    T: serde::Serialize
        + serde::de::DeserializeOwned
        + PartialEq
        + std::fmt::Debug
        + Clone
        + Send
        + Sync
        + 'static,
{
    let expected = expected.clone();
    crash_everywhere(move || {
        let keyed = Keyed::default();
        let kit = TestKit::new().workflow_fn("w", move |cx: Workflow, (): ()| workflow(cx, keyed.clone()));
        let expected = expected.clone();
        (kit, async move |kit: Kit| {
            let run = kit.start_instance_as("w", "one", &()).await.unwrap();
            assert_eq!(run.result::<T>().await.unwrap(), expected);
        })
    });
}

/// A counter outside the engine that honours keys: the same key gets the same number.
#[derive(Clone, Debug, Default)]
struct Keyed(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

impl Keyed {
    fn next(&self) -> impl Fn(Step, ()) -> std::future::Ready<Result<usize, Error>> + Send + Sync + use<> {
        let keys = self.0.clone();
        move |step, ()| {
            let mut keys = keys.lock().unwrap();
            let key = step.idempotency_key().to_owned();
            let at = keys.iter().position(|known| *known == key).unwrap_or(keys.len());
            if at == keys.len() {
                keys.push(key);
            }
            std::future::ready(Ok(at))
        }
    }
}

#[test]
fn o09_a_name_in_a_loop_gets_its_results_in_the_order_of_the_loop() {
    comes_to(
        |cx, keyed| {
            Box::pin(async move {
                let mut got = Vec::new();
                for _ in 0..5 {
                    got.push(cx.step("tick", (), keyed.next()).retry(Retry::constant(1)).await?);
                }
                Ok(got)
            })
        },
        &vec![0, 1, 2, 3, 4],
    );
}

#[test]
fn o09_nested_loops_of_one_name_are_twelve_steps() {
    comes_to(
        |cx, keyed| {
            Box::pin(async move {
                let mut got = Vec::new();
                for _ in 0..3 {
                    got.push(cx.step("x", (), keyed.next()).await?);
                    for _ in 0..3 {
                        got.push(cx.step("x", (), keyed.next()).await?);
                    }
                }
                Ok(got)
            })
        },
        &(0..12).collect::<Vec<usize>>(),
    );
}

const SUFFIXED: [&str; 12] = [
    "tick", "tick", "tick", "tick-1", "tick-2", "tick_2", "tick:2", "tick#2", "tick/2", "tick 2", "tick.1",
    "tick(2)",
];

#[test]
fn o09_no_name_meets_the_count_of_another() {
    comes_to(
        |cx, keyed| {
            Box::pin(async move {
                let mut got = Vec::new();
                for name in SUFFIXED.iter().chain(SUFFIXED.iter().rev()) {
                    got.push(cx.step(*name, (), keyed.next()).await?);
                }
                Ok(got)
            })
        },
        &(0..24).collect::<Vec<usize>>(),
    );
}

#[test]
fn o09_a_sleep_a_wait_and_a_step_of_one_name_are_three_things() {
    comes_to(
        |cx, keyed| {
            Box::pin(async move {
                let before = cx.step("tick", (), keyed.next()).await?;
                cx.sleep("tick", "1 hour").await?;
                let timed_out =
                    cx.event::<()>("tick").timeout("1 hour").await.is_err_and(|error| error.is_timed_out());
                let after = cx.step("tick", (), keyed.next()).await?;
                Ok((before, timed_out, after))
            })
        },
        &(0_usize, true, 1_usize),
    );
}

/// Ten branches side by side, each with two steps of one name, which come to their ends in another order than they began.
#[test]
fn o09_branches_side_by_side_keep_their_own_results() {
    comes_to(
        |cx, _| {
            Box::pin(async move {
                let branch = |number: u64| {
                    let cx = cx.clone();
                    async move {
                        let delayed = |_: Step, (branch, round): (u64, u64)| async move {
                            tokio::time::sleep(std::time::Duration::from_millis(branch * 37 % 11 * 20)).await;
                            Ok::<_, Error>((branch, round))
                        };
                        let first =
                            cx.step("tick", (number, 0_u64), delayed).retry(Retry::constant(1)).await?;
                        let second =
                            cx.step("tick", (number, 1_u64), delayed).retry(Retry::constant(1)).await?;
                        Ok::<_, Error>(first == (number, 0) && second == (number, 1))
                    }
                };
                futures::future::try_join_all((0..4).map(branch)).await
            })
        },
        &vec![true; 4],
    );
}
