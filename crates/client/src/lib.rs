//! The HTTP API for programs in Rust: start instances, wait for their ends, send them events, operate them.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`Client`], [`InstanceHandle`] | typed: inputs and outputs are values. What programs use, as `everstep::client` |
//! | [`Watch`] | what goes on in an instance, or which instances end, as it happens |
//! | [`api`] | the routes, with answers as the JSON text that was sent. What the `everstep` command uses |
//!
//! It holds no connection that could be lost: each call is a request, and says of its failure whether repeating it is safe
//! ([`Error::is_retry_safe`]). It repeats nothing by itself, except for the wait of [`InstanceHandle::result`], which only reads.

pub mod api;
mod client;
mod error;
mod hook;
mod instance;
mod schedules;
mod watch;

pub use client::{Client, StartWith};
pub use error::{Error, Problem, StartStage};
pub use everstep_engine::StatusWord as Status;
pub use everstep_engine::schedule;
pub use everstep_protocol::{
    hook::{HookRetention, StartHook},
    journal::Other,
    start::{StartOutcome, StartReply},
};
pub use everstep_sdk::SendEvent;
pub use hook::{HookView, Resumed};
pub use instance::{InstanceHandle, OperationError, ResultError, View};
pub use schedules::{ScheduleAction, ScheduleRun, ScheduleView};
pub use watch::{EndsOf, Event, Watch};
