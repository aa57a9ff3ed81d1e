//! What the work loop writes and the link reads at any time: what is held, what runs, how much room there is. So that
//! heartbeats never wait for user code (rule W12).

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use everstep_protocol::{
    Epoch, InstanceUid, Position,
    message::{Credit, Held, HeldStep},
};

/// The shared state.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    held: HashMap<InstanceUid, (Epoch, Position)>,
    steps: Vec<HeldStep>,
    running: u32,
    credits: Vec<Credit>,
}

/// What a heartbeat says.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) held: Vec<Held>,
    pub(crate) steps: Vec<HeldStep>,
    pub(crate) running: u32,
    pub(crate) credits: Vec<Credit>,
}

impl Board {
    /// Writes what changed in one turn of the loop: instances held, or no longer, and the rest if it changed.
    pub(crate) fn write(
        &self,
        changed: impl Iterator<Item = (InstanceUid, Option<(Epoch, Position)>)>,
        steps: Option<Vec<HeldStep>>,
        running: u32,
        credits: Vec<Credit>,
    ) {
        let mut state = self.lock();
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

    pub(crate) fn account(&self) -> Account {
        let state = self.lock();
        let held = |(instance, (epoch, position)): (&InstanceUid, &(Epoch, Position))| Held {
            instance: *instance,
            epoch: *epoch,
            position: *position,
        };
        Account {
            held: state.held.iter().map(held).collect(),
            steps: state.steps.clone(),
            running: state.running,
            credits: state.credits.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
