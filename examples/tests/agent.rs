//! The agent: what a plan decides is done once, wherever its worker dies (rules L10, L11).

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

mod support;

use std::collections::BTreeSet;

use everstep::Error;
use everstep_examples::agent::{World, registry};
use everstep_testkit::{Kit, Mock, TestKit, crash_everywhere, journal::Fact};

fn kit(world: &World) -> TestKit {
    TestKit::new().registry(registry(world))
}

/// Which thoughts the world has seen anything of.
fn thoughts(done: &[String]) -> BTreeSet<&str> {
    done.iter()
        .filter_map(|done| done.split_once("thought ")?.1.split(|c: char| !c.is_ascii_digit()).next())
        .collect()
}

#[test]
fn l10_l11_an_agent_does_each_action_once_wherever_its_worker_dies_and_of_one_plan_alone() {
    let report = crash_everywhere(|| {
        let world = World::default();
        (kit(&world), async move |kit: Kit| {
            let run = kit.start_instance_as("book", "one", "Rome").await.unwrap();
            let seen: Vec<String> = run.result().await.unwrap();
            let (_, done) = world.done();
            // A model that thinks again says something else: nothing of that may have been done.
            assert_eq!(thoughts(&done).len(), 1, "{done:?}");
            (seen.len(), done.len())
        })
    });
    assert!(report.points.len() > 20, "{:#?}", report.points);
}

#[test]
fn l10_thinking_begins_anew_and_a_plan_that_is_on_record_is_never_made_again() {
    let world = World::default();
    kit(&world).run(async move |kit| {
        kit.mock(Mock::step("reserve").fails(3, Error::failed("the hotel is closed"))).unwrap();
        kit.mock(Mock::step("think").nth(1).fails(2, Error::failed("the model is busy"))).unwrap();
        let run = kit.start_instance_as("book", "one", "Rome").await.unwrap();
        let seen: Vec<String> = run.result().await.unwrap();
        assert_eq!(seen.len(), 3);
        // Thrice, though the actions of the second plan took four attempts.
        assert_eq!((world.thoughts(), world.done().0), (3, 3));
        let journal = run.journal().await.unwrap();
        let attempts = |name: &str| {
            journal
                .iter()
                .filter_map(|entry| match &entry.fact {
                    Fact::Attempted(attempted) if attempted.call.name.as_str() == name => Some(attempted.key),
                    _ => None,
                })
                .collect::<Vec<_>>()
        };
        let (reserve, write) = (attempts("reserve"), attempts("write"));
        assert_eq!((reserve.len(), write.len()), (4, 1));
        assert!(reserve.iter().all(|key| *key == reserve[0]) && reserve[0] != write[0]);
    });
}

#[test]
fn every_sample_of_the_guide_on_plans_is_code_that_compiles() {
    let guide = include_str!("../../docs/guides/plans.md");
    support::every_sample_is_in(guide, &[include_str!("../src/agent.rs")], 3);
}
