//! Continue-as-new (rule P36): the next generation of an instance, with a fresh journal in a run of its own. What the code had
//! under way is over; unread events, a pause and a cancel go on.

use everstep_protocol::{
    HookId, Position, Run,
    journal::{Cancelled, Fact, Rollback, Started},
    message::Again,
};

use super::Draft;
use crate::{
    effect::{Answer, Change},
    rows::{Cancel, Control, Subject},
};

/// Begins the next generation; the entry that ends the one before is appended already.
pub(super) fn begin(draft: &mut Draft<'_>, again: &Again, seen: Position) -> Answer {
    let is_seen = !draft.is_cancelled_after(seen);
    draft.changes.push(Change::LeaseEnd(Subject::INSTANCE));
    draft.changes.push(Change::Calls);
    // The journal that ends here stays readable; those before it would grow without bound.
    if draft.head.run > Run(1) {
        draft.changes.push(Change::Cut(draft.head.run));
    }
    draft.last = std::mem::take(&mut draft.entries);
    draft.head.run = draft.head.run.next();
    draft.head.generation = draft.head.generation.next();
    draft.head.waits = 0;
    draft.begin_journal();
    let started = Started {
        input: again.input.clone(),
        seed: again.seed,
        generation: draft.head.generation,
        attributes: again.attributes.clone(),
        hook: again.hook.clone().filter(|token| draft.own(token).is_some_and(|row| row.id == HookId::START)),
        trace: again.trace.clone(),
    };
    draft.append(Fact::Started(started));
    carry_cancel(draft, again, is_seen);
    draft.make_runnable();
    Answer::Taken
}

/// A cancel asks the instance to end, not one of its generations: it meets the first calls of this one, with the deadline that
/// it had.
fn carry_cancel(draft: &mut Draft<'_>, again: &Again, is_seen: bool) {
    let Some((control, cancel)) = draft.control.and_then(|control| Some((control, control.cancel?))) else {
        return;
    };
    // What the body has not seen it cannot hand on: better no reason than that of another.
    let reason = again.cancelled.clone().filter(|_| is_seen);
    // A rollback without a deadline came after the last thing that the body saw: it meets this generation at its beginning. What
    // the one before did stays done, as with every generation that goes on.
    draft.append(match cancel.until {
        Some(until) => Fact::Cancelled(Cancelled { reason, until, rollback: cancel.rollback }),
        None => Fact::Rollback(Rollback { reason }),
    });
    let cancel = Cancel { position: draft.head.position, ..cancel };
    draft.set_control(Control { cancel: Some(cancel), ..control });
}

impl Draft<'_> {
    /// The head at the beginning of a journal.
    pub(super) fn begin_journal(&mut self) {
        self.head.position = Position(0);
        self.head.reports = 0;
        self.head.steps = 0;
        self.head.journal_bytes = 0;
        self.head.deaths = 0;
        // A body of another journal is of no use.
        self.head.cached = None;
    }
}
