//! Hooks on whole systems: who owns a token, and whom a payload reaches. Not here: each rule by itself (the engine's, the stores' and
//! the SDK's tests), and the five policies (the examples').

use std::time::Duration;

use everstep::{Error, Hook, Registry, Step, Workflow};
use everstep_broker::Properties;
use everstep_coordinator::{ResumeRequest, Resumed, http};
use everstep_engine::{Writes, hook::HookRow, rows::Needs};
use everstep_protocol::{
    HookId, InstanceUid, Namespace, Payload, Position, Run, Timestamp, Token, hook::StartHook,
    journal::Other, start::StartOutcome,
};
use everstep_store::StatusWord;
use everstep_system_tests::{World, on_both};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

fn token(text: &str) -> Token {
    Token::new(text).expect("a valid token")
}

/// Reads so many payloads of the hook with this token, a step after each.
fn reader(count: usize) -> Registry {
    Registry::new().workflow_fn("reader", move |cx: Workflow, name: String| async move {
        let hook: Hook<u64> = cx.hook("orders").token(name).create()?;
        if let Some(owner) = hook.conflict().await? {
            return Err(Error::permanent(owner.id().to_string()).named("Duplicate"));
        }
        let mut got = Vec::new();
        for _ in 0..count {
            let number = hook.next().await?;
            got.push(cx.step("keep", number, async |_: Step, n: u64| Ok::<_, Error>(n)).await?);
        }
        Ok(got)
    })
}

async fn resume(world: &World, name: &str, id: &str, payload: &str) -> Resumed {
    let payload = Payload::from_text(payload).expect("it is JSON");
    let request =
        ResumeRequest { namespace: Namespace::default(), token: token(name), id: id.to_owned(), payload };
    world.handle().resume_hook(request).await.expect("it is decided")
}

fn accepted(resumed: &Resumed) -> &str {
    match resumed {
        Resumed::Accepted { owner, .. } => owner.id.as_str(),
        other => panic!("{other:?}"),
    }
}

/// Waits until the instance waits for a payload.
async fn waits(world: &World, id: &str) {
    world.until("reader", id, "it waits", |view| view.status == StatusWord::Waiting).await;
}

async fn numbers(world: &World, id: &str) -> Vec<u64> {
    world.end("reader", id).await.output()
}

on_both! {
    async fn h05_h06_payloads_that_come_before_any_worker_are_read_in_order(setup) {
        let mut world = setup.start().await;
        let mut request = world.request("reader", Some("one"), "t");
        request.hook = Some(StartHook::new(token("t")));
        assert_eq!(world.handle().start(request.clone()).await.expect("it is decided").outcome, StartOutcome::Created);
        let second = everstep_coordinator::StartRequest { id: Some("two".parse().expect("an id")), ..request };
        let other = world.handle().start(second).await.expect("it is decided");
        assert_eq!((other.outcome, other.owner.map(|owner| owner.id.to_string())), (StartOutcome::Conflict, Some("one".to_owned())));
        for number in 0..10 {
            assert_eq!(accepted(&resume(&world, "t", &number.to_string(), &number.to_string()).await), "one");
        }
        assert_eq!(resume(&world, "t", "3", "4").await, Resumed::IdTaken);
        world.add_worker(reader(10)).await;
        assert_eq!(numbers(&world, "one").await, (0..10).collect::<Vec<_>>());
        assert_eq!(resume(&world, "t", "late", "1").await, Resumed::NotFound);
    }

    async fn h41_h42_each_payload_comes_once_over_deaths_of_workers(setup) {
        let mut world = setup.serve(reader(8)).await;
        world.begin("reader", "one", "t").await;
        waits(&world, "one").await;
        let mut worker = 0;
        for number in 0..8_u64 {
            if number % 3 == 2 {
                world.crash_worker(worker).await;
                worker = world.add_worker(reader(8)).await;
            }
            let text = number.to_string();
            assert_eq!(accepted(&resume(&world, "t", &text, &text).await), "one");
        }
        assert_eq!(numbers(&world, "one").await, (0..8).collect::<Vec<_>>());
    }

    async fn t14_t15_h12_h37_of_two_live_runs_the_second_fails_and_after_the_end_the_token_is_free(setup) {
        let world = setup.serve(reader(1)).await;
        world.begin("reader", "one", "t").await;
        waits(&world, "one").await;
        world.begin("reader", "two", "t").await;
        let failed = world.end("reader", "two").await;
        assert_eq!((failed.error().name.as_str(), failed.error().message.as_str()), ("Duplicate", "one"));
        assert_eq!(accepted(&resume(&world, "t", "1", "7").await), "one");
        assert_eq!(numbers(&world, "one").await, [7]);
        world.begin("reader", "three", "t").await;
        waits(&world, "three").await;
        assert_eq!(accepted(&resume(&world, "t", "1", "8").await), "three");
        assert_eq!(numbers(&world, "three").await, [8]);
    }

    async fn t16_h21_h22_a_token_that_is_let_go_of_is_free_while_its_run_goes_on(setup) {
        let registry = reader(1).workflow_fn("brief", |cx: Workflow, name: String| async move {
            let hook: Hook<u64> = cx.hook("orders").token(name).create()?;
            let first = hook.next().await?;
            hook.dispose().await;
            cx.event::<()>("go").timeout("5 min").await?;
            Ok::<_, Error>(first)
        });
        let world = setup.serve(registry).await;
        world.begin("brief", "one", "t").await;
        world.until("brief", "one", "it waits", |view| view.status == StatusWord::Waiting).await;
        assert_eq!(accepted(&resume(&world, "t", "1", "7").await), "one");
        world.eventually("the token is free", async || resume(&world, "t", "2", "8").await == Resumed::NotFound).await;
        world.begin("reader", "two", "t").await;
        waits(&world, "two").await;
        assert_eq!(accepted(&resume(&world, "t", "3", "9").await), "two");
        assert_eq!(numbers(&world, "two").await, [9]);
        world.send("brief", "one", ("1", "go"), &()).await;
        assert_eq!(world.end("brief", "one").await.output::<u64>(), 7);
    }

    async fn h45_a_message_from_any_producer_resumes_a_hook(setup) {
        let world = setup.serve(reader(2)).await;
        world.begin("reader", "one", "t").await;
        waits(&world, "one").await;
        let message = |id: &str| Properties {
            message_id: Some(id.to_owned()),
            content_type: Some("application/json".to_owned()),
            ..Properties::default()
        };
        world.publish_event(r#"{"token":"t","payload":7}"#, message("m-1")).await;
        world.publish_event(r#"{"token":"t","payload":7}"#, message("m-1")).await;
        world.publish_event(r#"{"token":"nobody","payload":7}"#, message("m-2")).await;
        world.publish_event(r#"{"token":"t","payload":8}"#, message("m-3")).await;
        assert_eq!(numbers(&world, "one").await, [7, 8]);
    }

    async fn h59_h60_h61_the_newest_claim_wins_and_the_one_before_is_told(setup) {
        let registry = Registry::new().workflow_fn("newest", |cx: Workflow, name: String| async move {
            let hook: Hook<u64> = cx.hook("orders").token(name).force().create()?;
            hook.conflict().await?;
            let mut got = Vec::new();
            loop {
                match hook.next().await {
                    Ok(0) => return Ok::<_, Error>(format!("{got:?}")),
                    Ok(number) => got.push(number),
                    Err(error) => match error.hook_taken() {
                        Some(taken) => return Ok(format!("{got:?} then {}", taken.claimant.id)),
                        None => return Err(error),
                    },
                }
            }
        });
        let world = setup.coordinators(1).serve(registry).await;
        let waits = async |id: &str| {
            world.until("newest", id, "it waits", |view| view.status == StatusWord::Waiting).await;
        };
        world.begin("newest", "one", "t").await;
        waits("one").await;
        assert_eq!(accepted(&resume(&world, "t", "1", "1").await), "one");
        world.begin("newest", "two", "t").await;
        assert_eq!(world.end("newest", "one").await.output::<String>(), "[1] then two");
        waits("two").await;
        assert_eq!(accepted(&resume(&world, "t", "2", "2").await), "two");
        world.begin("newest", "three", "t").await;
        assert_eq!(world.end("newest", "two").await.output::<String>(), "[2] then three");
        waits("three").await;
        assert_eq!(accepted(&resume(&world, "t", "3", "0").await), "three");
        assert_eq!(world.end("newest", "three").await.output::<String>(), "[]");
    }

    /// A start with a token and a resume by token, in workflow code, while a worker dies: one is started, and all others reach it.
    async fn h28_h33_h48_of_many_workflows_one_starts_the_run_and_the_others_are_routed_to_it(setup) {
        let registry = || reader(11).workflow_fn("route", |cx: Workflow, number: u64| async move {
            for _ in 0..3 {
                let start = cx.child::<()>("start", "reader", "t").token("t").retention("1 day").detached().start();
                match start.await {
                    Ok(started) => return Ok((true, started.id().to_owned())),
                    Err(error) if error.hook_conflict().is_some() => {}
                    Err(error) => return Err(error),
                }
                if let Some(owner) = cx.resume_hook("tell", "t", number).await? {
                    return Ok((false, owner.id().to_owned()));
                }
            }
            Err(Error::permanent("the token went from hand to hand"))
        });
        let mut world = setup.serve(registry()).await;
        for number in 0..12_u64 {
            world.begin("route", &format!("r-{number}"), &number).await;
            if number == 5 {
                world.crash_worker(0).await;
                world.add_worker(registry()).await;
            }
        }
        let (mut started, mut told, mut ids) = (Vec::new(), Vec::new(), std::collections::BTreeSet::new());
        for number in 0..12_u64 {
            let (has_started, id) = world.end("route", &format!("r-{number}")).await.output::<(bool, String)>();
            if has_started { started.push(number) } else { told.push(number) }
            ids.insert(id);
        }
        assert_eq!((started.len(), ids.len()), (1, 1), "{ids:?}");
        let mut got = numbers(&world, ids.first().expect("one was started")).await;
        got.sort_unstable();
        assert_eq!(got, told, "each payload comes once");
    }

    /// The resume id of a message is its id among those of its application.
    async fn h48_two_producers_that_count_alike_are_apart(setup) {
        let world = setup.serve(reader(3)).await;
        world.begin("reader", "one", "t").await;
        waits(&world, "one").await;
        let message = |app: Option<&str>| Properties {
            message_id: Some("1".to_owned()),
            app_id: app.map(str::to_owned),
            content_type: Some("application/json".to_owned()),
            ..Properties::default()
        };
        for (app, payload) in [(Some("shop"), 7), (Some("shop"), 7), (Some("crm"), 8), (None, 9)] {
            world.publish_event(format!(r#"{{"token":"t","payload":{payload}}}"#), message(app)).await;
        }
        assert_eq!(numbers(&world, "one").await, [7, 8, 9]);
    }

    /// The answer that a claimant is owed that was deleted meanwhile may be long under way. Till then its row is nobody's.
    async fn h32_h55_a_token_that_was_handed_to_nobody_is_free_for_starts_and_bodies(setup) {
        let world = setup.serve(reader(1)).await;
        let hooks = ["t", "u"].map(|text| {
            let row = HookRow {
                owner: InstanceUid::generate(),
                name: Other { workflow: "reader".parse().expect("a name"), id: "gone".parse().expect("an id") },
                id: HookId { run: Run(1), position: Position(2) },
                since: Timestamp(1),
                retain_until: None,
                ended: false,
                webhook: None,
                metadata: None,
                from: None,
                schema: None,
                unheard: false,
            };
            ((Namespace::default(), token(text)), row)
        });
        let writes = Writes { hooks: hooks.to_vec(), ..Writes::default() };
        world.store().transact(Needs::default(), Box::new(move |_| writes)).await.expect("it is written");
        let mut request = world.request("reader", Some("one"), "t");
        request.hook = Some(StartHook::new(token("t")));
        let handle = world.handle();
        let started = tokio::time::timeout(Duration::from_secs(20), handle.start(request));
        assert_eq!(started.await.expect("nothing conflicts").expect("it is decided").outcome, StartOutcome::Created);
        world.begin("reader", "two", "u").await;
        waits(&world, "two").await;
        for (text, id) in [("t", "one"), ("u", "two")] {
            assert_eq!(accepted(&resume(&world, text, "1", "7").await), id);
            assert_eq!(numbers(&world, id).await, [7]);
        }
    }

    async fn t20_h58_a_webhook_answers_anybody_as_its_workflow_says(setup) {
        let registry = Registry::new().workflow_fn("web", |cx: Workflow, (): ()| async move {
            let plain: Hook<serde_json::Value> = cx.hook("plain").webhook().create()?;
            let polite: Hook<u64> = cx.hook("polite").webhook_answering(200, "thanks").create()?;
            cx.publish(&[plain.token(), polite.token()])?;
            Ok::<_, Error>((plain.next().await?, polite.next().await?))
        });
        let world = setup.serve(registry).await;
        world.begin("web", "one", &()).await;
        let shown = |view: &everstep_store::InstanceView| view.status == StatusWord::Waiting && view.state.is_some();
        world.until("web", "one", "it waits", shown).await;
        let state = world.view("web", "one").await.and_then(|view| view.state).expect("it published its tokens");
        let [plain, polite]: [String; 2] = state.1.decode().expect("they are texts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        let serving = tokio::spawn(http::serve(listener, world.handle(), std::future::pending()));
        let post = async |name: &str, body: &str| {
            let mut stream = TcpStream::connect(address).await.expect("it answers");
            let head = format!(
                "POST /hooks/default/{name} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n"
            );
            let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(request.as_bytes()).await.expect("it takes it");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("it answers");
            let status = answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
            let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
            (status.expect("a status"), body.to_owned())
        };
        assert_eq!(post("guessed", "1").await.0, 404);
        assert_eq!(post(&plain, r#"{"paid":true}"#).await, (202, String::new()));
        assert_eq!(post(&polite, "7").await, (200, "thanks".to_owned()));
        let output: (serde_json::Value, u64) = world.end("web", "one").await.output();
        assert_eq!(output, (serde_json::json!({ "paid": true }), 7));
        assert_eq!(post(&plain, "1").await.0, 404, "its run has ended");
        serving.abort();
    }
}

/// Two coordinators on PostgreSQL: of 16 instances that create one token at once one owns it, and every other names that one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h36_of_many_that_create_a_token_at_once_one_owns_it() {
    let setup = everstep_system_tests::Setup::new(everstep_system_tests::Kind::Fleet).coordinators(2);
    let world = setup.serve(reader(1)).await;
    let ids: Vec<String> = (0..16).map(|number| format!("r-{number}")).collect();
    futures::future::join_all(ids.iter().map(|id| world.begin("reader", id, "t"))).await;
    let mut owner = None;
    world
        .eventually("somebody has the token", async || {
            let resumed = resume(&world, "t", "1", "7").await;
            owner = owner.take().or(match resumed {
                Resumed::Accepted { owner, .. } => Some(owner.id.to_string()),
                _ => None,
            });
            owner.is_some()
        })
        .await;
    let owner = owner.expect("it was found");
    for id in &ids {
        let ended =
            tokio::time::timeout(Duration::from_secs(40), world.end("reader", id)).await.expect("it ends");
        if *id == owner {
            assert_eq!(ended.output::<Vec<u64>>(), [7]);
        } else {
            assert_eq!(
                (ended.error().name.as_str(), ended.error().message.as_str()),
                ("Duplicate", owner.as_str())
            );
        }
    }
}
