//! What drives a workflow's body: for the worker and the test kit, not for workflow code.
//!
//! A [`Host`] polls one body and feeds it outcomes. It knows nothing of journals, leases or retries: it reports which
//! calls began and which were dropped, and hands on what it is told. It never blocks and spawns nothing.
//!
//! ```
//! use everstep_protocol::{Generation, InstanceUid, Position, Run, Timestamp};
//! use everstep_sdk::host::{BodyState, Host, InstanceInfo, Payload, begin};
//! use everstep_sdk::{Error, Workflow};
//!
//! let host = Host::new(
//!     InstanceInfo {
//!         namespace: "default".parse().unwrap(),
//!         workflow: "nap".parse().unwrap(),
//!         id: "nap-1".parse().unwrap(),
//!         uid: InstanceUid::generate(),
//!         run: Run(1),
//!         generation: Generation(1),
//!     },
//!     [7; 32],
//! );
//! let mut body = begin("nap", host.workflow(), &Payload::null(), |cx: Workflow, (): ()| async move {
//!     cx.sleep("nap", "1 hour").await?;
//!     Ok::<_, Error>("rested")
//! });
//! let polled = host.poll(&mut body, Position(1), Timestamp(0));
//! assert_eq!(polled.made[0].call.to_string(), "sleep \"nap\" #1");
//!
//! assert!(host.resolve(polled.made[0].number, Ok(Payload::null())));
//! let polled = host.poll(&mut body, Position(2), Timestamp(3_600_000_000));
//! assert!(matches!(polled.state, BodyState::Done(Ok(_))));
//! ```
//!
//! Invariants: the context answers only inside [`Host::poll`] (rule W30); a drop is reported only from inside a poll
//! (rule W29); calls of one poll are reported in the order of their numbers (rule W32).

mod body;
mod hooks;
mod rollback;
mod spec;
mod state;
mod turn;
mod wake;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use everstep_protocol::{
    Attribute, Call, Failure, Generation, InstanceId, InstanceUid, Namespace, Position, Run, Timestamp,
    Token, WorkflowName,
    journal::{Delivered, HookOutcome, Undone},
};

pub use crate::definition::{Definition, RemoteFunction};
pub use crate::error::with_sources;
pub use crate::registry::{Registry, RegistryError};
pub use crate::step::{CancelHandle, ProgressSink, StepInfo};
pub use crate::workflow::Workflow;
pub use body::{LookFn, begin, look_first, look_of};
pub use everstep_protocol::Payload;
pub use spec::{
    ChildSpec, DelayFn, EventSpec, Made, RemoteSpec, ResumeSpec, SendSpec, Spec, StepFn, StepSpec,
};

pub(crate) use body::{look_fn, step_fn};
pub(crate) use hooks::{Created, Standing};
pub(crate) use state::{Numbered, Output, Shared, Slot};
use turn::{Act, Turn};

/// A body that wakes itself this often without becoming still is reported as spinning.
const ROUNDS_MAX: u32 = 10_000;

/// The future of one workflow body, what it returns encoded.
pub type Body = Pin<Box<dyn Future<Output = Result<Returned, Failure>> + Send>>;

/// What a body returned without an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Returned {
    /// The instance is complete, with this output.
    Done(Payload),
    /// It goes on as its next generation, with this input (rule P36).
    Again(Payload),
}

/// Which instance a body runs for.
#[derive(Clone, Debug)]
pub struct InstanceInfo {
    /// Its namespace.
    pub namespace: Namespace,
    /// The workflow's name.
    pub workflow: WorkflowName,
    /// The id its starter chose.
    pub id: InstanceId,
    /// The internal id.
    pub uid: InstanceUid,
    /// Which journal of the instance.
    pub run: Run,
    /// Which generation.
    pub generation: Generation,
}

/// Drives one body. Clones drive the same one.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
}

/// What one poll of the body brought.
#[derive(Debug)]
pub struct Polled {
    /// The calls that began in this poll, by number.
    pub made: Vec<Made>,
    /// The calls without an outcome that the body dropped in this poll, by number: the losers of races. A call may
    /// have begun in the same poll; it then stands in `made` too.
    pub dropped: Vec<u64>,
    /// Calls that the body dropped with an event that it had not looked at, each with the position of the entry that brought
    /// it: to the body it never came (rule P22).
    pub untaken: Vec<(Call, Position)>,
    /// Hooks that the body has and lets go, in that order, each with the number of the call that created it, the call and the
    /// token. One that it drops before it knows what came of it stands in `dropped`.
    pub let_go: Vec<(u64, Call, Token)>,
    /// The state that the body has published last in this poll (rule P37).
    pub published: Option<Payload>,
    /// The attributes that it has set or removed.
    pub attributes: Vec<Attribute>,
    /// What the body does now.
    pub state: BodyState,
}

/// What a body does after a poll.
#[derive(Debug)]
pub enum BodyState {
    /// It waits for one of its calls.
    Pending,
    /// It has ended; it must not be polled again.
    Done(Result<Payload, Failure>),
    /// It goes on as new, with this input; it must not be polled again (rule P36).
    Again(Payload),
    /// It has panicked, with this message; it must not be polled again (rule W34).
    Panicked(String),
    /// It asks for a recorded output in a type that this one does not fit; it must not be polled again (rule P41).
    Misfit(Misfit),
    /// It waits, and something other than one of its calls has woken it: a timer, a spawned task (rule W30).
    Foreign,
    /// It woke itself 10,000 times in one poll without becoming still.
    Spinning,
}

/// A recorded output that does not fit the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The entry that gave it.
    pub position: Position,
    /// Names the call, and what does not fit.
    pub reason: String,
}

impl Host {
    /// A host for a body that has not been polled yet. The seed is the generation's own (rule W33).
    #[must_use]
    pub fn new(info: InstanceInfo, seed: [u8; 32]) -> Self {
        Self { shared: Arc::new(Shared::new(info, seed)) }
    }

    /// The context to hand to the body.
    #[must_use]
    pub fn workflow(&self) -> Workflow {
        Workflow::new(self.shared.clone())
    }

    /// Polls the body until it is still. `seen` is the position of the last entry fed, `now` its time.
    pub fn poll(&self, body: &mut Body, seen: Position, now: Timestamp) -> Polled {
        self.shared.lock().see(seen, now);
        let state = self.poll_until_still(body);
        if !matches!(state, BodyState::Pending | BodyState::Foreign | BodyState::Spinning) {
            self.shared.waker.close();
        }
        let (mut made, mut dropped, mut untaken, mut let_go, (published, attributes)) = {
            let mut state = self.shared.lock();
            let let_go = std::mem::take(&mut state.hooks.let_go);
            let untaken = std::mem::take(&mut state.untaken);
            let shown = state.shown.take();
            (std::mem::take(&mut state.made), std::mem::take(&mut state.dropped), untaken, let_go, shown)
        };
        if matches!(state, BodyState::Panicked(_) | BodyState::Misfit(_)) {
            // What unwinding dropped, or the body without its outcome, the body did not drop.
            dropped.clear();
            untaken.clear();
            let_go.clear();
        }
        made.sort_by_key(|made| made.number);
        dropped.sort_unstable();
        Polled { made, dropped, untaken, let_go, published, attributes, state }
    }

    fn poll_until_still(&self, body: &mut Body) -> BodyState {
        let waker = Waker::from(self.shared.waker.clone());
        let mut context = Context::from_waker(&waker);
        for _ in 0..ROUNDS_MAX {
            // Asked before the poll: what woke the body while it was fed is answered by this round.
            self.shared.waker.take_own_wake();
            let polled = self.poll_once(body, &mut context);
            // Whatever the body made of not getting its outcome means nothing.
            if let Some(misfit) = self.shared.lock().misfit.take() {
                return BodyState::Misfit(misfit);
            }
            match polled {
                Ok(Poll::Ready(Ok(Returned::Again(input)))) => return BodyState::Again(input),
                Ok(Poll::Ready(Ok(Returned::Done(output)))) => return BodyState::Done(Ok(output)),
                Ok(Poll::Ready(Err(failure))) => return BodyState::Done(Err(failure)),
                Err(message) => return BodyState::Panicked(message),
                Ok(Poll::Pending) if self.foreign_wake() => return BodyState::Foreign,
                Ok(Poll::Pending) if self.shared.waker.take_own_wake() => {}
                Ok(Poll::Pending) => return BodyState::Pending,
            }
        }
        BodyState::Spinning
    }

    fn poll_once(
        &self,
        body: &mut Body,
        context: &mut Context<'_>,
    ) -> Result<Poll<Result<Returned, Failure>>, String> {
        let _turn = Turn::begin(self.shared.token, Act::Poll);
        // Without this, tokio's budget would make `select!` yield by a wake from outside the poll.
        let mut body = tokio::task::unconstrained(body.as_mut());
        catch_unwind(AssertUnwindSafe(|| Pin::new(&mut body).poll(context)))
            .map_err(|panic| panic_message(panic.as_ref()))
    }

    /// Feeds the outcome of one call and wakes what waits for it; poll afterwards. False if the call never began, has
    /// its outcome already or is gone.
    pub fn resolve(&self, number: u64, result: Result<Payload, Failure>) -> bool {
        self.feed(number, result.map(|payload| Output { payload, event: None }))
    }

    /// Feeds the event that a call waits for; otherwise like [`resolve`](Self::resolve).
    pub fn deliver(&self, number: u64, event: Delivered) -> bool {
        let payload = event.payload.clone();
        self.feed(number, Ok(Output { payload, event: Some(Arc::new(event)) }))
    }

    /// Feeds what came of the hook that a call created; otherwise like [`resolve`](Self::resolve).
    pub fn registered(&self, number: u64, outcome: HookOutcome) -> bool {
        self.wake(self.shared.registered(number, Ok(outcome)))
    }

    /// A hook that the body has let go is on record as free.
    pub fn released(&self, number: u64) -> bool {
        self.wake(self.shared.released(number))
    }

    fn wake(&self, wakers: Option<Vec<Waker>>) -> bool {
        let Some(wakers) = wakers else { return false };
        let _turn = Turn::begin(self.shared.token, Act::Tend);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// The instance was started with a hook of this token, and still has it.
    pub fn begin_with_hook(&self, token: Option<Token>) {
        self.shared.lock().hooks.start = token;
    }

    /// The token of that hook, unless the body has let it go.
    #[must_use]
    pub fn start_hook(&self) -> Option<Token> {
        self.shared.lock().hooks.start.clone()
    }

    fn feed(&self, number: u64, result: Result<Output, Failure>) -> bool {
        let waker = {
            let mut guard = self.shared.lock();
            let state = &mut *guard;
            match state.open.get_mut(&number) {
                Some(slot @ Slot::Waiting(_)) => {
                    state.saga.ended(number, result.as_ref().map(|output| &output.payload));
                    let before = std::mem::replace(slot, Slot::Resolved(result, Position(0)));
                    state.fed.push(number);
                    match before {
                        Slot::Waiting(waker) => waker,
                        Slot::Resolved(..) => return false,
                    }
                }
                Some(Slot::Resolved(..)) => return false,
                // A hook that is not known yet may end with a cancel like every open call.
                None => {
                    let Err(failure) = result else { return false };
                    drop(guard);
                    return self.wake(self.shared.registered(number, Err(failure)));
                }
            }
        };
        let _turn = Turn::begin(self.shared.token, Act::Tend);
        waker.wake();
        true
    }

    /// The instance was cancelled (rule P30): the body is told when it asks. The calls that end with it are resolved apart.
    pub fn cancel(&self) {
        self.shared.lock().cancelled = true;
    }

    /// Should the body end with the cancel, its compensations run all the same (rule P38).
    pub fn roll_back_on_cancel(&self) {
        self.shared.lock().saga.on_cancel = true;
    }

    /// The body is to be thrown away where it stands, and its compensations begin: at the next poll (rule P38). Nothing changes
    /// if they have begun already.
    pub fn interrupt(&self) {
        self.shared.lock().saga.interrupted = true;
    }

    /// How the compensations ended; none if none have run, or not all yet (rule P39).
    #[must_use]
    pub fn undone(&self) -> Option<Vec<Undone>> {
        self.shared.lock().saga.over.clone()
    }

    /// Throws the body away. Nothing it drops, and nothing woken by that, means anything (rule W29). A panic of a
    /// destructor stays in here.
    pub fn discard(&self, body: Body) {
        self.shared.waker.close();
        let compensations = self.shared.lock().saga.take();
        let _turn = Turn::begin(self.shared.token, Act::Tend);
        // What they hold is the user's, and must not be dropped later, where a panic would be the worker's own.
        for dropped in [catch_drop(body), catch_drop(compensations)] {
            // What it said is the user's, and may repeat a payload; the panic hook has written it.
            if dropped.is_err() {
                tracing::warn!(instance = %self.shared.info.id, "a destructor of the workflow's body panicked");
            }
        }
    }

    /// The most bytes of JSON that a generation may begin with: a body that asks for more fails (rule P4). Default: that of
    /// [`Limits`](everstep_protocol::limits::Limits).
    pub fn limit_input(&self, bytes: u64) {
        self.shared.limit_input(bytes);
    }

    /// Whether the user's function was thrown away by [`interrupt`](Self::interrupt): one that had ended before was not.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.shared.lock().saga.thrown_away
    }

    /// The attributes that the instance has before its first poll.
    pub fn begin_with(&self, attributes: &[Attribute]) {
        let set = attributes
            .iter()
            .filter_map(|attribute| Some((attribute.name.clone(), attribute.value.clone()?)));
        self.shared.lock().shown.attributes.extend(set);
    }

    /// All attributes of the instance, as the body has set them.
    #[must_use]
    pub fn attributes(&self) -> Vec<Attribute> {
        self.shared.lock().shown.all()
    }

    /// The random bytes of the generation that follows this one (rule W33): as hard to guess as its own.
    #[must_use]
    pub fn next_seed(&self) -> [u8; 32] {
        *blake3::Hasher::new_keyed(&self.shared.seed).update(b"generation").finalize().as_bytes()
    }

    /// Whether something woke the body outside every poll and every feed: a timer, a spawned task (rule W30). Stays
    /// true: what such a body did next could not be replayed.
    #[must_use]
    pub fn foreign_wake(&self) -> bool {
        self.shared.waker.foreign()
    }

    /// Has this called at the first foreign wake, from whatever thread wakes; at once if there was one already. It
    /// may be called twice.
    pub fn on_foreign_wake(&self, listener: Box<dyn Fn() + Send + Sync>) {
        self.shared.waker.listen(listener);
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("info", &self.shared.info).finish_non_exhaustive()
    }
}

/// Drops something of the user's; an error says how that panicked.
fn catch_drop<T>(dropped: T) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| drop(dropped))).map_err(|panic| panic_message(panic.as_ref()))
}

/// What a panic says, as it is recorded.
#[must_use]
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}
