//! Pause and resume (rule P29). While paused nothing becomes runnable: no ready row is written, due waits are left alone, no
//! remote step is offered. What could have moved moves at the resume.

use everstep_protocol::message::{CoordinatorItem, Entries};

use super::{Draft, control::gated};
use crate::{
    effect::{Answer, Change, Effect},
    rows::{Control, Subject},
    transition::Operation,
};

/// Attempts that run finish, and their holder gives the lease up; without a holder it is paused at once.
pub(super) fn pause(draft: &mut Draft<'_>, operation: &str) -> Answer {
    gated(draft, Operation::Pause, operation, |draft| {
        let control = draft.control.unwrap_or_default();
        draft.set_control(Control { paused_at: Some(draft.context.now), ..control });
        if draft.lease().is_some() {
            draft.tell_pause(true);
        } else if draft.is_ready() {
            draft.changes.push(Change::ReadyEnd(Subject::INSTANCE));
        }
        Answer::Done
    })
}

/// It goes on: where it stands if it is still held, else from the beginning of its journal.
pub(super) fn resume(draft: &mut Draft<'_>, operation: &str) -> Answer {
    gated(draft, Operation::Resume, operation, |draft| {
        draft.lift_pause();
        if draft.lease().is_some() {
            draft.tell_pause(false);
        } else {
            draft.make_runnable();
        }
        Answer::Done
    })
}

impl Draft<'_> {
    pub(super) fn is_paused(&self) -> bool {
        self.control.is_some_and(|control| control.paused_at.is_some())
    }

    pub(super) fn set_control(&mut self, control: Control) {
        let empty = control == Control::default();
        self.control = (!empty).then_some(control);
        self.changes.push(if empty { Change::ControlEnd } else { Change::Control(control) });
    }

    /// The pause is over, if there is one. Waits whose time came meanwhile become due now: the scan that looks for them has
    /// passed them.
    pub(super) fn lift_pause(&mut self) {
        let Some(control) = self.control.filter(|control| control.paused_at.is_some()) else { return };
        self.set_control(Control { paused_at: None, ..control });
        if self.head.waits > 0 {
            self.changes.push(Change::WaitsDue);
        }
    }

    /// The holder is told; the answers to its heartbeats repeat a pause until its lease is over.
    pub(super) fn tell_pause(&mut self, pause: bool) {
        let Some(lease) = self.lease() else { return };
        let entries = Entries {
            instance: self.uid(),
            epoch: lease.epoch,
            last: self.head.position,
            entries: Vec::new(),
            pause: Some(pause),
        };
        self.effects.push(Effect::Item(lease.session, CoordinatorItem::Entries(entries)));
    }
}
