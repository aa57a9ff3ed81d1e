//! A coordinator that serves its API on a store of its own, and what it answers.

use std::{collections::HashMap, net::SocketAddr, path::PathBuf, sync::Arc};

use everstep_broker::memory::MemoryBroker;
use everstep_coordinator::{Coordinator, Handle, Settings, http};
use everstep_protocol::limits::Limits;
use everstep_store::{Store, sqlite::SqliteStore};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

/// A coordinator that serves.
pub(crate) struct Rig {
    pub(crate) addr: SocketAddr,
    pub(crate) dir: PathBuf,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) broker: Arc<MemoryBroker>,
    pub(crate) handle: Handle,
    _stop: (oneshot::Sender<()>, oneshot::Sender<()>),
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Left behind if it fails: the directory is a temporary one.
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Checks that it is a problem of this status and code, and gives its detail.
    pub(crate) fn problem(&self, status: u16, code: &str) -> String {
        assert_eq!(
            (self.status, self.headers["content-type"].as_str()),
            (status, "application/problem+json"),
            "{}",
            self.body
        );
        let problem = self.json();
        assert_eq!((&problem["status"], &problem["code"]), (&json!(status), &json!(code)));
        assert_eq!(problem["type"], json!(format!("urn:everstep:problem:{code}")));
        assert!(problem["title"].is_string() && problem["retry_safe"].is_boolean(), "{problem}");
        problem["detail"].as_str().unwrap().to_owned()
    }
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with(async |_| ()).await
    }

    /// With something that is done to the store before.
    pub(crate) async fn with(before: impl AsyncFnOnce(&Arc<dyn Store>)) -> Self {
        Self::serving(http::Settings::default(), "127.0.0.1:0", before).await
    }

    /// Served in this way, at this address.
    pub(crate) async fn serving(
        served: http::Settings,
        listen: &str,
        before: impl AsyncFnOnce(&Arc<dyn Store>),
    ) -> Self {
        let dir = std::env::temp_dir().join(format!("everstep-http-{}", uuid::Uuid::now_v7()));
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.join("test.db")).unwrap());
        before(&store).await;
        let limits = Limits { input_bytes: 100, ..Limits::default() };
        let settings = Settings { limits, ..Settings::default() };
        let broker = Arc::new(MemoryBroker::new());
        let coordinator = Coordinator::new(Arc::clone(&store), broker.clone(), settings).await.unwrap();
        let listener = TcpListener::bind(listen).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        let (stop_http, http_stopped) = oneshot::channel();
        let (stop_loop, loop_stopped) = oneshot::channel();
        let handle = coordinator.handle();
        tokio::spawn(http::serve_with(served, listener, handle.clone(), async { drop(http_stopped.await) }));
        tokio::spawn(coordinator.run(async { drop(loop_stopped.await) }));
        Self { addr, dir, store, broker, handle, _stop: (stop_http, stop_loop) }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, &[("content-type", "application/json")], body).await
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = self.send(method, path, headers, body).await;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        read(head, body)
    }

    /// The head of an answer that need not end.
    pub(crate) async fn head(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut stream = self.send(method, path, headers, body).await;
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.push(stream.read_u8().await.unwrap());
        }
        read(&String::from_utf8(bytes).unwrap(), "")
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let host = self.addr.to_string();
        let mut lines = vec![format!("{method} {path} HTTP/1.1"), "connection: close".to_owned()];
        if !headers.iter().any(|(name, _)| *name == "host") {
            lines.push(format!("host: {host}"));
        }
        lines.push(format!("content-length: {}", body.len()));
        lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        stream.write_all(format!("{}\r\n\r\n{body}", lines.join("\r\n")).as_bytes()).await.unwrap();
        stream
    }

    /// Opens a stream of events. HTTP/1.0, so that what comes is the events and nothing else.
    pub(crate) async fn stream(&self, path: &str, headers: &[(&str, &str)]) -> Stream {
        let headers: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let headers = headers.concat();
        let mut connection = TcpStream::connect(self.addr).await.unwrap();
        let host = self.addr;
        let request = format!("GET {path} HTTP/1.0\r\nhost: {host}\r\n{headers}\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut stream = Stream { connection, rest: String::new(), head: String::new() };
        stream.head = stream.until("\r\n\r\n").await.expect("it answers");
        stream
    }
}

fn read(head: &str, body: &str) -> Answer {
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let headers = head.lines().filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Answer { status, headers, body: body.to_owned() }
}

/// A stream of events as it comes.
pub(crate) struct Stream {
    connection: TcpStream,
    rest: String,
    pub(crate) head: String,
}

/// An event: its id, its kind, and its data as JSON.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

impl Stream {
    async fn until(&mut self, end: &str) -> Option<String> {
        loop {
            if let Some((text, rest)) = self.rest.split_once(end) {
                let (text, rest) = (text.to_owned(), rest.to_owned());
                self.rest = rest;
                return Some(text);
            }
            let mut bytes = vec![0; 64 << 10];
            let count = self.connection.read(&mut bytes).await.unwrap();
            if count == 0 {
                return None;
            }
            self.rest.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
    }

    /// The next event; none once the stream is over.
    pub(crate) async fn event(&mut self) -> Option<Event> {
        loop {
            let text = tokio::time::timeout(std::time::Duration::from_secs(30), self.until("\n\n"));
            let text = text.await.expect("something comes in time")?;
            let field = |name: &str| text.lines().find_map(|line| Some(line.strip_prefix(name)?.to_owned()));
            let Some(kind) = field("event: ") else { continue };
            let data = serde_json::from_str(&field("data: ").unwrap()).unwrap();
            return Some(Event { id: field("id: "), kind, data });
        }
    }

    /// All until the last.
    pub(crate) async fn all(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.event().await {
            events.push(event);
        }
        events
    }
}
