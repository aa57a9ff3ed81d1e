//! What the context, its calls and the host share about one body.
//!
//! The lock is never held while foreign code runs: wakers are taken out first.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use everstep_protocol::{
    Call, CallKind, CallName, Failure, Payload, Position, Timestamp, journal::Delivered, limits::Limits,
};

use super::hooks::Hooks;
use super::turn::{self, Act, Token};
use super::wake::HostWaker;
use super::{InstanceInfo, Made, Misfit};
use crate::attributes::Shown;
use crate::saga::Saga;

pub(crate) struct Shared {
    pub(crate) info: InstanceInfo,
    pub(crate) token: Token,
    pub(crate) seed: [u8; 32],
    pub(crate) waker: Arc<HostWaker>,
    /// The most bytes that a generation may begin with.
    input_max: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) seen: Position,
    pub(crate) now: Timestamp,
    /// The instance was cancelled.
    pub(crate) cancelled: bool,
    /// How many draws `random` and `uuid` have made.
    pub(crate) draws: u64,
    /// Calls that have begun and are still held by the body.
    pub(crate) open: HashMap<u64, Slot>,
    pub(crate) made: Vec<Made>,
    pub(crate) dropped: Vec<u64>,
    /// Calls that were dropped with an event that the body had not looked at, and the entry that brought it.
    pub(crate) untaken: Vec<(Call, Position)>,
    /// Calls whose outcome was fed since the last poll: the entry that gave it is the one of the next.
    pub(crate) fed: Vec<u64>,
    /// Which changes of the code apply, as far as the body has asked (rule P40).
    pub(crate) patches: HashMap<Box<str>, bool>,
    /// What the body shows of itself.
    pub(crate) shown: Shown,
    /// The steps that have a compensation.
    pub(crate) saga: Saga,
    /// The first recorded output that the body could not read.
    pub(crate) misfit: Option<Misfit>,
    /// The hooks that the body has created.
    pub(crate) hooks: Hooks,
    calls: u64,
    counts: HashMap<(CallKind, CallName), u32>,
}

/// Where the outcome of a begun call arrives.
pub(crate) enum Slot {
    Waiting(Waker),
    /// The outcome, and the position of the entry that gave it.
    Resolved(Result<Output, Failure>, Position),
}

/// What a call gives.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) payload: Payload,
    /// The event that it is the payload of.
    pub(crate) event: Option<Arc<Delivered>>,
}

/// A call as it was numbered when the body made it (rules P2, W32).
#[derive(Debug)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) call: Call,
    pub(crate) called_after: Position,
}

impl Shared {
    pub(crate) fn new(info: InstanceInfo, seed: [u8; 32]) -> Self {
        let token = Token::next();
        let waker = Arc::new(HostWaker::new(token));
        let input_max = AtomicU64::new(Limits::default().input_bytes);
        Self { info, token, seed, waker, input_max, state: Mutex::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn input_max(&self) -> u64 {
        self.input_max.load(Ordering::Relaxed)
    }

    pub(crate) fn limit_input(&self, bytes: u64) {
        self.input_max.store(bytes, Ordering::Relaxed);
    }

    /// Whether this thread is inside a poll of this body, the only place where the context answers (rule W30).
    pub(crate) fn is_polling(&self) -> bool {
        turn::act(self.token) == Some(Act::Poll)
    }
}

impl State {
    /// The body has seen the entry of this position and is about to be polled.
    pub(crate) fn see(&mut self, position: Position, now: Timestamp) {
        self.seen = position;
        self.now = now;
        for number in std::mem::take(&mut self.fed) {
            if let Some(Slot::Resolved(_, at)) = self.open.get_mut(&number) {
                *at = position;
            }
        }
    }

    /// A call whose identity is given: it stands for another.
    pub(crate) fn number_of(&mut self, call: Call) -> Numbered {
        let number = self.calls;
        self.calls += 1;
        Numbered { number, call, called_after: self.seen }
    }

    pub(crate) fn number(&mut self, kind: CallKind, name: CallName) -> Numbered {
        let number = self.calls;
        self.calls += 1;
        let count = match self.counts.entry((kind, name.clone())) {
            Entry::Occupied(mut entry) => {
                *entry.get_mut() = entry.get().saturating_add(1);
                *entry.get()
            }
            Entry::Vacant(entry) => *entry.insert(1),
        };
        Numbered { number, call: Call { kind, name, count }, called_after: self.seen }
    }
}
