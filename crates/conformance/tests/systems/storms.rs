//! T46: hundreds of instances that race steps, events and sleeps against each other while their workers die. Every journal is one
//! that its code agrees with.

use everstep::{Either, Error, Registry, Retry, Step, Workflow};
use everstep_engine::Answer;
use everstep_protocol::journal::Fact;
use everstep_system_tests::{Kind, Setup, on_both, world::name};

const COUNT: u64 = 60;

fn registry() -> Registry {
    let step = |_: Step, millis: u64| async move {
        tokio::time::sleep(std::time::Duration::from_millis(millis % 17)).await;
        Ok::<_, Error>(millis)
    };
    Registry::new().workflow_fn("storm", move |cx: Workflow, number: u64| async move {
        let retry = || Retry::constant(5).unlimited();
        let mut seen = Vec::new();
        for round in 0..3_u64 {
            // Steps against each other, all alive at once.
            let (place, _) = cx
                .race((0..4).map(|at| cx.step("race", (number + at) * 7 + round, step).retry(retry())))
                .await;
            seen.push(place as u64);
            // An event against a sleep: the event that came too late is read at the end.
            match cx.either(cx.event::<u64>("n").timeout("1 min"), cx.sleep("short", number % 5 * 9)).await {
                Either::First(event) => seen.push(100 + event?),
                Either::Second(slept) => slept?,
            }
            let both = futures::join!(
                cx.step("l", round, step).retry(retry()),
                cx.step("r", number, step).retry(retry())
            );
            both.0.and(both.1)?;
        }
        let read = seen.iter().filter(|seen| **seen >= 100).count() as u64;
        for _ in read..3 {
            seen.push(100 + cx.event::<u64>("n").timeout("1 min").await?);
        }
        let events: Vec<_> = seen.into_iter().filter(|seen| *seen >= 100).map(|seen| seen - 100).collect();
        Ok::<_, Error>(events)
    })
}

on_both! {
    async fn t46_a_storm_of_races_under_dying_workers_breaks_no_journal_and_loses_no_event(setup) {
        let count = if setup.kind() == Kind::Fleet { COUNT } else { 2 * COUNT };
        let mut world = setup.serve(registry()).await;
        let mut newest = world.add_worker(registry()).await;
        for number in 0..count {
            world.begin("storm", &number.to_string(), &number).await;
        }
        for event in 0..3_u64 {
            for number in 0..count {
                let answer = world.send("storm", &number.to_string(), (&event.to_string(), "n"), &event).await;
                assert_eq!(answer, Answer::Done);
            }
            world.crash_worker(newest).await;
            newest = world.add_worker(registry()).await;
        }
        for number in 0..count {
            let id = number.to_string();
            assert_eq!(world.end("storm", &id).await.output::<Vec<u64>>(), [0, 1, 2], "{number}: each once, in order");
            let journal = world.journal("storm", &id).await;
            assert!(!journal.iter().any(|entry| matches!(entry.fact, Fact::Parked(_))), "{number}");
        }
        assert!(world.ends().doubled().is_empty());
    }
}

/// Every connection to the database is cut, again and again, under sleeps and events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t42_connections_to_the_database_that_are_cut_lose_no_wake() {
    const CUTS: u64 = 8;
    let registry = Registry::new().workflow_fn("wakes", |cx: Workflow, number: u64| async move {
        for round in 0..4_u64 {
            cx.sleep("nap", 50 + (number * 37 + round * 61) % 200).await?;
            cx.step("work", round, async |_: Step, round: u64| Ok::<_, Error>(round)).await?;
        }
        cx.event::<u64>("n").timeout("1 min").await
    });
    let world = Setup::new(Kind::Fleet).serve(registry).await;
    for number in 0..40_u64 {
        world.begin("wakes", &number.to_string(), &number).await;
    }
    for _ in 0..CUTS {
        let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let count: u64 = world.sql(cut).parse().unwrap();
        assert!(count > 0, "there was something to cut");
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    }
    for number in 0..40_u64 {
        let id = number.to_string();
        // Its answer may be lost with a connection; the same id again is the same event.
        world
            .eventually("the event is taken", async || {
                let event = everstep_coordinator::EventRequest {
                    kind: "n".parse().unwrap(),
                    key: None,
                    id: everstep_engine::mailbox::EventId { app_id: String::new(), id: "1".to_owned() },
                    payload: everstep_protocol::Payload::encode(&number).unwrap(),
                };
                matches!(world.handle().send_event(name("wakes", &id), event).await, Ok(Answer::Done))
            })
            .await;
        assert_eq!(world.end("wakes", &id).await.output::<u64>(), number);
        let attempts = world.attempts("wakes", &id).await;
        assert!(
            attempts.len() == 4 && attempts.iter().all(|(_, attempted)| attempted.attempt.0 == 1),
            "{number}: no attempt was charged"
        );
    }
}
