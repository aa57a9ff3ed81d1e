//! What each status becomes.

use everstep_http::{Sent, get, name, post};
use serde_json::json;

use super::rig::Rig;
use super::server::{Server, answer, json};

#[tokio::test]
async fn l03_every_class_of_status_is_an_output_a_retry_or_a_permanent_error() {
    let server = Server::start(|seen, _| {
        let status: u16 = seen.path.trim_start_matches('/').parse().unwrap();
        json(status, &json!({ "said": status }))
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    for status in [200, 201, 202, 299] {
        let response = rig.call(post(server.url(&format!("/{status}"))).text("x")).await.unwrap();
        assert_eq!(response.status, status);
        assert_eq!(response.json::<serde_json::Value>().unwrap(), json!({ "said": status }));
    }
    for (status, permanent) in [
        (400, true),
        (401, true),
        (403, true),
        (404, true),
        (409, true),
        (422, true),
        (408, false),
        (425, false),
        (429, false),
        (500, false),
        (501, false),
        (503, false),
        (599, false),
    ] {
        let failed = rig.fails(post(server.url(&format!("/{status}"))).text("x")).await;
        assert_eq!(failed.kind(), (name::STATUS, permanent, Sent::Answered), "{status}");
        assert_eq!((failed.status, failed.retry_after_ms), (Some(status), None));
        assert_eq!(failed.body.unwrap(), json!({ "said": status }).to_string());
        assert!(!failed.message.contains("said"), "payloads are data, not messages: {}", failed.message);
        let expected = post(server.url(&format!("/{status}"))).text("x").expect([status]);
        assert_eq!(rig.call(expected).await.unwrap().status, status, "what is expected is an output");
    }
    let other = rig.fails(post(server.url("/200")).expect([201])).await;
    assert_eq!(other.kind(), (name::STATUS, true, Sent::Answered));
}

#[tokio::test]
async fn l03_a_redirect_is_a_permanent_error_unless_it_may_be_followed() {
    let server = Server::start(|seen, _| match seen.path.as_str() {
        "/end" => answer(200, &[], format!("{} {}", seen.method, seen.body)),
        "/loop" => answer(302, &[("location", "/loop")], ""),
        path => answer(path[1..].parse().unwrap(), &[("location", "/end")], ""),
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    for status in [301, 302, 303, 307, 308] {
        let at = server.url(&format!("/{status}"));
        let failed = rig.fails(post(&at).text("x")).await;
        assert_eq!(failed.kind(), (name::REDIRECT, true, Sent::Answered), "{status}");
        assert!(failed.message.contains("is not followed"), "{}", failed.message);
        let followed = rig.call(get(&at).follow_redirects(1)).await.unwrap();
        assert_eq!(followed.text().unwrap(), "GET ");
        let post = rig.call(post(&at).text("x").follow_redirects(1)).await;
        match status {
            301 | 302 => {
                assert_eq!(post.unwrap_err().name(), name::REDIRECT, "nobody knows what becomes of a POST");
            }
            303 => assert_eq!(post.unwrap().text().unwrap(), "GET "),
            _ => assert_eq!(post.unwrap().text().unwrap(), "POST x"),
        }
    }
    let endless = rig.fails(get(server.url("/loop")).follow_redirects(3)).await;
    assert!(endless.message.contains("one more than"), "{}", endless.message);
    assert_eq!(server.seen().iter().filter(|seen| seen.path == "/loop").count(), 4);
    let unmodified = rig.fails(get(server.url("/304"))).await;
    assert_eq!(unmodified.kind(), (name::STATUS, true, Sent::Answered));
}

#[tokio::test]
async fn l03_retry_after_is_respected_in_both_forms_up_to_a_limit() {
    let date = ("date", "Wed, 21 Oct 2026 07:28:00 GMT");
    let server = Server::start(move |seen, _| match seen.path.as_str() {
        "/seconds" => answer(429, &[("retry-after", "7")], ""),
        "/date" => answer(503, &[date, ("retry-after", "Wed, 21 Oct 2026 07:28:09 GMT")], ""),
        "/long" => answer(503, &[("retry-after", "99999999")], ""),
        _ => answer(400, &[("retry-after", "7")], ""),
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    for (path, expected) in
        [("/seconds", Some(7_000)), ("/date", Some(9_000)), ("/long", Some(3_600_000)), ("/permanent", None)]
    {
        let failed = rig.fails(post(server.url(path))).await;
        assert_eq!((failed.retry_after_ms, failed.permanent), (expected, expected.is_none()), "{path}");
    }
}

#[tokio::test]
async fn l03_an_answer_is_kept_as_it_is() {
    let server = Server::start(|seen, _| {
        let content_type = seen.header("accept").unwrap_or("application/json");
        let headers = [
            ("content-type", content_type),
            ("x-id", "7"),
            ("x-id", "8"),
            ("set-cookie", "s=1"),
            ("etag", "e"),
        ];
        match content_type {
            "image/png" => answer(200, &headers, b"\x89PNG\xff"),
            "text/plain" => answer(200, &headers, "gr\u{fc}n"),
            _ => answer(200, &headers, r#"{ "n": 12345678901234567890, "z":1.10, "a": 1 }"#),
        }
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    let response = rig.call(get(server.url("/")).keep_headers(["X-Id"])).await.unwrap();
    assert_eq!(response.text().unwrap(), r#"{"n":12345678901234567890,"z":1.10,"a":1}"#);
    assert_eq!(response.header("X-ID"), Some("7, 8"));
    assert_eq!((response.header("etag"), response.header("set-cookie")), (Some("e"), None));
    let text = rig.call(get(server.url("/")).header("accept", "text/plain")).await.unwrap();
    assert_eq!(text.text().unwrap(), "gr\u{fc}n");
    assert!(text.json::<u64>().unwrap_err().is_permanent());
    let bytes = rig.call(get(server.url("/")).header("accept", "image/png")).await.unwrap();
    assert_eq!(bytes.bytes().unwrap(), b"\x89PNG\xff");
    assert!(bytes.text().unwrap_err().is_permanent());
}

#[tokio::test]
async fn l03_a_request_arrives_as_it_was_described() {
    let server = Server::start(|_, _| answer(204, &[], "")).await;
    let rig = Rig::new(&[server.addr.port()]);
    let at = server.url("/charges");
    rig.call(post(&at).query("a b", "c&d").header("x-one", "1").json(&json!({"n": 1}))).await.unwrap();
    rig.call(post(&at).text("grün")).await.unwrap();
    rig.call(post(&at).bytes(b"bytes").header("content-type", "application/x-mine")).await.unwrap();
    let seen = server.seen();
    assert_eq!((&*seen[0].method, &*seen[0].path), ("POST", "/charges?a+b=c%26d"));
    assert_eq!((&*seen[0].body, seen[0].header("x-one")), (r#"{"n":1}"#, Some("1")));
    assert_eq!(seen[0].header("content-type"), Some("application/json"));
    assert_eq!((&*seen[1].body, seen[1].header("content-type")), ("grün", Some("text/plain; charset=utf-8")));
    assert_eq!((&*seen[2].body, seen[2].header("content-type")), ("bytes", Some("application/x-mine")));
    assert_eq!(seen[0].header("accept-encoding"), None);
}
