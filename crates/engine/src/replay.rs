//! How a journal is fed to a body: strictly by position, to any number of open calls, so that joins and races replay
//! exactly as they went. Pure: the worker polls the body and runs the attempts that this says may run.
//!
//! The worker's turn is always the same: tell what the body made and dropped, feed the next entry, hand its outcome to the
//! body, poll the body to quiescence; when the last entry is fed, ask [`Replay::next_steps`] what may run.

mod patches;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use everstep_protocol::{
    Attempt, BuildName, Call, EventKey, Failure, FailureKind, Fingerprint, Payload, Policy, Position,
    StepKey, Timestamp,
    journal::{
        Attempted, Cancelled, Closed, Delivered, Entry, Fact, Lost, Opened, Outcome, ParkCode, Parked,
        Patched, Progress, Wait,
    },
};

use patches::Patches;

/// How many of its open calls the message of a mismatch names.
const CALLS_NAMED: usize = 3;

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
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Step(_) => "a step of its own",
            Self::Remote(_) => "a remote step",
            Self::Sleep => "a sleep",
            Self::Event(_) => "the wait for an event",
            Self::Patch => "a patch",
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
    /// The instance is cancelled (rule P30): these calls, in their order, end with this error, unless the body drops them
    /// before it is their turn. One that is still [open](Replay::is_open) [ends](Replay::cancelled_at), its error is handed
    /// over, and the body polled, before the next.
    Cancel {
        /// The calls' numbers.
        numbers: Vec<u64>,
        /// The error.
        failure: Failure,
    },
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
    /// Whether the body has dropped a call: nearly none does, and then entries need not be looked up.
    any_dropped: bool,
    drifted: u64,
}

/// The wait of a dropped call.
#[derive(Clone, Copy, Debug)]
struct Closing {
    /// The last position that the body had seen when it dropped the call.
    after: Position,
    /// It was reported.
    told: bool,
}

#[derive(Debug)]
struct Made {
    call: Call,
    asked: Asked,
    state: State,
    attempt: Attempt,
    /// Attempts lost with their workers that no entry records yet.
    losses: Vec<Attempt>,
    pinned: Option<(StepKey, Policy)>,
    first_at: Option<Timestamp>,
    progress: Option<Payload>,
    input_changed: bool,
    /// See [`Closing::after`]; for a dropped call.
    dropped_after: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Can run at once: no attempt yet, or its retry delay is over. A sleep, event or remote step: not opened yet.
    Ready,
    /// The worker has been told to run or open it.
    Told,
    /// Its wait is recorded.
    Waiting,
    /// Its attempt failed and the retry delay is not over.
    Retrying,
    /// The body saw its outcome before it was acknowledged (rule W36).
    Folded,
    /// The body dropped it.
    Dropped,
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
            any_dropped: false,
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
        if asked == Asked::Patch {
            self.patches.asked(number, call.name.clone());
        }
        let made = Made {
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
        };
        self.calls.insert(number, made);
        self.ready.insert(number);
    }

    /// The body dropped a call that it had begun, when it had seen the entry at `seen`. Entries for it are skipped from now on,
    /// and if it waits its wait is to be closed.
    pub fn dropped(&mut self, number: u64, seen: Position) {
        if let Some(made) = self.calls.get_mut(&number) {
            if matches!(made.state, State::Waiting | State::Retrying) {
                self.closing.insert(made.call.clone(), Closing { after: seen, told: false });
            }
            made.state = State::Dropped;
            self.any_dropped = true;
            self.changed.remove(&number);
            made.dropped_after = seen;
            self.patches.over(number);
        }
    }

    /// A call that was open at a cancel ends with it (rule P30). Entries for it are skipped from now on; what it waited for is
    /// gone already, so there is nothing to close.
    pub fn cancelled_at(&mut self, number: u64, seen: Position) {
        self.dropped(number, seen);
        if let Some(made) = self.calls.get(&number) {
            self.closing.remove(&made.call);
        }
    }

    /// The body dropped a call whose event was fed at `seen` and which it had not looked at since: to the body it never came.
    pub fn untaken(&mut self, call: Call, seen: Position) {
        let after = Position(seen.0.saturating_sub(1));
        self.closing.insert(call, Closing { after, told: false });
    }

    /// The waits to close, each told once. Call it when every entry is fed.
    pub fn next_closed(&mut self) -> Vec<Closed> {
        let untold = self.closing.iter_mut().filter(|(_, closing)| !closing.told);
        untold
            .map(|(call, closing)| {
                closing.told = true;
                Closed { call: call.clone(), after: closing.after }
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

    /// Feeds the entry at the next position. An error is the reason to park the instance (rule P41).
    pub fn feed(&mut self, entry: &Entry) -> Result<Fed, Parked> {
        if entry.position != self.position.next() {
            let (got, want) = (entry.position, self.position.next());
            return Err(mismatch(entry, &format!("entry {got} came where entry {want} was expected")));
        }
        if self.patches.are_open() {
            let is_unknown = entry.fact.call().is_some_and(|call| !self.numbers.contains_key(call));
            if let Some(number) = self.patches.refuse(is_unknown) {
                self.calls.remove(&number);
                return Ok(Fed::Unpatched { number });
            }
        }
        self.position = entry.position;
        if self.any_dropped {
            self.of_dropped(entry);
        }
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
            Fact::Closed(closed) => self.closed(entry, closed),
            Fact::Cancelled(cancelled) => Ok(self.cancelled(cancelled)),
            Fact::Parked(_) | Fact::Retried | Fact::Ended(_) => Ok(Fed::Nothing),
            Fact::Started(_) => Err(mismatch(entry, "a second first entry")),
        }
    }

    /// What may run, in the order in which the calls were made; each is told once. Call it when every entry is fed.
    pub fn next_steps(&mut self) -> Result<Vec<Next>, Parked> {
        if let Some(made) = self.changed.first().and_then(|number| self.calls.get(number)) {
            return Err(input_changed(&made.call, "was handed to its pool"));
        }
        let mut next = Vec::new();
        for number in std::mem::take(&mut self.ready) {
            let Some(made) = self.calls.get_mut(&number).filter(|made| made.state == State::Ready) else {
                continue;
            };
            if made.input_changed {
                return Err(input_changed(&made.call, "has attempts"));
            }
            made.state = State::Told;
            next.extend(made.next(number));
        }
        Ok(next)
    }

    /// The call that an entry is about; none if the body made and dropped it, an error if it never made it.
    fn target(&mut self, entry: &Entry, call: &Call) -> Result<Option<(u64, &mut Made)>, Parked> {
        let Some(number) = self.numbers.get(call).copied() else {
            let what = format!("the code has not called {call} by then; {}", self.asks_for());
            return Err(mismatch(entry, &what));
        };
        match self.calls.get_mut(&number) {
            Some(made) if made.state == State::Dropped => Ok(None),
            Some(made) => Ok(Some((number, made))),
            None => Err(mismatch(entry, &format!("{call} has its outcome already"))),
        }
    }

    /// What the code asks for where the journal says otherwise.
    fn asks_for(&self) -> String {
        let wanted = |made: &&Made| !matches!(made.state, State::Dropped | State::Folded);
        let mut open = self.calls.values().filter(wanted).map(|made| made.call.to_string());
        let named: Vec<String> = open.by_ref().take(CALLS_NAMED).collect();
        match (named.is_empty(), open.count()) {
            (true, _) => "it asks for nothing more".to_owned(),
            (false, 0) => format!("it asks for {}", named.join(", ")),
            (false, more) => format!("it asks for {} and {more} more", named.join(", ")),
        }
    }

    /// What an entry says of the wait of a call that the body has dropped: it is open, or it is over and need not be closed. An
    /// event that came to such a call is no end of it: it has to return (rule P22).
    fn of_dropped(&mut self, entry: &Entry) {
        let made = entry
            .fact
            .call()
            .and_then(|call| self.numbers.get(call))
            .and_then(|number| self.calls.get(number));
        let Some(made) = made.filter(|made| made.state == State::Dropped) else { return };
        let opens = match &entry.fact {
            Fact::Opened(_) => true,
            Fact::Fired { .. } => false,
            Fact::Attempted(attempted) => match attempted.retry_at() {
                // The coordinator retries a remote step, whose wait goes on.
                Some(_) if matches!(made.asked, Asked::Remote(_)) => return,
                Some(retry_at) => retry_at > entry.at,
                None => false,
            },
            Fact::Started(_)
            | Fact::Delivered(_)
            | Fact::Closed(_)
            | Fact::Patched(_)
            | Fact::Cancelled(_)
            | Fact::Lost(_)
            | Fact::Parked(_)
            | Fact::Retried
            | Fact::Ended(_) => return,
        };
        if opens {
            let closing = Closing { after: made.dropped_after, told: false };
            self.closing.entry(made.call.clone()).or_insert(closing);
        } else if self.closing.get(&made.call).is_some_and(|closing| !closing.told) {
            self.closing.remove(&made.call);
        }
    }

    fn attempted(&mut self, entry: &Entry, attempted: &Attempted) -> Result<Fed, Parked> {
        let build = self.build.clone();
        let Some((number, made)) = self.target(entry, &attempted.call)? else {
            return Ok(Fed::Nothing);
        };
        let (Asked::Step(input) | Asked::Remote(input)) = made.asked else {
            return Err(mismatch(entry, &format!("the code calls {} as {}", attempted.call, made.asked)));
        };
        // What a remote step was given was compared when it was opened: its attempts bear the builds of the pool.
        let changed = if made.state == State::Waiting {
            made.input_changed
        } else {
            is_changed(entry, &attempted.call, (input, &build), (attempted.input, Some(&attempted.build)))?
        };
        made.attempt = made.attempt.max(attempted.attempt.next());
        made.losses.retain(|lost| *lost > attempted.attempt);
        made.pinned.get_or_insert((attempted.key, attempted.policy));
        made.first_at.get_or_insert(attempted.started_at);
        let result = match &attempted.outcome {
            Outcome::Succeeded(output) => Ok(output.clone()),
            Outcome::Failed { failure, retry_at: None } => Err(failure.clone()),
            Outcome::Failed { retry_at: Some(retry_at), .. } => {
                made.input_changed = changed;
                if attempted.progress.is_some() {
                    made.progress.clone_from(&attempted.progress);
                }
                made.retry(*retry_at, entry.at);
                if made.state == State::Ready {
                    self.ready.insert(number);
                }
                return Ok(Fed::Nothing);
            }
        };
        let folded = made.state == State::Folded;
        self.calls.remove(&number);
        self.changed.remove(&number);
        self.drifted += u64::from(changed);
        Ok(if folded { Fed::Nothing } else { Fed::Resolve { number, result } })
    }

    fn opened(&mut self, entry: &Entry, opened: &Opened) -> Result<Fed, Parked> {
        let build = self.build.clone();
        let Some((number, made)) = self.target(entry, &opened.call)? else {
            return Ok(Fed::Nothing);
        };
        made.input_changed = match (&opened.wait, &made.asked) {
            (Wait::Sleep { .. }, Asked::Sleep) => false,
            (Wait::Event { key, .. }, Asked::Event(asked)) if key == asked => false,
            (Wait::Remote(remote), Asked::Remote(input)) => {
                let recorded = (remote.fingerprint, opened.build.as_ref());
                is_changed(entry, &opened.call, (*input, &build), recorded)?
            }
            (Wait::Sleep { .. }, Asked::Step(_) | Asked::Remote(_) | Asked::Event(_) | Asked::Patch)
            | (Wait::Remote(_), Asked::Step(_) | Asked::Sleep | Asked::Event(_) | Asked::Patch)
            | (Wait::Event { .. }, _) => {
                return Err(mismatch(entry, &format!("the code calls {} as {}", opened.call, made.asked)));
            }
        };
        made.state = State::Waiting;
        if made.input_changed {
            self.changed.insert(number);
        }
        Ok(Fed::Nothing)
    }

    fn fired(&mut self, entry: &Entry, call: &Call) -> Result<Fed, Parked> {
        let Some((number, made)) = self.target(entry, call)? else {
            return Ok(Fed::Nothing);
        };
        match (made.state, &made.asked) {
            (State::Waiting, Asked::Sleep) => {
                self.calls.remove(&number);
                Ok(Fed::Resolve { number, result: Ok(Payload::null()) })
            }
            (State::Waiting, Asked::Event(_)) => {
                self.calls.remove(&number);
                Ok(Fed::Resolve { number, result: Err(event_timed_out(call)) })
            }
            (State::Retrying, Asked::Step(_)) => {
                made.state = State::Ready;
                self.ready.insert(number);
                Ok(Fed::Nothing)
            }
            _ => Err(mismatch(entry, &format!("{call} does not wait for a time"))),
        }
    }

    fn delivered(&mut self, entry: &Entry, delivered: &Delivered) -> Result<Fed, Parked> {
        let Some((number, made)) = self.target(entry, &delivered.call)? else {
            return Ok(Fed::Nothing);
        };
        if made.state != State::Waiting || !matches!(made.asked, Asked::Event(_)) {
            return Err(mismatch(entry, &format!("{} does not wait for an event", delivered.call)));
        }
        self.calls.remove(&number);
        Ok(Fed::Deliver { number, event: delivered.clone() })
    }

    /// A closed wait never ends: code that has not dropped the call would wait for ever.
    fn closed(&mut self, entry: &Entry, closed: &Closed) -> Result<Fed, Parked> {
        let known = self.closing.remove(&closed.call).is_some();
        if known || self.target(entry, &closed.call)?.is_none() {
            return Ok(Fed::Nothing);
        }
        Err(mismatch(entry, &format!("the code has not dropped {} by then", closed.call)))
    }

    fn patched(&mut self, entry: &Entry, patched: &Patched) -> Result<Fed, Parked> {
        self.patches.recorded(&patched.call.name);
        let Some((number, _)) = self.target(entry, &patched.call)? else {
            return Ok(Fed::Nothing);
        };
        self.calls.remove(&number);
        self.patches.over(number);
        Ok(Fed::Resolve { number, result: Ok(Payload::from_trusted("true".to_owned())) })
    }

    fn cancelled(&self, cancelled: &Cancelled) -> Fed {
        let numbers = self.calls.keys().copied().filter(|number| self.is_open(*number)).collect();
        Fed::Cancel { numbers, failure: cancelled_failure(cancelled) }
    }

    /// Charges a loss to the steps that can have been running: the first `slots` that were ready, in order of call.
    fn lost(&mut self, lost: &Lost) {
        self.keep_progress(&lost.progress);
        if !lost.counts {
            return;
        }
        let running = self.calls.values_mut().filter(|made| {
            matches!(made.asked, Asked::Step(_)) && matches!(made.state, State::Ready | State::Told)
        });
        for made in running.take(lost.slots as usize) {
            made.losses.push(made.attempt);
            made.attempt = made.attempt.next();
        }
    }
}

impl Replay {
    /// What the attempts of a lost worker had told goes to the attempts after them. It may have told of one that it then
    /// recorded, which is over.
    fn keep_progress(&mut self, progress: &[Progress]) {
        for Progress { call, attempt, told } in progress {
            let is_theirs = |made: &&mut Made| made.attempt == *attempt && made.call.hash() == *call;
            if let Some(made) = self.calls.values_mut().find(is_theirs) {
                made.progress = Some(told.clone());
            }
        }
    }
}

impl Made {
    fn next(&mut self, number: u64) -> Vec<Next> {
        let start = |attempt, made: &Self| Start {
            number,
            attempt,
            pinned: made.pinned,
            first_at: made.first_at,
            progress: made.progress.clone(),
        };
        match self.asked {
            Asked::Sleep | Asked::Remote(_) | Asked::Event(_) | Asked::Patch => vec![Next::Open { number }],
            Asked::Step(_) if self.losses.is_empty() => vec![Next::Start(start(self.attempt, self))],
            Asked::Step(_) => self.losses.iter().map(|attempt| Next::Charge(start(*attempt, self))).collect(),
        }
    }

    /// An attempt failed and there will be another. A remote step goes on waiting: the coordinator retries it.
    fn retry(&mut self, retry_at: Timestamp, now: Timestamp) {
        self.state = match self.asked {
            Asked::Remote(_) => State::Waiting,
            // The next of its losses is to be charged first; who was told that already is not told again.
            Asked::Step(_) | Asked::Sleep | Asked::Event(_) | Asked::Patch if !self.losses.is_empty() => {
                self.state
            }
            Asked::Step(_) | Asked::Sleep | Asked::Event(_) | Asked::Patch if retry_at <= now => State::Ready,
            Asked::Step(_) | Asked::Sleep | Asked::Event(_) | Asked::Patch => State::Retrying,
        };
    }
}

/// Whether the code gives a call another input than is recorded; an error if the very build that recorded it does (rule P8).
fn is_changed(
    entry: &Entry,
    call: &Call,
    now: (Fingerprint, &BuildName),
    recorded: (Fingerprint, Option<&BuildName>),
) -> Result<bool, Parked> {
    let changed = now.0 != recorded.0;
    if changed && recorded.1 == Some(now.1) {
        return Err(mismatch(entry, &format!("the same build now gives {call} another input")));
    }
    Ok(changed)
}

fn input_changed(call: &Call, what: &str) -> Parked {
    Parked {
        code: ParkCode::InputChanged,
        message: format!("{call} {what} but has no outcome, and the code now gives it another input"),
    }
}

fn mismatch(entry: &Entry, what: &str) -> Parked {
    Parked {
        code: ParkCode::JournalMismatch,
        message: format!("the code disagrees with entry {} ({}): {what}", entry.position, entry.fact.word()),
    }
}

/// The failure of a call for which no event came in time: of the kind of a step's timeout, under a name of its own (rule P21).
#[must_use]
pub fn event_timed_out(call: &Call) -> Failure {
    let message = format!("no event came for {call} in time");
    Failure { name: EVENT_TIMED_OUT.to_owned(), ..Failure::new(FailureKind::TimedOut, message) }
}

/// The name of an event's timeout.
pub const EVENT_TIMED_OUT: &str = "EventTimedOut";

/// The error of the calls that were open when the instance was cancelled.
#[must_use]
pub fn cancelled_failure(cancelled: &Cancelled) -> Failure {
    let message = match &cancelled.reason {
        Some(reason) => format!("the instance was cancelled: {reason}"),
        None => "the instance was cancelled".to_owned(),
    };
    Failure::new(FailureKind::Cancelled, message)
}

/// The failure that a lost attempt is recorded with.
#[must_use]
pub fn lost_failure() -> Failure {
    Failure::new(FailureKind::WorkerLost, "the worker that ran it was lost")
}
