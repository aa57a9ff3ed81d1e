//! Requests from outside, whatever they are, to the router in this process: each is answered, none with a fault of the server's, every
//! refusal is a problem that says why, and a body is read to its limit and no further. `EVERSTEP_TEST_FUZZ` is how many cases there are
//! of each; `make fuzz` asks for many.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail tests")]

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    http::{Method, Request, StatusCode, Uri, header},
};
use everstep_broker::memory::MemoryBroker;
use everstep_coordinator::{Coordinator, Settings, http};
use everstep_store::{Store, sqlite::SqliteStore};
use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any, prop_oneof},
    sample::select,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use tower_service::Service;

#[allow(clippy::disallowed_methods, reason = "the tests' own switch")]
fn cases(ordinary: u32) -> u32 {
    let wanted = std::env::var("EVERSTEP_TEST_FUZZ").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(ordinary)
}

/// A coordinator that runs, and its routes.
struct Served {
    router: Router,
    dir: std::path::PathBuf,
    running: tokio::task::JoinHandle<()>,
}

impl Served {
    async fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("everstep-fuzz-{}", uuid::Uuid::now_v7()));
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.join("test.db")).unwrap());
        let coordinator =
            Coordinator::new(store, Arc::new(MemoryBroker::new()), Settings::default()).await.unwrap();
        let router =
            http::router(http::Settings::default(), ([127, 0, 0, 1], 0).into(), coordinator.handle());
        let running = tokio::spawn(async move { drop(coordinator.run(std::future::pending()).await) });
        Self { router, dir, running }
    }

    async fn ask(&self, request: Request<Body>) -> (StatusCode, Option<String>, Bytes) {
        let answer = self.router.clone().call(request).await;
        let (head, body) = answer.unwrap_or_else(|never: Infallible| match never {}).into_parts();
        let kind =
            head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok().map(str::to_owned));
        let is_stream = kind.as_deref().is_some_and(|kind| kind.starts_with("text/event-stream"));
        let body = if is_stream { Bytes::new() } else { to_bytes(body, 64 << 20).await.unwrap() };
        (head.status, kind, body)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.running.abort();
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

#[derive(Clone, Debug)]
struct Asked {
    method: Method,
    path: String,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
}

/// Parts of paths: those that are there, and others.
fn segment() -> impl Strategy<Value = String> {
    let known = select(vec![
        "v1",
        "default",
        "workflows",
        "fulfil",
        "instances",
        "o-1",
        "events",
        "paid",
        "pause",
        "resume",
        "cancel",
        "restart",
        "terminate",
        "retry",
        "rollback",
        "journal",
        "attention",
        "parked",
        "1-2",
        "resolve",
        "ledger",
        "pin",
        "unpin",
        "bulk",
        "schedules",
        "trigger",
        "backfill",
        "changes",
        "journals",
        "hooks",
        "t",
        "rejected",
        "audit",
        "breaches",
        "doctor",
        "instances:batch",
        "instances:operate",
        "healthz",
        "readyz",
        "metrics",
        "openapi.json",
        "docs",
    ]);
    let odd = vec(any::<u8>(), 0..6)
        .prop_map(|bytes| bytes.iter().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat());
    prop_oneof![8 => known.prop_map(str::to_owned), 1 => odd, 1 => "[!-~&&[^#?/%]]{0,12}"]
}

fn query() -> impl Strategy<Value = String> {
    let name = select(vec![
        "limit",
        "cursor",
        "after",
        "status",
        "wait",
        "run",
        "key",
        "reference",
        "since",
        "until",
        "terminate",
        "error",
        "zzz",
    ]);
    let value = prop_oneof![
        select(vec![
            "1",
            "0",
            "-1",
            "99999999999999999999",
            "queued",
            "30s",
            "true",
            "2026-01-01T00:00:00Z",
            "AAAA",
            "%00",
            "%FF",
            ""
        ])
        .prop_map(str::to_owned),
        "[a-zA-Z0-9%._~-]{0,20}".prop_filter("no wait for long", |text| !text.ends_with(['h', 'd'])),
    ];
    vec((name, value), 0..3).prop_map(|pairs| {
        // Waiting is what takes time, and not what is asked here.
        let pairs = pairs.iter().filter(|(name, _)| *name != "wait");
        pairs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    })
}

/// Bodies that are nearly right.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let json = select(vec![
        "",
        "{}",
        "[]",
        "null",
        "{",
        "{\"id\":\"o-2\"}",
        "{\"id\":1}",
        "{\"input\":{\"a\":[1,2,3]}}",
        "{\"id\":\"x\",\"zzz\":1}",
        "{\"starts\":[{\"id\":\"a\"}]}",
        "{\"operation\":\"pause\",\"where\":{\"workflow\":\"fulfil\"}}",
        "{\"ids\":[\"o-1\"],\"operation\":\"pause\"}",
        "{\"choice\":\"done\",\"output\":1}",
        "{\"reason\":\"x\"}",
        "{\"within\":\"1 day\"}",
        "{\"build\":\"b\"}",
        "{\"token\":\"t\",\"payload\":1}",
        "{\"cron\":\"* * * * *\",\"workflow\":\"fulfil\"}",
        "{\"from\":\"2026-01-01T00:00:00Z\",\"to\":\"2026-01-02T00:00:00Z\"}",
        "{\"a\":\"\\ud800\"}",
        "\u{feff}{}",
        "{\"id\":\"a\",\"id\":\"b\"}",
    ]);
    prop_oneof![
        3 => json.prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..200),
        1 => (1_usize..3_000).prop_map(|depth| "[".repeat(depth).into_bytes()),
    ]
}

fn asked() -> impl Strategy<Value = Asked> {
    let method = select(vec![
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::PATCH,
        Method::HEAD,
        Method::OPTIONS,
    ]);
    let name = select(vec![
        "content-type",
        "idempotency-key",
        "accept",
        "authorization",
        "last-event-id",
        "x-everstep-app-id",
        "traceparent",
    ]);
    let value = prop_oneof![
        select(vec![
            "application/json",
            "application/msgpack",
            "text/plain",
            "",
            "a",
            "application/json; charset=utf-16"
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        vec(
            any::<u8>().prop_filter("a header holds no controls", |byte| *byte >= 32 && *byte != 127),
            0..130
        ),
    ];
    let path = prop_oneof![
        1 => vec(segment(), 0..8).prop_map(|parts| parts.join("/")),
        2 => (segment(), segment()).prop_map(|(id, verb)| format!("v1/default/workflows/fulfil/instances/{id}/{verb}")),
        1 => segment().prop_map(|last| format!("v1/default/{last}")),
        1 => Just("v1/default/workflows/fulfil/instances".to_owned()),
    ];
    (method, path, query(), vec((name, value), 0..3), body()).prop_map(
        |(method, path, query, headers, body)| Asked {
            method,
            path: format!("/{path}?{query}"),
            headers,
            body,
        },
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fuzz_every_request_is_answered_and_none_with_a_fault_of_ours() {
    let served = Served::new().await;
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    for _ in 0..cases(1_500) {
        let one = asked().new_tree(&mut runner).unwrap().current();
        let Ok(uri) = one.path.parse::<Uri>() else { continue };
        let mut request =
            Request::builder().method(one.method.clone()).uri(uri).header(header::HOST, "localhost");
        for (name, value) in &one.headers {
            request = request.header(*name, value.as_slice());
        }
        let Ok(request) = request.body(Body::from(one.body.clone())) else { continue };
        let answered = tokio::time::timeout(std::time::Duration::from_secs(30), served.ask(request)).await;
        let (status, kind, body) = answered.unwrap_or_else(|_| panic!("no answer to {one:?}"));
        let told = String::from_utf8_lossy(&body);
        assert!(status.as_u16() < 500, "{one:?}: {status} {told}");
        if status.is_client_error() && one.method != Method::HEAD {
            assert_eq!(kind.as_deref(), Some("application/problem+json"), "{one:?}: {status} {told}");
            let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert!(problem["code"].is_string() && problem["detail"].is_string(), "{one:?}: {problem}");
        }
    }
}

/// A body that never ends: it is read to the limit of its route, and the rest is left where it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fuzz_o11_a_body_is_read_to_its_limit_and_no_further() {
    const PART: usize = 64 << 10;
    let served = Served::new().await;
    let start = "/v1/default/workflows/fulfil/instances";
    for (path, most) in [
        (start.to_owned(), 6 << 20),
        (format!("{start}:batch"), 18 << 20),
        (format!("{start}/o-1/events/paid"), 6 << 20),
        (format!("{start}/o-1/pause"), 6 << 20),
        ("/hooks/default/t".to_owned(), 6 << 20),
    ] {
        let given = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&given);
        let parts = futures::stream::repeat_with(move || {
            count.fetch_add(PART, Ordering::Relaxed);
            Ok::<_, Infallible>(Bytes::from(vec![b' '; PART]))
        });
        let request = Request::post(&path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from_stream(parts))
            .unwrap();
        let answered = tokio::time::timeout(std::time::Duration::from_secs(30), served.ask(request)).await;
        let (status, _, body) = answered.unwrap_or_else(|_| panic!("{path} reads for ever"));
        assert!(status.is_client_error(), "{path}: {status} {}", String::from_utf8_lossy(&body));
        assert!(given.load(Ordering::Relaxed) <= most, "{path}: {} were read", given.load(Ordering::Relaxed));
        // One that says its length is refused by that alone.
        let request = Request::post(&path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONTENT_LENGTH, "1000000000000")
            .body(Body::empty())
            .unwrap();
        let (status, ..) = served.ask(request).await;
        assert!(status.is_client_error(), "{path}: {status}");
    }
}
