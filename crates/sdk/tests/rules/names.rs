//! Names, counts and the order of calls (P2, W28, W32).

use everstep::{Error, Workflow};
use everstep_protocol::{CallKind, Position};

use crate::driver::{Driver, calls, done, echo, is_pending, numbers, refused};

#[test]
fn p02_calls_of_one_name_are_counted_and_kinds_do_not_collide() {
    let driver = Driver::new(|cx: Workflow| async move {
        for n in 0..2u64 {
            cx.step("a", n, echo).await?;
            cx.sleep("a", "1s").await?;
        }
        cx.remote::<u64>("a", 7u64).on("pool").await?;
        cx.step("b", 1u64, echo).await
    });
    let (made, result) = driver.run();
    assert_eq!(
        calls(&made),
        [
            (CallKind::Step, "a", 1),
            (CallKind::Sleep, "a", 1),
            (CallKind::Step, "a", 2),
            (CallKind::Sleep, "a", 2),
            (CallKind::Step, "a", 3),
            (CallKind::Step, "b", 1),
        ]
    );
    assert_eq!(numbers(&made), [0, 1, 2, 3, 4, 5]);
    assert_eq!(result.unwrap().as_str(), "1");
}

#[test]
fn p02_the_longest_name_is_accepted() {
    let driver = Driver::new(|cx: Workflow| async move { cx.step("ü".repeat(256), 1u64, echo).await });
    assert_eq!(driver.output::<u64>(), 1);
}

#[test]
fn p02_a_bad_name_fails_the_call_and_is_never_recorded() {
    for bad in [String::new(), "ü".repeat(257), "a\nb".to_owned(), "nul\0".to_owned()] {
        let shown = format!("{:?}", bad.chars().take(20).collect::<String>());
        let driver = Driver::new(|cx: Workflow| async move {
            let error = cx.sleep(&bad, "1s").await.unwrap_err();
            assert_eq!(error.kind(), everstep::FailureKind::Invalid);
            cx.step(bad, 1u64, echo).await
        });
        let (made, result) = driver.run();
        assert!(made.is_empty());
        refused(&result.unwrap_err(), shown.trim_end_matches('"'));
    }
}

#[test]
fn p02_a_bad_pool_or_function_fails_the_call() {
    let check = |pool: Option<&'static str>, name: &'static str, text: &str| {
        let (made, result) = Driver::new(move |cx: Workflow| async move {
            let call = cx.remote::<u64>(name, 1u64);
            match pool {
                Some(pool) => call.on(pool).await,
                None => call.await,
            }
        })
        .run();
        assert!(made.is_empty());
        refused(&result.unwrap_err(), text);
    };
    check(Some("Big Pool"), "label", "Big Pool");
    check(Some("labels"), "Make Label", "Make Label");
    check(None, "label", "step \"label\": no pool is named");
}

#[test]
fn w32_the_count_is_taken_at_the_call_and_the_call_begins_at_its_first_poll() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let first = cx.step("a", 1u64, echo);
        let second = cx.step("a", 2u64, echo);
        let two = second.await?;
        let one = first.await?;
        Ok::<_, Error>((one, two))
    });
    let polled = driver.poll();
    assert_eq!(calls(&polled.made), [(CallKind::Step, "a", 2)]);
    assert_eq!(numbers(&polled.made), [1]);
    let polled = driver.feed(1, 20u64);
    assert_eq!(calls(&polled.made), [(CallKind::Step, "a", 1)]);
    assert_eq!(done::<(u64, u64)>(driver.feed(0, 10u64)), (10, 20));
}

#[test]
fn w32_calls_of_one_poll_are_ordered_by_number() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let (a, b, c) = (cx.step("a", 1u64, echo), cx.step("b", 1u64, echo), cx.step("c", 1u64, echo));
        let (c, a, b) = futures::join!(c, a, b);
        Ok::<_, Error>((a?, b?, c?))
    });
    assert_eq!(numbers(&driver.poll().made), [0, 1, 2]);
}

#[test]
fn w32_a_call_that_is_never_polled_takes_a_number_and_never_begins() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        drop(cx.step("a", 1u64, echo));
        cx.step("a", 1u64, echo).await
    });
    let polled = driver.poll();
    assert_eq!(calls(&polled.made), [(CallKind::Step, "a", 2)]);
    assert!(polled.dropped.is_empty());
}

#[test]
fn w28_a_call_carries_what_the_body_had_seen_when_it_was_made() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let late = cx.step("late", 1u64, echo);
        cx.step("first", 1u64, echo).await?;
        let (late, second) = futures::join!(late, cx.step("second", 1u64, echo));
        late?;
        second
    });
    assert_eq!(driver.poll().made[0].called_after, Position(1));
    driver.seen = 5;
    let polled = driver.feed(1, 1u64);
    assert!(is_pending(&polled));
    let after: Vec<_> = polled.made.iter().map(|made| (made.number, made.called_after)).collect();
    assert_eq!(after, [(0, Position(1)), (2, Position(6))]);
}
