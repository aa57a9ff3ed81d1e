//! HTTP calls as durable steps (rule L3).
//!
//! A workflow describes a call with [`post`], [`get`] and the like; a worker of the pool [`POOL`] makes it. The worker is a
//! deployment of its own, `everstep-http-worker`, so that the way out to the network, its list of hosts and its secrets are in
//! one place, and workflow code holds none of them.
//!
//! ```
//! use everstep_http::{Response, post};
//! use everstep_sdk::{Error, Retry, Workflow};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize)]
//! struct Charge {
//!     order: String,
//!     cents: u64,
//! }
//!
//! #[derive(Deserialize)]
//! struct Charged {
//!     id: String,
//! }
//!
//! async fn pay(cx: Workflow, order: String) -> Result<String, Error> {
//!     let charge = post("https://payments.example.com/charges")
//!         .header("authorization", "Bearer {secret:PAYMENTS}")
//!         .json(&Charge { order, cents: 1_999 })
//!         .timeout("10s");
//!     let answer: Response = charge.step(&cx, "charge").retry(Retry::exponential("5s").limit(8)).await?;
//!     Ok(answer.json::<Charged>()?.id)
//! }
//! ```
//!
//! The worker sends the step's idempotency key along by itself, in the header `Idempotency-Key`, the same in every attempt: a
//! callee that honours it does its work once, however often it is asked.
//!
//! # What is retried
//! The step's own policy decides how often and when. 408, 425, 429 and 5xx, timeouts and broken connections are errors that it
//! may retry, and `Retry-After` is respected up to a limit of the worker. Every other status that was not expected is a
//! permanent error, and so is an answer that is too large. Each error has a name of [`name`] and a [`CallError`] as its data,
//! which says whether anything was sent.
//!
//! # What is not in here
//! No cookies, no proxies, no decompression, no HTTP/2. Redirects are followed only where the request says so.

pub mod name;

mod call_error;
mod request;
mod response;

#[cfg(feature = "worker")]
pub mod worker;

pub use call_error::{CallError, Sent};
pub use request::{Content, KeyHeader, LookFirst, Request, delete, get, head, patch, post, put, request};
pub use response::{Body, Response};

/// The remote function that the worker registers.
pub const FUNCTION: &str = "http";

/// The pool that the worker serves unless its settings name others.
pub const POOL: &str = "http";

/// The samples of the guide compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/http-steps.md")]
struct Guide;
