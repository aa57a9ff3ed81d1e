//! One life of a simulated process, from its start to its crash. A process that has crashed does nothing more to the world.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use everstep_protocol::SessionId;

use crate::{
    faults::{Faults, Kind},
    trace::Trace,
};

/// What all that a process does to the world goes through.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) name: String,
    pub(crate) faults: Arc<Faults>,
    pub(crate) trace: Trace,
    /// It can crash.
    mortal: bool,
    over: AtomicBool,
    /// How often the process stood still so far.
    freezes: AtomicU64,
    session: Mutex<Option<SessionId>>,
}

impl Life {
    pub(crate) fn new(name: String, mortal: bool, faults: Arc<Faults>, trace: Trace) -> Self {
        Self {
            name,
            faults,
            trace,
            mortal,
            over: AtomicBool::new(false),
            freezes: AtomicU64::new(0),
            session: Mutex::default(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The process has died. What is left of it is cleared away when its turn is over.
    pub(crate) fn end(&self, why: fmt::Arguments<'_>) {
        self.over.store(true, Ordering::Relaxed);
        self.note(format_args!("dies {why}"));
    }

    /// A point at which the process may die. Never comes back if it has.
    pub(crate) async fn passes(&self, point: &str) {
        if self.mortal && !self.is_over() && self.faults.comes(Kind::CrashInCall) {
            self.end(format_args!("{point}"));
        }
        if self.is_over() {
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn freezes(&self) -> u64 {
        self.freezes.load(Ordering::Relaxed)
    }

    pub(crate) fn froze(&self) {
        self.freezes.fetch_add(1, Ordering::Relaxed);
    }

    /// The session that the process has opened last.
    pub(crate) fn session(&self) -> Option<SessionId> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_session(&self, session: SessionId) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    pub(crate) fn note(&self, what: fmt::Arguments<'_>) {
        self.trace.note(&self.name, what);
    }
}
