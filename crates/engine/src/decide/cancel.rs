//! Cancel (rule P30): the body is asked to end by itself. One entry says so. The calls that are open at it end with the error
//! of the cancel, and what they waited for is gone; later calls work as always, until the deadline.

use everstep_protocol::{
    Millis,
    journal::{Cancelled, Fact},
};

use super::{Draft, control, rollback};
use crate::{
    effect::{Answer, Change},
    letter::Said,
    rows::{Cancel, Control},
    transition::Operation,
};

/// How to cancel.
pub(super) struct Asked<'a> {
    pub(super) reason: Option<&'a String>,
    pub(super) within: Millis,
    /// Whether compensations run when the body ends with it (rule P38).
    pub(super) rollback: bool,
}

/// Asks once: a second cancel changes nothing, and so does one while compensations run.
pub(super) fn cancel(draft: &mut Draft<'_>, operation: &str, asked: &Asked<'_>) -> Answer {
    control::gated(draft, Operation::Cancel, operation, |draft| once(draft, asked))
}

/// An open instance is asked to end, if it was not before; so are its attached children.
pub(super) fn once(draft: &mut Draft<'_>, asked: &Asked<'_>) -> Answer {
    if draft.is_compensating() || draft.control.is_some_and(|control| control.cancel.is_some()) {
        return Answer::Nothing;
    }
    if draft.is_paused() {
        draft.lift_pause();
        draft.tell_pause(false);
    }
    let until = draft.context.now.plus(asked.within);
    let (reason, rollback) = (asked.reason.cloned(), asked.rollback);
    draft.append(Fact::Cancelled(Cancelled { reason: reason.clone(), until, rollback }));
    draft.head.waits = 0;
    draft.changes.push(Change::Calls);
    let cancel = Cancel { position: draft.head.position, until: Some(until), rollback };
    draft.set_control(Control { cancel: Some(cancel), ..Control::default() });
    draft.cascade(None, Said::Cancel { reason, within: asked.within });
    draft.wake();
    Answer::Done
}

/// Its time is over: what has not ended by itself is ended, after its compensations if the cancel wants a rollback.
pub(super) fn overdue(draft: &mut Draft<'_>) -> Answer {
    let cancel = draft.control.and_then(|control| control.cancel);
    let over = cancel.filter(|cancel| cancel.until.is_some_and(|until| until <= draft.context.now));
    let Some(cancel) = over.filter(|_| !draft.head.status.is_ended()) else { return Answer::Nothing };
    let reason = Some("it was cancelled and did not end by its deadline".to_owned());
    if cancel.rollback {
        rollback::begin(draft, reason);
    } else {
        control::end_now(draft, reason);
    }
    Answer::Done
}

impl Draft<'_> {
    /// Whether whoever has seen the journal up to there does not know of the cancel: calls that it made were open at it.
    pub(super) fn is_cancelled_after(&self, seen: everstep_protocol::Position) -> bool {
        self.control.and_then(|control| control.cancel).is_some_and(|cancel| cancel.position > seen)
    }
}
