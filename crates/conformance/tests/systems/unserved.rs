//! O-22: workflows that no worker knows. They wait visibly, cost no attempt, and disturb nobody.

use everstep::{Error, Registry, Workflow};
use everstep_conformance::noting;
use everstep_store::{InstanceView, StatusWord};
use everstep_system_tests::{Log, on_both};

/// Serves workflows of these names: a sleep, then a step.
fn serves(log: &Log, names: &[&str]) -> Registry {
    names.iter().fold(Registry::new(), |registry, name| {
        let log = log.clone();
        registry.workflow_fn(name, move |cx: Workflow, nap: u64| {
            let log = log.clone();
            async move {
                cx.sleep("nap", nap).await?;
                cx.step(format!("step of {}", cx.name()), (), noting(&log, ())).await?;
                Ok::<_, Error>(())
            }
        })
    })
}

fn is_unserved(view: &InstanceView) -> bool {
    view.status == StatusWord::Queued && !view.served
}

on_both! {
    async fn t11_o22_a_workflow_that_nobody_knows_waits_visibly_and_starts_at_once_when_somebody_does(setup) {
        let log = Log::new();
        let mut world = setup.serve(serves(&log, &["known"])).await;
        world.add_worker(serves(&log, &["known"])).await;
        let ids: Vec<_> = (0..20).map(|number| format!("i-{number}")).collect();
        for id in &ids {
            world.begin("ghost", id, &0_u64).await;
        }
        for id in &ids {
            world.begin("known", id, &0_u64).await;
        }
        for id in &ids {
            world.end("known", id).await.output::<()>();
        }
        for id in &ids {
            world.until("ghost", id, "nobody serves it", is_unserved).await;
            assert_eq!(world.view("ghost", id).await.unwrap().epoch.0, 0, "nobody has had it");
        }
        assert_eq!((log.count("step of known 1"), log.count("step of ghost 1")), (20, 0));
        world.add_worker(serves(&log, &["ghost"])).await;
        for id in &ids {
            world.end("ghost", id).await.output::<()>();
        }
        assert_eq!(log.count("step of ghost 1"), 20, "on the first attempt: the waiting cost nothing");
        assert_eq!(log.lines().len(), 40);
    }

    async fn o22_what_sleeps_while_its_workers_are_replaced_goes_on_when_they_are_back(setup) {
        let log = Log::new();
        let mut world = setup.serve(serves(&log, &["known"])).await;
        world.begin("known", "one", &300_u64).await;
        world.until("known", "one", "it sleeps", |view| view.waits == 1).await;
        world.stop_worker(0).await;
        let other = world.add_worker(serves(&log, &["other"])).await;
        world.until("known", "one", "it is due and nobody serves it", is_unserved).await;
        world.begin("other", "one", &0_u64).await;
        world.end("other", "one").await.output::<()>();
        world.stop_worker(other).await;
        world.add_worker(serves(&log, &["known"])).await;
        world.end("known", "one").await.output::<()>();
        assert_eq!((log.count("step of known 1"), log.lines().len()), (1, 2));
    }
}
