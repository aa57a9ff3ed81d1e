//! O-03 and O-04: events that come before anybody waits, between two waits, and at the very moment of a timeout.

use std::time::Duration;

use everstep::{Error, Step, Workflow};
use everstep_testkit::{Kit, Run, Status, TestKit};
use futures::future::BoxFuture;

/// A step that takes so many seconds.
fn takes(seconds: u64) -> impl Fn(Step, ()) -> BoxFuture<'static, Result<(), Error>> + Send + Sync {
    move |_, ()| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(())
        })
    }
}

async fn or_timeout(wait: impl Future<Output = Result<u64, Error>>) -> Result<Option<u64>, Error> {
    match wait.await {
        Ok(number) => Ok(Some(number)),
        Err(error) if error.is_timed_out() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A wait of 2 s, a step of 5 s, a wait of 10 s.
fn gap() -> TestKit {
    TestKit::new().workflow_fn("gap", |cx: Workflow, (): ()| async move {
        let first = or_timeout(cx.event::<u64>("go").timeout("2s")).await?;
        cx.step("gap", (), takes(5)).await?;
        let second = or_timeout(cx.event::<u64>("go").timeout("10s")).await?;
        Ok::<_, Error>((first, second))
    })
}

type Both = (Option<u64>, Option<u64>);

#[test]
fn o03_an_event_between_two_waits_goes_to_the_second() {
    for crashes in [false, true] {
        gap().time_by_hand().run(async move |kit| {
            let run = kit.start_instance("gap", &()).await.unwrap();
            kit.advance("4s").await.unwrap();
            run.send("go", &1).await.unwrap();
            if crashes {
                kit.advance("1s").await.unwrap();
                kit.crash_worker();
            }
            kit.advance("40s").await.unwrap();
            assert_eq!(run.result::<Both>().await.unwrap(), (None, Some(1)));
        });
    }
}

#[test]
fn o03_without_any_event_both_waits_time_out_and_nothing_hangs() {
    gap().run(async |kit| {
        let began = kit.now();
        let run = kit.start_instance("gap", &()).await.unwrap();
        assert_eq!(run.result::<Both>().await.unwrap(), (None, None));
        let seconds = kit.now().since(began).as_u64() / 1_000;
        assert!((17..20).contains(&seconds), "{seconds} s");
    });
}

/// Two hundred events around the moment of the timeout: each is delivered once, to the one wait or the other.
#[test]
fn o03_at_the_moment_of_the_timeout_an_event_is_delivered_once() {
    const COUNT: u64 = 200;
    // A short sleep in the middle: where the edge is, is what matters, and 200 running steps would be slow.
    let kit = TestKit::new().workflow_fn("edge", |cx: Workflow, (): ()| async move {
        let first = or_timeout(cx.event::<u64>("go").timeout("2s")).await?;
        cx.sleep("gap", "5s").await?;
        let second = or_timeout(cx.event::<u64>("go").timeout("10s")).await?;
        Ok::<_, Error>((first, second))
    });
    kit.time_by_hand().run(async |kit| {
        let mut runs = Vec::new();
        for _ in 0..COUNT {
            runs.push(kit.start_instance("edge", &()).await.unwrap());
        }
        for run in &runs {
            run.reaches(Status::Waiting).await.unwrap();
        }
        kit.advance("1500ms").await.unwrap();
        for (number, run) in (0..).zip(&runs) {
            run.send("go", &number).await.unwrap();
            kit.advance("5ms").await.unwrap();
        }
        kit.advance("30s").await.unwrap();
        let (mut to_first, mut to_second) = (0, 0);
        for (number, run) in (0..).zip(&runs) {
            match run.result::<Both>().await.unwrap() {
                (Some(got), None) if got == number => to_first += 1,
                (None, Some(got)) if got == number => to_second += 1,
                other => panic!("event {number}: {other:?}"),
            }
        }
        assert_eq!(to_first + to_second, COUNT);
        assert!(to_first > 0 && to_second > 0, "both sides of the edge were met: {to_first} and {to_second}");
    });
}

/// A step of 3 s, a wait of 10 s, a step of 1 s, a wait of 10 s.
fn pair() -> TestKit {
    TestKit::new().workflow_fn("pair", |cx: Workflow, (): ()| async move {
        cx.step("prep", (), takes(3)).await?;
        let first = or_timeout(cx.event::<u64>("msg").timeout("10s")).await?;
        cx.step("mid", (), takes(1)).await?;
        let second = or_timeout(cx.event::<u64>("msg").timeout("10s")).await?;
        Ok::<_, Error>((first, second))
    })
}

async fn sends(kit: &Kit, numbers: &[u64]) -> Run {
    let run = kit.start_instance("pair", &()).await.unwrap();
    kit.advance("100ms").await.unwrap();
    for number in numbers {
        run.send("msg", number).await.unwrap();
    }
    run
}

#[test]
fn o04_two_events_sent_too_early_reach_two_waits_in_order() {
    for (numbers, got) in
        [(&[1, 2][..], (Some(1), Some(2))), (&[1], (Some(1), None)), (&[1, 1], (Some(1), Some(1)))]
    {
        pair().run(async move |kit| {
            let run = sends(&kit, numbers).await;
            assert_eq!(run.result::<Both>().await.unwrap(), got, "{numbers:?}");
        });
    }
}

#[test]
fn o04_the_same_with_a_crash_between_the_waits() {
    pair().time_by_hand().run(async |kit| {
        let run = sends(&kit, &[1, 2]).await;
        kit.advance("3500ms").await.unwrap();
        kit.crash_worker();
        kit.advance("1 min").await.unwrap();
        assert_eq!(run.result::<Both>().await.unwrap(), (Some(1), Some(2)));
    });
}

#[test]
fn o04_a_hundred_events_reach_a_hundred_waits_in_order() {
    let kit = TestKit::new().workflow_fn("hundred", |cx: Workflow, (): ()| async move {
        let mut got = Vec::new();
        for _ in 0..100 {
            got.push(cx.event::<u64>("msg").timeout("1 min").await?);
        }
        Ok::<_, Error>(got)
    });
    kit.run(async |kit| {
        let run = kit.start_instance("hundred", &()).await.unwrap();
        for number in 1..=100 {
            run.send("msg", &number).await.unwrap();
        }
        assert_eq!(run.result::<Vec<u64>>().await.unwrap(), (1..=100).collect::<Vec<_>>());
    });
}

#[test]
fn o04_a_type_is_matched_to_the_letter_and_one_that_is_none_is_refused() {
    pair().run(async |kit| {
        let run = kit.start_instance("pair", &()).await.unwrap();
        for (kind, number) in [("MSG", 1), ("msg ", 2), ("msg", 3)] {
            run.send(kind, &number).await.unwrap();
        }
        for kind in ["", &"m".repeat(101), "m\n"] {
            let error = run.send(kind, &4).await.unwrap_err().to_string();
            assert!(error.contains("1 to 100"), "{error}");
        }
        assert_eq!(run.result::<Both>().await.unwrap(), (Some(3), None));
    });
}
