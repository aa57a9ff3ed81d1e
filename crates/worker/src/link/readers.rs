//! Consumers of run and step queues. Each takes one task and waits for room before it takes the next, so that tasks which
//! this worker cannot use stay for others.

use std::sync::Arc;

use everstep_broker::{
    Consume, Consumer, Error as BrokerError, Incoming, QueueDeclaration, QueueKind, Settle,
};
use everstep_protocol::{crash::at, topology, wire};
use serde::de::DeserializeOwned;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinHandle,
};

use super::Link;
use crate::{metrics::Metrics, work::Input};

/// The running consumers. Dropped, they stop and what they hold goes back to the queues.
#[derive(Debug)]
pub(super) struct Readers(Vec<JoinHandle<()>>);

impl Drop for Readers {
    fn drop(&mut self) {
        for reader in &self.0 {
            reader.abort();
        }
    }
}

impl Readers {
    pub(super) async fn start(link: &Link) -> Result<Self, BrokerError> {
        let open = &link.profile.open;
        let mut readers = Self(Vec::new());
        for workflow in &open.workflows {
            // What is pinned to this build comes by a queue of its own (rule P40).
            let pinned = topology::pinned_run_queue(&open.namespace, workflow, &open.build);
            for queue in [topology::run_queue(&open.namespace, workflow), pinned] {
                let reader = Reader::new(link, queue, &link.room, link.prefetch).await?;
                let task = reader.run("run task", |task, settle, room| Input::Task { task, settle, room });
                readers.0.push(tokio::spawn(task));
            }
        }
        for pool in &open.pools {
            let queue = topology::step_queue(&open.namespace, pool);
            let reader = Reader::new(link, queue, &link.step_room, link.prefetch).await?;
            let task = reader.run("step task", |task, settle, room| Input::StepTask { task, settle, room });
            readers.0.push(tokio::spawn(task));
        }
        Ok(readers)
    }
}

struct Reader {
    consumer: Consumer,
    room: Arc<Semaphore>,
    inputs: mpsc::UnboundedSender<Input>,
    metrics: Metrics,
}

impl Reader {
    async fn new(
        link: &Link,
        queue: String,
        room: &Arc<Semaphore>,
        prefetch: u16,
    ) -> Result<Self, BrokerError> {
        let queue = QueueDeclaration::new(queue, QueueKind::Classic);
        let consumer = link.broker.consume(Consume::new(queue, prefetch)).await?;
        Ok(Self { consumer, room: room.clone(), inputs: link.inputs.clone(), metrics: link.metrics.clone() })
    }

    async fn run<T: DeserializeOwned>(
        mut self,
        what: &'static str,
        input: impl Fn(T, Settle, OwnedSemaphorePermit) -> Input,
    ) {
        loop {
            let Incoming::Delivery(delivery) = self.consumer.next().await else { continue };
            let (message, settle) = delivery.split();
            match wire::decode::<T>(what, &message.body) {
                Err(error) => {
                    self.metrics.aside("unreadable");
                    tracing::warn!(%error, "a task is set aside");
                    at("ack.task", || settle.ack());
                }
                Ok(task) => {
                    let Ok(room) = self.room.clone().acquire_owned().await else { return settle.requeue() };
                    if self.inputs.send(input(task, settle, room)).is_err() {
                        return;
                    }
                }
            }
        }
    }
}
