//! The coordinator: a stateless process, any number of replicas, that owns nothing but the next transaction.
//!
//! One visible loop ([`Coordinator::run`]) gathers inputs while a commit is under way, and turns each batch into one
//! transaction: lock and load the heads, decide in the engine, write, commit, send, settle (`turn.rs`). Around it stand
//! small services of one shape: a settings value, a `run` that ends with the stop signal, one thing that each does.
//!
//! | service | what it does | how often | who |
//! | --- | --- | --- | --- |
//! | intake | decodes and checks what the queues bring | as it comes | every coordinator |
//! | sessions | opens, hears and ends sessions | as it comes | the active consumer |
//! | watch | ends silent and unroutable sessions, hands their leases on | 1 s | duty `watch` |
//! | timers | finds due waits | when the next is due, 1 s at most | duty `timers`; its own near ones every coordinator |
//! | deadlines | ends what was cancelled and did not end in time | 1 s | duty `timers` |
//! | letters | carries letters between instances | as they are written, 1 s | every coordinator its own, duty `timers` the rest |
//! | dispatch | offers what waits in the store | 0.5 s | duty `dispatch` |
//! | later | offers a wake to the queue, where whoever kept its body was told first and has no room | 0.2 s after | every coordinator |
//! | unserved | names and counts what is ready and has no worker | 15 s | duty `dispatch` |
//! | attention | counts what waits for a person | 15 s | duty `dispatch` |
//! | auditor | looks whether every open instance has a reason to move; mends, counts and explains what has none | a page of 500 after the other, 10 s between walks, and no more than a twentieth of the time | duty `audit` |
//! | census | measures queues; counts what is open | 15 s; a minute, and no more than a hundredth of the time | duty `dispatch` |
//! | standing | says whether store and broker answer, for metrics and probes | 1 s, the store 5 s | every coordinator |
//! | outbox | publishes lifecycle messages, and again what was not confirmed | as it comes, 5 s | every coordinator, duty `outbox` |
//! | rejections | records what can never be accepted | as it comes | every coordinator |
//! | measure | measures what rejected records take, and stops the intake of a namespace at the bound | 5 s | every coordinator |
//! | bulks | goes on with operations on many instances | 1 s, and when one begins | duty `bulk` |
//! | schedules | starts what schedules have due | when the next is due, 1 s at most | duty `schedules` |
//! | clean | deletes what is past its time, and journals of deleted instances | 60 s, and when one was deleted | duty `clean` |
//!
//! What it does not do: no rule about instances stands here, they are the engine's; no SQL, no AMQP.

mod access;
mod arrival;
mod bound;
mod calendars;
mod chance;
mod coordinator;
pub mod doctor;
mod error;
mod handle;
pub mod http;
mod metrics;
mod queue;
#[cfg(test)]
mod rehearsal;
mod reply;
mod replying;
mod schema;
mod sender;
mod service;
mod settings;
mod shared;
mod traces;
mod turn;

pub use access::issue as issue_access_token;
pub use chance::{Chance, SystemChance};
pub use coordinator::Coordinator;
pub use error::{Error, ErrorKind};
pub use handle::{
    BATCH_STARTS_MAX, BackfillRequest, BulkBegun, BulkCount, Decision, Each, EventRequest, Handle, IDS_MAX,
    OfSchedule, ResumeRequest, Resumed, ScheduleError, StartRequest, Triggered, Uncarried, Wanted,
    WebhookAnswer, WebhookCall,
};
pub use metrics::described as described_metrics;
pub use schema::Misfit;
pub use settings::Settings;
