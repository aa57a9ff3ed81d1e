//! What all processes of Everstep share about traces and logs.
//!
//! * [`trace`]: the spans that coordinators and workers make, and how a trace goes on from one to the other. It speaks to
//!   OpenTelemetry's API and to no exporter, so a process that exports nothing pays nothing: without a context in the journal a worker
//!   makes no span at all, and a coordinator makes none until [`trace::switch_on`].
//! * [`label`]: whose code is running on this thread, for the lines that it logs.
//! * `lines` (feature `logs`): how a line is written, with those labels and the ids of the trace.
//! * `process` (feature `export`): begins both in a process.
//!
//! It decides nothing: no instance ever goes another way because of a trace.

pub mod label;
#[cfg(feature = "logs")]
pub mod lines;
#[cfg(feature = "export")]
pub mod process;
pub mod trace;
