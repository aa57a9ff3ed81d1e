//! A coordinator or worker on a runtime of its own. Crashed, all its tasks and connections vanish at once, its steps too,
//! and nobody is told.

use std::{future::Future, sync::Arc};

use everstep_broker::{Broker, MemoryBroker};
use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};

use crate::{DEADLINE, within};

/// A part of a system that runs.
#[derive(Debug)]
pub struct Node {
    runtime: Option<Runtime>,
    stop: watch::Sender<bool>,
    main: Option<JoinHandle<Result<(), String>>>,
    memory: Option<MemoryBroker>,
}

impl Node {
    /// Runs `main` until it ends. It is given a future that is ready when the node is told to stop.
    pub fn spawn<F>(memory: Option<MemoryBroker>, main: impl FnOnce(watch::Receiver<bool>) -> F) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let (stop, stopped) = watch::channel(false);
        let main = runtime.spawn(main(stopped));
        Self { runtime: Some(runtime), stop, main: Some(main), memory }
    }

    /// Its connection to the in-process broker.
    pub fn memory(&self) -> &MemoryBroker {
        self.memory.as_ref().expect("only embedded nodes have an in-process connection")
    }

    /// Waits until it ends by itself.
    pub async fn ended(&mut self) -> Result<(), String> {
        let main = self.main.as_mut().expect("it runs");
        within("the end of a node", DEADLINE, main).await.map_err(|error| error.to_string())?
    }

    /// Tells it to stop and waits until it has.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        self.ended().await.expect("a node that stops gracefully ends well");
    }

    /// Kills it: connections first, then every task on its runtime.
    pub async fn crash(mut self) {
        if let Some(memory) = &self.memory {
            memory.close().await;
        }
        self.kill();
    }

    fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Ready when told to stop.
pub(crate) async fn until(mut stopped: watch::Receiver<bool>) {
    drop(stopped.wait_for(|stopped| *stopped).await);
}

/// A broker that closes its connections when a node has ended gracefully.
pub(crate) async fn closing<T>(broker: Arc<dyn Broker>, run: impl Future<Output = T>) -> T {
    let outcome = run.await;
    broker.close().await;
    outcome
}
