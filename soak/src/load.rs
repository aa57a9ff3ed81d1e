//! The producer: starts so many instances a second whatever comes of them, answers those that wait, and notes when each has ended.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use everstep_broker::{
    Broker, Confirmation, Consume, Consumer, Declaration, Incoming, Outgoing, Properties, QueueDeclaration,
    QueueKind,
};
use everstep_protocol::{Namespace, topology};
use serde::Deserialize;

use crate::{
    Plan,
    fleet::Fleet,
    sample::{Latencies, Sample},
};

/// Instances are published so often.
const TICK: Duration = Duration::from_millis(100);
/// What waits is answered so long after its start.
const ANSWER_AFTER: Duration = Duration::from_secs(1);
/// Without an ended instance for this long the run has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Of twenty instances so many are of each workflow.
const MIX: [(&str, usize); 5] = [("sequence", 8), ("nap", 4), ("approved", 3), ("parent", 2), ("hooked", 3)];

/// What a run has come to.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) samples: Vec<Sample>,
    pub(crate) started: u64,
    pub(crate) ended: u64,
}

/// Runs the whole load.
pub(crate) async fn run(plan: Plan) -> Result<Run> {
    let fleet = Fleet::start(plan.keep).await?;
    let mut producer = Producer::new(&fleet).await?;
    let began = Instant::now();
    let mut samples = Vec::new();
    let mut next_sample = plan.every;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    while began.elapsed() < plan.lasts {
        tokio::select! {
            _ = ticks.tick() => producer.publish((began.elapsed().as_secs_f64() * plan.rate) as u64).await?,
            incoming = producer.consumer.next() => producer.take(incoming)?,
        }
        if producer.last_end.elapsed() > PATIENCE {
            bail!("no instance has ended for {PATIENCE:?}, {} are open", producer.open.len());
        }
        if began.elapsed() >= next_sample {
            next_sample = began.elapsed() + plan.every;
            let (latencies, open) = (producer.latencies.take(), producer.open.len());
            let taken = Sample::take(&fleet, began.elapsed(), latencies, open, producer.sent);
            samples.push(taken.await?);
        }
    }
    let (started, ended) = (producer.started, producer.ended);
    drop(producer);
    fleet.stop().await?;
    Ok(Run { samples, started, ended })
}

struct Producer {
    broker: std::sync::Arc<everstep_broker::AmqpBroker>,
    consumer: Consumer,
    open: HashMap<String, Instant>,
    /// What is to be answered when, oldest first.
    waiting: VecDeque<(Instant, Outgoing)>,
    latencies: Latencies,
    started: u64,
    /// Starts and answers.
    sent: u64,
    ended: u64,
    last_end: Instant,
}

#[derive(Deserialize)]
struct Ended {
    id: String,
    workflow: String,
    status: String,
}

impl Producer {
    async fn new(fleet: &Fleet) -> Result<Self> {
        let mut queue = QueueDeclaration::new("soak.ended", QueueKind::Exclusive);
        queue.bind = vec![(topology::LIFECYCLE_EXCHANGE.to_owned(), "#".to_owned())];
        fleet.broker.declare(vec![Declaration::exchange(topology::LIFECYCLE_EXCHANGE)]).await?;
        let mut consumer = fleet.broker.consume(Consume { queue: queue.into(), prefetch: 2_000 }).await?;
        let connected = tokio::time::timeout(PATIENCE, async {
            while !matches!(consumer.next().await, Incoming::Connected { .. }) {}
        });
        connected.await.context("lifecycle messages cannot be consumed")?;
        Ok(Self {
            broker: fleet.broker.clone(),
            consumer,
            open: HashMap::new(),
            waiting: VecDeque::new(),
            latencies: Latencies::default(),
            started: 0,
            sent: 0,
            ended: 0,
            last_end: Instant::now(),
        })
    }

    /// Starts instances until so many were started in all, and answers what has waited long enough.
    async fn publish(&mut self, until: u64) -> Result<()> {
        let now = Instant::now();
        let mut messages = Vec::new();
        while self.waiting.front().is_some_and(|(due, _)| *due <= now) {
            messages.extend(self.waiting.pop_front().map(|(_, message)| message));
        }
        while self.started < until {
            messages.push(self.start(now));
        }
        if messages.is_empty() {
            return Ok(());
        }
        self.sent += messages.len() as u64;
        loop {
            let sent = self.broker.send_confirmed(messages.clone(), true).await?;
            let unsent = messages.into_iter().zip(sent).filter(|(_, sent)| *sent != Confirmation::Confirmed);
            messages = unsent.map(|(message, _)| message).collect();
            if messages.is_empty() {
                return Ok(());
            }
            if now.elapsed() > PATIENCE {
                bail!("{} messages were not confirmed", messages.len());
            }
            tokio::time::sleep(TICK).await;
        }
    }

    fn start(&mut self, now: Instant) -> Outgoing {
        let number = self.started;
        self.started += 1;
        let (workflow, id) = (of_mix(number), format!("soak-{number}"));
        let answer = match workflow {
            "approved" => Some(format!(
                r#"{{"workflow":"{workflow}","id":"{id}","type":"approval","payload":{number}}}"#
            )),
            "hooked" => Some(format!(r#"{{"token":"{id}","payload":{number}}}"#)),
            _ => None,
        };
        if let Some(body) = answer {
            let answer = message(topology::EVENT_EXCHANGE, Some(format!("answer-{number}")), body);
            self.waiting.push_back((now + ANSWER_AFTER, answer));
        }
        let token = if workflow == "hooked" { format!(r#","token":"{id}""#) } else { String::new() };
        let body = format!(r#"{{"workflow":"{workflow}","id":"{id}","input":{number}{token}}}"#);
        self.open.insert(id, now);
        message(topology::START_EXCHANGE, None, body)
    }

    /// Takes what has ended.
    fn take(&mut self, incoming: Incoming) -> Result<()> {
        let mut incoming = Some(incoming);
        while let Some(Incoming::Delivery(delivery)) = incoming {
            let ended: Ended = serde_json::from_slice(&delivery.body)?;
            delivery.ack();
            if ended.status != "complete" {
                bail!("instance {} of {} has ended as {}", ended.id, ended.workflow, ended.status);
            }
            // A child is its parent's; a repeat of a lifecycle message finds nothing.
            if let Some(began) = self.open.remove(&ended.id) {
                self.ended += 1;
                self.last_end = Instant::now();
                if ended.workflow == "sequence" {
                    self.latencies.add(began.elapsed());
                }
            }
            incoming = self.consumer.try_next();
        }
        Ok(())
    }
}

fn of_mix(number: u64) -> &'static str {
    let all: usize = MIX.iter().map(|(_, share)| share).sum();
    // Spread, so that neighbours are of different kinds.
    let mut place = (number as usize).wrapping_mul(7) % all;
    for (workflow, share) in MIX {
        if place < share {
            return workflow;
        }
        place -= share;
    }
    MIX[0].0
}

fn message(exchange: &'static str, message_id: Option<String>, body: String) -> Outgoing {
    Outgoing::to_exchange(exchange, Namespace::default().as_str(), body.into_bytes()).with(Properties {
        content_type: Some("application/json".to_owned()),
        message_id,
        persistent: true,
        ..Properties::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_instances_are_of_the_mix() {
        for (workflow, share) in MIX {
            assert_eq!((0..20).filter(|number| of_mix(*number) == workflow).count(), share, "{workflow}");
        }
    }
}
