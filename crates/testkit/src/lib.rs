//! Tests of durable workflows: in this process, in milliseconds, with the engine, coordinator and worker of production.
//!
//! ```
//! use everstep::{Error, Retry, Step, Workflow};
//! use everstep_testkit::{KitError, Mock, TestKit};
//!
//! #[everstep::workflow]
//! async fn order(cx: Workflow, cents: u64) -> Result<String, Error> {
//!     let payment: String = cx.step("charge", cents, charge).retry(Retry::constant("1 hour").limit(3)).await?;
//!     cx.sleep("cooling off", "14 days").await?;
//!     cx.step("ship", &payment, async |_: Step, payment: String| Ok::<_, Error>(format!("shipped for {payment}"))).await
//! }
//!
//! async fn charge(_step: Step, _cents: u64) -> Result<String, Error> {
//!     Err(Error::failed("no payment service in a test"))
//! }
//!
//! # fn main() -> Result<(), KitError> {
//! TestKit::new().workflow(order).run(async |kit| {
//!     kit.mock(Mock::step("charge").fails(2, Error::failed("503")).returns("payment-1"))?;
//!     let run = kit.start_instance_as("order", "one", &100).await?;
//!     assert_eq!(run.step::<String>("charge").await?, "payment-1");
//!     // Two hours of retries and fourteen days of sleep pass at once.
//!     assert_eq!(run.result::<String>().await?, "shipped for payment-1");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! # What is real and what is not
//! Coordinator, engine, worker, SDK and journal are those of production. The store is SQLite in memory, the broker is the
//! in-process one, and everything runs on one thread with a clock that stands still while anything goes on. So a test needs
//! no services and no patience, and comes out the same every time: ids, keys and random numbers repeat.
//!
//! # Time
//! Whenever the test waits ([`Run::result`], [`Run::reaches`], [`Run::step`]) and nothing goes on, time jumps to the next
//! moment that something waits for. With [`TestKit::time_by_hand`] only [`Kit::advance`] moves it. A step that itself sleeps
//! by tokio's clock is waited for second by second, which costs some milliseconds of real time a second in a debug build; a mocked
//! timeout costs nothing. A step that does real I/O must be mocked, or do it in `spawn_blocking`: the clock does not wait for sockets.
//!
//! # What is checked without being asked
//! When a test is over, every instance that has ended is replayed a second time against the code, and any difference fails the
//! test and names the entry and the call. An instance that is parked, because its body panicked or awaits something that is
//! not its own (rule W30), fails the test unless the test looked at it. A body that blocks its thread (rule W12) fails the test
//! and is named.
//!
//! # Crashes
//! [`crash_everywhere`] runs a test once for each point at which its worker can crash, and compares. [`Kit::crash_worker`]
//! crashes it by hand.
//!
//! # Hooks
//! [`Kit::resume`] resumes whoever has a token, [`Kit::start_with_token`] starts an instance that has one from its first moment, and
//! [`Kit::hook`] tells who has it. Two instances of one kit contend for a token as in production, force included.
//!
//! # Replays
//! [`Kit::replay`] feeds a saved journal to the code without running a step: keep some from production next to the tests, and
//! a change that would break open instances fails before it is deployed.

mod chance;
mod crash;
mod error;
mod kit;
mod life;
mod line;
mod mock;
mod run;
mod stage;
mod system;
mod time;
mod watchdog;

pub use crash::{CrashReport, crash_everywhere};
pub use error::KitError;
pub use everstep_check::Replayed;
pub use everstep_coordinator::{WebhookAnswer, WebhookCall};
pub use everstep_protocol::{
    Timestamp,
    hook::{HookRetention, StartHook},
    journal,
};
pub use everstep_store::{HookView, InstanceView, StatusWord as Status};
pub use kit::{HookStart, Kit, TestKit};
pub use mock::Mock;

pub use run::{Asked, Run, StepName};

/// Settings of the coordinator.
pub type CoordinatorSettings = everstep_coordinator::Settings;
/// Settings of the worker.
pub type WorkerSettings = everstep_worker::Settings;
