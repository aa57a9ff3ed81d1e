//! An embedded system shows both of its halves to Prometheus and to probes, and nothing else; a worker without a broker is alive and not
//! ready. Not: what each metric counts, which is
//! proved beside what counts it.
#![cfg(all(feature = "embedded", feature = "metrics"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use everstep::{Error, Retry, Step, Workflow, embedded::Embedded};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

#[everstep::workflow]
async fn pay(cx: Workflow, order: u32) -> Result<u32, Error> {
    cx.step("charge", order, |step: Step, order: u32| async move {
        if step.attempt() == 1 { Err(Error::failed("busy")) } else { Ok(order + 1) }
    })
    .retry(Retry::constant("1 ms").limit(2))
    .await
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_halves_are_counted_by_workflow_and_step() {
    let dir = tempfile::tempdir().unwrap();
    let listen: SocketAddr = ([127, 0, 0, 1], 0).into();
    let everstep = Embedded::open(dir.path().join("everstep.db"));
    let everstep = everstep.workflow(pay).metrics(listen).start().await.unwrap();
    let address = everstep.metrics_address().unwrap();
    let order = everstep.start("pay", Some("o-1"), &1).await.unwrap();
    assert_eq!(order.result::<u32>().await.unwrap(), 2);

    let page = get(address, "/metrics").await;
    for line in [
        r#"everstep_instances_started_total{workflow="pay"} 1"#,
        r#"everstep_instances_ended_total{status="complete",workflow="pay"} 1"#,
        r#"everstep_instance_duration_seconds_count{workflow="pay"} 1"#,
        r#"everstep_steps_ended_total{outcome="succeeded",step="charge",workflow="pay"} 1"#,
        r#"everstep_step_retries_total{step="charge",workflow="pay"} 1"#,
        r#"everstep_worker_attempts_started_total{step="charge",workflow="pay"} 2"#,
        r#"everstep_worker_attempts_total{outcome="failed",step="charge",workflow="pay"} 1"#,
        r#"everstep_worker_attempts_total{outcome="succeeded",step="charge",workflow="pay"} 1"#,
        r#"everstep_worker_retries_total{step="charge",workflow="pay"} 1"#,
        r#"everstep_worker_attempt_seconds_count{step="charge",workflow="pay"} 2"#,
        "everstep_worker_session_up 1",
        r#"everstep_decisions_total{answer="from_the_future"} 0"#,
    ] {
        assert!(page.lines().any(|shown| shown == line), "{line}: {page}");
    }
    let value = |name: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name)).expect("it is shown");
        line.trim().parse().unwrap()
    };
    assert!(value("everstep_worker_report_to_ack_seconds_count ") >= 1.0);
    assert!(value("everstep_worker_poll_seconds_count ") >= 1.0);
    assert!(value(r#"everstep_worker_step_busy_seconds_total{step="charge",workflow="pay"} "#) > 0.0);
    let started = ["direct", "run"]
        .map(|way| value(&format!("everstep_schedule_to_start_seconds_count{{way=\"{way}\"}} ")));
    assert!(started.iter().sum::<f64>() >= 1.0, "{started:?}");

    assert!(get(address, "/readyz").await.starts_with("HTTP/1.0 200"));
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.0 200"));
    assert!(get(address, "/v1/default/instances").await.starts_with("HTTP/1.0 404"));
    everstep.stop().await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "it stops with the system");
}

/// A charge that is tried twice, a contact that is found, a transfer of which nobody knows.
#[everstep::workflow]
async fn settle(cx: Workflow, (): ()) -> Result<u32, Error> {
    let busy_once = async |step: Step, (): ()| {
        if step.attempt() == 1 { Err(Error::failed("busy")) } else { Ok(1) }
    };
    let charged: u32 = cx.step("charge", (), busy_once).retry(Retry::constant("1 ms").limit(2)).await?;
    let create = async |_: Step, (): ()| Err::<u32, _>(Error::permanent("it is there"));
    let contact = cx.step("contact", (), create);
    let found: u32 = contact.look_first(async |_: Step, (): ()| Ok::<_, Error>(Some(2))).await?;
    let no_answer = async |_: Step, (): ()| Err::<u32, _>(Error::failed("no answer came"));
    let transferred: u32 = cx.step("transfer", (), no_answer).at_most_once().await?;
    Ok(charged + found + transferred)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l15_what_the_ledger_did_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let everstep = Embedded::open(dir.path().join("everstep.db"));
    let listen: SocketAddr = ([127, 0, 0, 1], 0).into();
    let everstep = everstep.workflow(settle).metrics(listen).start().await.unwrap();
    let run = everstep.start("settle", Some("o-1"), &()).await.unwrap();
    let decided = async || {
        let question = loop {
            if let Some((question, _)) = run.questions().await.unwrap().pop() {
                break question;
            }
            tokio::task::yield_now().await;
        };
        run.resolve_done(question, &4, "ann").await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), 7);
    };
    decided().await;

    let address = everstep.metrics_address().unwrap();
    let page = get(address, "/metrics").await;
    for line in [
        r#"everstep_steps_retried_total{step="charge",workflow="settle"} 1"#,
        r#"everstep_steps_retried_total{step="contact",workflow="settle"} 0"#,
        r#"everstep_ledger_hits_total{how="found"} 1"#,
        r#"everstep_ledger_hits_total{how="reused"} 0"#,
        r#"everstep_decided_by_people_total{choice="done"} 1"#,
        r#"everstep_decided_by_people_total{choice="again"} 0"#,
        "everstep_unknown_outcomes_total 1",
        r#"everstep_steps_ended_total{outcome="unknown",step="transfer",workflow="settle"} 1"#,
        "everstep_worker_found_total 1",
        "everstep_worker_look_seconds_count 1",
    ] {
        assert!(page.lines().any(|shown| shown == line), "{line}: {page}");
    }

    // What a restart keeps was counted when it happened.
    run.restart_from("transfer", 1).await.unwrap();
    decided().await;
    // The first text is given again for a second, under another date.
    let text = |page: &str| page.split_once("\r\n\r\n").unwrap().1.to_owned();
    let first = text(&page);
    let page = loop {
        let page = get(address, "/metrics").await;
        if text(&page) != first {
            break page;
        }
    };
    for line in [
        r#"everstep_steps_ended_total{outcome="succeeded",step="charge",workflow="settle"} 1"#,
        r#"everstep_steps_retried_total{step="charge",workflow="settle"} 1"#,
        r#"everstep_ledger_hits_total{how="found"} 1"#,
        r#"everstep_decided_by_people_total{choice="done"} 2"#,
        r#"everstep_steps_ended_total{outcome="unknown",step="transfer",workflow="settle"} 2"#,
    ] {
        assert!(page.lines().any(|shown| shown == line), "{line}: {page}");
    }
    everstep.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_broker_is_away_is_alive_and_not_ready() {
    let [listen, nobody] = [(); 2].map(|()| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = everstep::fleet(format!("amqp://{nobody}/x")).workflow(pay).metrics(listen);
    let running = tokio::spawn(worker.run_until(async move {
        drop(stopped.await);
    }));
    while TcpStream::connect(listen).await.is_err() {
        tokio::task::yield_now().await;
    }
    assert!(get(listen, "/healthz").await.starts_with("HTTP/1.0 200"));
    let ready = get(listen, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.0 503"), "{ready}");
    assert!(ready.ends_with("the broker is away, no coordinator answers its session\n"), "{ready}");
    drop(stop);
    running.await.unwrap().unwrap();
}

/// Blocks the thread that it runs on until the file is there.
#[everstep::workflow]
async fn hog(cx: Workflow, file: String) -> Result<(), Error> {
    cx.step("hog", file, |_: Step, file: String| async move {
        while !std::path::Path::new(&file).exists() {
            std::thread::yield_now();
        }
        Ok::<_, Error>(())
    })
    .await
}

#[test]
fn a_step_that_blocks_its_runtime_silences_no_probe() {
    let dir = tempfile::tempdir().unwrap();
    let steps = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listen: SocketAddr = ([127, 0, 0, 1], 0).into();
    let file = dir.path().join("go on");
    let (everstep, run) = steps.block_on(async {
        let everstep = Embedded::open(dir.path().join("everstep.db"));
        let everstep = everstep.workflow(hog).metrics(listen).start().await.unwrap();
        let run = everstep.start("hog", Some("o-1"), &file.to_str().unwrap()).await.unwrap();
        (everstep, run)
    });
    let address = everstep.metrics_address().unwrap();
    let asking = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    asking.block_on(async {
        let begun = r#"everstep_worker_attempts_started_total{step="hog",workflow="hog"} 1"#;
        while !get(address, "/metrics").await.lines().any(|line| line == begun) {}
        for path in ["/healthz", "/readyz"] {
            assert!(get(address, path).await.starts_with("HTTP/1.0 200"));
        }
    });
    std::fs::write(&file, "").unwrap();
    steps.block_on(run.result::<()>()).unwrap();
    steps.block_on(everstep.stop()).unwrap();
}
