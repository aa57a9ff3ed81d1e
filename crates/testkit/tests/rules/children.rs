//! Children in the kit: they run, they are mocked, and nothing of it changes wherever a worker crashes (rules P36, P42, P43).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use everstep::{Error, Step, Workflow};
use everstep_testkit::{Kit, Status, TestKit, crash_everywhere};

/// Squares a number after a day.
async fn square(cx: Workflow, n: u64) -> Result<u64, Error> {
    cx.sleep("think", "1 day").await?;
    cx.step("square", n, async |_: Step, n: u64| Ok::<_, Error>(n * n)).await
}

/// Adds up what its children give, one after the other.
async fn sum(cx: Workflow, numbers: Vec<u64>) -> Result<u64, Error> {
    let mut sum = 0;
    for n in numbers {
        sum += cx.child::<u64>("square", "square", n).await?;
    }
    Ok(sum)
}

fn family() -> TestKit {
    TestKit::new().workflow_fn("sum", sum).workflow_fn("square", square)
}

#[test]
fn p42_children_run_in_the_kit() {
    family().run(async |kit| {
        let run = kit.start_instance_as("sum", "one", &[2, 3]).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        kit.advance("1s").await.unwrap();
        let view = run.view().await.unwrap();
        assert_eq!(view.children_total, 1);
        let child = view.children[0].name.clone();
        let child = kit.instance(child.workflow.as_str(), child.id.as_str()).unwrap();
        let parent = child.view().await.unwrap().parent.unwrap();
        assert_eq!((parent.name.workflow.as_str(), parent.name.id.as_str()), ("sum", "one"));
        assert_eq!(run.result::<u64>().await.unwrap(), 13);
        assert_eq!(run.view().await.unwrap().children_total, 2);
        assert_eq!(kit.instances().await.unwrap().len(), 3);
    });
}

/// A worker with room for one instance carries a tree of them: none holds it while it waits.
#[test]
fn p36_children_of_children_do_not_block_each_other() {
    let kit = TestKit::new().worker(|settings| settings.instances = 1);
    let kit = kit.workflow_fn("tree", |cx: Workflow, depth: u64| async move {
        if depth == 0 {
            return Ok::<u64, Error>(1);
        }
        let (left, right) = futures::join!(
            cx.child::<u64>("left", "tree", depth - 1),
            cx.child::<u64>("right", "tree", depth - 1)
        );
        Ok(left? + right?)
    });
    kit.run(async |kit| {
        let run = kit.start_instance("tree", &4).await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 16);
        assert_eq!(kit.instances().await.unwrap().len(), 31);
    });
}

#[test]
fn p42_a_child_is_mocked_by_its_workflow() {
    let kit = TestKit::new().workflow_fn("sum", sum).mock_workflow("square", Ok::<_, Error>(&7));
    kit.run(async |kit| {
        let run = kit.start_instance("sum", &[1, 1]).await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 14);
    });
    let declined = Error::permanent("no").named("Declined");
    let kit = TestKit::new().workflow_fn("sum", sum).mock_workflow::<u64>("square", Err(declined));
    kit.run(async |kit| {
        let run = kit.start_instance("sum", &[1]).await.unwrap();
        assert_eq!(run.error().await.unwrap().name(), "Declined");
    });
}

#[test]
fn p42_a_child_that_nobody_serves_is_named() {
    let kit = TestKit::new().workflow_fn("sum", sum);
    kit.run(async |kit| {
        let run = kit.start_instance("sum", &[1]).await.unwrap();
        let error = run.result::<u64>().await.unwrap_err().to_string();
        assert!(error.contains("square"), "{error}");
    });
}

/// Whoever is told of orders, once per key.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<BTreeMap<String, u64>>>);

#[test]
fn p43_children_events_and_results_come_to_the_same_wherever_a_worker_crashes() {
    let report = crash_everywhere(|| {
        let shop = Shop::default();
        let noted = shop.clone();
        let kit = TestKit::new()
            .workflow_fn("order", |cx: Workflow, (): ()| async move {
                let packing = cx.child::<u64>("pack", "pack", 5).detached().start().await?;
                packing.send("go", 2).await?;
                let (packed, weighed) =
                    futures::join!(packing.result::<u64>(), cx.child::<u64>("weigh", "weigh", 3));
                Ok::<_, Error>(packed? + weighed?)
            })
            .workflow_fn("pack", |cx: Workflow, n: u64| async move {
                let more: u64 = cx.event("go").await?;
                cx.sleep("dry", "1 hour").await?;
                Ok::<_, Error>(n + more)
            })
            .workflow_fn("weigh", move |cx: Workflow, n: u64| {
                let shop = noted.clone();
                async move {
                    let weigh = move |step: Step, n: u64| {
                        let shop = shop.clone();
                        async move {
                            shop.0.lock().unwrap().insert(step.idempotency_key().to_owned(), n);
                            Ok::<_, Error>(n)
                        }
                    };
                    cx.step("weigh", n, weigh).await
                }
            });
        (kit, async move |kit: Kit| {
            let run = kit.start_instance_as("order", "one", &()).await.unwrap();
            let result = run.result::<u64>().await.unwrap();
            let weighed: Vec<u64> = shop.0.lock().unwrap().values().copied().collect();
            (result, weighed, kit.instances().await.unwrap().len())
        })
    });
    assert!(report.points.len() > 8, "{report:?}");
}

#[test]
fn p36_a_race_that_a_child_loses_cancels_it() {
    let kit = TestKit::new()
        .workflow_fn("race", |cx: Workflow, (): ()| async move {
            tokio::select! {
                child = cx.child::<()>("slow", "slow", ()).id("slow-1") => child?,
                slept = cx.sleep("patience", "1 min") => slept?,
            }
            cx.instance("slow", "slow-1")
                .result::<()>()
                .await
                .map_err(|error| Error::permanent(error.message()).named(error.name()))
        })
        .workflow_fn("slow", |cx: Workflow, (): ()| async move { cx.sleep("long", "1 year").await });
    kit.run(async |kit| {
        let run = kit.start_instance("race", &()).await.unwrap();
        assert_eq!(run.error().await.unwrap().name(), "InstanceCancelled");
    });
}

#[test]
fn p36_an_export_with_calls_of_others_is_replayed() {
    let export = family().run(async |kit| {
        let run = kit.start_instance_as("sum", "one", &[2]).await.unwrap();
        run.result::<u64>().await.unwrap();
        run.export().await.unwrap()
    });
    family().run(async move |kit| {
        kit.replay(&export).unwrap();
    });
}
