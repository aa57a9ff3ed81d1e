//! A look before the call (rule L6, within one attempt).

use everstep_http::{LookFirst, Sent, name, post};
use serde_json::json;

use super::rig::{KEY, Rig};
use super::server::{Server, answer, json};

#[tokio::test]
async fn l06_a_look_that_finds_it_is_the_output_and_nothing_is_called() {
    let server = Server::start(|seen, _| match seen.method.as_str() {
        "GET" => json(200, &json!({"id": "c-1"})),
        _ => answer(500, &[], ""),
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    let look = LookFirst::new(server.url("/by-key/{key}?order={body:/order}"));
    let request = post(server.url("/charges")).json(&json!({"order": "a/b"})).look_first(look);
    let response = rig.call(request).await.unwrap();
    assert!(response.found);
    assert_eq!(response.json::<serde_json::Value>().unwrap(), json!({"id": "c-1"}));
    let seen = server.seen();
    assert_eq!(seen.len(), 1, "one look, no call");
    assert_eq!(seen[0].path, format!("/by-key/{KEY}?order=a%2Fb"));
    assert_eq!(rig.metrics.looks.with_label_values(&["found"]).get(), 1);
    assert_eq!(rig.metrics.calls.with_label_values(&["found"]).get(), 1);
}

#[tokio::test]
async fn l06_a_look_that_misses_is_followed_by_the_call() {
    let server = Server::start(|seen, _| match seen.method.as_str() {
        "GET" => answer(404, &[], "never heard of it"),
        _ => json(201, &json!({"id": "c-1"})),
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    let request = post(server.url("/charges")).look_first(LookFirst::new(server.url("/{key}")));
    let response = rig.call(request).await.unwrap();
    assert_eq!((response.status, response.found), (201, false));
    let methods: Vec<_> = server.seen().iter().map(|seen| seen.method.clone()).collect();
    assert_eq!(methods, ["GET", "POST"]);
    assert_eq!(rig.metrics.looks.with_label_values(&["absent"]).get(), 1);
}

#[tokio::test]
async fn l06_a_look_counts_by_its_condition() {
    let server = Server::start(|seen, _| match seen.method.as_str() {
        "GET" => json(200, &json!({"state": "pending", "charge": null, "list": [1]})),
        _ => answer(201, &[], "called"),
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    let look = || LookFirst::new(server.url("/"));
    for (look, found) in [
        (look().when("/state", "pending"), true),
        (look().when("/state", "done"), false),
        (look().when("/list/0", &1), true),
        (look().when("/gone", "x"), false),
        (look().when_present("/state"), true),
        (look().when_present("/charge"), false),
        (look().when_present("/gone"), false),
    ] {
        let shown = format!("{look:?}");
        let response = rig.call(post(server.url("/")).look_first(look)).await.unwrap();
        assert_eq!(response.found, found, "{shown}");
    }
}

#[tokio::test]
async fn l06_a_look_that_fails_means_that_nothing_was_called() {
    let server = Server::start(|seen, _| {
        assert_eq!(seen.method, "GET", "it was called");
        match seen.path.as_str() {
            "/busy" => answer(503, &[("retry-after", "3")], ""),
            "/no" => answer(403, &[], "no"),
            _ => answer(302, &[("location", "/")], ""),
        }
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    let request = |path| post(server.url("/charges")).look_first(LookFirst::new(server.url(path)));
    let busy = rig.fails(request("/busy")).await;
    assert_eq!((busy.kind(), busy.retry_after_ms), ((name::NOT_SENT, false, Sent::No), Some(3_000)));
    for path in ["/no", "/moved"] {
        let failed = rig.fails(request(path)).await;
        assert_eq!(failed.kind(), (name::NOT_SENT, true, Sent::No), "{path}");
    }
    assert_eq!(rig.metrics.looks.with_label_values(&["failed"]).get(), 3);
}
