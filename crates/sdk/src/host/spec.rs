//! What a call asks the host to do.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use everstep_protocol::{
    Attempt, Call, EventKey, EventType, Failure, FunctionName, InstanceId, Millis, Payload, Policy, Pool,
    Position, Timestamp, Token, WorkflowName,
    hook::{Registration, StartHook},
    journal::{Awaiting, Marks, Other, Reply},
};

use crate::Step;

/// One attempt of a step: decodes the input, runs the function, encodes the output. Panics are the caller's to catch.
pub type StepFn =
    Arc<dyn Fn(Step) -> Pin<Box<dyn Future<Output = Result<Payload, Failure>> + Send>> + Send + Sync>;

/// Computes the delay before the next attempt; none means the policy's own. It may panic (rule P12): the caller
/// catches that, uses the policy's own delay and records the fact.
pub type DelayFn = Arc<dyn Fn(Attempt, &Failure) -> Option<Millis> + Send + Sync>;

/// A call that has begun.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its number among all calls of this body, from 0, taken when it was made.
    pub number: u64,
    /// Its identity in the journal.
    pub call: Call,
    /// What the body had seen when it made the call, not when the call began (rule W28).
    pub called_after: Position,
    /// What it asks for.
    pub spec: Spec,
}

/// What a call asks for.
#[derive(Clone, Debug)]
pub enum Spec {
    /// Run a step in this worker.
    Step(StepSpec),
    /// Have a step run by a pool.
    Remote(RemoteSpec),
    /// Sleep for so long.
    Sleep(Millis),
    /// Sleep until that moment.
    SleepUntil(Timestamp),
    /// Say whether the change that the call names applies: a `bool` (rule P40).
    Patch,
    /// Wait for an event.
    Event(EventSpec),
    /// Start another instance, and wait for it.
    Child(ChildSpec),
    /// Wait for the end of another instance.
    Instance(Other),
    /// Send an event to another instance.
    Send(SendSpec),
    /// Resume the hook of whoever has a token.
    Resume(ResumeSpec),
    /// Have the token of a hook. The call has no outcome but [`Host::registered`](super::Host::registered).
    Hook(Registration),
    /// Wait for the next payload of a hook.
    Payload(Awaiting),
    /// Answer the request of a webhook.
    Reply(Reply),
    /// Record that the body is over and that its compensations begin (rule P38).
    Rollback {
        /// What it ended with; none if somebody asked for the rollback.
        failure: Option<Failure>,
        /// How many there are to run.
        steps: u64,
    },
}

/// A child.
#[derive(Clone, Debug)]
pub struct ChildSpec {
    /// Its workflow.
    pub workflow: WorkflowName,
    /// Its id.
    pub id: InstanceId,
    /// Its input.
    pub input: Payload,
    /// What ends or cancels the parent leaves it alone.
    pub detached: bool,
    /// The call ends as soon as the child has started.
    pub only_started: bool,
    /// The token that it claims by its start.
    pub hook: Option<StartHook>,
    /// How long it is kept after its end; its workflow's rule if none.
    pub keep_for: Option<Millis>,
}

/// A payload for the hook of another instance.
#[derive(Clone, Debug)]
pub struct ResumeSpec {
    /// The token.
    pub token: Token,
    /// What the hook is resumed with.
    pub payload: Payload,
}

/// An event for another instance.
#[derive(Clone, Debug)]
pub struct SendSpec {
    /// The instance.
    pub to: Other,
    /// The event's type.
    pub kind: EventType,
    /// Its correlation key.
    pub key: Option<EventKey>,
    /// What it says.
    pub payload: Payload,
}

/// A wait for an event.
#[derive(Clone, Debug)]
pub struct EventSpec {
    /// The types of which the oldest event is taken; at least one.
    pub types: Vec<EventType>,
    /// Only events with this key.
    pub key: Option<EventKey>,
    /// How long it waits.
    pub timeout: Millis,
}

/// A step that runs in this worker.
#[derive(Clone)]
pub struct StepSpec {
    /// Its input.
    pub input: Payload,
    /// Of an action of a plan: what its key and fingerprint are made of in place of the input (rule L10).
    pub action: Option<Payload>,
    /// The resolved policy.
    pub policy: Policy,
    /// The delay function, if the code gives one.
    pub delay: Option<DelayFn>,
    /// Runs one attempt.
    pub run: StepFn,
    /// What else the code says of it.
    pub marks: Marks,
}

/// A step that any worker of a pool runs.
#[derive(Clone, Debug)]
pub struct RemoteSpec {
    /// The registered function.
    pub function: FunctionName,
    /// The pool.
    pub pool: Pool,
    /// Its input.
    pub input: Payload,
    /// As of a [`StepSpec`].
    pub action: Option<Payload>,
    /// The resolved policy.
    pub policy: Policy,
    /// The registered function that looks before each call (rule L6).
    pub look: Option<FunctionName>,
    /// What else the code says of it.
    pub marks: Marks,
}

/// What steps have in common, wherever they run.
struct AnyStep<'a> {
    input: &'a Payload,
    action: Option<&'a Payload>,
    marks: Marks,
}

impl Spec {
    const fn step(&self) -> Option<AnyStep<'_>> {
        Some(match self {
            Self::Step(StepSpec { input, action, marks, .. })
            | Self::Remote(RemoteSpec { input, action, marks, .. }) => {
                AnyStep { input, action: action.as_ref(), marks: *marks }
            }
            Self::Sleep(_)
            | Self::SleepUntil(_)
            | Self::Patch
            | Self::Event(_)
            | Self::Child(_)
            | Self::Instance(_)
            | Self::Send(_)
            | Self::Resume(_)
            | Self::Hook(_)
            | Self::Payload(_)
            | Self::Reply(_)
            | Self::Rollback { .. } => return None,
        })
    }

    /// The input of a step.
    pub(crate) fn input(&self) -> Option<&Payload> {
        self.step().map(|step| step.input)
    }

    /// Of an action of a plan: what its key and fingerprint are made of in place of the input (rule L10).
    #[must_use]
    pub fn action(&self) -> Option<&Payload> {
        self.step()?.action
    }

    /// What the code says of a step beside its policy.
    #[must_use]
    pub fn marks(&self) -> Marks {
        self.step().map_or_else(Marks::default, |step| step.marks)
    }
}

impl fmt::Debug for StepSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepSpec").field("policy", &self.policy).finish_non_exhaustive()
    }
}
