//! The five policies for a second run of the same order, and starting or routing (rules H33, H34, H72, H73); and that each sample of
//! the guide on idempotency stands in code that compiles.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

mod support;

use everstep::Error;
use everstep_examples::policies::{
    Front, Order, Receipt, Routed, adopting, carrier, following, inspecting, rejecting, routing, signalling,
    start_or_route, superseding,
};
use everstep_testkit::{HookStart, Kit, Mock, Run, Status, TestKit, crash_everywhere, journal::Fact};

const GUIDE: &str = include_str!("../../docs/guides/idempotency.md");
const CODE: [&str; 2] = [include_str!("../src/policies.rs"), include_str!("policies.rs")];

#[test]
fn every_sample_of_the_guide_is_code_that_compiles() {
    support::every_sample_is_in(GUIDE, &CODE, 8);
}

fn order(address: &str) -> Order {
    Order { number: 17, address: address.to_owned() }
}

fn receipt(address: &str) -> Receipt {
    Receipt { number: 17, address: address.to_owned() }
}

fn kit() -> TestKit {
    TestKit::new()
        .workflow(rejecting)
        .workflow(adopting)
        .workflow(inspecting)
        .workflow(signalling)
        .workflow(superseding)
        .workflow(following)
        .workflow(routing)
}

/// The first run of the order, with a step that takes until noon.
async fn first(kit: &Kit, workflow: &str) -> Run {
    let held = Mock::step("ship")
        .in_workflow(workflow)
        .in_instance("first")
        .fails(1, Error::failed("closed").retry_after("6 hours"));
    kit.mock(held).unwrap();
    let run = kit.start_instance_as(workflow, "first", &order("Elm Street")).await.unwrap();
    run.reaches(Status::Waiting).await.unwrap();
    run
}

async fn second(kit: &Kit, workflow: &str) -> Run {
    kit.start_instance_as(workflow, "second", &order("Oak Street")).await.unwrap()
}

/// How often an instance has run a step to its end.
async fn shipped(run: &Run) -> usize {
    let journal = run.journal().await.unwrap();
    journal
        .iter()
        .filter(|entry| matches!(&entry.fact, Fact::Attempted(attempted) if attempted.retry_at().is_none()))
        .count()
}

#[test]
fn h72_reject() {
    kit().run(async |kit| {
        let first = first(&kit, "rejecting").await;
        let error = second(&kit, "rejecting").await.error().await.unwrap();
        assert_eq!((error.name(), error.message()), ("Duplicate", "first does this order"));
        assert_eq!(first.result::<Receipt>().await.unwrap(), receipt("Elm Street"));
        // The token is free with the end of the run that had it.
        let third = kit.start_instance_as("rejecting", "third", &order("Fir Street")).await.unwrap();
        assert_eq!(third.result::<Receipt>().await.unwrap(), receipt("Fir Street"));
    });
}

#[test]
fn h72_adopt_the_result_of_an_owner_that_runs_and_of_one_that_ended_long_ago() {
    kit().run(async |kit| {
        let first = first(&kit, "adopting").await;
        let second = second(&kit, "adopting").await;
        assert_eq!(second.result::<Receipt>().await.unwrap(), receipt("Elm Street"));
        assert_eq!((shipped(&first).await, shipped(&second).await), (1, 0));
        kit.advance("6 days").await.unwrap();
        let late = kit.start_instance_as("adopting", "late", &order("Fir Street")).await.unwrap();
        assert_eq!(late.result::<Receipt>().await.unwrap(), receipt("Elm Street"));
        kit.advance("2 days").await.unwrap();
        let later = kit.start_instance_as("adopting", "later", &order("Fir Street")).await.unwrap();
        assert_eq!(later.result::<Receipt>().await.unwrap(), receipt("Fir Street"));
    });
}

#[test]
fn h72_inspect_then_decide() {
    kit().run(async |kit| {
        let first = first(&kit, "inspecting").await;
        let busy = second(&kit, "inspecting").await.error().await.unwrap();
        assert_eq!(busy.name(), "Busy");
        assert_eq!(first.result::<Receipt>().await.unwrap(), receipt("Elm Street"));
        let late = kit.start_instance_as("inspecting", "late", &order("Fir Street")).await.unwrap();
        assert_eq!(late.result::<Receipt>().await.unwrap(), receipt("Elm Street"));
    });
}

#[test]
fn h72_h73_signal_an_owner_that_runs_and_adopt_one_that_has_ended() {
    kit().run(async |kit| {
        let first = kit.start_instance_as("signalling", "first", &order("Elm Street")).await.unwrap();
        first.reaches(Status::Waiting).await.unwrap();
        let second = second(&kit, "signalling").await;
        assert_eq!(second.result::<Receipt>().await.unwrap(), receipt("Oak Street"));
        assert_eq!(first.result::<Receipt>().await.unwrap(), receipt("Oak Street"));
        let late = kit.start_instance_as("signalling", "late", &order("Fir Street")).await.unwrap();
        assert_eq!(late.result::<Receipt>().await.unwrap(), receipt("Oak Street"));
    });
}

#[test]
fn h69_h72_supersede() {
    kit().run(async |kit| {
        let first = kit.start_instance_as("superseding", "first", &order("Elm Street")).await.unwrap();
        first.reaches(Status::Waiting).await.unwrap();
        let second = second(&kit, "superseding").await;
        assert_eq!(first.result::<Option<Receipt>>().await.unwrap(), None);
        assert_eq!(second.result::<Option<Receipt>>().await.unwrap(), Some(receipt("Oak Street")));
        assert_eq!(shipped(&first).await, 0);
    });
}

impl Front for KitFront<'_> {
    async fn start(&self, token: &str, order: &Order) -> anyhow::Result<Result<String, String>> {
        *self.calls.borrow_mut() += 1;
        Ok(match self.kit.start_with_token(self.workflow, token, order).await? {
            HookStart::Started(run) => Ok(run.id().to_owned()),
            HookStart::Held(run) => Err(run.id().to_owned()),
        })
    }

    async fn resume(&self, token: &str, order: &Order) -> anyhow::Result<Option<String>> {
        *self.calls.borrow_mut() += 1;
        Ok(self.kit.resume(token, order).await?.map(|run| run.id().to_owned()))
    }
}

struct KitFront<'a> {
    kit: &'a Kit,
    workflow: &'a str,
    calls: std::cell::RefCell<usize>,
}

#[test]
fn h33_h34_every_caller_ends_as_starter_with_its_order_delivered_or_knowing_the_holder() {
    kit().run(async |kit| {
        let front = KitFront { kit: &kit, workflow: "following", calls: 0.into() };
        let started = start_or_route(&front, &order("Elm Street")).await.unwrap();
        let Routed::Started(id) = started else { panic!("{started:?}") };
        let run = kit.instance("following", &id).unwrap();
        *front.calls.borrow_mut() = 0;
        let routed = start_or_route(&front, &order("Oak Street")).await.unwrap();
        assert_eq!((routed, *front.calls.borrow()), (Routed::Delivered(id), 2));
        assert_eq!(run.result::<Receipt>().await.unwrap(), receipt("Oak Street"));
        // The token is free with its end, so that the next order of the number is a start again.
        let again = start_or_route(&front, &order("Fir Street")).await.unwrap();
        assert!(matches!(again, Routed::Started(_)), "{again:?}");
    });
}

#[test]
fn h28_h33_a_workflow_starts_the_run_of_an_order_or_hands_it_to_the_one_that_is_at_it() {
    kit().run(async |kit| {
        let route = async |id: &str, address: &str| {
            kit.start_instance_as("routing", id, &order(address)).await.unwrap()
        };
        // Two at once: one of them starts a run, and the other is routed to it.
        let both = [route("one", "Elm Street").await, route("two", "Oak Street").await];
        let (mut started, mut delivered) = (Vec::new(), Vec::new());
        for (run, address) in both.iter().zip(["Elm Street", "Oak Street"]) {
            match run.result::<Routed>().await.unwrap() {
                Routed::Started(id) => started.push(id),
                Routed::Delivered(id) => delivered.push((id, address)),
                Routed::Known(id) => panic!("{id}"),
            }
        }
        let (id, changed) = delivered.remove(0);
        assert_eq!((started, delivered.len()), (vec![id.clone()], 0));
        let run = kit.instance("following", &id).unwrap();
        assert_eq!(run.result::<Receipt>().await.unwrap(), receipt(changed));
        // It has ended, so that the next order of the number is a start again; with a retention its owner is known.
        let three = route("three", "Fir Street").await;
        assert!(matches!(three.result::<Routed>().await.unwrap(), Routed::Started(other) if other != id));
        kit.advance("2 hours").await.unwrap();
        let kept = kit.start_instance_as("adopting", "kept", &order("Elm Street")).await.unwrap();
        kept.result::<Receipt>().await.unwrap();
        let four = route("four", "Ash Street").await;
        assert_eq!(four.result::<Routed>().await.unwrap(), Routed::Known("kept".to_owned()));
    });
}

/// Whatever policy a second run has, and wherever the worker dies: the carrier is asked with one key for each parcel.
#[test]
fn h71_every_attempt_and_replay_asks_the_carrier_with_one_key() {
    let mut asked_again = 0;
    for (workflow, sent) in [
        // The first has ended when the second begins, and its token is free.
        ("rejecting", &["Elm Street", "Oak Street"][..]),
        ("adopting", &["Elm Street"]),
        ("inspecting", &["Elm Street"]),
        ("signalling", &["Elm Street"]),
        ("superseding", &["Oak Street"]),
    ] {
        let most = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let seen = most.clone();
        crash_everywhere(move || {
            let seen = seen.clone();
            (kit(), async move |kit: Kit| {
                carrier::take();
                let first = kit.start_instance_as(workflow, "first", &order("Elm Street")).await.unwrap();
                if workflow == "superseding" {
                    first.reaches(Status::Waiting).await.unwrap();
                } else {
                    first.end().await.unwrap();
                }
                let run = second(&kit, workflow).await;
                run.end().await.unwrap();
                first.end().await.unwrap();
                let parcels = carrier::take();
                let asked = parcels.iter().map(|(_, asked)| *asked).max().unwrap_or(0);
                seen.fetch_max(asked, std::sync::atomic::Ordering::Relaxed);
                let mut sent_to: Vec<_> = parcels.into_iter().map(|(receipt, _)| receipt.address).collect();
                sent_to.sort_unstable();
                assert_eq!(sent_to, sent, "{workflow}");
                sent_to
            })
        });
        asked_again += u32::from(most.load(std::sync::atomic::Ordering::Relaxed) > 1);
    }
    assert_eq!(asked_again, 5, "each has asked twice with one key somewhere, or nothing is proved");
}
