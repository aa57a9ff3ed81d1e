//! Events and payloads of hooks: each in the order of its type, none passed over, each to one call of a run.

use std::collections::{BTreeMap, HashMap, HashSet};

use everstep_protocol::{
    CallHash, EventType, InstanceUid, Position, Run,
    journal::{Closed, Fact},
};

use super::{Checker, Commit, Seen};

#[derive(Debug, Default)]
pub(super) struct Events {
    mailboxes: HashMap<InstanceUid, Mailbox>,
}

#[derive(Debug, Default)]
struct Mailbox {
    /// What was accepted, with its type.
    accepted: BTreeMap<u64, EventType>,
    /// By what their senders know them.
    ids: HashSet<(String, String)>,
    /// What went to a call, in any run.
    delivered: HashSet<u64>,
    /// The same in one run.
    by_run: HashSet<(Run, u64)>,
    /// What a call of a run got, and where.
    got: HashMap<(Run, CallHash), (u64, Position)>,
}

impl Mailbox {
    fn deliver(&mut self, run: Run, sequence: u64, kind: &EventType) -> Result<(), String> {
        match self.accepted.get(&sequence) {
            None => return Err(format!("event {sequence} was delivered and never accepted")),
            Some(accepted) if accepted != kind => {
                return Err(format!("event {sequence} was accepted as {accepted} and delivered as {kind}"));
            }
            Some(_) => {}
        }
        if !self.by_run.insert((run, sequence)) {
            return Err(format!("event {sequence} was delivered twice in run {run}"));
        }
        let passed_over =
            |(earlier, of): &(&u64, &EventType)| *of == kind && !self.delivered.contains(earlier);
        if let Some((earlier, _)) = self.accepted.range(..sequence).find(passed_over) {
            return Err(format!("event {sequence} of type {kind} was delivered before event {earlier}"));
        }
        self.delivered.insert(sequence);
        Ok(())
    }

    /// A call was dropped: what it got and its body never saw is unread again (rule P22).
    fn close(&mut self, run: Run, closed: &Closed) {
        let its = (run, closed.call.hash());
        let Some((sequence, _)) = self.got.remove(&its).filter(|(_, at)| *at > closed.after) else { return };
        self.by_run.remove(&(run, sequence));
        self.delivered.remove(&sequence);
    }
}

impl Events {
    fn committed(&mut self, commit: &Commit) -> Result<(), String> {
        for (uid, row) in &commit.writes.events {
            let mailbox = self.mailboxes.entry(*uid).or_default();
            if mailbox.accepted.insert(row.sequence, row.event.kind.clone()).is_some() {
                return Err(format!("event {} of {uid} was accepted twice", row.sequence));
            }
            let id = (row.event.id.app_id.clone(), row.event.id.id.clone());
            if !mailbox.ids.insert(id) {
                return Err(format!("event {} of {uid} was accepted before", row.event.id.id));
            }
        }
        for row in &commit.writes.journal {
            let mailbox = self.mailboxes.entry(row.uid).or_default();
            let (call, sequence, kind) = match &row.entry.fact {
                Fact::Delivered(delivered) => (&delivered.call, delivered.sequence, delivered.kind.clone()),
                Fact::Received(received) => {
                    (&received.call, received.sequence, EventType::of_hook(received.hook))
                }
                Fact::Closed(closed) => {
                    mailbox.close(row.run, closed);
                    continue;
                }
                _ => continue,
            };
            mailbox.got.insert((row.run, call.hash()), (sequence, row.entry.position));
            mailbox.deliver(row.run, sequence, &kind).map_err(|what| format!("{what}, of {}", row.uid))?;
        }
        Ok(())
    }
}

impl Checker for Events {
    fn name(&self) -> &'static str {
        "events"
    }

    fn sees(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Committed(commit) => self.committed(commit),
            _ => Ok(()),
        }
    }
}
