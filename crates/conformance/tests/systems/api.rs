//! The HTTP API asked for what nobody should ask: every answer is one that a program can read, and none shows what is inside.

use everstep::{Error, Registry, Workflow};
use everstep_coordinator::http;
use everstep_system_tests::{Kind, Setup, World, on_both};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Where the API is, until the test ends.
pub(crate) struct Api(std::net::SocketAddr);

impl Api {
    pub(crate) async fn of(world: &World) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(http::serve(listener, world.handle(), std::future::pending()));
        Self(addr)
    }

    /// Status and body.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let (host, length) = (self.0, body.len());
        let mut stream = TcpStream::connect(self.0).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}"
        );
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// A refusal: a problem with a code, in this range of statuses, without a word of what is inside.
    pub(crate) async fn refused(
        &self,
        method: &str,
        path: &str,
        body: &str,
        statuses: std::ops::Range<u16>,
    ) -> serde_json::Value {
        let (status, text) = self.ask(method, path, body).await;
        assert!(statuses.contains(&status), "{method} {path}: {status} {text}");
        let problem: serde_json::Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(problem["code"].is_string() && problem["retry_safe"].is_boolean(), "{text}");
        let lower = text.to_lowercase();
        for inside in
            ["select ", "insert ", "relation ", "sqlite", "postgres", "syntax", "panicked", ".rs:", "column "]
        {
            assert!(!lower.contains(inside), "{method} {path} shows {inside:?}: {text}");
        }
        problem
    }
}

fn quick() -> Registry {
    Registry::new().workflow_fn("quick", |_: Workflow, (): ()| async move { Ok::<_, Error>(()) })
}

/// Every byte escaped, so that nothing of it is part of the path.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat()
}

const OPERATIONS: [(&str, &str); 8] = [
    ("GET", ""),
    ("GET", "/journal"),
    ("POST", "/pause"),
    ("POST", "/resume"),
    ("POST", "/cancel"),
    ("POST", "/terminate"),
    ("POST", "/restart"),
    ("DELETE", ""),
];

on_both! {
    async fn b093_b112_whatever_is_asked_of_an_instance_the_answer_is_a_problem_with_a_code_and_shows_nothing_internal(setup) {
        let world = setup.serve(quick()).await;
        let api = Api::of(&world).await;
        let ids = [
            "a/b", "..", "../../etc", "a b", "a+b", "a?b=c", "a#b", "a;b", "a\\b", "日本", "\u{202e}x", " a", "a\t", "\r\nX-Evil: 1", "\0",
            "\u{feff}a", "'; DROP TABLE instance; --", "a' OR '1'='1", "$1", "%", "_%", "{{7*7}}", "${HOME}", "*", "~", "$(id)",
            &"x".repeat(101), &"x".repeat(5_000), "*/5 * * * *-1700000000000",
        ];
        for id in ids {
            for (method, operation) in OPERATIONS {
                let path = format!("/v1/default/workflows/quick/instances/{}{operation}", escaped(id));
                api.refused(method, &path, "", 400..500).await;
            }
            let body = serde_json::json!({ "id": id }).to_string();
            api.refused("POST", "/v1/default/workflows/quick/instances", &body, 400..500).await;
            let event = format!("/v1/default/workflows/quick/instances/one/events/{}", escaped(id));
            api.refused("POST", &event, "1", 400..500).await;
        }
        for query in ["order=(CASE%20WHEN%201=1%20THEN%20id%20ELSE%201%20END)", "status='%20OR%201=1%20--", "limit=1;select", "limit=1&limit=2"] {
            api.refused("GET", &format!("/v1/default/instances?{query}"), "", 400..500).await;
        }
        let (status, listed) = api.ask("GET", "/v1/default/instances", "").await;
        assert_eq!((status, listed.as_str()), (200, r#"{"instances":[],"next":null}"#), "nothing was made of it");
        // What is allowed is the same everywhere, also where it looks odd.
        for id in ["-rf", "--help", "A.b:c_d-9", "list", "health", "new", "...", ".a"] {
            let body = serde_json::json!({ "id": id }).to_string();
            let (status, answer) = api.ask("POST", "/v1/default/workflows/quick/instances", &body).await;
            assert_eq!(status, 201, "{id}: {answer}");
            world.end("quick", id).await;
            let (status, answer) = api.ask("GET", &format!("/v1/default/workflows/quick/instances/{}", escaped(id)), "").await;
            let shown: serde_json::Value = serde_json::from_str(&answer).unwrap();
            assert_eq!((status, shown["id"].as_str()), (200, Some(id)), "{answer}");
        }
    }
}

/// A database that is broken in a way that nobody foresaw.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b093_an_error_of_the_database_is_not_told_to_the_caller() {
    let world = Setup::new(Kind::Fleet).serve(quick()).await;
    let api = Api::of(&world).await;
    world.begin("quick", "one", &()).await;
    world.end("quick", "one").await;
    let tables = world.sql("SELECT string_agg(tablename, ',') FROM pg_tables WHERE schemaname = 'public'");
    for table in tables.split(',').filter(|table| table.starts_with("instance")) {
        world.sql(&format!("ALTER TABLE {table} RENAME TO gone_{table}"));
    }
    let one = "/v1/default/workflows/quick/instances/one";
    for (method, path) in
        [("GET", one), ("GET", "/v1/default/instances"), ("POST", &format!("{one}/terminate"))]
    {
        api.refused(method, path, "", 500..600).await;
    }
}
