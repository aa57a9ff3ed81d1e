//! Queues and producers: rules W14, W16, W17, W20, W40, W41. Not here: what a body may say, case by case (the protocol's own
//! tests).

use std::collections::BTreeSet;

use everstep::{Error, Registry, Retry, Step, Workflow};
use everstep_broker::{Consume, Incoming, Properties, QueueDeclaration, QueueKind};
use everstep_protocol::{
    Namespace, Pool, WorkflowName,
    start::{StartOutcome, StartReply},
    topology,
};
use everstep_store::StatusWord;
use everstep_system_tests::{DEADLINE, Gate, World, on_both, within};

fn echo() -> Registry {
    Registry::new()
        .workflow_fn("echo", |_: Workflow, input: serde_json::Value| async move { Ok::<_, Error>(input) })
}

fn json(message: &str) -> Properties {
    Properties {
        message_id: Some(message.to_owned()),
        app_id: Some("test".to_owned()),
        content_type: Some("application/json".to_owned()),
        ..Properties::default()
    }
}

/// A queue of a producer's own, for replies.
async fn replies(world: &World) -> (String, everstep_broker::Consumer) {
    let queue = QueueDeclaration::new("producer.replies", QueueKind::Exclusive);
    let mut consumer = world.broker().consume(Consume::new(queue, 100)).await.expect("the broker is there");
    loop {
        if let Incoming::Connected { queue } = consumer.next().await {
            return (queue, consumer);
        }
    }
}

async fn reply(consumer: &mut everstep_broker::Consumer) -> (Option<String>, StartReply) {
    within("a reply", DEADLINE, async {
        loop {
            if let Incoming::Delivery(delivery) = consumer.next().await {
                let reply = serde_json::from_slice(&delivery.body).expect("a reply is JSON");
                let correlation = delivery.properties.correlation_id.clone();
                delivery.ack();
                return (correlation, reply);
            }
        }
    })
    .await
}

on_both! {
    async fn w14_every_queue_has_a_name_of_the_topology(setup) {
        let registry = echo()
            .workflow_fn("remote", |cx: Workflow, (): ()| async move { cx.remote::<u32>("square", 3_u32).on("numbers").await })
            .function("square", |_: Step, n: u32| async move { Ok::<_, Error>(n * n) });
        let setup = setup.worker(|settings| settings.pools = vec![Pool::new("numbers").expect("a valid name")]);
        let world = setup.serve(registry).await;
        world.begin("remote", "one", &()).await;
        assert_eq!(world.end("remote", "one").await.output::<u32>(), 9);
        let queues = world.queues();
        let sessions = world.store().sessions().await.expect("the store answers");
        let (namespace, workflow) = (Namespace::default(), |name| WorkflowName::new(name).expect("a valid name"));
        let mut known = BTreeSet::from([
            topology::SESSIONS.to_owned(),
            topology::start_queue(&namespace),
            topology::event_queue(&namespace),
            topology::dead_queue(&namespace),
            topology::rejected_queue(&namespace),
            topology::run_queue(&namespace, &workflow("echo")),
            topology::run_queue(&namespace, &workflow("remote")),
            topology::pinned_run_queue(&namespace, &workflow("echo"), &sessions[0].open.build),
            topology::pinned_run_queue(&namespace, &workflow("remote"), &sessions[0].open.build),
            topology::step_queue(&namespace, &Pool::new("numbers").expect("a valid name")),
            sessions[0].open.inbox.clone(),
        ]);
        let reports = if world.kind() == everstep_system_tests::Kind::Fleet { 4 } else { 1 };
        known.extend((0..reports).map(topology::report_queue));
        assert!(sessions[0].open.inbox.starts_with(&topology::inbox(sessions[0].open.session)));
        let declared: BTreeSet<_> = queues.into_iter().filter(|queue| !queue.starts_with("test.")).collect();
        assert_eq!(declared, known);
    }

    async fn w14_task_queues_exist_before_a_worker_declares_them(setup) {
        let world = setup.start().await;
        let mut stub = world.stub("echo").await;
        let queue = topology::run_queue(&Namespace::default(), &WorkflowName::new("echo").expect("a valid name"));
        assert_eq!(world.broker().depth(&queue).await.expect("the broker answers"), None);
        // A stub consumes nothing but its inbox, as a worker that may not declare.
        stub.open().await;
        assert_eq!(world.broker().depth(&queue).await.expect("the broker answers"), Some(0));
        world.begin("echo", "one", &()).await;
        world.eventually("a task waits there", async || {
            world.broker().depth(&queue).await.expect("the broker answers") == Some(1)
        }).await;
    }

    async fn w17_at_the_bound_intake_stops_and_nothing_is_lost(setup) {
        let mut world = setup.coordinator(|settings| settings.rejected_bytes = 5_000).serve(echo()).await;
        for number in 0..5 {
            world.publish("garbage", json(&format!("bad-{number}"))).await;
        }
        let stopped = |world: &World| {
            let families = world.handle().metrics().gather();
            let family = families.iter().find(|family| family.name() == "everstep_intake_stopped");
            family.is_some_and(|family| family.get_metric()[0].get_gauge().get_value() > 0.0)
        };
        world.eventually("intake stops", async || stopped(&world)).await;
        world.publish(r#"{"workflow":"echo","id":"kept","input":1}"#, json("good")).await;
        let queue = topology::start_queue(&Namespace::default());
        world.eventually("it stays in the queue", async || {
            matches!(world.broker().depth(&queue).await, Ok(Some(1)))
        }).await;
        assert!(world.view("echo", "kept").await.is_none());
        let rejected = world.store().rejected(&Namespace::default(), 10).await.expect("the store answers");
        assert_eq!(rejected.len(), 5, "every record is kept");
        // What an operator does: more room.
        world.stop_coordinator(0).await;
        world.change_coordinators(|settings| settings.rejected_bytes = 1 << 20);
        world.add_coordinator().await;
        assert_eq!(world.end("echo", "kept").await.status, "complete");
        assert!(!stopped(&world));
    }

    async fn w17_garbage_of_all_kinds_is_recorded_and_blocks_nobody(setup) {
        let setup = setup.coordinator(|settings| settings.limits.input_bytes = 2_000);
        let world = setup.serve(echo()).await;
        let pack = |value: &serde_json::Value| rmp_serde::to_vec_named(value).expect("it has a form");
        let good = serde_json::json!({"workflow": "echo", "id": "x"});
        let kinds: Vec<(Vec<u8>, Option<&str>, &str)> = vec![
            (b"".to_vec(), None, "body"),
            (b"\xff\xfe\x00garbage".to_vec(), Some("application/json"), "body"),
            (b"[1,2,3]".to_vec(), Some("application/json"), "body"),
            (b"{\"workflow\":\"echo\"".to_vec(), Some("application/json"), "body"),
            (br#"{"workflow":"echo","id":"x","color":"red"}"#.to_vec(), Some("application/json"), "unknown_field"),
            (br#"{"workflow":"Not A Name","id":"x"}"#.to_vec(), Some("application/json"), "name"),
            (br#"{"workflow":"echo","id":"a b"}"#.to_vec(), Some("application/json"), "name"),
            (serde_json::to_vec(&good).expect("JSON"), Some("text/plain"), "content_type"),
            (serde_json::to_vec(&good).expect("JSON"), Some("application/msgpack"), "body"),
            ([pack(&good), b"rest".to_vec()].concat(), Some("application/json"), "body"),
            (format!(r#"{{"workflow":"echo","id":"x","input":"{}"}}"#, "y".repeat(3_000)).into_bytes(), Some("application/json"), "too_large"),
            (vec![0xc1; 64], Some("application/msgpack"), "body"),
            (br#"{"workflow":"echo","id":"x","token":"t","hook":{"token":"t"}}"#.to_vec(), Some("application/json"), "hook"),
        ];
        let mut expected: Vec<&str> = Vec::new();
        for number in 0..50 {
            let (body, content_type, code) = &kinds[number % kinds.len()];
            let properties = Properties { content_type: content_type.map(str::to_owned), ..json(&format!("bad-{number}")) };
            world.publish(body.clone(), properties).await;
            expected.push(code);
            world.publish(format!(r#"{{"workflow":"echo","id":"good-{number}","input":{number}}}"#), json(&format!("good-{number}"))).await;
        }
        within("the good ones", DEADLINE, world.ends().count(50)).await;
        assert!(world.ends().all().iter().all(|end| end.status == "complete" && end.id.starts_with("good-")));
        let namespace = Namespace::default();
        world.eventually("all are recorded", async || {
            world.store().rejected(&namespace, 100).await.expect("the store answers").len() >= 50
        }).await;
        let rejected = world.store().rejected(&namespace, 100).await.expect("the store answers");
        let mut codes: Vec<_> = rejected.iter().map(|rejected| rejected.code.as_str()).collect();
        codes.sort_unstable();
        expected.sort_unstable();
        assert_eq!(codes, expected);
        assert!(rejected.iter().all(|rejected| !rejected.reason.is_empty()));
        let names: BTreeSet<_> = rejected.iter().filter_map(|rejected| rejected.message_id.clone()).collect();
        assert_eq!(names, (0..50).map(|number| format!("bad-{number}")).collect(), "each by its message id");
        // One that comes again is known by it, whatever it says.
        world.publish("garbage", json("bad-7")).await;
        world.publish("garbage", json("bad-50")).await;
        world.eventually("the new one is recorded", async || {
            world.store().rejected(&namespace, 100).await.expect("the store answers").len() == 51
        }).await;
        // All are settled: nothing is left, and a coordinator that comes later finds nothing.
        world.eventually("nothing is left in the queue", async || {
            world.broker().depth(&topology::start_queue(&namespace)).await.expect("the broker answers") == Some(0)
        }).await;
        let copies = world.broker().depth(&topology::rejected_queue(&namespace)).await.expect("the broker answers");
        assert_eq!(copies, Some(52), "the courtesy copies");
    }

    async fn w40_replies_say_what_became_of_a_start(setup) {
        let world = setup.serve(echo()).await;
        let (queue, mut consumer) = replies(&world).await;
        let asking = |message: &str, content: &str| Properties {
            reply_to: Some(queue.clone()),
            correlation_id: Some(format!("c-{message}")),
            content_type: Some(content.to_owned()),
            ..json(message)
        };
        let body = r#"{"workflow":"echo","id":"one","input":{"n":1}}"#;
        world.publish(body, asking("m-1", "application/json")).await;
        let (correlation, created) = reply(&mut consumer).await;
        assert_eq!((correlation.as_deref(), created.outcome, created.id.as_deref()), (Some("c-m-1"), StartOutcome::Created, Some("one")));
        world.end("echo", "one").await;
        let pack = rmp_serde::to_vec_named(&serde_json::json!({"workflow": "echo", "id": "one", "input": {"n": 1}})).expect("a form");
        world.publish(pack, asking("m-2", "application/msgpack")).await;
        let (_, exists) = reply(&mut consumer).await;
        assert_eq!((exists.outcome, exists.status.as_deref()), (StartOutcome::Exists, Some("complete")), "{exists:?}");
        world.publish(r#"{"workflow":"echo","id":"one","input":2}"#, asking("m-3", "application/json")).await;
        let (_, conflict) = reply(&mut consumer).await;
        assert_eq!((conflict.outcome, conflict.retry_safe), (StartOutcome::Conflict, false));
        world.publish(r#"{"workflow":"echo","id":"four","colour":1}"#, asking("m-4", "application/json")).await;
        let (_, rejected) = reply(&mut consumer).await;
        assert_eq!((rejected.outcome, rejected.code.as_deref(), rejected.retry_safe), (StartOutcome::Rejected, Some("unknown_field"), false));
        assert!(rejected.message.as_ref().is_some_and(|message| message.contains("colour")), "the field is named");
        assert_eq!((rejected.workflow.as_deref(), rejected.id.as_deref()), (Some("echo"), Some("four")));
        // A redelivery gets the first answer, and so does a start without any identity: none.
        world.publish(body, asking("m-1", "application/json")).await;
        let (_, again) = reply(&mut consumer).await;
        assert_eq!((again.outcome, again.id.as_deref()), (StartOutcome::Created, Some("one")));
        let anonymous = Properties { message_id: Some(String::new()), ..asking("m-5", "application/json") };
        world.publish(r#"{"workflow":"echo"}"#, anonymous).await;
        let (_, nobody) = reply(&mut consumer).await;
        assert_eq!(nobody.code.as_deref(), Some("no_identity"), "{nobody:?}");
    }

    async fn w17_a_reply_aimed_at_the_engine_itself_is_refused(setup) {
        let world = setup.serve(echo()).await;
        let aimed = Properties { reply_to: Some("everstep.sessions".to_owned()), ..json("m-1") };
        world.publish(r#"{"workflow":"echo","id":"one"}"#, aimed).await;
        let namespace = Namespace::default();
        world.eventually("it is recorded", async || {
            let rejected = world.store().rejected(&namespace, 10).await.expect("the store answers");
            rejected.first().is_some_and(|rejected| rejected.code == "reply_to")
        }).await;
        assert!(world.view("echo", "one").await.is_none());
    }

    async fn w20_a_huge_result_travels_among_small_ones_and_a_large_journal_in_parts(setup) {
        fn registry(gate: &Gate) -> Registry {
            let gate = gate.clone();
            Registry::new().workflow_fn("large", move |cx: Workflow, (huge, wide): (usize, usize)| {
                let gate = gate.clone();
                async move {
                    let make = |name: String, bytes: usize| cx.step(name, bytes, |_: Step, bytes: usize| async move { Ok::<_, Error>("x".repeat(bytes)) });
                    let all = (0..20).map(|number| make(format!("small {number}"), 100));
                    let all = all.chain([make("huge".to_owned(), huge)]);
                    let sizes: usize = futures::future::try_join_all(all).await?.iter().map(String::len).sum();
                    let mut rest = 0;
                    for number in 0..6 {
                        rest += make(format!("wide {number}"), wide).await?.len();
                    }
                    let last = cx.step("last", (), move |_: Step, (): ()| {
                        let gate = gate.clone();
                        async move {
                            gate.pass().await;
                            Ok::<_, Error>(())
                        }
                    });
                    last.retry(Retry::constant("10ms")).await?;
                    Ok::<_, Error>((sizes, rest))
                }
            })
        }
        let gate = Gate::closed();
        let mut world = setup.serve(registry(&gate)).await;
        world.begin("large", "one", &(900 * 1024, 520 * 1024)).await;
        for number in 0..20 {
            world.begin("large", &format!("small-{number}"), &(10, 10)).await;
        }
        world.until("large", "one", "all made", |view| view.steps == 27).await;
        world.crash_worker(0).await;
        gate.open();
        world.add_worker(registry(&gate)).await;
        assert_eq!(world.end("large", "one").await.output::<(usize, usize)>(), (2_000 + 900 * 1024, 6 * 520 * 1024));
        within("all ends", DEADLINE, world.ends().count(21)).await;
        let journal = world.journal("large", "one").await;
        let bytes: u64 = journal.iter().map(|entry| entry.fact.payload_bytes()).sum();
        assert!(bytes > 3 << 20, "{bytes}");
    }

    async fn w41_names_hold_to_their_rule(setup) {
        let longest = "a-b_9".repeat(10);
        let name = longest.clone();
        let registry = Registry::new().workflow_fn(&name, |_: Workflow, (): ()| async move { Ok::<_, Error>(()) });
        let world = setup.serve(registry).await;
        world.begin(&longest, "one", &()).await;
        world.end(&longest, "one").await;
        for wrong in ["", "A", "a.b", "a b", "\u{e4}", &format!("{longest}x")] {
            assert!(WorkflowName::new(wrong).is_err() && Namespace::new(wrong).is_err() && Pool::new(wrong).is_err(), "{wrong:?}");
            assert!(everstep_protocol::BuildName::new(wrong).is_err(), "{wrong:?}");
            let registry = Registry::new().workflow_fn(wrong, |_: Workflow, (): ()| async move { Ok::<_, Error>(()) });
            assert!(registry.validate().is_err(), "{wrong:?}");
        }
    }
}

on_both! {
    async fn w17_starts_that_came_while_no_coordinator_ran_are_kept(setup) {
        let mut world = setup.serve(echo()).await;
        world.publish(r#"{"workflow":"echo","id":"first"}"#, json("first")).await;
        world.end("echo", "first").await;
        world.crash_coordinator(0).await;
        for number in 0..20 {
            world.publish(format!(r#"{{"workflow":"echo","id":"e-{number}"}}"#), json(&format!("m-{number}"))).await;
        }
        world.add_coordinator().await;
        within("21 ends", DEADLINE, world.ends().count(21)).await;
        let view = world.view("echo", "e-3").await.expect("it exists");
        assert_eq!(view.status, StatusWord::Complete);
    }
}
