//! What the guide on webhooks says, done (rules H57, H58); and that each of its samples stands in code that compiles.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

mod support;

use everstep::{WebhookMethod, embedded::Uncarried};
use everstep_examples::webhooks::{Payment, checking, counting, paying, quoting};
use everstep_testkit::{Kit, Run, Status, TestKit, WebhookAnswer, WebhookCall};

const GUIDE: &str = include_str!("../../docs/guides/webhooks.md");
const CODE: [&str; 2] = [include_str!("../src/webhooks.rs"), include_str!("webhooks.rs")];

#[test]
fn every_sample_of_the_guide_is_code_that_compiles() {
    support::every_sample_is_in(GUIDE, &CODE, 5);
}

fn kit() -> TestKit {
    TestKit::new().workflow(paying).workflow(quoting).workflow(checking).workflow(counting)
}

async fn waiting<I: serde::Serialize + ?Sized>(kit: &Kit, workflow: &str, input: &I) -> Run {
    let run = kit.start_instance(workflow, input).await.unwrap();
    run.reaches(Status::Waiting).await.unwrap();
    run
}

fn body(answer: &WebhookAnswer) -> (u16, Option<&str>) {
    let response = answer.response().unwrap();
    (response.status, response.body.as_deref())
}

#[test]
fn h58_a_sender_is_answered_what_was_fixed() {
    kit().run(async |kit| {
        let run = waiting(&kit, "paying", &1_000).await;
        let address: String = run.state().await.unwrap().unwrap();
        let token = address.strip_prefix("/hooks/default/").unwrap().to_owned();
        let payment = WebhookCall::post(&token).unwrap().id("evt-1").json(&Payment { cents: 500 });
        let answer = kit.webhook(payment).await.unwrap();
        assert_eq!(body(&answer), (200, Some("thank you")));
        assert_eq!(run.result::<u64>().await.unwrap(), 1_500);
    });
}

#[test]
fn h58_each_caller_gets_an_answer_of_its_own() {
    kit().run(async |kit| {
        let run = waiting(&kit, "quoting", &7).await;
        for (pieces, price) in [("2", "14"), ("3", "21")] {
            let ask = WebhookCall::new(WebhookMethod::Get, "quotes").unwrap().query("pieces", pieces);
            assert_eq!(body(&kit.webhook(ask).await.unwrap()), (200, Some(price)));
        }
        let take = WebhookCall::post("quotes").unwrap().query("pieces", "3");
        assert_eq!(body(&kit.webhook(take).await.unwrap()), (201, Some("21")));
        assert_eq!(run.result::<u64>().await.unwrap(), 21);
    });
}

#[test]
fn h58_a_signature_is_checked_over_the_body_as_it_came() {
    kit().run(async |kit| {
        let run = waiting(&kit, "checking", &()).await;
        let sent = |signature: &str| {
            let call = WebhookCall::post("signed").unwrap().header("X-Signature", signature);
            call.header("content-type", "application/json").body("{ \"a\": 1 }")
        };
        assert_eq!(body(&kit.webhook(sent("wrong")).await.unwrap()), (202, None));
        assert_eq!(body(&kit.webhook(sent("10")).await.unwrap()), (202, None));
        assert_eq!(run.result::<String>().await.unwrap(), "{ \"a\": 1 }");
    });
}

#[test]
fn h57_the_schema_of_a_type_refuses_what_is_no_such_value() {
    kit().run(async |kit| {
        let run = waiting(&kit, "counting", "payments").await;
        for wrong in [
            serde_json::json!({}),
            serde_json::json!({ "cents": 0 }),
            serde_json::json!({ "cents": 1, "more": 2 }),
        ] {
            let refused = kit.resume("payments", &wrong).await.unwrap_err().to_string();
            assert!(refused.contains("does not fit the hook"), "{refused}");
        }
        kit.resume("payments", &Payment { cents: 5 }).await.unwrap().unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 5);

        let run = waiting(&kit, "paying", &1).await;
        let address: String = run.state().await.unwrap().unwrap();
        let token = address.strip_prefix("/hooks/default/").unwrap().to_owned();
        let wrong = WebhookCall::post(&token).unwrap().header("content-type", "application/json").body("{");
        assert!(matches!(kit.webhook(wrong).await.unwrap(), WebhookAnswer::Body(Uncarried::Json(_))));
        run.terminate("enough").await.unwrap();
    });
}
