//! Cancel (rule P30): the body is asked to end by itself. One entry says so. The calls that are open at it end with the error
//! of the cancel, and what they waited for is gone; later calls work as always, until the deadline.

use everstep_protocol::{
    Millis,
    journal::{Cancelled, Fact},
};

use super::{Draft, control};
use crate::{
    effect::{Answer, Change},
    letter::Said,
    rows::{Cancel, Control},
    transition::Operation,
};

/// Asks once: a second cancel changes nothing.
pub(super) fn cancel(
    draft: &mut Draft<'_>,
    operation: &str,
    reason: Option<&String>,
    within: Millis,
) -> Answer {
    control::gated(draft, Operation::Cancel, operation, |draft| once(draft, reason, within))
}

/// An open instance is asked to end, if it was not before; so are its attached children.
pub(super) fn once(draft: &mut Draft<'_>, reason: Option<&String>, within: Millis) -> Answer {
    if draft.control.is_some_and(|control| control.cancel.is_some()) {
        return Answer::Nothing;
    }
    if draft.is_paused() {
        draft.lift_pause();
        draft.tell_pause(false);
    }
    let until = draft.context.now.plus(within);
    draft.append(Fact::Cancelled(Cancelled { reason: reason.cloned(), until }));
    draft.head.waits = 0;
    draft.changes.push(Change::Calls);
    let cancel = Cancel { position: draft.head.position, until };
    draft.set_control(Control { cancel: Some(cancel), ..Control::default() });
    draft.cascade(None, Said::Cancel { reason: reason.cloned(), within });
    draft.wake();
    Answer::Done
}

/// Its time is over: what has not ended by itself is ended.
pub(super) fn overdue(draft: &mut Draft<'_>) -> Answer {
    let over = draft
        .control
        .and_then(|control| control.cancel)
        .is_some_and(|cancel| cancel.until <= draft.context.now);
    if draft.head.status.is_ended() || !over {
        return Answer::Nothing;
    }
    control::end_now(draft, Some("it was cancelled and did not end by its deadline".to_owned()));
    Answer::Done
}

impl Draft<'_> {
    /// Whether whoever has seen the journal up to there does not know of the cancel: calls that it made were open at it.
    pub(super) fn is_cancelled_after(&self, seen: everstep_protocol::Position) -> bool {
        self.control.and_then(|control| control.cancel).is_some_and(|cancel| cancel.position > seen)
    }
}
