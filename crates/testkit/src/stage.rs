//! Stands between the worker and the functions of steps: runs mocks in their place, passes points at which the worker may
//! crash, and knows what is running.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use everstep_protocol::{
    Call, Failure, InstanceId, InstanceUid, Millis, Payload, WorkflowName,
    message::{Grant, OpenWait},
};
use everstep_sdk::{
    Step,
    host::{InstanceInfo, StepFn, StepInfo},
};
use everstep_worker::Interceptor;
use tokio::time::Instant;

use crate::{
    KitError,
    life::Life,
    mock::{Mock, Mocks, Turn},
};

/// Points inside one attempt are passed at its first so many awaits: one that polls in a loop has no end of them.
const AWAITS_MAX: u32 = 16;

type Listener = Arc<dyn Fn(&WorkflowName, &InstanceId) -> Vec<Mock> + Send + Sync>;

/// What all lives of the worker share.
#[derive(Default)]
pub(crate) struct Board(Mutex<State>);

#[derive(Default)]
struct State {
    mocks: Mocks,
    listeners: Vec<Listener>,
    names: HashMap<InstanceUid, String>,
    heard: HashSet<InstanceUid>,
    problems: Vec<String>,
    next: u64,
    /// The attempts that run; those that hang on purpose with the end of their time.
    running: HashMap<u64, (String, Option<Instant>)>,
}

/// What runs at this moment.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// Attempts that do something.
    pub(crate) busy: Vec<String>,
    /// When the first of those that hang times out.
    pub(crate) hang_until: Option<Instant>,
}

impl Board {
    pub(crate) fn mock(&self, mock: Mock) -> Result<(), KitError> {
        self.lock().mocks.add(mock)
    }

    pub(crate) fn listen(&self, listener: Listener) {
        self.lock().listeners.push(listener);
    }

    /// What went wrong where no test could be told.
    pub(crate) fn take_problems(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().problems)
    }

    pub(crate) fn problem(&self, problem: String) {
        self.lock().problems.push(problem);
    }

    pub(crate) fn running(&self) -> Running {
        let state = self.lock();
        let mut running = Running::default();
        for (name, hang_until) in state.running.values() {
            match hang_until {
                None => running.busy.push(name.clone()),
                Some(until) => {
                    running.hang_until = Some(running.hang_until.map_or(*until, |other| other.min(*until)));
                }
            }
        }
        running
    }

    pub(crate) fn name(&self, instance: InstanceUid) -> String {
        self.lock().names.get(&instance).cloned().unwrap_or_else(|| instance.to_string())
    }

    fn granted(&self, grant: &Grant) {
        let listeners = {
            let mut state = self.lock();
            state.names.insert(grant.instance, format!("{}/{}", grant.workflow, grant.id));
            if !state.heard.insert(grant.instance) {
                return;
            }
            state.listeners.clone()
        };
        // Outside the lock: they are the test's own code.
        for listener in listeners {
            for mock in listener(&grant.workflow, &grant.id) {
                let mut state = self.lock();
                if let Err(error) = state.mocks.add_for(mock, &grant.workflow, &grant.id) {
                    state.problems.push(error.to_string());
                }
            }
        }
    }

    fn begin(self: &Arc<Self>, name: String, hang_until: Option<Instant>) -> Begun {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.running.insert(number, (name, hang_until));
        Begun { board: self.clone(), number }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").finish_non_exhaustive()
    }
}

/// An attempt runs, until this is dropped with its future.
struct Begun {
    board: Arc<Board>,
    number: u64,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.board.lock().running.remove(&self.number);
    }
}

/// One life's side of it.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) life: Arc<Life>,
    pub(crate) board: Arc<Board>,
}

impl Interceptor for Stage {
    fn granted(&self, grant: &Grant) {
        self.board.granted(grant);
    }

    fn opens(&self, instance: &InstanceInfo, call: &Call, wait: &mut OpenWait) {
        if let OpenWait::Event { timeout, .. } = wait
            && self.board.lock().mocks.times_out(instance, call)
        {
            *timeout = Millis::ZERO;
        }
    }

    fn attempt(&self, attempt: &StepInfo, run: StepFn) -> StepFn {
        let stage = self.clone();
        let turn = self.board.lock().mocks.turn(attempt);
        let name = format!(
            "{} {:?} #{} of {}/{}, attempt {}",
            attempt.kind,
            attempt.name.as_str(),
            attempt.count,
            attempt.workflow,
            attempt.instance,
            attempt.attempt
        );
        let timeout = attempt.policy.timeout.to_std();
        Arc::new(move |step| {
            let hang_until = match &turn {
                Some(Turn::Hangs) => Instant::now().checked_add(timeout),
                Some(Turn::Returns(_) | Turn::Fails(_)) | None => None,
            };
            let begun = stage.board.begin(name.clone(), hang_until);
            let (stage, name, turn, run) = (stage.clone(), name.clone(), turn.clone(), run.clone());
            Box::pin(async move {
                let _begun = begun;
                stage.attempted(&name, turn, run, step).await
            })
        })
    }
}

impl Stage {
    async fn attempted(
        &self,
        name: &str,
        turn: Option<Turn>,
        run: StepFn,
        step: Step,
    ) -> Result<Payload, Failure> {
        self.life.pass(|| format!("{name}: before it runs")).await;
        let result = match turn {
            None => self.real(name, run, step).await,
            Some(Turn::Returns(value)) => Ok(value),
            Some(Turn::Fails(failure)) => Err(failure),
            Some(Turn::Hangs) => {
                step.cancelled().await;
                std::future::pending().await
            }
        };
        self.life.pass(|| format!("{name}: after it ran, before its outcome is reported")).await;
        result
    }

    /// The step itself, which the crash of its worker stops at any of its awaits.
    async fn real(&self, name: &str, run: StepFn, step: Step) -> Result<Payload, Failure> {
        let mut future = run(step);
        let mut awaits = 0;
        poll_fn(|context| {
            if self.life.is_over() {
                return Poll::Pending;
            }
            let polled = future.as_mut().poll(context);
            if polled.is_pending() && awaits < AWAITS_MAX {
                awaits += 1;
                // Whether it goes on is seen at the next poll.
                self.life.goes_on(|| format!("{name}: at its await {awaits}"));
            }
            polled
        })
        .await
    }
}
