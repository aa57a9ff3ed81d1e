//! The end of a body that has failed, and what is said of its compensations (rules P38, P39). That they run, and in which order, is
//! the body's own doing: they are calls like others.

use everstep_protocol::{
    Call, CallKind, Failure, FailureKind, Position, StepKey,
    journal::{COMPENSATIONS_LISTED, Compensated, End, Fact, Opened, Undone, UndoneEnd, Wait},
};

use super::{Hosted, Life, Out};

/// How much text the outcome of a rollback holds: it goes in one message with the end.
const LISTED_BYTES_MAX: usize = 128 << 10;

impl Hosted {
    /// The body is thrown away where it stands, with all that it has open; then its compensations begin.
    pub(super) fn roll_back(&mut self, seen: Position, out: &mut Vec<Out>) {
        let Life::Waiting(host, _) = &self.life else { return };
        host.interrupt();
        self.poll(seen, out);
    }

    /// The body has ended with an error. A rollback that would pass over a recorded step in silence parks the instance.
    pub(super) fn has_failed(&mut self, failure: Failure, undone: Option<Vec<Undone>>, out: &mut Vec<Out>) {
        if let Some(parked) = self.replay.unregistered().filter(|_| self.rolls_back(&failure)) {
            return self.park(parked, out);
        }
        self.compensated = undone.map(listed);
        self.over(Life::Done(Err(failure)), out);
    }

    /// The first attempt pins a step's key (rule P8): it is what the step's callees know.
    pub(super) fn note_key(&mut self, fact: &Fact) {
        let known = if let Fact::Attempted(attempted) = fact {
            Some((&attempted.call, attempted.key, attempted.marks))
        } else if let Fact::Opened(Opened { call, wait: Wait::Remote(remote), .. }) = fact {
            Some((call, remote.key, remote.marks))
        } else {
            None
        };
        if let Some((call, key, _)) = known.filter(|(_, _, marks)| marks.compensated)
            && let Some(known) = self.undo_keys.get_mut(call)
        {
            *known = key;
        }
    }

    /// The key of the step that a compensation takes back.
    pub(super) fn undoes(&self, call: &Call) -> Option<StepKey> {
        let step = Call { kind: CallKind::Step, ..call.clone() };
        if call.kind == CallKind::Compensation { self.undo_keys.get(&step).copied() } else { None }
    }

    /// A cancel alone takes nothing back.
    fn rolls_back(&self, failure: &Failure) -> bool {
        let by_cancel = self.cancelled.as_ref().filter(|_| failure.kind == FailureKind::Cancelled);
        self.rollback.is_some() || by_cancel.is_none_or(|cancelled| cancelled.rollback)
    }

    /// The end with an error: that of a rollback or cancel is one of its own (rules P30, P38).
    pub(super) fn failed(&self, failure: &Failure) -> End {
        if let Some(rollback) = &self.rollback {
            return End::Terminated { reason: rollback.reason.clone() };
        }
        match &self.cancelled {
            Some(cancelled) if failure.kind == FailureKind::Cancelled => {
                End::Cancelled { reason: cancelled.reason.clone() }
            }
            _ => End::Errored(failure.clone()),
        }
    }
}

/// As many as may be listed.
fn listed(mut undone: Vec<Undone>) -> Compensated {
    let mut bytes = 0;
    let fits = |undone: &&Undone| {
        bytes += undone.call.name.as_str().len();
        if let UndoneEnd::Failed(failure) = &undone.end {
            bytes += failure.message.len() + failure.data.as_ref().map_or(0, everstep_protocol::Payload::len);
        }
        bytes <= LISTED_BYTES_MAX
    };
    let listed = undone.iter().take(COMPENSATIONS_LISTED).take_while(fits).count();
    let more = undone.len() - listed;
    undone.truncate(listed);
    Compensated { steps: undone, more: more as u64 }
}
