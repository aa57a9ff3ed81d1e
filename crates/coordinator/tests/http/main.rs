//! The HTTP API as a whole: a real coordinator on the embedded store and the in-process broker, spoken to over TCP. Proves
//! routes, statuses, problems and who is refused. Not: what workers do; there is none here, so instances stay queued.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail tests")]

mod access;
mod attention;
mod audit;
mod bulk;
mod doctor;
mod hooks;
mod ids;
mod lists;
mod openapi;
mod rate;
mod rig;
mod schedules;
mod streams;
mod tls;

use everstep_coordinator::http;
use rig::{Answer, Rig};
use serde_json::{Value, json};

const INSTANCES: &str = "/v1/default/workflows/fulfil/instances";

#[tokio::test]
async fn p27_a_start_creates_or_exists_or_conflicts() {
    let rig = Rig::new().await;
    let body = r#"{"id": "o-1", "input": {"b": 9007199254740993, "a": 1.10}}"#;
    let created = rig.post(INSTANCES, body).await;
    assert_eq!(
        (created.status, created.headers["location"].as_str()),
        (201, "/v1/default/workflows/fulfil/instances/o-1")
    );
    assert_eq!(created.json()["status"], "queued");
    let exists = rig.post(INSTANCES, r#"{"id":"o-1","input":{"a":1.1,"b":9007199254740993}}"#).await;
    assert_eq!((exists.status, &exists.json()["created_at"]), (200, &created.json()["created_at"]));
    let conflict = rig.post(INSTANCES, r#"{"id":"o-1","input":2}"#).await;
    assert!(conflict.problem(409, "conflict").contains("another input"));
    let journal = rig.get(&format!("{INSTANCES}/o-1/journal")).await;
    assert!(journal.body.contains(r#""input":{"b":9007199254740993,"a":1.10}"#), "{}", journal.body);
}

#[tokio::test]
async fn w04_a_repeated_start_gives_the_first_answer() {
    let rig = Rig::new().await;
    let headers = [("content-type", "application/json"), ("idempotency-key", "k-1")];
    let first = rig.ask("POST", INSTANCES, &headers, r#"{"input":1}"#).await;
    let again = rig.ask("POST", INSTANCES, &headers, r#"{"input":1}"#).await;
    assert_eq!(first.status, 201);
    assert_eq!((again.status, again.json()["id"].clone()), (first.status, first.json()["id"].clone()));
    assert_eq!(rig.get(INSTANCES).await.json()["instances"].as_array().unwrap().len(), 1);
    let bodyless = rig.ask("POST", INSTANCES, &[], "").await;
    assert_eq!(bodyless.status, 201);
}

#[tokio::test]
async fn what_a_start_must_not_say_is_named() {
    let rig = Rig::new().await;
    let long = format!(r#"{{"input":"{}"}}"#, "x".repeat(99));
    let cases = [
        (INSTANCES, r#"{"ids":1}"#, 400, "unknown_field", "`ids`"),
        (INSTANCES, r#"{"input":1,"#, 400, "body", "line 1 column 11"),
        (INSTANCES, r#" ["o-1"]"#, 400, "body", "an object"),
        (INSTANCES, "null", 400, "body", "null"),
        (INSTANCES, r#"{"id":"a b"}"#, 400, "name", "instance id \"a b\""),
        (INSTANCES, r#"{"input":{"a":1,"a":2}}"#, 422, "input", "\"a\" twice"),
        (INSTANCES, &long, 413, "too_large", "101 bytes of JSON, the limit is 100"),
        ("/v1/default/workflows/Fulfil/instances", "{}", 400, "name", "workflow name \"Fulfil\""),
        ("/v1/De/workflows/fulfil/instances", "{}", 400, "name", "namespace \"De\""),
        ("/v1/default/workflows/fulfil/instances?x=1", "{}", 400, "query", "`x`"),
    ];
    for (path, body, status, code, part) in cases {
        let answer = rig.post(path, body).await;
        let detail = answer.problem(status, code);
        assert!(detail.contains(part), "{detail}");
    }
    let huge = "x".repeat(70_000);
    rig.post(INSTANCES, &huge).await.problem(413, "too_large");
    rig.ask("POST", INSTANCES, &[("content-type", "text/plain")], "{}").await.problem(415, "content_type");
    let spaced = [("content-type", "application/json"), ("idempotency-key", "a b")];
    rig.ask("POST", INSTANCES, &spaced, "{}").await.problem(400, "header");
    assert_eq!(rig.get(INSTANCES).await.json(), json!({"instances": [], "next": null}));
}

#[tokio::test]
async fn p35_instances_are_listed_page_by_page_and_say_that_nobody_serves_them() {
    let rig = Rig::new().await;
    for id in ["a", "b", "c"] {
        assert_eq!(rig.post(INSTANCES, &format!(r#"{{"id":"{id}"}}"#)).await.status, 201);
    }
    let other = "/v1/default/workflows/other/instances";
    assert_eq!(rig.post(other, r#"{"id":"d"}"#).await.status, 201);
    let first = rig.get(&format!("{INSTANCES}?limit=2&status=queued")).await.json();
    let next = first["next"].as_str().unwrap();
    let second = rig.get(&format!("{INSTANCES}?limit=2&cursor={next}")).await.json();
    let ids = |page: &Value| {
        page["instances"].as_array().unwrap().iter().map(|row| row["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((ids(&first), ids(&second)), (vec![json!("c"), json!("b")], vec![json!("a")]));
    assert_eq!(first["instances"][0]["reason"]["message"], "no worker serves fulfil");
    assert_eq!(ids(&rig.get("/v1/default/instances").await.json()).len(), 4);
    assert_eq!(ids(&rig.get(&format!("{INSTANCES}?status=complete")).await.json()).len(), 0);
    for query in ["status=done", "limit=0", "limit=201", "limit=x", "cursor=x", "page=2"] {
        rig.get(&format!("{INSTANCES}?{query}")).await.problem(400, "query");
    }
}

#[tokio::test]
async fn p37_instances_are_found_by_their_attributes() {
    let rig = Rig::new().await;
    let start = async |id: &str, attributes: Value| {
        rig.post(INSTANCES, &json!({"id": id, "attributes": attributes}).to_string()).await
    };
    let started = start("o-1", json!({"region": "eu", "n": 1.0, "vip": true})).await;
    assert_eq!(started.status, 201, "{}", started.body);
    assert_eq!(started.json()["attributes"], json!({"region": "eu", "n": 1, "vip": true}));
    start("o-2", json!({"region": "eu", "n": "1"})).await;
    let found = async |query: &str| {
        let answer = rig.get(&format!("{INSTANCES}?{query}")).await;
        let page = answer.json();
        let ids = page["instances"].as_array().unwrap().iter().map(|instance| instance["id"].clone());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(found("attribute=region%3Deu").await, ["o-2", "o-1"]);
    assert_eq!(found("attribute=region%3Deu&attribute=n%3D1&status=queued").await, ["o-1"]);
    assert_eq!(found("attribute=n%3D%221%22").await, ["o-2"]);
    rig.get(&format!("{INSTANCES}?attribute=region")).await.problem(422, "attributes");
    rig.get(&format!("{INSTANCES}?attribute=a+b%3D1")).await.problem(400, "name");
    let many: serde_json::Map<_, _> = (0..33).map(|n| (format!("a{n}"), json!(n))).collect();
    let detail = start("o-3", many.into()).await.problem(422, "attributes");
    assert!(detail.contains("at most 32"), "{detail}");
    let detail = start("o-3", json!({"a": [1]})).await.problem(422, "attributes");
    assert!(detail.contains("attribute \"a\""), "{detail}");
}

#[tokio::test]
async fn p27_a_batch_is_checked_whole_and_answered_item_by_item() {
    let rig = Rig::new().await;
    let batch = format!("{INSTANCES}:batch");
    rig.post(INSTANCES, r#"{"id":"old","input":1}"#).await;
    let bad = [
        (r#"{"id":"a b"}"#, 400, "name", "\"a b\""),
        (r#"{"id":"b","inputs":1}"#, 400, "unknown_field", "inputs"),
        (r#"{"id":"b","input":"#, 400, "body", "line 1"),
        (r#"{"id":7}"#, 400, "body", "expected a string"),
    ];
    for (item, status, code, says) in bad {
        let body = format!(r#"{{"instances":[{{"id":"a"}},{item},{{"id":"c"}}]}}"#);
        let detail = rig.post(&batch, &body).await.problem(status, code);
        assert!(detail.contains(says), "{detail}");
        assert!(code == "body" || detail.contains("instances[1]"), "{detail}");
    }
    let long = format!(r#"{{"instances":[{{"id":"a"}},{{"input":"{}"}}]}}"#, "x".repeat(99));
    let detail = rig.post(&batch, &long).await.problem(413, "too_large");
    assert!(
        detail.contains("instances[1]") && detail.contains("101 bytes") && detail.contains("100"),
        "{detail}"
    );
    for (count, says) in [(0, "0 items"), (1_001, "1001 items")] {
        let body = format!(r#"{{"instances":[{}]}}"#, vec!["{}"; count].join(","));
        let detail = rig.post(&batch, &body).await.problem(422, "batch");
        assert!(detail.contains(says) && detail.contains("1 to 1000"), "{detail}");
    }
    let ids = |page: Value| {
        page["instances"].as_array().unwrap().iter().map(|row| row["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(rig.get(INSTANCES).await.json()), [json!("old")], "nothing was started");

    let body = r#"{"instances":[{"id":"old","input":1},{"id":"a","input":1},{"id":"a","input":1.0},{"id":"a","input":2},{}]}"#;
    let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
    let first = rig.ask("POST", &batch, &headers, body).await;
    assert_eq!(first.status, 200, "{}", first.body);
    let results = first.json()["results"].clone();
    let outcomes: Vec<_> =
        results.as_array().unwrap().iter().map(|result| result["outcome"].clone()).collect();
    assert_eq!(outcomes, ["exists", "created", "exists", "conflict", "created"]);
    assert_eq!((&results[3]["code"], &results[3]["retry_safe"]), (&json!("conflict"), &json!(false)));
    // The same request again makes no second instance, also where an item has no id.
    let again = rig.ask("POST", &batch, &headers, body).await.json()["results"].clone();
    assert_eq!(again[4]["id"], results[4]["id"]);
    assert_eq!(rig.get(INSTANCES).await.json()["instances"].as_array().unwrap().len(), 3);
    rig.get(&batch).await.problem(405, "wrong_method");
}

#[tokio::test]
async fn p28_operations_say_the_status_that_forbids_them() {
    let rig = Rig::new().await;
    let one = format!("{INSTANCES}/o-1");
    rig.get(&one).await.problem(404, "not_found");
    rig.post(&format!("{one}/terminate"), "").await.problem(404, "not_found");
    rig.post(INSTANCES, r#"{"id":"o-1"}"#).await;
    rig.post(&format!("{one}/retry"), "").await.problem(409, "not_parked");
    let headers = [("content-type", "application/json"), ("idempotency-key", "t-1")];
    for _ in 0..2 {
        let ended = rig.ask("POST", &format!("{one}/terminate"), &headers, r#"{"reason":"no use"}"#).await;
        assert_eq!(ended.status, 200, "{}", ended.body);
        assert_eq!(ended.json()["termination"]["reason"], "no use");
    }
    let detail = rig.post(&format!("{one}/terminate"), "").await.problem(409, "not_allowed");
    assert!(detail.contains("the instance is terminated"), "{detail}");
    rig.post(&format!("{one}/terminate"), r#"{"why":1}"#).await.problem(400, "unknown_field");
    let journal = rig.get(&format!("{one}/journal?limit=1")).await.json();
    assert_eq!((&journal["entries"][0]["kind"], &journal["next"]), (&json!("started"), &json!(1)));
    let rest = rig.get(&format!("{one}/journal?after=1")).await.json();
    assert_eq!((&rest["entries"][0]["message"], &rest["next"]), (&json!("no use"), &Value::Null));
}

#[tokio::test]
async fn p29_to_p32_instances_are_controlled() {
    let rig = Rig::new().await;
    let one = format!("{INSTANCES}/o-1");
    let operate = async |operation: &str, body: &str| rig.post(&format!("{one}/{operation}"), body).await;
    rig.post(INSTANCES, r#"{"id":"o-1","input":7,"retention":{"failed":"1 day"}}"#).await;
    rig.post(INSTANCES, r#"{"id":"o-2","retention":"soon"}"#).await.problem(400, "body");
    let paused = operate("pause", "").await.json();
    assert_eq!((&paused["status"], &paused["reason"]["kind"]), (&json!("paused"), &json!("paused")));
    assert_eq!(operate("pause", "").await.status, 200, "a double changes nothing");
    assert_eq!(operate("resume", "{}").await.json()["status"], "queued");
    operate("cancel", r#"{"within":"0s"}"#).await.problem(400, "body");
    operate("cancel", r#"{"reason":"r","when":1}"#).await.problem(400, "unknown_field");
    assert_eq!(
        operate("cancel", r#"{"reason":"bought twice","within":"1 day"}"#).await.json()["status"],
        "queued"
    );
    let journal = rig.get(&format!("{one}/journal")).await.json();
    assert_eq!(
        (&journal["entries"][1]["kind"], &journal["entries"][1]["message"]),
        (&json!("cancelled"), &json!("bought twice"))
    );
    let detail = rig.ask("DELETE", &one, &[], "").await.problem(409, "not_allowed");
    assert!(detail.contains("the instance is queued"), "{detail}");
    let unknown = operate("restart", r#"{"from":{"name":"charge"}}"#).await.problem(422, "refused");
    assert!(unknown.contains(r#"step "charge" #1"#), "{unknown}");
    operate("restart", r#"{"from":{"name":""}}"#).await.problem(400, "name");
    let again = operate("restart", "").await.json();
    assert_eq!(
        (&again["run"], &again["status"], &again["position"]),
        (&json!(2), &json!("queued"), &json!(1))
    );
    let earlier = rig.get(&format!("{one}/journal?run=1")).await.json();
    assert_eq!((&earlier["run"], earlier["entries"].as_array().unwrap().len()), (&json!(1), 2));
    rig.get(&format!("{one}/journal?run=3")).await.problem(400, "query");
    rig.ask("DELETE", &format!("{one}?force=true"), &[], "").await.problem(400, "query");
    let deleted = rig.ask("DELETE", &format!("{one}?terminate=true"), &[], "").await;
    assert_eq!((deleted.status, &deleted.json()["deleted"]), (200, &json!(true)));
    rig.ask("DELETE", &one, &[], "").await.problem(404, "not_found");
    assert_eq!(rig.post(INSTANCES, r#"{"id":"o-1","input":8}"#).await.status, 201, "its id is free");
}

#[tokio::test]
async fn p36_an_answer_waits_for_the_end() {
    let rig = Rig::new().await;
    let one = format!("{INSTANCES}/o-1");
    rig.post(INSTANCES, r#"{"id":"o-1"}"#).await;
    assert_eq!(
        rig.get(&format!("{one}?wait=10ms")).await.json()["status"],
        "queued",
        "it has not ended in time"
    );
    let path = format!("{one}?wait=1%20min");
    let terminate = format!("{one}/terminate");
    let (shown, ended) = tokio::join!(rig.get(&path), rig.post(&terminate, ""));
    assert_eq!((shown.json()["status"].clone(), ended.status), (json!("terminated"), 200));
    rig.get(&format!("{INSTANCES}/nobody?wait=1s")).await.problem(404, "not_found");
    for (wait, says) in [("61s", "at most"), ("soon", "soon"), ("-1s", "-1s")] {
        let detail = rig.get(&format!("{one}?wait={wait}")).await.problem(400, "query");
        assert!(detail.contains(says), "{detail}");
    }
}

#[tokio::test]
async fn everything_else_is_a_problem_too() {
    let rig = Rig::new().await;
    rig.get("/").await.problem(404, "no_such_route");
    let wrong = rig.ask("DELETE", INSTANCES, &[], "").await;
    wrong.problem(405, "wrong_method");
    assert!(wrong.headers["allow"].contains("POST"));
    rig.get("/v1/default/workflows/%ff/instances").await.problem(400, "path");
    rig.ask("GET", INSTANCES, &[("host", "evil.example")], "").await.problem(403, "not_from_here");
    rig.ask("POST", INSTANCES, &[("origin", "https://evil.example")], "").await.problem(403, "not_from_here");
    assert_eq!(rig.ask("GET", INSTANCES, &[("host", "localhost:7070")], "").await.status, 200);
    assert_eq!(rig.get("/v1/default/rejected").await.json(), json!({"rejected": []}));
}

#[tokio::test]
async fn probes_and_metrics_answer() {
    let rig = Rig::new().await;
    assert_eq!(rig.get("/healthz").await.json(), json!({"loop": true}));
    assert_eq!(rig.get("/readyz").await.json(), json!({"loop": true, "store": true, "broker": true}));
    let metrics = rig.get("/metrics").await;
    assert!(metrics.body.contains("# TYPE everstep_"), "{}", metrics.body);
}

#[tokio::test]
async fn a04_only_a_loopback_listener_is_served_without_a_token() {
    let rig = Rig::serving(http::Settings::default(), "0.0.0.0:0", async |_| ()).await;
    rig.get(INSTANCES).await.problem(401, "unauthenticated");
    rig.post(INSTANCES, r#"{"id":"a"}"#).await.problem(401, "unauthenticated");
    assert_eq!(rig.get("/healthz").await.status, 200);
    assert_eq!(Rig::new().await.get(INSTANCES).await.status, 200);
}

/// The lines of a streamed answer, which comes in chunks.
fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!((answer.status, answer.headers["content-type"].as_str()), (200, "application/x-ndjson"));
    let (mut text, mut rest) = (String::new(), answer.body.as_str());
    while let Some((size, more)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        text.push_str(&more[..size]);
        rest = &more[size + 2..];
    }
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn p40_journals_of_open_instances_are_streamed() {
    let rig = Rig::new().await;
    for id in ["a", "b", "c", "ended"] {
        rig.post(INSTANCES, &json!({"id": id, "input": 1}).to_string()).await;
    }
    rig.post("/v1/default/workflows/other/instances", r#"{"id":"d"}"#).await;
    rig.post(&format!("{INSTANCES}/ended/terminate"), "{}").await;

    let all = lines(&rig.get("/v1/default/journals").await);
    let ids: Vec<&str> = all.iter().filter_map(|line| line["instance"]["id"].as_str()).collect();
    assert_eq!(ids, ["d", "c", "b", "a"], "newest first, and nothing that has ended");
    assert_eq!(all[1]["journal"][0]["kind"], json!("started"));
    assert!(all[1]["journal"][0]["seed"].is_null(), "no seed unless asked for");
    assert_eq!(all[8], json!({"done": {"next": null}}));

    let first = lines(&rig.get("/v1/default/journals?workflow=fulfil&limit=2&seeds=true").await);
    let seed = first[1]["journal"][0]["seed"].as_str().unwrap();
    assert!(seed.len() == 64 && seed.bytes().all(|byte| byte.is_ascii_hexdigit()), "{seed}");
    let next = first[4]["done"]["next"].as_str().unwrap();
    let second =
        lines(&rig.get(&format!("/v1/default/journals?workflow=fulfil&limit=2&cursor={next}")).await);
    assert_eq!((&second[0]["instance"]["id"], second.len()), (&json!("a"), 3));
    assert_eq!(second[0]["instance"]["status"], json!("queued"));

    assert_eq!(lines(&rig.get("/v1/elsewhere/journals").await), [json!({"done": {"next": null}})]);
    for (query, part) in
        [("cursor=x", "cursor"), ("limit=0", "limit"), ("workflow=No", "workflow"), ("x=1", "x")]
    {
        let answer = rig.get(&format!("/v1/default/journals?{query}")).await;
        let code = if query.starts_with("workflow") { "name" } else { "query" };
        assert!(answer.problem(400, code).contains(part), "{query}: {}", answer.body);
    }
}

/// The route of events, whose payload is the body (rules P22, P24).
#[tokio::test]
async fn p22_an_event_is_kept_and_its_refusals_are_told() {
    let rig = Rig::new().await;
    rig.post(INSTANCES, r#"{"id":"o-1"}"#).await;
    let events = format!("{INSTANCES}/o-1/events");
    let send = async |path: &str, key: &str, body: &str| {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        rig.ask("POST", &format!("{events}/{path}"), &headers, body).await
    };
    for _ in 0..2 {
        let kept = send("approved?key=k-1", "e-1", r#"{"by": "Ada"}"#).await;
        assert_eq!(kept.status, 202, "{}", kept.body);
        let told = json!({
            "namespace": "default", "workflow": "fulfil", "id": "o-1", "type": "approved", "event": "e-1",
        });
        assert_eq!(kept.json(), told);
    }
    let view = rig.get(&format!("{INSTANCES}/o-1")).await.json();
    assert_eq!(
        (&view["events_unread"][0]["type"], &view["events_unread"][0]["count"]),
        (&json!("approved"), &json!(1))
    );
    let taken = send("approved?key=k-1", "e-1", "2").await.problem(409, "event_id_taken");
    assert!(taken.contains("e-1"), "{taken}");
    assert_eq!(
        send("with%20blanks", "e-2", "").await.status,
        202,
        "a type is any text, an absent payload is null"
    );
    assert!(send("approved", "e-3", "{").await.problem(422, "input").contains("payload"));
    assert!(send("approved?colour=red", "e-3", "1").await.problem(400, "query").contains("colour"));
    let large = format!("\"{}\"", "x".repeat(2 << 20));
    assert!(send("approved", "e-3", &large).await.problem(413, "too_large").contains("1048576"));
    let long = "x".repeat(101);
    assert!(send(&long, "e-3", "1").await.problem(400, "name").contains("event type"));
    rig.post(&format!("{INSTANCES}/o-1/terminate"), "{}").await;
    assert!(send("approved", "e-4", "1").await.problem(409, "not_allowed").contains("terminated"));
    let nobody = rig.post(&format!("{INSTANCES}/nobody/events/approved"), "1").await;
    assert!(nobody.problem(404, "not_found").contains("nobody"));
}

#[tokio::test]
async fn p40_an_instance_is_pinned_moved_and_unpinned() {
    let rig = Rig::new().await;
    let pin = async |id: &str| rig.get(&format!("{INSTANCES}/{id}")).await.json()["pin"].clone();
    let started = rig.post(INSTANCES, r#"{"id":"first","pin":true}"#).await;
    assert_eq!((started.status, &started.json()["pin"]), (201, &json!(true)));
    rig.post(INSTANCES, r#"{"id":"named","pin":"v-7"}"#).await;
    rig.post(INSTANCES, r#"{"id":"floats"}"#).await;
    assert_eq!(
        [pin("first").await, pin("named").await, pin("floats").await],
        [json!(true), json!("v-7"), Value::Null]
    );
    let reason = rig.get(&format!("{INSTANCES}/named")).await.json()["reason"]["message"].clone();
    assert_eq!(reason, json!("no worker of build v-7 serves fulfil"));
    let moved = rig.post(&format!("{INSTANCES}/named/pin"), r#"{"build":"v-8"}"#).await;
    assert_eq!((moved.status, &moved.json()["pin"]), (200, &json!("v-8")));
    assert_eq!(rig.post(&format!("{INSTANCES}/named/unpin"), "").await.status, 200);
    assert_eq!(pin("named").await, Value::Null);
    assert!(rig.post(&format!("{INSTANCES}/named/pin"), "{}").await.problem(400, "body").contains("build"));
    assert!(
        rig.post(&format!("{INSTANCES}/named/pin"), r#"{"build":"V 8"}"#)
            .await
            .problem(400, "name")
            .contains("V 8")
    );
    rig.post(&format!("{INSTANCES}/nobody/pin"), r#"{"build":"v-8"}"#).await.problem(404, "not_found");
    assert!(
        rig.post(INSTANCES, r#"{"id":"x","pin":false}"#).await.problem(400, "body").contains("pin: true")
    );
}

#[tokio::test]
async fn p35_a_strict_start_that_nobody_serves_is_refused() {
    let rig = Rig::new().await;
    let refused = rig.post(INSTANCES, r#"{"id":"o-1","strict":true}"#).await;
    let detail = refused.problem(409, "not_served");
    assert!(
        detail.contains("no live worker serves the workflow") && detail.contains("nothing was created"),
        "{detail}"
    );
    assert_eq!(refused.json()["retry_safe"], json!(true));
    rig.get(&format!("{INSTANCES}/o-1")).await.problem(404, "not_found");
    assert_eq!(rig.post(INSTANCES, r#"{"id":"o-1","strict":false}"#).await.status, 201);
    // What exists is told, whoever serves it.
    assert_eq!(rig.post(INSTANCES, r#"{"id":"o-1","strict":true}"#).await.status, 200);
    let batch = r#"{"instances":[{"id":"o-2","strict":true},{"id":"o-3"}]}"#;
    let results = rig.post(&format!("{INSTANCES}:batch"), batch).await.json()["results"].clone();
    assert_eq!((&results[0]["outcome"], &results[0]["code"]), (&json!("rejected"), &json!("not_served")));
    assert_eq!(results[1]["outcome"], json!("created"));
}
