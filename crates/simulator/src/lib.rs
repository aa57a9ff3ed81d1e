//! The whole system on one thread under a seed: coordinators, workers, store and broker of production, virtual time, and faults of
//! every kind. One seed is one run, and the same seed is the same run, commit by commit and message by message.
//!
//! `docs/simulator.md` says how it works, what it proves and what it does not.
//!
//! | module | what for |
//! | --- | --- |
//! | `seed`, `entropy`, `chance`, `clock` | everything that production code leaves to chance or time comes from the seed |
//! | `scene` | what a run is made of |
//! | `world`, `node`, `life` | processes that come, go and stand still |
//! | `faults`, `ports` | what goes wrong on the way to store and broker |
//! | `workload` | programs of every feature, services that count effects, producers, a person |
//! | `check` | what must never be |
//! | `trace`, `report` | what happened |

mod chance;
mod check;
mod clock;
mod entropy;
mod faults;
mod life;
mod node;
pub mod planted;
mod ports;
mod report;
mod run;
mod scene;
mod seed;
mod stage;
mod trace;
mod workload;
mod world;

pub use check::{Breach, Tally};
pub use faults::Kind;
pub use report::{Outcome, Sum};
pub use run::{known, run, run_all};
