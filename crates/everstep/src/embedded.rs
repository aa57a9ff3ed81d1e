//! The whole system in this process: the same coordinator and worker code on one SQLite file and an in-process broker.
//!
//! State survives kill -9: the next process that opens the file goes on where the last one was (rule W13). One process at a time
//! has the file open; a second one is refused.
//!
//! ```
//! use everstep::{Error, Workflow, embedded::Embedded};
//!
//! #[everstep::workflow]
//! async fn double(cx: Workflow, n: u64) -> Result<u64, Error> {
//!     cx.step("double", n, |_step, n: u64| async move { Ok::<_, Error>(2 * n) }).await
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("everstep.db");
//! let everstep = Embedded::open(&path).workflow(double).start().await?;
//! let mut ended = everstep.ended().await?;
//! everstep.start_instance("double", Some("one"), &21).await?;
//! assert_eq!(ended.next().await.output(), Some("42"));
//! everstep.stop().await?;
//! # Ok(())
//! # }
//! ```

mod instance;
mod schedules;
mod threads;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

use everstep_broker::{Broker, Consume, Consumer, Incoming, MemoryBroker, QueueDeclaration, QueueKind};
use everstep_coordinator::{Coordinator, EventRequest, Handle, ResumeRequest, StartRequest};
use everstep_engine::{mailbox::EventId, start::NameKey};
use everstep_protocol::{
    Attribute, AttributeError, EventKey, EventType, InstanceId, InstanceUid, Namespace, Payload, Token,
    WorkflowName,
    name::NameError,
    payload::PayloadError,
    start::{Retention, StartOutcome, StartReply},
    topology,
};
use everstep_sdk::{Registry, RegistryError, host::Definition};
use everstep_store::{Filter, Store, sqlite::SqliteStore};
use everstep_worker::OnStuck;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub use everstep_engine::schedule::{self, CatchUp, Definition as Schedule, Overlap, When};
/// A moment by the store's clock.
pub use everstep_protocol::Timestamp;
pub use everstep_sdk::SendEvent;
pub use everstep_store::StatusWord as Status;
pub use instance::{InstanceHandle, OperationError, ResultError};

/// Settings of the coordinator half.
pub type CoordinatorSettings = everstep_coordinator::Settings;
/// Settings of the worker half.
pub type WorkerSettings = everstep_worker::Settings;
/// A token that a start claims, and what became of a resume.
pub use everstep_coordinator::{Misfit, Resumed, Uncarried, WebhookAnswer, WebhookCall};
/// What became of an event: [`Answer::Done`] if it was accepted, now or before.
pub use everstep_engine::Answer;
pub use everstep_protocol::hook::{HookRetention, StartHook};
/// Who has a token.
pub type HookView = everstep_store::HookView;
/// What an instance waits for, with the question that a person is asked.
pub type WaitView = everstep_store::WaitView;
/// Which question of an instance.
pub use everstep_protocol::journal::{Changed, KeyChoice, QuestionId};
/// What the store says of a schedule.
pub type ScheduleView = everstep_store::ScheduleRow;
/// What the store says of an instance.
pub type InstanceView = everstep_store::InstanceView;

/// Why the embedded system did not start, or an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The file cannot be used.
    #[error(transparent)]
    Store(#[from] everstep_store::Error),
    /// The coordinator failed.
    #[error(transparent)]
    Coordinator(#[from] everstep_coordinator::Error),
    /// The broker failed.
    #[error(transparent)]
    Broker(#[from] everstep_broker::Error),
    /// The worker cannot start.
    #[error(transparent)]
    Worker(#[from] everstep_worker::Error),
    /// What was registered cannot be served.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A name breaks its rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An attribute breaks its rule.
    #[error(transparent)]
    Attributes(#[from] AttributeError),
    /// The input has no JSON form.
    #[error(transparent)]
    Input(#[from] PayloadError),
    /// An instance was not started.
    #[error("it was not started: {}", .0.message.as_deref().unwrap_or("the id is taken by an instance with another input"))]
    NotStarted(Box<StartReply>),
    /// The page of metrics cannot be served.
    #[cfg(feature = "metrics")]
    #[error("the metrics cannot be served: {0}")]
    Page(std::io::Error),
    /// The registry of the metrics has counters of a worker already.
    #[cfg(feature = "metrics")]
    #[error("the registry cannot take the worker's metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// A schedule is refused, or was not changed.
    #[error(transparent)]
    Schedule(#[from] everstep_coordinator::ScheduleError),
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// An embedded system in the making.
#[derive(Debug)]
#[must_use = "nothing runs until it is started"]
pub struct Builder {
    path: PathBuf,
    registry: Registry,
    coordinator: CoordinatorSettings,
    worker: WorkerSettings,
    #[cfg(feature = "metrics")]
    page: Option<Result<crate::page::Wanted, prometheus::Error>>,
}

/// A running embedded system. Dropped without [`Embedded::stop`] it stops as after a crash: safely.
#[derive(Debug)]
pub struct Embedded {
    handle: Handle,
    broker: MemoryBroker,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    #[cfg(feature = "metrics")]
    page: Option<everstep_metrics::page::Page>,
}

impl Embedded {
    /// Prepares a system on this file, which is made if it is not there.
    pub fn open(path: impl AsRef<Path>) -> Builder {
        Builder {
            path: path.as_ref().to_owned(),
            registry: Registry::new(),
            coordinator: CoordinatorSettings { report_queues: 1, ..CoordinatorSettings::default() },
            worker: WorkerSettings {
                report_queues: 1,
                on_stuck: OnStuck::Abandon,
                ..WorkerSettings::default()
            },
            #[cfg(feature = "metrics")]
            page: None,
        }
    }

    /// Starts an instance, and answers with a handle on it when it is safe on disk. With an id it can be repeated without harm: the
    /// same input meets the same instance (rule P27).
    ///
    /// ```
    /// # use everstep::embedded::{Embedded, SendEvent};
    /// # async fn example(everstep: &Embedded) -> Result<(), Box<dyn std::error::Error>> {
    /// let order = everstep.start("fulfil", Some("o-17"), &vec!["book"]).await?;
    /// order.send_event(&SendEvent::new("approval").id("approval-17"), &true).await?;
    /// let receipt: String = order.result().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: [`EmbeddedError::NotStarted`] where the id has another input, or the start is refused for another reason.
    pub async fn start<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: Option<&str>,
        input: &I,
    ) -> Result<InstanceHandle, EmbeddedError> {
        let reply = self.start_instance(workflow, id, input).await?;
        match (reply.outcome, &reply.id) {
            (StartOutcome::Created | StartOutcome::Exists, Some(id)) => self.handle(workflow, id),
            _ => Err(EmbeddedError::NotStarted(Box::new(reply))),
        }
    }

    /// The same, with an answer that tells a new instance from one that there was, and says why nothing was started.
    pub async fn start_instance<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: Option<&str>,
        input: &I,
    ) -> Result<StartReply, EmbeddedError> {
        Ok(self.handle.start(request(workflow, id, input)?).await?)
    }

    /// Starts an instance with attributes, by which it can be found in lists (rule P37): at most 32, each a name and a text, number
    /// or `bool`.
    ///
    /// ```
    /// # use everstep::embedded::{Embedded, EmbeddedError};
    /// # async fn example(everstep: &Embedded) -> Result<(), EmbeddedError> {
    /// let attributes = serde_json::json!({"customer": "c-17", "vip": true});
    /// everstep.start_with_attributes("fulfil", Some("o-1"), &42, attributes).await?;
    /// let found = everstep.find("fulfil", serde_json::json!({"customer": "c-17"})).await?;
    /// # Ok(()) }
    /// ```
    pub async fn start_with_attributes<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: Option<&str>,
        input: &I,
        attributes: serde_json::Value,
    ) -> Result<StartReply, EmbeddedError> {
        let attributes = read_attributes(attributes)?;
        Ok(self.handle.start(StartRequest { attributes, ..request(workflow, id, input)? }).await?)
    }

    /// The newest instances of a workflow, at most 200, that have all these attributes.
    pub async fn find(
        &self,
        workflow: &str,
        attributes: serde_json::Value,
    ) -> Result<Vec<InstanceView>, EmbeddedError> {
        let filter = Filter {
            workflow: Some(WorkflowName::new(workflow)?),
            attributes: read_attributes(attributes)?,
            ..Filter::default()
        };
        Ok(self.handle.store().instances(&filter, None, 200).await?.rows)
    }

    /// Starts up to 1,000 instances, each with an id or none and its input: all are checked before any is created, and the
    /// replies come in order (rule P27). Where every instance has an id it can be repeated without harm.
    pub async fn start_batch<I: Serialize>(
        &self,
        workflow: &str,
        starts: &[(Option<&str>, I)],
    ) -> Result<Vec<StartReply>, EmbeddedError> {
        let starts = starts.iter().map(|(id, input)| request(workflow, *id, input));
        Ok(self.handle.start_batch(starts.collect::<Result<_, _>>()?).await?)
    }

    /// Sends an event to an instance, and answers when it is safe on disk. The same event id, type, key and payload again is
    /// the same event (rule P24); without an id every call sends another one.
    pub async fn send_event<P: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: &str,
        event: &SendEvent<'_>,
        payload: &P,
    ) -> Result<Answer, EmbeddedError> {
        Ok(self.handle.send_event(name(workflow, id)?, event_request(event, payload)?).await?)
    }

    /// Starts an instance that claims a token, so that no other instance can have it (rule H1). While another one has it, nothing is
    /// created, and the reply's outcome is a conflict with that one as its owner. So a start of which nobody knows what became of it
    /// can be made again.
    ///
    /// ```
    /// # use everstep::embedded::{Embedded, EmbeddedError, StartHook};
    /// # async fn example(everstep: &Embedded) -> Result<(), EmbeddedError> {
    /// let hook = StartHook::new("order:17".parse()?);
    /// let reply = everstep.start_with_hook("fulfil", None, &42, hook).await?;
    /// match reply.owner {
    ///     None => println!("started {:?}", reply.id),
    ///     Some(owner) => println!("{} has the order already", owner.id),
    /// }
    /// everstep.resume_hook("order:17", Some("note-1"), &"gift wrap").await?;
    /// # Ok(()) }
    /// ```
    pub async fn start_with_hook<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: Option<&str>,
        input: &I,
        hook: StartHook,
    ) -> Result<StartReply, EmbeddedError> {
        let hook = Some(hook);
        Ok(self.handle.start(StartRequest { hook, ..request(workflow, id, input)? }).await?)
    }

    /// Resumes the hook of whoever has this token, and answers when the payload is safe on disk. The same resume id and payload
    /// again is the same payload (rule H48); without an id every call sends another one.
    pub async fn resume_hook<P: Serialize + ?Sized>(
        &self,
        token: &str,
        id: Option<&str>,
        payload: &P,
    ) -> Result<Resumed, EmbeddedError> {
        let request = ResumeRequest {
            namespace: Namespace::default(),
            token: Token::new(token)?,
            id: id.map_or_else(|| InstanceUid::generate().to_string(), str::to_owned),
            payload: Payload::encode(payload)?,
        };
        Ok(self.handle.resume_hook(request).await?)
    }

    /// Calls a webhook as whoever knows its token does over HTTP, and gives what that one would be answered: at once, or when its code
    /// has answered. The same id, method, query and body again is the same request.
    ///
    /// ```
    /// # use everstep::embedded::{Embedded, EmbeddedError, WebhookCall};
    /// # async fn example(everstep: &Embedded) -> Result<(), EmbeddedError> {
    /// let call = WebhookCall::post("payment:17")?.id("evt-1").json(&serde_json::json!({"cents": 500}));
    /// let answer = everstep.webhook(&call).await?;
    /// assert_eq!(answer.response().map(|response| response.status), Some(200));
    /// # Ok(()) }
    /// ```
    pub async fn webhook(&self, call: &WebhookCall) -> Result<WebhookAnswer, EmbeddedError> {
        Ok(self.handle.webhook(call).await?)
    }

    /// Who has a token, or keeps it by a retention; advice only, since it may change at any time.
    pub async fn hook(&self, token: &str) -> Result<Option<HookView>, EmbeddedError> {
        Ok(self.handle.store().hook(&Namespace::default(), &Token::new(token)?).await?)
    }

    /// Tokens that somebody has or keeps, after this one, in their order: at most 200.
    pub async fn hooks(&self, after: Option<&str>, limit: u32) -> Result<Vec<HookView>, EmbeddedError> {
        let after = after.map(Token::new).transpose()?;
        Ok(self.handle.store().hooks(&Namespace::default(), after.as_ref(), limit.min(200)).await?)
    }

    /// What the store says of an instance.
    pub async fn instance(&self, workflow: &str, id: &str) -> Result<Option<InstanceView>, EmbeddedError> {
        Ok(self.handle.store().instance(&name(workflow, id)?).await?)
    }

    /// A handle on one instance: wait for its end, send it events, operate it. It need not exist.
    pub fn handle(&self, workflow: &str, id: &str) -> Result<InstanceHandle, EmbeddedError> {
        Ok(InstanceHandle::new(self.handle.clone(), name(workflow, id)?))
    }

    /// Instances that end from now on.
    pub async fn ended(&self) -> Result<Ended, EmbeddedError> {
        let name = format!("ended.{}", everstep_protocol::SessionId::generate());
        let mut queue = QueueDeclaration::new(name, QueueKind::Exclusive);
        queue.bind = vec![(topology::LIFECYCLE_EXCHANGE.to_owned(), "#".to_owned())];
        let mut consumer = self.broker.consume(Consume { queue: queue.into(), prefetch: 1_000 }).await?;
        while !matches!(consumer.next().await, Incoming::Connected { .. }) {}
        Ok(Ended { consumer })
    }

    /// The coordinator itself: everything that the HTTP API offers.
    #[must_use]
    pub const fn coordinator(&self) -> &Handle {
        &self.handle
    }

    /// Where the metrics are served.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn metrics_address(&self) -> Option<std::net::SocketAddr> {
        self.page.as_ref().map(everstep_metrics::page::Page::address)
    }

    /// The in-process broker: publish a start message, listen to lifecycle messages.
    #[must_use]
    pub const fn broker(&self) -> &MemoryBroker {
        &self.broker
    }

    /// Stops gracefully: running steps finish or are given back.
    pub async fn stop(mut self) -> Result<(), EmbeddedError> {
        self.stop.send_replace(true);
        let threads = std::mem::take(&mut self.threads);
        let joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                // A thread that panicked has said so; the file is safe whatever it did.
                drop(thread.join());
            }
        });
        drop(joined.await);
        #[cfg(feature = "metrics")]
        if let Some(page) = self.page.take() {
            page.stop().await;
        }
        Ok(())
    }
}

impl Builder {
    /// Serves a workflow.
    pub fn workflow(mut self, workflow: impl Definition) -> Self {
        self.registry = self.registry.workflow(workflow);
        self
    }

    /// Serves a workflow whose instances are pinned to the build that takes them up first, see
    /// [`Registry::pinned_workflow`].
    pub fn pinned_workflow(mut self, workflow: impl Definition) -> Self {
        self.registry = self.registry.pinned_workflow(workflow);
        self
    }

    /// Serves everything that a registry holds, instead of what was named one by one.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Changes any setting of the coordinator half.
    pub fn coordinator(mut self, change: impl FnOnce(&mut CoordinatorSettings)) -> Self {
        change(&mut self.coordinator);
        self
    }

    /// Changes any setting of the worker half, such as the pools whose remote steps it runs.
    pub fn worker(mut self, change: impl FnOnce(&mut WorkerSettings)) -> Self {
        change(&mut self.worker);
        self
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` of both halves at this address, with the feature `metrics`.
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self, listen: impl Into<std::net::SocketAddr>) -> Self {
        let page = crate::page::Wanted::new(listen.into(), prometheus::Registry::new());
        self.page = Some(page.map(|(page, metrics)| {
            self.worker.metrics = metrics;
            page
        }));
        self
    }

    /// Opens the file and starts coordinator and worker on threads of their own; steps run on the current runtime.
    pub async fn start(self) -> Result<Embedded, EmbeddedError> {
        self.registry.validate()?;
        let path = self.path;
        let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&path)).await;
        let store: Arc<dyn Store> =
            Arc::new(opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?);
        let broker = MemoryBroker::new();
        let (stop, stopped) = watch::channel(false);
        let link: Arc<dyn Broker> = Arc::new(broker.connection());
        let coordinator = Coordinator::new(store, link, self.coordinator).await?;
        coordinator.declare().await;
        let handle = coordinator.handle();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let workers = threads::Workers::new(self.registry, broker.clone(), self.worker)?;
        #[cfg(feature = "metrics")]
        let page = match self.page.transpose()? {
            Some(page) => {
                let served = page.of_system(handle.clone(), workers.probe(), runtime.handle());
                Some(served.map_err(EmbeddedError::Page)?)
            }
            None => None,
        };
        let coordinator = threads::coordinator(runtime, coordinator, stopped.clone())?;
        let threads = vec![coordinator, workers.spawn(stopped)?];
        Ok(Embedded {
            handle,
            broker,
            stop,
            threads,
            #[cfg(feature = "metrics")]
            page,
        })
    }
}

fn request<I: Serialize + ?Sized>(
    workflow: &str,
    id: Option<&str>,
    input: &I,
) -> Result<StartRequest, EmbeddedError> {
    Ok(StartRequest {
        namespace: Namespace::default(),
        workflow: WorkflowName::new(workflow)?,
        id: id.map(InstanceId::new).transpose()?,
        input: Payload::encode(input)?,
        retention: Retention::default(),
        pin: None,
        strict: None,
        attributes: Vec::new(),
        hook: None,
        message: None,
    })
}

fn read_attributes(object: serde_json::Value) -> Result<Vec<Attribute>, EmbeddedError> {
    let object = serde_json::from_value(object);
    let object = object.map_err(|_| AttributeError::NoPair("what is no object".to_owned()))?;
    Ok(everstep_protocol::attribute::read(&object)?)
}

fn event_request<P: Serialize + ?Sized>(
    event: &SendEvent<'_>,
    payload: &P,
) -> Result<EventRequest, EmbeddedError> {
    let known_by = event.event_id().map_or_else(|| InstanceUid::generate().to_string(), str::to_owned);
    Ok(EventRequest {
        kind: EventType::new(event.kind())?,
        key: event.correlation_key().map(EventKey::new).transpose()?,
        id: EventId { app_id: String::new(), id: known_by },
        payload: Payload::encode(payload)?,
    })
}

fn name(workflow: &str, id: &str) -> Result<NameKey, EmbeddedError> {
    Ok(NameKey {
        namespace: Namespace::default(),
        workflow: WorkflowName::new(workflow)?,
        id: InstanceId::new(id)?,
    })
}

/// Instances that end, as they end.
#[derive(Debug)]
pub struct Ended {
    consumer: Consumer,
}

/// An instance that has ended, as its lifecycle message says.
#[derive(Clone, Debug, Deserialize)]
pub struct EndedInstance {
    /// Its workflow.
    pub workflow: String,
    /// Its id.
    pub id: String,
    /// `complete`, `errored`, `terminated` or `cancelled`.
    pub status: String,
    #[serde(default)]
    output: Option<Box<serde_json::value::RawValue>>,
    #[serde(default)]
    error: Option<EndedError>,
}

/// The error of an instance that ended with one.
#[derive(Clone, Debug, Deserialize)]
pub struct EndedError {
    /// The error's name.
    pub name: String,
    /// The error's message.
    pub message: String,
}

impl EndedInstance {
    /// The output as JSON text, if it completed.
    #[must_use]
    pub fn output(&self) -> Option<&str> {
        self.output.as_deref().map(serde_json::value::RawValue::get)
    }

    /// The error, if it ended with one.
    #[must_use]
    pub const fn error(&self) -> Option<&EndedError> {
        self.error.as_ref()
    }
}

impl Ended {
    /// The next instance that ends. Cancel-safe.
    pub async fn next(&mut self) -> EndedInstance {
        loop {
            if let Incoming::Delivery(delivery) = self.consumer.next().await {
                let ended = serde_json::from_slice(&delivery.body);
                delivery.ack();
                match ended {
                    Ok(ended) => return ended,
                    Err(error) => tracing::warn!(%error, "a lifecycle message is not readable"),
                }
            }
        }
    }
}
