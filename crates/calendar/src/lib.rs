//! Which moments a cron expression names in a time zone (rules S2 to S4). Pure: same expression, same moment asked about, same answer.
//!
//! The expression is read by `croner`, whose pattern says which days match; the zones are `jiff`'s, with their data in the binary, so that all
//! coordinators of one version agree whatever their machines have. Which wall clock times come next, and what becomes of one that does not exist
//! or exists twice, is decided here (`wall`, `cron`).
//!
//! *Boundary:* the only crate that names either library. Moments are whole seconds since 1970.

mod cron;
mod wall;

pub use cron::{Cron, Error};
