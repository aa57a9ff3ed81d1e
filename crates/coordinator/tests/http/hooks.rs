//! Hooks over HTTP: claimed by a start, looked up, resumed. No worker runs here, so nothing opens a hook: see the system tests.

use serde_json::json;

use crate::{
    INSTANCES,
    rig::{Answer, Rig},
};

const HOOK: &str = "/v1/default/hooks/order:17";

async fn resume(rig: &Rig, token: &str, id: &str, payload: &str) -> Answer {
    let headers = [("content-type", "application/json"), ("idempotency-key", id)];
    rig.ask("POST", &format!("/v1/default/hooks/{token}/resume"), &headers, payload).await
}

#[tokio::test]
async fn h01_h11_h32_a_start_claims_its_token_and_a_second_is_told_who_has_it() {
    let rig = Rig::new().await;
    let start = r#"{"id":"o-1","hook":{"token":"order:17","retention":"1 hour","metadata":{"shop":3}}}"#;
    assert_eq!(rig.post(INSTANCES, start).await.status, 201);
    // The same start again is the owner's own.
    assert_eq!(rig.post(INSTANCES, start).await.status, 200);
    let refused = rig.post(INSTANCES, r#"{"id":"o-2","hook":{"token":"order:17"}}"#).await;
    refused.problem(409, "hook_held");
    assert!(refused.json()["hint"].as_str().is_some_and(|hint| hint.contains("o-1")), "{}", refused.body);
    assert_eq!(refused.json()["owner"], json!({ "workflow": "fulfil", "id": "o-1" }));
    assert_eq!(rig.get(&format!("{INSTANCES}/o-2")).await.status, 404, "nothing of it is there (rule H03)");
    let held = rig.get(HOOK).await.json();
    assert_eq!(
        (&held["workflow"], &held["id"], &held["metadata"], &held["retained"]),
        (&json!("fulfil"), &json!("o-1"), &json!({ "shop": 3 }), &json!(null))
    );
    let page = rig.get("/v1/default/hooks?limit=1").await.json();
    assert_eq!((&page["hooks"][0]["token"], &page["next"]), (&json!("order:17"), &json!("order:17")));
    assert_eq!(rig.get("/v1/default/hooks?after=order:17").await.json()["hooks"], json!([]));
}

#[tokio::test]
async fn h16_h17_h18_a_retained_token_names_its_owner_and_takes_no_payload() {
    let rig = Rig::new().await;
    rig.post(INSTANCES, r#"{"id":"o-1","hook":{"token":"order:17","retention":"1 hour"}}"#).await;
    rig.post(&format!("{INSTANCES}/o-1/terminate"), "{}").await;
    assert_eq!(rig.get(HOOK).await.json()["retained"], json!(true));
    resume(&rig, "order:17", "r-1", "1").await.problem(404, "hook_not_found");
    rig.post(INSTANCES, r#"{"id":"o-2","hook":{"token":"order:17"}}"#).await.problem(409, "hook_held");

    // Without a retention it is free at once (rule H12).
    rig.post(INSTANCES, r#"{"id":"p-1","hook":{"token":"plain"}}"#).await;
    rig.post(&format!("{INSTANCES}/p-1/terminate"), "{}").await;
    rig.get("/v1/default/hooks/plain").await.problem(404, "hook_not_found");
    assert_eq!(rig.post(INSTANCES, r#"{"id":"p-2","hook":{"token":"plain"}}"#).await.status, 201);
}

#[tokio::test]
async fn h05_h46_h48_a_resume_is_kept_once_and_says_who_has_it() {
    let rig = Rig::new().await;
    rig.post(INSTANCES, r#"{"id":"o-1","hook":{"token":"order:17"}}"#).await;
    for _ in 0..2 {
        let kept = resume(&rig, "order:17", "r-1", r#"{"paid":true}"#).await;
        assert_eq!(kept.status, 202, "{}", kept.body);
        assert_eq!(kept.json(), json!({ "workflow": "fulfil", "id": "o-1", "resume": "r-1" }));
    }
    let taken = resume(&rig, "order:17", "r-1", "2").await;
    assert!(taken.problem(409, "resume_id_taken").contains("r-1"));
    resume(&rig, "nobody", "r-2", "1").await.problem(404, "hook_not_found");
    assert!(resume(&rig, "order:17", "r-3", "{").await.problem(422, "input").contains("payload"));
    let large = format!("\"{}\"", "x".repeat(2 << 20));
    resume(&rig, "order:17", "r-4", &large).await.problem(413, "too_large");
    // Only a hook that its workflow made a webhook can be resumed by anybody (rule H10).
    let anybody = rig.post("/hooks/default/order:17", "1").await;
    anybody.problem(404, "hook_not_found");
}

#[tokio::test]
async fn h30_h54_what_is_wrong_with_a_hook_is_named_and_nothing_is_created() {
    let rig = Rig::new().await;
    for (hook, status, code, named) in [
        (r#"{"token":""}"#, 400, "name", "token"),
        (r#"{"token":"t","retention":"0s"}"#, 400, "body", "retention 0"),
        (r#"{"token":"t","retention":"400 days"}"#, 422, "rejected", "retention"),
    ] {
        let refused = rig.post(INSTANCES, &format!(r#"{{"id":"o-1","hook":{hook}}}"#)).await;
        let detail = refused.problem(status, code);
        assert!(detail.contains(named), "{hook}: {detail}");
    }
    let long = format!(r#"{{"id":"o-1","hook":{{"token":"{}"}}}}"#, "x".repeat(257));
    assert!(rig.post(INSTANCES, &long).await.problem(400, "name").contains("256"));
    let unknown = rig.post(INSTANCES, r#"{"id":"o-1","hook":{"token":"t","colour":1}}"#).await;
    assert_eq!(unknown.status / 100, 4, "{}", unknown.body);
    assert_eq!(rig.get(&format!("{INSTANCES}/o-1")).await.status, 404);
}

#[tokio::test]
async fn h57_the_hook_of_a_start_has_its_schema() {
    let rig = Rig::new().await;
    let start = |schema: &str| format!(r#"{{"id":"o-1","hook":{{"token":"order:17","schema":{schema}}}}}"#);
    for (schema, named) in [
        (r#"{"type":"no such type"}"#, "no JSON Schema"),
        (r#"{"$ref":"https://example.com/a"}"#, "example.com"),
        ("[]", "no object"),
        (&format!(r#""{}""#, "x".repeat(65 << 10)), "65536"),
    ] {
        let refused = rig.post(INSTANCES, &start(schema)).await;
        // A body as large as that may be refused before it is read.
        if refused.status != 413 {
            assert!(refused.problem(422, "hook").contains(named), "{}", refused.body);
        }
        assert_eq!(rig.get(&format!("{INSTANCES}/o-1")).await.status, 404, "nothing was created");
    }
    let schema = r#"{"properties":{"cents":{"type":"integer"}}}"#;
    assert_eq!(rig.post(INSTANCES, &start(schema)).await.status, 201);
    assert_eq!(rig.get(HOOK).await.json()["schema"].to_string(), schema);
    let refused = resume(&rig, "order:17", "r-1", r#"{"cents":"4711"}"#).await;
    let detail = refused.problem(422, "payload_misfit");
    assert!(detail.contains("/cents") && detail.contains("/properties/cents/type"), "{detail}");
    assert_eq!((refused.body.contains("4711"), &refused.json()["retry_safe"]), (false, &json!(false)));
    // Nothing was kept under its id.
    assert_eq!(resume(&rig, "order:17", "r-1", r#"{"cents":1}"#).await.status, 202);
}
