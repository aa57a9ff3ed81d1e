//! The loop.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use everstep_broker::{Broker, Declaration, QueueDeclaration, QueueKind};
use everstep_protocol::{Namespace, crash::around, topology};
use everstep_store::Store;
use tokio::{task::JoinSet, time::MissedTickBehavior};

use crate::{
    chance::{Chance, SystemChance},
    error::Error,
    handle::Handle,
    queue::Queue,
    service,
    settings::Settings,
    shared::{Ends, Shared},
    turn::{Finished, turn},
};

/// How long a stopping coordinator finishes what it has taken.
const GRACE: Duration = Duration::from_secs(5);

/// One coordinator, ready to run.
#[derive(Debug)]
pub struct Coordinator {
    shared: Arc<Shared>,
    ends: Ends,
}

impl Coordinator {
    /// Prepares a coordinator: checks the settings and reads the installation's incarnation.
    pub async fn new(
        store: Arc<dyn Store>,
        broker: Arc<dyn Broker>,
        settings: Settings,
    ) -> Result<Self, Error> {
        Self::with_chance(store, broker, settings, Arc::new(SystemChance)).await
    }

    /// The same, with chance of one's own: for tests and simulations.
    pub async fn with_chance(
        store: Arc<dyn Store>,
        broker: Arc<dyn Broker>,
        settings: Settings,
        chance: Arc<dyn Chance>,
    ) -> Result<Self, Error> {
        let problems = settings.validate();
        if !problems.is_empty() {
            return Err(Error::Settings(problems));
        }
        let incarnation = store.incarnation().await?;
        let restored_at = store.restored_at().await?;
        let (mut shared, ends) = Shared::new(store, broker, settings, incarnation, chance);
        shared.rules.restored_at = restored_at;
        Ok(Self { shared: Arc::new(shared), ends })
    }

    /// A handle for API, tests and embedded use.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.shared))
    }

    /// Declares the topology (rule W14), as [`Coordinator::run`] does first: for those who publish before it runs. Where the
    /// broker is away, its connection declares it when it comes.
    pub async fn declare(&self) {
        declare(&self.shared).await;
    }

    /// Runs until `stop` is ready, then finishes what was taken, gives its duties up and returns. Stopping hard is always
    /// correct, only slower to be noticed.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), Error> {
        let Self { shared, ends } = self;
        let mut stop = std::pin::pin!(stop);
        declare(&shared).await;
        tokio::select! {
            biased;
            () = stop.as_mut() => return Ok(()),
            appeared = service::standing::appear(&shared) => appeared?,
        }
        let mut services = services(&shared, ends.lifecycles, ends.rejections);
        let mut work = Work {
            queue: Queue::new(shared.settings.batch, shared.settings.second_at),
            running: JoinSet::new(),
            shared: Arc::clone(&shared),
        };
        let outcome = work.turns(ends.arrivals, stop, &mut services).await;
        services.shutdown().await;
        let releasing = around("commit.duties_released", shared.store.release_duties(shared.id));
        let released = tokio::time::timeout(Duration::from_secs(2), releasing);
        if !matches!(released.await, Ok(Ok(()))) {
            tracing::info!("duties were not given up; they run out in seconds");
        }
        outcome
    }
}

struct Work {
    queue: Queue,
    running: JoinSet<Finished>,
    shared: Arc<Shared>,
}

impl Work {
    /// Every cause of work comes through here: an input, a finished batch, the stop.
    async fn turns(
        &mut self,
        mut arrivals: tokio::sync::mpsc::UnboundedReceiver<crate::arrival::Arrival>,
        stop: impl Future<Output = ()> + Send,
        services: &mut JoinSet<Result<(), Error>>,
    ) -> Result<(), Error> {
        tokio::pin!(stop);
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        // After a standstill one look is as good as many.
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                // What comes once goes first: under load the others are always ready.
                biased;
                () = &mut stop => break,
                Some(ended) = services.join_next() => service_ended(ended)?,
                Some(finished) = self.running.join_next() => self.finish(finished),
                Some(arrival) = arrivals.recv() => {
                    self.queue.push(arrival);
                    while let Ok(arrival) = arrivals.try_recv() {
                        self.queue.push(arrival);
                    }
                }
                _ = tick.tick() => {}
            }
            self.begin();
        }
        self.shared.stopping.store(true, Ordering::Release);
        let finished = tokio::time::timeout(GRACE, async {
            while let Ok(arrival) = arrivals.try_recv() {
                self.queue.push(arrival);
            }
            self.begin();
            while let Some(finished) = self.running.join_next().await {
                self.finish(finished);
                self.begin();
            }
        });
        if finished.await.is_err() {
            tracing::warn!("inputs were not finished in time; they come again to another coordinator");
        }
        drop(self.queue.drain());
        Ok(())
    }

    fn begin(&mut self) {
        let turned = u64::try_from(self.shared.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.shared.turned_ms.store(turned, Ordering::Relaxed);
        while let Some(batch) = self.queue.next() {
            self.running.spawn(turn(Arc::clone(&self.shared), batch));
        }
        self.shared.metrics.waiting.set(self.queue.waiting() as i64);
    }

    fn finish(&mut self, finished: Result<Finished, tokio::task::JoinError>) {
        match finished {
            Ok(finished) => {
                self.queue.finished(&finished.instances);
                self.queue.again(finished.again);
            }
            // A turn that panicked leaves its instances held back for good: better to stop and be replaced.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

fn service_ended(ended: Result<Result<(), Error>, tokio::task::JoinError>) -> Result<(), Error> {
    match ended {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Ok(()),
    }
}

/// Declares the topology (rule W14). Where the broker is away, its connection declares it when it comes.
async fn declare(shared: &Shared) {
    if let Err(error) = shared.broker.declare(topology(shared)).await {
        tracing::warn!(%error, "the topology is declared when the broker is there");
    }
}

/// What every coordinator declares. Task queues come with the workers that serve them.
pub(crate) fn topology(shared: &Shared) -> Vec<Declaration> {
    let mut topology = vec![
        Declaration::exchange(topology::START_EXCHANGE),
        Declaration::exchange(topology::EVENT_EXCHANGE),
        Declaration::exchange(topology::LIFECYCLE_EXCHANGE),
        service::sessions::queue().into(),
    ];
    topology
        .extend((0..shared.settings.report_queues).map(|index| service::intake::report_queue(index).into()));
    topology.extend(shared.settings.namespaces.iter().flat_map(namespace_queues));
    topology
}

fn namespace_queues(namespace: &Namespace) -> Vec<Declaration> {
    let dead = topology::dead_queue(namespace);
    let mut start = QueueDeclaration::new(topology::start_queue(namespace), QueueKind::Quorum);
    start.bind = vec![(topology::START_EXCHANGE.to_owned(), namespace.to_string())];
    start.dead_letter = Some(dead.clone());
    vec![
        QueueDeclaration::new(dead, QueueKind::Quorum).into(),
        QueueDeclaration::new(topology::rejected_queue(namespace), QueueKind::Quorum).into(),
        start.into(),
        service::events::queue(namespace).into(),
    ]
}

fn services(
    shared: &Arc<Shared>,
    lifecycles: tokio::sync::mpsc::UnboundedReceiver<everstep_engine::lifecycle::Lifecycle>,
    rejections: tokio::sync::mpsc::UnboundedReceiver<crate::shared::Rejection>,
) -> JoinSet<Result<(), Error>> {
    let mut set = JoinSet::new();
    let endless = |set: &mut JoinSet<Result<(), Error>>, service: futures::future::BoxFuture<'static, ()>| {
        set.spawn(async move {
            service.await;
            Ok(())
        });
    };
    endless(&mut set, Box::pin(service::duties::run(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::sessions::beat(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::sessions::keep_fresh(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::watch::run(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::timers::run(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::dispatch::run(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::unserved::run(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::attention::run(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::auditor::run(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::census::run(Arc::clone(shared))));
    set.spawn(service::standing::run(Arc::clone(shared)));
    endless(&mut set, Box::pin(service::outbox::run(Arc::clone(shared), lifecycles)));
    endless(&mut set, Box::pin(service::outbox::repeat(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::rejections::run(Arc::clone(shared), rejections)));
    endless(&mut set, Box::pin(service::clean::run(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::bulks::run(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::schedules::run(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::letters::run(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::deadlines::run(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::measure::run(Arc::clone(shared))));
    endless(&mut set, Box::pin(service::later::run(Arc::clone(shared))));
    set.spawn(service::sessions::run(Arc::clone(shared)));
    for index in 0..shared.settings.report_queues {
        set.spawn(service::intake::run(Arc::clone(shared), index));
    }
    for namespace in &shared.settings.namespaces {
        set.spawn(service::starts::run(Arc::clone(shared), namespace.clone()));
        set.spawn(service::events::run(Arc::clone(shared), namespace.clone()));
        set.spawn(service::starts::run_dead(Arc::clone(shared), namespace.clone()));
    }
    set
}
