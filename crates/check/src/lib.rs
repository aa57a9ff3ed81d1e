//! The check before a deploy: feeds the journals of open instances to the code of this program, as a worker that takes them
//! up would, and lists those that would break (rule P40). No step is run and nothing is sent.
//!
//! | module | |
//! | --- | --- |
//! | [`saved`] | a journal as JSON text |
//! | [`Replayer`] | feeds one journal to the code; the test kit uses it too |
//! | `stream` | the journals that a coordinator streams, put together |
//! | `live` | asks a coordinator for them |
//! | `findings` | what was found, for people and for programs |
//! | `command` | the command line that a program of its own gets with [`main`] |
//!
//! The last three come with the feature `command`.

#[cfg(feature = "command")]
mod command;
#[cfg(feature = "command")]
mod findings;
#[cfg(feature = "command")]
mod guard;
#[cfg(feature = "command")]
pub mod live;
mod replay;
#[doc(hidden)]
pub mod saved;
#[cfg(feature = "command")]
pub mod stream;

#[cfg(feature = "command")]
pub use command::{Options, check, check_to, main, run};
#[cfg(feature = "command")]
pub use findings::{Finding, Findings};
pub use replay::{Breach, Replayed, Replayer};
