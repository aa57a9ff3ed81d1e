//! A body that is kept over a suspend (rule W27): it goes on where it was, fed with what was written since. Whatever it had in
//! hand is still there, so nothing is replayed.

use everstep_protocol::{
    Position,
    message::{Grant, Have},
};

use super::{Finish, Hosted, Life, Out, journal::Journal, linger::Linger, reports::Reports};

impl Hosted {
    /// Whether the lease has ended with a suspend, and the body may be kept for the next one (rule W27).
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.finished && matches!(self.life, Life::Waiting(..))
    }

    /// What a claim says of a body that was kept.
    #[must_use]
    pub const fn have(&self) -> Have {
        Have { run: self.info.run, position: self.replay.position() }
    }

    /// An estimate, rather too high, of the memory that it takes while it sleeps: the body itself, and all that it was told.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let body = match &self.life {
            Life::Waiting(_, body) => size_of_val(&**body),
            Life::Unborn | Life::Done(_) | Life::Again(_) | Life::Parked(_) => 0,
        };
        (size_of::<Self>() + body) as u64 + self.used.bytes
    }

    /// Whether it can go on under this grant: that of the same journal, which has not ended before what the body was fed.
    #[must_use]
    pub fn fits(&self, grant: &Grant) -> bool {
        let same = grant.run == self.info.run && grant.generation == self.info.generation
            || everstep_protocol::planted("kept_body_of_another_run");
        same && self.is_asleep() && grant.last >= self.replay.position()
    }

    /// A kept body goes on under a new lease that [fits](Self::fits): what was written since then is fed to it, as if it had been
    /// held all the time.
    pub fn resume(&mut self, grant: Grant) {
        self.epoch = grant.epoch;
        self.who.epoch = grant.epoch;
        self.replay.held_by(self.env.session, grant.epoch);
        self.replay.restored(grant.restored_at);
        self.reports = Reports::after(grant.reports);
        self.finished = false;
        self.lease_begins();
        self.listen();
        self.granted(grant);
        self.env.metrics.resumed.inc();
    }

    /// Whether the lease ends with a suspend: once it is answered, or with the next turn, if it was answered since the last.
    #[must_use]
    pub fn is_suspending(&self) -> bool {
        self.reports.is_suspending() || self.reports.finish() == Some(Finish::Suspended)
    }

    /// Whether the suspend was taken, as its answer has said since the last turn, or as this grant says before the answer has come:
    /// it is that of the next lease and begins where the body is, as only one to whoever keeps the body does.
    #[must_use]
    pub fn is_followed_by(&self, grant: &Grant) -> bool {
        if self.reports.finish() == Some(Finish::Suspended) {
            return self.env.caches;
        }
        let next = Position(self.replay.position().0.saturating_add(1));
        self.env.caches
            && self.reports.is_suspending()
            && grant.direct
            && grant.epoch == self.epoch.next()
            && grant.entries.first().is_some_and(|entry| entry.position == next)
    }

    /// The lease has ended with the suspend, as something other than its answer says.
    pub fn suspended(&mut self, out: &mut Vec<Out>) {
        self.finish(Finish::Suspended, out);
    }

    /// Has foreign wakes told under the present lease.
    pub(super) fn listen(&self) {
        if let Life::Waiting(host, _) = &self.life {
            let (foreign, uid, epoch) = (self.env.foreign.clone(), self.uid, self.epoch);
            host.on_foreign_wake(Box::new(move || foreign(uid, epoch)));
        }
    }

    /// The body is kept as it is. The entries that it has not been fed come again with the next grant, as they were written.
    pub(super) fn fall_asleep(&mut self) {
        self.journal = Journal::default();
        self.linger = Linger::No;
        self.hold = false;
        self.finished = true;
    }
}
