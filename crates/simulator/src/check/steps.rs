//! Steps: a completed one is not run again within its run, by whoever holds the instance; each effect is there exactly once, and one
//! that a service cannot tell is there at most once, unless a person was asked and had it run again.

use std::collections::HashMap;

use everstep_engine::{batch::JournalRow, head::Head, rows::Subject};
use everstep_protocol::{
    Call, CallHash, Generation, InstanceUid, Run, SessionId, StepKey,
    journal::{Attempted, Choice, Fact, Outcome},
};

use super::{Attempting, Checker, Commit, Rest, Seen};
use crate::workload::effects::{Class, Effect};

#[derive(Debug, Default)]
pub(super) struct Steps {
    names: HashMap<(String, String), InstanceUid>,
    runs: HashMap<InstanceUid, Run>,
    holders: HashMap<InstanceUid, SessionId>,
    completed: HashMap<StepKey, (InstanceUid, Run)>,
    allowed: Allowed,
    /// Which generation each journal is of. The last entries of one may be written together with the beginning of the next.
    generations: HashMap<(InstanceUid, Run), Generation>,
    keys: HashMap<StepKey, (InstanceUid, Generation, Call)>,
}

impl Steps {
    fn committed(&mut self, commit: &Commit) -> Result<(), String> {
        let writes = &commit.writes;
        for head in &writes.created {
            self.names.insert((head.workflow.to_string(), head.id.to_string()), head.uid);
        }
        for head in writes.heads.iter().chain(&writes.created) {
            self.runs.insert(head.uid, head.run);
            self.generations.insert((head.uid, head.run), head.generation);
            self.allowed.head(commit, head);
        }
        for (uid, subject) in &writes.lease_deletes {
            if *subject == Subject::INSTANCE {
                self.holders.remove(uid);
            }
        }
        for (uid, subject, lease) in &writes.leases {
            if *subject == Subject::INSTANCE {
                self.holders.insert(*uid, lease.session);
            }
        }
        for row in &writes.journal {
            self.allowed.read(row);
            if let Fact::Attempted(attempted) = &row.entry.fact
                && matches!(attempted.outcome, Outcome::Succeeded(_))
            {
                self.completed.insert(attempted.key, (row.uid, row.run));
                self.only_one(row.uid, row.run, attempted)?;
            }
        }
        Ok(())
    }

    /// A key is that of one call, in one generation of one instance.
    fn only_one(&mut self, uid: InstanceUid, run: Run, attempted: &Attempted) -> Result<(), String> {
        let generation = self.generations.get(&(uid, run)).copied().unwrap_or(Generation(1));
        let whose = (uid, generation, attempted.call.clone());
        let first = self.keys.entry(attempted.key).or_insert_with(|| whose.clone());
        if *first == whose {
            return Ok(());
        }
        let (_, before, call) = first;
        Err(format!(
            "{} of generation {generation} has the key of {call} of generation {before}",
            attempted.call
        ))
    }

    /// A process that has lost its lease and does not know it yet may still begin what it was about to; nobody else may.
    fn attempting(&mut self, attempting: &Attempting) -> Result<(), String> {
        let name = (attempting.workflow.to_string(), attempting.id.to_string());
        let Some(uid) = self.names.get(&name) else { return Ok(()) };
        // Of what a rollback cut short nothing else tells.
        self.allowed.owners.insert(attempting.key, *uid);
        let Some((of, run)) = self.completed.get(&attempting.key) else { return Ok(()) };
        let is_current = of == uid && self.runs.get(uid) == Some(run);
        let holds = attempting.session.is_some() && self.holders.get(uid) == attempting.session.as_ref();
        if is_current && holds {
            return Err(format!(
                "{} of {}/{} is run again, though complete",
                attempting.call, name.0, name.1
            ));
        }
        Ok(())
    }
}

impl Checker for Steps {
    fn name(&self) -> &'static str {
        "steps"
    }

    fn sees(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Committed(commit) => self.committed(commit)?,
            Seen::Attempting(attempting) => self.attempting(attempting)?,
            _ => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, rest: &Rest<'_>) -> Result<(), String> {
        for ((uid, run), entries) in rest.journals {
            for entry in entries {
                if let Fact::Attempted(attempted) = &entry.fact {
                    came(rest, attempted).map_err(|what| format!("{what}, of {uid} run {run}"))?;
                }
            }
        }
        rest.effects.effects.iter().try_for_each(|(what, effect)| self.allowed.check(what, effect))
    }
}

/// A completed step of a service had its effect.
fn came(rest: &Rest<'_>, attempted: &Attempted) -> Result<(), String> {
    let is_called = Class::ALL.iter().any(|class| class.word() == attempted.call.name.as_str());
    if !is_called || !matches!(attempted.outcome, Outcome::Succeeded(_)) {
        return Ok(());
    }
    let what = rest.effects.by_key.get(&attempted.key.to_string());
    if what.is_some_and(|what| rest.effects.times(what) > 0) {
        return Ok(());
    }
    Err(format!("{} is complete, and its effect never came", attempted.call))
}

/// How often an effect may have come.
#[derive(Debug, Default)]
struct Allowed {
    /// So often an instance was run again by somebody.
    restarts: HashMap<InstanceUid, u32>,
    keys: HashMap<(InstanceUid, Run, CallHash), StepKey>,
    owners: HashMap<StepKey, InstanceUid>,
    /// By key: how often a person said that it is to be run again.
    again: HashMap<StepKey, u32>,
}

impl Allowed {
    fn head(&mut self, commit: &Commit, head: &Head) {
        let before = commit.heads.get(&head.uid);
        if before.is_some_and(|before| before.run < head.run && before.generation == head.generation) {
            *self.restarts.entry(head.uid).or_default() += 1;
        }
    }

    fn read(&mut self, row: &JournalRow) {
        let (call, key) = match &row.entry.fact {
            Fact::Attempted(attempted) => (&attempted.call, attempted.key),
            Fact::Intended(intended) => (&intended.call, intended.key),
            Fact::Resolved(resolved) if resolved.choice == Choice::Again => {
                if let Some(key) = self.keys.get(&(row.uid, row.run, resolved.call.hash())) {
                    *self.again.entry(*key).or_default() += 1;
                }
                return;
            }
            _ => return,
        };
        self.keys.insert((row.uid, row.run, call.hash()), key);
        self.owners.insert(key, row.uid);
    }

    fn check(&self, what: &str, effect: &Effect) -> Result<(), String> {
        let Effect { class, keys, times, past_a_freeze } = effect;
        let keys: Vec<StepKey> = keys.iter().filter_map(|key| key.parse().ok()).collect();
        // A run that begins again may come to its calls in another order, and their counts are a part of their keys.
        let restarts = keys.iter().filter_map(|key| self.restarts.get(self.owners.get(key)?)).max().copied();
        let runs = 1 + restarts.unwrap_or(0);
        if keys.len() > runs as usize {
            return Err(format!("effect {what} was asked for under {} keys", keys.len()));
        }
        let again: u32 = keys.iter().filter_map(|key| self.again.get(key)).sum();
        let most = match class {
            Class::Keyed => runs,
            Class::Lookup => 1 + past_a_freeze,
            // Once, once more for each time that a person said so, and once more for each time that all of it was run again.
            Class::Once => runs + again,
        };
        if *times <= most {
            return Ok(());
        }
        Err(format!("effect {what} ({}) came {times} times, at most {most} are explained", class.word()))
    }
}
