//! Journals only grow: positions without gaps, nothing changed afterwards, and one outcome for each call.

use std::collections::{HashMap, HashSet};

use everstep_engine::batch::JournalRow;
use everstep_protocol::{
    CallHash, InstanceUid, Run,
    journal::{Entry, Fact, ParkCode},
};

use super::{Checker, Commit, Rest, Seen};

#[derive(Debug, Default)]
pub(super) struct Journal {
    written: HashMap<(InstanceUid, Run), Written>,
}

#[derive(Debug, Default)]
struct Written {
    /// Each entry, as it was when it was written.
    entries: Vec<Entry>,
    /// Calls that have their outcome, by what it was.
    over: HashSet<(CallHash, &'static str)>,
}

impl Journal {
    fn committed(&mut self, commit: &Commit) -> Result<(), String> {
        let writes = &commit.writes;
        for (uid, below) in &writes.cuts {
            self.written.retain(|(of, run), _| of != uid || run >= below);
        }
        for row in &writes.journal {
            self.appended(row)?;
        }
        for row in &writes.deleted {
            self.written.retain(|(uid, _), _| *uid != row.uid);
        }
        Ok(())
    }

    fn appended(&mut self, row: &JournalRow) -> Result<(), String> {
        let JournalRow { uid, run, entry } = row;
        let written = self.written.entry((*uid, *run)).or_default();
        let next = written.entries.len() as u64 + 1;
        if entry.position.0 != next {
            return Err(format!(
                "entry {} of {uid} run {run} was written after {}",
                entry.position,
                next - 1
            ));
        }
        written.entries.push(entry.clone());
        // Whose holders die again and again is parked. For any other question somebody has made a mistake.
        if let Fact::Parked(parked) = &entry.fact
            && !matches!(parked.code, ParkCode::Poison)
        {
            return Err(format!("{uid} was parked ({}): {}", parked.code.word(), parked.message));
        }
        written.ends(entry).map_err(|what| format!("{what} in entry {next} of {uid} run {run}"))
    }
}

impl Written {
    /// Which call an entry ends, if any; each is ended once in each way.
    fn ends(&mut self, entry: &Entry) -> Result<(), String> {
        let Some(call) = entry.fact.call() else { return Ok(()) };
        let hash = call.hash();
        let kind = match &entry.fact {
            Fact::Attempted(_) | Fact::Intended(_) if self.over.contains(&(hash, "outcome")) => {
                return Err(format!("{call} goes on after its outcome"));
            }
            Fact::Attempted(attempted) if !attempted.goes_on() => "outcome",
            Fact::Returned(_) => "return",
            Fact::Delivered(_) | Fact::Received(_) => "delivery",
            Fact::Registered(_) => "registration",
            Fact::Opened(_) => "opening",
            _ => return Ok(()),
        };
        if self.over.insert((hash, kind)) {
            return Ok(());
        }
        Err(format!("{call} has a second {kind}"))
    }
}

impl Checker for Journal {
    fn name(&self) -> &'static str {
        "journal"
    }

    fn sees(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Committed(commit) => self.committed(commit),
            _ => Ok(()),
        }
    }

    /// What is stored at last is what was written.
    fn at_rest(&mut self, rest: &Rest<'_>) -> Result<(), String> {
        for ((uid, run), written) in &self.written {
            let stored = rest.journals.get(&(*uid, *run)).map_or(&[][..], Vec::as_slice);
            if stored != written.entries {
                return Err(format!("the stored journal of {uid} run {run} is not what was written"));
            }
        }
        for view in rest.instances {
            let stored = rest.journals.get(&(view.uid, view.run)).map_or(0, Vec::len) as u64;
            if stored != view.position.0 {
                let (at, uid) = (view.position, view.uid);
                return Err(format!("the head of {uid} stands at {at}, its journal has {stored} entries"));
            }
        }
        Ok(())
    }
}
