//! Folding: the body sees its result before it is acknowledged, and what it does then goes into the same report (rule W36).

use everstep_engine::replay::{Next, lost_failure, restored_failure};
use everstep_protocol::{
    journal::attempt_bytes,
    message::{AttemptEnd, AttemptOutcome},
};

use super::{
    Ended, Hosted, Life, Out,
    call::{Known, is_final},
};
use crate::clock::Now;

impl Hosted {
    /// Asks replay what may run, once every entry is fed.
    pub(super) fn tell(&mut self, now: Now, out: &mut Vec<Out>) {
        if !self.is_live() || !matches!(self.life, Life::Waiting(..)) {
            return;
        }
        let next = match self.replay.next_steps() {
            Ok(next) => next,
            Err(parked) => return self.park(parked, out),
        };
        let mut next = next.into_iter().peekable();
        while let Some(step) = next.next() {
            match step {
                Next::Start(start) => {
                    let Some(known) = self.calls.get_mut(&start.number) else { continue };
                    known.start(&start);
                    let refused = known.refused.clone();
                    self.begin(start.number, start.attempt, refused, true);
                }
                Next::Intend(start) => {
                    let Some(known) = self.calls.get_mut(&start.number) else { continue };
                    known.start(&start);
                    match known.refused.clone() {
                        Some(refused) => self.begin(start.number, start.attempt, Some(refused), true),
                        None if everstep_protocol::planted("begins_before_intent") => {
                            self.told.starts.push(start.number);
                        }
                        None => self.told.intents.push(start.number),
                    }
                }
                Next::Unknown(start, epoch) => {
                    let of_lost_history = self.replay.is_of_lost_history(start.number);
                    let Some(known) = self.calls.get_mut(&start.number) else { continue };
                    known.start(&start);
                    let failure = if of_lost_history { restored_failure() } else { lost_failure() };
                    let end = known.unknown(start.attempt, epoch, failure);
                    self.told.charges.push((start.number, end));
                }
                Next::Reuse(start, output) => {
                    let Some(known) = self.calls.get_mut(&start.number) else { continue };
                    known.start(&start);
                    let end = known.reuse(start.attempt, output);
                    self.told.charges.push((start.number, end));
                }
                Next::Open { number } => {
                    let refused = self.calls.get(&number).and_then(|known| known.refused.clone());
                    self.begin(number, everstep_protocol::Attempt::FIRST, refused, false);
                }
                Next::Charge(start) => {
                    let last =
                        !matches!(next.peek(), Some(Next::Charge(then)) if then.number == start.number);
                    let Some(known) = self.calls.get_mut(&start.number) else { continue };
                    known.start(&start);
                    let end = known.charge(start.attempt, last, self.uid, now);
                    self.told.charges.push((start.number, end));
                }
            }
        }
    }

    /// A call may run or open; one that is refused fails at once instead.
    fn begin(
        &mut self,
        number: u64,
        attempt: everstep_protocol::Attempt,
        refused: Option<everstep_protocol::Failure>,
        is_step: bool,
    ) {
        if let Some(failure) = refused {
            self.running.insert(number);
            self.ended.push(Ended {
                number,
                attempt,
                ran_for: everstep_protocol::Millis::ZERO,
                result: Err(failure),
                found: false,
                reference: None,
                asked: everstep_engine::retry::Asked::Policy,
            });
        } else if is_step {
            self.told.starts.push(number);
        } else {
            self.told.opens.push(number);
        }
    }

    /// Whether the body may see this result before it is acknowledged: it is final, nothing else runs or is unanswered.
    pub(super) fn may_fold(&self, results: &[(u64, AttemptEnd)]) -> bool {
        // Only of an inline call the time that the body sees does not depend on the fold.
        let is_inline = |number| self.calls.get(number).is_some_and(Known::is_inline);
        matches!(results, [(number, end)] if is_final(&end.outcome) && is_inline(number))
            && matches!(self.life, Life::Waiting(..))
            && self.is_live()
            && self.reports.is_empty()
            && self.running.is_empty()
            && self.told.is_empty()
    }

    /// Shows the body its result; what follows goes into the same report.
    pub(super) fn fold(&mut self, number: u64, end: AttemptEnd, now: Now, out: &mut Vec<Out>) {
        let seen = self.replay.position();
        let Some(known) = self.calls.get(&number) else { return };
        let begin = self.waits.remove(&end.call).map_or(known.made_at, |waiting| waiting.at);
        self.clock = self.clock.max(begin.plus(end.ran_for));
        self.replay.fold(number);
        let result = match &end.outcome {
            AttemptOutcome::Succeeded(output) => Ok(output.clone()),
            AttemptOutcome::Failed { failure, .. } | AttemptOutcome::Unknown { failure, .. } => {
                Err(failure.clone())
            }
        };
        self.linger = super::Linger::No;
        self.used.entry(seen.next(), attempt_bytes(result.as_ref()));
        self.resolve(number, result, seen.next(), out);
        self.tell(now, out);
        self.report_fold(end, seen, now, out);
    }
}
