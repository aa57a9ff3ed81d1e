//! Sleeps: from nothing to ten years, beside steps and in loops (O-02 among them).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use everstep::{Either, Error, Millis, Step, Workflow};
use everstep_conformance::{echo, noting};
use everstep_system_tests::Log;
use everstep_testkit::{Run, Status, TestKit, journal::Fact};

/// A sleep of so many milliseconds, then a step.
fn naps(log: &Log) -> TestKit {
    let log = log.clone();
    TestKit::new().workflow_fn("nap", move |cx: Workflow, millis: u64| {
        let log = log.clone();
        async move {
            cx.sleep("nap", millis).await?;
            cx.step("after", (), noting(&log, ())).await
        }
    })
}

#[test]
fn t18_a_sleep_in_a_loop_delays_each_round() {
    let kit = TestKit::new().workflow_fn("rounds", |cx: Workflow, (): ()| async move {
        let mut at = vec![cx.now()];
        for round in 0..4_u64 {
            cx.sleep("wait", "10s").await?;
            cx.step("work", round, echo::<u64>).await?;
            at.push(cx.now());
        }
        let rounds =
            at.windows(2).map(|pair| pair[1].duration_since(pair[0]).unwrap_or_default().as_millis());
        Ok::<_, Error>(rounds.map(|millis| u64::try_from(millis).unwrap_or(u64::MAX)).collect::<Vec<_>>())
    });
    kit.run(async |kit| {
        let run = kit.start_instance("rounds", &()).await.unwrap();
        let rounds = run.result::<Vec<u64>>().await.unwrap();
        assert!(
            rounds.len() == 4 && rounds.iter().all(|millis| (10_000..11_000).contains(millis)),
            "{rounds:?}"
        );
    });
}

#[test]
fn t19_steps_go_on_while_a_sleep_is_open() {
    let kit = TestKit::new().workflow_fn("beside", |cx: Workflow, (): ()| async move {
        let began = cx.now();
        let work = async {
            let mut sum = 0;
            for number in 0..5_u64 {
                sum += cx.step("add", number, echo::<u64>).await?;
            }
            Ok::<_, Error>((sum, cx.now()))
        };
        let (worked, slept) = futures::join!(work, cx.sleep("open", "1 hour"));
        slept?;
        let (sum, done) = worked?;
        Ok::<_, Error>((
            sum,
            done.duration_since(began)?.as_secs(),
            cx.now().duration_since(began)?.as_secs(),
        ))
    });
    kit.run(async |kit| {
        let run = kit.start_instance("beside", &()).await.unwrap();
        let (sum, worked, slept) = run.result::<(u64, u64, u64)>().await.unwrap();
        assert_eq!(sum, 10);
        assert!(worked < 60 && slept >= 3_600, "the steps took {worked} s, the sleep {slept} s");
    });
}

#[test]
fn t21_a_sleep_is_at_least_as_long_as_it_says() {
    naps(&Log::new()).run(async |kit| {
        let run = kit.start_instance("nap", &10_000).await.unwrap();
        run.result::<()>().await.unwrap();
        let journal = run.journal().await.unwrap();
        let at = |word: &str| journal.iter().find(|entry| entry.fact.word() == word).unwrap().at;
        assert!(at("fired").since(at("started")).as_u64() >= 10_000);
    });
}

/// Begun, its wake time stands: no replay counts it anew.
#[test]
fn b030_a_sleep_is_not_begun_again_by_a_replay() {
    let log = Log::new();
    naps(&log).time_by_hand().run(async move |kit| {
        let run = kit.start_instance("nap", &10_000).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        let due = due(&run).await;
        for _ in 0..3 {
            kit.advance("1s").await.unwrap();
            kit.crash_worker();
        }
        // Second by second, so that the dead are noticed before anything is granted to them.
        for _ in 0..6 {
            kit.advance("1s").await.unwrap();
        }
        assert_eq!(self::due(&run).await, due);
        assert!(log.lines().is_empty());
        kit.advance("1500ms").await.unwrap();
        run.result::<()>().await.unwrap();
        assert_eq!(log.lines(), ["after 1"]);
    });
}

async fn due(run: &Run) -> everstep_testkit::Timestamp {
    run.view().await.unwrap().waiting[0].due_at.unwrap()
}

#[test]
fn o02_short_sleeps_take_as_long_as_they_say_and_nothing_is_a_sleep_too() {
    let log = Log::new();
    naps(&log).time_by_hand().run(async move |kit| {
        let nothing = kit.start_instance("nap", &0).await.unwrap();
        nothing.result::<()>().await.unwrap();
        let slept = nothing.journal().await.unwrap();
        assert!(
            slept.iter().any(|entry| matches!(&entry.fact, Fact::Fired { .. })),
            "it is in the history: {slept:?}"
        );
        for (millis, before, after) in [(500, "499ms", "1ms"), (1_500, "1499ms", "1ms")] {
            let ran = log.lines().len();
            let run = kit.start_instance("nap", &millis).await.unwrap();
            run.reaches(Status::Waiting).await.unwrap();
            kit.advance(before).await.unwrap();
            assert_eq!(log.lines().len(), ran, "{millis} ms: not yet");
            kit.advance(after).await.unwrap();
            run.result::<()>().await.unwrap();
        }
    });
}

/// Just past what 31 and 32 bits of milliseconds hold: a value that was cut would be due after two seconds.
#[test]
fn o02_long_sleeps_are_due_when_they_say_and_not_before() {
    const YEAR: u64 = 365 * 86_400_000;
    let log = Log::new();
    naps(&log).time_by_hand().run(async move |kit| {
        let mut runs = Vec::new();
        for millis in [2_147_485_648, 4_294_969_296, 10 * YEAR] {
            let run = kit.start_instance("nap", &millis).await.unwrap();
            run.reaches(Status::Waiting).await.unwrap();
            let due = due(&run).await;
            assert_eq!(due.since(kit.now()).as_u64(), millis);
            runs.push((run, due));
        }
        kit.advance("120s").await.unwrap();
        kit.crash_worker();
        kit.advance("60s").await.unwrap();
        assert!(log.lines().is_empty(), "none is over");
        for (run, due) in &runs {
            assert_eq!(self::due(run).await, *due, "and none has moved");
        }
    });
}

#[test]
fn o02_what_is_out_of_range_fails_that_one_instance_and_names_the_limit() {
    const CASES: [u64; 4] = [10 * 365 * 86_400_000 + 1, 9_223_372_039_000, 18_446_744_076_000, u64::MAX];
    let log = Log::new();
    naps(&log).run(async move |kit| {
        for millis in CASES {
            let run = kit.start_instance("nap", &millis).await.unwrap();
            let error = run.error().await.unwrap();
            assert!(error.is_permanent() && error.message().contains("3650d"), "{millis}: {error}");
        }
        assert!(log.lines().is_empty());
    });
}

/// Moments instead of lengths: the past, and the far end of every calendar.
#[test]
fn o02_sleeps_until_a_moment() {
    let kit = TestKit::new().workflow_fn("until", |cx: Workflow, which: u32| async move {
        let far = |seconds: u64| UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let moment: Option<SystemTime> = match which {
            0 => Some(cx.now() - Duration::from_hours(1)),
            1 => Some(UNIX_EPOCH - Duration::from_secs(1)),
            2 => far(253_402_300_799),
            3 => far(9_224_318_016_000),
            4 => far(i64::MAX as u64),
            _ => Some(cx.now() + Duration::from_hours(24)),
        };
        let began = cx.now();
        cx.sleep_until("then", moment.ok_or_else(|| Error::permanent("no such moment"))?).await?;
        Ok::<_, Error>(cx.now().duration_since(began)?.as_secs())
    });
    kit.run(async |kit| {
        for past in [0, 1] {
            let run = kit.start_instance("until", &past).await.unwrap();
            assert!(run.result::<u64>().await.unwrap() < 2, "the past is over at once");
        }
        for far in [2, 3, 4] {
            let run = kit.start_instance("until", &far).await.unwrap();
            let error = run.error().await.unwrap();
            assert!(error.is_permanent() && error.message().contains("3650d"), "{far}: {error}");
        }
        let run = kit.start_instance("until", &5).await.unwrap();
        assert!((86_400..86_402).contains(&run.result::<u64>().await.unwrap()));
    });
}

/// The neighbours of all those: none is late.
#[test]
fn o02_beside_impossible_sleeps_ordinary_ones_end_in_time() {
    let kit = naps(&Log::new()).workflow_fn("seconds", |cx: Workflow, (): ()| async move {
        let began = cx.now();
        for _ in 0..10 {
            cx.sleep("second", "1s").await?;
        }
        Ok::<_, Error>(cx.now().duration_since(began)?.as_secs())
    });
    kit.run(async |kit| {
        let mut controls = Vec::new();
        for millis in [u64::MAX, 18_446_744_076_000, 2_147_485_648] {
            kit.start_instance("nap", &millis).await.unwrap();
            controls.push(kit.start_instance("seconds", &()).await.unwrap());
        }
        for control in controls {
            assert!((10..20).contains(&control.result::<u64>().await.unwrap()));
        }
    });
}

/// A step that outlasts its deadline loses; the sleep that ended first is what the replay sees, too.
#[test]
fn t02_any_a_step_against_a_sleep_is_decided_once() {
    let log = Log::new();
    let told = log.clone();
    let kit = TestKit::new().workflow_fn("deadline", move |cx: Workflow, (): ()| {
        let log = told.clone();
        async move {
            let slow = async |_: Step, (): ()| {
                tokio::time::sleep(Duration::from_secs(30)).await;
                Ok::<_, Error>("step".to_owned())
            };
            let first = match cx.either(cx.step("slow", (), slow), cx.sleep("deadline", "5s")).await {
                Either::First(step) => step?,
                Either::Second(slept) => slept.map(|()| "sleep".to_owned())?,
            };
            cx.step("note", (), noting(&log, ())).await?;
            cx.sleep("a replay", Millis(60_000)).await?;
            Ok::<_, Error>(first)
        }
    });
    kit.run(async move |kit| {
        let run = kit.start_instance("deadline", &()).await.unwrap();
        run.step::<()>("note").await.unwrap();
        kit.crash_worker();
        assert_eq!(run.result::<String>().await.unwrap(), "sleep");
        assert_eq!(log.lines(), ["note 1"]);
    });
}
