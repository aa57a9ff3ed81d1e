//! What follows from a heartbeat (rule W6): it is noted, answered, and what its session lacks is sent again.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use everstep_engine::{
    Input, What,
    account::{self, Kept, Lack, Shown, Unnamed},
};
use everstep_protocol::{
    SessionId,
    crash::around,
    limits::PROGRESS_BYTES,
    message::{Ack, CoordinatorItem, Entries, Heard, Heartbeat, Running, Taken},
};
use everstep_store::{LeaseRow, Range};

use super::{loops::Loops, sessions};
use crate::{
    arrival::Arrival,
    sender::{self, Asked},
    shared::Shared,
};

/// So many journals are read for the answer to one heartbeat. Under load most of what seems to be lacking is on its way.
const LACKING_MAX: usize = 100;

/// What the reader of the sessions queue keeps from heartbeat to heartbeat.
#[derive(Debug, Default)]
pub(super) struct Known {
    unnamed: HashMap<SessionId, Unnamed>,
    loops: Loops,
}

impl Known {
    /// Sessions that have ended are forgotten.
    pub(super) fn forget_ended(&mut self, shared: &Shared) {
        let live: HashSet<_> = shared.sessions().iter().map(|open| open.session).collect();
        self.unnamed.retain(|session, _| live.contains(session));
        self.loops.keep(shared, &live);
    }
}

/// Handles heartbeats together: the store notes them, and says what each session should have.
pub(super) async fn heard(shared: &Arc<Shared>, heartbeats: Vec<Heartbeat>, known: &mut Known) {
    let names: Vec<_> = heartbeats
        .iter()
        .map(|heartbeat| everstep_store::Heard { session: heartbeat.session, inbox: heartbeat.inbox.clone() })
        .collect();
    let held = match around("commit.session_heard", shared.store.heard(&names)).await {
        Ok(held) => held,
        Err(error) => {
            tracing::warn!(%error, "heartbeats were not noted; no lease runs meanwhile");
            return;
        }
    };
    for (heartbeat, kept) in heartbeats.into_iter().zip(held) {
        let (session, inbox) = (heartbeat.session, heartbeat.inbox.clone());
        let Some(kept) = kept else {
            known.unnamed.remove(&session);
            sessions::answer(shared, session, inbox, vec![CoordinatorItem::UnknownSession]).await;
            continue;
        };
        if shared.session(session).is_none_or(|known| known.inbox != inbox) {
            sessions::refresh(shared).await;
        }
        for credit in &heartbeat.credits {
            if credit.coordinator == shared.id {
                shared.room().credit(session, credit.limit);
            }
        }
        keep_progress(shared, session, heartbeat.progress.clone()).await;
        known.loops.heard(shared, session, heartbeat.turned);
        let shown = account::compare(&heartbeat, &kept, known.unnamed.entry(session).or_default());
        let items = follow(shared, &heartbeat, shown);
        sessions::answer(shared, session, inbox, items).await;
    }
}

/// Keeps what running attempts have told, for those after them (rule P5). Each heartbeat says all of it again.
async fn keep_progress(shared: &Shared, session: SessionId, mut progress: Vec<Running>) {
    progress.retain(|running| running.progress.told.len() <= PROGRESS_BYTES);
    if progress.is_empty() {
        return;
    }
    if let Err(error) = around("commit.progress", shared.store.keep_progress(session, &progress)).await {
        tracing::warn!(%error, %session, "the progress of attempts was not kept; the next heartbeat says it again");
    }
}

/// Does what a heartbeat showed to be lacking (rule W6). Gives the answer; what must be decided or read comes beside it.
fn follow(shared: &Arc<Shared>, heartbeat: &Heartbeat, shown: Shown) -> Vec<CoordinatorItem> {
    let ignores = everstep_protocol::planted("unconfirmed_kept");
    for kept in shown.again.iter().filter(|_| !ignores) {
        grant_again(shared, heartbeat.session, kept);
    }
    for kept in shown.unconfirmed.iter().filter(|_| !ignores) {
        unconfirmed(shared, heartbeat.session, kept);
    }
    let mut items = vec![CoordinatorItem::Heard(Heard {
        number: heartbeat.number,
        not_yours: shown.not_yours,
        steps_not_yours: shown.steps_not_yours,
    })];
    items.extend(shown.lacks.iter().filter(|lack| lack.ack).map(|lack| ack_again(shared, lack)));
    items.extend(shown.lacks.iter().filter(|lack| lack.pause).map(pause_again));
    let asked: Vec<_> = shown.lacks.iter().filter_map(lacking).take(LACKING_MAX).collect();
    if !asked.is_empty() {
        let (shared, session) = (Arc::clone(shared), heartbeat.session);
        tokio::spawn(async move {
            if !sender::send_entries(&shared, session, asked).await {
                tracing::debug!(%session, "entries that it lacks were not sent; its next heartbeat asks again");
            }
        });
    }
    items
}

/// The answer to reports that were taken; their entries are asked for by position, or come beside it.
fn ack_again(shared: &Shared, lack: &Lack) -> CoordinatorItem {
    CoordinatorItem::Ack(Ack {
        instance: lack.kept.uid,
        epoch: lack.kept.epoch,
        number: lack.kept.reports,
        after: lack.kept.position,
        at: shared.clock.estimate(),
        taken: Taken::Before,
    })
}

/// The holder is to give the lease up; said until it has.
fn pause_again(lack: &Lack) -> CoordinatorItem {
    CoordinatorItem::Entries(Entries {
        instance: lack.kept.uid,
        epoch: lack.kept.epoch,
        last: lack.kept.position,
        entries: Vec::new(),
        pause: Some(true),
    })
}

fn lacking(lack: &Lack) -> Option<Asked> {
    let range = Range { uid: lack.kept.uid, run: lack.kept.run, after: lack.entries_after? };
    Some(Asked { range, epoch: lack.kept.epoch })
}

/// A repeated claim is answered with the same grant.
fn grant_again(shared: &Shared, session: SessionId, kept: &Kept) {
    let what = match kept.subject.call() {
        None => What::Claim { session, have: None },
        Some(call) => What::StepClaim { session, call },
    };
    shared.submit(Arrival::new(Input::On { instance: kept.uid, what }));
}

fn unconfirmed(shared: &Shared, session: SessionId, kept: &Kept) {
    let Some(open) = shared.session(session) else {
        return;
    };
    let Kept { uid, subject, epoch, .. } = *kept;
    tracing::warn!(%session, instance = %uid, %epoch, "a lease was never confirmed and is ended");
    shared.metrics.leases_unconfirmed.inc();
    let lease = LeaseRow { uid, subject, epoch };
    shared.submit(Arrival::new(sessions::end_input(&open, &lease, Some(epoch), false, &[])));
}

#[cfg(test)]
mod tests {
    //! Proves that what heartbeats show is done. Not: what they show, which the engine's tests of accounts prove.
    use std::time::Duration;

    use super::*;
    use crate::rehearsal::{Hand, Rehearsal, heartbeat};

    #[tokio::test]
    async fn w06_a_lease_that_nobody_confirms_is_ended() {
        let mut coordinator = Rehearsal::at(&Hand::default());
        let (uid, session) = (coordinator.start("one", None).await, coordinator.opens().await);
        coordinator.leases(uid, session).await;
        let mut known = Known::default();
        for number in 1..=4 {
            heard(&coordinator.shared, vec![heartbeat(session, number)], &mut known).await;
        }
        let ends = async {
            loop {
                let Input::On { instance, what: What::LeaseEnded { .. } } = coordinator.next().await.input
                else {
                    continue;
                };
                return instance;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(5), ends).await.expect("the lease ends");
        assert_eq!(ended, uid);
    }
}
