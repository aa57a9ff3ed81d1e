//! O-20: one instance with ten thousand steps. Its cost a step does not grow, and a crash near its end repeats nothing.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use everstep::{Error, Retry, Step, Workflow};
use everstep_testkit::{
    Status, TestKit,
    journal::{Fact, Outcome},
};
use tokio::sync::watch;

const STEPS: u64 = 10_000;
/// What fails at first, twice.
const FAILS: u64 = 7_000;

/// What ran, and when each was called first: a replay passes what has an output without a run.
#[derive(Clone)]
struct Course {
    runs: Arc<Mutex<Vec<u32>>>,
    times: Arc<Mutex<Vec<Instant>>>,
    last: Arc<watch::Sender<u64>>,
}

impl Course {
    fn new() -> Self {
        let (runs, times) = (vec![0; STEPS as usize], Vec::new());
        let last = Arc::new(watch::Sender::new(0));
        Self { runs: Arc::new(Mutex::new(runs)), times: Arc::new(Mutex::new(times)), last }
    }

    /// Waits until a step has run.
    async fn reaches(&self, number: u64) {
        self.last.subscribe().wait_for(|last| *last >= number).await.unwrap();
    }

    fn runs(&self, step: &Step, number: u64) -> Result<(), Error> {
        self.runs.lock().unwrap()[number as usize] += 1;
        let mut times = self.times.lock().unwrap();
        if times.len() as u64 == number {
            times.push(Instant::now());
        }
        self.last.send_replace(number);
        if number == FAILS && step.attempt() <= 2 { Err(Error::failed("at first")) } else { Ok(()) }
    }

    fn spent(&self, from: usize, to: usize) -> Duration {
        let times = self.times.lock().unwrap();
        times[to].duration_since(times[from])
    }
}

#[test]
fn o20_ten_thousand_steps_in_a_row_cost_the_same_at_the_end_as_at_the_beginning() {
    let course = Course::new();
    let told = course.clone();
    let kit = TestKit::new().workflow_fn("long", move |cx: Workflow, (): ()| {
        let course = told.clone();
        async move {
            let mut sum = 0;
            for number in 0..STEPS {
                let course = course.clone();
                let step = move |step: Step, number: u64| {
                    std::future::ready(course.runs(&step, number).map(|()| number))
                };
                sum += cx.step("s", number, step).retry(Retry::constant("700ms").unlimited()).await?;
                match number {
                    5_000 => cx.sleep("in the middle", "5s").await?,
                    6_000 => cx.event::<()>("go on").await?,
                    _ => {}
                }
            }
            Ok::<_, Error>(sum)
        }
    });
    let seen = course.clone();
    kit.run(async move |kit| {
        let run = kit.start_instance("long", &()).await.unwrap();
        seen.reaches(6_000).await;
        run.reaches(Status::Waiting).await.unwrap();
        let asked = Instant::now();
        assert_eq!(run.view().await.unwrap().steps, 6_001);
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        run.send("go on", &()).await.unwrap();
        seen.reaches(9_990).await;
        kit.crash_worker();
        assert_eq!(run.result::<u64>().await.unwrap(), 49_995_000);
        let journal = run.journal().await.unwrap();
        let outcomes = journal.iter().filter(|entry| matches!(&entry.fact, Fact::Attempted(attempted) if matches!(attempted.outcome, Outcome::Succeeded(_)))).count() as u64;
        assert_eq!(outcomes, STEPS, "each has one output");
    });
    let runs = course.runs.lock().unwrap().clone();
    let again: Vec<(usize, u32)> = runs.into_iter().enumerate().filter(|(_, times)| *times != 1).collect();
    let known = [(FAILS as usize, 3)];
    // What was not recorded yet when the worker died runs again: one at most.
    let at_the_crash = again.iter().filter(|run| !known.contains(run)).collect::<Vec<_>>();
    assert!(again.contains(&known[0]), "{again:?}");
    assert!(matches!(at_the_crash[..], [] | [(9_990.., 2)]), "{again:?}");
    // Where no replay is in between.
    let (early, late) = (course.spent(0, 1_000), course.spent(8_900, 9_900));
    println!("o20: a thousand steps took {early:?} at the beginning, {late:?} at the end");
    assert!(late < early * 2 + Duration::from_millis(200), "{early:?} at the beginning, {late:?} at the end");
}

#[test]
fn o20_ten_thousand_outputs_of_ten_kilobytes_are_kept_and_replayed() {
    let course = Course::new();
    let told = course.clone();
    let kit = TestKit::new().workflow_fn("long", move |cx: Workflow, (): ()| {
        let course = told.clone();
        async move {
            let mut bytes = 0;
            for number in 0..STEPS {
                let course = course.clone();
                let step = move |step: Step, number: u64| {
                    let digit = char::from(b'0' + (number % 10) as u8).to_string();
                    std::future::ready(course.runs(&step, number).map(|()| digit.repeat(10_000)))
                };
                let retry = Retry::constant("700ms").unlimited();
                bytes += cx.step("s", number, step).retry(retry).await?.len();
            }
            Ok::<_, Error>(bytes)
        }
    });
    kit.run(async move |kit| {
        let run = kit.start_instance("long", &()).await.unwrap();
        course.reaches(9_000).await;
        // A hundred megabytes come back in parts.
        kit.crash_worker();
        assert_eq!(run.result::<usize>().await.unwrap(), 100_000_000);
        let again = course.runs.lock().unwrap().iter().filter(|times| **times != 1).count();
        assert!(again <= 2, "what fails at first, and what was not recorded: {again}");
    });
}
