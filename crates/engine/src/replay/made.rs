//! One call of a body, as replay keeps it.

use std::collections::HashMap;

use everstep_protocol::{
    Attempt, Call, Class, Fingerprint, Payload, Policy, Position, StepKey, Timestamp, Token,
};

use super::{Asked, Next, Start, ledger::Intent};

/// The wait of a dropped call.
#[derive(Clone, Debug)]
pub(super) struct Closing {
    /// The last position that the body had seen when it dropped the call.
    pub(super) after: Position,
    /// It was reported.
    pub(super) told: bool,
    /// Of a hook that is let go: its token.
    pub(super) hook: Option<Token>,
    /// The number of the call if the hook was registered: the body may wait until it is on record as free.
    pub(super) let_go: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Made {
    pub(super) call: Call,
    pub(super) asked: Asked,
    pub(super) state: State,
    pub(super) attempt: Attempt,
    /// Attempts lost with their workers that no entry records yet.
    pub(super) losses: Vec<Attempt>,
    pub(super) pinned: Option<(StepKey, Policy)>,
    pub(super) first_at: Option<Timestamp>,
    pub(super) progress: Option<Payload>,
    pub(super) input_changed: bool,
    /// See [`Closing::after`]; for a dropped call.
    pub(super) dropped_after: Position,
    /// A cancel ended it before its hook was there.
    pub(super) over_by_cancel: bool,
    /// The class that the code gives it; what is pinned goes before.
    pub(super) class: Class,
    /// An attempt that was announced and of which no entry says what came of it.
    pub(super) intent: Option<Box<Intent>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Can run at once: no attempt yet, or its retry delay is over. A sleep, event or remote step: not opened yet.
    Ready,
    /// The worker has been told to run or open it.
    Told,
    /// Its wait is recorded.
    Waiting,
    /// Its attempt failed and the retry delay is not over.
    Retrying,
    /// The body saw its outcome before it was acknowledged (rule W36).
    Folded,
    /// The body dropped it.
    Dropped,
}
impl Made {
    /// Of a call that creates a hook: its token.
    pub(super) const fn token(&self) -> Option<&Token> {
        match &self.asked {
            Asked::Hook(token) => Some(token),
            Asked::Step(_)
            | Asked::Remote(_)
            | Asked::Sleep
            | Asked::Event(_)
            | Asked::Patch
            | Asked::Child(_)
            | Asked::Instance
            | Asked::Send(_)
            | Asked::Resume(_)
            | Asked::Payload(_)
            | Asked::Reply(_)
            | Asked::Rollback => None,
        }
    }

    /// Whether an intent comes before each of its attempts (rule L5).
    pub(super) fn is_intended(&self) -> bool {
        let class = self.pinned.map_or(self.class, |(_, policy)| policy.class);
        class.is_intended() && matches!(self.asked, Asked::Step(_))
    }

    /// What may run of it.
    pub(super) fn next(&mut self, number: u64) -> Vec<Next> {
        match self.asked {
            Asked::Sleep
            | Asked::Remote(_)
            | Asked::Event(_)
            | Asked::Patch
            | Asked::Child(_)
            | Asked::Instance
            | Asked::Send(_)
            | Asked::Resume(_)
            | Asked::Hook(_)
            | Asked::Payload(_)
            | Asked::Reply(_)
            | Asked::Rollback => vec![Next::Open { number }],
            Asked::Step(_) if self.losses.is_empty() => vec![Next::Start(self.start(number, self.attempt))],
            Asked::Step(_) => {
                self.losses.iter().map(|attempt| Next::Charge(self.start(number, *attempt))).collect()
            }
        }
    }

    /// The output of an earlier run, for a step without an attempt in this one whose input is the same (rule L4).
    pub(super) fn reuse(
        &self,
        number: u64,
        reusable: &mut HashMap<Call, (Fingerprint, Payload)>,
    ) -> Option<Next> {
        let (Asked::Step(input) | Asked::Remote(input)) = self.asked else { return None };
        if reusable.is_empty() || self.attempt > Attempt::FIRST || self.pinned.is_some() {
            return None;
        }
        let (_, output) = reusable.remove(&self.call).filter(|(recorded, _)| *recorded == input)?;
        Some(Next::Reuse(self.start(number, self.attempt), output))
    }

    pub(super) fn start(&self, number: u64, attempt: Attempt) -> Start {
        Start {
            number,
            attempt,
            pinned: self.pinned,
            first_at: self.first_at,
            progress: self.progress.clone(),
        }
    }

    /// An attempt failed and there will be another. A remote step goes on waiting: the coordinator retries it.
    pub(super) fn retry(&mut self, retry_at: Timestamp, now: Timestamp) {
        self.state = match self.asked {
            Asked::Remote(_) => State::Waiting,
            // The next of its losses is to be charged first; who was told that already is not told again.
            Asked::Step(_) if !self.losses.is_empty() => self.state,
            Asked::Step(_) if retry_at <= now => State::Ready,
            // No other call has attempts.
            Asked::Step(_)
            | Asked::Sleep
            | Asked::Event(_)
            | Asked::Patch
            | Asked::Child(_)
            | Asked::Instance
            | Asked::Send(_)
            | Asked::Resume(_)
            | Asked::Hook(_)
            | Asked::Payload(_)
            | Asked::Reply(_)
            | Asked::Rollback => State::Retrying,
        };
    }
}
