//! O-20 on whole systems: a thousand steps in one instance, ten of its kind beside small ones, and the death of a worker near its end.

use std::time::{Duration, Instant};

use everstep::{Error, Registry, Step, Workflow};
use everstep_conformance::noting;
use everstep_protocol::{Namespace, Position, journal::Outcome};
use everstep_store::{Filter, Range};
use everstep_system_tests::{Kind, Log, on_both};

/// How many: a fleet in a debug build is slow.
fn steps(kind: Kind) -> u64 {
    match kind {
        Kind::Embedded => 1_000,
        Kind::Fleet => 300,
    }
}

fn registry(log: &Log) -> Registry {
    let log = log.clone();
    let registry = Registry::new().workflow_fn("long", move |cx: Workflow, steps: u64| {
        let log = log.clone();
        async move {
            let mut sum = 0;
            for number in 0..steps {
                sum += cx.step("s", (), noting(&log, number)).await?;
            }
            Ok::<_, Error>(sum)
        }
    });
    registry.workflow_fn("small", |cx: Workflow, (): ()| async move {
        for _ in 0..2 {
            cx.step("s", (), async |_: Step, (): ()| Ok::<_, Error>(())).await?;
        }
        Ok::<_, Error>(())
    })
}

on_both! {
    async fn o20_a_thousand_steps_survive_their_worker_and_only_what_was_not_recorded_runs_again(setup) {
        let log = Log::new();
        let mut world = setup.serve(registry(&log)).await;
        let steps = steps(world.kind());
        world.begin("long", "one", &steps).await;
        log.reached("s 1", steps as usize - 10).await;
        world.crash_worker(0).await;
        let asked = Instant::now();
        let view = world.view("long", "one").await.expect("it is there");
        let filter = Filter { namespace: Namespace::default(), ..Filter::default() };
        world.store().instances(&filter, None, 10).await.expect("the store answers");
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
        // A history comes in pages, whatever its length.
        let range = Range { uid: view.uid, run: view.run, after: Position(0) };
        let page = world.store().journal(vec![range], 1_000).await.expect("the store answers").remove(0);
        assert!(!page.is_empty() && (page.len() as u64) < view.position.0, "{} of {}", page.len(), view.position);
        world.add_worker(registry(&log)).await;
        assert_eq!(world.end("long", "one").await.output::<u64>(), steps * (steps - 1) / 2);
        let attempts = world.attempts("long", "one").await;
        let outputs = attempts.iter().filter(|(_, attempted)| matches!(attempted.outcome, Outcome::Succeeded(_)));
        assert_eq!(outputs.count() as u64, steps, "one output each");
        // Those whose outcome was not known when the worker died ran a second time: one at most, since they come one by one.
        assert!(log.lines().len() as u64 <= steps + 1, "{}", log.lines().len());
    }

    async fn o20_small_instances_are_not_held_up_by_long_ones(setup) {
        let log = Log::new();
        let world = setup.serve(registry(&log)).await;
        for number in 0..10 {
            world.begin("long", &number.to_string(), &200_u64).await;
        }
        let began = Instant::now();
        for number in 0..50 {
            world.begin("small", &number.to_string(), &()).await;
        }
        for number in 0..50 {
            world.end("small", &number.to_string()).await.output::<()>();
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        for number in 0..10 {
            assert_eq!(world.end("long", &number.to_string()).await.output::<u64>(), 19_900);
        }
    }
}
