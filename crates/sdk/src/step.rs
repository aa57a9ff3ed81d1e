//! What a step function is given beside its input.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use everstep_protocol::{
    Attempt, CallKind, CallName, Failure, FailureKind, InstanceId, Namespace, Payload, Policy, Reference,
    StepKey, WorkflowName, limits::PROGRESS_BYTES,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::Error;

/// One attempt of a step, seen from inside (rule P5). Clones are the same attempt.
///
/// ```
/// use everstep_sdk::{Error, Step};
///
/// async fn charge(step: Step, cents: u64) -> Result<String, Error> {
///     // The same key in every attempt: a service that honours it charges once.
///     let request = format!("charge {cents} under {}", step.idempotency_key());
///     tokio::select! {
///         () = step.cancelled() => Err(Error::failed("cancelled")),
///         answer = send(request) => answer,
///     }
/// }
/// # async fn send(request: String) -> Result<String, Error> { Ok(request) }
/// ```
#[derive(Clone)]
pub struct Step {
    attempt: Arc<Inner>,
    cancel: watch::Receiver<bool>,
}

struct Inner {
    info: StepInfo,
    key: String,
    undoes: Option<String>,
    progress: ProgressSink,
    last_progress: Option<Payload>,
    found: AtomicBool,
    reference: OnceLock<Reference>,
    looked: OnceLock<Duration>,
}

/// What is known of an attempt when it begins.
#[derive(Clone, Debug)]
pub struct StepInfo {
    /// The instance's namespace.
    pub namespace: Namespace,
    /// The workflow's name.
    pub workflow: WorkflowName,
    /// The instance's id.
    pub instance: InstanceId,
    /// Whether it is a step, or the compensation of one.
    pub kind: CallKind,
    /// The step's name.
    pub name: CallName,
    /// Its count among the steps of this name, from 1.
    pub count: u32,
    /// Which attempt, from 1.
    pub attempt: Attempt,
    /// The step's idempotency key.
    pub key: StepKey,
    /// Of a compensation: the key of the step that it takes back.
    pub undoes: Option<StepKey>,
    /// The resolved policy.
    pub policy: Policy,
}

/// Where heartbeats go.
pub type ProgressSink = Arc<dyn Fn(Payload) + Send + Sync>;

/// Fires the cancel signal of one attempt. Dropping it fires nothing.
#[derive(Clone, Debug)]
pub struct CancelHandle(watch::Sender<bool>);

impl CancelHandle {
    /// Fires the signal. More than once is once.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}

impl Step {
    /// An attempt that is about to run, and what cancels it.
    #[must_use]
    pub fn new(
        info: StepInfo,
        progress: ProgressSink,
        last_progress: Option<Payload>,
    ) -> (Self, CancelHandle) {
        let (sender, cancel) = watch::channel(false);
        let key = info.key.to_string();
        let undoes = info.undoes.map(|key| key.to_string());
        (
            Self {
                attempt: Arc::new(Inner {
                    info,
                    key,
                    undoes,
                    progress,
                    last_progress,
                    found: AtomicBool::new(false),
                    reference: OnceLock::new(),
                    looked: OnceLock::new(),
                }),
                cancel,
            },
            CancelHandle(sender),
        )
    }

    /// What the attempt gives was found by looking: it has called nothing (rule L6).
    pub(crate) fn found(&self) {
        self.attempt.found.store(true, Ordering::Relaxed);
    }

    /// The attempt has looked first, and it took so long.
    pub(crate) fn looked(&self, took: Duration) {
        let _ = self.attempt.looked.set(took);
    }

    /// How long the attempt looked first, if it did.
    #[doc(hidden)]
    #[must_use]
    pub fn looked_for(&self) -> Option<Duration> {
        self.attempt.looked.get().copied()
    }

    /// Whether what the attempt gives was found by looking.
    #[doc(hidden)]
    #[must_use]
    pub fn was_found(&self) -> bool {
        self.attempt.found.load(Ordering::Relaxed)
    }

    /// Says what the service that was called calls what it did, such as the number of a charge: it stands in the journal with the
    /// attempt, and whoever has it from there finds the instance by it (rule L14). The first counts. Control characters become
    /// blanks, what is longer than 256 characters is cut; a sensitive step's reference is shown like any other.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Step};
    /// async fn charge(step: Step, cents: u64) -> Result<String, Error> {
    ///     let charge = send(step.idempotency_key(), cents).await?;
    ///     step.reference(&charge);
    ///     Ok(charge)
    /// }
    /// # async fn send(key: &str, cents: u64) -> Result<String, Error> { Ok(format!("{key}{cents}")) }
    /// ```
    pub fn reference(&self, reference: impl AsRef<str>) {
        if let Some(reference) = Reference::of(reference.as_ref()) {
            // Whoever is late is told nothing: the effect was there before.
            let _ = self.attempt.reference.set(reference);
        }
    }

    /// What the attempt said of itself.
    #[doc(hidden)]
    #[must_use]
    pub fn said_reference(&self) -> Option<Reference> {
        self.attempt.reference.get().cloned()
    }

    /// The step's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.attempt.info.name.as_str()
    }

    /// Its count among the steps of this name, from 1.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.attempt.info.count
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt.info.attempt.0
    }

    /// 64 hexadecimal digits, the same for all attempts of this step and for no other step.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        &self.attempt.key
    }

    /// In a compensation, the idempotency key that the step had which it takes back: under it a service that honours keys knows
    /// what the step did, if anything. None in a step.
    #[must_use]
    pub fn undoes(&self) -> Option<&str> {
        self.attempt.undoes.as_deref()
    }

    /// A copy of the resolved retry policy; changing it changes nothing.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.attempt.info.policy
    }

    /// The instance's id.
    #[must_use]
    pub fn instance_id(&self) -> &str {
        self.attempt.info.instance.as_str()
    }

    /// The workflow's name.
    #[must_use]
    pub fn workflow(&self) -> &str {
        self.attempt.info.workflow.as_str()
    }

    /// The instance's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.attempt.info.namespace.as_str()
    }

    /// Ends when the attempt is cancelled: it timed out, lost a race, or its instance was ended. Use it to clean up;
    /// the attempt's future may be dropped soon after (rule P14).
    pub async fn cancelled(&self) {
        let mut cancel = self.cancel.clone();
        if cancel.wait_for(|cancelled| *cancelled).await.is_err() {
            // The attempt is over and nobody can cancel it any more.
            std::future::pending::<()>().await;
        }
    }

    /// Whether the attempt is cancelled: for work that cannot await.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.cancel.borrow()
    }

    /// Tells how far the work is: for people to see, and for the next attempt to go on from. Cheap enough to call
    /// often; only the newest value is kept. It goes with the worker's next heartbeat, and is given to the next attempt
    /// wherever that runs; of a worker that dies, what its last heartbeat said. Fails, for good, if the value has no JSON
    /// form or more than 4 KiB of it.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Step};
    /// async fn import(step: Step, rows: Vec<String>) -> Result<(), Error> {
    ///     let done: usize = step.last_progress().unwrap_or(0);
    ///     for (at, row) in rows.iter().enumerate().skip(done) {
    ///         store(row).await?;
    ///         step.heartbeat(at + 1)?;
    ///     }
    ///     Ok(())
    /// }
    /// # async fn store(row: &str) -> Result<(), Error> { Ok(()) }
    /// ```
    pub fn heartbeat(&self, progress: impl Serialize) -> Result<(), Error> {
        let progress = Payload::encode(&progress)
            .map_err(|error| Error::permanent(format!("step {:?}: the progress: {error}", self.name())))?;
        if progress.len() > PROGRESS_BYTES {
            let (name, bytes) = (self.name(), progress.len());
            let message = format!(
                "step {name:?}: the progress is {bytes} bytes of JSON, the limit is {PROGRESS_BYTES}"
            );
            return Err(Error::from_failure(Failure::new(FailureKind::TooLarge, message)));
        }
        (self.attempt.progress)(progress);
        Ok(())
    }

    /// The last progress that attempts before this one told; none if there is none or if it does not fit the type.
    #[must_use]
    pub fn last_progress<T: DeserializeOwned>(&self) -> Option<T> {
        self.attempt.last_progress.as_ref().and_then(|progress| progress.decode().ok())
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("name", &self.name())
            .field("count", &self.count())
            .field("attempt", &self.attempt())
            .field("instance", &self.instance_id())
            .finish_non_exhaustive()
    }
}
