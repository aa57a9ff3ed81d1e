//! What a restart from a step keeps of a journal (rule P31): every outcome whose call was made before the step's outcome was
//! known. Parallel siblings that are complete stay so; the step, and all that the code did knowing its outcome, runs again.
//!
//! What is kept is replayed like any journal: all that the body had seen when it made a kept call is kept too.

use std::collections::{BTreeMap, HashMap, HashSet};

use everstep_protocol::{
    Call, CallKind, Class, HookId, Policy, Position,
    journal::{
        Attempted, Choice, Closed, Entry, Fact, Intended, Lost, Opened, Outcome, Patched, Resolved, Wait,
    },
};

use crate::reuse::{compensated, kept_keys};

/// The journal of a run that begins again at a step: from position 1, with what is kept of `entries`, which begin with the first
/// entry. None if the journal does not know the step.
#[must_use]
pub fn keep(entries: &[Entry], step: &Call) -> Option<Vec<Entry>> {
    let calls = Calls::of(entries);
    let known = calls.outcomes.get(step).copied();
    if known.is_none() && !calls.made.contains_key(step) {
        return None;
    }
    // What the body did after a cancel it would not do without; and what it did knowing of an effect that was taken back since.
    // Attached children that were only started end with the run, so that it starts others. Hooks are let go, so that it creates
    // them anew.
    let undone: HashSet<Call> =
        compensated(entries).chain(only_started(entries)).chain(hooks(entries)).collect();
    let known_undone = undone.iter().filter_map(|call| calls.outcomes.get(call).copied());
    let cut = known.into_iter().chain(calls.cancelled).chain(known_undone).min();
    let cut = cut.unwrap_or(Position(u64::MAX));
    let kept: HashSet<&Call> = calls
        .outcomes
        .keys()
        .filter(|call| **call != step && !undone.contains(call))
        .filter(|call| calls.made.get(*call).is_some_and(|after| *after < cut))
        .copied()
        .collect();
    let keys: HashSet<Position> = kept_keys(entries).into_iter().map(|entry| entry.position).collect();
    let mut moved = Moved::default();
    for entry in entries {
        let fact = match &entry.fact {
            Fact::Started(_) => Some(entry.fact.clone()),
            Fact::Attempted(_)
            | Fact::Opened(_)
            | Fact::Fired { .. }
            | Fact::Delivered(_)
            | Fact::Returned(_)
            | Fact::Registered(_)
            | Fact::Received(_)
            | Fact::Intended(_)
            | Fact::Withdrawn(_)
            | Fact::Resolved(_)
            | Fact::Patched(_) => {
                let call = entry.fact.call().filter(|call| kept.contains(call));
                call.map(|_| entry.fact.clone())
            }
            // They tell the body nothing but the time. A loss is charged to nobody: what was charged is recorded.
            Fact::Lost(lost) => {
                (entry.position < cut).then(|| Fact::Lost(Lost { counts: false, ..lost.clone() }))
            }
            Fact::Parked(_) | Fact::Retried => (entry.position < cut).then(|| entry.fact.clone()),
            // Whoever makes the call again does so under the key that was kept for it.
            Fact::Rekeyed(rekeyed) => {
                let is_kept = kept.contains(&rekeyed.call) || keys.contains(&entry.position);
                is_kept.then(|| entry.fact.clone())
            }
            // That a hook was let go of is what the body waits for with `dispose`.
            Fact::Closed(closed) if closed.hook.is_some() => {
                (entry.position < cut).then(|| entry.fact.clone())
            }
            // It tells the body nothing by itself, but is why an await that is kept has failed.
            Fact::TakenOver(taken) => (taken.hook == HookId::START).then(|| entry.fact.clone()),
            // A wait that was dropped has no outcome, so nothing of it is kept.
            // The rollback is over with its run. A restart from a step runs the others: it takes nothing over.
            Fact::Closed(_)
            | Fact::Cancelled(_)
            | Fact::Continued(_)
            | Fact::Ended(_)
            | Fact::Compensating(_)
            | Fact::Compensated(_)
            | Fact::Rollback(_)
            | Fact::Reusable(_) => None,
        };
        moved.push(entry, fact);
    }
    Some(moved.entries)
}

/// The first call of which nobody knows whether it took effect, and which may not simply be made again (rule L7): a restart that would
/// make it again does not do so unasked. It is asked for by whoever restarts from the very call, which is `asked`.
#[must_use]
pub fn unsettled(entries: &[Entry], asked: Option<&Call>) -> Option<Call> {
    let mut open: BTreeMap<&Call, Position> = BTreeMap::new();
    let is_once = |policy: &Policy| policy.class == Class::AtMostOnce;
    for entry in entries {
        match &entry.fact {
            Fact::Intended(intended) if is_once(&intended.policy) => {
                open.insert(&intended.call, entry.position);
            }
            Fact::Opened(Opened { call, wait: Wait::Remote(remote), .. }) if is_once(&remote.policy) => {
                open.insert(call, entry.position);
            }
            Fact::Attempted(Attempted { outcome: Outcome::Unknown { .. }, .. })
            | Fact::Resolved(Resolved { choice: Choice::Again, .. }) => {}
            Fact::Attempted(attempted) => {
                open.remove(&attempted.call);
            }
            Fact::Withdrawn(withdrawn) => {
                open.remove(&withdrawn.call);
            }
            Fact::Resolved(resolved) => {
                open.remove(&resolved.call);
            }
            _ => {}
        }
    }
    let unasked = open.into_iter().filter(|(call, _)| Some(*call) != asked);
    unasked.min_by_key(|(_, position)| *position).map(|(call, _)| call.clone())
}

/// The calls that only started a child which a restart ends.
fn only_started(entries: &[Entry]) -> impl Iterator<Item = Call> {
    entries.iter().filter_map(|entry| match &entry.fact {
        Fact::Opened(Opened { call, wait: Wait::Child(child), .. })
            if child.only_started && !child.detached =>
        {
            Some(call.clone())
        }
        _ => None,
    })
}

/// The calls that created a hook of their own, and those that awaited its payloads: numbered when they were made, they begin only
/// once their hook is known, which is not kept.
fn hooks(entries: &[Entry]) -> impl Iterator<Item = Call> {
    entries.iter().filter_map(|entry| match &entry.fact {
        Fact::Opened(Opened { call, wait: Wait::Hook(_), .. }) => Some(call.clone()),
        Fact::Opened(Opened { call, wait: Wait::Payload(awaiting), .. })
            if awaiting.hook != HookId::START =>
        {
            Some(call.clone())
        }
        _ => None,
    })
}

/// The calls of a journal.
struct Calls<'a> {
    /// What the body had seen when it made them.
    made: HashMap<&'a Call, Position>,
    /// The entries that gave their outcomes.
    outcomes: HashMap<&'a Call, Position>,
    /// The entry of a cancel.
    cancelled: Option<Position>,
}

/// What ends with an entry that its time has come.
const fn is_timed(wait: &Wait) -> bool {
    matches!(wait, Wait::Sleep { .. } | Wait::Event { .. } | Wait::Payload(_) | Wait::Reply(_))
}

impl<'a> Calls<'a> {
    fn of(entries: &'a [Entry]) -> Self {
        let mut calls = Self { made: HashMap::new(), outcomes: HashMap::new(), cancelled: None };
        let mut timed = HashSet::new();
        for entry in entries {
            match &entry.fact {
                // A compensation is no call of the body.
                Fact::Attempted(attempted) if attempted.call.kind == CallKind::Compensation => {}
                Fact::Attempted(attempted) => {
                    calls.made.entry(&attempted.call).or_insert(attempted.called_after);
                    // Of a call that was dropped the body never saw what came of it.
                    if !attempted.goes_on() && !matches!(attempted.outcome, Outcome::Unknown { .. }) {
                        calls.outcomes.entry(&attempted.call).or_insert(entry.position);
                    }
                }
                Fact::Opened(opened) => {
                    calls.made.entry(&opened.call).or_insert(opened.called_after);
                    if is_timed(&opened.wait) {
                        timed.insert(&opened.call);
                    }
                }
                Fact::Intended(intended) => {
                    calls.made.entry(&intended.call).or_insert(intended.called_after);
                }
                Fact::Resolved(resolved) if resolved.choice != Choice::Again => {
                    calls.outcomes.entry(&resolved.call).or_insert(entry.position);
                }
                // Of a step it is the end of a retry delay.
                Fact::Fired { call } => {
                    if timed.contains(call) {
                        calls.outcomes.entry(call).or_insert(entry.position);
                    }
                }
                Fact::Delivered(delivered) => {
                    calls.outcomes.entry(&delivered.call).or_insert(entry.position);
                }
                Fact::Returned(returned) => {
                    calls.outcomes.entry(&returned.call).or_insert(entry.position);
                }
                Fact::Registered(registered) => {
                    calls.outcomes.entry(&registered.call).or_insert(entry.position);
                }
                Fact::Received(received) => {
                    calls.outcomes.entry(&received.call).or_insert(entry.position);
                }
                // A hook was let go, which takes nothing back of what the body saw.
                Fact::Closed(closed) if closed.hook.is_some() => {}
                // The body never saw what came of it.
                Fact::Closed(closed) => {
                    calls.outcomes.remove(&closed.call);
                }
                Fact::Patched(patched) => {
                    calls.made.entry(&patched.call).or_insert(patched.called_after);
                    calls.outcomes.entry(&patched.call).or_insert(entry.position);
                }
                Fact::Cancelled(_) => calls.cancelled = calls.cancelled.or(Some(entry.position)),
                Fact::Started(_)
                | Fact::Resolved(_)
                | Fact::Withdrawn(_)
                | Fact::Lost(_)
                | Fact::Parked(_)
                | Fact::Retried
                | Fact::Rekeyed(_)
                | Fact::Continued(_)
                | Fact::Compensating(_)
                | Fact::Compensated(_)
                | Fact::Rollback(_)
                | Fact::Reusable(_)
                | Fact::TakenOver(_)
                | Fact::Ended(_) => {}
            }
        }
        calls
    }
}

/// Kept entries at their new positions.
#[derive(Default)]
struct Moved {
    entries: Vec<Entry>,
    /// The last new position at each old one.
    positions: Vec<Position>,
}

impl Moved {
    fn push(&mut self, old: &Entry, fact: Option<Fact>) {
        if let Some(fact) = fact {
            let position = Position(self.entries.len() as u64 + 1);
            let fact = self.translate(fact);
            self.entries.push(Entry { position, at: old.at, fact });
        }
        self.positions.push(Position(self.entries.len() as u64));
    }

    fn translate(&self, fact: Fact) -> Fact {
        match fact {
            Fact::Attempted(attempted) => {
                let called_after = self.now_at(attempted.called_after);
                Fact::Attempted(Attempted { called_after, ..attempted })
            }
            Fact::Opened(opened) => {
                let called_after = self.now_at(opened.called_after);
                Fact::Opened(Opened { called_after, ..opened })
            }
            Fact::Patched(patched) => {
                let called_after = self.now_at(patched.called_after);
                Fact::Patched(Patched { called_after, ..patched })
            }
            Fact::Closed(closed) => {
                let after = self.now_at(closed.after);
                Fact::Closed(Closed { after, ..closed })
            }
            Fact::Intended(intended) => {
                let called_after = self.now_at(intended.called_after);
                Fact::Intended(Intended { called_after, ..intended })
            }
            other @ (Fact::Started(_)
            | Fact::Fired { .. }
            | Fact::Delivered(_)
            | Fact::Returned(_)
            | Fact::Registered(_)
            | Fact::Received(_)
            | Fact::TakenOver(_)
            | Fact::Withdrawn(_)
            | Fact::Resolved(_)
            | Fact::Lost(_)
            | Fact::Parked(_)
            | Fact::Retried
            | Fact::Rekeyed(_)
            | Fact::Cancelled(_)
            | Fact::Continued(_)
            | Fact::Compensating(_)
            | Fact::Compensated(_)
            | Fact::Rollback(_)
            | Fact::Reusable(_)
            | Fact::Ended(_)) => other,
        }
    }

    fn now_at(&self, old: Position) -> Position {
        let index = usize::try_from(old.0).ok().and_then(|old| old.checked_sub(1));
        index.and_then(|index| self.positions.get(index).copied()).unwrap_or(Position(0))
    }
}
