//! What a workflow function may return: its output, or that it goes on as new (rule P36).

use everstep_protocol::{Payload, payload::PayloadError};
use serde::Serialize;

use crate::host::Returned;

/// What a workflow returns that may go on as new: again with a new input, or done with an output. The type holds it to the input
/// that the function takes.
///
/// Going on as new keeps the instance, under the same id, and begins its next generation: a fresh journal with new keys, in which
/// steps and bytes are counted from zero. Unread events, attributes and the published state stay. What the code had under way is
/// over, as at any return. A loop that would otherwise make its journal ever longer does a part of its rounds in each generation.
///
/// ```
/// use everstep_sdk::{Error, Next, Step, Workflow};
///
/// async fn watch(cx: Workflow, seen: u64) -> Result<Next<u64, u64>, Error> {
///     let mut seen = seen;
///     for _ in 0..1_000 {
///         seen = cx.step("look", seen, look).await?;
///         if seen >= 1_000_000 {
///             return Ok(Next::Done(seen));
///         }
///         cx.sleep("until the next look", "1 min").await?;
///     }
///     Ok(Next::Again(seen))
/// }
///
/// async fn look(_step: Step, seen: u64) -> Result<u64, Error> { Ok(seen + 1) }
/// # everstep_sdk::Registry::new().workflow_fn("watch", watch).validate().unwrap();
/// ```
///
/// An input of another type does not compile:
///
/// ```compile_fail
/// use everstep_sdk::{Error, Next, Workflow};
///
/// async fn watch(_cx: Workflow, seen: u64) -> Result<Next<String, u64>, Error> {
///     Ok(Next::Again(seen.to_string()))
/// }
/// # everstep_sdk::Registry::new().workflow_fn("watch", watch).validate().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it means something only as what the workflow function returns"]
pub enum Next<In, Out> {
    /// Go on as the next generation, with this input.
    Again(In),
    /// The workflow is complete, with this output.
    Done(Out),
}

/// What a workflow function of this input may return: any output that has a JSON form, or a [`Next`].
#[diagnostic::on_unimplemented(
    message = "a workflow with an input of type `{In}` cannot return `{Self}`",
    note = "it returns a value that implements `serde::Serialize`, or `Next<{In}, Output>`"
)]
pub trait Outcome<In> {
    /// As it is recorded.
    #[doc(hidden)]
    fn returned(&self) -> Result<Returned, PayloadError>;
}

impl<In, Out: Serialize> Outcome<In> for Out {
    fn returned(&self) -> Result<Returned, PayloadError> {
        Payload::encode(self).map(Returned::Done)
    }
}

impl<In: Serialize, Out: Serialize> Outcome<In> for Next<In, Out> {
    fn returned(&self) -> Result<Returned, PayloadError> {
        match self {
            Self::Again(input) => Payload::encode(input).map(Returned::Again),
            Self::Done(output) => Payload::encode(output).map(Returned::Done),
        }
    }
}
