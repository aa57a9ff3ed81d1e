//! One call of a body, as replay keeps it.

use std::collections::HashMap;

use everstep_protocol::{
    Attempt, Call, Class, Fingerprint, Payload, Policy, Position, StepKey, Timestamp, Token,
    journal::{Changed, Rekeyed},
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
    /// Attempts lost with their workers that no entry records yet, each with its input where that is not what the code gives.
    pub(super) losses: Vec<(Attempt, Option<Fingerprint>)>,
    pub(super) pinned: Option<(StepKey, Policy)>,
    pub(super) first_at: Option<Timestamp>,
    pub(super) progress: Option<Payload>,
    pub(super) input_changed: bool,
    /// What there is to be said of a changed input, and of what people decided then: nearly no call has any of it.
    pub(super) rare: Option<Box<Rare>>,
    /// See [`Closing::after`]; for a dropped call.
    pub(super) dropped_after: Position,
    /// A cancel ended it before its hook was there.
    pub(super) over_by_cancel: bool,
    /// The class that the code gives it; what is pinned goes before.
    pub(super) class: Class,
    /// An attempt that was announced and of which no entry says what came of it.
    pub(super) intent: Option<Box<Intent>>,
}

/// Of a call whose input has changed, or for which a key was chosen (rule P8).
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// The input of the last record, if it is not what the code gives now.
    pub(super) recorded: Option<Fingerprint>,
    /// A person has decided about the key: attempts before this one were begun before that.
    decided_at: Option<Attempt>,
    /// The input for which a new key was chosen, until an attempt with it is on record.
    fresh: Option<Fingerprint>,
    /// The key that was kept for the input that the code gives, perhaps in an earlier run.
    kept: Option<StepKey>,
}

impl Rare {
    /// Of a call for which an earlier run kept a key.
    pub(super) fn kept(key: StepKey) -> Self {
        Self { kept: Some(key), ..Self::default() }
    }
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
        let is_settled = self.losses.is_empty() && self.intent.is_none();
        let pinned = self.pinned.filter(|_| !(is_settled && self.begins_anew(self.attempt)));
        let class = pinned.map_or(self.class, |(_, policy)| policy.class);
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
                let charge = |(attempt, input): &(Attempt, Option<Fingerprint>)| {
                    Next::Charge(Start { input: *input, ..self.start(number, *attempt) })
                };
                self.losses.iter().map(charge).collect()
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
        let none =
            Start { number, attempt, pinned: None, kept: None, input: None, first_at: None, progress: None };
        if self.begins_anew(attempt) {
            return none;
        }
        let kept = self.rare.as_ref().and_then(|rare| rare.kept);
        Start { pinned: self.pinned, kept, first_at: self.first_at, progress: self.progress.clone(), ..none }
    }

    /// Whether this attempt is under a new key that a person chose, and the first: nothing is pinned for it.
    fn begins_anew(&self, attempt: Attempt) -> bool {
        let fresh = self.rare.as_ref().and_then(|rare| rare.fresh);
        fresh.is_some_and(|input| self.asked == Asked::Step(input)) && !self.is_before_decision(attempt)
    }

    /// Whether this attempt was begun before a person decided about the key: it bears the key, and had the input, of then.
    pub(super) fn is_before_decision(&self, attempt: Attempt) -> bool {
        let from = self.rare.as_ref().and_then(|rare| rare.decided_at);
        from.is_some_and(|from| attempt < from)
    }

    /// An attempt is on record, begun or announced: the first pins key and policy (rule P8). After a person has decided about the
    /// key so does whatever bears another one.
    pub(super) fn pin(&mut self, attempt: Attempt, pinned: (StepKey, Policy), input: Fingerprint) {
        if self.is_before_decision(attempt) {
            return;
        }
        if let Some(rare) = &mut self.rare {
            let is_anew = rare.fresh.take_if(|fresh| *fresh == input).is_some();
            let is_other = rare.decided_at.is_some() && self.pinned.is_some_and(|(key, _)| key != pinned.0);
            if is_anew || is_other {
                self.pinned = Some(pinned);
                self.first_at = None;
                self.progress = None;
            }
        }
        self.pinned.get_or_insert(pinned);
    }

    /// The code gives it another input than the last record has, or no longer.
    pub(super) fn changes(&mut self, changed: bool, recorded: Fingerprint) {
        self.input_changed = changed;
        if changed {
            self.rare.get_or_insert_default().recorded = Some(recorded);
        }
    }

    /// The input of an attempt that is under way now, if it is not what the code gives.
    pub(super) fn running(&self) -> Option<Fingerprint> {
        self.rare.as_ref().filter(|_| self.input_changed)?.recorded
    }

    /// The number of an attempt that never began is free again, for one that begins after what a person has decided.
    pub(super) fn withdraw(&mut self, attempt: Attempt) {
        if let Some(rare) = &mut self.rare {
            rare.decided_at = rare.decided_at.map(|from| from.min(attempt));
        }
    }

    /// What a person is asked if its input has changed.
    pub(super) fn changed(&self) -> Option<Box<Changed>> {
        let (Asked::Step(input), Some((key, _))) = (&self.asked, self.pinned) else { return None };
        Some(Box::new(Changed { call: self.call.clone(), input: *input, key, asked_at: None }))
    }

    /// A person has decided under which key it goes on with this input. Code that gives another one has not been asked about.
    pub(super) fn rekeyed(&mut self, rekeyed: &Rekeyed) {
        let next = self.intent.as_ref().map_or(self.attempt, |intent| intent.attempt().next());
        let is_asked = self.asked == Asked::Step(rekeyed.input);
        let rare = self.rare.get_or_insert_default();
        rare.decided_at = Some(next);
        if is_asked {
            self.input_changed = false;
            rare.kept = rekeyed.kept;
        }
        match rekeyed.kept {
            Some(key) if is_asked => {
                rare.fresh = None;
                self.pinned = self.pinned.map(|(_, policy)| (key, policy));
            }
            Some(_) => {}
            None => rare.fresh = Some(rekeyed.input),
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
