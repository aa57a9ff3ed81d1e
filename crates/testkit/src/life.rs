//! One life of the worker under test, from its start to its crash, and the points at which it can crash.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

/// The points that a run passes, each by a name that is the same in every run.
#[derive(Debug, Default)]
pub(crate) struct Points {
    plan: Plan,
    passed: Mutex<Passed>,
}

/// What is done with points.
#[derive(Clone, Debug, Default)]
pub(crate) enum Plan {
    /// Nothing: nobody asks for crashes.
    #[default]
    Ignore,
    /// They are written down.
    Note,
    /// The worker crashes at this one.
    CrashAt(String),
}

#[derive(Debug, Default)]
struct Passed {
    times: HashMap<String, u32>,
    names: Vec<String>,
    crashed: bool,
}

impl Points {
    pub(crate) fn new(plan: Plan) -> Self {
        Self { plan, passed: Mutex::default() }
    }

    /// The names that were passed, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().names.clone()
    }

    /// Whether the crash that was planned has been.
    pub(crate) fn has_crashed(&self) -> bool {
        self.lock().crashed
    }

    /// Whether the worker crashes here.
    fn pass(&self, name: impl FnOnce() -> String) -> bool {
        if matches!(self.plan, Plan::Ignore) {
            return false;
        }
        let mut passed = self.lock();
        let name = name();
        let times = passed.times.entry(name.clone()).or_insert(0);
        *times += 1;
        let name = if *times == 1 { name } else { format!("{name} (time {times})") };
        match &self.plan {
            Plan::CrashAt(point) if *point == name && !passed.crashed => {
                passed.crashed = true;
                true
            }
            Plan::Ignore | Plan::CrashAt(_) => false,
            Plan::Note => {
                passed.names.push(name);
                false
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Passed> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Life {
    points: Arc<Points>,
    over: AtomicBool,
    crash: Notify,
}

impl Life {
    pub(crate) fn new(points: Arc<Points>) -> Self {
        Self { points, over: AtomicBool::new(false), crash: Notify::new() }
    }

    /// Whether this worker has crashed: nothing of it does anything more.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn crash(&self) {
        self.over.store(true, Ordering::Release);
        self.crash.notify_one();
    }

    /// Ends when it has crashed.
    pub(crate) async fn crashed(&self) {
        self.crash.notified().await;
    }

    /// Passes a point. False if the worker has crashed, here or before.
    pub(crate) fn goes_on(&self, point: impl FnOnce() -> String) -> bool {
        if !self.is_over() && self.points.pass(point) {
            self.crash();
        }
        !self.is_over()
    }

    /// Passes a point, and never comes back if the worker has crashed.
    pub(crate) async fn pass(&self, point: impl FnOnce() -> String) {
        if !self.goes_on(point) {
            std::future::pending::<()>().await;
        }
    }
}
