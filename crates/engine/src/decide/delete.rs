//! Delete (rule P32): no trace of the instance is left. Its journal may be large: it is cut off here, and removed in parts.

use super::{Draft, control};
use crate::{
    effect::{Answer, Change, Forget},
    transition::Operation,
};

/// Deletes an ended instance; one that is open only if it may be terminated first.
pub(super) fn delete(draft: &mut Draft<'_>, operation: &str, terminate: bool) -> Answer {
    if terminate && !draft.head.status.is_ended() {
        control::end_now(draft, Some("it is deleted".to_owned()));
        draft.changes.push(Change::Delete(Forget::Everything));
        return Answer::Done;
    }
    control::gated(draft, Operation::Delete, operation, |draft| {
        draft.changes.push(Change::Delete(Forget::Everything));
        Answer::Done
    })
}

/// Its retention may be over.
pub(super) fn expire(draft: &mut Draft<'_>) -> Answer {
    let over = draft.context.rows.expiries.get(&draft.uid()).is_some_and(|at| *at <= draft.context.now);
    if !(draft.head.status.is_ended() && over) {
        return Answer::Nothing;
    }
    draft.changes.push(Change::Delete(Forget::AllButRecentMessages));
    Answer::Done
}
