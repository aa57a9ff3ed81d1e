//! What becomes of calls whose connections, answers or bodies fail.

use std::time::Duration;

use everstep_http::{Sent, get, name, post};
use everstep_protocol::Millis;
use tokio::net::TcpListener;

use super::rig::{KEY, Rig, step};
use super::server::{Reply, Server, answer};

#[tokio::test]
async fn l03_the_key_is_the_same_on_all_attempts() {
    let server = Server::start(|_, before| match before {
        0 => answer(503, &[], ""),
        1 => Reply::Close(Vec::new()),
        _ => answer(200, &[], "done"),
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    let calls = rig.calls();
    let request = || post(server.url("/charges")).text("10 EUR");
    assert_eq!(calls.call(&step(1), request()).await.unwrap_err().name(), name::STATUS);
    assert_eq!(calls.call(&step(2), request()).await.unwrap_err().name(), name::BROKEN);
    assert_eq!(calls.call(&step(3), request()).await.unwrap().text().unwrap(), "done");
    let keys: Vec<_> =
        server.seen().iter().map(|seen| seen.header("idempotency-key").map(str::to_owned)).collect();
    assert_eq!(keys, vec![Some(KEY.to_owned()); 3]);
    rig.call(post(server.url("/")).key_header("X-Request-Id")).await.unwrap();
    rig.call(get(server.url("/")).without_key()).await.unwrap();
    let seen = server.seen();
    assert_eq!((seen[3].header("x-request-id"), seen[3].header("idempotency-key")), (Some(KEY), None));
    assert_eq!(seen[4].header("idempotency-key"), None);
}

#[tokio::test]
async fn l03_a_connection_that_drops_leaves_it_unknown() {
    for bytes in [&b""[..], b"HTTP/1.1 2", b"garbage\r\n\r\n"] {
        let server = Server::start(|_, _| Reply::Close(bytes.to_vec())).await;
        let failed = Rig::new(&[server.addr.port()]).fails(post(server.url("/")).text("x")).await;
        assert_eq!(failed.kind(), (name::BROKEN, false, Sent::Unknown), "{bytes:?}");
        assert_eq!(server.seen().len(), 1, "nothing is sent twice by itself");
    }
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc".to_vec();
    let server = Server::start(move |_, _| Reply::Close(cut.clone())).await;
    let failed = Rig::new(&[server.addr.port()]).fails(post(server.url("/"))).await;
    assert_eq!(failed.kind(), (name::BROKEN, false, Sent::Answered));
    assert_eq!(failed.status, Some(200));
}

#[tokio::test]
async fn l09_what_fails_before_anything_was_sent_says_so() {
    // A port that nobody listens at: it was free a moment ago, and is held by a socket that does not listen.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = held.local_addr().unwrap().port();
    let rig = Rig::new(&[port]).allow("http://gone.test:80").allow("http://empty.test:80");
    let refused = rig.fails(post(format!("http://service.test:{port}/"))).await;
    assert_eq!(refused.kind(), (name::NOT_SENT, false, Sent::No));
    let no_name = rig.fails(post("http://gone.test/")).await;
    assert_eq!(no_name.kind(), (name::NOT_SENT, false, Sent::No), "{}", no_name.message);
    let rig = Rig { names: rig.names.clone().with("empty.test", &[&[]]), ..rig };
    let no_address = rig.fails(post("http://empty.test/")).await;
    assert_eq!(no_address.kind(), (name::NOT_SENT, false, Sent::No), "{}", no_address.message);
}

#[tokio::test]
async fn l03_an_answer_that_is_late_leaves_it_unknown() {
    let server = Server::start(|seen, _| match seen.path.as_str() {
        "/never" => Reply::Stall(Vec::new()),
        "/body" => Reply::Stall(b"HTTP/1.1 201 Created\r\ncontent-length: 10\r\n\r\nabc".to_vec()),
        _ => Reply::Stall(b"HTTP/1.1 500 No\r\ncontent-length: 10\r\n\r\nabc".to_vec()),
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    let never = rig.fails(post(server.url("/never")).timeout("100ms")).await;
    assert_eq!((never.kind(), never.status), ((name::TIMED_OUT, false, Sent::Unknown), None));
    let body = rig.fails(post(server.url("/body")).timeout("100ms")).await;
    assert_eq!((body.kind(), body.status), ((name::TIMED_OUT, false, Sent::Answered), Some(201)));
    let error = rig.fails(post(server.url("/error")).timeout("100ms")).await;
    assert_eq!((error.kind(), error.status), ((name::STATUS, false, Sent::Answered), Some(500)));
    assert_eq!(error.body.as_deref(), Some("abc"), "what came of it is told");
    let capped = Rig::new(&[server.addr.port()]);
    let settings = everstep_http::worker::Settings {
        timeout: Millis(50),
        timeout_max: Millis(50),
        ..capped.settings.clone()
    };
    let capped = Rig { settings, ..capped };
    let failed = tokio::time::timeout(
        Duration::from_secs(20),
        capped.fails(post(server.url("/never")).timeout("1 hour")),
    );
    assert_eq!(failed.await.unwrap().name, name::TIMED_OUT, "the worker's own limit holds");
}

#[tokio::test]
async fn l09_a_connection_that_is_not_there_in_time_was_not_used() {
    // It listens, and nobody answers the handshake of TLS.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let rig = Rig::new(&[]).allow(&format!("service.test:{port}"));
    let failed = rig.fails(post(format!("https://service.test:{port}/")).timeout("100ms")).await;
    assert_eq!(failed.kind(), (name::NOT_SENT, false, Sent::No));
    drop(listener);
}

#[tokio::test]
async fn l03_a_body_over_the_limit_is_a_permanent_error_that_says_so() {
    let server = Server::start(|seen, _| match seen.path.as_str() {
        "/declared" => answer(200, &[], vec![b'a'; 1_001]),
        "/fits" => answer(200, &[], vec![b'a'; 1_000]),
        "/grows" => answer(200, &[], vec![b'"'; 999]),
        "/error" => answer(500, &[], vec![b'a'; 200_000]),
        _ => {
            let mut endless = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
            for _ in 0..100 {
                endless.extend_from_slice(b"64\r\n");
                endless.extend_from_slice(&[b'a'; 100]);
                endless.extend_from_slice(b"\r\n");
            }
            Reply::Stall(endless)
        }
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    let settings = everstep_http::worker::Settings {
        response_bytes: 1_000,
        output_bytes: 1_500,
        ..rig.settings.clone()
    };
    let rig = Rig { settings, ..rig };
    assert_eq!(rig.call(get(server.url("/fits"))).await.unwrap().text().unwrap().len(), 1_000);
    for path in ["/declared", "/endless", "/grows"] {
        let failed = rig.fails(post(server.url(path))).await;
        assert_eq!(failed.kind(), (name::TOO_LARGE, true, Sent::Answered), "{path}");
        assert!(failed.message.contains("has done its work"), "{}", failed.message);
    }
    let unread = rig.call(post(server.url("/endless")).discard_body()).await.unwrap();
    assert!(unread.body.is_empty(), "what nobody needs may be of any size");
    let error = rig.fails(post(server.url("/error"))).await;
    assert_eq!((error.name.as_str(), error.body.unwrap().len()), (name::STATUS, 1_024));
}

#[tokio::test]
async fn l03_a_body_without_a_declared_length_is_held_to_the_limit_too() {
    let head = b"HTTP/1.1 200 OK\r\n\r\n";
    let server = Server::start(move |seen, _| match seen.path.as_str() {
        "/fits" => Reply::Close([&head[..], &[b'a'; 1_000]].concat()),
        "/over" => Reply::Close([&head[..], &[b'a'; 1_001]].concat()),
        _ => Reply::Stall([&head[..], &[b'a'; 5_000]].concat()),
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    let settings = everstep_http::worker::Settings { response_bytes: 1_000, ..rig.settings.clone() };
    let rig = Rig { settings, ..rig };
    assert_eq!(rig.call(get(server.url("/fits"))).await.unwrap().text().unwrap().len(), 1_000);
    for path in ["/over", "/endless"] {
        let failed = rig.fails(post(server.url(path))).await;
        assert_eq!(failed.kind(), (name::TOO_LARGE, true, Sent::Answered), "{path}");
    }
}

#[tokio::test]
async fn l03_an_error_whose_body_does_not_end_holds_nobody_up() {
    let server = Server::start(|seen, _| {
        let head = format!("HTTP/1.1 {} No\r\ncontent-length: 9999999\r\n\r\n", &seen.path[1..]);
        Reply::Stall([head.as_bytes(), b"you sent s3cr"].concat())
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    let rig = Rig { secrets: everstep_http::worker::Secrets::default().with("A", "s3cret-word"), ..rig };
    for (status, permanent) in [(400, true), (503, false)] {
        let request = post(server.url(&format!("/{status}"))).header("x-a", "{secret:A}").timeout("10 min");
        let failed = tokio::time::timeout(Duration::from_mins(1), rig.fails(request)).await.unwrap();
        assert_eq!((failed.kind(), failed.status), ((name::STATUS, permanent, Sent::Answered), Some(status)));
        assert_eq!(
            failed.body.as_deref(),
            Some("you sent "),
            "what may be the beginning of a secret is left out"
        );
    }
}

#[tokio::test]
async fn l03_a_url_that_is_too_long_is_not_tried_again() {
    let server = Server::start(|_, _| answer(200, &[], "")).await;
    let rig = Rig::new(&[server.addr.port()]);
    let long = rig.fails(post(server.url("/")).query("q", "x".repeat(65_534))).await;
    assert_eq!(long.kind(), (name::INVALID, true, Sent::No), "{}", long.message);
    let by_body = post(server.url("/{body:/id}")).json(&serde_json::json!({ "id": "x".repeat(65_534) }));
    assert_eq!(rig.fails(by_body).await.kind(), (name::INVALID, true, Sent::No));
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn l03_nothing_is_decompressed() {
    // 1 KiB on the wire that claims to be compressed: were it taken at its word, it would have to be read or refused.
    let bomb: Vec<u8> = [&[0x1f, 0x8b, 8, 0][..], &[0xff; 1_020]].concat();
    let wire = bomb.clone();
    let server = Server::start(move |_, _| {
        answer(200, &[("content-encoding", "gzip"), ("content-type", "application/json")], &wire)
    })
    .await;
    let response = Rig::new(&[server.addr.port()]).call(get(server.url("/"))).await.unwrap();
    assert_eq!(response.bytes().unwrap(), bomb);
}

#[tokio::test]
async fn l03_calls_are_counted_by_what_became_of_them() {
    let server = Server::start(|seen, _| answer(seen.path[1..].parse().unwrap(), &[], "")).await;
    let rig = Rig::new(&[server.addr.port()]);
    for status in [200, 404, 503] {
        drop(rig.call(post(server.url(&format!("/{status}")))).await);
    }
    drop(rig.call(post("https://elsewhere.test/")).await);
    for outcome in ["done", "refused", "again", "not_allowed"] {
        assert_eq!(rig.metrics.calls.with_label_values(&[outcome]).get(), 1, "{outcome}");
    }
}
