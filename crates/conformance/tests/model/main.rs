//! The programming model as its users meet it, on virtual time: B and T numbers of `docs/conformance.md`, and trouble from the
//! field (O). Not here: what dies and comes back other than a worker, and real servers (target `systems`).

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

mod backoff;
mod calls;
mod control;
mod durations;
mod errors;
mod events;
mod instances;
mod mailbox;
mod mocks;
mod names;
mod open;
mod operators;
mod pause;
mod restart;
mod retries;
mod scale;
mod terminate;
mod timers;
