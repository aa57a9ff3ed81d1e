//! Pins an instance to a build, moves it to another, or lets any build have it (rule P40).

use everstep_protocol::Pin;

use super::{Draft, control::gated};
use crate::{
    effect::{Answer, Change},
    rows::Subject,
    transition::Operation,
};

/// What is ready goes to the queue of its new build at once. Whoever holds it goes on until the lease ends: only then another
/// build can have it.
pub(super) fn pin(draft: &mut Draft<'_>, operation: &str, pin: Option<&Pin>) -> Answer {
    gated(draft, Operation::Pin, operation, |draft| {
        if draft.head.pin.as_ref() == pin {
            return Answer::Nothing;
        }
        draft.head.pin = pin.cloned();
        // Whoever may have kept the body may be of another build.
        draft.head.cached = None;
        if draft.lease().is_none() && draft.is_ready() {
            draft.changes.push(Change::ReadyEnd(Subject::INSTANCE));
            draft.make_runnable();
        }
        Answer::Done
    })
}
