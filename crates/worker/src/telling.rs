//! What the running attempts have told of their progress: written by user code on any thread, read by the link for each
//! heartbeat (rule P5).

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use everstep_protocol::{
    Attempt, Call, CallHash, CallKind, Epoch, InstanceUid, journal::Progress as Told, limits::PART_BYTES,
    message::Running,
};

use crate::{
    attempt::{AttemptId, Owner},
    hosted::{Order, Progress, told},
};

/// The attempts that run.
#[derive(Debug, Default)]
pub(crate) struct Telling(Mutex<BTreeMap<AttemptId, Teller>>);

#[derive(Debug)]
struct Teller {
    instance: InstanceUid,
    epoch: Epoch,
    call: CallHash,
    attempt: Attempt,
    progress: Progress,
}

impl Telling {
    pub(crate) fn begin(&self, id: AttemptId, owner: Owner, order: &Order) {
        let (instance, epoch, call) = match owner {
            Owner::Remote(instance, call, epoch) => (instance, epoch, call),
            Owner::Call(instance, epoch, _) => {
                let (name, count) = (order.info.name.clone(), order.info.count);
                (instance, epoch, Call { kind: CallKind::Step, name, count }.hash())
            }
        };
        let (attempt, progress) = (order.info.attempt, order.progress.clone());
        self.lock().insert(id, Teller { instance, epoch, call, attempt, progress });
    }

    /// It has ended, or what it still tells is of no interest.
    pub(crate) fn end(&self, id: AttemptId) {
        self.lock().remove(&id);
    }

    /// What has been told, as far as it fits a heartbeat: the oldest attempts first, which have most to lose.
    pub(crate) fn told(&self) -> Vec<Running> {
        let mut left = PART_BYTES;
        let tell = |teller: &Teller| {
            let Teller { instance, epoch, call, attempt, ref progress } = *teller;
            Some(Running { instance, epoch, progress: Told { call, attempt, told: told(progress)? } })
        };
        let fits = |running: &Running| {
            left = left.saturating_sub(running.progress.told.len());
            left > 0
        };
        self.lock().values().filter_map(tell).take_while(fits).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<AttemptId, Teller>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
