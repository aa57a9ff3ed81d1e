//! Rollbacks (rule P38). Compensations are run by the workflow's own code, so a rollback never ends an instance at once: one entry
//! says that it is wanted, the body is thrown away where it stands, and the instance is runnable until its compensations are over.
//! That they have begun is an entry too. From then on nothing asks the body to end: no cancel, no deadline.

use everstep_protocol::journal::{Fact, Rollback};

use super::{Draft, control::gated};
use crate::{
    effect::{Answer, Change},
    letter::Said,
    rows::{Cancel, Control},
    transition::Operation,
};

/// Ends the instance after its compensations. Once they run, asking again changes nothing.
pub(super) fn rollback(draft: &mut Draft<'_>, operation: &str, reason: Option<&String>) -> Answer {
    gated(draft, Operation::Rollback, operation, |draft| {
        if draft.is_compensating() {
            return Answer::Nothing;
        }
        begin(draft, reason.cloned());
        Answer::Done
    })
}

/// What is open ends with this entry, like at a cancel. A parked instance goes on, as after a retry: it is parked again if its code
/// still does not get to the end of the journal.
pub(super) fn begin(draft: &mut Draft<'_>, reason: Option<String>) {
    if draft.is_paused() {
        draft.lift_pause();
        draft.tell_pause(false);
    }
    draft.append(Fact::Rollback(Rollback { reason: reason.clone() }));
    draft.cascade(None, Said::Terminate { reason });
    draft.head.waits = 0;
    draft.changes.push(Change::Calls);
    draft.set_control(Control {
        paused_at: None,
        cancel: Some(Cancel { position: draft.head.position, until: None, rollback: true }),
        compensating_at: Some(draft.context.now),
    });
    if draft.is_parked() {
        draft.head.deaths = 0;
        draft.changes.push(Change::ParkEnd);
        draft.make_runnable();
    } else {
        draft.wake();
    }
}

impl Draft<'_> {
    /// Whether the body is over, or to be thrown away, and compensations follow.
    pub(super) fn is_compensating(&self) -> bool {
        self.control.is_some_and(|control| control.compensating_at.is_some())
    }

    /// The holder says that compensations begin.
    pub(super) fn compensates(&mut self) {
        let control = self.control.unwrap_or_default();
        self.set_control(Control {
            compensating_at: control.compensating_at.or(Some(self.context.now)),
            cancel: control.cancel.map(|cancel| Cancel { until: None, ..cancel }),
            ..control
        });
    }
}
