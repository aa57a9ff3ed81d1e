//! What a restart with `reuse` takes over of the run before (rule L4): the outputs of its complete steps. A step of the new run with
//! the same input gets its output from there, without a call; one with another input runs.
//!
//! Not taken over is what was compensated, and what failed. Where nobody knows what came of a step that must not be tried twice, it
//! is for a person to say first.

use std::collections::{BTreeMap, HashMap, HashSet};

use everstep_protocol::{
    Call, CallKind, Fingerprint, Payload, Position,
    journal::{Attempted, Choice, Entry, Fact, Outcome, Rekeyed, Resolved, Reusable},
};

/// The journal of the new run: the first entry, then each output, in the order in which they were recorded. None if `entries` do not
/// begin with a first entry.
#[must_use]
pub fn reuse(entries: &[Entry]) -> Option<Vec<Entry>> {
    let first = entries.first().filter(|entry| matches!(entry.fact, Fact::Started(_)))?;
    let undone: HashSet<Call> = compensated(entries).collect();
    let mut outputs: BTreeMap<&Call, (&Entry, Reusable)> = BTreeMap::new();
    let mut asked: BTreeMap<&Call, &Attempted> = BTreeMap::new();
    for entry in entries {
        if let Some((call, reusable)) = output(entry).filter(|(call, _)| !undone.contains(*call)) {
            outputs.insert(call, (entry, reusable));
        }
        match &entry.fact {
            Fact::Attempted(attempted) if matches!(attempted.outcome, Outcome::Unknown { .. }) => {
                asked.insert(&attempted.call, attempted);
            }
            // What a person has said is as good as what a worker says.
            Fact::Resolved(Resolved { call, choice: Choice::Done(output), .. }) if !undone.contains(call) => {
                let known = asked.get(call).filter(|attempted| attempted.call.kind == CallKind::Step);
                outputs.extend(known.map(|attempted| (call, (entry, reusable(attempted, output)))));
            }
            _ => {}
        }
    }
    let mut outputs: Vec<_> = outputs.into_values().collect();
    outputs.sort_by_key(|(entry, _)| entry.position);
    let facts = outputs.into_iter().map(|(entry, reusable)| (entry.at, Fact::Reusable(reusable)));
    let keys = kept_keys(entries).into_iter().map(|entry| (entry.at, entry.fact.clone()));
    let facts = std::iter::once((first.at, first.fact.clone())).chain(keys).chain(facts);
    let numbered = (1..).zip(facts);
    Some(numbered.map(|(at, (time, fact))| Entry { position: Position(at), at: time, fact }).collect())
}

/// What people decided about keys, as far as it holds in every later run too (rule P8): of the last decisions about each call and
/// input those that keep a key.
pub(crate) fn kept_keys(entries: &[Entry]) -> Vec<&Entry> {
    let mut last: HashMap<(&Call, Fingerprint), &Entry> = HashMap::new();
    for entry in entries {
        if let Fact::Rekeyed(rekeyed) = &entry.fact {
            last.insert((&rekeyed.call, rekeyed.input), entry);
        }
    }
    let keeps = |entry: &&Entry| matches!(entry.fact, Fact::Rekeyed(Rekeyed { kept: Some(_), .. }));
    let mut kept: Vec<_> = last.into_values().filter(keeps).collect();
    kept.sort_by_key(|entry| entry.position);
    kept
}

fn reusable(attempted: &Attempted, output: &Payload) -> Reusable {
    Reusable {
        call: attempted.call.clone(),
        key: attempted.key,
        input: attempted.input,
        policy: attempted.policy,
        marks: attempted.marks,
        output: output.clone(),
    }
}

/// The output that an entry brings: of a step, or of one that an earlier run brought along and this one has not called.
fn output(entry: &Entry) -> Option<(&Call, Reusable)> {
    match &entry.fact {
        Fact::Reusable(reusable) => Some((&reusable.call, reusable.clone())),
        Fact::Attempted(attempted) if attempted.call.kind == CallKind::Step => {
            let Outcome::Succeeded(output) = &attempted.outcome else { return None };
            Some((&attempted.call, reusable(attempted, output)))
        }
        Fact::Attempted(_)
        | Fact::Started(_)
        | Fact::Opened(_)
        | Fact::Fired { .. }
        | Fact::Lost(_)
        | Fact::Parked(_)
        | Fact::Retried
        | Fact::Rekeyed(_)
        | Fact::Patched(_)
        | Fact::Ended(_)
        | Fact::Delivered(_)
        | Fact::Registered(_)
        | Fact::Received(_)
        | Fact::TakenOver(_)
        | Fact::Intended(_)
        | Fact::Withdrawn(_)
        | Fact::Resolved(_)
        | Fact::Closed(_)
        | Fact::Cancelled(_)
        | Fact::Returned(_)
        | Fact::Continued(_)
        | Fact::Compensating(_)
        | Fact::Compensated(_)
        | Fact::Rollback(_) => None,
    }
}

/// The steps of which a compensation was at least attempted: their effects are not to be counted on any more.
pub(crate) fn compensated(entries: &[Entry]) -> impl Iterator<Item = Call> + '_ {
    entries.iter().filter_map(|entry| {
        let Fact::Attempted(attempted) = &entry.fact else { return None };
        let call = &attempted.call;
        (call.kind == CallKind::Compensation).then(|| Call { kind: CallKind::Step, ..call.clone() })
    })
}
