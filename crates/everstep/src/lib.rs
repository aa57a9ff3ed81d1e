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
//! A program that serves nothing but starts instances and waits for them uses the feature `client`.
//!
//! Everything that workflow code is written against is re-exported here from the SDK.

mod fleet;
#[cfg(feature = "metrics")]
mod page;

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

/// What a program outside of the fleet asks of it, with the feature `client`: start an instance, send it an event, wait for its
/// result, operate it, over the HTTP API. The handles of [`embedded`] have the same by the same
/// names.
///
/// ```no_run
/// use everstep::client::{Client, SendEvent};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let everstep = Client::new("http://127.0.0.1:7070")?;
/// let order = everstep.start("fulfil", Some("o-17"), &vec!["book"]).await?;
/// order.send_event(&SendEvent::new("approval").id("approval-17"), &true).await?;
/// let receipt: String = order.result().await?;
/// # Ok(()) }
/// ```
#[cfg(feature = "client")]
pub use everstep_client as client;

/// Logs and traces of a worker's process, with the feature `telemetry`: lines that say whose code logged them, and spans by OTLP in which
/// those of your own code join. docs/operations/traces.md and logs.md say what there is.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let telemetry = everstep::telemetry::Wanted::of("orders-worker").of_environment()?.start()?;
/// everstep::fleet("amqp://worker:secret@rabbitmq/everstep").run().await?;
/// telemetry.stop().await;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "telemetry")]
pub mod telemetry {
    pub use everstep_telemetry::{
        lines::Lines,
        process::{Error, Ids, Telemetry, Wanted},
        trace::NextId,
    };
}

pub use everstep_sdk::*;
pub use fleet::{Fleet, FleetError, fleet};
