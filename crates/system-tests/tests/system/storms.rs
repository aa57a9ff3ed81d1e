//! Load under faults: rule W36, promise 2 and the death of coordinators. Nothing is lost, nothing is doubled, nothing that was
//! recorded is run again. The seed is printed. Not here: tens of millions of steps (the simulator).

use std::{collections::HashMap, sync::Arc, time::Duration};

use everstep::{Error, Registry, Retry, Step, Workflow};
use everstep_protocol::{
    Namespace, WorkflowName,
    journal::{Fact, Outcome},
    topology,
};
use everstep_system_tests::{DEADLINE, Kind, Log, Setup, World, on_both, within};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::sync::Semaphore;

const STEPS: u32 = 4;

/// Steps that take a moment, each leaving a line in the log; a short sleep and a parallel pair among them.
pub(crate) fn busy(log: &Log) -> Registry {
    busy_behind(log, &Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)))
}

/// The same, whose steps wait until the gate is open.
pub(crate) fn busy_behind(log: &Log, gate: &Arc<Semaphore>) -> Registry {
    let (log, gate) = (log.clone(), gate.clone());
    Registry::new().workflow_fn("busy", move |cx: Workflow, (): ()| {
        let (log, gate) = (log.clone(), gate.clone());
        async move {
            let id = cx.instance_id().to_owned();
            let work = |number: u32| {
                let (log, id, gate) = (log.clone(), id.clone(), gate.clone());
                let step = cx.step("work", number, move |_: Step, number: u32| {
                    let (log, id, gate) = (log.clone(), id.clone(), gate.clone());
                    async move {
                        drop(gate.acquire().await.expect("the gate is never taken away"));
                        log.push(format!("{id} {number}"));
                        tokio::time::sleep(Duration::from_millis(15)).await;
                        Ok::<_, Error>(number)
                    }
                });
                step.retry(Retry::constant("10ms").limit(1_000))
            };
            let mut sum = work(1).await?;
            cx.sleep("breath", 40).await?;
            let (two, three) = futures::future::join(work(2), work(3)).await;
            sum += two? + three?;
            cx.sleep("long breath", 300).await?;
            sum += work(STEPS).await?;
            Ok::<_, Error>(sum)
        }
    })
}

pub(crate) async fn load(world: &World, count: usize) {
    let starts =
        (0..count).map(|number| async move { world.begin("busy", &format!("b-{number}"), &()).await });
    futures::future::join_all(starts).await;
}

/// Waits for all ends and checks each instance's journal against what its steps did.
pub(crate) async fn check(world: &World, log: &Log, count: usize) {
    let limit = Duration::from_secs(150);
    if tokio::time::timeout(limit, world.ends().count(count)).await.is_err() {
        let ended: Vec<_> = world.ends().all().into_iter().map(|end| end.id).collect();
        let missing = (0..count)
            .map(|number| format!("b-{number}"))
            .find(|id| !ended.contains(id))
            .expect("one is missing");
        panic!(
            "{} of {count} have ended within {limit:?}; {missing}:\n{}",
            ended.len(),
            world.report("busy", &missing).await
        );
    }
    assert!(world.ends().doubled().is_empty());
    let repeated = match sound_runs(log, count) {
        Ok(repeated) => repeated,
        Err((id, runs)) => panic!("{id}: {runs:?}\n{}", world.report("busy", &id).await),
    };
    for end in world.ends().all() {
        assert_eq!(end.output::<u32>(), 10, "{}", end.id);
        let journal = world.journal("busy", &end.id).await;
        assert!(journal.iter().zip(1..).all(|(entry, position)| entry.position.0 == position), "{}", end.id);
        for number in 1..=STEPS {
            let outputs = journal.iter().filter(|entry| {
                matches!(&entry.fact, Fact::Attempted(attempt)
                if attempt.call.count == number && matches!(attempt.outcome, Outcome::Succeeded(_)))
            });
            assert_eq!(outputs.count(), 1, "{} step {number}", end.id);
        }
        assert_eq!(journal.iter().filter(|entry| matches!(entry.fact, Fact::Ended(_))).count(), 1);
    }
    println!("{:?}: {count} instances, {repeated} step runs repeated", world.kind());
}

/// Which steps of each instance ran, in the order of time.
fn runs(log: &Log) -> HashMap<String, Vec<u32>> {
    let mut runs: HashMap<String, Vec<u32>> = HashMap::new();
    for line in log.lines() {
        let (id, number) = line.split_once(' ').expect("an id and a number");
        runs.entry(id.to_owned()).or_default().push(number.parse().expect("a number"));
    }
    runs
}

/// All steps of so many instances came, and once a later phase had begun, everything before it was recorded and is not run again. Says
/// how many were run more often than once; or an instance of which it is not so, with what it ran.
pub(crate) fn sound_runs(log: &Log, count: usize) -> Result<usize, (String, Vec<u32>)> {
    let runs = runs(log);
    assert_eq!(runs.len(), count);
    let is_sound = |runs: &[u32]| {
        runs.iter().map(|number| phase(*number)).is_sorted()
            && (1..=STEPS).all(|number| runs.contains(&number))
    };
    match runs.iter().find(|(_, runs)| !is_sound(runs)) {
        Some((id, runs)) => Err((id.clone(), runs.clone())),
        None => Ok(runs.values().map(|runs| runs.len() - STEPS as usize).sum()),
    }
}

/// Steps two and three run at once.
fn phase(number: u32) -> usize {
    [0, 0, 1, 1, 2][number as usize]
}

pub(crate) fn rng() -> StdRng {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    StdRng::seed_from_u64(seed)
}

/// Until some of the work of 100 instances is done, or all of it.
pub(crate) async fn some_progress(world: &World, log: &Log, rng: &mut StdRng) {
    let target = (log.lines().len() + rng.random_range(10..60)).min(390);
    within("progress", DEADLINE, async {
        tokio::select! {
            () = log.grown(target) => {}
            () = world.ends().count(100) => {}
        }
    })
    .await;
}

on_both! {
    async fn w36_two_hundred_instances_under_random_deaths_of_workers(setup) {
        let (log, mut rng) = (Log::new(), rng());
        let setup = setup.coordinator(|settings| settings.deaths_max = 1_000);
        let mut world = setup.start().await;
        let mut alive = vec![world.add_worker(busy(&log)).await, world.add_worker(busy(&log)).await];
        load(&world, 200).await;
        for death in 1..=8 {
            // The next death comes after a random amount of work.
            let target = (log.lines().len() + rng.random_range(10..80)).min(790);
            within("progress", DEADLINE, async {
                tokio::select! {
                    () = log.grown(target) => {}
                    () = world.ends().count(200) => {}
                }
            }).await;
            let victim = alive.swap_remove(rng.random_range(0..alive.len()));
            if death % 4 == 0 { world.stop_worker(victim).await } else { world.crash_worker(victim).await }
            alive.push(world.add_worker(busy(&log)).await);
        }
        check(&world, &log, 200).await;
    }

    async fn promise_2_purging_every_queue_again_and_again_loses_and_doubles_nothing(setup) {
        let (log, gate) = (Log::new(), Arc::new(Semaphore::new(0)));
        // Little room, all of it taken behind the gate: the other instances' run tasks wait in the queue.
        let setup = setup.worker(|settings| {
            settings.instances = 20;
            settings.prefetch = 5;
        });
        let mut world = setup.start().await;
        world.add_worker(busy_behind(&log, &gate)).await;
        world.add_worker(busy_behind(&log, &gate)).await;
        load(&world, 300).await;
        let queue = topology::run_queue(&Namespace::default(), &WorkflowName::new("busy").expect("a valid name"));
        world.eventually("run tasks wait", async || {
            matches!(world.broker().depth(&queue).await, Ok(Some(1..)))
        }).await;
        let mut purged = world.purge();
        assert!(purged > 0);
        gate.add_permits(Semaphore::MAX_PERMITS);
        for _ in 0..12 {
            purged += world.purge();
            let target = (log.lines().len() + 40).min(1_150);
            within("progress", DEADLINE, async {
                tokio::select! {
                    () = log.grown(target) => {}
                    () = world.ends().count(300) => {}
                }
            }).await;
        }
        check(&world, &log, 300).await;
        println!("{purged} messages were lost");
    }

    async fn w08_short_outages_of_the_broker_under_load(setup) {
        let (log, mut rng) = (Log::new(), rng());
        let mut world = setup.start().await;
        world.add_worker(busy(&log)).await;
        load(&world, 100).await;
        for _ in 0..4 {
            some_progress(&world, &log, &mut rng).await;
            world.every_way(everstep_system_tests::Way::Cut);
            tokio::time::sleep(Duration::from_millis(rng.random_range(50..1_500))).await;
            world.every_way(everstep_system_tests::Way::Open);
        }
        check(&world, &log, 100).await;
    }

    async fn w13_the_coordinator_dies_again_and_again_under_load(setup) {
        let (log, mut rng) = (Log::new(), rng());
        let mut world = setup.start().await;
        world.add_worker(busy(&log)).await;
        load(&world, 100).await;
        for number in 0..4 {
            some_progress(&world, &log, &mut rng).await;
            world.crash_coordinator(number).await;
            world.add_coordinator().await;
        }
        check(&world, &log, 100).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w16_one_of_two_coordinators_dies_in_mid_load() {
    let log = Log::new();
    let mut world = Setup::new(Kind::Fleet).coordinators(2).start().await;
    world.add_worker(busy(&log)).await;
    world.add_worker(busy(&log)).await;
    load(&world, 200).await;
    log.grown(150).await;
    world.crash_coordinator(0).await;
    log.grown(400).await;
    world.add_coordinator().await;
    world.crash_coordinator(1).await;
    check(&world, &log, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w16_coordinators_that_come_and_go_gracefully_disturb_nobody() {
    let log = Log::new();
    let mut world = Setup::new(Kind::Fleet).start().await;
    world.add_worker(busy(&log)).await;
    load(&world, 100).await;
    log.grown(50).await;
    world.add_coordinator().await;
    world.stop_coordinator(0).await;
    log.grown(200).await;
    world.add_coordinator().await;
    world.stop_coordinator(1).await;
    check(&world, &log, 100).await;
    assert_eq!(log.lines().len(), 400, "nothing ran twice");
}
