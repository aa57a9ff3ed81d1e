//! The check before a deploy (rule P40): open instances of a running system, exported by the command or read from its API,
//! against a build that would break them and one that would not. Proves what is found and with which exit status; no step
//! runs. Not: each way in which code and journal can disagree, which crates/engine/tests/replay.rs does.

use std::{
    ffi::OsString,
    path::Path,
    process::{Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use everstep::{Error, Registry, Step, Workflow};
use everstep_broker::memory::MemoryBroker;
use everstep_coordinator::{Coordinator, Handle, Settings, StartRequest, http};
use everstep_engine::start::NameKey;
use everstep_protocol::{Namespace, Payload, WorkflowName};
use everstep_store::{StatusWord, sqlite::SqliteStore};
use everstep_worker::Worker;
use serde_json::Value;
use tokio::{net::TcpListener, runtime::Runtime};

/// How often a step's function ran.
static RAN: AtomicU32 = AtomicU32::new(0);

async fn count(_: Step, text: String) -> Result<String, Error> {
    RAN.fetch_add(1, Ordering::Relaxed);
    Ok(text)
}

/// As it was deployed.
async fn order(cx: Workflow, (): ()) -> Result<String, Error> {
    let draw = cx.uuid().to_string();
    let paid = cx.step("charge", draw, count).await?;
    cx.sleep("cooling off", "14 days").await?;
    cx.step("ship", paid, count).await
}

/// A step more, where instances have been already.
async fn broken(cx: Workflow, (): ()) -> Result<String, Error> {
    let draw = cx.uuid().to_string();
    cx.step("look at it", draw.clone(), count).await?;
    let paid = cx.step("charge", draw, count).await?;
    cx.sleep("cooling off", "14 days").await?;
    cx.step("ship", paid, count).await
}

/// The same step, for those that have not been there.
async fn fixed(cx: Workflow, (): ()) -> Result<String, Error> {
    let draw = cx.uuid().to_string();
    if cx.patched("look first").await? {
        cx.step("look at it", draw.clone(), count).await?;
    }
    let paid = cx.step("charge", draw, count).await?;
    cx.sleep("cooling off", "14 days").await?;
    cx.step("ship it", paid, count).await
}

fn code<Fut>(body: impl Fn(Workflow, ()) -> Fut + Send + Sync + 'static) -> Registry
where
    Fut: Future<Output = Result<String, Error>> + Send + 'static,
{
    Registry::new().workflow_fn("order", body)
}

/// A system with instances that cool off.
struct Running {
    url: String,
    dir: tempfile::TempDir,
    _runtime: Runtime,
}

impl Running {
    fn new(instances: u32) -> Self {
        let dir = tempfile::tempdir().expect("there is room");
        let runtime = Runtime::new().expect("it starts");
        let url = runtime.block_on(serve(&dir.path().join("test.db"), instances));
        Self { url, dir, _runtime: runtime }
    }

    fn command(&self, args: &[&str]) -> (i32, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_everstep"))
            .args(args)
            .env("EVERSTEP_URL", &self.url)
            .current_dir(self.dir.path())
            .output()
            .expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().expect("it ends"), String::from_utf8_lossy(&said).into_owned())
    }

    /// Checks a build against the exported journals.
    fn journals(&self, registry: &Registry, more: &[&str]) -> (ExitCode, String) {
        let dir = self.dir.path().join("journals");
        check(registry, &[&["--journals", dir.to_str().expect("it is text")], more].concat())
    }

    fn live(&self, registry: &Registry, more: &[&str]) -> (ExitCode, String) {
        check(registry, &[&["--live", self.url.as_str()], more].concat())
    }
}

async fn serve(file: &Path, instances: u32) -> String {
    let store = Arc::new(SqliteStore::open(file).expect("it opens"));
    let broker = MemoryBroker::new();
    let coordinator = Coordinator::new(store, Arc::new(broker.clone()), Settings::default());
    let coordinator = coordinator.await.expect("it is made");
    let handle = coordinator.handle();
    let registry = code(order).workflow_fn("elsewhere", order);
    let worker = Worker::new(registry, Arc::new(broker.connection()), everstep_worker::Settings::default());
    let worker = worker.expect("it is made");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
    let url = format!("http://{}", listener.local_addr().expect("it has one"));
    tokio::spawn(http::serve(listener, handle.clone(), std::future::pending()));
    tokio::spawn(coordinator.run(std::future::pending()));
    tokio::spawn(worker.run(std::future::pending()));
    for number in 0..instances {
        cools_off(&handle, "order", &format!("o-{number}")).await;
    }
    cools_off(&handle, "elsewhere", "e-1").await;
    url
}

/// Starts an instance and waits until it sleeps.
async fn cools_off(handle: &Handle, workflow: &str, id: &str) {
    let name = NameKey {
        namespace: Namespace::default(),
        workflow: WorkflowName::new(workflow).expect("a name"),
        id: id.parse().expect("an id"),
    };
    let request = StartRequest {
        namespace: name.namespace.clone(),
        workflow: name.workflow.clone(),
        id: Some(name.id.clone()),
        input: Payload::null(),
        retention: everstep_protocol::start::Retention::default(),
        pin: None,
        strict: None,
        attributes: Vec::new(),
        hook: None,
        message: None,
    };
    handle.start(request).await.expect("it is started");
    let sleeps = async {
        let is_waiting = async || {
            let view = handle.store().instance(&name).await.expect("the store answers");
            view.is_some_and(|view| view.status == StatusWord::Waiting)
        };
        while !is_waiting().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), sleeps).await.expect("it sleeps");
}

fn check(registry: &Registry, args: &[&str]) -> (ExitCode, String) {
    let args = [&["check"], args].concat().into_iter().map(OsString::from);
    let options =
        <everstep_check::Options as clap::Parser>::try_parse_from(args).expect("they are understood");
    let mut out = Vec::new();
    let code = everstep_check::check_to(registry, &options, &mut out);
    (code, String::from_utf8(out).expect("it is text"))
}

#[test]
fn p40_exported_journals_tell_a_build_that_breaks_them_from_one_that_does_not() {
    let system = Running::new(3);
    let (code_of_export, said) = system.command(&["instances", "export", "journals", "--seeds"]);
    assert_eq!((code_of_export, said.as_str()), (0, "exported 4 open instances to journals\n"));
    let ran = RAN.load(Ordering::Relaxed);

    let (status, said) = system.journals(&code(broken), &[]);
    assert_eq!(status, ExitCode::from(1), "{said}");
    for id in ["o-0", "o-1", "o-2"] {
        let line = format!("order/{id} would break at entry 2 (attempted) of step \"charge\" #1\n");
        assert!(said.contains(&line), "{said}");
    }
    assert!(said.contains("it asks for step \"look at it\" #1"), "{said}");
    assert!(said.contains(": 0 replay, 3 would break"), "{said}");
    assert!(said.contains("not served by this program, and not checked: elsewhere (1)"), "{said}");

    let (status, said) = system.journals(&code(fixed), &["--build", "next"]);
    assert_eq!(status, ExitCode::SUCCESS, "{said}");
    assert_eq!(said.lines().next(), Some("checked 4 instances against build next: 3 replay, 0 would break"));
    // With seeds draws come out as they did.
    assert!(!said.contains("another input"), "{said}");
    assert_eq!(system.journals(&code(fixed), &["--all"]).0, ExitCode::from(1), "one is served by nobody");
    assert_eq!(system.journals(&code(fixed), &["--all", "--workflow", "order"]).0, ExitCode::SUCCESS);
    assert_eq!(RAN.load(Ordering::Relaxed), ran, "no step has run");
}

#[test]
fn p40_a_running_system_is_checked_without_files() {
    let system = Running::new(2);
    let (status, said) = system.live(&code(broken), &["--json"]);
    assert_eq!(status, ExitCode::from(1), "{said}");
    let lines: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let of = |id: &str| lines.iter().find(|line| line["id"] == id).unwrap_or_else(|| panic!("{id}: {said}"));
    let found = of("o-1");
    assert_eq!(
        (&found["result"], &found["entry"], &found["call"]),
        (&Value::from("breaks"), &Value::from(2), &Value::from("step \"charge\" #1"))
    );
    assert_eq!(of("e-1")["result"], "unserved");
    let summary = &lines[lines.len() - 1]["summary"];
    assert_eq!((&summary["checked"], &summary["breaks"]), (&Value::from(3), &Value::from(2)));
    let (status, said) = system.live(&code(fixed), &["--workflow", "order"]);
    assert_eq!(status, ExitCode::SUCCESS, "{said}");
    assert!(said.starts_with("checked 2 instances"), "{said}");
    assert!(!said.contains("another input"), "seeds come along: {said}");
}

#[test]
fn p40_without_seeds_other_draws_are_counted_as_drift() {
    let system = Running::new(1);
    assert_eq!(system.command(&["instances", "export", "journals", "--workflow", "order"]).0, 0);
    let (status, said) = system.journals(&code(order), &["--build", "next"]);
    assert_eq!(status, ExitCode::SUCCESS, "{said}");
    assert!(said.contains("another input: order/o-0 (1)"), "{said}");
}

/// The command itself has the code of the examples, and serves none of these.
#[test]
fn p40_the_command_checks_the_examples_and_says_what_it_does_not_serve() {
    let system = Running::new(1);
    let (status, said) = system.command(&["check", "--live", &system.url]);
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("not served by this program, and not checked: elsewhere (1), order (1)"), "{said}");
    assert_eq!(system.command(&["check", "--live", "http://127.0.0.1:1"]).0, 3);
    assert_eq!(system.command(&["check", "--journals", "nowhere"]).0, 2);
    assert_eq!(system.command(&["check"]).0, 2);
}

#[test]
fn p40_what_is_no_journal_cannot_be_checked() {
    let dir = tempfile::tempdir().expect("there is room");
    std::fs::write(dir.path().join("a.json"), "{}").expect("it is written");
    std::fs::write(dir.path().join("notes.txt"), "not looked at").expect("it is written");
    let (status, said) = check(&code(order), &["--journals", dir.path().to_str().expect("it is text")]);
    assert_eq!(status, ExitCode::from(1), "{said}");
    assert!(
        said.contains("a.json cannot be checked\n") && said.contains("missing field `instance`"),
        "{said}"
    );
}

#[test]
fn p40_a_body_that_panics_or_waits_for_something_else_is_named() {
    let system = Running::new(1);
    let panics = code(|_: Workflow, (): ()| async { panic!("not yet written") });
    let (status, said) = system.live(&panics, &["--workflow", "order"]);
    assert_eq!(status, ExitCode::from(1), "{said}");
    assert!(said.contains("the body panicked after entry 1: not yet written"), "{said}");
    let foreign = code(|_: Workflow, (): ()| async {
        std::future::pending::<()>().await;
        Ok(String::new())
    });
    let (status, said) = system.live(&foreign, &["--workflow", "order"]);
    assert_eq!(status, ExitCode::from(1), "{said}");
    assert!(said.contains("order/o-0 would break"), "{said}");
}

/// Neither can be checked, and neither is a break.
#[test]
fn p40_p44_what_is_pinned_elsewhere_or_sensitive_is_counted_and_does_not_fail() {
    let system = Running::new(2);
    assert_eq!(system.command(&["instances", "pin", "order", "o-0", "--build", "old"]).0, 0);
    assert_eq!(system.command(&["instances", "export", "journals", "--seeds", "--workflow", "order"]).0, 0);
    // As a journal looks whose step is sensitive.
    let file = system.dir.path().join("journals/default/order/o-1.json");
    let mut saved: Value =
        serde_json::from_str(&std::fs::read_to_string(&file).expect("it is there")).expect("JSON");
    let entry = &mut saved["journal"][1];
    entry["sensitive"] = true.into();
    entry.as_object_mut().expect("an entry").remove("output").expect("it has one");
    std::fs::write(&file, saved.to_string()).expect("it is written");

    let (status, said) = system.journals(&code(broken), &["--build", "new"]);
    assert_eq!(status, ExitCode::SUCCESS, "{said}");
    assert!(
        said.contains("order/o-1 cannot be checked\n  entry 2 (attempted): output: it is sensitive"),
        "{said}"
    );
    assert!(said.contains("checked 2 instances against build new: 0 replay, 0 would break"), "{said}");
    assert!(said.contains("pinned to other builds, and not checked: old (1)"), "{said}");
    assert!(said.contains("not checked, since what is sensitive is in no journal here: 1"), "{said}");
    assert_eq!(system.journals(&code(order), &["--build", "new", "--all"]).0, ExitCode::from(1));
    let (status, said) = system.journals(&code(broken), &["--build", "new", "--pinned"]);
    assert_eq!(status, ExitCode::from(1), "{said}");
    assert!(said.contains("order/o-0 would break"), "{said}");
    assert_eq!(
        system.journals(&code(broken), &["--build", "old"]).0,
        ExitCode::from(1),
        "it is its own build"
    );
    let (_, said) = system.journals(&code(order), &["--build", "new", "--json"]);
    assert!(
        said.contains(r#""result":"pinned","build":"old""#) && said.contains(r#""result":"hidden""#),
        "{said}"
    );
}
