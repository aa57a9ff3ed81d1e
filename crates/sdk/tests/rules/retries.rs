//! Policies as the code says them (P10, P11, P12).

use std::panic::{AssertUnwindSafe, catch_unwind};

use everstep::host::{RemoteSpec, Spec};
use everstep::{Backoff, Error, Limit, Millis, Policy, Retry, Workflow};
use everstep_protocol::{Attempt, Failure, FailureKind};

use crate::driver::{Driver, echo, refused, step_spec};

fn policy_of(retry: Retry, timeout: &'static str) -> Policy {
    let mut driver = Driver::new(move |cx: Workflow| async move {
        cx.step("a", 1u64, echo).timeout(timeout).retry(retry).await
    });
    step_spec(&driver.poll().made[0]).policy
}

#[test]
fn p10_a_partial_policy_is_merged_field_by_field() {
    let default = Policy::default();
    let plain = Policy { timeout: Millis(120_000), ..default };
    assert_eq!(policy_of(Retry::new(), "2 min"), plain);
    assert_eq!(policy_of(Retry::none(), "2 min"), Policy { limit: Limit::Times(0), ..plain });
    assert_eq!(
        policy_of(Retry::linear("3s").unlimited().jitter(), "2 min"),
        Policy {
            limit: Limit::Unlimited,
            delay: Millis(3_000),
            backoff: Backoff::Linear,
            jitter: true,
            ..plain
        }
    );
    assert_eq!(
        policy_of(Retry::constant(5).limit(1).max_delay("1 h").max_elapsed("1 d"), "2 min"),
        Policy {
            limit: Limit::Times(1),
            delay: Millis(5),
            backoff: Backoff::Constant,
            max_delay: Millis(3_600_000),
            max_elapsed: Some(Millis(86_400_000)),
            ..plain
        }
    );
}

#[test]
fn p10_a_remote_step_has_a_policy_too() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        cx.remote::<u64>("label it", 1u64).on("labels").function("label").retry(Retry::none()).await
    });
    match &driver.poll().made[0].spec {
        Spec::Remote(RemoteSpec { function, pool, input, policy, .. }) => {
            assert_eq!((function.as_str(), pool.as_str(), input.as_str()), ("label", "labels", "1"));
            assert_eq!(policy.limit, Limit::Times(0));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn p12_a_delay_function_computes_the_delay() {
    let retry = Retry::new().delay_with(|attempt, error: &Error| match error.name() {
        "Busy" => Some(format!("{attempt}s")),
        "Odd" => Some("5 fortnights".to_owned()),
        _ => None,
    });
    let mut driver =
        Driver::new(move |cx: Workflow| async move { cx.step("a", 1u64, echo).retry(retry).await });
    let made = driver.poll().made.remove(0);
    let delay = step_spec(&made).delay.clone().unwrap();
    let failure = |name: &str| Failure::from(Error::failed("").named(name));
    assert_eq!(delay(Attempt(3), &failure("Busy")), Some(Millis(3_000)));
    assert_eq!(delay(Attempt(3), &Failure::new(FailureKind::TimedOut, "")), None);
    let panic = catch_unwind(AssertUnwindSafe(|| delay(Attempt(1), &failure("Odd")))).unwrap_err();
    assert!(everstep::host::panic_message(panic.as_ref()).contains("5 fortnights"));
}

#[test]
fn p12_a_remote_step_refuses_a_delay_function() {
    let driver = Driver::new(|cx: Workflow| async move {
        cx.remote::<u64>("label", 1u64).on("labels").retry(Retry::new().delay_with(|_, _| Some(1))).await
    });
    refused(&driver.failure(), "delay function");
}
