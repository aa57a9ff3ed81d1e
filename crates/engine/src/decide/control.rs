//! What people do to an instance: terminate, retry; the gate that every operation passes; and the end of an instance, however
//! it came.

use everstep_protocol::{
    journal::{End, Fact, KeyChoice, ParkCode, Parked, QuestionId, Rekeyed},
    message::{CoordinatorItem, FenceReason},
};

use super::{
    Draft,
    question::{Rekeying, Unparking},
};
use crate::{
    effect::{Answer, Change, Effect},
    head::Status,
    letter::Said,
    lifecycle::Lifecycle,
    rows::Subject,
    transition::{Operation, Outcome},
};

/// Ends the instance from any open status (rule P30). The same operation gets its first answer (rule W4).
pub(super) fn terminate(draft: &mut Draft<'_>, operation: &str, reason: Option<&String>) -> Answer {
    gated(draft, Operation::Terminate, operation, |draft| {
        end_now(draft, reason.cloned());
        Answer::Done
    })
}

/// Ends the instance if it is parked.
pub(super) fn abandon(draft: &mut Draft<'_>, operation: &str, reason: Option<&String>) -> Answer {
    gated(draft, Operation::Terminate, operation, |draft| {
        if !draft.is_parked() {
            return Answer::NotParked;
        }
        end_now(draft, reason.cloned());
        Answer::Done
    })
}

/// Ends an open instance; its holder is told.
pub(super) fn end_now(draft: &mut Draft<'_>, reason: Option<String>) {
    if let Some(lease) = draft.lease() {
        let why = FenceReason::Terminated;
        let item = CoordinatorItem::Fence { instance: draft.uid(), epoch: lease.epoch, why };
        draft.effects.push(Effect::Item(lease.session, item));
    }
    draft.cascade(None, Said::Terminate { reason: reason.clone() });
    let end = End::Terminated { reason };
    draft.append(Fact::Ended(end.clone()));
    draft.end(end);
}

/// Lets a parked instance go on (rule P41).
pub(super) fn retry(draft: &mut Draft<'_>, operation: &str) -> Answer {
    gated(draft, Operation::Retry, operation, |draft| go_on(draft, Fact::Retried))
}

/// Answers what is asked of an instance that is parked for a step's other input (rule P8).
pub(super) fn rekey(draft: &mut Draft<'_>, operation: &str, rekeying: &Rekeying) -> Answer {
    let Rekeying { question: QuestionId { run, position }, choice, by, why } = rekeying;
    let ends = *choice == Unparking::Terminate;
    gated(draft, if ends { Operation::Terminate } else { Operation::Retry }, operation, |draft| {
        let parked = draft.context.rows.parked.get(&draft.uid()).filter(|_| *run == draft.head.run);
        let changed = parked.and_then(|parked| parked.changed.as_ref());
        let Some(changed) = changed.filter(|changed| changed.asked_at == Some(*position)) else {
            return Answer::NotAsked;
        };
        let rekeyed = |kept| {
            let (call, input, by, why) = (changed.call.clone(), changed.input, by.clone(), why.clone());
            Fact::Rekeyed(Rekeyed { call, input, kept, by, why })
        };
        match choice {
            Unparking::Key(KeyChoice::OldKey) => go_on(draft, rekeyed(Some(changed.key))),
            Unparking::Key(KeyChoice::NewKey) => go_on(draft, rekeyed(None)),
            Unparking::Retry => go_on(draft, Fact::Retried),
            Unparking::Terminate => {
                end_now(draft, why.clone());
                Answer::Done
            }
        }
    })
}

fn go_on(draft: &mut Draft<'_>, said: Fact) -> Answer {
    draft.append(said);
    draft.head.deaths = 0;
    draft.changes.push(Change::ParkEnd);
    draft.make_runnable();
    Answer::Done
}

/// Every operation goes through here: repeated, it gets its first answer (rule W4); where the table of transitions refuses it,
/// or says that there is nothing to do, nothing changes.
pub(super) fn gated<'a>(
    draft: &mut Draft<'a>,
    operation: Operation,
    id: &str,
    act: impl FnOnce(&mut Draft<'a>) -> Answer,
) -> Answer {
    if let Some(answer) = first_answer(draft, id) {
        return answer;
    }
    let status = draft.status();
    let answer = match operation.on(status) {
        Outcome::Becomes(_) | Outcome::Gone => act(draft),
        Outcome::Nothing => Answer::Nothing,
        Outcome::Refused if status.is_ended() => Answer::Refused(draft.head.status),
        Outcome::Refused if operation == Operation::Retry => Answer::NotParked,
        Outcome::Refused => Answer::Forbidden(status),
    };
    let gone = draft.changes.iter().any(|change| matches!(change, Change::Delete(_)));
    // What is to be prepared again will come under the same id.
    if !gone && answer != Answer::Moved {
        draft.changes.push(Change::Operation(id.to_owned(), answer.clone()));
    }
    answer
}

/// What a decision wrote was refused by the store: the instance is parked with what it said (rule W20).
pub(super) fn unwritable(draft: &mut Draft<'_>, message: &str) -> Answer {
    if draft.head.status.is_ended() || draft.is_parked() {
        return Answer::Nothing;
    }
    draft.stop(format!("the store refused a decision: {message}"))
}

pub(super) fn first_answer(draft: &Draft<'_>, operation: &str) -> Option<Answer> {
    draft.context.rows.operations.get(&(draft.uid(), operation.to_owned())).cloned()
}

impl Draft<'_> {
    /// Whether an operation of this id was answered before.
    pub(super) fn is_known(&self, operation: &str) -> bool {
        first_answer(self, operation).is_some()
    }

    /// Something is wrong with the instance that only a person can set right: whoever holds it is told to stop, and it is parked.
    pub(super) fn stop(&mut self, message: String) -> Answer {
        if let Some(lease) = self.lease() {
            let why = FenceReason::Parked;
            let item = CoordinatorItem::Fence { instance: self.uid(), epoch: lease.epoch, why };
            self.effects.push(Effect::Item(lease.session, item));
        }
        self.changes.push(Change::LeaseEnd(Subject::INSTANCE));
        self.changes.push(Change::ReadyEnd(Subject::INSTANCE));
        self.park(Parked::new(ParkCode::Broken, message))
    }

    /// The instance has ended; the entry that says so is appended by whoever ends it.
    pub(super) fn end(&mut self, end: End) {
        self.head.status = match end {
            End::Complete(_) => Status::Complete,
            End::Errored(_) => Status::Errored,
            End::Terminated { .. } => Status::Terminated,
            End::Cancelled { .. } => Status::Cancelled,
        };
        self.head.ended_at = Some(self.context.now);
        self.head.waits = 0;
        self.control = None;
        self.changes.push(Change::Everything);
        let delete_at = self.context.retention.delete_at(&self.head, self.context.now);
        // Whoever finds its token taken is to find it (rule H55).
        let delete_at = self.head.hooks_until.map_or(delete_at, |until| delete_at.max(until));
        if self.head.hooks > 0 {
            self.changes.push(Change::HooksEnded);
        }
        self.changes.push(Change::Ended(delete_at));
        self.conclude(&end);
        self.changes.push(Change::Outbox(Lifecycle {
            instance: self.uid(),
            head: Box::new(self.head.clone()),
            end,
            at: self.context.now,
        }));
    }
}
