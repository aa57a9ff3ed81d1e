//! The journal: the ordered record of one run of an instance. An entry says what happened, never what the code looked like.

mod hooks;
mod ledger;
mod parked;
mod saga;
mod size;

use serde::{Deserialize, Serialize};

pub use self::size::attempt_bytes;
pub use self::{
    hooks::{Awaiting, HookOutcome, Received, Registered, Reply, Resuming, TakenOver},
    ledger::{Choice, Intended, KeyChoice, NotAQuestionId, QuestionId, Rekeyed, Resolved, Withdrawn},
    parked::{Changed, ParkCode, Parked},
    saga::{COMPENSATIONS_LISTED, Compensated, Compensating, Marks, Reusable, Rollback, Undone, UndoneEnd},
};
use crate::{
    Attempt, Attribute, BuildName, Call, CallHash, Epoch, EventKey, EventType, Failure, Fingerprint,
    FunctionName, Generation, InstanceId, Millis, Payload, Policy, Pool, Position, Reference, SessionId,
    StepKey, Timestamp, Token, TraceContext, WorkflowName,
    hook::{Registration, StartHook},
};

/// One entry of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its place, from 1, without gaps (rule W1).
    pub position: Position,
    /// When it was written, by the database's clock.
    pub at: Timestamp,
    /// What happened.
    pub fact: Fact,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// The first entry of each generation.
    Started(Started),
    /// One attempt of a step has ended. A step that succeeds at once is this one entry.
    Attempted(Attempted),
    /// The body made a call that waits for something.
    Opened(Opened),
    /// A sleep is over, or a retry delay of a step: the wait of this call was due.
    Fired {
        /// The call whose time has come.
        call: Call,
    },
    /// The lease ended with its holder's death (rule W11).
    Lost(Lost),
    /// The instance was parked for attention.
    Parked(Parked),
    /// A person told a parked instance to go on.
    Retried,
    /// A change of the code applies to this instance, from here on (rule P40).
    Patched(Patched),
    /// The instance has ended.
    Ended(End),
    /// An event met the wait of this call (rule P22).
    Delivered(Delivered),
    /// The body has dropped a call that waited (rule P22).
    Closed(Closed),
    /// Somebody cancelled the instance: the calls open at this entry end with it (rule P30).
    Cancelled(Cancelled),
    /// The body went on as the next generation, with this input: the last entry of its journal (rule P36).
    Continued(Payload),
    /// What a call to another instance came to (rule P36).
    Returned(Returned),
    /// The body is over, and compensations begin (rule P38).
    Compensating(Compensating),
    /// How the compensations ended (rule P39).
    Compensated(Compensated),
    /// Somebody ended the instance with a rollback (rule P38).
    Rollback(Rollback),
    /// The output of a step in an earlier run (rule L4).
    Reusable(Reusable),
    /// What came of a hook that the body created (rules H36 to H38).
    Registered(Registered),
    /// A hook was resumed, and its payload met the wait of this call (rule H41).
    Received(Received),
    /// Another instance has taken the token of a hook (rule H60).
    TakenOver(TakenOver),
    /// An attempt of a step that may not simply be called again is about to begin (rule L5).
    Intended(Intended),
    /// It never began (rule L7).
    Withdrawn(Withdrawn),
    /// A person has decided about an attempt of which nobody knows what came of it (rule L8).
    Resolved(Resolved),
    /// A person has decided under which key a step with another input goes on (rule P8).
    Rekeyed(Rekeyed),
}

/// A cancel, as the body meets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// Who said so and why, as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The instance is terminated if it has not ended by then.
    pub until: Timestamp,
    /// Whether compensations run when the body ends with the cancel (rule P38).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
}

/// The first entry of a generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// What the workflow was started with.
    pub input: Payload,
    /// 32 random bytes, from which `cx.random`, `cx.uuid` and generated tokens derive (rule W33).
    #[serde(with = "serde_bytes")]
    pub seed: [u8; 32],
    /// Which generation this journal begins.
    pub generation: Generation,
    /// The attributes that it begins with (rule P37).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
    /// The token of the hook that the instance was started with, if it still has it when this journal begins (rule H8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Token>,
    /// The trace that it belongs to, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<TraceContext>>,
}

/// The record of one ended attempt. Build, key and policy stand in every one (rules P8, L1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempted {
    /// The step.
    pub call: Call,
    /// Which attempt, from 1.
    pub attempt: Attempt,
    /// The last position the body had seen when it made the call (rule W28).
    pub called_after: Position,
    /// When the attempt began, by the database's clock less its measured length.
    pub started_at: Timestamp,
    /// The idempotency key of the step, the same for all its attempts.
    pub key: StepKey,
    /// The fingerprint of the input.
    pub input: Fingerprint,
    /// The policy, pinned by the first recorded attempt.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: Policy,
    /// The build of the worker that ran it.
    pub build: BuildName,
    /// The session that ran it.
    pub session: SessionId,
    /// How it ended.
    pub outcome: Outcome,
    /// What it told last of its progress, if another attempt follows: that is given it (rule P5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Payload>,
    /// What the code says of the step.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub marks: Marks,
    /// What its service calls what it did (rule L14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
}

fn is_default(policy: &Policy) -> bool {
    *policy == Policy::default()
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With an output: the step is complete.
    Succeeded(Payload),
    /// With a failure. `retry_at` is when the next attempt is due; none means that the step has failed for good.
    Failed {
        /// What went wrong.
        failure: Failure,
        /// When the next attempt is due.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// Nobody knows whether it took effect, and the step is not called again by itself (rule L7).
    Unknown {
        /// What is known of it.
        failure: Failure,
        /// A person is asked: the call waits for the answer. Not asked is about a call that its body has dropped.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        asks: bool,
        /// The lease under which it ran.
        epoch: Epoch,
    },
}

/// A wait that the body opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The call that waits.
    pub call: Call,
    /// The last position the body had seen when it made the call (rule W28).
    pub called_after: Position,
    /// What for.
    pub wait: Wait,
    /// The build that made the call, for one that has an input: whose code gave it that (rule P8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildName>,
}

/// The body asked whether a change applies to this instance, and no entry was written yet by code without it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Patched {
    /// The call that asked; its name is the change's.
    pub call: Call,
    /// The last position the body had seen when it made the call (rule W28).
    pub called_after: Position,
}

/// What an open call waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// For a moment.
    Sleep {
        /// When it is over.
        until: Timestamp,
    },
    /// For a step that another worker runs (rule W39).
    Remote(Remote),
    /// For an event (rule P21).
    Event {
        /// The types of which the oldest event is taken; at least one.
        types: Vec<EventType>,
        /// Only events with this key (rule P26).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<EventKey>,
        /// When the wait times out.
        until: Timestamp,
    },
    /// For a child: until it has ended, or only until it has started (rule P36).
    Child(Child),
    /// For the end of another instance (rule P36).
    #[serde(rename = "end_of")]
    Instance(Other),
    /// Until another instance has accepted an event, or refused it (rule P36).
    Send(Sending),
    /// Until it is known whether the instance has the token (rule H36).
    Hook(Registration),
    /// For the next payload of a hook that the instance has, or had (rule H41).
    Payload(Awaiting),
    /// For nothing: the request of a webhook is answered (rule H58).
    Reply(Reply),
    /// Until whoever has a token has accepted a payload, or nobody has it (rule H45).
    Resume(Resuming),
}

/// An instance that another one starts (rule P36). It is in the namespace of its parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Child {
    /// Its workflow.
    pub workflow: WorkflowName,
    /// Its id.
    pub id: InstanceId,
    /// Its input.
    pub input: Payload,
    /// The fingerprint of its input.
    pub fingerprint: Fingerprint,
    /// What ends or cancels the parent leaves it alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// The call ends as soon as the child has started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_started: bool,
    /// The token that it claims by its start (rule H28).
    #[serde(default, rename = "start_hook", skip_serializing_if = "Option::is_none")]
    pub hook: Option<StartHook>,
    /// How long it is kept after its end, whatever that is, where its workflow's rule is not to hold (rules P32, L13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_for: Option<Millis>,
    /// The trace that it goes on with, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<TraceContext>>,
}

/// Another instance, of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Other {
    /// Its workflow.
    pub workflow: WorkflowName,
    /// Its id.
    pub id: InstanceId,
}

/// An event for another instance of the same namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sending {
    /// The instance.
    pub to: Other,
    /// The event's type.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// Its correlation key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<EventKey>,
    /// What it says.
    pub payload: Payload,
    /// The fingerprint of the payload.
    pub fingerprint: Fingerprint,
}

/// What a call to another instance came to: the instance's output or how else it ended, or why it was not even asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Returned {
    /// The call.
    pub call: Call,
    /// Its outcome, which is final.
    pub outcome: Outcome,
}

/// An event as the call that waited for it got it. The match of event and wait is this entry (rule P22).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivered {
    /// The call that waited.
    pub call: Call,
    /// The event's type.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// Its number among the events of the instance, from 1, in the order in which they were accepted.
    pub sequence: u64,
    /// Its sender's id for it.
    pub id: String,
    /// Its correlation key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<EventKey>,
    /// When it was accepted.
    pub received_at: Timestamp,
    /// What it says.
    pub payload: Payload,
}

/// The wait of a call is over because the body has dropped the call: the loser of a race. An event that was delivered to it
/// after `after` was never seen, and returns to its place in line (rule P22).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// The call.
    pub call: Call,
    /// The last position that the body had seen when it dropped the call.
    pub after: Position,
    /// Of a hook that is let go: its token (rule H52).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Token>,
}

/// A step that any worker of a pool runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remote {
    /// The pool whose workers run it.
    pub pool: Pool,
    /// The registered function.
    pub function: FunctionName,
    /// Its input.
    pub input: Payload,
    /// The idempotency key, the same for all attempts.
    pub key: StepKey,
    /// The fingerprint of the input.
    pub fingerprint: Fingerprint,
    /// The policy.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: Policy,
    /// What the code says of the step.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub marks: Marks,
    /// The registered function that looks for what an earlier attempt did, before each call (rule L6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look: Option<FunctionName>,
    /// The trace of which its attempts are, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<TraceContext>>,
}

/// A lease ended by expiry. The coordinator knows no more than this; the replayer charges it to the first `slots`
/// calls that were open at this position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// How many steps the dead worker could run at once.
    pub slots: u32,
    /// Whether the loss counts as an attempt. Stops caused by us never do.
    pub counts: bool,
    /// The session that was lost.
    pub session: SessionId,
    /// What its attempts had told of their progress (rule P5).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<Progress>,
}

/// What an attempt told last of its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The step.
    pub call: CallHash,
    /// Which attempt.
    pub attempt: Attempt,
    /// What it told.
    pub told: Payload,
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The body returned a value.
    Complete(Payload),
    /// The body returned an error.
    Errored(Failure),
    /// Somebody ended it.
    Terminated {
        /// Who said so and why, as given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The body ended with the error of a cancel.
    Cancelled {
        /// Who cancelled it and why, as given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// How long an attempt ran; workers measure it, the coordinator turns it into a start time by its own clock.
pub type RanFor = Millis;

impl Attempted {
    /// When the next attempt is due; none if the step has its outcome.
    #[must_use]
    pub const fn retry_at(&self) -> Option<Timestamp> {
        match &self.outcome {
            Outcome::Succeeded(_) | Outcome::Unknown { .. } => None,
            Outcome::Failed { retry_at, .. } => *retry_at,
        }
    }

    /// Whether the call goes on: it waits for its next attempt, or for a person.
    #[must_use]
    pub const fn goes_on(&self) -> bool {
        self.retry_at().is_some() || matches!(self.outcome, Outcome::Unknown { asks: true, .. })
    }
}

impl Fact {
    /// The number that stores keep for its kind. Never changes.
    #[must_use]
    pub const fn code(&self) -> i16 {
        match self {
            Self::Started(_) => 1,
            Self::Attempted(_) => 2,
            Self::Opened(_) => 3,
            Self::Fired { .. } => 4,
            Self::Lost(_) => 5,
            Self::Parked(_) => 6,
            Self::Retried => 7,
            Self::Ended(_) => 8,
            Self::Delivered(_) => 9,
            Self::Closed(_) => 10,
            Self::Patched(_) => 14,
            Self::Cancelled(_) => 12,
            Self::Continued(_) => 21,
            Self::Returned(_) => 17,
            Self::Compensating(_) => 15,
            Self::Compensated(_) => 16,
            Self::Rollback(_) => 25,
            Self::Reusable(_) => 26,
            Self::Registered(_) => 30,
            Self::Received(_) => 31,
            Self::TakenOver(_) => 32,
            Self::Intended(_) => 40,
            Self::Withdrawn(_) => 41,
            Self::Resolved(_) => 42,
            Self::Rekeyed(_) => 43,
        }
    }

    /// The word shown to people.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Started(_) => "started",
            Self::Attempted(_) => "attempted",
            Self::Opened(_) => "opened",
            Self::Fired { .. } => "fired",
            Self::Lost(_) => "lost",
            Self::Parked(_) => "parked",
            Self::Retried => "retried",
            Self::Ended(_) => "ended",
            Self::Delivered(_) => "delivered",
            Self::Closed(_) => "closed",
            Self::Patched(_) => "patched",
            Self::Cancelled(_) => "cancelled",
            Self::Continued(_) => "continued",
            Self::Returned(_) => "returned",
            Self::Compensating(_) => "compensating",
            Self::Compensated(_) => "compensated",
            Self::Rollback(_) => "rollback",
            Self::Reusable(_) => "reusable",
            Self::Registered(_) => "registered",
            Self::Received(_) => "received",
            Self::TakenOver(_) => "taken_over",
            Self::Intended(_) => "intended",
            Self::Withdrawn(_) => "withdrawn",
            Self::Resolved(_) => "resolved",
            Self::Rekeyed(_) => "rekeyed",
        }
    }

    /// The call that it is about, if any.
    #[must_use]
    pub const fn call(&self) -> Option<&Call> {
        match self {
            Self::Attempted(attempted) => Some(&attempted.call),
            Self::Opened(opened) => Some(&opened.call),
            Self::Fired { call } => Some(call),
            Self::Delivered(delivered) => Some(&delivered.call),
            Self::Closed(closed) => Some(&closed.call),
            Self::Patched(patched) => Some(&patched.call),
            Self::Returned(returned) => Some(&returned.call),
            Self::Registered(registered) => Some(&registered.call),
            Self::Received(received) => Some(&received.call),
            Self::Compensating(compensating) => Some(&compensating.call),
            Self::Intended(intended) => Some(&intended.call),
            Self::Withdrawn(withdrawn) => Some(&withdrawn.call),
            Self::Resolved(resolved) => Some(&resolved.call),
            Self::Rekeyed(rekeyed) => Some(&rekeyed.call),
            // What an earlier run called is no call of this one.
            Self::Reusable(_)
            | Self::TakenOver(_)
            | Self::Compensated(_)
            | Self::Rollback(_)
            | Self::Started(_)
            | Self::Lost(_)
            | Self::Parked(_)
            | Self::Retried
            | Self::Cancelled(_)
            | Self::Continued(_)
            | Self::Ended(_) => None,
        }
    }
}
