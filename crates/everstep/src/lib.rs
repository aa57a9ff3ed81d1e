//! Durable workflows on a worker fleet: ordinary async code whose steps survive crashes, deploys and outages.
//!
//! ```
//! use everstep::{Error, Step, Workflow};
//!
//! #[everstep::workflow]
//! async fn greet(cx: Workflow, name: String) -> Result<String, Error> {
//!     let greeting = cx.step("compose", &name, compose).await?;
//!     cx.sleep("think it over", "2 days").await?;
//!     Ok(greeting)
//! }
//!
//! async fn compose(_step: Step, name: String) -> Result<String, Error> {
//!     Ok(format!("Good morning, {name}"))
//! }
//! # fn main() { drop(everstep::fleet("amqp://localhost").workflow(greet)); }
//! ```
//!
//! The same code runs in two places:
//!
//! * on a **fleet**: [`fleet`] makes a worker that serves it, next to coordinators that own the state in PostgreSQL;
//! * **embedded**: with the feature `embedded`, `embedded::Embedded` runs everything in this process on one SQLite file.
//!
//! Everything that workflow code is written against is re-exported here from the SDK.

mod fleet;

#[cfg(feature = "embedded")]
pub mod embedded;

/// The check before a deploy, with the feature `check`: replays the journals of open instances against the code of this
/// program, runs no step, and lists the instances that would break (rule P40).
///
/// ```no_run
/// use everstep::{Error, Registry, Workflow};
///
/// #[everstep::workflow]
/// async fn fulfil(cx: Workflow, order: String) -> Result<String, Error> {
///     cx.sleep("cooling off", "14 days").await?;
///     Ok(order)
/// }
///
/// fn main() -> std::process::ExitCode {
///     everstep::check::main(&Registry::new().workflow(fulfil))
/// }
/// ```
#[cfg(feature = "check")]
pub use everstep_check as check;

pub use everstep_sdk::*;
pub use fleet::{Fleet, FleetError, fleet};
