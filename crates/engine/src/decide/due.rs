//! The wait of a call may be due. The scan that says so holds no lock: what it saw may be gone (rule W23).

use everstep_protocol::CallHash;

use super::Draft;
use crate::{
    effect::{Answer, Change, Effect},
    rows::{Subject, WaitKind, WaitRow},
};

/// Ends the wait if it is there and due; a wake-up is never early (rule P20).
pub(super) fn due(draft: &mut Draft<'_>, call: CallHash) -> Answer {
    let Some(wait) = draft.context.rows.waits.get(&(draft.uid(), call)) else {
        return Answer::Nothing;
    };
    // While it is paused its time does not come (rule P29).
    if draft.is_paused() || wait.due_at.is_none_or(|due_at| due_at > draft.context.now) {
        return Answer::Nothing;
    }
    let wait = wait.clone();
    match wait.kind {
        // Those of another instance, of a hook and of a person have no time of their own.
        WaitKind::Person => return Answer::Nothing,
        WaitKind::Sleep | WaitKind::Retry | WaitKind::Event | WaitKind::Instance | WaitKind::Hook => {
            draft.fire(&wait);
            if !everstep_protocol::planted("due_wakes_nobody") {
                draft.wake();
            }
        }
        WaitKind::Remote => {
            draft.changes.push(Change::WaitEnd(call));
            retry_remote(draft, call, wait);
        }
    }
    Answer::Done
}

/// The retry delay of a remote step is over: its next attempt is offered to the pool.
fn retry_remote(draft: &mut Draft<'_>, call: CallHash, wait: WaitRow) {
    let Some(row) = draft.context.rows.remotes.get(&(draft.uid(), call)) else {
        // Its outcome came meanwhile and took the wait's reason with it.
        draft.head.waits = draft.head.waits.saturating_sub(1);
        return;
    };
    let pool = row.remote.pool.clone();
    draft.changes.push(Change::Wait(WaitRow { due_at: None, ..wait }));
    if !everstep_protocol::planted("remote_retry_forgotten") {
        draft.changes.push(Change::Ready(Subject::step(call), Some(pool.clone())));
    }
    draft.effects.push(Effect::OfferStep {
        namespace: draft.head.namespace.clone(),
        pool,
        instance: draft.uid(),
        call,
    });
}
