//! Claims, leases given back, leases that ended with their session.

use everstep_protocol::{
    Epoch, Position, SessionId,
    journal::{Fact, Lost, ParkCode, Parked},
    message::{CoordinatorItem, Have},
};

use super::Draft;
use crate::{
    effect::{Answer, Change, Effect},
    rows::Subject,
};

/// A session answers a run task. A repeated claim gets the same grant again (rule W7). An instance that is pinned to another
/// build is not granted, however its task came there (rule P40).
pub(super) fn claim(draft: &mut Draft<'_>, session: SessionId, have: Option<Have>) -> Answer {
    let have = have.filter(|have| {
        (have.run == draft.head.run || everstep_protocol::planted("kept_body_of_another_run"))
            && have.position <= draft.head.position
    });
    let after = have.map_or(Position(0), |have| have.position);
    match draft.lease() {
        Some(lease) if lease.session == session => {
            let head = Box::new(draft.head.clone());
            draft.effects.push(Effect::Grant { session, head, direct: false, after, entries: Vec::new() });
            Answer::Nothing
        }
        Some(_) if everstep_protocol::planted("claim_taken") => {
            draft.grant(session, false, after);
            Answer::Granted
        }
        None if draft.is_ready()
            && !draft.head.status.is_ended()
            && !draft.is_parked()
            && draft.fits_taker() =>
        {
            draft.changes.push(Change::ReadyEnd(Subject::INSTANCE));
            draft.grant(session, false, after);
            Answer::Granted
        }
        _ => {
            let item = CoordinatorItem::NotGranted { instance: draft.uid() };
            draft.effects.push(Effect::Item(session, item));
            Answer::NotGranted
        }
    }
}

/// A session has no use for a grant, or stops. Never counts as a loss.
pub(super) fn give_back(draft: &mut Draft<'_>, session: SessionId, epoch: Epoch) -> Answer {
    if epoch > draft.head.epoch {
        return Answer::FromTheFuture;
    }
    match draft.lease() {
        Some(lease) if lease.session == session && lease.epoch == epoch => {
            draft.changes.push(Change::LeaseEnd(Subject::INSTANCE));
            if !everstep_protocol::planted("given_back_forgotten") {
                draft.make_runnable();
            }
            Answer::Done
        }
        _ => Answer::Nothing,
    }
}

/// The session of a lease has ended, or never confirmed it. A loss that does not count is an entry only for the progress
/// that it keeps.
pub(super) fn ended(draft: &mut Draft<'_>, epoch: Option<Epoch>, loss: Lost) -> Answer {
    match draft.lease() {
        Some(lease) if lease.session == loss.session && epoch.is_none_or(|epoch| epoch == lease.epoch) => {}
        _ => return Answer::Nothing,
    }
    draft.changes.push(Change::LeaseEnd(Subject::INSTANCE));
    let (counts, session) = (loss.counts, loss.session);
    if counts || !loss.progress.is_empty() {
        draft.append(Fact::Lost(loss));
    }
    if counts {
        draft.head.deaths = draft.head.deaths.saturating_add(1);
        if draft.head.deaths >= draft.context.deaths_max {
            let deaths = draft.head.deaths;
            let message = format!(
                "its holders died {deaths} times in a row without progress, the last as session {session}"
            );
            return draft.park(Parked::new(ParkCode::Poison, message));
        }
    }
    if !everstep_protocol::planted("lost_forgotten") {
        draft.make_runnable();
    }
    Answer::Done
}

impl Draft<'_> {
    /// Whether the session that asks is of the build that the instance is pinned to, if it is to one.
    fn fits_taker(&self) -> bool {
        let Some(build) = self.head.pinned_to() else { return true };
        if everstep_protocol::planted("pin_unchecked") {
            return true;
        }
        self.context.taker.is_some_and(|taker| taker.build == *build)
    }

    /// Parks the instance; its lease is over already or ends with the same decision.
    pub(super) fn park(&mut self, parked: Parked) -> Answer {
        self.append(Fact::Parked(parked.clone()));
        self.parked(parked);
        Answer::Parked
    }

    /// The instance is parked by an entry that is appended already. A pause is over: what goes on next is a person's decision.
    pub(super) fn parked(&mut self, mut parked: Parked) {
        self.lift_pause();
        if let Some(changed) = &mut parked.changed {
            changed.asked_at = Some(self.head.position);
        }
        self.changes.push(Change::Park(parked));
    }
}
