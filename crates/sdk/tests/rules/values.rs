//! Inputs and outputs as they are recorded (P3, W31), and durations at the call (P17, P18).

use std::time::{Duration, SystemTime};

use everstep::host::{BodyState, Spec};
use everstep::{Error, FailureKind, Millis, Retry, Step, Timestamp, Workflow};
use everstep_protocol::Position;
use serde::{Deserialize, Serialize};

use crate::driver::{Driver, attempt, done, echo, is_pending, refused, step_spec};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    low: i64,
    note: String,
    unit: (),
    price: f64,
}

fn order() -> Order {
    Order { id: u64::MAX, low: i64::MIN, note: "a\0b ü".into(), unit: (), price: 0.1 }
}

#[test]
fn p03_values_survive_exactly() {
    let driver = Driver::new(|cx: Workflow| async move {
        let order = order();
        let once = cx.step("by reference", &order, async |_step: Step, o: Order| Ok::<_, Error>(o)).await?;
        cx.step("two", (&once, 5u8), async |_step: Step, (o, _n): (Order, u8)| Ok::<_, Error>(o)).await
    });
    assert_eq!(driver.output::<Order>(), order());
}

#[test]
fn p03_unit_is_null() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        cx.step("nothing", (), |_step: Step, (): ()| async { Ok::<_, Error>(()) }).await
    });
    let made = driver.poll().made.remove(0);
    assert_eq!(step_spec(&made).input.as_str(), "null");
    let output = attempt(step_spec(&made), &made.call, 1, None).0.unwrap();
    assert_eq!(output.as_str(), "null");
    done::<()>(driver.feed(0, ()));
}

#[test]
fn p03_a_number_that_json_cannot_hold_is_refused_by_name() {
    let driver = Driver::new(|cx: Workflow| async move {
        cx.step("in", vec![1.0, f64::NAN], async |_step: Step, v: Vec<f64>| Ok::<_, Error>(v)).await
    });
    let (made, result) = driver.run();
    assert!(made.is_empty(), "it is never recorded");
    let failure = result.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unserialisable);
    assert!(failure.permanent && failure.message.starts_with("step \"in\""), "{failure}");

    let driver = Driver::new(|cx: Workflow| async move {
        cx.step("out", 0u64, async |_step: Step, _n: u64| Ok::<_, Error>(f64::INFINITY)).await
    });
    let failure = driver.failure();
    assert_eq!(failure.kind, FailureKind::Unserialisable);
    assert!(failure.permanent && failure.message.starts_with("step \"out\""), "{failure}");
}

#[test]
fn w31_the_body_gets_the_recorded_text_decoded() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        cx.step("price", 1u64, async |_step: Step, _n: u64| Ok::<_, Error>(1.5f64)).await
    });
    driver.poll();
    assert!((done::<f64>(driver.feed(0, 2)) - 2.0).abs() < f64::EPSILON);
}

#[test]
fn p41_an_output_that_no_longer_fits_stops_the_body_and_names_call_and_entry() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let mut count = cx.step("count", 1u64, echo);
        assert!(futures::poll!(&mut count).is_pending());
        cx.step("other", 2u64, echo).await?;
        // Neither caught as an error, nor overtaken by what the body would do instead.
        let first = futures::future::select(count, std::future::ready(())).await;
        Ok::<_, Error>(matches!(first, futures::future::Either::Left(_)))
    });
    driver.poll();
    assert!(is_pending(&driver.feed(0, "many")), "the body does not look at it yet");
    let polled = driver.feed(1, 2u64);
    let BodyState::Misfit(misfit) = polled.state else { panic!("{:?}", polled.state) };
    assert_eq!(misfit.position, Position(2), "the entry that gave it, not the last one");
    assert!(misfit.reason.starts_with("step \"count\" #1: reading the recorded output"), "{misfit:?}");
    assert!(polled.dropped.is_empty());
}

#[test]
fn p17_a_bad_duration_fails_the_call_and_names_the_text() {
    async fn check(cx: Workflow, which: u8) -> Result<u64, Error> {
        match which {
            0 => cx.sleep("nap", "5 fortnights").await.map(|()| 0),
            1 => cx.step("a", 1u64, echo).timeout("5 fortnights").await,
            2 => cx.step("a", 1u64, echo).retry(Retry::constant("5 fortnights")).await,
            3 => cx.remote("a", 1u64).on("pool").timeout("5 fortnights").await,
            4 => cx.remote("a", 1u64).on("pool").retry(Retry::new().max_delay("5 fortnights")).await,
            _ => cx.step("a", 1u64, echo).retry(Retry::new().max_elapsed("5 fortnights").limit(1)).await,
        }
    }
    for which in 0..6 {
        let (made, result) = Driver::new(move |cx| check(cx, which)).run();
        assert!(made.is_empty());
        refused(&result.unwrap_err(), "5 fortnights");
    }
}

#[test]
fn p18_sleeps_from_zero_to_ten_years() {
    let check =
        |millis: u64| Driver::new(move |cx: Workflow| async move { cx.sleep("nap", millis).await }).run();
    let longest = 3_650 * 86_400_000;
    for millis in [0, 1, longest] {
        let (made, result) = check(millis);
        assert!(matches!(made[0].spec, Spec::Sleep(Millis(is)) if is == millis));
        result.unwrap();
    }
    refused(&check(longest + 1).1.unwrap_err(), "sleep \"nap\": 3650d 1ms is longer than");
    let driver = Driver::new(|cx: Workflow| async move { cx.sleep("nap", -1).await });
    refused(&driver.failure(), "-1");
}

#[test]
fn p18_a_moment_is_never_rounded_to_earlier() {
    let driver = Driver::new(|cx: Workflow| async move {
        cx.sleep_until("past", Timestamp(-5)).await?;
        cx.sleep_until("now", SystemTime::UNIX_EPOCH + Duration::from_nanos(1_500)).await?;
        cx.sleep_until("before", SystemTime::UNIX_EPOCH - Duration::from_nanos(1_500)).await?;
        let error = cx.sleep_until("far", Timestamp(i64::MAX)).await.unwrap_err();
        Ok::<_, Error>(error.message().to_owned())
    });
    let (made, result) = driver.run();
    let moments: Vec<_> = made
        .iter()
        .map(|made| match made.spec {
            Spec::SleepUntil(moment) => moment.0,
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(moments, [-5, 2, -1]);
    assert!(result.unwrap().as_str().contains("further away"));
}
