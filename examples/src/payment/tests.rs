//! Integration: a real server on loopback, a real file, a real HTTP client. Proves that one key charges once under
//! concurrency, lost answers, hang-ups and restarts. Does not prove that the disk keeps what it says it synced.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use reqwest::Client;
use serde_json::{Value, json};

use super::{FAULTS_MAX, Fault, Server, Settings, fault, serve};
use crate::audit::charged_twice;

struct Ledger(PathBuf);

impl Ledger {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("everstep-payment-{}-{number}", std::process::id())))
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.0).expect("the server made the ledger");
        text.lines().map(|line| serde_json::from_str(line).expect("whole lines")).collect()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn start(ledger: &Path, unavailable_percent: u8, drop_percent: u8) -> Server {
    let settings = Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        ledger: ledger.to_owned(),
        seed: 1,
        unavailable_percent,
        drop_percent,
    };
    serve(settings).await.expect("loopback and the temporary directory are usable")
}

async fn post(client: &Client, server: &Server, key: &str, body: &Value) -> reqwest::Result<(u16, String)> {
    let response = client
        .post(format!("http://{}/charges", server.address()))
        .header("Idempotency-Key", key)
        .json(body)
        .send()
        .await?;
    Ok((response.status().as_u16(), response.text().await?))
}

fn order(id: &str) -> Value {
    json!({"order": id, "cents": 1250, "currency": "EUR"})
}

#[tokio::test]
async fn concurrent_requests_with_one_key_charge_once() {
    let ledger = Ledger::new();
    let server = start(&ledger.0, 0, 0).await;
    let client = Client::new();
    let body = order("order-1");
    let requests: Vec<_> = (0..32)
        .map(|_| {
            let (client, body, url) =
                (client.clone(), body.clone(), format!("http://{}/charges", server.address()));
            tokio::spawn(async move {
                let response = client.post(url).header("Idempotency-Key", "k").json(&body).send().await?;
                response.error_for_status()?.text().await
            })
        })
        .collect();
    let mut answers = Vec::new();
    for request in requests {
        answers.push(request.await.expect("no panic").expect("answered"));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(ledger.lines(), [json!({"order": "order-1", "key": "k", "cents": 1250, "currency": "EUR"})]);
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn a_charge_whose_answer_was_lost_is_not_charged_again() {
    let ledger = Ledger::new();
    let server = start(&ledger.0, 0, 100).await;
    let client = Client::new();
    for request in 1..=FAULTS_MAX {
        let error = post(&client, &server, "k", &order("order-1")).await.expect_err("no answer");
        assert!(error.status().is_none(), "{error}");
        assert_eq!(ledger.lines().len(), 1, "charged before the connection ended, request {request}");
    }
    let (status, _) =
        post(&client, &server, "k", &order("order-1")).await.expect("the third one is answered");
    assert_eq!(status, 200);
    assert_eq!(charged_twice(&ledger.0).expect("readable"), (1, 0));
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn an_unavailable_server_charges_nothing() {
    let ledger = Ledger::new();
    let server = start(&ledger.0, 100, 0).await;
    let client = Client::new();
    for _ in 1..=FAULTS_MAX {
        let (status, _) = post(&client, &server, "k", &order("order-1")).await.expect("answered");
        assert_eq!(status, 503);
        assert_eq!(ledger.lines(), Vec::<Value>::new());
    }
    let (status, _) = post(&client, &server, "k", &order("order-1")).await.expect("answered");
    assert_eq!(status, 200);
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn a_restarted_server_remembers_and_answers_the_same() {
    let ledger = Ledger::new();
    let client = Client::new();
    let server = start(&ledger.0, 0, 0).await;
    let first = post(&client, &server, "k", &order("order-1")).await.expect("answered");
    server.stop().await.expect("stops");
    // What a crash in the middle of a write leaves.
    let mut bytes = std::fs::read(&ledger.0).expect("readable");
    bytes.extend_from_slice(b"{\"order\":\"order-2\",\"ke");
    std::fs::write(&ledger.0, bytes).expect("writable");

    let server = start(&ledger.0, 0, 0).await;
    let again = post(&client, &server, "k", &order("order-1")).await.expect("answered");
    assert_eq!(first, again);
    let (status, _) = post(&client, &server, "k2", &order("order-2")).await.expect("answered");
    assert_eq!(status, 200);
    assert_eq!(charged_twice(&ledger.0).expect("readable"), (2, 0));
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn a_second_server_on_the_same_ledger_is_refused() {
    let ledger = Ledger::new();
    let server = start(&ledger.0, 0, 0).await;
    let second = Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        ledger: ledger.0.clone(),
        seed: 1,
        unavailable_percent: 0,
        drop_percent: 0,
    };
    let error = serve(second).await.expect_err("the ledger is locked");
    assert!(format!("{error:#}").contains("another process"), "{error:#}");
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn what_is_not_a_charge_is_refused_with_a_problem() {
    let ledger = Ledger::new();
    let server = start(&ledger.0, 0, 0).await;
    let client = Client::new();
    let refused = [
        ("", order("order-1")),
        (&"k".repeat(256)[..], order("order-1")),
        ("k", json!({"order": " ", "cents": 1, "currency": "EUR"})),
        ("k", json!({"order": "order-1", "cents": 0, "currency": "EUR"})),
        ("k", json!({"order": "order-1", "cents": 10_000_001, "currency": "EUR"})),
        ("k", json!({"order": "order-1", "cents": 1.5, "currency": "EUR"})),
        ("k", json!({"order": "order-1", "cents": 1, "currency": "euro"})),
        ("k", json!({"cents": 1, "currency": "EUR"})),
        ("k", json!("order-1")),
    ];
    for (key, body) in refused {
        let (status, text) = post(&client, &server, key, &body).await.expect("answered");
        let problem: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((status, &problem["status"]), (422, &json!(422)), "{body} {text}");
    }
    assert_eq!(ledger.lines(), Vec::<Value>::new());

    let (status, _) = post(&client, &server, "k", &order("order-1")).await.expect("answered");
    assert_eq!(status, 200);
    let (status, text) = post(&client, &server, "k", &order("order-2")).await.expect("answered");
    assert_eq!(status, 422, "{text}");
    assert_eq!(ledger.lines().len(), 1);
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn every_key_succeeds_within_three_requests_and_is_charged_once() {
    let ledger = Ledger::new();
    let server = start(&ledger.0, 30, 30).await;
    let client = Client::new();
    let url = format!("http://{}/charges", server.address());
    let orders: Vec<_> = (0..200)
        .map(|number| {
            let (client, url) = (client.clone(), url.clone());
            tokio::spawn(async move {
                let id = format!("order-{number}");
                for request in 1..=3 {
                    let sent =
                        client.post(&url).header("Idempotency-Key", &id).json(&order(&id)).send().await;
                    if sent.is_ok_and(|response| response.status() == 200) {
                        return request;
                    }
                }
                panic!("{id} failed three times");
            })
        })
        .collect();
    let mut requests = [0; 3];
    for order in orders {
        requests[order.await.expect("succeeds") - 1] += 1;
    }
    assert!(requests.iter().all(|&count| count > 0), "faults of both lengths happen: {requests:?}");
    assert_eq!(charged_twice(&ledger.0).expect("readable"), (200, 0));
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn a_connection_that_never_finishes_its_request_does_not_hold_up_the_stop() {
    let ledger = Ledger::new();
    let server = start(&ledger.0, 0, 0).await;
    let stuck = tokio::net::TcpStream::connect(server.address()).await.expect("connects");
    stuck.writable().await.expect("writable");
    stuck.try_write(b"POST /charges HTTP/1.1\r\nContent-Length: 9\r\n\r\n").expect("fits");
    post(&Client::new(), &server, "k", &order("order-1")).await.expect("answered");
    server.stop().await.expect("stops");
    start(&ledger.0, 0, 0).await.stop().await.expect("the ledger is free again");
    drop(stuck);
}

#[tokio::test]
async fn health_is_answered() {
    let ledger = Ledger::new();
    let server = start(&ledger.0, 100, 0).await;
    let response = reqwest::get(format!("http://{}/healthz", server.address())).await.expect("answered");
    assert_eq!(response.status(), 200);
    server.stop().await.expect("stops");
}

#[test]
fn faults_come_about_as_often_as_asked_and_repeat_with_the_seed() {
    let payments = |seed| super::Payments {
        seed,
        unavailable_percent: 4,
        drop_percent: 2,
        slots: std::sync::Mutex::default(),
        ledger: std::sync::Mutex::default(),
    };
    let rolls = |seed| -> Vec<Option<Fault>> {
        let payments = payments(seed);
        (0..10_000).map(|number| fault(&payments, &format!("key-{number}"), 1)).collect()
    };
    let first = rolls(7);
    let count = |wanted| first.iter().filter(|fault| **fault == Some(wanted)).count();
    assert!((300..500).contains(&count(Fault::Unavailable)), "{}", count(Fault::Unavailable));
    assert!((140..260).contains(&count(Fault::Drop)), "{}", count(Fault::Drop));
    assert_eq!(first, rolls(7));
    assert_ne!(first, rolls(8));
}
