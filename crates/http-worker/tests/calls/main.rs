//! The calls of the HTTP worker against real servers on loopback, which fail in every way that servers do. Proves what the step
//! gets, what the callee sees, and what is never sent. Not: what the coordinator makes of it, but for whole.rs and fleet.rs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fleet;
mod guard;
mod look;
mod process;
mod rig;
mod secret;
mod server;
mod status;
mod tls;
mod whole;
mod wire;
