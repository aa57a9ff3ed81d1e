//! Two coordinators at one head: events through both, one of which dies. Rules P22 and W19 from the outside. Not here: which of two
//! transactions waits for which (the store's tests).

use everstep::{Error, Registry, Workflow};
use everstep_conformance::echo;
use everstep_coordinator::{EventRequest, Handle};
use everstep_engine::{Answer, mailbox::EventId};
use everstep_protocol::{Payload, journal::Fact};
use everstep_system_tests::{Kind, Setup, World, world::name};
use futures::future::join_all;

/// Reads so many events, and keeps each in a step.
fn reader(count: usize) -> Registry {
    Registry::new().workflow_fn("reader", move |cx: Workflow, (): ()| async move {
        let mut got = Vec::new();
        while got.len() < count {
            let number: u64 = cx.event("n").timeout("1 min").await?;
            got.push(cx.step("keep", number, echo::<u64>).await?);
        }
        Ok::<_, Error>(got)
    })
}

fn event(number: u64) -> EventRequest {
    EventRequest {
        kind: "n".parse().unwrap(),
        key: None,
        id: EventId { app_id: "app".to_owned(), id: format!("e-{number}") },
        payload: Payload::encode(&number).unwrap(),
    }
}

/// One after the other, each again until it is decided.
async fn send_all(handle: Handle, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        loop {
            match handle.send_event(name("reader", "one"), event(number)).await {
                Ok(Answer::Done) => break,
                Ok(other) => panic!("event {number}: {other:?}"),
                // Unknown, or its coordinator has stopped: the same id again is safe.
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }
}

/// What each sender sent comes in its order, and nothing comes twice.
async fn check(world: &World, senders: &[Vec<u64>]) {
    let got = world.end("reader", "one").await.output::<Vec<u64>>();
    for sent in senders {
        let own: Vec<_> = got.iter().filter(|number| sent.contains(number)).copied().collect();
        assert_eq!(&own, sent);
    }
    assert_eq!(got.len(), senders.iter().map(Vec::len).sum::<usize>());
    let journal = world.journal("reader", "one").await;
    let delivered = journal.iter().filter(|entry| matches!(entry.fact, Fact::Delivered(_))).count();
    assert_eq!(delivered, got.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w19_p22_events_through_two_coordinators_to_one_instance_come_once_and_in_order() {
    let world = Setup::new(Kind::Fleet).coordinators(2).serve(reader(120)).await;
    world.begin("reader", "one", &()).await;
    let senders: Vec<Vec<u64>> = (0..4).map(|sender| (sender * 30..sender * 30 + 30).collect()).collect();
    let sends = (0..).zip(&senders).map(|(at, sent)| send_all(world.handle_of(at % 2), sent.clone()));
    join_all(sends).await;
    check(&world, &senders).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w19_p24_one_event_through_two_coordinators_at_once_is_one_event() {
    let world = Setup::new(Kind::Fleet).coordinators(2).serve(reader(20)).await;
    world.begin("reader", "one", &()).await;
    for number in 0..20 {
        // The same id to both, four times each.
        join_all((0..8).map(|at| send_all(world.handle_of(at % 2), [number]))).await;
    }
    check(&world, &[(0..20).collect()]).await;
    assert_eq!(world.view("reader", "one").await.unwrap().events, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w19_p22_one_of_two_coordinators_dies_while_both_take_events() {
    let mut world = Setup::new(Kind::Fleet).coordinators(2).serve(reader(60)).await;
    world.begin("reader", "one", &()).await;
    let survivor = world.handle_of(1);
    let sends = tokio::spawn(send_all(survivor.clone(), 0..30));
    // The first takes some, dies, and its sender goes to the other, from the last that it knows of.
    send_all(world.handle_of(0), 30..40).await;
    world.crash_coordinator(0).await;
    send_all(survivor, 38..60).await;
    sends.await.unwrap();
    check(&world, &[(0..30).collect(), (30..60).collect()]).await;
}
