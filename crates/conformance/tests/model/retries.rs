//! Retry policies as code says them, and what a step is told of its own.

use std::time::{Duration, Instant};

use everstep::{Backoff, Error, Limit, Millis, Policy, Retry, Step, Workflow};
use everstep_conformance::{attempts, failing, retry_delays};
use everstep_system_tests::Log;
use everstep_testkit::{Mock, Status, TestKit, journal::Outcome};

/// One step that always fails under this policy.
fn fails(log: &Log, retry: Retry) -> TestKit {
    let log = log.clone();
    TestKit::new().workflow_fn("fails", move |cx: Workflow, (): ()| {
        let (log, retry) = (log.clone(), retry.clone());
        async move { cx.step("s", (), failing::<u32>(&log, Error::failed("503"))).retry(retry).await }
    })
}

#[test]
fn b004_b115_the_delay_of_a_function_is_used_and_recorded_without_a_multiplier() {
    let log = Log::new();
    // Exponential by default: what the function says is not doubled.
    let retry =
        Retry::new().limit(3).delay_with(|attempt, _: &Error| Some(Millis(u64::from(attempt) * 7_000)));
    fails(&log, retry).run(async move |kit| {
        let run = kit.start_instance("fails", &()).await.unwrap();
        assert_eq!(run.error().await.unwrap().message(), "503");
        assert_eq!(retry_delays(&run.journal().await.unwrap()), [7_000, 14_000, 21_000]);
        assert_eq!(log.lines().len(), 4);
    });
}

/// Elsewhere a delay function that fails ends the step at once. Here the policy's own delay stands in, and the record says so.
#[test]
fn b005_b117_a_delay_function_that_panics_is_recorded_and_the_policy_goes_on() {
    let log = Log::new();
    let retry =
        Retry::constant("5s").limit(2).delay_with(|_, _: &Error| -> Option<u32> { panic!("no such header") });
    fails(&log, retry).run(async move |kit| {
        let run = kit.start_instance("fails", &()).await.unwrap();
        run.reaches(Status::Errored).await.unwrap();
        let journal = run.journal().await.unwrap();
        assert_eq!(retry_delays(&journal), [5_000, 5_000]);
        let Outcome::Failed { failure, .. } = &attempts(&journal)[0].1.outcome else { panic!("it failed") };
        assert!(failure.message.contains("503"), "{failure}");
        assert!(
            failure.message.contains("delay function") && failure.message.contains("no such header"),
            "{failure}"
        );
        assert_eq!(log.lines().len(), 3);
    });
}

/// A delay function that gives a text that is no duration is treated like one that panics.
#[test]
fn b005_a_delay_function_that_gives_no_duration_is_recorded_too() {
    let log = Log::new();
    let retry = Retry::constant("5s").limit(1).delay_with(|_, _: &Error| Some("5 fortnights"));
    fails(&log, retry).run(async move |kit| {
        let run = kit.start_instance("fails", &()).await.unwrap();
        run.reaches(Status::Errored).await.unwrap();
        let journal = run.journal().await.unwrap();
        assert_eq!(retry_delays(&journal), [5_000]);
        let Outcome::Failed { failure, .. } = &attempts(&journal)[0].1.outcome else { panic!("it failed") };
        assert!(failure.message.contains("5 fortnights"), "{failure}");
    });
}

/// The policies that the attempts of a step saw.
fn seen_with(retry: Option<Retry>, timeout: Option<&'static str>) -> Vec<(u32, Policy)> {
    let log = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = log.clone();
    let kit = TestKit::new().workflow_fn("looks", move |cx: Workflow, (): ()| {
        let (seen, retry) = (seen.clone(), retry.clone());
        async move {
            let mut call = cx.step("look", (), move |step: Step, (): ()| {
                let seen = seen.clone();
                async move {
                    seen.lock().unwrap().push((step.attempt(), step.policy()));
                    // What it is given is its own.
                    let mut mine = step.policy();
                    mine.limit = Limit::Unlimited;
                    assert_ne!(mine, step.policy());
                    Err::<(), _>(Error::failed("again"))
                }
            });
            if let Some(retry) = retry {
                call = call.retry(retry);
            }
            if let Some(timeout) = timeout {
                call = call.timeout(timeout);
            }
            call.await
        }
    });
    kit.run(async |kit| {
        let run = kit.start_instance("looks", &()).await.unwrap();
        run.reaches(Status::Errored).await.unwrap();
    });
    log.lock().unwrap().clone()
}

#[test]
fn b048_b049_b056_attempts_are_counted_from_one_and_a_changed_copy_of_the_policy_changes_nothing() {
    let seen = seen_with(Some(Retry::constant("1s").limit(2)), None);
    assert_eq!(seen.iter().map(|(attempt, _)| *attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(seen.iter().all(|(_, policy)| policy.limit == Limit::Times(2)), "{seen:?}");
}

#[test]
fn b054_a_step_is_told_the_defaults() {
    let (_, policy) = seen_with(None, None).swap_remove(0);
    assert_eq!(
        (policy.limit, policy.delay, policy.backoff),
        (Limit::Times(5), Millis(10_000), Backoff::Exponential)
    );
    assert_eq!(policy.timeout, Millis(600_000));
}

#[test]
fn b055_what_the_code_says_is_merged_with_the_defaults_field_by_field() {
    let (_, policy) = seen_with(Some(Retry::new().limit(1)), Some("3 min")).swap_remove(0);
    assert_eq!((policy.limit, policy.timeout), (Limit::Times(1), Millis(180_000)));
    assert_eq!((policy.delay, policy.backoff), (Millis(10_000), Backoff::Exponential), "as by default");
    let (_, policy) = seen_with(Some(Retry::linear("1s")), None).swap_remove(0);
    assert_eq!(
        (policy.limit, policy.delay, policy.backoff),
        (Limit::Times(5), Millis(1_000), Backoff::Linear)
    );
}

#[test]
fn b006_a_step_sees_the_policy_s_own_delay_and_no_function() {
    let retry = Retry::constant("4s").limit(1).delay_with(|_, _: &Error| Some(1_u32));
    let (_, policy) = seen_with(Some(retry), None).swap_remove(0);
    assert_eq!((policy.delay, policy.backoff), (Millis(4_000), Backoff::Constant));
    let text = format!("{policy:?}");
    assert!(!text.contains("function"), "nothing of it is in the record: {text}");
}

#[test]
fn b050_a_constant_delay_is_really_waited() {
    let log = Log::new();
    fails(&log, Retry::constant("1s").limit(1)).time_by_hand().run(async move |kit| {
        let run = kit.start_instance("fails", &()).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        kit.advance("999ms").await.unwrap();
        assert_eq!((log.lines(), run.status().await.unwrap()), (vec!["s 1".to_owned()], Status::Waiting));
        kit.advance("1ms").await.unwrap();
        run.reaches(Status::Errored).await.unwrap();
        assert_eq!(log.lines(), ["s 1", "s 2"]);
    });
}

#[test]
fn b051_in_tests_the_delays_cost_no_time_and_the_attempts_are_all_there() {
    let log = Log::new();
    let began = Instant::now();
    fails(&log, Retry::constant("30 days").limit(12)).run(async move |kit| {
        let run = kit.start_instance("fails", &()).await.unwrap();
        run.reaches(Status::Errored).await.unwrap();
        assert_eq!(log.lines().len(), 13);
    });
    assert!(began.elapsed() < Duration::from_secs(10), "a year in {:?}", began.elapsed());
}

#[test]
fn t06_the_time_that_an_error_asks_for_is_kept() {
    let kit = TestKit::new().workflow_fn("busy", |cx: Workflow, (): ()| async move {
        let busy = async |step: Step, (): ()| match step.attempt() {
            1 => Err(Error::failed("slow down").retry_after("42s")),
            _ => Ok(()),
        };
        cx.step("busy", (), busy).retry(Retry::exponential("1s")).await
    });
    kit.run(async |kit| {
        let run = kit.start_instance("busy", &()).await.unwrap();
        run.result::<()>().await.unwrap();
        let journal = run.journal().await.unwrap();
        assert_eq!(retry_delays(&journal), [42_000]);
        let attempts = attempts(&journal);
        let waited = attempts[1].1.started_at.since(attempts[0].0.at).as_u64();
        assert!(waited >= 42_000, "{waited} ms");
    });
}

/// What the code says wrongly is an error of the call, which names it, and nothing has run.
#[test]
fn b114_a_policy_that_cannot_be_read_is_an_error_of_the_call() {
    let kit =
        TestKit::new().workflow_fn("policy", |cx: Workflow, (delay, timeout): (String, String)| async move {
            let ran = async |_: Step, (): ()| Ok::<_, Error>("it ran".to_owned());
            cx.step("s", (), ran).retry(Retry::constant(delay)).timeout(timeout).await
        });
    kit.run(async |kit| {
        for (delay, timeout, named) in [
            ("10 parsecs", "1 min", Some("10 parsecs")),
            ("", "1 min", Some("\"\"")),
            ("1s", "5 min 5 min", Some("5 min 5 min")),
            ("1s", "-1s", Some("-1s")),
            // No delay at all is a policy.
            ("0s", "1 min", None),
        ] {
            let run = kit.start_instance("policy", &(delay, timeout)).await.unwrap();
            match named {
                None => assert_eq!(run.result::<String>().await.unwrap(), "it ran"),
                Some(named) => {
                    let error = run.error().await.unwrap();
                    assert!(error.is_permanent() && error.message().contains(named), "{error}");
                    assert!(attempts(&run.journal().await.unwrap()).is_empty(), "nothing ran");
                }
            }
        }
    });
}

/// A timeout of nothing leaves no time for any attempt. It is no limit that is switched off.
#[test]
fn b114_a_timeout_of_nothing_times_out() {
    let kit = TestKit::new().workflow_fn("hasty", |cx: Workflow, (): ()| async move {
        let slow = async |_: Step, (): ()| {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok::<_, Error>(())
        };
        cx.step("slow", (), slow).timeout("0s").retry(Retry::none()).await
    });
    kit.run(async |kit| {
        let run = kit.start_instance("hasty", &()).await.unwrap();
        let error = run.error().await.unwrap();
        assert!(error.is_timed_out() || error.is_permanent(), "{error}");
    });
}

#[test]
fn b144_two_mocked_errors_and_a_mocked_result_are_three_attempts() {
    let log = Log::new();
    fails(&log, Retry::constant("1s")).run(async move |kit| {
        kit.mock(Mock::step("s").fails(2, Error::failed("mocked")).returns(&7)).unwrap();
        let run = kit.start_instance("fails", &()).await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), 7);
        assert_eq!(attempts(&run.journal().await.unwrap()).len(), 3);
        assert!(log.lines().is_empty(), "the step itself never ran");
    });
}

/// An attempt whose worker died is not one that a delay function could be asked about.
#[test]
fn b118_after_a_crash_the_policy_s_own_delay_counts() {
    let kit = TestKit::new().workflow_fn("slow", |cx: Workflow, (): ()| async move {
        let slow = async |step: Step, (): ()| {
            if step.attempt() == 1 {
                std::future::pending::<()>().await;
            }
            Ok::<_, Error>(step.attempt())
        };
        let retry = Retry::constant("5s").limit(1).delay_with(|_, _: &Error| Some("1 day"));
        cx.step("slow", (), slow).retry(retry).await
    });
    kit.run(async |kit| {
        let run = kit.start_instance("slow", &()).await.unwrap();
        kit.advance("3s").await.unwrap();
        kit.crash_worker();
        let began = kit.now();
        assert_eq!(run.result::<u32>().await.unwrap(), 2);
        let waited = kit.now().since(began).as_u64();
        assert!((5_000..60_000).contains(&waited), "{waited} ms");
    });
}
