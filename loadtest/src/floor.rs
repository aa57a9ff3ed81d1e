//! What the machine allows: the messages and commits of five steps one at a time, with nothing of the engine in between.
//!
//! Two threads with connections of their own play coordinator and worker. For every round a message goes to the coordinator,
//! which locks a row, writes it and a journal row, commits, and sends a message back. Six rounds are an instance of `seq5`:
//! its start and five reports. What an instance costs above that is the engine.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use everstep_broker::{
    AmqpBroker, AmqpSettings, Broker, Consume, Consumer, Delivery, Incoming, Outgoing, QueueDeclaration,
    QueueKind,
};
use everstep_testbed::{Installation, cpu_of, cpu_of_servers};
use serde::Serialize;
use tokio_postgres::{Client, NoTls, Statement};

use crate::report::{percentile, rounded};

/// Commits of an instance of `seq5`.
const ROUNDS: usize = 6;
const WARM_UP: usize = 20;
const PATIENCE: Duration = Duration::from_secs(30);
const REPORTS: &str = "floor.reports";
const INBOX: &str = "floor.inbox";

const SCHEMA: &str = "CREATE TABLE floor_head (id bigint PRIMARY KEY, position bigint NOT NULL) WITH (fillfactor = 70);
    CREATE TABLE floor_journal (id bigint, position bigint, entry bytea NOT NULL, PRIMARY KEY (id, position));";

/// One measurement of the floor.
#[derive(Debug, Serialize)]
pub(crate) struct Floor {
    workload: &'static str,
    instances: usize,
    p50_ms: f64,
    p99_ms: f64,
    cpu_ms_per_instance: f64,
    cpu_ms_postgres: f64,
    cpu_ms_rabbitmq: f64,
    cpu_ms_both_ends: f64,
    commit_p50_ms: f64,
}

/// Measures so many instances, one at a time.
pub(crate) fn measure(instances: usize) -> Result<Floor> {
    let installation = Installation::fresh("floor")?;
    let (postgres, amqp) = (installation.postgres.clone(), installation.amqp.clone());
    let coordinator = std::thread::spawn(move || on_thread(coordinator(postgres, amqp, instances + WARM_UP)));
    let amqp = installation.amqp.clone();
    let worker = std::thread::spawn(move || on_thread(worker(amqp, instances)));
    let mut commits = coordinator.join().map_err(|_| anyhow::anyhow!("the coordinator's thread died"))??;
    let (mut latencies, cpu) = worker.join().map_err(|_| anyhow::anyhow!("the worker's thread died"))??;
    let per_instance = |seconds: f64| rounded(seconds * 1000.0 / instances as f64, 2);
    Ok(Floor {
        workload: "floor",
        instances,
        p50_ms: rounded(percentile(&mut latencies, 0.5), 2),
        p99_ms: rounded(percentile(&mut latencies, 0.99), 2),
        cpu_ms_per_instance: per_instance(cpu.iter().sum()),
        cpu_ms_postgres: per_instance(cpu[0]),
        cpu_ms_rabbitmq: per_instance(cpu[1]),
        cpu_ms_both_ends: per_instance(cpu[2]),
        commit_p50_ms: rounded(percentile(&mut commits, 0.5), 3),
    })
}

fn on_thread<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

fn cpu() -> [f64; 3] {
    [cpu_of_servers("postgres"), cpu_of_servers("beam.smp"), cpu_of(std::process::id())]
}

/// Plays the worker: the milliseconds of each instance, and what was used meanwhile.
async fn worker(amqp: String, instances: usize) -> Result<(Vec<f64>, [f64; 3])> {
    let (broker, mut inbox) = connect(amqp, INBOX).await?;
    for number in 0..WARM_UP {
        instance(&*broker, &mut inbox, number).await?;
    }
    let before = cpu();
    let mut latencies = Vec::with_capacity(instances);
    for number in WARM_UP..WARM_UP + instances {
        let began = Instant::now();
        instance(&*broker, &mut inbox, number).await?;
        latencies.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    let after = cpu();
    broker.close().await;
    Ok((latencies, [0, 1, 2].map(|index| after[index] - before[index])))
}

async fn instance(broker: &dyn Broker, inbox: &mut Consumer, number: usize) -> Result<()> {
    for round in 0..ROUNDS {
        broker.send(vec![Outgoing::to_queue(REPORTS, format!("{number} {round}").into_bytes())]).await?;
        receive(inbox).await?.ack();
    }
    Ok(())
}

/// Plays the coordinator: the milliseconds of each transaction.
async fn coordinator(postgres: String, amqp: String, instances: usize) -> Result<Vec<f64>> {
    let (client, connection) = tokio_postgres::connect(&postgres, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(SCHEMA).await?;
    client.batch_execute("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan").await?;
    client
        .execute(
            "INSERT INTO floor_head SELECT n, 0 FROM generate_series(0, $1::bigint) n",
            &[&(instances as i64)],
        )
        .await?;
    let statements = Statements {
        lock: client
            .prepare(
                "SELECT ctid, position FROM floor_head WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE",
            )
            .await?,
        update: client
            .prepare("UPDATE floor_head SET position = position + 1 WHERE id = ANY($1::bigint[])")
            .await?,
        insert: client
            .prepare(
                "INSERT INTO floor_journal SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])",
            )
            .await?,
    };
    let (broker, mut reports) = connect(amqp, REPORTS).await?;
    let mut commits = Vec::with_capacity(instances * ROUNDS);
    for _ in 0..instances * ROUNDS {
        let delivery = receive(&mut reports).await?;
        let began = Instant::now();
        statements.run(&client, &delivery).await?;
        commits.push(began.elapsed().as_secs_f64() * 1000.0);
        broker.send(vec![Outgoing::to_queue(INBOX, "done")]).await?;
        delivery.ack();
    }
    Ok(commits)
}

type Param<'a> = &'a (dyn tokio_postgres::types::ToSql + Sync);

struct Statements {
    lock: Statement,
    update: Statement,
    insert: Statement,
}

impl Statements {
    async fn run(&self, client: &Client, delivery: &Delivery) -> Result<()> {
        let text = std::str::from_utf8(&delivery.body)?;
        let (number, round) = text.split_once(' ').context("a report has two numbers")?;
        let (id, round) = (vec![number.parse::<i64>()?], vec![round.parse::<i64>()?]);
        let entry = vec![&[7_u8; 300][..]];
        let (locking, writing): ([Param<'_>; 1], [Param<'_>; 3]) = ([&id], [&id, &round, &entry]);
        tokio::try_join!(client.batch_execute("BEGIN"), client.query(&self.lock, &locking))?;
        tokio::try_join!(
            client.execute(&self.update, &locking),
            client.execute(&self.insert, &writing),
            client.batch_execute("COMMIT"),
        )?;
        Ok(())
    }
}

async fn connect(amqp: String, queue: &str) -> Result<(Arc<dyn Broker>, Consumer)> {
    let broker = AmqpBroker::connect(AmqpSettings::new(amqp, "floor"));
    let other = if queue == INBOX { REPORTS } else { INBOX };
    let declared = [queue, other].map(|name| QueueDeclaration::new(name, QueueKind::Classic).into());
    broker.declare(declared.into()).await?;
    let mut consumer =
        broker.consume(Consume::new(QueueDeclaration::new(queue, QueueKind::Classic), 100)).await?;
    let connected = async { while !matches!(consumer.next().await, Incoming::Connected { .. }) {} };
    tokio::time::timeout(PATIENCE, connected).await.context("the queue cannot be consumed")?;
    Ok((Arc::new(broker), consumer))
}

async fn receive(consumer: &mut Consumer) -> Result<Delivery> {
    loop {
        let next =
            tokio::time::timeout(PATIENCE, consumer.next()).await.context("nothing came for too long")?;
        if let Incoming::Delivery(delivery) = next {
            return Ok(delivery);
        }
    }
}
