//! Starts: the same one many times at once, one whose answer nobody waited for, many in one batch (O-05 among them).

use std::task::Poll;

use everstep::{Error, Registry, Workflow};
use everstep_broker::Properties;
use everstep_conformance::{echo, noting};
use everstep_coordinator::EventRequest;
use everstep_engine::{Answer, mailbox::EventId};
use everstep_protocol::{
    Payload,
    start::{StartOutcome, StartReply},
};
use everstep_system_tests::{Kind, Log, on_both, world::name};
use futures::future::join_all;

/// Two steps.
fn two(log: &Log) -> Registry {
    let log = log.clone();
    Registry::new().workflow_fn("two", move |cx: Workflow, input: serde_json::Value| {
        let log = log.clone();
        async move {
            cx.step(format!("first of {}", cx.instance_id()), (), noting(&log, ())).await?;
            cx.step("second", input, echo::<serde_json::Value>).await
        }
    })
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

on_both! {
    async fn o05_fifty_starts_at_once_over_all_coordinators_make_one_instance(setup) {
        let log = Log::new();
        let count = if setup.kind() == Kind::Fleet { 2 } else { 1 };
        let world = setup.coordinators(count).serve(two(&log)).await;
        for round in 0..5 {
            let id = format!("dup-{round}");
            let request = world.request("two", Some(&id), &json(r#"{"a":1,"b":2}"#));
            let starts = (0..50).map(|number| {
                let (handle, request) = (world.handle_of(number % count), request.clone());
                async move { handle.start(request).await.expect("it is decided") }
            });
            let replies: Vec<StartReply> = join_all(starts).await;
            let created = replies.iter().filter(|reply| reply.outcome == StartOutcome::Created).count();
            let exists = replies.iter().filter(|reply| reply.outcome == StartOutcome::Exists).count();
            assert_eq!((created, exists), (1, 49), "{replies:?}");
            assert!(replies.iter().all(|reply| reply.id.as_deref() == Some(id.as_str())), "{replies:?}");
            world.end("two", &id).await.output::<serde_json::Value>();
            assert_eq!(log.count(&format!("first of {id} 1")), 1);
        }
        assert!(world.ends().doubled().is_empty());
    }

    async fn o05_what_is_the_same_input_and_what_is_another(setup) {
        let log = Log::new();
        let world = setup.serve(two(&log)).await;
        assert_eq!(world.start("two", "one", &json(r#"{"a":1,"b":{"c":[1,2],"d":null}}"#)).await.outcome, StartOutcome::Created);
        for same in [r#"{"b":{"d":null,"c":[1,2]},"a":1}"#, r#"{ "a" : 1.0,  "b":{"c":[1,2.0],"d":null}}"#] {
            assert_eq!(world.start("two", "one", &json(same)).await.outcome, StartOutcome::Exists, "{same}");
        }
        for other in [r#"{"a":1,"b":{"c":[2,1],"d":null}}"#, r#"{"a":"1","b":{"c":[1,2],"d":null}}"#, r#"{"a":1,"b":{"c":[1,2]}}"#, "null"] {
            let reply = world.start("two", "one", &json(other)).await;
            assert_eq!(reply.outcome, StartOutcome::Conflict, "{other}");
            let told = format!("{reply:?}");
            assert!(told.contains("another input") && !told.contains("\\\"d\\\""), "it shows nobody the input: {told}");
        }
        let end = world.end("two", "one").await.output::<serde_json::Value>();
        assert_eq!(end, json(r#"{"a":1,"b":{"c":[1,2],"d":null}}"#), "it was not touched");
    }

    /// A caller that is gone before the answer, and asks again. Nothing is taken back, and nothing is done twice.
    async fn b130_o05_t51_a_caller_that_went_away_finds_what_it_asked_for(setup) {
        let log = Log::new();
        let world = setup.serve(two(&log)).await;
        let request = world.request("two", Some("one"), &json("1"));
        let handle = world.handle();
        let mut asked = Box::pin(handle.start(request.clone()));
        assert!(matches!(futures::poll!(asked.as_mut()), Poll::Pending), "it is under way");
        drop(asked);
        for _ in 0..5 {
            let reply = handle.start(request.clone()).await.expect("it is decided");
            assert!(matches!(reply.outcome, StartOutcome::Created | StartOutcome::Exists), "{reply:?}");
        }
        world.end("two", "one").await.output::<u64>();
        assert_eq!(log.lines(), ["first of one 1"]);
    }

    async fn t51_an_id_has_one_outcome_and_another_payload_under_it_is_refused(setup) {
        let registry = Registry::new().workflow_fn("reads", |cx: Workflow, (): ()| async move {
            let first: u64 = cx.event("n").timeout("1 min").await?;
            let second = cx.event::<u64>("n").timeout(0).await.ok();
            Ok::<_, Error>((first, second))
        });
        let mut world = setup.start().await;
        world.begin("reads", "one", &()).await;
        let event = |number: u64| EventRequest {
            kind: "n".parse().unwrap(),
            key: None,
            id: EventId { app_id: "app".to_owned(), id: "e-1".to_owned() },
            payload: Payload::encode(&number).unwrap(),
        };
        let handle = world.handle();
        let sends = (0..10).map(|_| handle.send_event(name("reads", "one"), event(7)));
        for answer in join_all(sends).await {
            assert_eq!(answer.expect("it is decided"), Answer::Done);
        }
        let other = handle.send_event(name("reads", "one"), event(8)).await.expect("it is decided");
        assert_eq!(other, Answer::EventIdTaken);
        world.add_worker(registry).await;
        assert_eq!(world.end("reads", "one").await.output::<(u64, Option<u64>)>(), (7, None));
    }

    async fn b096_b097_b127_b149_a_batch_is_answered_in_order_and_each_runs_by_itself(setup) {
        let log = Log::new();
        let world = setup.serve(two(&log)).await;
        let handle = world.handle();
        assert!(handle.start_batch(Vec::new()).await.unwrap_err().to_string().contains("a batch of 0 starts"));
        world.begin("two", "old", &json("0")).await;
        let start = |id: &str, input: &str| world.request("two", Some(id), &json(input));
        let batch = vec![start("old", "0"), start("a", "1"), start("a", "1"), start("a", "2"), start("b", "3")];
        let replies = handle.start_batch(batch).await.expect("it is decided");
        let outcomes: Vec<_> = replies.iter().map(|reply| reply.outcome).collect();
        let (created, exists) = (StartOutcome::Created, StartOutcome::Exists);
        assert_eq!(outcomes, [exists, created, exists, StartOutcome::Conflict, created]);
        let ids: Vec<_> = replies.iter().map(|reply| reply.id.as_deref().unwrap_or_default()).collect();
        assert_eq!(ids, ["old", "a", "a", "a", "b"]);
        for (id, output) in [("old", 0), ("a", 1), ("b", 3)] {
            assert_eq!(world.end("two", id).await.output::<u64>(), output);
            assert_eq!(log.count(&format!("first of {id} 1")), 1);
        }
    }

    /// White space and order in what a producer writes do not make another start; the record says `exists`, and nothing runs again.
    async fn o05_a_producer_that_repeats_itself_in_other_words_starts_nothing_new(setup) {
        let log = Log::new();
        let world = setup.serve(two(&log)).await;
        for (message, body) in [
            ("m-1", r#"{"workflow":"two","id":"one","input":{"a":1,"b":2}}"#),
            ("m-1", r#"{"workflow":"two","id":"one","input":{"a":1,"b":2}}"#),
            ("m-2", r#"{"input": {"b": 2.0, "a": 1}, "id": "one", "workflow": "two"}"#),
        ] {
            let properties = Properties {
                message_id: Some(message.to_owned()),
                content_type: Some("application/json".to_owned()),
                ..Properties::default()
            };
            world.publish(body, properties).await;
        }
        world.end("two", "one").await.output::<serde_json::Value>();
        world.begin("two", "last", &json("0")).await;
        world.end("two", "last").await;
        assert_eq!(log.lines(), ["first of one 1", "first of last 1"]);
    }

    async fn b133_an_event_without_a_payload_says_null(setup) {
        let registry = Registry::new().workflow_fn("reads", |cx: Workflow, (): ()| async move {
            cx.event::<serde_json::Value>("n").timeout("1 min").await
        });
        let world = setup.serve(registry).await;
        world.begin("reads", "one", &()).await;
        let properties = Properties {
            message_id: Some("e-1".to_owned()),
            content_type: Some("application/json".to_owned()),
            ..Properties::default()
        };
        world.publish_event(r#"{"workflow":"reads","id":"one","type":"n"}"#, properties).await;
        assert_eq!(world.end("reads", "one").await.output::<serde_json::Value>(), serde_json::Value::Null);
    }
}
