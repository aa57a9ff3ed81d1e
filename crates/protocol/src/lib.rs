//! What coordinators, workers and producers must agree on, and nothing else: identities, durations, payloads, journal
//! entries, message envelopes, names of queues. Everything here is a compatibility promise: old and new binaries run
//! side by side, so fields are added with a default, never renamed, and unknown ones are ignored (rule W25).
//!
//! No I/O, no clock, no async. The engine decides with these types, the store writes them, the broker carries them.

pub mod access;
pub mod attribute;
pub mod call;
mod child;
#[doc(hidden)]
pub mod crash;
pub mod duration;
pub mod event;
mod every;
pub mod failure;
pub mod hook;
pub mod id;
pub mod journal;
pub mod key;
pub mod limits;
pub mod message;
pub mod name;
pub mod payload;
pub mod pin;
mod planted;
pub mod policy;
mod schema;
pub mod start;
pub mod topology;
pub mod trace;
mod webhook;
pub mod wire;

pub use access::{AccessError, AccessHash, AccessToken, AccessTokenId, Role, Scope};
pub use attribute::{Attribute, AttributeError, AttributeValue};
pub use call::{Call, CallHash, CallKind};
pub use child::child_id;
pub use duration::Millis;
pub use failure::{Failure, FailureKind, Sent};
pub use hook::HookId;
pub use id::{
    Attempt, CoordinatorId, Epoch, Generation, Incarnation, InstanceUid, Position, Run, SessionId, Timestamp,
};
pub use key::{Fingerprint, StepKey};
pub use name::{
    AccessName, AttributeName, BuildName, CallName, EventKey, EventType, FunctionName, InstanceId, Namespace,
    Pool, Reference, ScheduleId, Token, WorkflowName,
};
pub use payload::Payload;
pub use pin::Pin;
#[cfg(feature = "planted")]
#[doc(hidden)]
pub use planted::choose as choose_planted;
#[doc(hidden)]
pub use planted::planted;
pub use policy::{Class, Policy};
pub use trace::TraceContext;
