//! A call: one use of step, sleep or wait by a workflow's body.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::CallName;

/// What a call asks for. Kinds never collide: a step "a" and a sleep "a" are different calls (rule P2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// A step, inline or remote.
    Step,
    /// A sleep.
    Sleep,
    /// A wait for an event.
    Event,
    /// A hook.
    Hook,
    /// A child instance.
    Child,
    /// One action of a plan.
    Action,
    /// A compensation.
    Compensation,
    /// A question whether a change of the code applies (rule P40).
    Patch,
    /// A wait for the end of another instance.
    Instance,
    /// An event for another instance.
    Send,
    /// The beginning of compensations (rule P38).
    Rollback,
    /// A wait for what a hook is resumed with.
    Payload,
    /// What a webhook answers.
    Reply,
    /// A payload for the hook of another instance.
    Resume,
}

crate::every! {
    /// Every kind.
    pub CallKind: Step, Sleep, Event, Hook, Child, Action, Compensation, Patch, Instance, Send, Rollback, Payload,
    Reply, Resume
}

impl CallKind {
    /// The word that goes into idempotency keys (rule L1) and views. Never changes.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Sleep => "sleep",
            Self::Event => "event",
            Self::Hook => "hook",
            Self::Child => "child",
            Self::Action => "action",
            Self::Compensation => "compensation",
            Self::Patch => "patch",
            Self::Instance => "instance",
            Self::Send => "send",
            Self::Rollback => "rollback",
            Self::Payload => "payload",
            Self::Reply => "reply",
            Self::Resume => "resume",
        }
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The identity of a call within a journal: kind, name, and its count among calls of that kind and name, from 1,
/// taken in program order when the call is made (rule W32).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Call {
    /// What it asks for.
    pub kind: CallKind,
    /// The name that the workflow's author gave it.
    pub name: CallName,
    /// Its count among calls of this kind and name, from 1.
    pub count: u32,
}

impl Call {
    /// The 16 bytes by which stores index a call (rule W24). Never changes.
    #[must_use]
    pub fn hash(&self) -> CallHash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.kind.word().as_bytes());
        hasher.update(&[0]);
        hasher.update(&self.count.to_le_bytes());
        hasher.update(self.name.as_ref().as_bytes());
        let mut hash = [0; 16];
        hash.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        CallHash(hash)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\" #{}", self.kind, self.name, self.count)
    }
}

/// See [`Call::hash`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallHash(#[serde(with = "serde_bytes")] pub [u8; 16]);
