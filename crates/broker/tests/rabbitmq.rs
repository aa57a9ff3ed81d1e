//! What only RabbitMQ can show: foreign clients, refusals, and healing after an error of one channel.
//!
//! Needs `EVERSTEP_TEST_AMQP_URL` and fails without it.

#[path = "conformance/rig.rs"]
#[allow(dead_code, reason = "the other suite uses the rest")]
mod rig;

use std::time::Duration;

use everstep_broker::{AmqpBroker, AmqpSettings, Broker, HeaderValue, Outgoing, QueueKind};
use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldTable};
use rig::{Rig, connected, delivered, is_up, text};
use tokio::time::timeout;

#[tokio::test]
async fn a_foreign_clients_headers_do_no_harm() {
    let rig = Rig::amqp();
    let party = rig.party().await;
    let queue = rig.queue("q", QueueKind::Classic);
    let mut consumer = party.consume(queue.clone(), 5).await;
    connected(&mut consumer).await;
    let mut table = FieldTable::default();
    table.insert("float".into(), AMQPValue::Double(0.5));
    let mut headers = FieldTable::default();
    headers.insert("table".into(), AMQPValue::FieldTable(table.clone()));
    headers.insert("array".into(), AMQPValue::FieldArray(vec![AMQPValue::FieldTable(table)].into()));
    headers.insert("bytes".into(), AMQPValue::LongString(vec![0xc3, 0x28, 0].into()));
    headers.insert("void".into(), AMQPValue::Void);
    headers.insert("time".into(), AMQPValue::Timestamp(7));
    headers.insert("small".into(), AMQPValue::ShortShortInt(-3));
    let properties = BasicProperties::default()
        .with_headers(headers)
        .with_content_encoding("gzip".into())
        .with_priority(9)
        .with_type("foreign".into())
        .with_timestamp(1);
    let foreign = lapin::Connection::connect(&rig::url(), lapin::ConnectionProperties::default()).await;
    let foreign = foreign.expect("connected");
    let channel = foreign.create_channel().await.expect("a channel");
    let name = queue.name.as_str().into();
    channel
        .basic_publish("".into(), name, BasicPublishOptions::default(), b"\xff\x00", properties)
        .await
        .expect("published");
    let delivery = delivered(&mut consumer).await;
    assert_eq!(&delivery.body[..], b"\xff\x00");
    assert_eq!(delivery.properties.headers["array"], HeaderValue::from("[{float: 0.5}]"));
    assert_eq!(delivery.properties.headers["small"], HeaderValue::from(-3));
    assert_eq!(delivery.properties.headers.len(), 6);
    delivery.ack();
    party.send_texts(&queue.name, &["next"]).await;
    assert_eq!(text(&delivered(&mut consumer).await), "next");
}

#[tokio::test]
async fn a_refused_password_is_told_and_does_not_end_the_attempts() {
    let url = rig::url().replacen("://", "://nobody:", 1).replacen(":everstep", ":", 1);
    let broker = AmqpBroker::connect(AmqpSettings::new(url, "refused"));
    let mut health = broker.health();
    let told = health.wait_for(|health| health.last_error.is_some());
    let told = timeout(Duration::from_secs(10), told).await.expect("told").expect("alive").clone();
    assert!(!told.publishing && !told.consuming, "{told:?}");
    let text = told.last_error.expect("a text").to_lowercase();
    assert!(text.contains("refused") || text.contains("access"), "{text}");
    assert!(broker.send(vec![Outgoing::to_queue("q", "x")]).await.expect_err("is down").is_retry_safe());
    broker.close().await;
}

/// A message to an exchange that does not exist closes the publishing channel: the connection is rebuilt.
#[tokio::test]
async fn publishing_heals_after_a_channel_error() {
    let rig = Rig::amqp();
    let party = rig.party().await;
    let queue = rig.queue("q", QueueKind::Classic);
    let mut consumer = party.consume(queue.clone(), 5).await;
    connected(&mut consumer).await;
    let before = party.broker.health().borrow().generation;
    let _ = party.broker.send(vec![Outgoing::to_exchange(rig.name("nowhere"), "k", "lost")]).await;
    let mut health = party.broker.health();
    let again = health.wait_for(|health| health.generation > before && health.is_up());
    timeout(Duration::from_secs(10), again).await.expect("rebuilt").expect("alive");
    party.send_texts(&queue.name, &["kept"]).await;
    assert_eq!(text(&delivered(&mut consumer).await), "kept");
}

#[tokio::test]
async fn a_name_too_long_is_refused_and_harms_nothing() {
    let rig = Rig::amqp();
    let party = rig.party().await;
    let refused = party.broker.send(vec![Outgoing::to_queue("x".repeat(256), "lost")]).await;
    assert!(!refused.expect_err("too long").is_retry_safe());
    is_up(&party).await;
    assert_eq!(party.broker.unroutable(vec![rig.name("none")], "ping".into()).await.expect("up").len(), 1);
}
