//! The end of a body that has failed, and what is said of its compensations (rules P38, P39). That they run, and in which order, is
//! the body's own doing: they are calls like others.

use everstep_protocol::{
    Call, CallKind, Failure, FailureKind, Position, StepKey,
    journal::{COMPENSATIONS_LISTED, Compensated, End, Fact, Opened, Rollback, Undone, UndoneEnd, Wait},
};

use super::{Hosted, Life, Out};

/// How much text the outcome of a rollback holds: it goes in one message with the end.
const LISTED_BYTES_MAX: usize = 128 << 10;
/// How much of it is that of one compensation, so that a large failure hides none of the others. All of it stands with its attempt.
const ROW_BYTES_MAX: usize = 1 << 10;
/// What ends a text that is cut.
const CUT: &str = " (cut)";

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
        } else if let Fact::Intended(intended) = fact {
            Some((&intended.call, intended.key, intended.marks))
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

    /// The rollback for which the body was thrown away, if it was.
    fn thrown_away(&self) -> Option<&Rollback> {
        self.rollback.as_ref().filter(|asked| asked.thrown_away).map(|asked| &asked.rollback)
    }

    /// A cancel alone takes nothing back.
    fn rolls_back(&self, failure: &Failure) -> bool {
        let by_cancel = self.cancelled.as_ref().filter(|_| failure.kind == FailureKind::Cancelled);
        self.thrown_away().is_some() || by_cancel.is_none_or(|cancelled| cancelled.rollback)
    }

    /// The end with an error: that of a rollback or cancel is one of its own (rules P30, P38). A body that had ended before the
    /// rollback came has its own end, live as in every replay: only the entry says which was first.
    pub(super) fn failed(&self, failure: &Failure) -> End {
        if let Some(rollback) = self.thrown_away() {
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

/// As many as may be listed, each cut to what one may take.
fn listed(mut undone: Vec<Undone>) -> Compensated {
    let mut bytes = 0;
    for undone in &mut undone {
        if let UndoneEnd::Failed(failure) = &mut undone.end {
            cut(failure);
        }
    }
    let fits = |undone: &&Undone| {
        bytes += undone.call.name.as_str().len();
        if let UndoneEnd::Failed(failure) = &undone.end {
            bytes += crate::outbox::failure_bytes(failure);
        }
        bytes <= LISTED_BYTES_MAX
    };
    let listed = undone.iter().take(COMPENSATIONS_LISTED).take_while(fits).count();
    let more = undone.len() - listed;
    undone.truncate(listed);
    Compensated { steps: undone, more: more as u64 }
}

/// A failure of at most so many bytes of text, of which the name and the beginning of the message matter most.
fn cut(failure: &mut Failure) {
    let mut left = ROW_BYTES_MAX;
    for text in [&mut failure.name, &mut failure.message] {
        if text.len() > left {
            text.truncate(text.floor_char_boundary(left.saturating_sub(CUT.len())));
            text.push_str(CUT);
        }
        left = left.saturating_sub(text.len());
    }
    failure.data = failure.data.take().filter(|data| data.len() <= left);
}

#[cfg(test)]
mod tests {
    use everstep_protocol::{CallName, Payload};

    use super::*;

    fn failed(message: String, data: Option<usize>) -> Undone {
        let data = data.map(|bytes| Payload::encode(&"x".repeat(bytes)).unwrap());
        let failure = Failure { data, ..Failure::new(FailureKind::Error, message) };
        let call = Call { kind: CallKind::Compensation, name: CallName::new("a").unwrap(), count: 1 };
        Undone { call, end: UndoneEnd::Failed(failure) }
    }

    #[test]
    fn p39_a_large_failure_is_cut_and_hides_no_other() {
        let large = "家".repeat(100_000);
        let undone = vec![
            failed(large.clone(), Some(10)),
            failed("small".to_owned(), Some(2000)),
            failed("fits".to_owned(), Some(10)),
        ];
        let compensated = listed(undone);
        assert_eq!((compensated.steps.len(), compensated.more), (3, 0));
        let failures: Vec<_> = compensated
            .steps
            .iter()
            .map(|undone| match &undone.end {
                UndoneEnd::Failed(failure) => (failure.message.as_str(), failure.data.is_some()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(
            failures[0].0.starts_with("家家") && failures[0].0.ends_with(CUT) && failures[0].0.len() < 1024
        );
        assert_eq!(failures[1..], [("small", false), ("fits", true)]);
        let many = listed((0..COMPENSATIONS_LISTED + 5).map(|_| failed(large.clone(), None)).collect());
        assert!(many.steps.len() > 100, "{}", many.steps.len());
        assert_eq!(many.steps.len() as u64 + many.more, COMPENSATIONS_LISTED as u64 + 5);
    }
}
