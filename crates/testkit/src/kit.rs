//! The kit as a test sees it: made of workflows and settings, then running.

mod hooks;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use everstep_check::{Replayer, saved::Saved};
use everstep_coordinator::StartRequest;
use everstep_engine::start::NameKey;
use everstep_protocol::{
    BuildName, InstanceId, InstanceUid, Millis, Namespace, Payload, Pool, Timestamp, WorkflowName,
    start::StartOutcome,
};
use everstep_sdk::{Error, IntoMillis, Outcome, Registry, Step, host::Definition};
use everstep_store::{InstanceView, StatusWord};
use everstep_worker::watch::Watch;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    CoordinatorSettings, KitError, Mock, Replayed, Run, WorkerSettings,
    life::Points,
    system::{BUILD, Plan, System},
    time::Mover,
    watchdog::{Watches, guarded},
};

pub use hooks::HookStart;

/// 2026-01-01T00:00:00Z, when every test begins unless it says otherwise.
const BEGINS_AT: Timestamp = Timestamp(1_767_225_600_000_000);

/// A test system in the making.
#[derive(Clone, Debug)]
#[must_use = "nothing runs until it is run"]
pub struct TestKit {
    plan: Plan,
    mover: Mover,
    poll_limit: Duration,
    replays: bool,
    problems: Vec<String>,
}

impl Default for TestKit {
    fn default() -> Self {
        Self::new()
    }
}

impl TestKit {
    /// A system that serves nothing yet.
    pub fn new() -> Self {
        let plan = Plan {
            registry: Registry::new(),
            coordinator: CoordinatorSettings { report_queues: 1, ..CoordinatorSettings::default() },
            // No body is kept over a suspend, so that every wake proves that the code replays.
            worker: WorkerSettings { report_queues: 1, cache_bytes: 0, ..WorkerSettings::default() },
            began_at: BEGINS_AT,
            seed: 0,
        };
        Self {
            plan,
            mover: Mover::Kit,
            poll_limit: Duration::from_secs(2),
            replays: true,
            problems: Vec::new(),
        }
    }

    /// Serves a workflow.
    pub fn workflow(mut self, workflow: impl Definition) -> Self {
        self.plan.registry = self.plan.registry.workflow(workflow);
        self
    }

    /// Serves a workflow of a plain async function or closure.
    pub fn workflow_fn<In, Out, E, F, Fut>(mut self, name: &str, function: F) -> Self
    where
        In: DeserializeOwned + 'static,
        Out: Outcome<In>,
        E: Into<Error>,
        F: Fn(everstep_sdk::Workflow, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, E>> + Send + 'static,
    {
        self.plan.registry = self.plan.registry.workflow_fn(name, function);
        self
    }

    /// Serves a workflow of which every instance comes to this at once: for children, whose own code is not what a test is about.
    ///
    /// ```
    /// # use everstep::Error;
    /// # use everstep_testkit::TestKit;
    /// let kit = TestKit::new()
    ///     .mock_workflow("pack", Ok(&"packed"))
    ///     .mock_workflow::<()>("charge", Err(Error::permanent("no money").named("CardDeclined")));
    /// ```
    pub fn mock_workflow<T: Serialize + ?Sized>(mut self, name: &str, outcome: Result<&T, Error>) -> Self {
        let outcome = match outcome.map(serde_json::value::to_raw_value) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                self.problems
                    .push(format!("the mock of workflow {name:?}: the value that it returns: {error}"));
                return self;
            }
            Err(error) => Err(error),
        };
        self.workflow_fn(name, move |_, _: serde_json::Value| std::future::ready(outcome.clone()))
    }

    /// Runs a function of remote steps, in the pools that [`pool`](Self::pool) names.
    pub fn function<In, Out, E, F, Fut>(mut self, name: &str, function: F) -> Self
    where
        In: DeserializeOwned + 'static,
        Out: Serialize,
        E: Into<Error>,
        F: Fn(Step, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, E>> + Send + 'static,
    {
        self.plan.registry = self.plan.registry.function(name, function);
        self
    }

    /// Serves everything that a registry holds, instead of what was named one by one.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.plan.registry = registry;
        self
    }

    /// Serves a pool of remote steps.
    pub fn pool(mut self, name: &str) -> Self {
        match Pool::new(name) {
            Ok(pool) => self.plan.worker.pools.push(pool),
            Err(error) => self.problems.push(error.to_string()),
        }
        self
    }

    /// Time is moved by [`Kit::advance`] alone. Without this it jumps to the next moment that something waits for, whenever the
    /// test waits and nothing else goes on.
    pub const fn time_by_hand(mut self) -> Self {
        self.mover = Mover::Hand;
        self
    }

    /// When the test begins. Default: 2026-01-01, midnight UTC.
    pub const fn begins_at(mut self, moment: Timestamp) -> Self {
        self.plan.began_at = moment;
        self
    }

    /// Other internal ids, and with them other keys, random numbers and UUIDs. Default 0: every run draws the same.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.plan.seed = seed;
        self
    }

    /// How long, by a real clock, one poll of a body may take before the test fails and names it. Default 2 s.
    pub const fn poll_limit(mut self, limit: Duration) -> Self {
        self.poll_limit = limit;
        self
    }

    /// Finished instances are not replayed a second time when the test ends.
    pub const fn without_replays(mut self) -> Self {
        self.replays = false;
        self
    }

    /// Changes any setting of the coordinator, such as the limits.
    pub fn coordinator(mut self, change: impl FnOnce(&mut CoordinatorSettings)) -> Self {
        change(&mut self.plan.coordinator);
        self
    }

    /// Changes any setting of the worker, such as its slots.
    pub fn worker(mut self, change: impl FnOnce(&mut WorkerSettings)) -> Self {
        change(&mut self.plan.worker);
        self
    }

    /// Runs a test, on a thread and runtime of its own whose clock stands still while anything goes on.
    ///
    /// When the test is over, every instance that has ended is replayed a second time, and every instance that is parked must
    /// have been looked at.
    ///
    /// # Panics
    /// As the test does; if a body blocks its thread; if a replay differs; if an instance is parked unseen.
    pub fn run<F, T>(self, test: F) -> T
    where
        F: AsyncFnOnce(Kit) -> T + Send + 'static,
        T: Send + 'static,
    {
        self.run_past(Arc::default(), test)
    }

    /// The same, past points at which the worker may crash.
    pub(crate) fn run_past<F, T>(self, points: Arc<Points>, test: F) -> T
    where
        F: AsyncFnOnce(Kit) -> T + Send + 'static,
        T: Send + 'static,
    {
        let watches = Watches::default();
        let inner = watches.clone();
        guarded(&watches, self.poll_limit, move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
            let runtime = runtime.unwrap_or_else(|error| panic!("the test kit cannot start: {error}"));
            let value = runtime.block_on(async move {
                let kit = Kit::start(self, points, inner).await;
                let kit = kit.unwrap_or_else(|error| panic!("the test kit cannot start: {error}"));
                let value = test(kit.clone()).await;
                if let Err(problems) = kit.finish().await {
                    panic!("{problems}");
                }
                value
            });
            // What a step left behind on another thread is not waited for.
            runtime.shutdown_background();
            value
        })
    }
}

/// A running test system. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Kit {
    pub(crate) system: Arc<System>,
    pub(crate) mover: Mover,
    replays: bool,
    /// Parked instances that the test knows of.
    seen: Arc<Mutex<HashSet<InstanceUid>>>,
    /// How often the test has resumed a hook.
    resumed: Arc<AtomicU64>,
}

impl Kit {
    async fn start(kit: TestKit, points: Arc<Points>, watches: Watches) -> Result<Self, KitError> {
        if !kit.problems.is_empty() {
            return Err(KitError::Invalid(kit.problems.join("; ")));
        }
        kit.plan.registry.validate().map_err(KitError::invalid)?;
        let system = System::start(kit.plan, points, watches).await?;
        Ok(Self {
            system: Arc::new(system),
            mover: kit.mover,
            replays: kit.replays,
            seen: Arc::default(),
            resumed: Arc::default(),
        })
    }

    /// Starts an instance with a generated id.
    pub async fn start_instance<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        input: &I,
    ) -> Result<Run, KitError> {
        self.begin(workflow, None, input).await
    }

    /// Starts an instance. One that exists with the same id and input is given as it is (rule P27).
    pub async fn start_instance_as<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: &str,
        input: &I,
    ) -> Result<Run, KitError> {
        self.begin(workflow, Some(id), input).await
    }

    async fn begin<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: Option<&str>,
        input: &I,
    ) -> Result<Run, KitError> {
        let request = self.request(workflow, id, input)?;
        let refused = |reason: String| not_started(workflow, id, reason);
        let reply = self.system.handle.start(request).await.map_err(|error| refused(error.to_string()))?;
        match (reply.outcome, reply.id) {
            (StartOutcome::Created | StartOutcome::Exists, Some(id)) => self.instance(workflow, &id),
            (outcome, _) => {
                Err(refused(reply.message.unwrap_or_else(|| format!("the answer was {outcome:?}"))))
            }
        }
    }

    /// A start that says nothing of itself but workflow, id and input.
    fn request<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: Option<&str>,
        input: &I,
    ) -> Result<StartRequest, KitError> {
        let refused = |reason: String| not_started(workflow, id, reason);
        let name = WorkflowName::new(workflow).map_err(|error| refused(error.to_string()))?;
        if self.system.registry.definition(&name).is_none() {
            return Err(refused("no such workflow is registered".to_owned()));
        }
        Ok(StartRequest {
            namespace: Namespace::default(),
            workflow: name.clone(),
            id: id.map(InstanceId::new).transpose().map_err(|error| refused(error.to_string()))?,
            input: Payload::encode(input).map_err(|error| refused(error.to_string()))?,
            pin: None,
            strict: None,
            message: None,
            retention: everstep_engine::retention::Own::default(),
            attributes: Vec::new(),
            hook: None,
        })
    }

    /// An instance by its name, whether it exists or not.
    pub fn instance(&self, workflow: &str, id: &str) -> Result<Run, KitError> {
        let name = NameKey {
            namespace: Namespace::default(),
            workflow: WorkflowName::new(workflow).map_err(KitError::invalid)?,
            id: InstanceId::new(id).map_err(KitError::invalid)?,
        };
        Ok(Run { kit: self.clone(), name })
    }

    /// Every instance created so far, oldest first.
    pub async fn instances(&self) -> Result<Vec<Run>, KitError> {
        let views = self.system.instances().await?;
        let run = |view: InstanceView| {
            let InstanceView { namespace, workflow, id, .. } = view;
            Run { kit: self.clone(), name: NameKey { namespace, workflow, id } }
        };
        Ok(views.into_iter().map(run).collect())
    }

    /// Mocks a step from now on. For one place there is one mock; of several that fit, the one that says more holds.
    pub fn mock(&self, mock: Mock) -> Result<(), KitError> {
        self.system.board.mock(mock)
    }

    /// Has this called for every instance that begins to run from now on, whoever creates it, before its first step. It is
    /// given workflow and id; the mocks that it gives hold for that instance.
    pub fn on_every_instance(&self, act: impl Fn(&str, &str) -> Vec<Mock> + Send + Sync + 'static) {
        self.system.board.listen(Arc::new(move |workflow, id| act(workflow.as_str(), id.as_str())));
    }

    /// Moves time by this much. Whatever is due on the way happens on the way, each at its moment.
    pub async fn advance(&self, by: impl IntoMillis) -> Result<(), KitError> {
        let by = by.into_millis().map_err(KitError::invalid)?;
        self.system.advance(by.to_std()).await
    }

    /// Lets everything happen that needs no time.
    pub async fn settle(&self) -> Result<(), KitError> {
        self.advance(Millis(0)).await
    }

    /// The time that workflows see.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.system.now()
    }

    /// Kills the worker where it stands; another takes its place. Its unfinished attempts are lost, and count (rule P15).
    pub fn crash_worker(&self) {
        self.system.crash();
    }

    /// Feeds a saved journal to the code, as a worker that takes the instance up would, and runs no step. The text is what
    /// `everstep instances get WORKFLOW ID --journal --output json` prints, or [`Run::export`] gives.
    ///
    /// Errors: [`KitError::Replay`] names the entry, and the call, that disagree.
    pub fn replay(&self, saved: &str) -> Result<Replayed, KitError> {
        let saved = Saved::read(saved)
            .map_err(|reason| KitError::Invalid(format!("the saved journal cannot be read: {reason}")))?;
        self.replayed(&saved)
    }

    pub(crate) fn replayed(&self, saved: &Saved) -> Result<Replayed, KitError> {
        let watch = Arc::new(Watch::default());
        self.system.watches.add(watch.clone());
        let replayer = Replayer {
            registry: &self.system.registry,
            build: BuildName::new(BUILD).map_err(KitError::system)?,
            limits: self.system.handle.limits(),
            watch,
        };
        replayer.replay(saved).map_err(|breach| KitError::Replay {
            instance: format!("{}/{}", saved.workflow, saved.id),
            reason: saved.explain(breach).reason,
        })
    }

    fn next_resume(&self) -> u64 {
        self.resumed.fetch_add(1, Ordering::Relaxed)
    }

    /// The test knows that this one is parked.
    pub(crate) fn see(&self, instance: InstanceUid) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(instance);
    }

    pub(crate) async fn saved(&self, view: &InstanceView) -> Result<Saved, KitError> {
        Ok(Saved {
            namespace: view.namespace.clone(),
            workflow: view.workflow.clone(),
            id: view.id.clone(),
            run: view.run,
            generation: view.generation,
            pin: view.pin.clone(),
            entries: self.system.journal(view).await?,
            seeded: true,
        })
    }

    /// What must hold when a test is over.
    async fn finish(&self) -> Result<(), String> {
        let mut problems = self.system.board.take_problems();
        let views = self.system.instances().await.map_err(|error| error.to_string())?;
        for view in views {
            if let Err(problem) = self.finish_one(&view).await {
                problems.push(problem.to_string());
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    async fn finish_one(&self, view: &InstanceView) -> Result<(), KitError> {
        match view.status {
            StatusWord::Complete | StatusWord::Errored | StatusWord::Terminated | StatusWord::Cancelled
                if self.replays =>
            {
                self.replayed(&self.saved(view).await?).map(drop)
            }
            StatusWord::Attention
                if !self.seen.lock().unwrap_or_else(PoisonError::into_inner).contains(&view.uid) =>
            {
                let name = NameKey {
                    namespace: view.namespace.clone(),
                    workflow: view.workflow.clone(),
                    id: view.id.clone(),
                };
                let parked = self.system.view(&name).await?.and_then(|view| view.parked);
                let instance = format!("{}/{}", view.workflow, view.id);
                parked.map_or(Ok(()), |(_, parked)| Err(KitError::Parked { instance, parked }))
            }
            StatusWord::Complete
            | StatusWord::Errored
            | StatusWord::Terminated
            | StatusWord::Cancelled
            | StatusWord::Pausing
            | StatusWord::Paused
            | StatusWord::Attention
            | StatusWord::Queued
            | StatusWord::Running
            | StatusWord::Waiting => Ok(()),
        }
    }
}

fn not_started(workflow: &str, id: Option<&str>, reason: String) -> KitError {
    KitError::NotStarted { workflow: workflow.to_owned(), id: id.unwrap_or("(no id)").to_owned(), reason }
}
