//! One writer: leases are held one at a time, epochs only grow, and an outcome is taken from whoever holds the lease.

use std::collections::HashMap;

use everstep_engine::rows::{Lease, Subject};
use everstep_protocol::{
    BuildName, Epoch, InstanceUid, Pin, SessionId,
    journal::{Attempted, Fact},
};

use super::{Checker, Commit, Seen};

#[derive(Debug, Default)]
pub(super) struct Writer {
    leases: HashMap<(InstanceUid, Subject), Lease>,
    /// The highest epoch that there was, of instances.
    epochs: HashMap<InstanceUid, Epoch>,
    /// Which build each session is of.
    builds: HashMap<SessionId, BuildName>,
    /// To which build each instance is pinned.
    pins: HashMap<InstanceUid, BuildName>,
}

impl Writer {
    fn committed(&mut self, commit: &Commit) -> Result<(), String> {
        let writes = &commit.writes;
        for row in &writes.journal {
            if let Fact::Attempted(attempted) = &row.entry.fact {
                self.reported(commit, row.uid, attempted)?;
            }
        }
        for head in writes.heads.iter().chain(&writes.created) {
            let highest = self.epochs.entry(head.uid).or_default();
            if head.epoch < *highest {
                return Err(format!("the epoch of {} went back from {highest} to {}", head.uid, head.epoch));
            }
            *highest = head.epoch;
            match head.pin.as_ref().and_then(Pin::build) {
                Some(build) => self.pins.insert(head.uid, build.clone()),
                None => self.pins.remove(&head.uid),
            };
        }
        for (uid, subject) in &writes.lease_deletes {
            self.leases.remove(&(*uid, *subject));
        }
        for uid in &writes.cleared {
            self.leases.retain(|(held, subject), _| held != uid || *subject == Subject::INSTANCE);
        }
        for row in &writes.deleted {
            self.leases.retain(|(held, _), _| *held != row.uid);
        }
        for (uid, subject, lease) in &writes.leases {
            self.granted(*uid, *subject, *lease)?;
        }
        Ok(())
    }

    fn granted(&mut self, uid: InstanceUid, subject: Subject, lease: Lease) -> Result<(), String> {
        let (pin, build) = (self.pins.get(&uid), self.builds.get(&lease.session));
        if subject == Subject::INSTANCE
            && let (Some(pin), Some(build)) = (pin, build)
            && pin != build
        {
            return Err(format!("{uid}, pinned to {pin}, was leased to a session of {build}"));
        }
        match self.leases.insert((uid, subject), lease) {
            Some(held) => Err(format!(
                "{uid} was leased to {} as {} while {} held it as {}",
                lease.session, lease.epoch, held.session, held.epoch
            )),
            None => Ok(()),
        }
    }

    /// An outcome says in which session the attempt ran: one that holds the lease at this commit.
    fn reported(&self, commit: &Commit, uid: InstanceUid, attempted: &Attempted) -> Result<(), String> {
        let run_changes = commit.writes.heads.iter().any(|head| {
            head.uid == uid && commit.heads.get(&uid).is_some_and(|before| before.run < head.run)
        });
        // Copied from an earlier run, or taken over with its marks.
        if run_changes || attempted.marks.reused {
            return Ok(());
        }
        // A call of the instance's holder, or a remote step.
        let subjects = [Subject::INSTANCE, Subject::step(attempted.call.hash())];
        let holds = |subject: Subject, session: SessionId| {
            let held = self.leases.get(&(uid, subject)).is_some_and(|lease| lease.session == session);
            let granted =
                commit.writes.leases.iter().any(|(granted, of, lease)| {
                    *granted == uid && *of == subject && lease.session == session
                });
            held || granted
        };
        if subjects.into_iter().any(|subject| holds(subject, attempted.session)) {
            return Ok(());
        }
        Err(format!(
            "{} of {uid} was recorded for {}, which holds no lease",
            attempted.call, attempted.session
        ))
    }
}

impl Checker for Writer {
    fn name(&self) -> &'static str {
        "writer"
    }

    fn sees(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Committed(commit) => self.committed(commit),
            Seen::Opens { session, build } => {
                self.builds.insert(*session, (*build).clone());
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
