//! Runs the command against a server with fixed answers, and tells all of it as one text.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail tests")]

use std::{
    fmt::Write as _,
    io::Write as _,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};

/// A method and path with query, and the answer to it. Answers of the same route come one after the other, the last stays.
pub(crate) type Answers = Vec<(&'static str, u16, String)>;

#[derive(Clone, Default)]
struct Shared {
    answers: Arc<Mutex<Answers>>,
    requests: Arc<Mutex<Vec<String>>>,
}

/// A server, a directory, and the environment of the command.
pub(crate) struct Rig {
    addr: SocketAddr,
    shared: Shared,
    dir: tempfile::TempDir,
    environment: Vec<(String, String)>,
    input: Option<&'static str>,
    _runtime: tokio::runtime::Runtime,
}

impl Rig {
    /// A server that gives these answers.
    pub(crate) fn new(answers: Answers) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let shared = Shared { answers: Arc::new(Mutex::new(answers)), ..Shared::default() };
        let app = Router::new().fallback(answer).with_state(shared.clone());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, app).await });
        let environment = vec![("EVERSTEP_URL".to_owned(), format!("http://{addr}"))];
        let dir = tempfile::tempdir().unwrap();
        Self { addr, shared, dir, environment, input: None, _runtime: runtime }
    }

    /// Sets a variable.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Gives the command something to read.
    pub(crate) fn input(mut self, input: &'static str) -> Self {
        self.input = Some(input);
        self
    }

    /// Writes a file for the command, which runs in its directory.
    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        std::fs::write(self.path(name), text).unwrap();
        self
    }

    /// The command's directory.
    pub(crate) fn dir(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the command and tells exit code, output, and what the server was asked.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let mut told = format!("$ everstep {}\n", args.join(" "));
        writeln!(told, "exit code {}", output.status.code().unwrap()).unwrap();
        for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            if !bytes.is_empty() {
                write!(told, "--- {name}\n{}", String::from_utf8_lossy(bytes)).unwrap();
            }
        }
        let requests = std::mem::take(&mut *self.shared.requests.lock().unwrap());
        if !requests.is_empty() {
            write!(told, "--- requests\n{}\n", requests.join("\n")).unwrap();
        }
        without_ids(&told.replace(&self.addr.to_string(), "[ADDRESS]"))
    }

    /// Runs the command.
    pub(crate) fn output(&self, args: &[&str]) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_everstep"))
            .args(args)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(self.input.unwrap_or_default().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}

async fn answer(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let asked = format!("{method} {uri}");
    let body = String::from_utf8_lossy(&body);
    let mut request = format!("{asked} {body}").trim_end().to_owned();
    if let Some(given) = headers.get(header::AUTHORIZATION) {
        request = format!("{request} (Authorization: {})", given.to_str().unwrap());
    }
    shared.requests.lock().unwrap().push(request);
    let mut answers = shared.answers.lock().unwrap();
    let Some(at) = answers.iter().position(|(route, ..)| *route == asked) else {
        return (StatusCode::IM_A_TEAPOT, format!("the test has no answer to {asked}")).into_response();
    };
    let is_last = answers.iter().filter(|(route, ..)| *route == asked).count() == 1;
    let (_, status, text) = if is_last { answers[at].clone() } else { answers.remove(at) };
    (StatusCode::from_u16(status).unwrap(), [(header::CONTENT_TYPE, "application/json")], text)
        .into_response()
}

/// Generated ids are not the same twice.
fn without_ids(text: &str) -> String {
    let is_id = |text: &str| {
        text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let mut told = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if rest.get(..36).is_some_and(is_id) {
            told.push_str("[UUID]");
            rest = &rest[36..];
        } else {
            told.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    told
}
