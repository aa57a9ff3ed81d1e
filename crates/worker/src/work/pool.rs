//! Remote steps of this worker's pools: task, claim, grant, attempt, report (rule W39).

use everstep_broker::Settle;
use everstep_protocol::{
    Epoch,
    message::{StepGrant, StepTask, WorkerItem},
};
use tokio::sync::OwnedSemaphorePermit;

use super::{Work, owner_of_step};
use crate::{clock::Now, hosted::Ended, remote::StepKey};

impl Work {
    pub(super) fn step_task(&mut self, task: StepTask, settle: Settle, room: OwnedSemaphorePermit, now: Now) {
        let key = (task.instance, task.call);
        if self.incarnation() != Some(task.incarnation) {
            self.parts.metrics.aside("incarnation");
        } else if self.stopping.is_none()
            && self.remotes.epoch(key).is_none()
            && self.step_claims.begin(key, room, now.at)
        {
            self.send(WorkerItem::StepClaim { instance: task.instance, call: task.call });
        }
        self.settles.push(settle);
    }

    pub(super) fn step_grant(&mut self, grant: StepGrant, now: Now) {
        let key = (grant.instance, grant.hash);
        let claimed = self.step_claims.answered(key);
        match self.remotes.epoch(key) {
            Some(epoch) if epoch >= grant.epoch => return,
            Some(epoch) => self.step_fence(key, epoch, now),
            None => {}
        }
        let room = claimed.or_else(|| self.parts.step_room.clone().try_acquire_owned().ok());
        let wanted = self.stopping.is_none() && !self.steps_over.covers(&key, grant.epoch);
        match room {
            Some(room) if wanted => {
                let owner = owner_of_step(key, grant.epoch);
                let mut order = self.remotes.granted(grant, &self.parts.registry, room);
                order.session = self.session.as_ref().map(|session| session.env.session);
                self.parts.attempts.start(owner, order, now.at);
                self.steps_changed = true;
            }
            _ => self.step_give_back(key, grant.epoch, true),
        }
    }

    pub(super) fn step_ended(&mut self, key: StepKey, epoch: Epoch, ended: Ended, now: Now) {
        if let Some(item) = self.remotes.ended(key, epoch, ended, now.at) {
            self.parts.metrics.reports.inc();
            self.send(item);
        }
    }

    /// The lease is over, or the claim was not granted.
    pub(super) fn step_fence(&mut self, key: StepKey, epoch: Epoch, now: Now) {
        drop(self.step_claims.answered(key));
        let Some(held) = self.remotes.epoch(key).filter(|held| *held <= epoch) else { return };
        self.parts.metrics.fences.inc();
        if self.remotes.over(key, epoch) {
            self.parts.attempts.cancel(owner_of_step(key, held), now.at);
        }
        self.steps_over.add(key, held);
        self.steps_changed = true;
    }

    /// The report was committed, or was known already.
    pub(super) fn step_over(&mut self, key: StepKey, epoch: Epoch) {
        self.remotes.over(key, epoch);
        self.steps_over.add(key, epoch);
        self.steps_changed = true;
    }

    /// `unstarted` says that its attempt never began.
    pub(super) fn step_give_back(&mut self, key: StepKey, epoch: Epoch, unstarted: bool) {
        self.remotes.over(key, epoch);
        self.steps_over.add(key, epoch);
        self.steps_changed = true;
        self.send(WorkerItem::StepGiveBack { instance: key.0, call: key.1, epoch, unstarted });
    }
}
