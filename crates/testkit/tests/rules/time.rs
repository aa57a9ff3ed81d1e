//! Time: it jumps by itself, or is moved by hand, and what is due comes at its moment.

use std::time::{Duration, Instant};

use everstep::{Error, Retry, Step, Workflow};
use everstep_testkit::{KitError, Status, TestKit};

use crate::nap;

fn naps() -> TestKit {
    TestKit::new().workflow_fn("nap", nap)
}

#[test]
fn p42_thirty_days_of_sleep_take_milliseconds() {
    let begin = Instant::now();
    let inside = naps().run(async |kit| {
        let begin = Instant::now();
        let before = kit.now();
        let run = kit.start_instance("nap", &30).await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 30);
        let days = kit.now().since(before).as_u64() / 86_400_000;
        assert_eq!(days, 30, "virtual days");
        begin.elapsed()
    });
    println!("p42: 30 days took {inside:?}, {:?} with the start of the system", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn p42_a_year_of_monthly_steps_in_many_instances_at_once() {
    let kit = TestKit::new().workflow_fn("billing", |cx: Workflow, (): ()| async move {
        let mut months = 0u64;
        for _ in 0..12 {
            cx.sleep("until next month", "1 month").await?;
            months += cx.step("bill", (), async |_: Step, (): ()| Ok::<_, Error>(1u64)).await?;
        }
        Ok::<_, Error>(months)
    });
    kit.run(async |kit| {
        let mut runs = Vec::new();
        for number in 0..20 {
            runs.push(kit.start_instance_as("billing", &format!("c-{number}"), &()).await.unwrap());
        }
        for run in &runs {
            assert_eq!(run.result::<u64>().await.unwrap(), 12);
        }
    });
}

#[test]
fn p42_by_hand_time_moves_as_far_as_it_is_told_and_no_further() {
    naps().time_by_hand().run(async |kit| {
        let run = kit.start_instance("nap", &3).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        kit.advance("2 days 23 hours").await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Waiting);
        let error = run.result::<u64>().await.unwrap_err();
        assert!(matches!(error, KitError::Standstill { .. }), "{error}");
        assert!(
            error.to_string().contains("sleep \"nap\" #1 until 2026-01-04T"),
            "it says until when: {error}"
        );
        kit.advance("1 hour").await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Complete);
    });
}

#[test]
fn p42_what_is_due_on_the_way_happens_on_the_way() {
    let kit = TestKit::new().workflow_fn("chain", |cx: Workflow, (): ()| async move {
        let mut seen = Vec::new();
        for _ in 0..3 {
            cx.sleep("hop", "1 day").await?;
            seen.push(cx.now().duration_since(std::time::UNIX_EPOCH)?.as_secs() / 3600 % 24);
        }
        Ok::<_, Error>(seen)
    });
    kit.time_by_hand().run(async |kit| {
        let run = kit.start_instance("chain", &()).await.unwrap();
        kit.advance("10 days").await.unwrap();
        assert_eq!(
            run.status().await.unwrap(),
            Status::Complete,
            "three sleeps, one after the other, in one advance"
        );
        assert_eq!(
            run.result::<Vec<u64>>().await.unwrap(),
            [0, 0, 0],
            "each woke at midnight, not ten days later"
        );
    });
}

#[test]
fn p42_a_duration_that_is_none_is_an_error_that_names_it() {
    TestKit::new().run(async |kit| {
        let error = kit.advance("10 parsecs").await.unwrap_err();
        assert!(error.to_string().contains("10 parsecs"), "{error}");
    });
}

#[test]
fn p42_a_real_step_that_sleeps_by_tokio_s_clock_is_waited_for() {
    let kit = TestKit::new().workflow_fn("slow", |cx: Workflow, (): ()| async move {
        let slow = async |_: Step, (): ()| {
            tokio::time::sleep(Duration::from_secs(90)).await;
            Ok::<_, Error>(1)
        };
        cx.step("slow", (), slow).timeout("1 min").retry(Retry::constant("1s").limit(1)).await
    });
    kit.run(async |kit| {
        let run = kit.start_instance("slow", &()).await.unwrap();
        assert!(run.error().await.unwrap().is_timed_out(), "by its own timeout, twice");
    });
}

/// It asks for two days more than it has: at its deadline it is terminated, however far the next thing is.
#[test]
fn p30_p42_time_stops_at_the_deadline_of_a_cancel() {
    let kit = TestKit::new().workflow_fn("slow", |cx: Workflow, (): ()| async move {
        if let Err(error) = cx.sleep("nap", "30 days").await {
            cx.sleep("clean up", "2 days").await?;
            return Err(error);
        }
        Ok(())
    });
    kit.run(async |kit| {
        let run = kit.start_instance("slow", &()).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        let before = kit.now();
        run.cancel_within("ann", "10 min").await.unwrap();
        let end = run.end().await.unwrap();
        assert!(matches!(end, everstep_testkit::journal::End::Terminated { .. }), "{end:?}");
        let minutes = kit.now().since(before).as_u64() / 60_000;
        assert_eq!(minutes, 10);
    });
}
