//! The producer: starts instances, keeps so many in flight, and notes when each lifecycle message comes.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use everstep_broker::{
    Broker, Confirmation, Consume, Consumer, Declaration, Incoming, Outgoing, Properties, QueueDeclaration,
    QueueKind,
};
use everstep_protocol::{
    Namespace, Position, Timestamp,
    journal::{Fact, Wait},
    topology,
};
use everstep_store::{Filter, Range, StatusWord, Store};
use serde::Deserialize;

use crate::{
    backend::{Backend, Kind},
    report::{Line, percentile, rounded},
    workload::{Shape, Workload},
};

/// Without an ended instance for this long a run has failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// Measures one workload on a fresh back end.
pub(crate) async fn measure(kind: Kind, workload: Workload, shape: Shape) -> Result<Line> {
    let backend = Backend::start(kind).await?;
    let mut producer = Producer::new(backend.broker()?, workload).await?;
    let warm_up = if shape.in_flight == 1 { 5 } else { 300 };
    if !matches!(workload, Workload::Sleep30) {
        producer.prepare(&backend, "warm", warm_up).await?;
        producer.run("warm", Shape { instances: warm_up, in_flight: shape.in_flight.min(200) }).await?;
    }
    producer.prepare(&backend, "run", shape.instances).await?;
    let before = backend.counters()?;
    let began = Instant::now();
    let mut latencies = producer.run("run", shape).await?;
    let took = began.elapsed().as_secs_f64();
    let after = backend.counters()?;
    let (lateness_p50_ms, lateness_p99_ms) = match workload {
        Workload::Sleep30 => {
            let mut late = lateness(&*backend.store().await?, workload).await?;
            (Some(percentile(&mut late, 0.5)), Some(percentile(&mut late, 0.99)))
        }
        Workload::Seq5
        | Workload::Seq5One
        | Workload::Fan500
        | Workload::Start
        | Workload::StartToken
        | Workload::Resume => (None, None),
    };
    let rss_mb = rounded(backend.rss_mb(), 1);
    let messages = backend.stop().await?;
    let instances = shape.instances as f64;
    let all = instances + if matches!(workload, Workload::Sleep30) { 0.0 } else { warm_up as f64 };
    let cpu_by = after.cpu.since(before.cpu);
    let per_instance = |after: Option<f64>, before: Option<f64>| {
        after.zip(before).map(|(after, before)| rounded((after - before) / instances, 2))
    };
    Ok(Line {
        workload: workload.name(),
        backend: kind.name(),
        in_flight: shape.in_flight,
        instances: shape.instances,
        instances_per_s: rounded(instances / took, 1),
        steps_per_s: rounded(instances * workload.steps() as f64 / took, 1),
        p50_ms: rounded(percentile(&mut latencies, 0.5), 2),
        p99_ms: rounded(percentile(&mut latencies, 0.99), 2),
        lateness_p50_ms,
        lateness_p99_ms,
        cpu_s: rounded(cpu_by.sum(), 2),
        cpu_ms_per_instance: rounded(cpu_by.sum() * 1000.0 / instances, 3),
        cpu_by,
        messages: messages.map(|messages| rounded(messages / all, 2)),
        commits: per_instance(after.commits, before.commits),
        wal_bytes: per_instance(after.wal, before.wal),
        rss_mb,
    })
}

struct Producer {
    broker: Arc<dyn Broker>,
    consumer: Consumer,
    workload: Workload,
}

#[derive(Deserialize)]
struct Ended {
    id: String,
    status: String,
}

impl Producer {
    async fn new(broker: Arc<dyn Broker>, workload: Workload) -> Result<Self> {
        let mut queue = QueueDeclaration::new("bench.ended", QueueKind::Exclusive);
        queue.bind = vec![(topology::LIFECYCLE_EXCHANGE.to_owned(), "#".to_owned())];
        broker.declare(vec![Declaration::exchange(topology::LIFECYCLE_EXCHANGE)]).await?;
        let mut consumer = broker.consume(Consume { queue: queue.into(), prefetch: 2_000 }).await?;
        let connected = tokio::time::timeout(PATIENCE, async {
            while !matches!(consumer.next().await, Incoming::Connected { .. }) {}
        });
        connected.await.context("lifecycle messages cannot be consumed")?;
        Ok(Self { broker, consumer, workload })
    }

    /// Starts what is to be resumed, and waits until all of it waits.
    async fn prepare(&self, backend: &Backend, prefix: &str, instances: usize) -> Result<()> {
        if !self.workload.is_resumed() {
            return Ok(());
        }
        publish(&*self.broker, (0..instances).map(|number| self.start(prefix, number)).collect()).await?;
        let store = backend.store().await?;
        let filter = Filter {
            namespace: Namespace::default(),
            workflow: Some(self.workload.workflow().parse()?),
            status: Some(StatusWord::Waiting),
            ..Filter::default()
        };
        let began = Instant::now();
        while count(&*store, &filter).await? < instances {
            if began.elapsed() > PATIENCE {
                bail!("not all of {instances} instances wait");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Runs instances to their end; answers with the milliseconds from start, or resume, published to lifecycle message seen.
    async fn run(&mut self, prefix: &str, shape: Shape) -> Result<Vec<f64>> {
        let mut started = HashMap::with_capacity(shape.instances);
        let mut latencies = Vec::with_capacity(shape.instances);
        let mut next = 0;
        while latencies.len() < shape.instances {
            let room = shape.in_flight - started.len();
            let count = room.min(shape.instances - next);
            if count > 0 {
                let now = Instant::now();
                started.extend((next..next + count).map(|number| (format!("{prefix}-{number}"), now)));
                let messages = (next..next + count).map(|number| self.begin(prefix, number)).collect();
                publish(&*self.broker, messages).await?;
                next += count;
            }
            self.gather(&mut started, &mut latencies).await?;
        }
        Ok(latencies)
    }

    /// The message with which the time of an instance begins.
    fn begin(&self, prefix: &str, number: usize) -> Outgoing {
        if !self.workload.is_resumed() {
            return self.start(prefix, number);
        }
        let id = format!("{prefix}-{number}");
        let body = format!(r#"{{"token":"{id}","payload":{number}}}"#);
        message(topology::EVENT_EXCHANGE, Some(id), body)
    }

    fn start(&self, prefix: &str, number: usize) -> Outgoing {
        let workflow = self.workload.workflow();
        let id = format!("{prefix}-{number}");
        let token = if self.workload.has_token() { format!(r#","token":"{id}""#) } else { String::new() };
        let body = format!(r#"{{"workflow":"{workflow}","id":"{id}","input":{number}{token}}}"#);
        message(topology::START_EXCHANGE, None, body)
    }

    /// Takes what has ended, at least one.
    async fn gather(
        &mut self,
        started: &mut HashMap<String, Instant>,
        latencies: &mut Vec<f64>,
    ) -> Result<()> {
        let mut incoming = Some(
            tokio::time::timeout(PATIENCE, self.consumer.next())
                .await
                .context("no instance has ended for too long")?,
        );
        while let Some(Incoming::Delivery(delivery)) = incoming {
            let ended: Ended = serde_json::from_slice(&delivery.body)?;
            delivery.ack();
            if ended.status != "complete" {
                bail!("instance {} has ended as {}", ended.id, ended.status);
            }
            // A repeat of a lifecycle message finds nothing: they are at least once.
            if let Some(began) = started.remove(&ended.id) {
                latencies.push(began.elapsed().as_secs_f64() * 1000.0);
            }
            incoming = self.consumer.try_next();
        }
        Ok(())
    }
}

pub(crate) fn message(exchange: &'static str, message_id: Option<String>, body: String) -> Outgoing {
    let namespace = Namespace::default();
    Outgoing::to_exchange(exchange, namespace.as_str(), body.into_bytes()).with(Properties {
        content_type: Some("application/json".to_owned()),
        message_id,
        persistent: true,
        ..Properties::default()
    })
}

/// How many instances fit.
async fn count(store: &dyn Store, filter: &Filter) -> Result<usize> {
    let mut count = 0;
    let mut cursor = None;
    loop {
        let page = store.instances(filter, cursor.as_ref(), 200).await?;
        count += page.rows.len();
        cursor = page.next;
        if cursor.is_none() {
            return Ok(count);
        }
    }
}

/// Publishes until every message is confirmed: before the coordinator has declared its queues, nothing takes them.
pub(crate) async fn publish(broker: &dyn Broker, mut messages: Vec<Outgoing>) -> Result<()> {
    let began = Instant::now();
    while !messages.is_empty() {
        let confirmations = broker.send_confirmed(messages.clone(), true).await?;
        let left = messages.into_iter().zip(confirmations);
        messages = left
            .filter(|(_, confirmation)| *confirmation != Confirmation::Confirmed)
            .map(|(message, _)| message)
            .collect();
        if began.elapsed() > PATIENCE {
            bail!("{} messages were not confirmed", messages.len());
        }
        if !messages.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// Milliseconds from due to the entry of the wake, of every instance.
async fn lateness(store: &dyn Store, workload: Workload) -> Result<Vec<f64>> {
    let filter = Filter {
        namespace: Namespace::default(),
        workflow: Some(workload.workflow().parse()?),
        status: None,
        ..Filter::default()
    };
    let mut late = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.instances(&filter, cursor.as_ref(), 200).await?;
        let ranges =
            page.rows.iter().map(|row| Range { uid: row.uid, run: row.run, after: Position(0) }).collect();
        for entries in store.journal(ranges, 1 << 30).await? {
            let due = entries.iter().find_map(|entry| match &entry.fact {
                Fact::Opened(opened) => match opened.wait {
                    Wait::Sleep { until } => Some(until),
                    Wait::Remote(_)
                    | Wait::Event { .. }
                    | Wait::Child(_)
                    | Wait::Instance(_)
                    | Wait::Hook(_)
                    | Wait::Payload(_)
                    | Wait::Reply(_)
                    | Wait::Resume(_)
                    | Wait::Send(_) => None,
                },
                _ => None,
            });
            let fired =
                entries.iter().find_map(|entry| matches!(entry.fact, Fact::Fired { .. }).then_some(entry.at));
            let (Some(Timestamp(due)), Some(Timestamp(fired))) = (due, fired) else {
                bail!("an instance has slept without waking");
            };
            if fired < due {
                bail!("an instance woke {} microseconds early", due - fired);
            }
            late.push((fired - due) as f64 / 1000.0);
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(late);
        }
    }
}
