//! What RabbitMQ lets each role do (rule A7): the commands of docs/topology.md, run against a broker of the test's own. Proves that a role
//! gets along with them, and what it is kept from. Not: what the parts of Everstep do, which the conformance suite of the broker and the
//! fleet's tests do as one user.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

use everstep_testbed::OwnRabbit;
use futures::StreamExt as _;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicConsumeOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions,
        ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
    },
    types::FieldTable,
};

const TOPOLOGY: &str = include_str!("../../../docs/topology.md");
const ROLES: [&str; 3] = ["orders", "worker", "coordinator"];

/// The arguments of each command that the page gives, by who it is for.
fn commands() -> Vec<Vec<String>> {
    let joined = TOPOLOGY.replace("\\\n", " ");
    let lines = joined.lines().filter_map(|line| line.strip_prefix("rabbitmqctl set_permissions "));
    let words = |line: &str| {
        let words = line.split_whitespace().map(|word| word.trim_matches('\'').to_owned());
        [vec!["set_permissions".to_owned()], words.collect()].concat()
    };
    lines.map(words).collect()
}

fn with_permissions() -> OwnRabbit {
    let own = OwnRabbit::start().unwrap();
    for role in ROLES {
        own.ctl(&["add_user", role, role]).unwrap();
    }
    let commands = commands();
    let named: Vec<&str> = commands.iter().map(|command| command[3].as_str()).collect();
    assert_eq!(named, ROLES, "the page has a command for each role");
    for command in &commands {
        own.ctl(&command.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    }
    own
}

struct Party(Connection);

impl Party {
    async fn new(own: &OwnRabbit, role: &str) -> Self {
        Self(Connection::connect(&own.url_of(role), ConnectionProperties::default()).await.unwrap())
    }

    /// What is refused closes its channel, so each has one of its own.
    async fn channel(&self) -> Channel {
        let channel = self.0.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        channel
    }

    async fn declare(&self, queue: &str, exclusive: bool) -> Result<(), lapin::Error> {
        let options =
            QueueDeclareOptions { durable: !exclusive, exclusive, ..QueueDeclareOptions::default() };
        self.channel().await.queue_declare(queue.into(), options, FieldTable::default()).await.map(drop)
    }

    async fn publish(&self, exchange: &str, key: &str) -> Result<(), lapin::Error> {
        let channel = self.channel().await;
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        channel.basic_publish(exchange.into(), key.into(), options, b"{}", properties).await?.await.map(drop)
    }

    async fn consume(&self, queue: &str) -> Result<(), lapin::Error> {
        let channel = self.channel().await;
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        channel.basic_consume(queue.into(), "".into(), options, none).await.map(drop)
    }

    async fn get(&self, queue: &str) -> Result<bool, lapin::Error> {
        let got = self.channel().await.basic_get(queue.into(), BasicGetOptions::default()).await?;
        Ok(got.is_some())
    }

    async fn purge(&self, queue: &str) -> Result<(), lapin::Error> {
        self.channel().await.queue_purge(queue.into(), QueuePurgeOptions::default()).await.map(drop)
    }

    async fn delete(&self, queue: &str) -> Result<(), lapin::Error> {
        self.channel().await.queue_delete(queue.into(), QueueDeleteOptions::default()).await.map(drop)
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(what: &str, outcome: Result<T, lapin::Error>) {
    let error = outcome.expect_err(what).to_string();
    assert!(error.contains("ACCESS_REFUSED"), "{what}: {error}");
}

const START: &str = "everstep.start";
const STARTS: &str = "everstep.start.default";
const RUN: &str = "everstep.run.default.fulfil";
const REPORT: &str = "everstep.report.0";

/// What the coordinator makes before anybody else comes.
async fn topology(coordinator: &Party) {
    let channel = coordinator.channel().await;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    for exchange in [START, "everstep.event", "everstep.lifecycle"] {
        let none = FieldTable::default();
        channel.exchange_declare(exchange.into(), ExchangeKind::Topic, durable, none).await.unwrap();
    }
    for queue in [
        STARTS,
        "everstep.dead.default",
        "everstep.rejected.default",
        RUN,
        "everstep.step.default.gpu",
        REPORT,
        "everstep.sessions",
    ] {
        coordinator.declare(queue, false).await.unwrap_or_else(|error| panic!("{queue}: {error}"));
    }
    let (bind, none) = (QueueBindOptions::default(), FieldTable::default());
    channel.queue_bind(STARTS.into(), START.into(), "default".into(), bind, none).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a07_each_role_may_do_its_own_on_the_broker_and_no_more() {
    let own = with_permissions();
    let coordinator = Party::new(&own, "coordinator").await;
    topology(&coordinator).await;

    // A producer starts, and does nothing else.
    let producer = Party::new(&own, "orders").await;
    producer.publish(START, "default").await.unwrap();
    producer.publish("everstep.event", "default").await.unwrap();
    for queue in
        [STARTS, RUN, "everstep.step.default.gpu", REPORT, "everstep.sessions", "everstep.dead.default"]
    {
        refused("a producer reads", producer.consume(queue).await);
        refused("a producer takes", producer.get(queue).await);
        refused("a producer empties", producer.purge(queue).await);
        refused("a producer deletes", producer.delete(queue).await);
        refused("a producer writes past the exchange", producer.publish("", queue).await);
    }
    refused(
        "a producer tells of ends",
        producer.publish("everstep.lifecycle", "default.fulfil.complete").await,
    );
    refused("a producer makes queues", producer.declare("everstep.run.default.other", false).await);
    refused("a producer has an inbox", producer.declare("everstep.inbox.s1.1", true).await);

    // The coordinator gets what it has sent.
    assert!(coordinator.get(STARTS).await.unwrap());

    // A worker takes tasks and reports.
    let worker = Party::new(&own, "worker").await;
    worker.declare("everstep.inbox.s1.1", true).await.unwrap();
    worker.declare(RUN, false).await.unwrap();
    for queue in [RUN, "everstep.step.default.gpu", "everstep.inbox.s1.1"] {
        worker.consume(queue).await.unwrap_or_else(|error| panic!("{queue}: {error}"));
    }
    worker.publish("", REPORT).await.unwrap();
    worker.publish("", "everstep.sessions").await.unwrap();
    for queue in [STARTS, REPORT, "everstep.sessions", "everstep.dead.default", "everstep.rejected.default"] {
        refused("a worker reads", worker.consume(queue).await);
        refused("a worker takes", worker.get(queue).await);
        refused("a worker empties", worker.purge(queue).await);
        refused("a worker deletes", worker.delete(queue).await);
    }
    refused("a worker starts", worker.publish(START, "default").await);
    refused("a worker tells of ends", worker.publish("everstep.lifecycle", "x").await);
    refused("a worker makes a queue of starts", worker.declare("everstep.start.other", false).await);
    assert!(coordinator.get(REPORT).await.unwrap());

    // An inbox is that of the connection that has made it, of whichever worker.
    let other = Party::new(&own, "worker").await;
    let inbox = "everstep.inbox.s1.1";
    let locked = |what: &str, error: lapin::Error| {
        let error = error.to_string();
        assert!(error.contains("RESOURCE_LOCKED"), "{what}: {error}");
    };
    locked("another reads it", other.consume(inbox).await.unwrap_err());
    locked("another takes from it", other.get(inbox).await.unwrap_err());
    locked("another empties it", other.purge(inbox).await.unwrap_err());
    locked("another deletes it", other.delete(inbox).await.unwrap_err());
    locked("another makes it", other.declare(inbox, true).await.unwrap_err());
    refused("a coordinator reads it", coordinator.consume(inbox).await);
    coordinator.publish("", inbox).await.unwrap();

    // Of what is written to it its owner alone gets anything.
    let channel = worker.channel().await;
    let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
    let mut mine = channel.basic_consume(inbox.into(), "mine".into(), options, none).await.unwrap();
    coordinator.publish("", inbox).await.unwrap();
    coordinator.publish("", inbox).await.unwrap();
    let delivery =
        tokio::time::timeout(std::time::Duration::from_secs(10), mine.next()).await.expect("in time");
    assert_eq!(delivery.unwrap().unwrap().data, b"{}");
}
