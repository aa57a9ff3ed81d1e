//! Attempts that may not simply be made again: an entry says that one is about to begin, and it begins when its holder is fed that
//! very entry (rules L5 to L8). One that another holder announced, and of which no entry says what came, is one of which nobody knows.

use std::collections::{BTreeSet, HashSet};

use everstep_protocol::{
    Attempt, Call, Class, Epoch, SessionId, Timestamp,
    journal::{Choice, Entry, Intended, Parked, Rekeyed, Resolved, Withdrawn},
};

use super::{
    Asked, Fed, Next, Replay, Start,
    made::{Made, State},
    trouble::{is_changed, mismatch},
};

/// What a replay knows of such attempts beside their calls.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The lease under which this replay runs; none if it never begins an attempt.
    holder: Option<(SessionId, Epoch)>,
    /// What the holder has announced and is yet to be fed. Each entry is taken for its own once, so that whatever is fed twice, or to
    /// another body under the same lease, begins nothing twice.
    announced: HashSet<(Call, Attempt)>,
    /// Dropped calls of which an attempt was announced that has no outcome.
    pub(super) unsettled: BTreeSet<u64>,
    /// The instance is older than this moment, at which an older database was restored: what the history that was lost did after it
    /// nobody knows.
    restored_at: Option<Timestamp>,
    /// Calls of which an entry was written since then.
    since: HashSet<Call>,
}

/// An announced attempt without an outcome.
#[derive(Debug)]
pub(super) struct Intent {
    intended: Intended,
    /// This holder announced it, under this lease.
    own: bool,
    /// This holder was told to begin it.
    begun: bool,
}

impl Intent {
    pub(super) fn is_of_session(&self, session: SessionId) -> bool {
        self.intended.session == session
    }

    pub(super) fn attempt(&self) -> Attempt {
        self.intended.attempt
    }

    pub(super) fn is_of(&self, attempt: Attempt) -> bool {
        self.intended.attempt == attempt
    }
}

/// An attempt of a call that the body has dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// As it was announced.
    pub intended: Intended,
    /// It never began.
    pub unused: bool,
}

impl Replay {
    /// Under which lease this replay runs: what is announced under it may begin.
    pub fn held_by(&mut self, session: SessionId, epoch: Epoch) {
        self.ledger.holder = Some((session, epoch));
        self.ledger.announced.clear();
    }

    /// The instance is older than this restore of an older database, if one is given: a step that is called at most once, of which no
    /// entry was written since then, may have been called by the history that was lost, and so a person is asked first (rule L7).
    pub fn restored(&mut self, at: Option<Timestamp>) {
        self.ledger.restored_at = at;
    }

    /// Whether an attempt that nobody knows of was announced by no entry: what is doubted is the history that was lost.
    #[must_use]
    pub fn is_of_lost_history(&self, number: u64) -> bool {
        self.calls.get(&number).is_some_and(|made| made.intent.is_none())
    }

    /// Goes on for another replay of the same lease, which is thrown away: what that has announced is this one's.
    pub fn inherit(&mut self, other: &mut Self) {
        self.ledger.holder = other.ledger.holder;
        self.ledger.restored_at = other.ledger.restored_at;
        self.ledger.announced = std::mem::take(&mut other.ledger.announced);
    }

    /// What the code says of a step's class, where it is not the default.
    pub fn of_class(&mut self, number: u64, class: Class) {
        if let Some(made) = self.calls.get_mut(&number) {
            made.class = class;
        }
    }

    /// Whether something was announced that is not on record yet.
    #[must_use]
    pub fn awaits_intents(&self) -> bool {
        !self.ledger.announced.is_empty()
    }

    /// What is to be said of announced attempts of calls that the body has dropped, each told once. Call it when every entry is fed.
    pub fn next_settled(&mut self) -> Vec<Settled> {
        let unsettled = std::mem::take(&mut self.ledger.unsettled);
        let intents = unsettled.iter().filter_map(|number| self.calls.get(number)?.intent.as_deref());
        // What may be called again, or be found, need not be asked for.
        let once = intents.filter(|intent| intent.intended.policy.class == Class::AtMostOnce);
        once.map(|intent| Settled { intended: intent.intended.clone(), unused: intent.own && !intent.begun })
            .collect()
    }

    /// What an entry says of an announced attempt of a call that the body has dropped.
    pub(super) fn settles(&mut self, call: &Call, attempt: Attempt) {
        let Some(number) = self.numbers.get(call) else { return };
        if let Some(made) = self.calls.get_mut(number)
            && made.state == State::Dropped
            && made.intent.as_ref().is_some_and(|intent| intent.is_of(attempt))
        {
            made.intent = None;
            self.ledger.unsettled.remove(number);
        }
    }

    pub(super) fn intended(&mut self, entry: &Entry, intended: &Intended) -> Result<Fed, Parked> {
        self.ledger.written(&intended.call, entry.at);
        let build = self.build.clone();
        let is_ours = self.ledger.holder == Some((intended.session, intended.epoch));
        let own = is_ours && self.ledger.announced.remove(&(intended.call.clone(), intended.attempt));
        let intent = Box::new(Intent { intended: intended.clone(), own, begun: false });
        let Some((number, made)) = self.target(entry, &intended.call)? else {
            if let Some(number) = self.numbers.get(&intended.call).copied()
                && let Some(made) = self.calls.get_mut(&number)
            {
                made.intent = Some(intent);
                self.ledger.unsettled.insert(number);
            }
            return Ok(Fed::Nothing);
        };
        let Asked::Step(input) = made.asked else {
            return Err(mismatch(entry, &format!("the code calls {} as {}", intended.call, made.asked)));
        };
        let recorded = (intended.input, Some(&intended.build));
        made.changes(is_changed(entry, &intended.call, (input, &build), recorded)?, intended.input);
        made.pin(intended.attempt, (intended.key, intended.policy), intended.input);
        made.attempt = made.attempt.max(intended.attempt);
        made.intent = Some(intent);
        made.state = State::Ready;
        self.ready.insert(number);
        Ok(Fed::Nothing)
    }

    pub(super) fn withdrawn(&mut self, entry: &Entry, withdrawn: &Withdrawn) -> Result<Fed, Parked> {
        let Some((number, made)) = self.target(entry, &withdrawn.call)? else {
            return Ok(Fed::Nothing);
        };
        if made.intent.as_ref().is_none_or(|intent| !intent.is_of(withdrawn.attempt)) {
            return Err(mismatch(entry, &format!("no attempt of {} was to begin", withdrawn.call)));
        }
        made.intent = None;
        made.withdraw(withdrawn.attempt);
        made.state = State::Ready;
        self.ready.insert(number);
        Ok(Fed::Nothing)
    }

    /// A person has decided. A remote step that is run again goes on waiting: the coordinator runs it.
    pub(super) fn resolved(&mut self, entry: &Entry, resolved: &Resolved) -> Result<Fed, Parked> {
        self.ledger.written(&resolved.call, entry.at);
        let Some((number, made)) = self.target(entry, &resolved.call)? else {
            return Ok(Fed::Nothing);
        };
        if made.state != State::Waiting || !matches!(made.asked, Asked::Step(_) | Asked::Remote(_)) {
            return Err(mismatch(entry, &format!("{} does not wait for a person", resolved.call)));
        }
        let result = match &resolved.choice {
            Choice::Done(output) => Ok(output.clone()),
            Choice::Fail(failure) => Err(failure.clone()),
            Choice::Again if matches!(made.asked, Asked::Remote(_)) => return Ok(Fed::Nothing),
            Choice::Again => {
                made.state = State::Ready;
                self.ready.insert(number);
                return Ok(Fed::Nothing);
            }
        };
        self.drifted += u64::from(made.input_changed);
        self.calls.remove(&number);
        self.changed.remove(&number);
        Ok(Fed::Resolve { number, result })
    }
}

impl Replay {
    /// A person has decided under which key a step goes on (rule P8). What an earlier run kept may stand before the call is made.
    pub(super) fn rekeyed(&mut self, rekeyed: &Rekeyed) {
        let place = (rekeyed.call.clone(), rekeyed.input);
        match rekeyed.kept {
            Some(key) => drop(self.kept.insert(place, key)),
            None => drop(self.kept.remove(&place)),
        }
        let number = self.numbers.get(&rekeyed.call);
        if let Some(made) = number.and_then(|number| self.calls.get_mut(number)) {
            made.rekeyed(rekeyed);
        }
    }
}

impl Ledger {
    /// An entry about a call is fed.
    pub(super) fn written(&mut self, call: &Call, at: Timestamp) {
        if self.restored_at.is_some_and(|restored| at > restored) {
            self.since.insert(call.clone());
        }
    }

    fn is_doubtful(&self, made: &Made) -> bool {
        let class = made.pinned.as_ref().map_or(made.class, |(_, policy)| policy.class);
        self.restored_at.is_some() && class == Class::AtMostOnce && !self.since.contains(&made.call)
    }

    /// What follows for a call that may go on, if each of its attempts is announced.
    pub(super) fn next(&mut self, made: &mut Made, number: u64) -> Vec<Next> {
        if let Some(intent) = &mut made.intent {
            let attempt = intent.intended.attempt;
            if intent.own && !intent.begun {
                intent.begun = true;
                return vec![Next::Start(made.start(number, attempt))];
            }
            let (class, epoch) = (intent.intended.policy.class, intent.intended.epoch);
            let start = Start { input: Some(intent.intended.input), ..made.start(number, attempt) };
            if class == Class::AtMostOnce && !everstep_protocol::planted("unknown_called_again") {
                return vec![Next::Unknown(start, epoch)];
            }
            // It may have taken effect, which the next attempt looks for.
            return vec![Next::Charge(start)];
        }
        if let Some((_, epoch)) = self.holder.filter(|_| self.is_doubtful(made)) {
            return vec![Next::Unknown(made.start(number, made.attempt), epoch)];
        }
        self.announced.insert((made.call.clone(), made.attempt));
        vec![Next::Intend(made.start(number, made.attempt))]
    }
}
