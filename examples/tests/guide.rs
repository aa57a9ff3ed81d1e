//! The guide for authors: each of its samples stands in code that compiles, and its tests are these.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

mod support;

use everstep::Error;
use everstep_examples::guide::{Trip, book};
use everstep_testkit::{KitError, Mock, Status, TestKit, crash_everywhere};

const GUIDE: &str = include_str!("../../docs/guides/authors.md");
const CODE: [&str; 2] = [include_str!("../src/guide.rs"), include_str!("guide.rs")];

fn trip(cents: u64) -> Trip {
    let text = |text: &str| text.to_owned();
    Trip { traveller: text("ann"), flight: text("f-1"), hotel: text("h-1"), cents }
}

#[test]
fn every_sample_of_the_guide_is_code_that_compiles() {
    support::every_sample_is_in(GUIDE, &CODE, 8);
}

#[test]
fn a_trip_that_nobody_approves_is_given_back() {
    TestKit::new().workflow(book).run(async |kit| {
        let run = kit.start_instance("book", &trip(200_000)).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        let error = run.error().await.unwrap();
        assert_eq!(error.name(), "NotApproved");
        let journal = run.journal().await.unwrap();
        let undone: Vec<&str> = journal
            .iter()
            .filter_map(|entry| entry.fact.call())
            .filter(|call| call.kind.word() == "compensation")
            .map(|call| call.name.as_str())
            .collect();
        assert_eq!(undone, ["hotel", "flight"], "last call first");
    });
}

#[test]
fn an_approved_trip_is_paid_although_the_bank_is_away_twice() {
    TestKit::new().workflow(book).run(async |kit| {
        kit.mock(Mock::step("charge").fails(2, Error::failed("the bank is away"))).unwrap();
        let run = kit.start_instance("book", &trip(200_000)).await.unwrap();
        run.step::<()>("ask").await.unwrap();
        run.send("approval", &true).await.unwrap();
        assert_eq!(run.result::<String>().await.unwrap(), "payment of 200000, ann");
    });
}

#[test]
fn a_trip_comes_to_the_same_wherever_its_worker_crashes() {
    crash_everywhere(|| {
        let kit = TestKit::new().workflow(book);
        (kit, async |kit: everstep_testkit::Kit| {
            kit.mock(Mock::step("confirm").always_fails(Error::permanent("sold out").named("SoldOut")))
                .unwrap();
            let run = kit.start_instance_as("book", "one", &trip(10)).await.unwrap();
            match run.result::<String>().await {
                Err(KitError::Errored { error, .. }) => error.name().to_owned(),
                other => format!("{other:?}"),
            }
        })
    });
}
