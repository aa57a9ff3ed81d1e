//! The threads of an embedded system: one of the coordinator, one that runs workers.

use std::{sync::Arc, thread::JoinHandle};

use everstep_broker::{Broker, MemoryBroker};
use everstep_coordinator::Coordinator;
use everstep_sdk::Registry;
use everstep_worker::{Probe, Worker};
use tokio::{
    runtime::{Handle, Runtime},
    sync::watch,
};

use super::{EmbeddedError, WorkerSettings};

/// Runs the coordinator on this runtime, which is its own.
pub(super) fn coordinator(
    runtime: Runtime,
    coordinator: Coordinator,
    stopped: watch::Receiver<bool>,
) -> Result<JoinHandle<()>, EmbeddedError> {
    let run = move || {
        if let Err(error) = runtime.block_on(coordinator.run(until(stopped))) {
            tracing::error!(%error, "the embedded coordinator has ended");
        }
    };
    Ok(std::thread::Builder::new().name("everstep-coordinator".to_owned()).spawn(run)?)
}

/// Workers one after the other: one whose body is stuck is abandoned and replaced (rule W12).
pub(super) struct Workers {
    registry: Registry,
    broker: MemoryBroker,
    settings: WorkerSettings,
    first: Worker,
    probes: watch::Sender<Probe>,
}

impl Workers {
    /// Makes the first one, which checks what all of them get.
    pub(super) fn new(
        registry: Registry,
        broker: MemoryBroker,
        settings: WorkerSettings,
    ) -> Result<Self, EmbeddedError> {
        let first = worker(&registry, &broker, &settings)?;
        let probes = watch::Sender::new(first.probe());
        Ok(Self { registry, broker, settings, first, probes })
    }

    /// How the one at work stands.
    #[cfg(feature = "metrics")]
    pub(super) fn probe(&self) -> watch::Receiver<Probe> {
        self.probes.subscribe()
    }

    /// Runs them; their steps run on the current runtime.
    pub(super) fn spawn(self, stopped: watch::Receiver<bool>) -> Result<JoinHandle<()>, EmbeddedError> {
        let steps = Handle::current();
        let Self { registry, broker, settings, first: mut current, probes } = self;
        let run = move || {
            loop {
                match steps.block_on(current.run(until(stopped.clone()))) {
                    Ok(()) => return,
                    Err(error) => tracing::error!(%error, "the embedded worker has ended; a new one starts"),
                }
                if *stopped.borrow() {
                    return;
                }
                current = match worker(&registry, &broker, &settings) {
                    Ok(next) => next,
                    Err(error) => {
                        tracing::error!(%error, "the embedded worker cannot start");
                        return;
                    }
                };
                probes.send_replace(current.probe());
            }
        };
        Ok(std::thread::Builder::new().name("everstep-worker".to_owned()).spawn(run)?)
    }
}

fn worker(
    registry: &Registry,
    broker: &MemoryBroker,
    settings: &WorkerSettings,
) -> Result<Worker, everstep_worker::Error> {
    let link: Arc<dyn Broker> = Arc::new(broker.connection());
    Worker::new(registry.clone(), link, settings.clone())
}

async fn until(mut stopped: watch::Receiver<bool>) {
    // A sender that is gone means that the system was dropped.
    drop(stopped.wait_for(|stopped| *stopped).await);
}
