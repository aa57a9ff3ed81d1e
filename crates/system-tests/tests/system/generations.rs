//! Continue-as-new on whole systems: rule P36. Not here: what goes on and what is over (the engine's tests), and what a body sees
//! of it (the worker's).

use everstep::{Error, Next, Registry, Step, Workflow};
use everstep_engine::Answer;
use everstep_protocol::{Position, Run, journal::Fact};
use everstep_store::{Range, StatusWord};
use everstep_system_tests::{World, on_both, world::name};

async fn add(_: Step, (sum, n): (u64, u64)) -> Result<u64, Error> {
    Ok(sum + n)
}

/// So many rounds, one in each generation.
fn rounds() -> Registry {
    Registry::new().workflow_fn("rounds", |cx: Workflow, (left, sum): (u64, u64)| async move {
        let sum = cx.step("add", (sum, left), add).await?;
        if left > 1 { cx.continue_as_new((left - 1, sum)) } else { Ok::<_, Error>(Next::Done(sum)) }
    })
}

/// Adds up the events that come, three in each generation, until one of them is 0.
fn summing() -> Registry {
    Registry::new().workflow_fn("summing", |cx: Workflow, mut sum: u64| async move {
        for _ in 0..3 {
            let n: u64 = cx.event("n").timeout("1 min").await?;
            if n == 0 {
                return Ok(Next::Done(sum));
            }
            sum = cx.step("add", (sum, n), add).await?;
        }
        cx.continue_as_new::<_, _, Error>(sum)
    })
}

async fn output(world: &World, workflow: &str, id: &str) -> u64 {
    world.end(workflow, id).await.output()
}

on_both! {
    async fn p36_a_loop_of_generations_keeps_heads_and_journals_small(setup) {
        let world = setup.serve(rounds()).await;
        world.begin("rounds", "one", &(150u64, 0u64)).await;
        assert_eq!(output(&world, "rounds", "one").await, 150 * 151 / 2);
        let view = world.view("rounds", "one").await.expect("it is there");
        assert_eq!((view.generation.0, view.run, view.position, view.steps), (150, Run(150), Position(3), 1));
        let store = world.store();
        while store.sweep(1_000).await.expect("the store answers") > 0 {}
        let length = async |run| {
            let range = Range { uid: view.uid, run: Run(run), after: Position(0) };
            store.journal(vec![range], usize::MAX).await.expect("the store answers").remove(0).len()
        };
        let mut kept = Vec::new();
        for run in 1..=150 {
            let length = length(run).await;
            if length > 0 {
                kept.push((run, length));
            }
        }
        assert_eq!(kept, [(149, 3), (150, 3)], "the last generation, and the one before");
    }

    async fn p36_events_are_read_once_over_generations_and_deaths_of_workers(setup) {
        let mut world = setup.serve(summing()).await;
        world.begin("summing", "one", &0u64).await;
        let mut worker = 0;
        for number in 1..=20u64 {
            assert_eq!(world.send("summing", "one", (&number.to_string(), "n"), &number).await, Answer::Done);
            if number % 7 == 3 {
                world.crash_worker(worker).await;
                worker = world.add_worker(summing()).await;
            }
        }
        world.send("summing", "one", ("end", "n"), &0u64).await;
        assert_eq!(output(&world, "summing", "one").await, 20 * 21 / 2);
        let view = world.view("summing", "one").await.expect("it is there");
        assert_eq!((view.generation.0, view.unread.len()), (7, 0));
    }

    async fn p36_a_restart_runs_the_last_generation_again_with_its_keys(setup) {
        let world = setup.serve(rounds()).await;
        world.begin("rounds", "one", &(2u64, 0u64)).await;
        assert_eq!(output(&world, "rounds", "one").await, 3);
        let keys = async || {
            let key = |entry: &everstep_protocol::journal::Entry| match &entry.fact {
                Fact::Attempted(attempted) => Some(attempted.key),
                _ => None,
            };
            world.journal("rounds", "one").await.iter().filter_map(key).collect::<Vec<_>>()
        };
        let before = keys().await;
        let restarted = world.handle().restart(name("rounds", "one"), "r".to_owned(), None).await;
        assert_eq!(restarted.expect("it is decided"), Answer::Done);
        let again = |view: &everstep_store::InstanceView| view.run == Run(3) && view.status == StatusWord::Complete;
        let view = world.until("rounds", "one", "it has ended again", again).await;
        assert_eq!((view.generation.0, keys().await), (2, before));
    }
}
