//! The names of exchanges and queues (rule W14): a contract with permissions, autoscalers and operators.
//!
//! | name | kind | declared by | read by |
//! | --- | --- | --- | --- |
//! | `everstep.start` | topic exchange, durable | coordinator | |
//! | `everstep.event` | topic exchange, durable | coordinator | |
//! | `everstep.lifecycle` | topic exchange, durable | coordinator | |
//! | `everstep.start.{namespace}` | quorum queue | coordinator | coordinators |
//! | `everstep.event.{namespace}` | quorum queue, single active consumer | coordinator | coordinators |
//! | `everstep.dead.{namespace}` | quorum queue, dead letters of the start and event queues | coordinator | coordinators |
//! | `everstep.rejected.{namespace}` | quorum queue, courtesy copies | coordinator | operators |
//! | `everstep.run.{namespace}.{workflow}` | classic queue, durable | both sides | workers |
//! | `everstep.run.{namespace}.{workflow}.{build}` | classic queue, durable | both sides | workers of the build |
//! | `everstep.step.{namespace}.{pool}` | classic queue, durable | both sides | workers of the pool |
//! | `everstep.report.{n}` | classic queue, durable, single active consumer | both sides | coordinators |
//! | `everstep.sessions` | classic queue, durable, single active consumer | both sides | coordinators |
//! | `everstep.inbox.{session}...` | exclusive queue | worker | that worker |
//!
//! `{namespace}` and the others hold no dots (rule W41), so the patterns cannot overlap.

use crate::{BuildName, InstanceUid, Namespace, Pool, SessionId, WorkflowName};

/// Producers publish starts here; the routing key is the namespace.
pub const START_EXCHANGE: &str = "everstep.start";
/// Producers publish events here; the routing key is the namespace.
pub const EVENT_EXCHANGE: &str = "everstep.event";
/// Lifecycle messages leave here; the routing key is `{namespace}.{workflow}.{status}`.
pub const LIFECYCLE_EXCHANGE: &str = "everstep.lifecycle";
/// Sessions open, live and end through this queue.
pub const SESSIONS: &str = "everstep.sessions";
/// Everything under this prefix belongs to the engine; a producer's `reply_to` may not lie in it (rule W17).
pub const PREFIX: &str = "everstep.";
/// The header of a rejected message's copy that says why.
pub const REASON_HEADER: &str = "x-everstep-reason";

/// The queue of start messages that were not ingested yet.
#[must_use]
pub fn start_queue(namespace: &Namespace) -> String {
    format!("everstep.start.{namespace}")
}

/// The queue of event messages that were not ingested yet.
#[must_use]
pub fn event_queue(namespace: &Namespace) -> String {
    format!("everstep.event.{namespace}")
}

/// Where the broker puts start and event messages that it gives up on.
#[must_use]
pub fn dead_queue(namespace: &Namespace) -> String {
    format!("everstep.dead.{namespace}")
}

/// Where copies of rejected messages go.
#[must_use]
pub fn rejected_queue(namespace: &Namespace) -> String {
    format!("everstep.rejected.{namespace}")
}

/// The run tasks of a workflow.
#[must_use]
pub fn run_queue(namespace: &Namespace, workflow: &WorkflowName) -> String {
    format!("everstep.run.{namespace}.{workflow}")
}

/// The run tasks of a workflow's instances that are pinned to a build (rule P40).
#[must_use]
pub fn pinned_run_queue(namespace: &Namespace, workflow: &WorkflowName, build: &BuildName) -> String {
    format!("everstep.run.{namespace}.{workflow}.{build}")
}

/// The step tasks of a pool.
#[must_use]
pub fn step_queue(namespace: &Namespace, pool: &Pool) -> String {
    format!("everstep.step.{namespace}.{pool}")
}

/// One of the report queues.
#[must_use]
pub fn report_queue(index: u32) -> String {
    format!("everstep.report.{index}")
}

/// The report queue of an instance, of `queues` in all (rule W16).
#[must_use]
pub fn report_index(instance: InstanceUid, queues: u32) -> u32 {
    let bytes = instance.0.as_bytes();
    // The last bytes of a UUIDv7 are random; the first are the time.
    let low = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    low % queues.max(1)
}

/// The base name of a worker's inbox; the connection appends its own number.
#[must_use]
pub fn inbox(session: SessionId) -> String {
    format!("everstep.inbox.{session}")
}
