//! How a journal is fed to a body: strictly by position, to any number of open calls, so that joins and races replay
//! exactly as they went. Pure: the worker polls the body and runs the attempts that this says may run.
//!
//! The worker's turn is always the same: tell what the body made and dropped, feed the next entry, hand its outcome to the
//! body, poll the body to quiescence; when the last entry is fed, ask [`Replay::next_steps`] what may run.

mod entries;
mod hooks;
mod ledger;
mod made;
mod patches;
mod saga;
mod trouble;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use everstep_protocol::{
    Attempt, BuildName, Call, Class, Epoch, EventKey, Failure, Fingerprint, HookId, Payload, Policy,
    Position, StepKey, Timestamp, Token,
    journal::{Closed, Delivered, Entry, Fact, HookOutcome, Parked, Reusable},
};

pub use self::hooks::{Claimant, hook_disposed, hook_taken};
pub use self::ledger::Settled;
pub use self::trouble::{
    EVENT_TIMED_OUT, cancelled_failure, event_timed_out, lost_failure, restored_failure,
};
use self::{
    hooks::Taken,
    ledger::Ledger,
    made::{Closing, Made, Rare, State},
    patches::Patches,
    saga::Saga,
    trouble::{input_changed, mismatch},
};

/// What a body asked for in a call, as far as replay looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// An inline step with this input.
    Step(Fingerprint),
    /// A remote step with this input.
    Remote(Fingerprint),
    /// A sleep; its length may change between builds (rule P19).
    Sleep,
    /// An event, with this key if any; its types stand in the call's name, its timeout may change between builds.
    Event(Option<EventKey>),
    /// Whether a change of the code applies (rule P40).
    Patch,
    /// A child with this input (rule P36).
    Child(Fingerprint),
    /// The end of another instance.
    Instance,
    /// An event with this payload for another instance.
    Send(Fingerprint),
    /// A payload for whoever has a token.
    Resume(Fingerprint),
    /// A hook of this token; what else it asks for may change between builds.
    Hook(Token),
    /// The next payload of this hook.
    Payload(HookId),
    /// An answer to the request of a webhook with this id.
    Reply(String),
    /// That the journal says that the body is over and its compensations begin (rule P38).
    Rollback,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Step(_) => "a step of its own",
            Self::Remote(_) => "a remote step",
            Self::Sleep => "a sleep",
            Self::Event(_) => "the wait for an event",
            Self::Patch => "a patch",
            Self::Child(_) => "a child",
            Self::Instance => "the wait for another instance",
            Self::Send(_) => "an event for another instance",
            Self::Resume(_) => "a payload for the hook of another instance",
            Self::Hook(_) => "a hook",
            Self::Payload(_) => "the wait for a payload of a hook",
            Self::Reply(_) => "an answer of a webhook",
            Self::Rollback => "a rollback",
        })
    }
}

/// What feeding an entry means for the body.
#[derive(Clone, Debug, PartialEq)]
pub enum Fed {
    /// Nothing that the body can see.
    Nothing,
    /// This call has its outcome: hand it over and poll.
    Resolve {
        /// The call's number.
        number: u64,
        /// The outcome.
        result: Result<Payload, Failure>,
    },
    /// This call has its event: hand it over and poll.
    Deliver {
        /// The call's number.
        number: u64,
        /// The event.
        event: Delivered,
    },
    /// Code without the change that this call asks about has written this entry: hand over `false`, poll, and feed the same
    /// entry again (rule P40).
    Unpatched {
        /// The call's number.
        number: u64,
    },
    /// This is what came of the hook that this call created: hand it over and poll.
    Registered {
        /// The call's number.
        number: u64,
        /// What came of it.
        outcome: HookOutcome,
    },
    /// The hook of this call, which the body has let go, is on record as free: hand that over and poll.
    LetGo {
        /// The call's number.
        number: u64,
    },
    /// The instance is cancelled (rule P30): these calls, in their order, end with this error, unless the body drops them
    /// before it is their turn. One that is still [open](Replay::is_open) [ends](Replay::cancelled_at), its error is handed
    /// over, and the body polled, before the next.
    Cancel {
        /// The calls' numbers.
        numbers: Vec<u64>,
        /// The error.
        failure: Failure,
    },
    /// The instance is ended with a rollback (rule P38): the body is thrown away where it stands, and what it has open with it.
    /// Then its compensations begin, unless they have begun.
    Rollback,
}

/// What may run now that every entry is fed.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Start an attempt of an inline step.
    Start(Start),
    /// Open the wait of a sleep, an event or a remote step, or record a patch: it is not recorded yet.
    Open {
        /// The call's number.
        number: u64,
    },
    /// Report an attempt that was lost with its worker (rule W11).
    Charge(Start),
    /// Report an output of an earlier run as this step's (rule L4).
    Reuse(Start, Payload),
    /// Report that an attempt is about to begin: its entry starts it (rule L5).
    Intend(Start),
    /// Report that nobody knows what came of an attempt whose holder is gone, and ask a person (rule L7).
    Unknown(Start, Epoch),
}

/// An attempt of an inline step.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The call's number.
    pub number: u64,
    /// Which attempt.
    pub attempt: Attempt,
    /// The key and policy that the first recorded attempt pinned (rule P8).
    pub pinned: Option<(StepKey, Policy)>,
    /// Where nothing is pinned: the key that a person kept for this input in an earlier run (rule P8).
    pub kept: Option<StepKey>,
    /// Of an attempt that was begun with another input than the code gives now: that one.
    pub input: Option<Fingerprint>,
    /// When the first recorded attempt began, for `max_elapsed`.
    pub first_at: Option<Timestamp>,
    /// What the attempts before told last of their progress (rule P5).
    pub progress: Option<Payload>,
}

/// The state of one journal fed to one body.
#[derive(Debug)]
pub struct Replay {
    build: BuildName,
    position: Position,
    numbers: HashMap<Call, u64>,
    calls: BTreeMap<u64, Made>,
    /// The calls in state ready, so that a step's cost does not depend on how many others are open.
    ready: BTreeSet<u64>,
    /// Remote steps that wait for the outcome of another input than the code gives them now.
    changed: BTreeSet<u64>,
    /// Calls that the body has dropped while they waited, until the entry that says so.
    closing: BTreeMap<Call, Closing>,
    patches: Patches,
    saga: Saga,
    /// Hooks that other instances have taken.
    taken: Taken,
    /// Outputs of earlier runs that no call has got yet.
    reusable: HashMap<Call, (Fingerprint, Payload)>,
    /// Keys that a person kept in an earlier run, of calls that are not made yet.
    kept: HashMap<(Call, Fingerprint), StepKey>,
    /// Whether the body has dropped a call: nearly none does, and then entries need not be looked up.
    any_dropped: bool,
    ledger: Ledger,
    drifted: u64,
}

impl Replay {
    /// Begins after the first entry, which only carries the input.
    #[must_use]
    pub fn new(build: BuildName, first: Position) -> Self {
        Self {
            build,
            position: first,
            numbers: HashMap::new(),
            calls: BTreeMap::new(),
            ready: BTreeSet::new(),
            changed: BTreeSet::new(),
            closing: BTreeMap::new(),
            patches: Patches::default(),
            saga: Saga::default(),
            taken: Taken::new(),
            reusable: HashMap::new(),
            kept: HashMap::new(),
            any_dropped: false,
            ledger: Ledger::default(),
            drifted: 0,
        }
    }

    /// The last position fed.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// How many recorded outcomes were used although another build had recorded them for another input (rule P8).
    #[must_use]
    pub const fn drifted(&self) -> u64 {
        self.drifted
    }

    /// The body began a call.
    pub fn made(&mut self, number: u64, call: Call, asked: Asked) {
        self.numbers.insert(call.clone(), number);
        match asked {
            Asked::Patch => self.patches.asked(number, call.name.clone()),
            Asked::Rollback => self.saga.begun = true,
            Asked::Step(_)
            | Asked::Remote(_)
            | Asked::Sleep
            | Asked::Event(_)
            | Asked::Child(_)
            | Asked::Instance
            | Asked::Hook(_)
            | Asked::Payload(_)
            | Asked::Reply(_)
            | Asked::Resume(_)
            | Asked::Send(_) => {}
        }
        let kept = match asked {
            Asked::Step(input) if !self.kept.is_empty() => self.kept.get(&(call.clone(), input)).copied(),
            _ => None,
        };
        let made = Made {
            rare: kept.map(|key| Box::new(Rare::kept(key))),
            call,
            asked,
            state: State::Ready,
            attempt: Attempt::FIRST,
            losses: Vec::new(),
            pinned: None,
            first_at: None,
            progress: None,
            input_changed: false,
            dropped_after: Position(0),
            over_by_cancel: false,
            class: Class::Keyed,
            intent: None,
        };
        self.calls.insert(number, made);
        self.ready.insert(number);
    }

    /// A call that the body is about to begin has a compensation.
    pub fn registers(&mut self, call: &Call) {
        self.saga.registers(call.clone());
    }

    /// Why the body may not end with an error that its compensations follow, if it may not: code that no longer registers one
    /// for a recorded step is reported (rule P39).
    #[must_use]
    pub fn unregistered(&self) -> Option<Parked> {
        self.saga.unregistered()
    }

    /// The body dropped a call that it had begun, when it had seen the entry at `seen`. Entries for it are skipped from now on,
    /// and if it waits its wait is to be closed.
    pub fn dropped(&mut self, number: u64, seen: Position) {
        if let Some(made) = self.calls.get_mut(&number) {
            let hook = made.token().cloned();
            // The report that opens a hook may be under way, and the next one may open another of that token: so it is let go at
            // once, which means nothing if it was never opened.
            let opens = hook.is_some() && made.state == State::Told;
            if opens || matches!(made.state, State::Waiting | State::Retrying) {
                let closing = Closing { after: seen, told: false, hook, let_go: None };
                self.closing.insert(made.call.clone(), closing);
            }
            made.state = State::Dropped;
            self.any_dropped = true;
            self.changed.remove(&number);
            made.dropped_after = seen;
            if made.intent.is_some() {
                self.ledger.unsettled.insert(number);
            }
            self.patches.over(number);
        }
    }

    /// A call that was open at a cancel ends with it (rule P30). Entries for it are skipped from now on; what it waited for is
    /// gone already, so there is nothing to close.
    pub fn cancelled_at(&mut self, number: u64, seen: Position) {
        self.dropped(number, seen);
        if let Some(made) = self.calls.get_mut(&number) {
            made.over_by_cancel = true;
            self.closing.remove(&made.call);
        }
    }

    /// The body dropped a call whose event was fed at `seen` and which it had not looked at since: to the body it never came.
    pub fn untaken(&mut self, call: Call, seen: Position) {
        let after = Position(seen.0.saturating_sub(1));
        self.closing.insert(call, Closing { after, told: false, hook: None, let_go: None });
    }

    /// The waits to close, each told once. Call it when every entry is fed.
    pub fn next_closed(&mut self) -> Vec<Closed> {
        let untold = self.closing.iter_mut().filter(|(_, closing)| !closing.told);
        untold
            .map(|(call, closing)| {
                closing.told = true;
                Closed { call: call.clone(), after: closing.after, hook: closing.hook.clone() }
            })
            .collect()
    }

    /// The body is given this call's success before it is acknowledged (rule W36).
    pub fn fold(&mut self, number: u64) {
        if let Some(made) = self.calls.get_mut(&number) {
            made.state = State::Folded;
        }
    }

    /// Whether a call is still wanted by the body.
    #[must_use]
    pub fn is_open(&self, number: u64) -> bool {
        self.calls.get(&number).is_some_and(|made| !matches!(made.state, State::Dropped | State::Folded))
    }

    /// Whether some call waits for an entry that is not written yet.
    #[must_use]
    pub fn has_waits(&self) -> bool {
        self.calls.values().any(|made| matches!(made.state, State::Waiting | State::Retrying))
    }

    /// Whether the body has dropped the call of a child: what was started by it is to be given up, also if the body has ended.
    #[must_use]
    pub fn gives_children_up(&self) -> bool {
        let given_up = |made: &Made| made.state == State::Dropped && matches!(made.asked, Asked::Child(_));
        self.any_dropped && self.calls.values().any(given_up)
    }

    /// Feeds the entry at the next position. An error is the reason to park the instance (rule P41).
    pub fn feed(&mut self, entry: &Entry) -> Result<Fed, Parked> {
        if entry.position != self.position.next() {
            let (got, want) = (entry.position, self.position.next());
            return Err(mismatch(entry, &format!("entry {got} came where entry {want} was expected")));
        }
        if self.patches.are_open() {
            // What was decided about a key in an earlier run stands before the code that makes the call.
            let is_unknown = !matches!(entry.fact, Fact::Rekeyed(_))
                && entry.fact.call().is_some_and(|call| !self.numbers.contains_key(call));
            if let Some(number) = self.patches.refuse(is_unknown) {
                self.calls.remove(&number);
                return Ok(Fed::Unpatched { number });
            }
        }
        self.position = entry.position;
        if self.any_dropped {
            match &entry.fact {
                Fact::Attempted(attempted) => self.settles(&attempted.call, attempted.attempt),
                Fact::Withdrawn(withdrawn) => self.settles(&withdrawn.call, withdrawn.attempt),
                _ => {}
            }
            self.of_dropped(entry);
        }
        self.saga.fed(&entry.fact);
        match &entry.fact {
            Fact::Attempted(attempted) => self.attempted(entry, attempted),
            Fact::Opened(opened) => self.opened(entry, opened),
            Fact::Fired { call } => self.fired(entry, call),
            Fact::Patched(patched) => self.patched(entry, patched),
            Fact::Lost(lost) => {
                self.lost(lost);
                Ok(Fed::Nothing)
            }
            Fact::Delivered(delivered) => self.delivered(entry, delivered),
            Fact::Returned(returned) => self.returned(entry, returned),
            Fact::Closed(closed) => self.closed(entry, closed),
            Fact::Cancelled(cancelled) => Ok(self.cancelled(cancelled)),
            Fact::Compensating(compensating) => self.recorded(entry, &compensating.call),
            Fact::Rollback(_) => Ok(Fed::Rollback),
            Fact::Reusable(Reusable { call, input, output, .. }) => {
                self.reusable.insert(call.clone(), (*input, output.clone()));
                Ok(Fed::Nothing)
            }
            Fact::Parked(_) | Fact::Retried | Fact::Compensated(_) | Fact::Continued(_) | Fact::Ended(_) => {
                Ok(Fed::Nothing)
            }
            Fact::Registered(registered) => self.registered(entry, registered),
            Fact::Received(received) => self.received(entry, received),
            Fact::TakenOver(taken) => {
                self.taken_over(taken);
                Ok(Fed::Nothing)
            }
            Fact::Intended(intended) => self.intended(entry, intended),
            Fact::Withdrawn(withdrawn) => self.withdrawn(entry, withdrawn),
            Fact::Resolved(resolved) => self.resolved(entry, resolved),
            Fact::Rekeyed(rekeyed) => {
                self.rekeyed(rekeyed);
                Ok(Fed::Nothing)
            }
            Fact::Started(_) => Err(mismatch(entry, "a second first entry")),
        }
    }

    /// What may run, in the order in which the calls were made; each is told once. Call it when every entry is fed.
    pub fn next_steps(&mut self) -> Result<Vec<Next>, Parked> {
        if let Some(made) = self.changed.first().and_then(|number| self.calls.get(number)) {
            return Err(input_changed(&made.call, "was handed to its pool"));
        }
        if let Some(parked) = self.saga.unregistered().filter(|_| self.saga.begun) {
            return Err(parked);
        }
        let mut next = Vec::new();
        for number in std::mem::take(&mut self.ready) {
            let Some(made) = self.calls.get_mut(&number).filter(|made| made.state == State::Ready) else {
                continue;
            };
            if made.input_changed {
                let parked = input_changed(&made.call, "has attempts");
                return Err(Parked { changed: made.changed(), ..parked });
            }
            made.state = State::Told;
            match made.reuse(number, &mut self.reusable) {
                Some(reused) => next.push(reused),
                None if made.is_intended() => next.extend(self.ledger.next(made, number)),
                None => next.extend(made.next(number)),
            }
        }
        Ok(next)
    }
}
