//! Effects on a real PostgreSQL: raced for, cut off before and after the commit, and found again. Proves that a write is there
//! once or not at all, and what the step is told. Not: that the engine tries a step again, but for whole.rs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commit;
mod rig;
mod table;
mod whole;
mod writes;
