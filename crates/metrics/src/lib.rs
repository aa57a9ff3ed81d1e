//! What all processes share about metrics: a [`Book`] of what is counted, from which the reference page is made; labels that stay
//! bounded whatever comes from outside ([`Bounded`]); and, with the feature `page`, the page that Prometheus and probes ask.
//!
//! Invariants: a metric that is not in a book does not exist; a label value is either a constant of the code, or came through a bound.

mod book;
mod bounded;
#[cfg(feature = "page")]
pub mod page;

pub use book::{Book, Described, Kind};
pub use bounded::{Bounded, Local, OTHER};
