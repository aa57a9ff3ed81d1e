//! Operations on many instances over HTTP (rule P33).

use everstep_protocol::{CoordinatorId, Millis};
use serde_json::{Value, json};

use crate::{INSTANCES, rig::Rig};

/// The duty of going on with bulk operations.
const DUTY: [&str; 1] = ["bulk"];

/// Waits until a bulk operation is over.
async fn over(rig: &Rig, id: &str) -> Value {
    loop {
        let bulk = rig.get(&format!("/v1/default/bulk/{id}")).await.json();
        if bulk["state"] != json!("running") {
            return bulk;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn p33_a_bulk_operation_is_counted_begun_and_shown() {
    let rig = Rig::new().await;
    for id in ["a", "b", "c"] {
        rig.post(INSTANCES, &json!({"id": id}).to_string()).await;
    }
    rig.post("/v1/default/workflows/other/instances", r#"{"id":"d"}"#).await;
    let bulk = "/v1/default/bulk";
    let count = rig
        .post(
            bulk,
            r#"{"operation":"terminate","where":{"workflow":"fulfil","status":"queued"},"dry_run":true}"#,
        )
        .await;
    let newest: Vec<Value> = ["c", "b", "a"].map(|id| json!({"workflow": "fulfil", "id": id})).into();
    let told = json!({"dry_run": true, "matched": 3, "complete": true, "newest": newest});
    assert_eq!((count.status, count.json()), (200, told));
    assert_eq!(rig.get(bulk).await.json(), json!({"operations": []}), "nothing was begun");

    let headers = [("content-type", "application/json"), ("idempotency-key", "b-1")];
    let body = r#"{"operation":"terminate","reason":"old","where":{"workflow":"fulfil"}}"#;
    for _ in 0..2 {
        let begun = rig.ask("POST", bulk, &headers, body).await;
        assert_eq!((begun.status, &begun.json()["id"]), (201, &json!("b-1")));
    }
    let done = over(&rig, "b-1").await;
    assert_eq!(
        (&done["state"], &done["operation"], &done["where"]),
        (&json!("done"), &json!("terminate"), &json!({"workflow": "fulfil"}))
    );
    assert_eq!([&done["looked_at"], &done["matched"], &done["done"], &done["refused"]], [3, 3, 3, 0]);
    assert!(done["ended_at"].is_string());
    let ended = rig.get(&format!("{INSTANCES}/a")).await.json();
    assert_eq!((&ended["status"], &ended["termination"]["reason"]), (&json!("terminated"), &json!("old")));
    let other = rig.get("/v1/default/workflows/other/instances/d").await.json();
    assert_eq!(other["status"], json!("queued"));

    let conflict =
        rig.ask("POST", bulk, &headers, r#"{"operation":"pause","where":{"status":"open"}}"#).await;
    assert!(conflict.problem(409, "conflict").contains("b-1"));
    let headers = [("content-type", "application/json"), ("idempotency-key", "b-2")];
    rig.ask("POST", bulk, &headers, r#"{"operation":"resume","where":{"status":"terminated"}}"#).await;
    let refused = over(&rig, "b-2").await;
    assert_eq!([&refused["matched"], &refused["done"], &refused["refused"]], [3, 0, 3]);
    let listed = rig.get(&format!("{bulk}?limit=1")).await.json();
    assert_eq!(
        (&listed["operations"][0]["id"], listed["operations"].as_array().unwrap().len()),
        (&json!("b-2"), 1)
    );
    let stopped = rig.post(&format!("{bulk}/b-2/stop"), "").await;
    assert_eq!((stopped.status, &stopped.json()["state"]), (200, &json!("done")), "it is over");
    rig.get(&format!("{bulk}/nothing")).await.problem(404, "not_found");
    rig.post(&format!("{bulk}/nothing/stop"), "").await.problem(404, "not_found");
    assert!(rig.post(bulk, r#"{"operation":"retry"}"#).await.problem(400, "body").contains("one condition"));
}

#[tokio::test]
async fn p33_a_bulk_operation_is_shown_with_its_conditions_and_options() {
    let rig = Rig::new().await;
    for (id, vip) in [("a", true), ("b", false)] {
        rig.post(INSTANCES, &json!({"id": id, "attributes": {"vip": vip}}).to_string()).await;
    }
    let bulk = "/v1/default/bulk";
    let body = r#"{"operation":"cancel","reason":"old","within":"2 min","rollback":true,"where":{"attributes":{"vip":true}}}"#;
    let begun = rig.post(bulk, body).await.json();
    assert_eq!(begun["where"], json!({"attributes": {"vip": true}}));
    assert_eq!([&begun["operation"], &begun["reason"], &begun["within"]], ["cancel", "old", "2m"]);
    assert_eq!(begun["rollback"], json!(true));
    let done = over(&rig, begun["id"].as_str().unwrap()).await;
    assert_eq!([&done["looked_at"], &done["matched"], &done["done"]], [1, 1, 1]);
    let body = r#"{"operation":"restart","from":{"name":"charge"},"where":{"workflow":"fulfil"}}"#;
    let from = rig.post(bulk, body).await.json();
    assert_eq!(from["from"], json!({"kind": "step", "name": "charge", "count": 1}));
    let refused = over(&rig, from["id"].as_str().unwrap()).await;
    assert_eq!(
        [&refused["matched"], &refused["done"], &refused["refused"]],
        [2, 0, 2],
        "nobody has called it"
    );
    let list = format!("{INSTANCES}:operate");
    let results = rig.post(&list, r#"{"operation":"pause","ids":["b","nobody"]}"#).await.json();
    assert_eq!([&results["results"][0]["outcome"], &results["results"][1]["outcome"]], ["done", "not_found"]);
    assert_eq!(rig.get(&format!("{INSTANCES}/b")).await.json()["status"], "paused");
    rig.ask("GET", &list, &[], "").await.problem(405, "wrong_method");
}

/// While another coordinator has the duty a bulk operation is begun, and then an instance is created that fulfils its conditions.
#[tokio::test]
async fn p33_what_is_created_after_it_began_is_left_alone() {
    let somebody = CoordinatorId::generate();
    let rig = Rig::with(async |store| {
        store.duties(somebody, &DUTY, Millis::from_secs(3_600)).await.unwrap();
    })
    .await;
    for id in ["a", "b"] {
        rig.post(INSTANCES, &json!({"id": id}).to_string()).await;
    }
    let body = r#"{"operation":"terminate","where":{"workflow":"fulfil"}}"#;
    let begun = rig.post("/v1/default/bulk", body).await.json();
    rig.post(INSTANCES, r#"{"id":"late"}"#).await;
    rig.store.release_duties(somebody).await.unwrap();
    let done = over(&rig, begun["id"].as_str().unwrap()).await;
    assert_eq!([&done["looked_at"], &done["matched"], &done["done"]], [3, 2, 2]);
    let status = async |id: &str| rig.get(&format!("{INSTANCES}/{id}")).await.json()["status"].clone();
    assert_eq!([status("a").await, status("late").await], ["terminated", "queued"]);
}
