//! O-20: one instance with a thousand steps. Its cost a step does not grow, and a crash near its end repeats nothing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use everstep::{Error, Workflow};
use everstep_conformance::noting;
use everstep_system_tests::Log;
use everstep_testkit::{
    Status, TestKit,
    journal::{Fact, Outcome},
};

const STEPS: u64 = 1_000;

#[test]
fn o20_a_thousand_steps_in_a_row_cost_the_same_at_the_end_as_at_the_beginning() {
    let log = Log::new();
    let told = log.clone();
    // When each was done first: a replay passes them again.
    let times = Arc::new(Mutex::new(BTreeMap::new()));
    let noted = times.clone();
    let kit = TestKit::new().workflow_fn("long", move |cx: Workflow, (): ()| {
        let (log, noted) = (told.clone(), noted.clone());
        async move {
            let mut sum = 0;
            for number in 0..STEPS {
                sum += cx.step("s", (), noting(&log, number)).await?;
                match number {
                    500 => cx.sleep("in the middle", "5s").await?,
                    600 => cx.event::<()>("go on").await?,
                    _ => {}
                }
                noted.lock().unwrap().entry(number).or_insert_with(Instant::now);
            }
            Ok::<_, Error>(sum)
        }
    });
    kit.run(async move |kit| {
        let run = kit.start_instance("long", &()).await.unwrap();
        log.reached("s 1", 601).await;
        run.reaches(Status::Waiting).await.unwrap();
        run.send("go on", &()).await.unwrap();
        log.reached("s 1", 990).await;
        kit.crash_worker();
        assert_eq!(run.result::<u64>().await.unwrap(), 499_500);
        let ran = log.lines().len() as u64;
        assert!((STEPS..=STEPS + 1).contains(&ran), "{ran}: only what was not recorded runs again");
        let journal = run.journal().await.unwrap();
        let outcomes = journal.iter().filter(|entry| matches!(&entry.fact, Fact::Attempted(attempted) if matches!(attempted.outcome, Outcome::Succeeded(_)))).count() as u64;
        assert_eq!(outcomes, STEPS, "each has one output");
    });
    // Where no replay is in between.
    let times = times.lock().unwrap();
    let spent = |from: u64, to: u64| times[&to].duration_since(times[&from]);
    let (early, late) = (spent(50, 150), spent(850, 950));
    println!("o20: a hundred steps took {early:?} at the beginning, {late:?} at the end");
    assert!(late < early * 4 + Duration::from_millis(200), "{early:?} at the beginning, {late:?} at the end");
}
