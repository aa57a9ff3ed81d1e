//! Instances: rules P27, P28, P30, P35, P41, W4. Not here: HTTP (the coordinator's own tests).

use everstep::{Error, Registry, Retry, Step, Workflow};
use everstep_broker::Properties;
use everstep_engine::{Answer, Status, rows::WaitKind};
use everstep_protocol::{
    InstanceId, Namespace,
    journal::{End, Fact},
    start::StartOutcome,
};
use everstep_store::{Filter, StatusWord};
use everstep_system_tests::{Gate, Log, World, on_both};

fn echo() -> Registry {
    Registry::new()
        .workflow_fn("echo", |_: Workflow, input: serde_json::Value| async move { Ok::<_, Error>(input) })
}

async fn all(world: &World) -> Vec<String> {
    let page = world.store().instances(&Filter::default(), None, 100).await.expect("the store answers");
    page.rows.into_iter().map(|row| row.id.as_str().to_owned()).collect()
}

on_both! {
    async fn p27_a_start_is_decided_once_for_an_id(setup) {
        let world = setup.serve(echo()).await;
        let input = serde_json::json!({"a": 1, "b": [2.0, "x"]});
        let created = world.start("echo", "one", &input).await;
        assert_eq!((created.outcome, created.id.as_deref()), (StartOutcome::Created, Some("one")));
        world.end("echo", "one").await;
        // The canonical form decides, not the spelling.
        let same = everstep_protocol::Payload::from_text(r#"{ "b": [2, "\u0078"], "a": 1.0 }"#).expect("it is JSON");
        let mut request = world.request("echo", Some("one"), &());
        request.input = same;
        let exists = world.handle().start(request).await.expect("it is decided");
        assert_eq!((exists.outcome, exists.status.as_deref()), (StartOutcome::Exists, Some("complete")));
        let conflict = world.start("echo", "one", &serde_json::json!({"a": 2})).await;
        assert_eq!(conflict.outcome, StartOutcome::Conflict);
        assert_eq!(conflict.code.as_deref(), Some("conflict"));
        assert!(!conflict.retry_safe);
        let generated = world.handle().start(world.request("echo", None, &input)).await.expect("it is decided");
        let id = generated.id.expect("an id was generated");
        let uuid = uuid::Uuid::parse_str(&id).expect("it is a UUID");
        assert_eq!((generated.outcome, uuid.get_version_num()), (StartOutcome::Created, 7));
        assert_eq!(all(&world).await.len(), 2);
        for wrong in ["", "a b", "a/b", "\u{e4}", &"x".repeat(101)] {
            assert!(InstanceId::new(wrong).is_err(), "{wrong:?}");
        }
        let longest = "Aa0_-.:".repeat(15)[..100].to_owned();
        assert_eq!(world.start("echo", &longest, &input).await.outcome, StartOutcome::Created);
    }

    async fn p27_a_batch_starts_all_or_refuses_before_any(setup) {
        use everstep_coordinator::Error;
        let world = setup.coordinator(|settings| settings.limits.input_bytes = 100).start().await;
        let requests = |count: usize| {
            (0..count).map(|n| world.request("echo", Some(&format!("b-{n}")), &n)).collect::<Vec<_>>()
        };
        let mut bad = requests(3);
        bad[1].input = everstep_protocol::Payload::encode(&"x".repeat(99)).expect("it is text");
        let refused = world.handle().start_batch(bad).await;
        let Err(Error::BatchItem { index: 1, error }) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains("101 bytes") && error.to_string().contains("limit is 100"), "{error}");
        for count in [0, 1_001] {
            let refused = world.handle().start_batch(requests(count)).await;
            assert!(matches!(refused, Err(Error::BatchSize(size)) if size == count), "{refused:?}");
        }
        assert_eq!(all(&world).await.len(), 0, "nothing was started");

        world.begin("echo", "b-500", &500).await;
        world.begin("echo", "b-501", "another input").await;
        let mut batch = requests(999);
        batch.push(world.request("echo", Some("b-7"), &7));
        let replies = world.handle().start_batch(batch).await.expect("it is accepted");
        let ids: Vec<_> = replies.iter().map(|reply| reply.id.clone().expect("it has an id")).collect();
        assert_eq!(ids[..999], (0..999).map(|n| format!("b-{n}")).collect::<Vec<_>>());
        let of = |wanted: StartOutcome| {
            replies.iter().zip(0..).filter(|(reply, _)| reply.outcome == wanted).map(|(_, n)| n).collect::<Vec<_>>()
        };
        assert_eq!((of(StartOutcome::Exists), of(StartOutcome::Conflict)), (vec![500, 999], vec![501]));
        assert_eq!(of(StartOutcome::Created).len(), 997);
        assert!(world.view("echo", "b-998").await.is_some());
    }

    async fn p27_a_message_id_is_decided_once_for_each_app(setup) {
        let world = setup.serve(echo()).await;
        let properties = |app: &str, message: &str| Properties {
            message_id: Some(message.to_owned()),
            app_id: (!app.is_empty()).then(|| app.to_owned()),
            content_type: Some("application/json".to_owned()),
            ..Properties::default()
        };
        for (app, message) in [("shop", "m-1"), ("shop", "m-1"), ("till", "m-1"), ("", "m-1"), ("shop", "m-1"), ("shop", "m-2")] {
            world.publish(r#"{"workflow":"echo","input":1}"#, properties(app, message)).await;
        }
        everstep_system_tests::within("four ends", everstep_system_tests::DEADLINE, world.ends().count(4)).await;
        // A message behind all of them: when its instance ends, the others were decided.
        world.publish(r#"{"workflow":"echo","id":"last"}"#, properties("shop", "m-3")).await;
        world.end("echo", "last").await;
        assert_eq!(all(&world).await.len(), 5);
        // The same id and another input is a conflict, and stays one under its message id.
        world.publish(r#"{"workflow":"echo","id":"last","input":2}"#, properties("shop", "m-4")).await;
        world.eventually("the conflict is recorded", async || {
            let rejected = world.store().rejected(&Namespace::default(), 10).await.expect("the store answers");
            rejected.iter().any(|rejected| rejected.code == "conflict")
        }).await;
    }

    async fn p28_each_status_is_shown_with_its_reason(setup) {
        let gate = Gate::closed();
        let held = gate.clone();
        let registry = Registry::new().workflow_fn("all", move |cx: Workflow, (): ()| {
            let held = held.clone();
            async move {
                let held_ = held.clone();
                cx.step("hold", (), move |_: Step, (): ()| {
                    let held = held_.clone();
                    async move {
                        held.pass().await;
                        Ok::<_, Error>(())
                    }
                }).await?;
                cx.sleep("nap", "700ms").await?;
                let flaky = cx.step("flaky", (), |step: Step, (): ()| async move {
                    if step.attempt() == 1 { Err(Error::failed("no")) } else { Ok(()) }
                });
                flaky.retry(Retry::constant("700ms")).await?;
                let picture: u32 = cx.remote("picture", 4_u32).on("pictures").await?;
                if picture == 16 {
                    return Err(Error::permanent("sixteen is too many"));
                }
                Ok(picture)
            }
        });
        let mut world = setup.start().await;
        world.begin("all", "one", &()).await;
        let queued = world.view("all", "one").await.expect("it exists");
        assert_eq!((queued.status, queued.served), (StatusWord::Queued, false), "no worker serves it");
        assert!(queued.ready_at.is_some());
        world.add_worker(registry).await;
        let running = world.until("all", "one", "running", |view| view.status == StatusWord::Running).await;
        assert_eq!(running.holder.expect("somebody holds it").1.as_str(), "build-1");
        gate.open();
        for kind in [WaitKind::Sleep, WaitKind::Retry] {
            let waiting = world.until("all", "one", kind.word(), |view| {
                view.status == StatusWord::Waiting && view.waiting.first().is_some_and(|wait| wait.kind == kind)
            }).await;
            let due = waiting.waiting[0].due_at.expect("time ends it");
            assert_eq!(due.since(waiting.waiting[0].since).as_u64(), 700, "{waiting:?}");
            assert_eq!(waiting.waits, 1);
            assert!(waiting.holder.is_none());
        }
        let remote = world.until("all", "one", "remote step", |view| {
            view.status == StatusWord::Waiting && view.waiting.first().is_some_and(|wait| wait.kind == WaitKind::Remote)
        }).await;
        assert_eq!((remote.waiting[0].due_at, remote.waiting[0].call.name.as_str()), (None, "picture"));
        let pictures = Registry::new().function("picture", |_: Step, n: u32| async move { Ok::<_, Error>(n * n) });
        world.add_worker_with(pictures, |settings| {
            settings.pools = vec![everstep_protocol::Pool::new("pictures").expect("a valid name")];
        }).await;
        assert_eq!(world.end("all", "one").await.error().message, "sixteen is too many");
        let errored = world.view("all", "one").await.expect("it exists");
        assert_eq!(errored.status, StatusWord::Errored);
        assert!(matches!(errored.end, Some(End::Errored(_))) && errored.ended_at.is_some());
        // An operation that is not allowed says the status.
        assert_eq!(world.terminate("all", "one", "late").await, Answer::Refused(Status::Errored));
        assert_eq!(world.retry("all", "one", "again").await, Answer::Refused(Status::Errored));
        let filter = Filter { status: Some(StatusWord::Errored), ..Filter::default() };
        let page = world.store().instances(&filter, None, 10).await.expect("the store answers");
        assert_eq!(page.rows.len(), 1);
    }

    async fn p30_terminate_cancels_what_runs_and_refuses_its_late_report(setup) {
        let (log, late) = (Log::new(), Gate::closed());
        let (told, held) = (log.clone(), late.clone());
        let registry = Registry::new().workflow_fn("ends", move |cx: Workflow, sleeps: bool| {
            let (log, late) = (told.clone(), held.clone());
            async move {
                if sleeps {
                    cx.sleep("nap", "1 day").await?;
                }
                cx.step("hang", (), move |step: Step, (): ()| {
                    let (log, late) = (log.clone(), late.clone());
                    async move {
                        log.push("hang");
                        step.cancelled().await;
                        log.push("cancelled");
                        late.pass().await;
                        Ok::<_, Error>(())
                    }
                }).await
            }
        });
        let world = setup.serve(registry).await;
        world.begin("ends", "running", &false).await;
        log.reached("hang", 1).await;
        assert_eq!(world.terminate("ends", "running", "op-1").await, Answer::Done);
        log.reached("cancelled", 1).await;
        late.open();
        assert_eq!(world.end("ends", "running").await.status, "terminated");
        // W4: the same operation gets its first answer, another one is refused.
        assert_eq!(world.terminate("ends", "running", "op-1").await, Answer::Done);
        assert_eq!(world.terminate("ends", "running", "op-2").await, Answer::Refused(Status::Terminated));
        world.begin("ends", "waiting", &true).await;
        world.until("ends", "waiting", "sleeping", |view| view.status == StatusWord::Waiting).await;
        assert_eq!(world.terminate("ends", "waiting", "op-1").await, Answer::Done);
        let end = world.end("ends", "waiting").await;
        assert_eq!(end.status, "terminated");
        let view = world.view("ends", "waiting").await.expect("it exists");
        assert_eq!((view.status, view.waits), (StatusWord::Terminated, 0));
        assert!(matches!(view.end, Some(End::Terminated { reason: Some(reason) }) if reason == "a test"));
        for id in ["running", "waiting"] {
            let journal = world.journal("ends", id).await;
            assert!(matches!(journal.last().expect("it has entries").fact, Fact::Ended(End::Terminated { .. })), "nothing comes after the end");
            assert_eq!(world.attempts("ends", id).await.len(), 0);
        }
        assert_eq!(world.terminate("ends", "nobody", "op").await, Answer::NotFound);
    }

    async fn p30_queued_and_parked_instances_can_be_terminated(setup) {
        let registry = Registry::new().workflow_fn("breaks", |_: Workflow, (): ()| async move {
            std::future::ready(()).await;
            assert!(std::hint::black_box(false), "always");
            Ok::<_, Error>(())
        });
        let mut world = setup.start().await;
        world.begin("breaks", "queued", &()).await;
        assert_eq!(world.terminate("breaks", "queued", "op").await, Answer::Done);
        assert_eq!(world.end("breaks", "queued").await.status, "terminated");
        assert_eq!(world.retry("breaks", "queued", "r").await, Answer::Refused(Status::Terminated));
        world.add_worker(registry).await;
        world.begin("breaks", "parked", &()).await;
        world.until("breaks", "parked", "parked", |view| view.status == StatusWord::Attention).await;
        assert_eq!(world.terminate("breaks", "parked", "op").await, Answer::Done);
        assert_eq!(world.end("breaks", "parked").await.status, "terminated");
    }

    async fn p35_w15_an_unknown_workflow_waits_visibly_and_nothing_is_offered(setup) {
        let mut world = setup.start().await;
        for number in 0..20 {
            world.begin("echo", &format!("e-{number}"), &number).await;
        }
        let view = world.view("echo", "e-0").await.expect("it exists");
        assert_eq!((view.status, view.served), (StatusWord::Queued, false));
        let queue = "everstep.run.default.echo";
        let offered = world.broker().depth(queue).await.expect("the broker answers");
        assert!(matches!(offered, None | Some(0)), "nothing is offered: {offered:?}");
        world.add_worker(echo()).await;
        everstep_system_tests::within("20 ends", everstep_system_tests::DEADLINE, world.ends().count(20)).await;
        let view = world.view("echo", "e-0").await.expect("it exists");
        assert_eq!((view.status, view.served), (StatusWord::Complete, true));
    }

    async fn p41_retry_without_a_fix_parks_again_and_only_a_parked_one_can_be_retried(setup) {
        let registry = Registry::new()
            .workflow_fn("breaks", |_: Workflow, (): ()| async move {
                std::future::ready(()).await;
                assert!(std::hint::black_box(false), "always");
                Ok::<_, Error>(())
            })
            .workflow_fn("naps", |cx: Workflow, (): ()| async move { cx.sleep("nap", "1 hour").await });
        let world = setup.serve(registry).await;
        world.begin("breaks", "one", &()).await;
        let first = world.until("breaks", "one", "parked", |view| view.status == StatusWord::Attention).await;
        assert_eq!(world.retry("breaks", "one", "r-1").await, Answer::Done);
        world.until("breaks", "one", "parked again", |view| view.status == StatusWord::Attention && view.position > first.position).await;
        // W4: the operation was done once.
        let before = world.view("breaks", "one").await.expect("it exists").position;
        assert_eq!(world.retry("breaks", "one", "r-1").await, Answer::Done);
        assert_eq!(world.view("breaks", "one").await.expect("it exists").position, before);
        world.begin("naps", "one", &()).await;
        world.until("naps", "one", "sleeping", |view| view.status == StatusWord::Waiting).await;
        assert_eq!(world.retry("naps", "one", "r-1").await, Answer::NotParked);
    }
}
