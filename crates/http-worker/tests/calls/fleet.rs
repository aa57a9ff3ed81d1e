//! The process as it is deployed: its binary beside a coordinator and a worker with workflows, on real servers.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use everstep::{Error, Registry, Workflow};
use everstep_broker::{AmqpBroker, AmqpSettings, Broker};
use everstep_coordinator::{Coordinator, Settings, StartRequest};
use everstep_engine::start::NameKey;
use everstep_http::post;
use everstep_protocol::Payload;
use everstep_store::{
    StatusWord, Store,
    postgres::{PostgresSettings, PostgresStore, migrate},
};
use everstep_testbed::Installation;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
};

use super::server::{Server, answer};

/// Killed if the test fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Process {
    /// Starts the worker; gives the address of its metrics as its log says it.
    fn start(amqp: &str, service: u16) -> (Self, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_everstep-http-worker"))
            .env_clear()
            .env("EVERSTEP_AMQP__URL", amqp)
            .env("EVERSTEP_CALLS__NETWORKS", r#"["127.0.0.1"]"#)
            .env("EVERSTEP_SECRET_TOKEN", "s3cret-value")
            .env("EVERSTEP_LOG__FORMAT", "json")
            .args(["--listen", "127.0.0.1:0", "--host", &format!("http://127.0.0.1:{service}")])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if let Some(listen) = line["fields"]["listen"].as_str() {
                break listen.to_owned();
            }
        };
        // Read on, so that the process can go on logging.
        std::thread::spawn(move || lines.for_each(drop));
        (Self(child), address)
    }

    /// Its exit code after SIGTERM.
    async fn stop(mut self) -> Option<i32> {
        let stopped = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(stopped.success());
        tokio::task::spawn_blocking(move || self.0.wait().unwrap().code()).await.unwrap()
    }
}

async fn call(cx: Workflow, url: String) -> Result<u16, Error> {
    let call = post(url).header("x-token", "{secret:TOKEN}").json(&"hello");
    Ok(call.step(&cx, "call").retry(everstep::Retry::constant("10ms").limit(3)).await?.status)
}

async fn until(mut stopped: watch::Receiver<bool>) {
    drop(stopped.wait_for(|stopped| *stopped).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l03_the_process_serves_a_fleet_shows_its_counters_and_stops() {
    let installation = Installation::fresh("everstep_http").unwrap();
    let service = Server::start(|_, before| answer(if before == 0 { 503 } else { 201 }, &[], "")).await;
    migrate(&installation.postgres).await.unwrap();
    let store: Arc<dyn Store> =
        Arc::new(PostgresStore::connect(PostgresSettings::new(installation.postgres.clone())).await.unwrap());
    let broker: Arc<dyn Broker> =
        Arc::new(AmqpBroker::connect(AmqpSettings::new(installation.amqp.clone(), "test coordinator")));
    let coordinator =
        Coordinator::new(Arc::clone(&store), Arc::clone(&broker), Settings::default()).await.unwrap();
    let handle = coordinator.handle();
    coordinator.declare().await;
    let (stop, stopped) = watch::channel(false);
    let turns = tokio::spawn(coordinator.run(until(stopped.clone())));
    let worker = everstep::fleet(installation.amqp.clone())
        .registry(Registry::new().workflow_fn("call", call))
        .run_until(until(stopped));
    let worker = tokio::spawn(worker);
    let (process, metrics) = Process::start(&installation.amqp, service.addr.port());

    let name = NameKey {
        namespace: "default".parse().unwrap(),
        workflow: "call".parse().unwrap(),
        id: "one".parse().unwrap(),
    };
    let start = StartRequest {
        namespace: name.namespace.clone(),
        workflow: name.workflow.clone(),
        id: Some(name.id.clone()),
        input: Payload::encode(&format!("http://{}/", service.addr)).unwrap(),
        retention: everstep_protocol::start::Retention::default(),
        pin: None,
        strict: None,
        attributes: Vec::new(),
        hook: None,
        message: None,
    };
    handle.start(start).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_mins(1), async {
        loop {
            let view = store.instance(&name).await.unwrap().unwrap();
            if view.ended_at.is_some() {
                return view.status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(ended.await.unwrap(), StatusWord::Complete);
    let seen = service.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].header("idempotency-key"), seen[1].header("idempotency-key"));
    assert_eq!(seen[1].header("x-token"), Some("s3cret-value"));
    for table in ["journal", "remote_step", "outbox"] {
        let rows = installation.sql(&format!("SELECT count(*) FROM {table} t WHERE t::text LIKE '%s3cret%'"));
        assert_eq!(rows.unwrap(), "0", "{table} has the reference alone");
    }

    let page = get(&metrics, "/metrics").await;
    for line in [
        r#"everstep_http_calls_total{outcome="again"} 1"#,
        r#"everstep_http_calls_total{outcome="done"} 1"#,
        r#"everstep_worker_attempts_total{outcome="succeeded",step="call",workflow="call"} 1"#,
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert!(get(&metrics, "/healthz").await.ends_with("ok\n"));
    assert!(get(&metrics, "/readyz").await.ends_with("ok\n"));
    assert_eq!(process.stop().await, Some(0));
    stop.send_replace(true);
    worker.await.unwrap().unwrap();
    turns.await.unwrap().unwrap();
    broker.close().await;
}

async fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}
