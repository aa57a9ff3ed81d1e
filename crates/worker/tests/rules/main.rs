//! Proves the worker's rules: on a fake coordinator that makes the engine's real decisions, mostly without threads,
//! broker or clock. Not: the store, RabbitMQ, or that real coordinators send what this one sends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod coordinator;
mod folding;
mod journals;
mod leases;
mod ordering;
mod retries;
mod rig;
mod waits;
mod whole;
