//! A fleet of real processes on real servers, operated through the real command.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use everstep_testbed::{Installation, Process};
use serde_json::Value;

/// Far beyond what anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The lease in milliseconds: the default, so that a busy machine ends none.
const LEASE_MS: u64 = 10_000;

/// Coordinators, workers, and the servers' part that is theirs alone. The processes go before their servers do.
pub(crate) struct Fleet {
    pub(crate) coordinators: Vec<(SocketAddr, Process)>,
    pub(crate) workers: Vec<Process>,
    lease_ms: u64,
    directory: tempfile::TempDir,
    pub(crate) installation: Installation,
}

/// What a command came to.
pub(crate) struct Told {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A line of the workers' ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) pid: u32,
    pub(crate) instance: String,
    pub(crate) step: String,
    pub(crate) attempt: u32,
    pub(crate) done: bool,
}

impl Fleet {
    /// Servers alone: an empty database and vhost.
    pub(crate) fn bare() -> Self {
        Self {
            coordinators: Vec::new(),
            workers: Vec::new(),
            lease_ms: LEASE_MS,
            directory: tempfile::tempdir().expect("a temporary directory"),
            installation: Installation::fresh("processes").expect("the development servers run"),
        }
    }

    /// A migrated installation with so many coordinators, ready, and so many workers.
    pub(crate) fn start(coordinators: usize, workers: usize) -> Self {
        Self::start_with_lease(LEASE_MS, coordinators, workers)
    }

    /// The same, for a test that waits for the end of a lease.
    pub(crate) fn start_with_lease(lease_ms: u64, coordinators: usize, workers: usize) -> Self {
        let mut fleet = Self { lease_ms, ..Self::bare() };
        fleet.run(&["migrate"]).succeeded();
        for _ in 0..coordinators {
            fleet.add_coordinator();
        }
        for _ in 0..workers {
            fleet.add_worker(&[]);
        }
        fleet
    }

    /// One that was started before is ready first, so it is the active consumer of every report queue.
    pub(crate) fn add_coordinator(&mut self) {
        let postgres = self.installation.postgres.clone();
        self.add_coordinator_to(&postgres);
    }

    /// The same, with a database of this URL.
    pub(crate) fn add_coordinator_to(&mut self, postgres: &str) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        drop(listener);
        let mut command = self.everstep();
        command
            .arg("coordinator")
            .env("EVERSTEP_POSTGRES__URL", postgres)
            .env("EVERSTEP_HTTP__LISTEN", address.to_string())
            .env("EVERSTEP_COORDINATOR__LEASE", self.lease_ms.to_string())
            .env("EVERSTEP_COORDINATOR__HEARTBEAT", "300")
            .env("EVERSTEP_COORDINATOR__UNROUTABLE", "500")
            .env("EVERSTEP_LOG__LEVEL", "error");
        let process = Process::spawn("coordinator", &mut command).expect("the coordinator starts");
        until("the coordinator is ready", || is_ready(address).then_some(()));
        self.coordinators.push((address, process));
    }

    pub(crate) fn add_worker(&mut self, arguments: &[&str]) {
        let command =
            Path::new(env!("CARGO_BIN_EXE_everstep")).with_file_name("examples").join("test_worker");
        assert!(command.exists(), "{} is missing: cargo build -p everstep-cli --examples", command.display());
        let mut command = Command::new(command);
        command.args(["--amqp", &self.installation.amqp, "--ledger"]).arg(self.ledger()).args(arguments);
        self.workers.push(Process::spawn("worker", &mut command).expect("the worker starts"));
    }

    /// The worker with this process id, taken out of the fleet.
    pub(crate) fn take_worker(&mut self, pid: u32) -> Process {
        let at = self.workers.iter().position(|worker| worker.pid() == pid).expect("it is one of ours");
        self.workers.remove(at)
    }

    /// The command with the settings of a server process, and nothing else of this process's environment.
    pub(crate) fn everstep(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_everstep"));
        command
            .env_clear()
            .env("EVERSTEP_POSTGRES__URL", &self.installation.postgres)
            .env("EVERSTEP_AMQP__URL", &self.installation.amqp)
            .stdin(Stdio::null());
        command
    }

    /// Runs a command against the first coordinator that is left.
    pub(crate) fn run(&self, arguments: &[&str]) -> Told {
        let mut command = self.everstep();
        if let Some((address, _)) = self.coordinators.first() {
            command.env("EVERSTEP_URL", format!("http://{address}"));
        }
        command.args(arguments).output().expect("the command runs").into()
    }

    /// The same, printed for programs.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let told = self.run(&[arguments, &["--output", "json"]].concat()).succeeded();
        serde_json::from_str(&told).expect("it prints JSON")
    }

    /// Starts an instance whose second step waits for the gate of its name.
    pub(crate) fn start_gated(&self, id: &str) {
        self.start_behind(id, id);
    }

    /// Starts an instance whose second step waits for a gate.
    pub(crate) fn start_behind(&self, id: &str, gate: &str) {
        let input = serde_json::json!({ "text": id, "gate": self.gate(gate) }).to_string();
        self.run(&["start", "echo3", "--id", id, "--input", &input]).succeeded();
    }

    pub(crate) fn open_gate(&self, gate: &str) {
        fs::write(self.gate(gate), "").expect("the gate is opened");
    }

    fn gate(&self, name: &str) -> PathBuf {
        self.path(&format!("gate-{name}"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn ledger(&self) -> PathBuf {
        self.path("ledger")
    }

    /// The ledger as far as it was written.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.ledger()).unwrap_or_default();
        text.lines().map(line).collect()
    }

    /// The ledger's lines of one step of one instance: attempt and whether it is done.
    pub(crate) fn attempts(&self, instance: &str, step: &str) -> Vec<(u32, bool)> {
        let of = |line: &Line| line.instance == instance && line.step == step;
        self.lines().into_iter().filter(of).map(|line| (line.attempt, line.done)).collect()
    }

    /// Waits until this attempt of the second step has begun, and tells in which process.
    pub(crate) fn runs_second(&self, instance: &str, attempt: u32, not_in: Option<u32>) -> u32 {
        until("the second step begins", || {
            let is_it = |line: &&Line| {
                line.instance == instance
                    && line.step == "second"
                    && line.attempt == attempt
                    && Some(line.pid) != not_in
            };
            self.lines().iter().find(is_it).map(|line| line.pid)
        })
    }

    pub(crate) fn instance(&self, id: &str) -> Value {
        self.json(&["instances", "get", "echo3", id])
    }

    /// Waits for the status, and returns the instance.
    pub(crate) fn until_status(&self, id: &str, status: &str) -> Value {
        until(&format!("{id} is {status}"), || {
            let instance = self.instance(id);
            (instance["status"] == status).then_some(instance)
        })
    }

    /// Waits until it is complete with the output that it must have, and returns its journal.
    pub(crate) fn completes(&self, id: &str) -> Vec<Value> {
        let instance = self.until_status(id, "complete");
        assert_eq!(instance["output"], format!("{id} 1 2 3"));
        let told = self.json(&["instances", "get", "echo3", id, "--journal"]);
        told["journal"].as_array().expect("a journal").clone()
    }

    pub(crate) fn count(&self, condition: &str) -> usize {
        let told = self.installation.sql(&format!("SELECT count(*) FROM instance WHERE {condition}"));
        told.expect("the database answers").parse().expect("a count")
    }
}

impl Told {
    /// Its standard output, after it succeeded.
    pub(crate) fn succeeded(self) -> String {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self.stdout
    }

    /// Its standard error, after it failed with this exit code.
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        self.stderr
    }
}

impl From<Output> for Told {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("no signal ended it"),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

fn line(text: &str) -> Line {
    let words: Vec<&str> = text.split(' ').collect();
    let [pid, instance, step, attempt, what] = words[..] else { panic!("a torn line: {text:?}") };
    Line {
        pid: pid.parse().expect("a process id"),
        instance: instance.to_owned(),
        step: step.to_owned(),
        attempt: attempt.parse().expect("a number"),
        done: what == "done",
    }
}

fn is_ready(address: SocketAddr) -> bool {
    get(address, &address.to_string(), "/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// What is answered to a request that names this host; nothing if nobody listens.
pub(crate) fn get(address: SocketAddr, host: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).ok()?;
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Asks again and again until there is an answer.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The journal's entries of this kind.
pub(crate) fn of_kind<'a>(journal: &'a [Value], kind: &str) -> Vec<&'a Value> {
    journal.iter().filter(|entry| entry["kind"] == kind).collect()
}

/// Attempts of a step in the journal: number and outcome.
pub(crate) fn recorded(journal: &[Value], step: &str) -> Vec<(u64, String)> {
    let attempts = of_kind(journal, "attempted").into_iter().filter(|entry| entry["call"]["name"] == step);
    let number_and_outcome = |entry: &Value| {
        let outcome = entry["outcome"].as_str().expect("an outcome").to_owned();
        (entry["attempt"].as_u64().expect("a number"), outcome)
    };
    attempts.map(number_and_outcome).collect()
}
