//! Instances: from the run task over the claim to the grant, their turns, and the end of their lease.

use std::{
    cmp::Reverse,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use everstep_broker::Settle;
use everstep_protocol::{
    Epoch, InstanceUid,
    message::{Grant, RunTask, WorkerItem},
};
use everstep_sdk::host::panic_message;
use tokio::sync::OwnedSemaphorePermit;

use super::{Outs, Slot, Work};
use crate::{
    attempt::Owner,
    clock::Now,
    hosted::{Hosted, Out},
};

/// So many heartbeats may say that a lease is not held whose suspend is unanswered.
const DENIED_MAX: u32 = 3;

impl Work {
    /// A run task is only a hint: the claim asks whether it still holds. It is settled when the claim is handed over.
    pub(super) fn task(&mut self, task: RunTask, settle: Settle, room: OwnedSemaphorePermit, now: Now) {
        if self.incarnation() != Some(task.incarnation) {
            self.parts.metrics.aside("incarnation");
        } else if self.stopping.is_none()
            && !self.held.contains_key(&task.instance)
            && self.claims.begin(task.instance, room, now.at)
        {
            let have = self.cache.have(task.instance);
            self.send(WorkerItem::Claim { instance: task.instance, have });
        }
        self.settles.push(settle);
    }

    /// An instance whose body may be kept here is runnable: it is for this worker first, if that has room (rule W27).
    pub(super) fn offered(&mut self, instance: InstanceUid, now: Now) {
        if self.stopping.is_none()
            && !self.held.contains_key(&instance)
            && let Ok(room) = self.parts.room.clone().try_acquire_owned()
            && self.claims.begin(instance, room, now.at)
        {
            let have = self.cache.have(instance);
            self.send(WorkerItem::Claim { instance, have });
        }
    }

    /// A lease is granted, or its grant is repeated.
    pub(super) fn grant(&mut self, grant: Grant, now: Now) {
        let instance = grant.instance;
        let claimed = self.claims.answered(instance);
        match self.held.get(&instance).map(|slot| slot.hosted.epoch()) {
            Some(epoch) if epoch == grant.epoch => {
                return self.with(instance, Some(epoch), |hosted| hosted.granted(grant));
            }
            Some(epoch) if epoch > grant.epoch => return,
            Some(epoch) => self.overtaken(instance, epoch, &grant, now),
            None => {}
        }
        let room = claimed.or_else(|| self.parts.room.clone().try_acquire_owned().ok());
        let wanted = self.stopping.is_none()
            && !self.over.covers(&instance, grant.epoch)
            && self.parts.registry.definition(&grant.workflow).is_some();
        match (room, &self.session) {
            (Some(room), Some(session)) if wanted => {
                if let Some(interceptor) = &self.parts.interceptor {
                    interceptor.granted(&grant);
                }
                let env = Arc::clone(&session.env);
                let hosted = match self.cache.take(instance).filter(|kept| kept.fits(&grant)) {
                    Some(mut kept) => {
                        kept.resume(grant);
                        kept
                    }
                    None => Hosted::new(env, grant),
                };
                self.held
                    .insert(instance, Slot { hosted, _room: room, touched: false, timer: None, denied: 0 });
                self.touch(instance);
            }
            _ => {
                self.over.add(instance, grant.epoch);
                self.send(WorkerItem::GiveBack { instance, epoch: grant.epoch });
            }
        }
    }

    /// The lease that is held is over, as a newer grant says. It may say so before the suspend is answered: the answer comes by
    /// another way, perhaps from another coordinator.
    fn overtaken(&mut self, instance: InstanceUid, epoch: Epoch, grant: &Grant, now: Now) {
        let Some(slot) = self.held.get_mut(&instance).filter(|slot| slot.hosted.is_followed_by(grant)) else {
            return self.fence(instance, epoch, now);
        };
        let mut out = Outs::new();
        slot.hosted.suspended(&mut out);
        self.changed.push(instance);
        self.out(instance, epoch, out, now);
    }

    /// What a heartbeat says is held, the store says is not. Of a lease with an unanswered suspend that is to be expected, as the
    /// heartbeat was compared after the suspend was taken: whether it was, its own answer says, and the body is kept (rule W27).
    /// Meanwhile nothing runs here. Where no answer comes for some heartbeats, there is none.
    pub(super) fn not_ours(&mut self, instance: InstanceUid, epoch: Epoch, now: Now) {
        if let Some(slot) = self.held.get_mut(&instance).filter(|slot| slot.hosted.epoch() == epoch)
            && slot.hosted.is_suspending()
            && slot.denied < DENIED_MAX
        {
            slot.denied += 1;
            return;
        }
        self.fence(instance, epoch, now);
    }

    /// Every lease of the instance up to this epoch is over.
    pub(super) fn fence(&mut self, instance: InstanceUid, epoch: Epoch, now: Now) {
        if self.held.get(&instance).is_none_or(|slot| slot.hosted.epoch() > epoch) {
            return;
        }
        self.parts.metrics.fences.inc();
        self.dismiss(instance, now);
    }

    /// The instance is dropped without a word: its lease is not ours.
    pub(super) fn dismiss(&mut self, instance: InstanceUid, now: Now) {
        let Some(mut slot) = self.held.remove(&instance) else { return };
        let mut out = Outs::new();
        let epoch = slot.hosted.epoch();
        slot.hosted.dismiss(&mut out);
        self.over.add(instance, epoch);
        self.changed.push(instance);
        self.out(instance, epoch, out, now);
    }

    /// Tells an instance something, if it is held under that epoch.
    pub(super) fn with(
        &mut self,
        instance: InstanceUid,
        epoch: Option<Epoch>,
        tell: impl FnOnce(&mut Hosted),
    ) {
        let Some(slot) = self.held.get_mut(&instance) else { return };
        if epoch.is_none_or(|epoch| epoch == slot.hosted.epoch()) {
            tell(&mut slot.hosted);
            self.touch(instance);
        }
    }

    pub(super) fn touch(&mut self, instance: InstanceUid) {
        if let Some(slot) = self.held.get_mut(&instance)
            && !std::mem::replace(&mut slot.touched, true)
        {
            self.touched.push(instance);
        }
    }

    /// Every instance that something happened to takes its turn.
    pub(super) fn turns(&mut self, now: Now) {
        let mut out = Outs::new();
        for instance in std::mem::take(&mut self.touched) {
            let Some(slot) = self.held.get_mut(&instance) else { continue };
            slot.touched = false;
            let epoch = slot.hosted.epoch();
            turn(&mut slot.hosted, now, &mut out);
            let at = slot.hosted.deadline();
            if let Some(at) = at.filter(|at| slot.timer.is_none_or(|timer| *at < timer)) {
                slot.timer = Some(at);
                self.timers.push(Reverse((at, instance)));
            }
            self.changed.push(instance);
            self.out(instance, epoch, out.drain(..), now);
            if self.parts.watch.is_abandoned() {
                return;
            }
        }
    }

    fn out(&mut self, instance: InstanceUid, epoch: Epoch, out: impl IntoIterator<Item = Out>, now: Now) {
        for out in out {
            match out {
                Out::Send(item, life) => self.items.push((item, life)),
                Out::Start(order) => {
                    let owner = Owner::Call(instance, epoch, order.number);
                    self.parts.attempts.start(owner, *order, now.at);
                }
                Out::Cancel { number } => {
                    self.parts.attempts.cancel(Owner::Call(instance, epoch, number), now.at);
                }
                Out::Finished(finish) => {
                    tracing::debug!(%instance, %epoch, ?finish, "lease over");
                    let slot = self.held.remove(&instance);
                    self.over.add(instance, epoch);
                    if let Some(slot) = slot.filter(|slot| slot.hosted.is_asleep()) {
                        self.cache.put(instance, slot.hosted);
                    }
                }
            }
        }
    }
}

/// A bug of ours in one instance parks that instance; the loop lives on.
fn turn(hosted: &mut Hosted, now: Now, out: &mut Outs) {
    for _ in 0..2 {
        match catch_unwind(AssertUnwindSafe(|| hosted.turn(now, out))) {
            Ok(()) => return,
            Err(panic) => {
                let message = panic_message(panic.as_ref());
                tracing::error!(?hosted, message, "a turn panicked");
                hosted.broken(&message);
            }
        }
    }
}
