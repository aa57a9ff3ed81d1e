//! The runtime that hosts user code: session, claim, replay, attempts, reports.
//!
//! # Protocol
//! A [`Worker`] opens a session, takes run tasks, claims, is granted leases, feeds the journal to the workflow's body,
//! runs the steps that have no outcome, and reports. It owns no state: what is not acknowledged has not happened, and
//! everything that was sent and not answered is sent again (rule W7).
//!
//! # Threads
//! | thread | what it does | what may block it |
//! | --- | --- | --- |
//! | work loop | polls bodies, decides what runs | one poll of a body: named after 10 s (rule W12) |
//! | link | consumers, sender, heartbeats | nothing of the user's |
//! | the owner's runtime | step functions | step functions |
//!
//! With [`Loops::Current`] all three are tasks of one runtime: for tests on one thread with a clock of their own.
//!
//! The broker's own tasks run where it was connected: connect it on a runtime that steps do not block.
//!
//! # Trust window
//! A worker whose heartbeats stay unanswered for two thirds of the lease starts nothing more (rule W10). What runs then
//! may run a second time elsewhere, under the same idempotency key; its report is taken or refused by epoch (rule W2).
//!
//! # Failure
//! A panic of a step is a failed attempt, one of a body parks its instance, a bug of ours in one instance parks that
//! instance. A body that blocks ends the worker, after everything else was given back. Messages that cannot be read are
//! counted, logged and dropped.

mod attempt;
mod board;
mod claim;
pub mod clock;
mod credit;
mod error;
#[doc(hidden)]
pub mod hosted;
mod link;
mod metrics;
mod outbox;
mod probe;
mod recent;
mod remote;
mod session;
mod settings;
mod telling;
#[doc(hidden)]
pub mod watch;
mod work;
mod worker;

pub use error::Error;
pub use metrics::{Metrics, described as described_metrics};
pub use probe::Probe;
pub use settings::{Interceptor, Loops, OnStuck, SessionIds, Settings};
pub use worker::Worker;
