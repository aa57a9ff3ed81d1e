//! What people do to an instance: terminate, retry; and the end of an instance, however it came.

use everstep_protocol::{
    journal::{End, Fact, ParkCode, Parked},
    message::{CoordinatorItem, FenceReason},
};

use super::Draft;
use crate::{
    effect::{Answer, Change, Effect},
    head::Status,
    lifecycle::Lifecycle,
    rows::Subject,
};

/// Ends the instance from any open status (rule P30). The same operation gets its first answer (rule W4).
pub(super) fn terminate(draft: &mut Draft<'_>, operation: &str, reason: Option<&String>) -> Answer {
    if let Some(answer) = first_answer(draft, operation) {
        return answer;
    }
    let answer = if draft.head.status.is_ended() {
        Answer::Refused(draft.head.status)
    } else {
        if let Some(lease) = draft.lease() {
            let item = CoordinatorItem::Fence {
                instance: draft.uid(),
                epoch: lease.epoch,
                why: FenceReason::Terminated,
            };
            draft.effects.push(Effect::Item(lease.session, item));
        }
        let end = End::Terminated { reason: reason.cloned() };
        draft.append(Fact::Ended(end.clone()));
        draft.end(end);
        Answer::Done
    };
    draft.changes.push(Change::Operation(operation.to_owned(), answer.clone()));
    answer
}

/// Lets a parked instance go on (rule P41).
pub(super) fn retry(draft: &mut Draft<'_>, operation: &str) -> Answer {
    if let Some(answer) = first_answer(draft, operation) {
        return answer;
    }
    let answer = if draft.head.status.is_ended() {
        Answer::Refused(draft.head.status)
    } else if draft.is_parked() {
        draft.append(Fact::Retried);
        draft.head.deaths = 0;
        draft.changes.push(Change::ParkEnd);
        draft.make_runnable();
        Answer::Done
    } else {
        Answer::NotParked
    };
    draft.changes.push(Change::Operation(operation.to_owned(), answer.clone()));
    answer
}

/// What a decision wrote was refused by the store: the instance is parked with what it said (rule W20).
pub(super) fn unwritable(draft: &mut Draft<'_>, message: &str) -> Answer {
    if draft.head.status.is_ended() || draft.is_parked() {
        return Answer::Nothing;
    }
    if let Some(lease) = draft.lease() {
        let why = FenceReason::Parked;
        let item = CoordinatorItem::Fence { instance: draft.uid(), epoch: lease.epoch, why };
        draft.effects.push(Effect::Item(lease.session, item));
    }
    draft.changes.push(Change::LeaseEnd(Subject::INSTANCE));
    draft.changes.push(Change::ReadyEnd(Subject::INSTANCE));
    draft.park(Parked { code: ParkCode::Broken, message: format!("the store refused a decision: {message}") })
}

fn first_answer(draft: &Draft<'_>, operation: &str) -> Option<Answer> {
    draft.context.rows.operations.get(&(draft.uid(), operation.to_owned())).cloned()
}

impl Draft<'_> {
    /// The instance has ended; the entry that says so is appended by whoever ends it.
    pub(super) fn end(&mut self, end: End) {
        self.head.status = match end {
            End::Complete(_) => Status::Complete,
            End::Errored(_) => Status::Errored,
            End::Terminated { .. } => Status::Terminated,
        };
        self.head.ended_at = Some(self.context.now);
        self.head.waits = 0;
        self.changes.push(Change::Everything);
        self.changes.push(Change::Outbox(Lifecycle {
            instance: self.uid(),
            head: Box::new(self.head.clone()),
            end,
            at: self.context.now,
        }));
    }
}
