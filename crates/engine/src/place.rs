//! Where a runnable instance goes: straight to a session that announced room (rule W35), or to a queue (rule W15).

use std::collections::{HashMap, HashSet};

use everstep_protocol::{Namespace, Pool, SessionId, WorkflowName};

/// Where an instance goes that becomes runnable in this batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// To this session, against a credit.
    Direct(SessionId),
    /// To the run queue.
    Queue,
}

/// The sessions that have room, as one coordinator knows them. A batch takes credits from it; they are given back if the
/// batch does not commit.
#[derive(Clone, Debug, Default)]
pub struct Room {
    sessions: HashMap<SessionId, Session>,
    serving: HashMap<(Namespace, WorkflowName), Vec<SessionId>>,
    pools: HashMap<(Namespace, Pool), HashSet<SessionId>>,
    backlog: HashSet<(Namespace, WorkflowName)>,
    step_backlog: HashSet<(Namespace, Pool)>,
    window: u32,
    offered: HashMap<(Namespace, WorkflowName), u32>,
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
            let serving = self.serving.entry((namespace.clone(), workflow.clone())).or_default();
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

    /// A session runs the remote steps of these pools.
    pub fn serve_pools(&mut self, session: SessionId, namespace: &Namespace, pools: &[Pool]) {
        for pool in pools {
            self.pools.entry((namespace.clone(), pool.clone())).or_default().insert(session);
        }
    }

    /// What the store said of the queues: those that hold back work get nothing past it, the others may be offered `window`
    /// more tasks until it is asked again.
    pub fn set_backlog(
        &mut self,
        window: u32,
        runs: HashSet<(Namespace, WorkflowName)>,
        steps: HashSet<(Namespace, Pool)>,
    ) {
        self.window = window;
        self.offered.clear();
        self.offered_steps.clear();
        self.backlog = runs;
        self.step_backlog = steps;
    }

    /// Whether a run task may be sent at once: a live session serves the queue, nothing waits before it, and the window has
    /// room (rule W15). Counts it.
    pub fn offer(&mut self, namespace: &Namespace, workflow: &WorkflowName) -> bool {
        let queue = (namespace.clone(), workflow.clone());
        if !self.serving.contains_key(&queue) || self.backlog.contains(&queue) {
            return false;
        }
        let count = self.offered.entry(queue).or_default();
        *count += 1;
        *count <= self.window
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
    #[allow(clippy::type_complexity, reason = "two lists of names, taken apart at once")]
    pub fn served(&self) -> (Vec<(Namespace, WorkflowName)>, Vec<(Namespace, Pool)>) {
        (self.serving.keys().cloned().collect(), self.pools.keys().cloned().collect())
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
    /// most room, in turn among equals.
    pub fn take(
        &mut self,
        namespace: &Namespace,
        workflow: &WorkflowName,
        cached_by: Option<SessionId>,
    ) -> Place {
        let Some(serving) = self.serving.get(&(namespace.clone(), workflow.clone())) else {
            return Place::Queue;
        };
        let room = |session: &SessionId| self.sessions.get(session).map_or(0, Session::room);
        let cached = cached_by.filter(|session| room(session) > 0 && serving.contains(session));
        self.turn = self.turn.wrapping_add(1);
        let most = || {
            (0..serving.len()).map(|offset| serving[(self.turn + offset) % serving.len()]).max_by_key(room)
        };
        match cached
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
