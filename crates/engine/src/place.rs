//! Where a runnable instance goes: straight to a session that announced room (rule W35), or to a queue (rule W15).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use everstep_protocol::{BuildName, Epoch, Namespace, Pin, Pool, SessionId, WorkflowName};

use crate::head::Head;

/// Where an instance goes that becomes runnable in this batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// To this session, against a credit.
    Direct(SessionId),
    /// To the run queue.
    Queue,
}

/// A queue of run tasks: of a workflow, or of those of its instances that are pinned to a build.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunQueue {
    /// Namespace.
    pub namespace: Namespace,
    /// Workflow.
    pub workflow: WorkflowName,
    /// The build that they are pinned to.
    pub build: Option<BuildName>,
}

impl RunQueue {
    /// The queue of a workflow's instances that are not pinned.
    fn of(namespace: &Namespace, workflow: &WorkflowName) -> Self {
        Self { namespace: namespace.clone(), workflow: workflow.clone(), build: None }
    }
}

/// Whose code an instance goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taker {
    /// The build of the session.
    pub build: BuildName,
    /// The lease pins the instance to that build: its start wants it so, or the session's code does and the instance was never
    /// taken up before.
    pub pins: bool,
}

impl Taker {
    /// The pin that the lease brings.
    #[must_use]
    pub fn pin(self) -> Option<Pin> {
        self.pins.then_some(Pin::Build(self.build))
    }
}

/// What is known of a session's code.
#[derive(Clone, Debug)]
struct Code {
    build: BuildName,
    /// The workflows whose instances it pins to its build when it takes them up first.
    pins: Arc<[WorkflowName]>,
}

/// The sessions that have room, as one coordinator knows them. A batch takes credits from it; they are given back if the
/// batch does not commit.
#[derive(Clone, Debug, Default)]
pub struct Room {
    sessions: HashMap<SessionId, Session>,
    /// By the queue of the workflow, whatever the builds.
    serving: HashMap<RunQueue, Vec<SessionId>>,
    code: HashMap<SessionId, Code>,
    /// Some session's code pins a workflow.
    pins: bool,
    pools: HashMap<(Namespace, Pool), HashSet<SessionId>>,
    backlog: HashSet<RunQueue>,
    step_backlog: HashSet<(Namespace, Pool)>,
    window: u32,
    offered: HashMap<RunQueue, u32>,
    offered_steps: HashMap<(Namespace, Pool), u32>,
    turn: usize,
}

#[derive(Clone, Debug)]
struct Session {
    limit: u64,
    sent: u64,
}

impl Room {
    /// A session serves these workflows. What is known of its credits stays.
    pub fn serve(&mut self, session: SessionId, namespace: &Namespace, workflows: &[WorkflowName]) {
        self.sessions.entry(session).or_insert(Session { limit: 0, sent: 0 });
        for workflow in workflows {
            let serving = self.serving.entry(RunQueue::of(namespace, workflow)).or_default();
            if !serving.contains(&session) {
                serving.push(session);
            }
        }
    }

    /// A session serves these workflows, but gets work through their queues only.
    pub fn serve_queues_only(
        &mut self,
        session: SessionId,
        namespace: &Namespace,
        workflows: &[WorkflowName],
    ) {
        self.serve(session, namespace, workflows);
        self.sessions.remove(&session);
    }

    /// The session's code is of this build, to which it pins instances of these workflows when it takes them up first.
    pub fn runs(&mut self, session: SessionId, build: &BuildName, pins: Arc<[WorkflowName]>) {
        self.pins |= !pins.is_empty();
        self.code.insert(session, Code { build: build.clone(), pins });
    }

    /// A session runs the remote steps of these pools.
    pub fn serve_pools(&mut self, session: SessionId, namespace: &Namespace, pools: &[Pool]) {
        for pool in pools {
            self.pools.entry((namespace.clone(), pool.clone())).or_default().insert(session);
        }
    }

    /// What the store said of the queues: those that hold back work get nothing past it, the others may be offered `window`
    /// more tasks until it is asked again.
    pub fn set_backlog(&mut self, window: u32, runs: HashSet<RunQueue>, steps: HashSet<(Namespace, Pool)>) {
        self.window = window;
        self.offered.clear();
        self.offered_steps.clear();
        self.backlog = runs;
        self.step_backlog = steps;
    }

    /// Whether a run task may be sent at once: a live session serves the queue, nothing waits before it, and the window has
    /// room (rule W15). Counts it.
    pub fn offer(
        &mut self,
        namespace: &Namespace,
        workflow: &WorkflowName,
        build: Option<&BuildName>,
    ) -> bool {
        let mut queue = RunQueue::of(namespace, workflow);
        let is_served = self.is_served(&queue, build);
        queue.build = build.cloned();
        if !is_served || self.backlog.contains(&queue) {
            return false;
        }
        let count = self.offered.entry(queue).or_default();
        *count += 1;
        *count <= self.window
    }

    /// Whether a live session serves the workflow, with that build if one is named.
    #[must_use]
    pub fn serves(&self, namespace: &Namespace, workflow: &WorkflowName, build: Option<&BuildName>) -> bool {
        self.is_served(&RunQueue::of(namespace, workflow), build)
    }

    fn is_served(&self, queue: &RunQueue, build: Option<&BuildName>) -> bool {
        self.serving.get(queue).is_some_and(|sessions| {
            build.is_none_or(|build| sessions.iter().any(|session| self.is_of(*session, build)))
        })
    }

    fn is_of(&self, session: SessionId, build: &BuildName) -> bool {
        self.code.get(&session).is_some_and(|code| code.build == *build)
    }

    /// The same for a step task.
    pub fn offer_step(&mut self, namespace: &Namespace, pool: &Pool) -> bool {
        let queue = (namespace.clone(), pool.clone());
        if !self.pools.contains_key(&queue) || self.step_backlog.contains(&queue) {
            return false;
        }
        let count = self.offered_steps.entry(queue).or_default();
        *count += 1;
        *count <= self.window
    }

    /// The queues that live sessions serve.
    #[must_use]
    pub fn served(&self) -> (Vec<RunQueue>, Vec<(Namespace, Pool)>) {
        let mut runs = HashSet::new();
        for (queue, sessions) in &self.serving {
            let builds = sessions.iter().filter_map(|session| self.code.get(session));
            let builds = builds.map(|code| Some(code.build.clone())).chain([None]);
            runs.extend(builds.map(|build| RunQueue { build, ..queue.clone() }));
        }
        (runs.into_iter().collect(), self.pools.keys().cloned().collect())
    }

    /// The session moved its window on: our direct grants may reach this count in all.
    pub fn credit(&mut self, session: SessionId, limit: u64) {
        if let Some(known) = self.sessions.get_mut(&session) {
            known.limit = known.limit.max(limit);
        }
    }

    /// The session has ended.
    pub fn forget(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.code.remove(&session);
        self.pins = self.code.values().any(|code| !code.pins.is_empty());
        for serving in self.serving.values_mut() {
            serving.retain(|other| *other != session);
        }
        self.serving.retain(|_, serving| !serving.is_empty());
        for pool in self.pools.values_mut() {
            pool.remove(&session);
        }
        self.pools.retain(|_, sessions| !sessions.is_empty());
    }

    /// Takes one credit of a session that serves the workflow: the one that may have the body (rule W27), else the one with the
    /// most room, in turn among equals. Only a session of its build gets an instance that is pinned to one (rule P40).
    pub fn take(
        &mut self,
        namespace: &Namespace,
        workflow: &WorkflowName,
        pin: Option<&Pin>,
        cached_by: Option<SessionId>,
    ) -> Place {
        let build = pin.and_then(Pin::build);
        let Some(serving) = self.serving.get(&RunQueue::of(namespace, workflow)) else {
            return Place::Queue;
        };
        let room = |session: &SessionId| self.sessions.get(session).map_or(0, Session::room);
        let cached = cached_by.filter(|session| room(session) > 0 && serving.contains(session));
        self.turn = self.turn.wrapping_add(1);
        let fits = |session: &SessionId| {
            build.is_none_or(|build| self.code.get(session).is_some_and(|code| code.build == *build))
        };
        let most = || {
            (0..serving.len())
                .map(|offset| serving[(self.turn + offset) % serving.len()])
                .filter(fits)
                .max_by_key(room)
        };
        match cached
            .filter(fits)
            .or_else(most)
            .and_then(|session| self.sessions.get_mut(&session).map(|known| (session, known)))
        {
            Some((session, known)) if known.room() > 0 => {
                known.sent += 1;
                Place::Direct(session)
            }
            _ => Place::Queue,
        }
    }

    /// Whose code a lease of this session would give the instance to (rule P40); not looked up where no pin is concerned. `pin`
    /// is what the lease finds.
    #[must_use]
    pub fn taker(&self, session: SessionId, head: &Head, pin: Option<&Pin>) -> Option<Taker> {
        let is_new = head.epoch == Epoch(0);
        if pin.is_none() && !(is_new && self.pins) {
            return None;
        }
        let code = self.code.get(&session)?;
        let pins = match pin {
            Some(Pin::First) => true,
            Some(Pin::Build(_)) => false,
            None => is_new && code.pins.contains(&head.workflow),
        };
        Some(Taker { build: code.build.clone(), pins })
    }

    /// Whether this session lives and may take up such an instance.
    #[must_use]
    pub fn may_take(
        &self,
        session: SessionId,
        namespace: &Namespace,
        workflow: &WorkflowName,
        build: Option<&BuildName>,
    ) -> bool {
        let serving = self.serving.get(&RunQueue::of(namespace, workflow));
        serving.is_some_and(|serving| serving.contains(&session))
            && build.is_none_or(|build| self.is_of(session, build))
    }

    /// Gives back a credit that was not used.
    pub fn give_back(&mut self, session: SessionId) {
        if let Some(known) = self.sessions.get_mut(&session) {
            known.sent = known.sent.saturating_sub(1);
        }
    }
}

impl Session {
    const fn room(&self) -> u64 {
        self.limit.saturating_sub(self.sent)
    }
}
