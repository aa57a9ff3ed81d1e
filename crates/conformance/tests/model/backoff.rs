//! O-01: delays that double until a width gives way.

use everstep::{Error, Millis, Retry, Workflow};
use everstep_conformance::{attempts, failing, retry_delays};
use everstep_system_tests::Log;
use everstep_testkit::{Kit, Run, Status, TestKit};

/// A workflow for each policy, named after it: a step that always fails.
fn kit(log: &Log, policies: Vec<(&'static str, Retry)>) -> TestKit {
    policies.into_iter().fold(TestKit::new(), |kit, (name, retry)| {
        let log = log.clone();
        kit.workflow_fn(name, move |cx: Workflow, (): ()| {
            let (log, retry) = (log.clone(), retry.clone());
            async move { cx.step("s", (), failing::<()>(&log, Error::failed("503"))).retry(retry).await }
        })
    })
}

#[test]
fn o01_the_three_backoffs_wait_as_their_names_say() {
    let policies = vec![
        ("exponential", Retry::exponential("10s").limit(5)),
        ("linear", Retry::linear("10s").limit(5)),
        ("constant", Retry::constant("10s").limit(5)),
    ];
    kit(&Log::new(), policies).run(async |kit| {
        for (name, delays) in [
            ("exponential", [10, 20, 40, 80, 160]),
            ("linear", [10, 20, 30, 40, 50]),
            ("constant", [10, 10, 10, 10, 10]),
        ] {
            let run = kit.start_instance(name, &()).await.unwrap();
            run.reaches(Status::Errored).await.unwrap();
            let journal = run.journal().await.unwrap();
            assert_eq!(retry_delays(&journal), delays.map(|seconds| seconds * 1_000), "{name}");
            // From the record of a failure to the start of the next attempt: never early, at most a second late.
            let attempts = attempts(&journal);
            assert_eq!(attempts.len(), 6, "{name}");
            for (pair, delay) in attempts.windows(2).zip(delays) {
                let waited = pair[1].1.started_at.since(pair[0].0.at).as_u64();
                assert!(
                    (delay * 1_000..=delay * 1_000 + 1_000).contains(&waited),
                    "{name}: {waited} ms for {delay} s"
                );
            }
        }
    });
}

#[test]
fn o01_from_a_millisecond_doubled_there_are_seventeen_starts_in_two_minutes() {
    let log = Log::new();
    let told = log.clone();
    kit(&log, vec![("endless", Retry::exponential(1).unlimited())]).time_by_hand().run(async move |kit| {
        let run = kit.start_instance("endless", &()).await.unwrap();
        kit.advance("120s").await.unwrap();
        assert_eq!(told.lines().len(), 17);
        run.terminate("enough").await.unwrap();
    });
}

/// Past every width at which the arithmetic could give way, on to attempt 70.
#[test]
fn o01_delays_never_shrink_until_their_cap_and_stay_there() {
    let log = Log::new();
    let told = log.clone();
    kit(&log, vec![("endless", Retry::exponential("1s").limit(69))]).run(async move |kit| {
        let run = kit.start_instance("endless", &()).await.unwrap();
        run.reaches(Status::Errored).await.unwrap();
        let delays = retry_delays(&run.journal().await.unwrap());
        let day = 86_400_000;
        let expected: Vec<_> = (0..69).map(|n| 1_000_u64.saturating_mul(1 << n.min(40)).min(day)).collect();
        assert_eq!(delays, expected);
        let numbers: Vec<_> = (1..=70).map(|attempt| format!("s {attempt}")).collect();
        assert_eq!(told.lines(), numbers);
    });
}

async fn due_in(kit: &Kit, run: &Run) -> u64 {
    run.reaches(Status::Waiting).await.unwrap();
    run.view().await.unwrap().waiting[0].due_at.unwrap().since(kit.now()).as_u64()
}

/// Larger than what 32 bits of milliseconds, 63 bits of nanoseconds and 63 bits of milliseconds hold.
#[test]
fn o01_delays_past_any_width_are_held_at_the_cap_and_never_due_at_once() {
    const BASES: [u64; 4] = [1 << 32, 9_223_372_037_000, i64::MAX as u64, u64::MAX];
    let log = Log::new();
    let told = log.clone();
    let names = ["a", "b", "c", "d"];
    let policies = |capped: bool| {
        let retry = |base: u64| Retry::exponential(Millis(base)).unlimited();
        let cap = move |base: u64| if capped { retry(base) } else { retry(base).max_delay(Millis(u64::MAX)) };
        names.into_iter().zip(BASES.map(cap)).collect::<Vec<_>>()
    };
    for capped in [true, false] {
        let told = told.clone();
        kit(&log, policies(capped)).time_by_hand().run(async move |kit| {
            for (name, base) in names.into_iter().zip(BASES) {
                let before = told.lines().len();
                let run = kit.start_instance(name, &()).await.unwrap();
                let due = due_in(&kit, &run).await;
                if capped {
                    assert_eq!(due, 86_400_000, "{base}");
                } else {
                    assert!(due >= base.min(10 * 365 * 86_400_000), "{base} became {due}");
                }
                kit.advance("60s").await.unwrap();
                assert_eq!(told.lines().len(), before + 1, "{base}: one start in the first minute");
                run.terminate("enough").await.unwrap();
            }
        });
    }
}

#[test]
fn o01_a_delay_that_nobody_can_count_is_refused_with_its_text() {
    let kit = TestKit::new().workflow_fn("says", |cx: Workflow, delay: String| async move {
        let log = Log::new();
        cx.step("s", (), failing::<()>(&log, Error::failed("503"))).retry(Retry::exponential(delay)).await
    });
    kit.time_by_hand().run(async |kit| {
        for text in ["1e308 s", "NaN", "inf", "-1s", "1000000000000000000000 years"] {
            let run = kit.start_instance("says", text).await.unwrap();
            let error = run.error().await.unwrap();
            assert!(error.is_permanent() && error.message().contains(text), "{error}");
        }
        // Long, and sane: held at the cap.
        let run = kit.start_instance("says", "100000 years").await.unwrap();
        assert_eq!(due_in(&kit, &run).await, 86_400_000);
        run.terminate("enough").await.unwrap();
    });
}
