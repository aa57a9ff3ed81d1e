//! The audit log over HTTP (rule A6): whatever an operator or an admin does leaves a record of who it was, and admins alone read it. Not: how
//! records are kept, which the store's suite says.

use std::collections::BTreeMap;

use everstep_protocol::Role;
use serde_json::{Value, json};

use crate::{
    access::{demanding, routes, token},
    rig::{Answer, Rig},
};

const INSTANCES: &str = "/v1/default/workflows/fulfil/instances";

async fn ask(rig: &Rig, token: &str, method: &str, path: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    rig.ask(method, path, &headers, body).await
}

async fn audit(rig: &Rig, token: &str, query: &str) -> Vec<Value> {
    let page = ask(rig, token, "GET", &format!("/v1/*/audit{query}"), "").await;
    assert_eq!(page.status, 200, "{}", page.body);
    page.json()["actions"].as_array().unwrap().clone()
}

/// What is done by each route that changes something as an operator or an admin, in an order in which each can be done; and how it is
/// recorded. The instance has ended from its termination on, and so refuses what comes then: that is recorded too.
fn deeds(revoked: &str) -> Vec<(&'static str, String, &'static str, &'static str, &'static str)> {
    let instance = "/v1/default/workflows/fulfil/instances/a";
    let schedule = "/v1/default/schedules/s";
    let at = |path: &str| path.to_owned();
    let of = |path: &str, rest: &str| format!("{path}{rest}");
    let on = "instance/fulfil/a";
    vec![
        ("POST", of(instance, "/pause"), "{}", "pause", on),
        ("POST", of(instance, "/resume"), "{}", "resume", on),
        ("POST", of(instance, "/retry"), "{}", "retry", on),
        ("POST", of(instance, "/pin"), r#"{"build":"b1"}"#, "pin", on),
        ("POST", of(instance, "/unpin"), "{}", "pin", on),
        ("POST", of(instance, "/restart"), "{}", "restart", on),
        ("POST", of(instance, "/cancel"), r#"{"reason":"old"}"#, "cancel", on),
        ("POST", of(instance, "/attention/parked/resolve"), r#"{"choice":"retry"}"#, "retry", on),
        ("POST", of(instance, "/terminate"), r#"{"reason":"old"}"#, "terminate", on),
        (
            "POST",
            at("/v1/default/workflows/fulfil/instances:operate"),
            r#"{"operation":"pause","ids":["a"]}"#,
            "pause",
            on,
        ),
        ("DELETE", at(instance), "", "delete", on),
        ("PUT", at(schedule), r#"{"workflow":"fulfil","every":"1 day"}"#, "put", "schedule/s"),
        ("POST", of(schedule, "/pause"), r#"{"note":"bank holiday"}"#, "pause", "schedule/s"),
        ("POST", of(schedule, "/resume"), "{}", "resume", "schedule/s"),
        ("POST", of(schedule, "/trigger"), "", "trigger", "schedule/s"),
        (
            "POST",
            of(schedule, "/backfill"),
            r#"{"from":"2026-01-01T00:00:00Z","until":"2026-01-03T00:00:00Z"}"#,
            "backfill",
            "schedule/s",
        ),
        ("POST", of(schedule, "/backfill/stop"), "{}", "stop-backfill", "schedule/s"),
        ("DELETE", at(schedule), "", "delete", "schedule/s"),
        (
            "POST",
            at("/v1/default/bulk"),
            r#"{"operation":"pause","where":{"workflow":"none"}}"#,
            "begin",
            "bulk/k",
        ),
        ("POST", at("/v1/default/bulk/k/stop"), "", "stop", "bulk/k"),
        ("POST", at("/v1/default/access-tokens"), r#"{"role":"viewer"}"#, "create", "access-token/"),
        ("DELETE", format!("/v1/default/access-tokens/{revoked}"), "", "revoke", "access-token/"),
    ]
}

#[tokio::test]
async fn a06_whatever_operators_and_admins_do_leaves_one_record() {
    let rig = demanding().await;
    let admin = token(&rig.store, Role::Admin, "*").await;
    let made = ask(&rig, &admin, "POST", "/v1/default/access-tokens", r#"{"role":"viewer"}"#).await.json();
    assert_eq!(ask(&rig, &admin, "POST", INSTANCES, r#"{"id":"a"}"#).await.status, 201);
    let bearer = format!("Bearer {admin}");
    let mut seen = BTreeMap::new();
    for (method, path, body, operation, target) in deeds(made["id"].as_str().unwrap()) {
        let before = audit(&rig, &admin, "").await;
        let mut headers = vec![("authorization", bearer.as_str()), ("content-type", "application/json")];
        if target == "bulk/k" {
            headers.push(("idempotency-key", "k"));
        }
        let answer = rig.ask(method, &path, &headers, body).await;
        let after = audit(&rig, &admin, "").await;
        let what = format!("{method} {path}: {} {}", answer.status, answer.body);
        // A bulk operation that is over is not stopped.
        if operation == "stop" && after.len() == before.len() {
            assert_eq!(answer.json()["state"], "done", "{what}");
            seen.insert((method, path), Value::Null);
            continue;
        }
        assert_eq!(after.len(), before.len() + 1, "{what}");
        let record = after[0].clone();
        assert_eq!(record["operation"], operation, "{what}");
        assert!(record["target"].as_str().unwrap().starts_with(target), "{record} {what}");
        assert!(record["who"].as_str().unwrap().starts_with("admin of * ("), "{record}");
        assert_eq!((&record["from"], &record["namespace"]), (&json!("127.0.0.1"), &json!("default")));
        // A list is answered for each of its ids.
        let is_refused = answer.status >= 400 || path.ends_with(":operate");
        let outcome = record["outcome"].as_str().unwrap();
        assert_eq!(outcome == "done", !is_refused, "{record} {what}");
        assert_eq!(outcome.starts_with("refused: "), is_refused, "{record} {what}");
        seen.insert((method, path), record);
    }
    // None is forgotten: these are all routes that change something for an operator or an admin.
    let document = rig.get("/openapi.json").await.json();
    let changing = routes(&document)
        .into_iter()
        .filter(|((method, _), role)| method != "GET" && role.is_some_and(|role| role >= Role::Operator));
    let changing: Vec<_> = changing.map(|(route, _)| route).collect();
    assert_eq!(changing.len(), seen.len(), "{changing:?} {:?}", seen.keys());
    // What is asked for is told, and what has no bound or is a payload is not.
    let of = |end: &str| seen.iter().find(|((_, path), _)| path.ends_with(end)).unwrap().1;
    assert_eq!(of("/terminate")["detail"], "reason: old");
    assert_eq!(of("a/pin")["detail"], "to b1");
    assert_eq!(of("s/pause")["detail"], "bank holiday");
    // The same again, known by its key, leaves no second one.
    let count = audit(&rig, &admin, "").await.len();
    ask(&rig, &admin, "POST", INSTANCES, r#"{"id":"b"}"#).await;
    let keyed = [("authorization", bearer.as_str()), ("idempotency-key", "once")];
    for _ in 0..2 {
        assert_eq!(rig.ask("POST", &format!("{INSTANCES}/b/terminate"), &keyed, "").await.status, 200);
    }
    assert_eq!(audit(&rig, &admin, "").await.len(), count + 1, "a start is no action, nor is a repetition");
}

#[tokio::test]
async fn a06_an_admin_reads_what_belongs_to_their_namespace() {
    let rig = demanding().await;
    let of_all = token(&rig.store, Role::Admin, "*").await;
    let of_default = token(&rig.store, Role::Admin, "default").await;
    let operator = token(&rig.store, Role::Operator, "default").await;
    for namespace in ["default", "other"] {
        let schedule = format!("/v1/{namespace}/schedules/s?by=eve");
        let made = ask(&rig, &of_all, "PUT", &schedule, r#"{"workflow":"fulfil","every":"1 day"}"#).await;
        assert_eq!(made.status, 201, "{}", made.body);
    }
    let page = ask(&rig, &of_default, "GET", "/v1/default/audit", "").await.json();
    let records = page["actions"].as_array().unwrap();
    assert_eq!(records.len(), 3, "two tokens and a schedule: {page}");
    assert!(records.iter().all(|record| record["namespace"] == "default"), "{page}");
    assert_eq!((&records[0]["target"], &records[0]["by"]), (&json!("schedule/s"), &json!("eve")));
    ask(&rig, &of_default, "GET", "/v1/other/audit", "").await.problem(403, "forbidden");
    ask(&rig, &of_default, "GET", "/v1/*/audit", "").await.problem(403, "forbidden");
    ask(&rig, &operator, "GET", "/v1/default/audit", "").await.problem(403, "forbidden");
    rig.get("/v1/default/audit").await.problem(401, "unauthenticated");
    assert_eq!(audit(&rig, &of_all, "").await.len(), 5);
}

#[tokio::test]
async fn a06_records_are_looked_for_and_come_in_pages() {
    let rig = Rig::new().await;
    for id in ["a", "b", "c"] {
        rig.post(INSTANCES, &format!(r#"{{"id":"{id}"}}"#)).await;
        rig.post(&format!("{INSTANCES}/{id}/terminate"), "{}").await;
        rig.post(&format!("{INSTANCES}/{id}/restart"), "{}").await;
    }
    let found = async |query: &str| {
        let page = rig.get(&format!("/v1/default/audit?{query}")).await.json();
        let said = |record: &Value| {
            format!("{} {}", record["operation"].as_str().unwrap(), record["target"].as_str().unwrap())
        };
        (page["actions"].as_array().unwrap().iter().map(said).collect::<Vec<_>>(), page["next"].clone())
    };
    let (all, next) = found("limit=6").await;
    assert_eq!((all.len(), all[0].as_str()), (6, "restart instance/fulfil/c"), "{all:?}");
    let (none, end) = found(&format!("limit=6&after={next}")).await;
    assert_eq!((none.len(), end), (0, Value::Null));
    let (first, next) = found("limit=4").await;
    let (second, end) = found(&format!("limit=4&after={next}")).await;
    assert_eq!((&first[..], &second[..], end), (&all[..4], &all[4..], Value::Null));
    let (of_b, _) = found("target=instance/fulfil/b").await;
    assert_eq!(of_b, ["restart instance/fulfil/b", "terminate instance/fulfil/b"]);
    let (restarts, _) = found("operation=restart&who=anonymous").await;
    assert_eq!(restarts.len(), 3);
    assert_eq!(found("who=ann").await.0.len(), 0);
    assert_eq!(found("from=2026-01-01T00:00:00Z").await.0.len(), 6);
    assert_eq!(found("before=2026-01-01T00:00:00Z").await.0.len(), 0);
    for (query, part) in [
        ("from=yesterday", "from \"yesterday\""),
        ("limit=0", "limit"),
        ("colour=red", "colour"),
        ("after=x", "after"),
    ] {
        let refused = rig.get(&format!("/v1/default/audit?{query}")).await;
        assert!(refused.body.contains(part.replace('"', "\\\"").as_str()), "{query}: {}", refused.body);
        assert_eq!(refused.status, 400, "{query}");
    }
    rig.get("/v1/A/audit").await.problem(400, "path");
}
