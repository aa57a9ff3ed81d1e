//! What an entry counts for in the size of a journal (rule P4).

use super::{Choice, End, Fact, HookOutcome, Outcome, Registered, Wait};
use crate::{Attribute, Failure, Payload};

impl Fact {
    /// Bytes of JSON text in it, by which a journal's size is measured (rule P4).
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        let bytes = match self {
            Self::Started(started) => {
                let bytes =
                    |attribute: &Attribute| attribute.value.as_ref().map_or(0, |value| value.as_json().len());
                started.input.len() + started.attributes.iter().map(bytes).sum::<usize>()
            }
            Self::Attempted(attempted) => match &attempted.outcome {
                Outcome::Succeeded(output) => return attempt_bytes(Ok(output)),
                Outcome::Failed { failure, .. } | Outcome::Unknown { failure, .. } => {
                    let progress = attempted.progress.as_ref().map_or(0, Payload::len);
                    return attempt_bytes(Err(failure)) + progress as u64;
                }
            },
            Self::Opened(opened) => match &opened.wait {
                Wait::Sleep { .. } | Wait::Event { .. } | Wait::Instance(_) | Wait::Payload(_) => 0,
                Wait::Hook(hook) => hook.bytes(),
                Wait::Reply(reply) => reply.response.bytes(),
                Wait::Remote(remote) => remote.input.len(),
                Wait::Child(child) => {
                    let metadata = child.hook.as_ref().and_then(|hook| hook.metadata.as_ref());
                    child.input.len() + metadata.map_or(0, Payload::len)
                }
                Wait::Send(sending) => sending.payload.len(),
                Wait::Resume(resuming) => resuming.payload.len(),
            },
            Self::Returned(returned) => match &returned.outcome {
                Outcome::Succeeded(output) => output.len(),
                Outcome::Failed { failure, .. } | Outcome::Unknown { failure, .. } => failure.message.len(),
            },
            Self::Ended(End::Complete(output)) => output.len(),
            Self::Continued(input) => input.len(),
            Self::Ended(End::Errored(failure)) => failure.message.len(),
            Self::Ended(End::Terminated { .. } | End::Cancelled { .. })
            | Self::Cancelled(_)
            | Self::Rollback(_)
            | Self::TakenOver(_)
            | Self::Registered(Registered {
                outcome: HookOutcome::Owned { .. } | HookOutcome::Conflict { .. },
                ..
            })
            | Self::Parked(_) => 64,
            Self::Compensating(compensating) => {
                compensating.failure.as_ref().map_or(0, |failure| failure.message.len())
            }
            Self::Compensated(compensated) => compensated.bytes(),
            Self::Reusable(reusable) => reusable.output.len(),
            Self::Lost(lost) => lost.progress.iter().map(|progress| progress.told.len()).sum(),
            Self::Delivered(delivered) => delivered.payload.len(),
            Self::Received(received) => received.payload.len(),
            Self::Registered(Registered { outcome: HookOutcome::Refused(failure), .. }) => {
                failure.message.len()
            }
            Self::Resolved(resolved) => match &resolved.choice {
                Choice::Done(output) => output.len(),
                Choice::Fail(failure) => failure.message.len(),
                Choice::Again => 0,
            },
            Self::Fired { .. }
            | Self::Patched(_)
            | Self::Retried
            | Self::Rekeyed(_)
            | Self::Closed(_)
            | Self::Intended(_)
            | Self::Withdrawn(_) => 0,
        };
        bytes as u64 + FRAME_BYTES
    }
}

/// Every entry has a frame of names, times and numbers around its payload.
const FRAME_BYTES: u64 = 128;

/// What the entry of an attempt with this outcome counts for.
#[must_use]
pub fn attempt_bytes(outcome: Result<&Payload, &Failure>) -> u64 {
    let bytes = outcome.map_or_else(|failure| failure.message.len(), Payload::len);
    bytes as u64 + FRAME_BYTES
}
