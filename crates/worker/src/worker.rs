//! The worker as its owner sees it: made of a registry, a broker and settings, run until told to stop.

use std::{fmt, sync::Arc, thread};

use everstep_broker::Broker;
use everstep_protocol::{BuildName, SessionId, message::OpenSession};
use everstep_sdk::Registry;
use tokio::{
    runtime::{Builder, Handle},
    sync::{Semaphore, mpsc, oneshot, watch as channel},
    task::JoinSet,
};

use crate::{
    attempt::Attempts,
    board::Board,
    error::Error,
    link::{Ending, Link},
    metrics::Metrics,
    probe::{Phases, Probe, Telling},
    session::Profile,
    settings::{Loops, OnStuck, Settings},
    watch::Watch,
    work::{Input, Parts, Work},
};

/// The exit code of a process that a body has blocked (rule W12): an internal software error by sysexits.
const EXIT_STUCK: i32 = 70;

/// Hosts the workflows and remote functions of a registry.
pub struct Worker {
    registry: Registry,
    broker: Arc<dyn Broker>,
    settings: Settings,
    build: BuildName,
    watch: Arc<Watch>,
    phases: Phases,
}

impl Worker {
    /// Checks everything that can be checked before anything runs.
    pub fn new(registry: Registry, broker: Arc<dyn Broker>, settings: Settings) -> Result<Self, Error> {
        registry.validate()?;
        settings.validate()?;
        let build = settings.build()?;
        Ok(Self { registry, broker, settings, build, watch: Arc::default(), phases: Phases::default() })
    }

    /// The counters.
    #[must_use]
    pub const fn metrics(&self) -> &Metrics {
        &self.settings.metrics
    }

    /// What probes ask it, while it runs and before.
    #[must_use]
    pub fn probe(&self) -> Probe {
        Probe {
            broker: Arc::clone(&self.broker),
            phases: self.phases.clone(),
            watch: self.watch.clone(),
            poll_limit: self.settings.poll_limit,
        }
    }

    /// The build that it announces.
    #[must_use]
    pub const fn build(&self) -> &BuildName {
        &self.build
    }

    /// Which body is polled, for whoever looks from another thread.
    #[doc(hidden)]
    #[must_use]
    pub fn watch(&self) -> Arc<Watch> {
        self.watch.clone()
    }

    /// Runs until `stop` is ready, then ends gracefully: running steps may end within the grace, the rest is given back.
    /// Steps run on the runtime that this is called on. Dropped, it stops as if told to; where its loops run as tasks of
    /// this runtime ([`Loops::Current`]) they are gone at once instead, steps too, as after a crash.
    ///
    /// An error means that the worker has ended for another reason; the owner decides whether to start a new one.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let (inputs, incoming) = mpsc::unbounded_channel();
        let (to_link, outgoing) = mpsc::unbounded_channel();
        let (stopping, stops) = channel::channel(false);
        let on_stuck = self.settings.on_stuck;
        let link_runtime = self.settings.link_runtime.clone();
        let loops = self.settings.loops;
        let (parts, link) = self.parts(Handle::current(), &inputs, to_link, stops);
        let (told, sent) = oneshot::channel();
        let sender = link.sender(outgoing);
        let work = move || async move {
            let mut sending = JoinSet::new();
            sending.spawn(sender);
            Work::new(parts).run(incoming).await;
            // The last parcel, with the last word, leaves before this loop does.
            let sent = sending.join_next().await;
            let _ = told.send(sent.and_then(Result::ok).unwrap_or(false));
        };
        // Aborted when this is dropped.
        let mut here = JoinSet::new();
        let (work, mut link) = match (loops, link_runtime) {
            (Loops::Current, _) => (as_task(&mut here, work()), as_task(&mut here, link.run(sent))),
            (Loops::Threads, Some(runtime)) => {
                (on_thread("everstep-work", work)?, on_runtime(&runtime, link.run(sent)))
            }
            (Loops::Threads, None) => (
                on_thread("everstep-work", work)?,
                on_thread("everstep-link", move || async move { link.run(sent).await })?,
            ),
        };
        let stopper = Stopper { inputs, stopping };
        let ending = tokio::select! {
            // The simulator repeats a run: nothing is drawn.
            biased;
            ending = &mut link => ending,
            () = stop => {
                stopper.stop();
                link.await
            }
        };
        drop(stopper);
        match ending.map_err(|_| Error::Thread("link"))? {
            Ending::Goodbye => {
                // It has ended already: its last word made the link say goodbye.
                let _ = work.await;
                Ok(())
            }
            Ending::Broken => Err(Error::Thread("work")),
            Ending::Refused(error) => Err(Error::Broker(error)),
            Ending::Stuck(_) if on_stuck == OnStuck::ExitProcess => std::process::exit(EXIT_STUCK),
            Ending::Stuck(polled) => Err(Error::Stuck { workflow: polled.workflow, instance: polled.id }),
        }
    }

    fn parts(
        self,
        runtime: Handle,
        inputs: &mpsc::UnboundedSender<Input>,
        to_link: mpsc::UnboundedSender<crate::link::ToLink>,
        stopping: channel::Receiver<bool>,
    ) -> (Parts, Link) {
        let profile = self.profile();
        let Self { registry, broker, settings, build, watch, phases } = self;
        let room = Arc::new(Semaphore::new(settings.instances as usize));
        let step_room = Arc::new(Semaphore::new(settings.slots as usize));
        let gone = inputs.clone();
        let listener = Arc::new(move |attempt| {
            // A loop that has ended has no use for outcomes.
            let _ = gone.send(Input::Gone(attempt));
        });
        let metrics = settings.metrics;
        let attempts = Attempts::new(
            runtime,
            settings.slots,
            settings.timeout_grace,
            metrics.clone(),
            settings.interceptor.clone(),
            listener,
        );
        let board = Arc::new(Board::new(attempts.telling()));
        let link = Link {
            broker,
            profile,
            session_ids: settings.session_ids,
            inbox_prefetch: settings.inbox_prefetch,
            prefetch: settings.prefetch.min(u16::try_from(settings.instances).unwrap_or(u16::MAX)),
            report_queues: settings.report_queues,
            poll_limit: settings.poll_limit,
            metrics: metrics.clone(),
            telling: Telling::new(phases, metrics.clone()),
            board: board.clone(),
            watch: watch.clone(),
            room: room.clone(),
            step_room: step_room.clone(),
            inputs: inputs.clone(),
            stopping,
        };
        let (linger, shutdown_grace, inputs) = (settings.linger, settings.shutdown_grace, inputs.clone());
        let cache_bytes = settings.cache_bytes;
        let interceptor = settings.interceptor;
        let parts = Parts {
            registry,
            build,
            linger,
            cache_bytes,
            shutdown_grace,
            metrics,
            interceptor,
            attempts,
            board,
            watch,
            room,
            step_room,
            inputs,
            link: to_link,
        };
        (parts, link)
    }

    fn profile(&self) -> Profile {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Profile {
            open: OpenSession {
                session: SessionId::generate(),
                namespace: self.settings.namespace.clone(),
                workflows: self.registry.workflow_names().cloned().collect(),
                pinned: self.registry.pinned_names().cloned().collect(),
                pools: self.settings.pools.clone(),
                functions: self.registry.function_names().cloned().collect(),
                build: self.build.clone(),
                inbox: String::new(),
                slots: self.settings.slots,
                instances: self.settings.instances,
                host: format!("{}:{}", name.trim(), std::process::id()),
            },
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("build", &self.build)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Tells both loops to stop, at the latest when the owner drops the worker.
struct Stopper {
    inputs: mpsc::UnboundedSender<Input>,
    stopping: channel::Sender<bool>,
}

impl Stopper {
    fn stop(&self) {
        self.stopping.send_replace(true);
        // A loop that has ended needs no telling.
        let _ = self.inputs.send(Input::Stop);
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a future as one of these tasks; gives its result, or an error if it was aborted.
fn as_task<T: Send + 'static>(
    tasks: &mut JoinSet<()>,
    future: impl Future<Output = T> + Send + 'static,
) -> oneshot::Receiver<T> {
    let (done, result) = oneshot::channel();
    tasks.spawn(async move {
        // Nobody listens to a worker that was dropped.
        let _ = done.send(future.await);
    });
    result
}

/// Runs a future on a runtime that its owner keeps for this; gives its result, or an error if that runtime ended.
fn on_runtime<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> oneshot::Receiver<T> {
    let (done, result) = oneshot::channel();
    runtime.spawn(async move {
        // Nobody listens to a worker that was dropped.
        let _ = done.send(future.await);
    });
    result
}

/// Runs a future on a thread and runtime of its own; gives its result, or an error if the thread died.
fn on_thread<T, F>(
    name: &'static str,
    future: impl FnOnce() -> F + Send + 'static,
) -> Result<oneshot::Receiver<T>, Error>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let (done, result) = oneshot::channel();
    let run = move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime {
            // Nobody listens to a thread that was abandoned.
            let _ = done.send(runtime.block_on(future()));
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|_| Error::Thread(name))?;
    Ok(result)
}
