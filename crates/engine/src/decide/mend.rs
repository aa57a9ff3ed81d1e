//! Mends a breach of promise 5 (see [`breach`](crate::breach)), if it is still there.

use everstep_protocol::{CallHash, journal::Lost};

use super::{Draft, lease, step};
use crate::{
    breach::{Breach, Calls, Expected},
    effect::{Answer, Change},
    letter::{Address, Caller, NewLetter, Said},
    mailbox::{Awaited, Mailbox},
    rows::{Subject, WaitKind, WaitRow},
    start::NameKey,
};

/// What is no breach, or no longer, is left alone.
pub(super) fn mend(draft: &mut Draft<'_>, breach: &Breach) -> Answer {
    if draft.head.status.is_ended() {
        return Answer::Nothing;
    }
    match breach {
        Breach::Idle(calls) | Breach::WaitsMiscounted(calls) => waits(draft, calls),
        Breach::SessionUnknown { session, subject, build } => match subject.call() {
            None => {
                let loss = Lost { slots: 0, counts: false, session: *session, progress: Vec::new() };
                lease::ended(draft, None, loss)
            }
            Some(call) => {
                let from = step::From { session: *session, build, call, progress: None };
                step::ended(draft, &from, None, (false, false))
            }
        },
        Breach::StepUnoffered(call) => step_unoffered(draft, *call),
        Breach::StepMissing(call) => step_missing(draft, *call),
        Breach::EventUnheard { call, awaited } => event_unheard(draft, *call, awaited),
        Breach::HookMissing(call) => hook_missing(draft, *call),
        Breach::ChildUnwatched { call, child } => child_unwatched(draft, *call, child),
    }
}

/// Counts the waits anew, and opens those that the journal has open and that are not there. Where another input of the batch has
/// changed what was counted, or the journal has gone on since it was read, the next walk looks again.
fn waits(draft: &mut Draft<'_>, calls: &Calls) -> Answer {
    let Some(tally) = draft.context.rows.tallies.get(&draft.uid()).copied() else { return Answer::Nothing };
    if tally.noted != draft.head.waits || calls.run != draft.head.run || calls.last != draft.head.position {
        return Answer::Nothing;
    }
    let (mut rows, mut lost) = (Vec::new(), Vec::new());
    for expected in calls.waits.iter().filter(|(call, _)| draft.wait(**call).is_none()).map(|(_, wait)| wait)
    {
        match expected {
            Expected::Row(wait) => rows.push(WaitRow::clone(wait)),
            // Of one that is parked a person is asked already.
            Expected::More(_) if draft.is_parked() => {}
            Expected::More(call) => lost.push(call.to_string()),
        }
    }
    let has_reason = draft.lease().is_some() || draft.is_ready() || draft.is_parked() || draft.is_paused();
    let is_right = tally.waits == draft.head.waits && rows.is_empty() && lost.is_empty();
    if is_right && (has_reason || tally.waits > 0) {
        return Answer::Nothing;
    }
    draft.head.waits = tally.waits;
    for wait in rows {
        draft.open_wait(wait);
    }
    if !lost.is_empty() {
        let calls = lost.join(", ");
        let message = format!("what these calls wait for is not there any more: {calls}");
        return draft.stop(message);
    }
    if !has_reason && draft.head.waits == 0 {
        draft.make_runnable();
    }
    Answer::Done
}

fn step_unoffered(draft: &mut Draft<'_>, call: CallHash) -> Answer {
    let key = (draft.uid(), Subject::step(call));
    let is_offered =
        draft.context.rows.leases.contains_key(&key) || draft.context.rows.ready.contains_key(&key);
    let waits = draft.wait(call).is_some_and(|wait| wait.kind == WaitKind::Remote && wait.due_at.is_none());
    let Some(row) = draft.context.rows.remotes.get(&(draft.uid(), call)).filter(|_| waits && !is_offered)
    else {
        return Answer::Nothing;
    };
    // Its lease was the intent (rule L7): whoever had it may have called.
    if row.granted_at.is_some() && row.remote.policy.class.is_intended() && !draft.is_paused() {
        let row = row.clone();
        return step::forgotten(draft, call, &row);
    }
    let (pool, called) = (row.remote.pool.clone(), row.call.clone());
    if draft.is_paused() {
        draft.hold_step(call, &called);
    } else {
        draft.changes.push(Change::Ready(Subject::step(call), Some(pool.clone())));
        draft.offer_step(call, pool);
    }
    Answer::Done
}

fn step_missing(draft: &mut Draft<'_>, call: CallHash) -> Answer {
    let Some(wait) = draft.wait(call).filter(|wait| wait.kind == WaitKind::Remote) else {
        return Answer::Nothing;
    };
    if draft.is_parked() || draft.context.rows.remotes.contains_key(&(draft.uid(), call)) {
        return Answer::Nothing;
    }
    let called = &wait.call;
    draft.stop(format!(
        "the remote step {called} is not there any more: restart the instance, or terminate it"
    ))
}

/// Writing what an event finds the wait by does no harm where it is there.
fn event_unheard(draft: &mut Draft<'_>, call: CallHash, awaited: &Awaited) -> Answer {
    let is_meant = |wait: &&WaitRow| wait.awaited.as_ref() == Some(awaited);
    let Some(wait) = draft.wait(call).filter(is_meant).cloned() else { return Answer::Nothing };
    let mut mailbox = Mailbox::of(draft.context.rows, draft.uid());
    if let Some(row) = mailbox.unread(awaited).cloned() {
        draft.deliver(&mut mailbox, &row, &wait);
        draft.wake();
    } else {
        draft.changes.push(Change::WaitEnd(call));
        draft.changes.push(Change::Wait(wait));
    }
    Answer::Done
}

fn hook_missing(draft: &mut Draft<'_>, call: CallHash) -> Answer {
    let owns = draft.context.rows.tallies.get(&draft.uid()).is_none_or(|tally| tally.has_hook);
    let Some(wait) = draft.wait(call).filter(|wait| wait.kind == WaitKind::Hook && !owns).cloned() else {
        return Answer::Nothing;
    };
    draft.fire(&wait);
    draft.wake();
    Answer::Done
}

/// Whoever does not exist has no letter taken to it: the call then fails, and says so.
fn child_unwatched(draft: &mut Draft<'_>, call: CallHash, child: &NameKey) -> Answer {
    if draft.wait(call).is_none_or(|wait| wait.kind != WaitKind::Instance) {
        return Answer::Nothing;
    }
    let caller = Caller { uid: draft.uid(), run: draft.head.run, call };
    let to = Address::Name(child.clone());
    draft.changes.push(Change::Letter(NewLetter { to, caller, said: Said::Watch }));
    Answer::Done
}

impl Draft<'_> {
    fn wait(&self, call: CallHash) -> Option<&WaitRow> {
        self.context.rows.waits.get(&(self.uid(), call))
    }
}
