//! What workflow code is written against: ordinary async functions whose steps survive crashes, deploys and outages.
//!
//! ```
//! # extern crate everstep_sdk as everstep;
//! use everstep::{Error, Retry, Step, Workflow};
//!
//! #[everstep::workflow]
//! async fn fulfil(cx: Workflow, order: u64) -> Result<String, Error> {
//!     let hold = cx.step("reserve stock", order, reserve).await?;
//!     let receipt = cx
//!         .step("charge", (order, &hold), charge)
//!         .retry(Retry::exponential("10s").limit(5))
//!         .timeout("2 min")
//!         .await?;
//!     cx.sleep("cooling off", "1 hour").await?;
//!     Ok(receipt)
//! }
//!
//! async fn reserve(_step: Step, order: u64) -> Result<String, Error> {
//!     Ok(format!("hold for {order}"))
//! }
//!
//! async fn charge(step: Step, (order, hold): (u64, String)) -> Result<String, Error> {
//!     Ok(format!("charged {order} ({hold}) under {}", step.idempotency_key()))
//! }
//! # everstep::Registry::new().workflow(fulfil).validate().unwrap();
//! ```
//!
//! A workflow function is run again from its start whenever its instance is taken up, and each step that is recorded
//! answers from the record. So it must be deterministic: everything that touches the world goes into a step, time and
//! randomness come from [`Workflow::now`] and [`Workflow::random`], and it awaits nothing but its own steps, sleeps,
//! events, hooks and children, and combinations of them (`join!`, `select!`, `FuturesUnordered`).
//!
//! [`host`] is the other side: what a worker drives. Workflow code has no use for it.

mod attributes;
mod call;
mod definition;
mod error;
pub mod host;
mod next;
mod parallel;
mod random;
mod registry;
mod result;
mod retry;
mod saga;
mod send;
mod step;
mod workflow;

pub use attributes::IntoAttribute;
pub use call::{
    ChildCall, ConflictCall, Disposal, Event, EventCall, EventsCall, Hook, HookCall, HookConflict, HookTaken,
    Instance, IntoRetention, IntoTimestamp, NextPayload, NextRequest, Owner, Patched, Payloads, Plan,
    PlanCall, Planned, RemoteCall, RemoteCalls, RespondCall, ResultCall, ResumeCall, SendCall, Sleep,
    Starting, StepCall, Webhook, WebhookCall, WebhookRequest, WebhookResponse,
};
pub use definition::WorkflowRef;
pub use error::Error;
pub use everstep_macros::workflow;
pub use everstep_protocol::duration::IntoMillis;
pub use everstep_protocol::hook::Method as WebhookMethod;
pub use everstep_protocol::policy::{Backoff, Class, Limit};
pub use everstep_protocol::{FailureKind, Millis, Policy, Timestamp};
pub use next::{Next, Outcome};
pub use parallel::{Each, Either, Joined, Race};
pub use random::Random;
pub use registry::{Registry, RegistryError};
pub use result::ResultError;
pub use retry::Retry;
pub use saga::{Compensation, StepOutcome, Undo};
pub use send::SendEvent;
pub use step::Step;
pub use workflow::Workflow;
