//! Calls: their counts, several at once, sizes and limits.

use everstep::{Either, Error, Step, Workflow};
use everstep_conformance::{attempts, echo};
use everstep_system_tests::Log;
use everstep_testkit::{
    Status, TestKit,
    journal::{Attempted, Outcome},
};

/// A step that gives how many ran before it, whichever they were.
pub(crate) fn counter(
    log: &Log,
) -> impl Fn(Step, ()) -> std::future::Ready<Result<usize, Error>> + Send + Sync + use<> {
    let log = log.clone();
    move |step, ()| {
        log.push(format!("{} {}", step.name(), step.count()));
        std::future::ready(Ok(log.lines().len() - 1))
    }
}

#[test]
fn b052_b053_a_step_knows_its_name_and_its_count() {
    let kit = TestKit::new().workflow_fn("names", |cx: Workflow, (): ()| async move {
        let mut all = Vec::new();
        for name in ["a", "a", "b", "a"] {
            let told = async |step: Step, (): ()| Ok::<_, Error>((step.name().to_owned(), step.count()));
            all.push(cx.step(name, (), told).await?);
        }
        Ok::<_, Error>(all)
    });
    kit.run(async |kit| {
        let run = kit.start_instance("names", &()).await.unwrap();
        let all = run.result::<Vec<(String, u32)>>().await.unwrap();
        let all: Vec<_> = all.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(all, [("a", 1), ("a", 2), ("b", 1), ("a", 3)]);
    });
}

#[test]
fn t02_all_race_and_any_come_to_the_same_in_every_replay() {
    let kit = TestKit::new().workflow_fn("several", |cx: Workflow, (): ()| async move {
        let slow = |_: Step, number: u64| async move {
            tokio::time::sleep(std::time::Duration::from_millis(number * 100)).await;
            if number == 1 { Err(Error::permanent("the first to end")) } else { Ok(number) }
        };
        let all = cx.join_all((2..5).map(|number| cx.step("all", number, slow))).await;
        let all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
        let (place, raced) = cx.race((1..4).map(|number| cx.step("race", number, slow))).await;
        // Any: the first that succeeds.
        let calls: Vec<_> = (1..4).map(|number| Box::pin(cx.step("any", number, slow))).collect();
        let (any, _) = futures::future::select_ok(calls).await?;
        cx.sleep("a replay", "1 hour").await?;
        let order = cx.join_all((0..5).rev().map(|number| cx.step("storm", number * 2, slow))).await;
        Ok::<_, Error>((all, place, raced.is_err(), any, order.into_iter().collect::<Result<Vec<_>, _>>()?))
    });
    kit.run(async |kit| {
        let run = kit.start_instance("several", &()).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        kit.crash_worker();
        let got = run.result::<(Vec<u64>, usize, bool, u64, Vec<u64>)>().await.unwrap();
        assert_eq!(got, (vec![2, 3, 4], 0, true, 2, vec![8, 6, 4, 2, 0]));
    });
}

#[test]
fn t03_twenty_steps_at_once_run_once_each() {
    let log = Log::new();
    let told = log.clone();
    let kit = TestKit::new().workflow_fn("twenty", move |cx: Workflow, (): ()| {
        let log = told.clone();
        async move {
            let all = cx.join_all((0..20).map(|_| cx.step("s", (), counter(&log)))).await;
            let all: usize = all.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().sum();
            match cx.either(cx.sleep("first", "1s"), cx.sleep("second", "2s")).await {
                Either::First(slept) | Either::Second(slept) => slept.map(|()| all),
            }
        }
    });
    kit.run(async move |kit| {
        let run = kit.start_instance("twenty", &()).await.unwrap();
        assert_eq!(run.result::<usize>().await.unwrap(), 190);
        let mut lines = log.lines();
        lines.sort();
        lines.dedup();
        assert_eq!((log.lines().len(), lines.len()), (20, 20));
    });
}

fn bytes(size: u32) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

#[test]
fn b011_b012_large_bytes_are_recorded_alone_and_nested() {
    let kit = TestKit::new().workflow_fn("large", |cx: Workflow, (): ()| async move {
        let alone = cx.step("alone", 200_000, async |_: Step, size: u32| Ok::<_, Error>(bytes(size))).await?;
        let nested = async |_: Step, size: u32| Ok::<_, Error>((1_u8, vec![Some(bytes(size))]));
        let (_, nested) = cx.step("nested", 200_000, nested).await?;
        cx.sleep("a replay", "1s").await?;
        Ok::<_, Error>((alone.len(), nested.first() == Some(&Some(alone))))
    });
    kit.run(async |kit| {
        let run = kit.start_instance("large", &()).await.unwrap();
        assert_eq!(run.result::<(usize, bool)>().await.unwrap(), (200_000, true));
    });
}

fn loops(limit: u64) -> TestKit {
    let kit = TestKit::new().workflow_fn("loops", |cx: Workflow, count: Option<u64>| async move {
        let mut done = 0;
        while count.is_none_or(|count| done < count) {
            cx.step("s", done, echo::<u64>).await?;
            cx.sleep("not counted", 0).await?;
            done += 1;
        }
        Ok::<_, Error>(done)
    });
    kit.coordinator(move |settings| settings.limits.steps = limit)
}

#[test]
fn b013_b014_t35_the_limit_of_steps_is_reached_and_not_passed() {
    loops(20).run(async |kit| {
        let run = kit.start_instance("loops", &Some(20)).await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 20);
        for too_many in [Some(21), None] {
            let run = kit.start_instance("loops", &too_many).await.unwrap();
            let error = run.error().await.unwrap();
            assert!(error.is_permanent() && error.name() == "LimitReached", "{error}");
            assert!(error.message().contains("20"), "it names the limit: {error}");
            let journal = run.journal().await.unwrap();
            let succeeded = |attempted: &Attempted| matches!(attempted.outcome, Outcome::Succeeded(_));
            assert_eq!(attempts(&journal).iter().filter(|(_, attempted)| succeeded(attempted)).count(), 20);
        }
    });
}

#[test]
fn b015_by_default_there_may_be_25_000_steps() {
    let mut limit = 0;
    let _ = TestKit::new().coordinator(|settings| limit = settings.limits.steps);
    assert_eq!(limit, 25_000);
}
