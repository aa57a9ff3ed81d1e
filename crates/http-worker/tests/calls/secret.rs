//! Secrets reach the callee and nobody else.

use std::{
    io,
    sync::{Arc, Mutex},
};

use everstep_http::{Sent, get, name, post, worker::Secrets};
use everstep_protocol::Payload;
use serde_json::json;

use super::rig::Rig;
use super::server::{Server, answer};

const SECRET: &str = "tok\"en/9+8=7";

/// Everything that is logged while a test runs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn l03_a_secret_that_is_echoed_is_not_recorded() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::TRACE);
    let subscriber = lines.with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::start(|seen, _| {
        let token = seen.header("authorization").unwrap().to_owned();
        let echo = json!({ "you sent": token }).to_string();
        let json = ("content-type", "application/json");
        match seen.path.as_str() {
            "/fine" => answer(200, &[json, ("etag", &token)], echo),
            "/bytes" => answer(200, &[], [token.as_bytes(), b"\xff"].concat()),
            "/error" => answer(400, &[json], echo),
            "/again" => answer(503, &[json], echo),
            _ => answer(302, &[json, ("location", &format!("/?t={token}"))], echo),
        }
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]);
    let rig = Rig { secrets: Secrets::default().with("TOKEN", SECRET), ..rig };
    let request =
        |path| get(server.url(path)).header("authorization", "Bearer {secret:TOKEN}").keep_headers(["etag"]);
    let is_clean = |text: &str| {
        let (quoted, plain) = (json!(SECRET).to_string(), SECRET.to_owned());
        assert!(
            !text.contains(&plain) && !text.contains(quoted.trim_matches('"')) && !text.contains("9+8"),
            "{text}"
        );
    };
    is_clean(Payload::encode(&request("/fine")).unwrap().as_str());
    let fine = rig.call(request("/fine")).await.unwrap();
    is_clean(Payload::encode(&fine).unwrap().as_str());
    assert_eq!(fine.text().unwrap(), r#"{"you sent":"Bearer {secret:TOKEN}"}"#);
    assert_eq!(fine.header("etag"), Some("Bearer {secret:TOKEN}"));
    let bytes = rig.call(request("/bytes")).await.unwrap();
    assert_eq!(bytes.bytes().unwrap(), b"Bearer {secret:TOKEN}\xff");
    for path in ["/error", "/again", "/redirect"] {
        let error = rig.call(request(path)).await.unwrap_err();
        let failure = error.as_ref();
        is_clean(&format!("{} {:?} {}", failure.message, failure, failure.data.as_ref().unwrap().as_str()));
        assert!(
            failure.data.as_ref().unwrap().as_str().contains("{secret:TOKEN}"),
            "the echo is told, redacted"
        );
    }
    assert_eq!(
        server.seen()[0].header("authorization"),
        Some(&*format!("Bearer {SECRET}")),
        "the callee gets it"
    );
    is_clean(&String::from_utf8_lossy(&log.0.lock().unwrap()));
}

#[tokio::test]
async fn l03_a_secret_that_is_missing_is_asked_for_again_and_nothing_is_sent() {
    let server = Server::start(|_, _| answer(200, &[], "")).await;
    let rig = Rig::new(&[server.addr.port()]);
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig { secrets: Secrets::default().directory(dir.path()), ..rig };
    let request = || post(server.url("/")).header("x-token", "{secret:LATE}");
    let failed = rig.fails(request()).await;
    assert_eq!(
        failed.kind(),
        (name::NOT_SENT, false, Sent::No),
        "another worker, or this one later, may have it"
    );
    assert!(server.seen().is_empty());
    std::fs::write(dir.path().join("LATE"), "here-it-is\n").unwrap();
    rig.call(request()).await.unwrap();
    assert_eq!(server.seen()[0].header("x-token"), Some("here-it-is"));
}

#[tokio::test]
async fn l03_a_secret_goes_only_where_it_may() {
    let server = Server::start(|_, _| answer(200, &[], "")).await;
    let rig = Rig::new(&[server.addr.port()]);
    let secrets =
        Secrets::default().with("TOKEN", SECRET).only_to("TOKEN", ["payments.test".parse().unwrap()]);
    let rig = Rig { secrets, ..rig };
    let failed = rig.fails(post(server.url("/")).header("x-token", "{secret:TOKEN}")).await;
    assert_eq!(failed.kind(), (name::NOT_ALLOWED, true, Sent::No));
    assert!(server.seen().is_empty());
}
