//! An agent: a model decides on actions, they are done, and the model is asked again with what came of them, until it wants nothing
//! more. The model is a script here, which like any model never says the same thing twice.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use everstep::{Error, Registry, Retry, Step, Workflow};
use serde::{Deserialize, Serialize};

/// What the model can ask for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Action {
    /// Which rooms are free?
    FindRooms {
        /// In this town.
        town: String,
    },
    /// Take a room.
    Reserve {
        /// Which.
        room: String,
        /// Under which reference, of the model's making.
        reference: String,
    },
    /// Tell the guest.
    Write {
        /// What.
        text: String,
    },
}

/// Plans after which the agent gives up: a model may go round in circles.
const PLANS_MAX: usize = 10;

/// Books a room for a guest; gives what came of every action.
pub async fn book(cx: Workflow, town: String, world: World) -> Result<Vec<String>, Error> {
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..PLANS_MAX {
        let model = world.clone();
        let think = move |_: Step, (town, seen): (String, Vec<String>)| {
            let model = model.clone();
            async move { Ok::<_, Error>(model.think(&town, &seen)) }
        };
        // On record before anything is done: from here on these are the actions, whatever the model would say next time.
        let plan = cx.plan("think", (&town, &seen), think).retry(Retry::constant("5s")).await?;
        if plan.is_empty() {
            return Ok(seen);
        }
        for action in &plan {
            let world = world.clone();
            let act = move |step: Step, action: Action| {
                let world = world.clone();
                async move { Ok::<_, Error>(world.act(step.idempotency_key(), &action)) }
            };
            let name = match &**action {
                Action::FindRooms { .. } => "find rooms",
                Action::Reserve { .. } => "reserve",
                Action::Write { .. } => "write",
            };
            seen.push(action.step(name, &**action, act).retry(Retry::constant("5s")).await?);
        }
    }
    Err(Error::permanent(format_args!("no end after {PLANS_MAX} plans")).named("Circles"))
}

/// What a worker serves.
pub fn registry(world: &World) -> Registry {
    let world = world.clone();
    Registry::new().workflow_fn("book", move |cx: Workflow, town: String| book(cx, town, world.clone()))
}

/// The model, and the hotel and the guest's mail, which do once what they are asked under one key.
#[derive(Clone, Debug, Default)]
pub struct World(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    thoughts: u32,
    calls: u32,
    done: BTreeMap<String, String>,
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the model has thought.
    #[must_use]
    pub fn thoughts(&self) -> u32 {
        self.state().thoughts
    }

    /// How often something was asked for, and what was done.
    #[must_use]
    pub fn done(&self) -> (u32, Vec<String>) {
        let state = self.state();
        (state.calls, state.done.values().cloned().collect())
    }

    /// What the model wants next.
    fn think(&self, town: &str, seen: &[String]) -> Vec<Action> {
        let mut state = self.state();
        state.thoughts += 1;
        let thought = state.thoughts;
        match seen {
            [] => vec![Action::FindRooms { town: town.to_owned() }],
            [room] => vec![
                Action::Reserve { room: room.clone(), reference: format!("thought {thought}") },
                Action::Write { text: format!("Your room is {room} (thought {thought})") },
            ],
            _ => Vec::new(),
        }
    }

    /// Does it, unless it was done under this key; gives what came of it.
    fn act(&self, key: &str, action: &Action) -> String {
        let mut state = self.state();
        state.calls += 1;
        let what = match action {
            Action::FindRooms { town } => return format!("the blue room in {town}"),
            Action::Reserve { room, reference } => format!("reserved {room} for {reference}"),
            Action::Write { text } => format!("wrote {text:?}"),
        };
        state.done.entry(key.to_owned()).or_insert(what).clone()
    }
}
