//! A crash of the worker at every point in turn.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use everstep::{Error, Retry, Step, Workflow};
use everstep_testkit::{Kit, Mock, TestKit, crash_everywhere, journal::Fact};

use crate::panic_of;

/// A service that takes a charge once per key.
#[derive(Clone, Debug, Default)]
struct Service(Arc<Mutex<BTreeMap<String, u32>>>);

impl Service {
    fn charge(&self, key: &str) {
        *self.0.lock().unwrap().entry(key.to_owned()).or_insert(0) = 1;
    }

    /// As a service would that knows no keys.
    fn charge_again(&self) {
        *self.0.lock().unwrap().entry("any".to_owned()).or_insert(0) += 1;
    }

    fn charges(&self) -> u32 {
        self.0.lock().unwrap().values().sum()
    }
}

/// A workflow with a step that is interrupted by awaits, two at once, a sleep, a remote step and a retry.
fn order(service: Service, honours_keys: bool) -> TestKit {
    let kit = TestKit::new().workflow_fn("order", move |cx: Workflow, (): ()| {
        let service = service.clone();
        async move {
            let charge = move |step: Step, (): ()| {
                let service = service.clone();
                async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    if honours_keys {
                        service.charge(step.idempotency_key());
                    } else {
                        service.charge_again();
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Ok::<_, Error>("paid".to_owned())
                }
            };
            let pack = async |_: Step, (): ()| Ok::<_, Error>("packed".to_owned());
            let retry = Retry::constant("1s").limit(5);
            let charged = cx.step("charge", (), charge).retry(retry.clone());
            let (paid, packed): (String, String) =
                futures::try_join!(charged, cx.step("pack", (), pack).retry(retry.clone()))?;
            cx.sleep("cooling off", "14 days").await?;
            let label: String = cx.remote("label", ()).on("labels").retry(retry).await?;
            Ok::<_, Error>(format!("{paid}, {packed}, {label}"))
        }
    });
    kit.pool("labels").function("label", async |_: Step, (): ()| Ok::<_, Error>("label"))
}

#[test]
fn p43_a_workflow_that_honours_keys_comes_to_the_same_wherever_its_worker_crashes() {
    let report = crash_everywhere(|| {
        let service = Service::default();
        let kit = order(service.clone(), true);
        (kit, async move |kit: Kit| {
            kit.mock(Mock::step("pack").fails(1, Error::failed("jam"))).unwrap();
            let run = kit.start_instance_as("order", "one", &()).await.unwrap();
            (run.result::<String>().await.unwrap(), service.charges())
        })
    });
    for point in [
        "step \"charge\" #1 of order/one, attempt 1: before it runs",
        "step \"charge\" #1 of order/one, attempt 1: at its await 1",
        "step \"charge\" #1 of order/one, attempt 1: at its await 2",
        "step \"charge\" #1 of order/one, attempt 1: after it ran, before its outcome is reported",
        "step \"pack\" #1 of order/one, attempt 2: before it runs",
        "step \"label\" #1 of order/one, attempt 1: after it ran, before its outcome is reported",
    ] {
        assert!(
            report.points.iter().any(|passed| passed == point),
            "{point} is not among {:#?}",
            report.points
        );
    }
    let reports = report.points.iter().filter(|point| point.contains("the report (")).count();
    assert!(reports >= 10, "{:#?}", report.points);
    println!("p43: {} points", report.points.len());
}

#[test]
fn p43_an_effect_that_is_repeated_is_found_and_the_point_is_named() {
    let said = panic_of(|| {
        crash_everywhere(|| {
            let service = Service::default();
            let kit = order(service.clone(), false);
            (kit, async move |kit: Kit| {
                let run = kit.start_instance_as("order", "one", &()).await.unwrap();
                (run.result::<String>().await.unwrap(), service.charges())
            })
        })
    });
    assert!(said.contains("step \"charge\" #1 of order/one, attempt 1: at its await 2"), "{said}");
    assert!(said.contains("after it ran, before its outcome is reported"), "{said}");
    assert!(!said.contains("attempt 1: at its await 1"), "nothing was charged by then: {said}");
    assert!(
        said.contains("\"paid, packed, label\", 1") && said.contains("\"paid, packed, label\", 2"),
        "{said}"
    );
}

#[test]
fn p43_a_step_that_may_be_tried_once_does_not_survive_a_crash() {
    let said = panic_of(|| {
        crash_everywhere(|| {
            let kit = TestKit::new().workflow_fn("once", |cx: Workflow, (): ()| async move {
                let step = cx.step("only", (), async |_: Step, (): ()| Ok::<_, Error>(1));
                step.retry(Retry::constant("1s").limit(0)).await
            });
            (kit, async |kit: Kit| {
                let run = kit.start_instance_as("once", "one", &()).await.unwrap();
                run.result::<u32>().await.map_err(|error| error.workflow_error().unwrap().name().to_owned())
            })
        })
    });
    assert!(said.contains("WorkerLost"), "{said}");
}

#[test]
fn p43_a_crash_by_hand_loses_what_runs_and_another_worker_goes_on() {
    let kit = TestKit::new().workflow_fn("slow", |cx: Workflow, (): ()| async move {
        let slow = async |step: Step, (): ()| {
            if step.attempt() == 1 {
                std::future::pending::<()>().await;
            }
            Ok::<_, Error>(step.attempt())
        };
        cx.step("slow", (), slow).retry(Retry::constant("1s")).await
    });
    kit.run(async |kit| {
        let run = kit.start_instance("slow", &()).await.unwrap();
        kit.advance("5s").await.unwrap();
        kit.crash_worker();
        assert_eq!(run.result::<u32>().await.unwrap(), 2);
        let journal = run.journal().await.unwrap();
        let lost = journal.iter().filter(|entry| matches!(&entry.fact, Fact::Lost(lost) if lost.counts));
        assert_eq!(lost.count(), 1);
    });
}
