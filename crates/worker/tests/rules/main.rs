//! Proves the worker's rules: on a fake coordinator that makes the engine's real decisions, mostly without threads,
//! broker or clock. Not: the store, RabbitMQ, or that real coordinators send what this one sends.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc, reason = "tests")]

mod children;
mod coordinator;
mod events;
mod folding;
mod generations;
mod hooks;
mod hub;
mod journals;
mod kept;
mod leases;
mod ledger;
mod ordering;
mod patches;
mod retries;
mod rig;
mod rollbacks;
mod shown;
mod waits;
mod whole;
