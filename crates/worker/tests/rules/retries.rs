//! Attempts: how often, how soon, lost ones, sizes and limits.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use everstep_protocol::{FailureKind, Payload, limits::Limits};
use everstep_sdk::{Error, Registry, Retry, Step, Workflow};

use crate::rig::{Log, Rig};

/// A step that fails so many times, and then succeeds with its attempt number.
fn failing(times: u32, retry: impl Fn() -> Retry + Send + Sync + 'static, error: fn() -> Error) -> Registry {
    let retry = Arc::new(retry);
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
        let retry = retry.clone();
        async move {
            cx.step("a", (), move |step: Step, (): ()| async move {
                if step.attempt() <= times { Err(error()) } else { Ok(step.attempt()) }
            })
            .retry(retry())
            .await
        }
    })
}

fn plain() -> Error {
    Error::failed("no").named("Busy")
}

#[test]
fn p10_p11_the_default_is_five_retries_with_doubled_delays() {
    let mut rig = Rig::new(failing(5, Retry::new, plain));
    assert_eq!(rig.output::<u32>(), 6);
    let again =
        |attempt: u32, delay: u32| [format!("a1 {attempt} Busy again in {delay}"), "fired a1".to_owned()];
    let mut expected = vec!["started".to_owned()];
    for (attempt, delay) in (1..).zip([10_000, 20_000, 40_000, 80_000, 160_000]) {
        expected.extend(again(attempt, delay));
    }
    expected.extend(["a1 6 ok".to_owned(), "ended".to_owned()]);
    assert_eq!(rig.words(), expected);
    // Each failed attempt suspends in the same report.
    assert_eq!(rig.reports, 6);
}

#[test]
fn p10_limit_zero_is_one_attempt() {
    let mut rig = Rig::new(failing(9, Retry::none, plain));
    let failure = rig.failure();
    assert_eq!((failure.name.as_str(), failure.message.as_str()), ("Busy", "no"));
    assert_eq!(rig.words(), ["started", "a1 1 failed Busy", "ended"]);
}

#[test]
fn p11_max_elapsed_ends_it() {
    let mut rig = Rig::new(failing(9, || Retry::constant("10s").unlimited().max_elapsed("25s"), plain));
    rig.failure();
    assert_eq!(
        rig.words(),
        [
            "started",
            "a1 1 Busy again in 10000",
            "fired a1",
            "a1 2 Busy again in 10000",
            "fired a1",
            "a1 3 failed Busy",
            "ended"
        ]
    );
}

#[test]
fn p12_retry_after_is_used_as_it_is() {
    let mut rig = Rig::new(failing(1, Retry::new, || plain().retry_after("7s")));
    assert_eq!(rig.output::<u32>(), 2);
    assert_eq!(rig.words()[1], "a1 1 Busy again in 7000");
}

#[test]
fn p12_a_delay_of_nothing_retries_at_once() {
    let mut rig = Rig::new(failing(2, || Retry::constant("0s"), plain));
    assert_eq!(rig.output::<u32>(), 3);
    assert_eq!(rig.words(), ["started", "a1 1 Busy again in 0", "a1 2 Busy again in 0", "a1 3 ok", "ended"]);
}

#[test]
fn p13_a_permanent_error_is_not_retried_and_stays_as_it_is() {
    let mut rig = Rig::new(failing(9, Retry::new, || Error::permanent("").named("CardDeclined")));
    let failure = rig.failure();
    assert_eq!((failure.name.as_str(), failure.message.as_str()), ("CardDeclined", ""));
    assert_eq!(rig.words().len(), 3);
}

#[test]
fn p06_a_final_failure_is_replayed_and_not_run_again() {
    let log = Log::default();
    let registry = {
        let log = log.clone();
        Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
            let log = log.clone();
            async move {
                let ran = log.clone();
                let bad = cx
                    .step("bad", (), move |_: Step, (): ()| {
                        ran.add("bad");
                        async { Err::<(), _>(plain()) }
                    })
                    .retry(Retry::none())
                    .await;
                cx.sleep("nap", "1h").await?;
                Ok::<_, Error>(bad.unwrap_err().name().to_owned())
            }
        })
    };
    let mut rig = Rig::new(registry);
    assert_eq!(rig.output::<String>(), "Busy");
    assert_eq!(log.count("bad"), 1);
}

#[test]
fn p09_a_panic_of_a_step_is_a_failed_attempt() {
    let runs = Arc::new(AtomicU32::new(0));
    let registry = Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
        let runs = runs.clone();
        async move {
            cx.step("a", (), move |_: Step, (): ()| {
                assert!(runs.fetch_add(1, Ordering::Relaxed) > 0, "the first time");
                async { Ok::<_, Error>(7) }
            })
            .await
        }
    });
    let mut rig = Rig::new(registry);
    assert_eq!(rig.output::<u32>(), 7);
    assert_eq!(rig.words()[1], "a1 1 Panicked again in 10000");
}

#[test]
fn w11_a_lost_attempt_counts_and_is_retried_after_its_delay() {
    let mut rig = Rig::held(failing(0, Retry::new, plain));
    assert_eq!(rig.orders.len(), 1);
    rig.crash(true);
    let begin = rig.co.now;
    assert_eq!(rig.output::<u32>(), 2);
    assert_eq!(
        rig.words(),
        ["started", "lost", "a1 1 WorkerLost again in 10000", "fired a1", "a1 2 ok", "ended"]
    );
    assert_eq!(rig.elapsed(begin), 10_000 + rig.ran_for);
}

#[test]
fn w11_retries_used_up_by_losses_are_a_failure_that_can_be_caught() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let lost = cx
            .step("a", (), async |_: Step, (): ()| Ok::<_, Error>(()))
            .retry(Retry::constant("0s").limit(1))
            .await
            .unwrap_err();
        Ok::<_, Error>(lost.kind() == FailureKind::WorkerLost)
    });
    let mut rig = Rig::new(registry);
    for _ in 0..2 {
        rig.claim();
        rig.exchange();
        rig.crash(true);
    }
    assert!(rig.output::<bool>());
    assert_eq!(
        rig.words(),
        ["started", "lost", "a1 1 WorkerLost again in 0", "lost", "a1 2 failed WorkerLost", "ended"]
    );
}

#[test]
fn w11_two_losses_before_either_is_recorded_are_both_charged() {
    let mut rig = Rig::new(failing(0, Retry::new, plain));
    for _ in 0..2 {
        rig.claim();
        rig.receive();
        rig.turn();
        rig.out.clear();
        rig.crash(true);
    }
    assert_eq!(rig.output::<u32>(), 3);
    assert_eq!(
        rig.words(),
        [
            "started",
            "lost",
            "lost",
            "a1 1 WorkerLost again in 0",
            "a1 2 WorkerLost again in 20000",
            "fired a1",
            "a1 3 ok",
            "ended"
        ]
    );
}

#[test]
fn p15_a_stop_by_us_does_not_count() {
    let mut rig = Rig::held(failing(0, Retry::new, plain));
    rig.crash(false);
    assert_eq!(rig.output::<u32>(), 1);
    assert_eq!(rig.words(), ["started", "a1 1 ok", "ended"]);
}

#[test]
fn p04_the_output_limit_is_accepted_and_one_byte_more_is_not() {
    let registry = |bytes: usize| {
        Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
            let big = cx
                .step("big", (), move |_: Step, (): ()| async move { Ok::<_, Error>("x".repeat(bytes - 2)) });
            let big = big.await.map(|text| text.len() + 2);
            Ok::<_, Error>(big.map_err(|error| error.to_string()))
        })
    };
    let limits = Limits { output_bytes: 1000, ..Limits::default() };
    let mut rig = Rig::new(registry(1000));
    rig.co.rules.limits = limits;
    assert_eq!(rig.output::<Result<usize, String>>(), Ok(1000));
    let mut rig = Rig::new(registry(1001));
    rig.co.rules.limits = limits;
    let error = rig.output::<Result<usize, String>>().unwrap_err();
    assert!(error.contains("1001") && error.contains("1000"), "{error}");
    assert_eq!(rig.words()[1], "big1 1 failed TooLarge");
}

#[test]
fn p04_the_step_limit_is_accepted_and_one_more_is_not() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let mut done = 0;
        loop {
            cx.sleep("not counted", "0s").await?;
            match cx.step("a", (), async |_: Step, (): ()| Ok::<_, Error>(())).await {
                Ok(()) => done += 1,
                Err(error) => return Ok::<_, Error>((done, error.to_string())),
            }
        }
    });
    let mut rig = Rig::new(registry);
    rig.co.rules.limits = Limits { steps: 3, ..Limits::default() };
    let (done, error) = rig.output::<(u32, String)>();
    assert_eq!(done, 3);
    assert!(error.contains("its 3 steps"), "{error}");
    assert!(rig.words().contains(&"a4 1 failed LimitReached".to_owned()));
}

#[test]
fn p04_a_full_journal_refuses_the_next_step() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let mut done = 0;
        loop {
            let step = cx.step("a", "x".repeat(98), async |_: Step, text: String| Ok::<_, Error>(text));
            match step.await {
                Ok(_) => done += 1,
                Err(error) => return Ok::<_, Error>((done, error.to_string())),
            }
        }
    });
    // The start's entry, two steps' entries, and the third one's input.
    let bytes = (4 + 128) + 2 * (100 + 128) + 100;
    for (limit, expected) in [(bytes, 3), (bytes - 1, 2)] {
        let mut rig = Rig::new(registry.clone());
        rig.co.rules.limits = Limits { journal_bytes: limit, ..Limits::default() };
        let (done, error) = rig.output::<(u32, String)>();
        assert_eq!(done, expected, "{error}");
        assert!(
            error.contains("the journal is") && error.contains(&format!("the limit is {limit}")),
            "{error}"
        );
        assert!(rig.words().contains(&format!("a{} 1 failed LimitReached", expected + 1)));
    }
}

#[test]
fn w31_the_body_gets_the_value_decoded_from_the_recorded_text() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Lossy {
        kept: u32,
        #[serde(skip)]
        skipped: u32,
    }
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let value =
            cx.step("a", (), async |_: Step, (): ()| Ok::<_, Error>(Lossy { kept: 1, skipped: 2 })).await?;
        Ok::<_, Error>((value.kept, value.skipped))
    });
    assert_eq!(Rig::new(registry).output::<(u32, u32)>(), (1, 0));
}

/// Each attempt tells ten times its number, and the third returns what it was given.
fn telling(delay: &'static str) -> Registry {
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
        let step = cx.step("a", (), async |step: Step, (): ()| {
            let last = step.last_progress::<u32>();
            if step.attempt() < 3 {
                step.heartbeat(10 * step.attempt())?;
                return Err(Error::failed("again"));
            }
            Ok(last)
        });
        step.retry(Retry::constant(delay).limit(5)).await
    })
}

#[test]
fn p05_progress_outlives_the_lease_and_the_worker() {
    for delay in ["0s", "1h"] {
        let mut rig = Rig::new(telling(delay));
        for _ in 0..2 {
            rig.exchange();
            while rig.orders.is_empty() {
                if rig.co.is_ready(rig.uid) {
                    rig.claim();
                } else {
                    assert!(rig.wait());
                }
                rig.exchange();
            }
            rig.attempt();
            rig.exchange();
            rig.crash(false);
        }
        assert_eq!(rig.output::<Option<u32>>(), Some(20), "{:?}", rig.words());
    }
}

#[test]
fn p05_an_attempt_that_is_over_tells_nobody_any_more() {
    let mut rig = Rig::held(telling("0s"));
    let late = rig.orders[0].progress.clone();
    rig.attempt();
    *late.lock().unwrap() = Some(Payload::encode(&10).unwrap());
    rig.exchange();
    *late.lock().unwrap() = Some(Payload::encode(&99).unwrap());
    assert_eq!(rig.orders[0].last, Some(Payload::encode(&10).unwrap()));
    rig.attempt();
    rig.exchange();
    assert_eq!(rig.orders[0].last, Some(Payload::encode(&20).unwrap()));
}
