//! Webhooks as workflow code sees them (rules H57, H58): what is recorded of one, what is read of a request, and that it is answered
//! once. Not: what becomes of a request on its way, nor who waits for the answer.

use everstep::host::{BodyState, Payload, Polled, Spec};
use everstep::{Error, Hook, WebhookMethod, WebhookResponse, Workflow};
use everstep_protocol::hook::{Carried, Registration, WebhookResponse as Said};
use everstep_protocol::journal::{Delivered, HookOutcome, Reply};
use everstep_protocol::{CallKind, EventType, Failure, HookId, Position, Run, Timestamp};
use serde_json::json;

use crate::driver::{Driver, calls, done};

const HOOK: HookId = HookId { run: Run(1), position: Position(2) };

fn registration(polled: &Polled) -> &Registration {
    match &polled.made[0].spec {
        Spec::Hook(hook) => hook,
        other => panic!("{other:?}"),
    }
}

fn reply(polled: &Polled) -> Reply {
    match &polled.made[0].spec {
        Spec::Reply(reply) => reply.clone(),
        other => panic!("{other:?}"),
    }
}

/// Why a body fails at once.
fn refused(mut driver: Driver) -> Failure {
    match driver.poll().state {
        BodyState::Done(Err(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

/// A body whose first call is a webhook, which it has, and whose second waits for this request.
fn called<Out, F, Fut>(function: F, request: &str) -> (Driver, Polled)
where
    Out: serde::Serialize,
    F: FnOnce(Workflow) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Out, Error>> + Send + 'static,
{
    let mut driver = Driver::new(function);
    driver.poll();
    assert!(driver.host.registered(0, HookOutcome::Owned { hook: HOOK, from: None }));
    let polled = driver.poll();
    let event = Delivered {
        call: polled.made[0].call.clone(),
        kind: EventType::of_hook(HOOK),
        sequence: 1,
        id: "r-1".to_owned(),
        key: None,
        received_at: Timestamp(9),
        payload: Payload::from_text(request).unwrap(),
    };
    driver.seen += 1;
    assert!(driver.host.deliver(polled.made[0].number, event));
    let polled = driver.poll();
    (driver, polled)
}

#[test]
fn h58_what_is_said_of_a_webhook_is_recorded() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let webhook = cx
            .webhook("pay")
            .token("t")
            .methods([WebhookMethod::Put, WebhookMethod::Get, WebhookMethod::Put])
            .raw_body()
            .schema(&json!({ "type": "object" }))
            .answering(WebhookResponse::new(200).json(&json!([1])).header("Content-Type", "text/x"))
            .create()?;
        webhook.next().await.map(|request| request.id().to_owned())
    });
    let polled = driver.poll();
    let asked = registration(&polled);
    let webhook = asked.webhook.clone().unwrap();
    assert_eq!(webhook.methods, [WebhookMethod::Get, WebhookMethod::Put]);
    assert_eq!((webhook.carries, webhook.manual), (Carried::RawRequest, false));
    let headers = vec![("Content-Type".to_owned(), "text/x".to_owned())];
    let body = Some("[1]".to_owned());
    assert_eq!(webhook.response(), Said { status: 200, headers, body, base64: false });
    assert_eq!(asked.schema.as_ref().map(Payload::as_str), Some(r#"{"type":"object"}"#));
}

#[test]
fn h57_h58_what_cannot_be_is_refused_where_it_is_created() {
    type Making = fn() -> WebhookResponse;
    let large = "x".repeat(64 << 10);
    let schemas = [json!(1), json!({ "$ref": "https://example.com/a" }), json!({ "title": large })];
    for schema in schemas {
        let driver = Driver::new(move |cx: Workflow| async move {
            cx.hook::<u64>("h").schema(&schema).create().map(|hook| hook.token().to_owned())
        });
        assert!(refused(driver).message.contains("schema"));
    }
    let wrong: [(Making, &str); 4] = [
        (|| WebhookResponse::new(99), "status 99"),
        (|| WebhookResponse::new(200).header("a b", "c"), "a b"),
        (|| WebhookResponse::new(200).text("x".repeat(300 << 10)), "the limit"),
        (
            || WebhookResponse::new(200).json(&std::collections::BTreeMap::from([((1, 2), 3)])),
            "body of the answer",
        ),
    ];
    for (response, named) in wrong {
        let driver = Driver::new(move |cx: Workflow| async move {
            cx.webhook("w").answering(response()).create().map(|webhook| webhook.token().to_owned())
        });
        let message = refused(driver).message;
        assert!(message.contains(named), "{message}");
    }
    let both = Driver::new(|cx: Workflow| async move {
        let webhook = cx.webhook("w").replying().answering(WebhookResponse::new(200)).create()?;
        Ok(webhook.token().to_owned())
    });
    assert!(refused(both).message.contains("fixed answer"));
}

#[test]
fn h58_the_body_of_a_request_is_read_as_the_code_likes() {
    let read = |request: &'static str| {
        let (_, polled) = called(
            |cx: Workflow| async move {
                let request = cx.webhook("w").create()?.next().await?;
                let json = request.json::<serde_json::Value>().map_err(|error| error.name().to_owned());
                let text = request.text().map_err(|error| error.name().to_owned());
                Ok((json, text, request.bytes()?))
            },
            request,
        );
        done::<(Result<serde_json::Value, String>, Result<String, String>, Vec<u8>)>(polled)
    };
    let misfit = || "WebhookBody".to_owned();
    assert_eq!(
        read(r#"{"id":"1","method":"POST","body":{"a":1},"encoding":"json"}"#),
        (Ok(json!({ "a": 1 })), Ok(r#"{"a":1}"#.to_owned()), br#"{"a":1}"#.to_vec())
    );
    assert_eq!(
        read(r#"{"id":"1","method":"POST","body":"{ \"a\": 1 }","encoding":"text"}"#),
        (Ok(json!({ "a": 1 })), Ok(r#"{ "a": 1 }"#.to_owned()), br#"{ "a": 1 }"#.to_vec())
    );
    assert_eq!(
        read(r#"{"id":"1","method":"POST","body":"/wA=","encoding":"base64"}"#),
        (Err(misfit()), Err(misfit()), vec![0xff, 0])
    );
    assert_eq!(read(r#"{"id":"1","method":"GET"}"#), (Ok(json!(null)), Ok(String::new()), Vec::new()));
}

#[test]
fn h58_a_request_is_answered_by_a_call_and_once() {
    let (mut driver, polled) = called(
        |cx: Workflow| async move {
            let request = cx.webhook("w").token("t").replying().create()?.next().await?;
            // One that is never awaited says nothing.
            let _unsaid = request.respond(WebhookResponse::new(500));
            let first = request.respond(WebhookResponse::new(201).bytes([0xff, 0]));
            first.await?;
            Ok(request.respond(WebhookResponse::new(202)).await.map_err(|error| error.message().to_owned()))
        },
        r#"{"id":"r-1","method":"POST"}"#,
    );
    assert_eq!(calls(&polled.made), [(CallKind::Reply, "w", 2)]);
    let said = reply(&polled);
    assert_eq!((said.token.as_str(), said.id.as_str()), ("t", "r-1"));
    assert_eq!(
        (said.response.status, said.response.body.as_deref(), said.response.base64),
        (201, Some("/wA="), true)
    );
    let polled = driver.feed(polled.made[0].number, ());
    let again = done::<Result<(), String>>(polled).unwrap_err();
    assert!(again.contains("answered before"), "{again}");
}

#[test]
fn h58_a_webhook_with_a_fixed_answer_is_not_answered_by_its_code() {
    let (_, polled) = called(
        |cx: Workflow| async move {
            let request = cx.webhook("w").create()?.next().await?;
            Ok(request.respond(WebhookResponse::new(200)).await.map_err(|error| error.message().to_owned()))
        },
        r#"{"id":"r-1","method":"POST"}"#,
    );
    let refused = done::<Result<(), String>>(polled).unwrap_err();
    assert!(refused.contains("replying()"), "{refused}");
}

#[test]
fn h09_a_schema_is_the_starts_to_say() {
    let driver = Driver::new(|cx: Workflow| async move {
        let hook: Hook<u64> = cx.hook("h").token("t").schema(&json!(true)).create()?;
        Ok(hook.token().to_owned())
    });
    driver.host.begin_with_hook(Some("t".parse().unwrap()));
    let message = refused(driver).message;
    assert!(message.contains("schema is refused"), "{message}");
}
