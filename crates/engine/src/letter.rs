//! What instances do to each other (rules P36, W22): a decision never touches another head. It writes a letter, in the same
//! transaction, and the letter is an input of its own afterwards: taken once, by any coordinator, also after a crash between.
//!
//! | letter | who writes it | what its addressee does |
//! | --- | --- | --- |
//! | start | a call of a child | comes to be, or exists, or refuses |
//! | watch | a call that waits for an end; a start that met somebody | tells how it has ended, now or then |
//! | event | a call that sends | takes the event like any other |
//! | resume | a call that resumes a hook | takes the payload, or says that the token has moved: then it stays, for whoever has it |
//! | returned | the addressee of one of those above | ends the call |
//! | claim | a call that claims a token by force | moves the token, or says that it has it no more |
//! | claimed | the addressee of that | has it, or looks again |
//! | terminate, cancel | a parent that is ended, cancelled or run again, or that drops the call | is ended or cancelled |
//!
//! A letter whose addressee does not exist goes back as the failure of its call.

use everstep_protocol::{
    CallHash, Failure, FailureKind, InstanceId, InstanceUid, Millis, Namespace, Payload, Run, WorkflowName,
    hook::{HOOK_CONFLICT, HOOK_NOT_FOUND},
    journal::{Child, End, Other, Outcome},
};
use serde::{Deserialize, Serialize};

use crate::{
    head::Head,
    hook::{Claim, SentPayload},
    mailbox::SentEvent,
    start::NameKey,
};

/// How long a child may take to end by itself after a cancel that came of a dropped call.
pub const CANCEL_WITHIN: Millis = Millis::from_secs(300);
/// How many children in a row may have been started by each other, attached, below an instance that was not: code that starts itself
/// without end is stopped there.
pub const DEPTH_MAX: u32 = 100;
/// An instance, by its workflow and id, that does not exist.
pub const NOT_FOUND: &str = "InstanceNotFound";
/// An instance of that id exists with another input.
pub const CONFLICT: &str = "InstanceConflict";
/// The instance had ended before the event came.
pub const ENDED: &str = "InstanceEnded";
/// The instance was terminated.
pub const TERMINATED: &str = "InstanceTerminated";
/// The instance was cancelled, and ended with it.
pub const CANCELLED: &str = "InstanceCancelled";
/// The instance has as many unread events as it may.
pub const MAILBOX_FULL: &str = "MailboxFull";
/// The payload does not fit the hook that has the token.
pub const PAYLOAD_MISFIT: &str = "PayloadMisfit";
/// The instance has another event of this id.
pub const EVENT_ID_TAKEN: &str = "EventIdTaken";

/// A call of an instance, as another one knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Caller {
    /// The instance.
    pub uid: InstanceUid,
    /// The run that made the call: an earlier one hears nothing any more.
    pub run: Run,
    /// The call.
    pub call: CallHash,
}

/// To whom a letter goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// To this instance.
    Instance(InstanceUid),
    /// To whoever bears this name when the letter is delivered.
    Name(NameKey),
    /// To whoever has the token that it names when it is delivered: who that is only its carrier looks up.
    Token,
}

/// A letter to write.
#[derive(Clone, Debug, PartialEq)]
pub struct NewLetter {
    /// To whom it goes.
    pub to: Address,
    /// The call that it is about: of the addressee where it says what came of it, else of the sender.
    pub caller: Caller,
    /// What it says.
    pub said: Said,
}

/// A letter that was written and is to be taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// Its number among all letters.
    pub number: u64,
    /// See [`NewLetter::caller`].
    pub caller: Caller,
    /// What it says.
    pub said: Said,
}

/// What a letter says. Stores keep it as it is written here: fields are only added, with a default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "letters are few and short-lived")]
pub enum Said {
    /// Come to be.
    Start {
        /// What is to be started.
        child: Child,
        /// Who starts it, for people.
        parent: Other,
        /// How many attached children in a row it is the last of.
        #[serde(default, skip_serializing_if = "is_zero")]
        depth: u32,
    },
    /// Tell how you end.
    Watch,
    /// Take this event.
    Event(SentEvent),
    /// What came of the call.
    Returned {
        /// Its outcome.
        outcome: Outcome,
        /// The instance that the call is about has ended, or never was the caller's.
        over: bool,
    },
    /// End.
    Terminate {
        /// Who says so and why.
        reason: Option<String>,
    },
    /// End by yourself.
    Cancel {
        /// Who says so and why.
        reason: Option<String>,
        /// How long it may take.
        within: Millis,
    },
    /// Take this payload for your hook (rule H45).
    Resume {
        /// The sender's namespace, in which the token is looked up.
        namespace: Namespace,
        /// The payload. Whoever carries the letter says which hook had the token.
        sent: SentPayload,
    },
    /// Give me this token (rule H59).
    Claim(Claim),
    /// What came of that: it is yours, taken from this one; or it was not mine to give, look again.
    Claimed {
        /// What was asked for.
        claim: Claim,
        /// Who had it.
        from: Option<Other>,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(depth: &u32) -> bool {
    *depth == 0
}

impl Said {
    /// How deep a child is that it starts.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        match self {
            Self::Start { depth, .. } => *depth,
            Self::Watch
            | Self::Event(_)
            | Self::Resume { .. }
            | Self::Returned { .. }
            | Self::Terminate { .. }
            | Self::Cancel { .. }
            | Self::Claim(_)
            | Self::Claimed { .. } => 0,
        }
    }

    /// The number that stores keep for its kind. Never changes.
    #[must_use]
    pub const fn code(&self) -> i16 {
        match self {
            Self::Start { .. } => 1,
            Self::Watch => 2,
            Self::Event(_) => 3,
            Self::Returned { .. } => 4,
            Self::Terminate { .. } => 5,
            Self::Cancel { .. } => 6,
            Self::Claim(_) => 7,
            Self::Claimed { .. } => 8,
            Self::Resume { .. } => 9,
        }
    }

    /// Whether it is answered with [`Returned`](Self::Returned), for which a call waits.
    #[must_use]
    pub const fn is_asked(&self) -> bool {
        match self {
            Self::Start { .. } | Self::Watch | Self::Event(_) | Self::Resume { .. } => true,
            // The answer to a claim is another.
            Self::Returned { .. }
            | Self::Terminate { .. }
            | Self::Cancel { .. }
            | Self::Claim(_)
            | Self::Claimed { .. } => false,
        }
    }
}

/// A letter to the same ends for all children of an instance that are attached to it and may still be open, or for that of one
/// call. Which they are no decision reads, since their number grows with the instance (rule W21).
#[derive(Clone, Debug, PartialEq)]
pub struct Cascade {
    /// The run that started them: a restart has ended those of an earlier one, and a generation leaves its own alone, as an
    /// end does.
    pub run: Run,
    /// The child of this call; all if none.
    pub call: Option<CallHash>,
    /// What the letters say.
    pub said: Said,
}

/// A child of an instance, for as long as the instance is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildRow {
    /// The call that started it.
    pub call: CallHash,
    /// The run that made the call.
    pub run: Run,
    /// The child.
    pub name: NameKey,
    /// What ends or cancels the parent leaves it alone.
    pub detached: bool,
}

/// The parent of an instance, for as long as the instance is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentRow {
    /// The call that started it.
    pub caller: Caller,
    /// The parent, for people.
    pub name: Other,
    /// What ends or cancels the parent leaves it alone.
    pub detached: bool,
    /// How many attached children in a row the instance is the last of.
    pub depth: u32,
}

/// What a call that waits for the end of an instance gets.
#[must_use]
pub fn outcome(head: &Head, end: &End) -> Outcome {
    match end {
        End::Complete(output) => Outcome::Succeeded(output.clone()),
        End::Errored(failure) => failed(as_the_callers(failure)),
        End::Terminated { reason } => failed(over(TERMINATED, "was terminated", head, reason.as_ref())),
        End::Cancelled { reason } => failed(over(CANCELLED, "was cancelled", head, reason.as_ref())),
    }
}

/// The answer to a start that only wants to know that there is an instance now, and to a resume: which one.
#[must_use]
pub fn started(name: &NameKey) -> Outcome {
    Outcome::Succeeded(name_text(&name.workflow, &name.id))
}

fn name_text(workflow: &WorkflowName, id: &InstanceId) -> Payload {
    // Neither name has a character that JSON would escape.
    Payload::from_trusted(format!(r#"{{"workflow":"{workflow}","id":"{id}"}}"#))
}

/// The failure of a call to an instance that does not exist.
#[must_use]
pub fn not_found(workflow: &WorkflowName, id: &InstanceId) -> Failure {
    refusal(NOT_FOUND, format!("there is no instance {id} of workflow {workflow}"))
}

/// The same, of one that was deleted while the letter was under way.
#[must_use]
pub fn gone() -> Failure {
    refusal(NOT_FOUND, "the instance was deleted".to_owned())
}

/// The same, of one whose decision about the letter failed.
#[must_use]
pub fn undeliverable() -> Failure {
    refusal("Undeliverable", "the call could not be decided, which is a bug of the engine".to_owned())
}

/// The failure of a start that met an instance with another input.
#[must_use]
pub fn conflict(name: &NameKey) -> Failure {
    let NameKey { workflow, id, .. } = name;
    refusal(
        CONFLICT,
        format!("instance {id} of workflow {workflow} exists with another input; nothing was started"),
    )
}

/// The failure of a start whose token another instance has (rule H32).
#[must_use]
pub fn held(owner: &Other) -> Failure {
    let Other { workflow, id } = owner;
    let message = format!("instance {id} of workflow {workflow} has the token; nothing was started");
    Failure { data: Some(name_text(workflow, id)), ..refusal(HOOK_CONFLICT, message) }
}

/// The failure of a resume of a token that nobody has, or only by a retention (rules H46, H50).
#[must_use]
pub fn nobody() -> Failure {
    let message = "no open instance has a hook with this token; the payload was not kept";
    refusal(HOOK_NOT_FOUND, message.to_owned())
}

/// The failure of a call by which an instance would wait for itself.
#[must_use]
pub fn itself(what: &str) -> Failure {
    Failure::new(FailureKind::Invalid, format!("an instance cannot {what} itself: it would wait for ever"))
}

/// A failure under this name, which no retry could change.
#[must_use]
pub fn refusal(name: &str, message: String) -> Failure {
    Failure { name: name.to_owned(), permanent: true, ..Failure::new(FailureKind::Error, message) }
}

/// The outcome of a call that failed.
#[must_use]
pub const fn failed(failure: Failure) -> Outcome {
    Outcome::Failed { failure, retry_at: None }
}

/// The name of another instance of this one's namespace.
#[must_use]
pub fn named(namespace: &Namespace, other: &Other) -> NameKey {
    NameKey { namespace: namespace.clone(), workflow: other.workflow.clone(), id: other.id.clone() }
}

fn over(name: &str, what: &str, head: &Head, reason: Option<&String>) -> Failure {
    let because = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    refusal(name, format!("instance {} of workflow {} {what}{because}", head.id, head.workflow))
}

/// The cancel of another instance is not the caller's own: handed on, it must not end the caller as cancelled (rule P30).
fn as_the_callers(failure: &Failure) -> Failure {
    let mut failure = failure.clone();
    if failure.kind == FailureKind::Cancelled {
        failure.kind = FailureKind::Error;
    }
    failure
}
