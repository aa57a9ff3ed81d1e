//! The futures of the calls that a body makes: builders until they are awaited, values after.
//!
//! A call is numbered when it is made and begins at its first poll (rule W32). One that is not valid never begins.

mod child;
mod event;
mod instance;
mod patched;
mod pending;
mod remote;
mod remote_all;
mod sleep;
mod step;

pub use child::{ChildCall, Starting};
pub(crate) use event::TYPES_MAX;
pub use event::{Event, EventCall, EventsCall};
pub use instance::{Instance, ResultCall, SendCall};
pub use patched::Patched;
pub(crate) use pending::{HIDDEN, Pending};
pub use remote::RemoteCall;
pub use remote_all::RemoteCalls;
pub use sleep::{IntoTimestamp, Sleep};
pub use step::StepCall;
