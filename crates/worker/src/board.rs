//! What the work loop writes and the link reads at any time: what is held, what runs, how much room there is, and when
//! the loop last came round. So that heartbeats never wait for user code, and say when it blocks the loop (rule W12).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use everstep_protocol::{
    InstanceUid, Millis,
    message::{Credit, Held, HeldStep, Running},
};
use tokio::time::Instant;

use crate::telling::Telling;

/// The shared state.
#[derive(Debug, Default)]
pub(crate) struct Board {
    state: Mutex<State>,
    telling: Arc<Telling>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<InstanceUid, Held>,
    steps: Vec<HeldStep>,
    running: u32,
    credits: Vec<Credit>,
    /// When the loop last came round; none before it has for the first time.
    turned: Option<Instant>,
}

/// What a heartbeat says.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) held: Vec<Held>,
    pub(crate) steps: Vec<HeldStep>,
    pub(crate) running: u32,
    pub(crate) credits: Vec<Credit>,
    /// How long ago the loop last came round.
    pub(crate) turned: Millis,
    /// What running attempts have told of their progress.
    pub(crate) progress: Vec<Running>,
}

impl Board {
    pub(crate) fn new(telling: Arc<Telling>) -> Self {
        Self { state: Mutex::default(), telling }
    }

    /// Writes what changed in one turn of the loop: instances held, or no longer, and the rest if it changed.
    pub(crate) fn write(
        &self,
        changed: impl Iterator<Item = (InstanceUid, Option<Held>)>,
        steps: Option<Vec<HeldStep>>,
        running: u32,
        credits: Vec<Credit>,
        now: Instant,
    ) {
        let mut state = self.lock();
        state.turned = Some(now);
        for (instance, held) in changed {
            match held {
                Some(held) => state.held.insert(instance, held),
                None => state.held.remove(&instance),
            };
        }
        if let Some(steps) = steps {
            state.steps = steps;
        }
        state.running = running;
        state.credits = credits;
    }

    pub(crate) fn credits(&self) -> Vec<Credit> {
        self.lock().credits.clone()
    }

    pub(crate) fn account(&self, now: Instant) -> Account {
        let state = self.lock();
        let turned = state.turned.map_or(0, |at| now.saturating_duration_since(at).as_millis());
        Account {
            held: state.held.values().copied().collect(),
            steps: state.steps.clone(),
            running: state.running,
            credits: state.credits.clone(),
            turned: Millis(u64::try_from(turned).unwrap_or(u64::MAX)),
            progress: self.telling.told(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
