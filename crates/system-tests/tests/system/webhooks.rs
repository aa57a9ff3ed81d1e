//! Webhooks and schemas on whole systems: what the code gets of a request, who answers it, and what is refused before it is kept
//! (rules H57, H58). Not here: which headers are let through and which answers are refused, which the units say.

use std::{net::SocketAddr, time::Duration};

use everstep::{Error, Hook, Registry, Step, WebhookMethod, WebhookResponse, Workflow};
use everstep_broker::Properties;
use everstep_coordinator::{Handle, WebhookAnswer, WebhookCall, http};
use everstep_protocol::{
    Millis, Namespace,
    journal::{Entry, Fact, Wait},
};
use everstep_store::StatusWord;
use everstep_system_tests::{Kind, Setup, World, on_both};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The API of one coordinator, over TCP.
struct Api {
    address: SocketAddr,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Api {
    async fn of(handle: Handle) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        Self { address, serving: tokio::spawn(http::serve(listener, handle, std::future::pending())) }
    }

    async fn ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.expect("it answers");
        let headers: String = headers.iter().flat_map(|header| [*header, "\r\n"]).collect();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{headers}", self.address);
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).await.expect("it takes it");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it answers");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }
}

/// Answers as many requests of one webhook as it is told, each after a step.
fn cashier() -> Registry {
    Registry::new().workflow_fn("cashier", |cx: Workflow, (token, count): (String, usize)| async move {
        let methods = [WebhookMethod::Post, WebhookMethod::Put];
        let webhook = cx.webhook("payment").token(token).methods(methods).replying().create()?;
        let mut seen = Vec::new();
        for _ in 0..count {
            let request = webhook.next().await?;
            let order: Value = request.json()?;
            let number = cx
                .step("book", order, async |_: Step, order: Value| Ok::<_, Error>(order["n"].clone()))
                .await?;
            let shop = request.query_value("shop").unwrap_or_default().to_owned();
            let response = WebhookResponse::new(201).header("x-order", number.to_string());
            request.respond(response.json(&json!({ "booked": number, "shop": shop }))).await?;
            let twice = request.respond(WebhookResponse::new(500)).await.expect_err("it is answered");
            let secret = request.header("authorization").is_some() || request.header("cookie").is_some();
            seen.push(json!([
                request.method().word(),
                request.id(),
                request.header("X-Signature"),
                secret,
                twice.message()
            ]));
        }
        Ok::<_, Error>(seen)
    })
}

async fn waits(world: &World, workflow: &str, id: &str) {
    world.until(workflow, id, "it waits", |view| view.status == StatusWord::Waiting).await;
}

fn call(token: &str, id: &str, body: &Value) -> WebhookCall {
    WebhookCall::post(token).expect("a token").id(id).json(body)
}

/// Whether the entry answers a request.
fn answers(entry: &Entry) -> bool {
    matches!(&entry.fact, Fact::Opened(opened) if matches!(opened.wait, Wait::Reply(_)))
}

fn status(answer: &WebhookAnswer) -> u16 {
    match answer {
        WebhookAnswer::Response(response) => response.status,
        other => panic!("{other:?}"),
    }
}

on_both! {
    async fn h58_the_code_receives_the_request_and_answers_it_once(setup) {
        let world = setup.serve(cashier()).await;
        world.begin("cashier", "one", &("pay", 2)).await;
        waits(&world, "cashier", "one").await;
        let api = Api::of(world.handle()).await;
        let headers =
            ["content-type: application/json", "webhook-id: evt-1", "x-signature: abc", "authorization: Bearer s", "cookie: s"];
        let path = "/hooks/default/pay?shop=k%C3%B6ln%201";
        let answer = api.ask("PUT", path, &headers, r#"{"n":17}"#).await;
        assert_eq!((answer.status, answer.body.as_str()), (201, r#"{"booked":17,"shop":"köln 1"}"#));
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
        assert!(answer.head.contains("x-order: 17"), "{}", answer.head);

        // Sent again, signed anew: kept once, answered the same. The same id for something else is refused (rule H48).
        let again = ["content-type: application/json", "webhook-id: evt-1", "x-signature: def"];
        let answer = api.ask("PUT", path, &again, r#"{"n":17}"#).await;
        assert_eq!((answer.status, answer.body.as_str()), (201, r#"{"booked":17,"shop":"köln 1"}"#));
        let taken = api.ask("PUT", path, &again, r#"{"n":18}"#).await;
        assert!(taken.status == 409 && taken.body.contains("resume_id_taken"), "{}", taken.body);

        let wrong = api.ask("DELETE", "/hooks/default/pay", &[], "").await;
        assert_eq!(wrong.status, 405, "{}", wrong.body);
        assert!(wrong.head.contains("allow: post, put"), "{}", wrong.head);
        let large = format!("\"{}\"", "x".repeat(2 << 20));
        assert_eq!(api.ask("PUT", "/hooks/default/pay", &again, &large).await.status, 413);
        assert_eq!(api.ask("PUT", "/hooks/default/nobody", &again, "1").await.status, 404);

        let last = api.ask("POST", "/hooks/default/pay", &["content-type: application/json", "idempotency-key: 2"], r#"{"n":2}"#);
        assert_eq!(last.await.body, r#"{"booked":2,"shop":""}"#);
        let seen: Vec<Value> = world.end("cashier", "one").await.output();
        let firsts: Vec<Value> = seen.iter().map(|seen| json!([seen[0], seen[1], seen[2], seen[3]])).collect();
        assert_eq!(firsts, [json!(["PUT", "evt-1", "abc", false]), json!(["POST", "2", null, false])]);
        assert!(seen.iter().all(|seen| seen[4].as_str().is_some_and(|why| why.contains("answered before"))), "{seen:?}");
        assert_eq!(api.ask("POST", "/hooks/default/pay", &[], "1").await.status, 404, "its run has ended");
    }

    async fn h58_an_answer_comes_over_deaths_of_workers_and_is_on_record_once(setup) {
        let mut world = setup.serve(cashier()).await;
        world.begin("cashier", "one", &("pay", 6)).await;
        waits(&world, "cashier", "one").await;
        let mut worker = 0;
        for number in 0..6_u64 {
            let request = call("pay", &number.to_string(), &json!({ "n": number }));
            let handle = world.handle();
            let calling = tokio::spawn(async move { handle.webhook(&request).await.expect("it is decided") });
            if number % 2 == 1 {
                world.crash_worker(worker).await;
                worker = world.add_worker(cashier()).await;
            }
            let answer = calling.await.expect("it ends");
            let body = answer.response().and_then(|response| response.body.clone());
            assert_eq!(body, Some(json!({ "booked": number, "shop": "" }).to_string()));
        }
        world.end("cashier", "one").await;
        let journal = world.journal("cashier", "one").await;
        assert_eq!(journal.iter().filter(|entry| answers(entry)).count(), 6);
    }

    async fn h58_a_request_without_an_answer_in_time_is_accepted_and_safe(setup) {
        let registry = Registry::new().workflow_fn("slow", |cx: Workflow, (): ()| async move {
            let webhook = cx.webhook("slow").token("slow").replying().create()?;
            let first = webhook.next().await?;
            cx.event::<()>("go").timeout("5 min").await?;
            first.respond(WebhookResponse::new(200).text("late")).await?;
            // This one ends without an answer.
            webhook.next().await?.text()
        });
        let setup = setup.coordinator(|settings| settings.webhook_reply_within = Millis(200));
        let world = setup.serve(registry).await;
        world.begin("slow", "one", &()).await;
        waits(&world, "slow", "one").await;
        let request = call("slow", "1", &json!("one"));
        assert_eq!(status(&world.handle().webhook(&request).await.expect("it is decided")), 202);
        world.send("slow", "one", ("1", "go"), &()).await;
        world
            .eventually("the late answer is on record", async || {
                world.journal("slow", "one").await.iter().any(answers)
            })
            .await;
        let again = world.handle().webhook(&request).await.expect("it is decided");
        assert_eq!(status(&again), 200, "it is there for who asks again");
        let last = call("slow", "2", &json!("two"));
        assert_eq!(status(&world.handle().webhook(&last).await.expect("it is decided")), 202);
        assert_eq!(world.end("slow", "one").await.output::<String>(), "\"two\"");
    }

    async fn h57_what_does_not_fit_the_schema_is_refused_and_wakes_nobody(setup) {
        let schema = json!({ "type": "object", "properties": { "cents": { "type": "integer" } }, "required": ["cents"] });
        let registry = Registry::new().workflow_fn("strict", move |cx: Workflow, (): ()| {
            let schema = schema.clone();
            async move {
                let hook: Hook<Value> = cx.hook("order").token("order").schema(&schema).create()?;
                let webhook = cx.webhook("web").token("web").schema(&schema).create()?;
                Ok::<_, Error>((hook.next().await?, hook.next().await?, webhook.next().await?.json::<Value>()?))
            }
        });
        let registry = registry.workflow_fn("teller", |cx: Workflow, token: String| async move {
            let told = cx.resume_hook("tell", &token, json!({ "cents": token.len() > 3 })).await;
            let told = told.err().map(|error| (error.name().to_owned(), error.message().to_owned()));
            Ok::<_, Error>(told)
        });
        let world = setup.serve(registry).await;
        world.begin("strict", "one", &()).await;
        waits(&world, "strict", "one").await;
        let before = world.view("strict", "one").await.expect("it is there").position;
        let api = Api::of(world.handle()).await;
        let json_type = ["content-type: application/json", "idempotency-key: r-1"];
        let resume = "/v1/default/hooks/order/resume";
        for (path, body, named) in [
            (resume, r#"{"cents":"4711"}"#, "/properties/cents/type"),
            (resume, "{}", "/required"),
            // What its code gets is a request, and this would be none.
            ("/v1/default/hooks/web/resume", r#"{"cents":1}"#, "/hooks/default/web"),
            ("/hooks/default/web", r#"{"cents":1.5}"#, "/cents"),
        ] {
            let refused = api.ask("POST", path, &json_type, body).await;
            assert!(refused.status == 422 && refused.body.contains("payload_misfit"), "{}", refused.body);
            assert!(refused.body.contains(named) && refused.body.contains(r#""retry_safe":false"#), "{}", refused.body);
            assert!(!refused.body.contains("4711"), "{}", refused.body);
        }
        // By message too, where it is a rejected one.
        let message = |id: &str| Properties {
            message_id: Some(id.to_owned()),
            content_type: Some("application/json".to_owned()),
            ..Properties::default()
        };
        world.publish_event(r#"{"token":"order","payload":{"cents":null}}"#, message("m-1")).await;
        world.eventually("it is rejected", async || {
            let rejected = world.store().rejected(&Namespace::default(), 10).await.expect("they are listed");
            rejected.iter().any(|row| row.code == "payload_misfit" && row.reason.contains("/cents"))
        }).await;
        world.publish_event(r#"{"token":"web","payload":{"cents":1}}"#, message("m-3")).await;
        world.eventually("it is rejected", async || {
            let rejected = world.store().rejected(&Namespace::default(), 10).await.expect("they are listed");
            rejected.iter().any(|row| row.code == "payload_misfit" && row.reason.contains("/hooks/default/web"))
        }).await;
        // By workflow code as well.
        for (token, named) in [("order", "/cents"), ("web", "/hooks/default/web")] {
            world.begin("teller", token, &token).await;
            let (name, message): (String, String) = world.end("teller", token).await.output();
            assert!(name == "PayloadMisfit" && message.contains(named), "{name}: {message}");
        }
        let view = world.view("strict", "one").await.expect("it is there");
        assert_eq!((view.position, view.status), (before, StatusWord::Waiting), "nothing was kept, nobody was woken");

        // The refused id is free: nothing was kept under it.
        assert_eq!(api.ask("POST", resume, &json_type, r#"{"cents":1}"#).await.status, 202);
        world.publish_event(r#"{"token":"order","payload":{"cents":2}}"#, message("m-2")).await;
        assert_eq!(api.ask("POST", "/hooks/default/web", &json_type, r#"{"cents":3}"#).await.status, 202);
        let output: Vec<Value> = world.end("strict", "one").await.output();
        assert_eq!(output, [json!({ "cents": 1 }), json!({ "cents": 2 }), json!({ "cents": 3 })]);
    }

    async fn h57_a_schema_that_cannot_be_used_fails_the_awaits_of_its_hook(setup) {
        let registry = Registry::new().workflow_fn("wrong", |cx: Workflow, (): ()| async move {
            let hook: Hook<Value> = cx.hook("order").schema(&json!({ "type": "no such type" })).create()?;
            match hook.next().await {
                Err(error) => Ok::<_, Error>(error.message().to_owned()),
                Ok(payload) => panic!("{payload}"),
            }
        });
        let world = setup.serve(registry).await;
        world.begin("wrong", "one", &()).await;
        let refused: String = world.end("wrong", "one").await.output();
        assert!(refused.contains("schema") && refused.contains("refused again"), "{refused}");
    }
}

/// Two coordinators: whichever has the caller, whichever takes the report that answers it. Each caller is answered, long before the
/// time that it would wait at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h58_the_answer_reaches_whoever_waits_at_another_coordinator() {
    let world = Setup::new(Kind::Fleet).coordinators(2).serve(cashier()).await;
    for id in ["a", "b", "c", "d"] {
        world.begin("cashier", id, &(format!("pay-{id}"), 2)).await;
        waits(&world, "cashier", id).await;
        for coordinator in 0..2 {
            let request = call(&format!("pay-{id}"), &coordinator.to_string(), &json!({ "n": coordinator }));
            let handle = world.handle_of(coordinator);
            let answer = tokio::time::timeout(Duration::from_secs(20), handle.webhook(&request)).await;
            assert_eq!(status(&answer.expect("long before the 30 s").expect("it is decided")), 201);
        }
        world.end("cashier", id).await;
    }
}
