//! Whole systems as their users meet them: what dies and comes back, two coordinators, deploys, other time zones. B and T numbers
//! of `docs/conformance.md`, and trouble from the field (O). Not here: what needs no more than the programming model (target
//! `model`).

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

mod api;
mod broken;
mod contention;
mod deaths;
mod deploys;
mod lists;
mod long;
mod moments;
mod restarts;
mod starts;
mod storms;
mod texts;
mod unserved;
mod zones;
