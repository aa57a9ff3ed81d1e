//! The side that makes the calls: what the process `everstep-http-worker` runs, for those who put it into a worker of their own.
//!
//! ```no_run
//! use everstep_http::worker::{HttpCalls, Secrets, Settings};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings { hosts: vec!["payments.example.com".parse()?], ..Settings::default() };
//! let secrets = Secrets::default().with("PAYMENTS", "sk-live-0123456789");
//! let calls = HttpCalls::new(&settings, secrets)?;
//! everstep::fleet("amqp://worker:secret@rabbitmq/everstep")
//!     .function(everstep_http::FUNCTION, calls.function())
//!     .pool(everstep_http::POOL)
//!     .run()
//!     .await?;
//! # Ok(()) }
//! ```
//!
//! # What it may reach
//! Nothing, until [`Settings::hosts`] names it. Of a host that is named only addresses of the public internet are connected to,
//! whatever its name resolves to at that moment, unless [`Settings::networks`] allows others.
//!
//! # The way of a call
//! [`plan`](self) checks the request without asking anybody, secrets are looked up, a look is made if there is one, and then the
//! call. What is known of it when it fails, and so what the error says of its being sent, comes from the connection: until one
//! is there with TLS done, nothing was sent.

mod answer;
mod calls;
mod exchange;
mod hosts;
mod metrics;
mod networks;
mod outcome;
mod plan;
pub mod process;
mod redact;
mod resolve;
mod secrets;
mod settings;
mod template;
mod tls;

pub use calls::{Error, HttpCalls};
pub use hosts::HostRule;
pub use metrics::{Metrics, described as described_metrics};
pub use networks::Network;
pub use resolve::{Resolve, Resolving, SystemResolver};
pub use secrets::Secrets;
pub use settings::Settings;
