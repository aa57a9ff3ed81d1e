//! The SDK against the smallest possible host: everything but the worker's threads, journal and clock is real.
//! Proves what workflow code and the host see of each other. Does not prove anything about what is stored.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, missing_debug_implementations, unreachable_pub)]

extern crate everstep_sdk as everstep;

mod combinators;
mod definitions;
mod driver;
mod errors;
mod events;
mod hooks;
mod names;
mod outside;
mod parallel;
mod patches;
mod polling;
mod randomness;
mod retries;
mod saga;
mod steps;
mod values;
mod webhooks;
