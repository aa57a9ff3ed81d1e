//! Operators, senders and crashes in any order, drawn from a seed that is named where it fails: nobody is stranded, no event is read
//! twice, and every journal is one that its code agrees with (the kit replays each when the test is over).

use std::{collections::HashSet, time::Duration};

use everstep::{Either, Error, Retry, Step, Workflow};
use everstep_testkit::{Kit, KitError, Run, Status, TestKit, journal::Fact};

const SEEDS: u64 = 60;
const OPERATIONS: u64 = 25;

/// A workflow with everything that can be open at once.
async fn mixed(cx: Workflow, rounds: u64) -> Result<Vec<u64>, Error> {
    // Odd ones fail at first, some take a while.
    let work = |step: Step, number: u64| async move {
        tokio::time::sleep(Duration::from_millis(number % 4 * 300)).await;
        if number % 2 == 1 && step.attempt() == 1 { Err(Error::failed("at first")) } else { Ok(number) }
    };
    let mut read = Vec::new();
    for round in 0..rounds {
        let call =
            |name: &str, number: u64| cx.step(name, number, work).retry(Retry::constant("700ms").unlimited());
        call("alone", round).await?;
        match cx.either(cx.event::<u64>("n").timeout("3s"), cx.sleep("short", "1s")).await {
            Either::First(Ok(event)) => read.push(event),
            Either::First(Err(error)) if error.is_timed_out() => {}
            Either::First(Err(error)) => return Err(error),
            Either::Second(slept) => slept?,
        }
        if cx.patched("both").await? {
            let (left, right) = futures::join!(call("left", round), call("right", round + 1));
            left.and(right)?;
        }
        cx.remote::<u64>("far", round).on("far").retry(Retry::constant("700ms").unlimited()).await?;
        match cx.event::<u64>("n").timeout("2s").await {
            Ok(event) => read.push(event),
            Err(error) if error.is_timed_out() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Numbers that are the same for a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What the status forbids is refused, and that is all that may go wrong.
fn refused_at_most(answer: Result<(), KitError>) {
    if let Err(error) = answer {
        let text = error.to_string();
        assert!(text.contains("refused: ") || text.contains("has not called"), "{text}");
    }
}

async fn operate(kit: &Kit, run: &Run, dice: &mut Dice, sent: &mut u64) {
    match dice.below(12) {
        0..=2 => {
            *sent += 1;
            refused_at_most(run.send("n", sent).await);
        }
        3 => refused_at_most(run.pause().await),
        4 | 5 => refused_at_most(run.resume().await),
        6 => kit.crash_worker(),
        7 => refused_at_most(run.restart().await),
        8 => refused_at_most(run.restart_from(("alone", 1 + dice.below(2) as u32)).await),
        9 if dice.below(4) == 0 => refused_at_most(run.cancel_within("drawn", "30s").await),
        10 if dice.below(4) == 0 => refused_at_most(run.terminate(&format!("drawn {}", dice.0)).await),
        _ => {}
    }
    kit.advance(dice.below(1_500)).await.unwrap();
}

/// Events that a run has read: an event that returned to its place was not.
async fn check(run: &Run) {
    let journal = run.journal().await.unwrap();
    let positions: Vec<_> = journal.iter().map(|entry| entry.position.0).collect();
    assert_eq!(positions, (1..=positions.len() as u64).collect::<Vec<_>>());
    let mut read = HashSet::new();
    for entry in &journal {
        match &entry.fact {
            Fact::Delivered(delivered) => {
                assert!(read.insert((delivered.sequence, delivered.call.clone())), "{delivered:?} again");
            }
            Fact::Parked(parked) => panic!("it was parked: {parked:?}"),
            _ => {}
        }
    }
}

#[test]
fn t46_operations_drawn_by_lot_strand_nobody_and_break_no_journal() {
    for seed in 0..SEEDS {
        let far = async |_: Step, number: u64| Ok::<_, Error>(number);
        let kit = TestKit::new().workflow_fn("mixed", mixed).pool("far").function("far", far).time_by_hand();
        kit.run(async move |kit| {
            let mut dice = Dice(seed);
            let run = kit.start_instance_as("mixed", &format!("seed-{seed}"), &2_u64).await.unwrap();
            let mut sent = 0;
            for _ in 0..OPERATIONS {
                operate(&kit, &run, &mut dice, &mut sent).await;
            }
            // Left alone it comes to its end.
            refused_at_most(run.resume().await);
            kit.advance("3 min").await.unwrap();
            let status = run.status().await.unwrap();
            let ended = matches!(status, Status::Complete | Status::Cancelled | Status::Terminated);
            assert!(ended, "seed {seed}: {:#?}", run.view().await.unwrap());
            check(&run).await;
            if let Ok(read) = run.result::<Vec<u64>>().await {
                assert!(
                    read.windows(2).all(|pair| pair[0] < pair[1]),
                    "seed {seed}: in order, each once: {read:?}"
                );
            }
        });
    }
}
