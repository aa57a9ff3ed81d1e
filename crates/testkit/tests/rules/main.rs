//! The kit against workflows of its own: rules P42 and P43, and what it tells of W12 and W30. Not here: that the engine under
//! it is right, which the engine's own tests prove.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

mod api;
mod bodies;
mod children;
mod crashes;
mod generations;
mod hooks;
mod ledger;
mod mocks;
mod replays;
mod saga;
mod time;
mod waits;

use std::panic::{AssertUnwindSafe, catch_unwind};

use everstep::{Error, Step, Workflow};

/// What a panic of this says.
fn panic_of<T>(run: impl FnOnce() -> T) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { panic!("it did not panic") };
    everstep::host::panic_message(panic.as_ref())
}

/// A step that must not run.
async fn never<T>(step: Step, (): ()) -> Result<T, Error> {
    Err(Error::permanent(format!("the real step {} ran", step.name())))
}

/// A workflow that sleeps for as many days as it is told.
async fn nap(cx: Workflow, days: u64) -> Result<u64, Error> {
    cx.sleep("nap", format!("{days} days")).await?;
    Ok(days)
}
