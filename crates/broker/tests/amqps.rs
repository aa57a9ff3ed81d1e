//! The way to RabbitMQ with TLS (rule A9), against a server of the test's own that takes nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

use std::time::Duration;

use everstep_broker::{AmqpBroker, AmqpSettings, Broker};
use everstep_testbed::{OwnRabbit, certificates::Authority};
use tokio::time::timeout;

fn settings(url: String, ca: Option<&Authority>) -> AmqpSettings {
    let ca_pem = ca.map(|authority| std::fs::read_to_string(authority.file()).unwrap());
    AmqpSettings { ca_pem, ..AmqpSettings::new(url, "a09") }
}

async fn refusal(settings: AmqpSettings) -> String {
    let broker = AmqpBroker::connect(settings);
    let mut health = broker.health();
    let told = health.wait_for(|health| health.last_error.is_some());
    let told = timeout(Duration::from_secs(30), told).await.expect("it is told").unwrap().clone();
    assert!(!told.publishing && !told.consuming, "{told:?}");
    broker.close().await;
    told.last_error.unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a09_the_way_to_rabbitmq_is_encrypted_and_verified() {
    let authority = Authority::new().unwrap();
    let own = OwnRabbit::start_encrypted(&authority.sign(&["127.0.0.1"]).unwrap()).unwrap();
    let broker = AmqpBroker::connect(settings(own.url(), Some(&authority)));
    let mut health = broker.health();
    let up = health.wait_for(everstep_broker::Health::is_up);
    timeout(Duration::from_secs(30), up).await.expect("it connects").unwrap();
    let listed = own.ctl(&["list_connections", "ssl"]).unwrap();
    let ssl: Vec<&str> = listed.lines().filter(|line| *line != "ssl").collect();
    assert_eq!(ssl, ["true", "true"], "the server says the same of both connections");
    broker.close().await;

    // Whoever answers is signed by an authority that is trusted, and is who was called.
    let other = Authority::new().unwrap();
    for (url, ca) in [
        (own.url(), Some(&other)),
        (own.url(), None),
        (own.url().replace("127.0.0.1", "localhost"), Some(&authority)),
    ] {
        assert!(!refusal(settings(url, ca)).await.is_empty());
    }
    let plain = refusal(settings(own.url().replacen("amqps", "amqp", 1), None)).await;
    assert!(!plain.is_empty());
}
