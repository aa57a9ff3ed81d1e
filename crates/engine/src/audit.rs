//! The ledger as an auditor reads it: one line a call of a step, with its key, the calls that were made, what came of them and who
//! decided (rule L14). Made of the journal alone, which is the ledger.

use std::collections::{BTreeSet, HashMap};

use everstep_protocol::{
    Attempt, Call, Class, Position, Reference, Run, Sent, StepKey, Timestamp,
    journal::{Attempted, Choice, Entry, Fact, Opened, Outcome, Rekeyed, Resolved, Wait},
};

/// One call of a step, an action or a compensation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The run that made it.
    pub run: Run,
    /// The call.
    pub call: Call,
    /// The first entry that says something of it.
    pub position: Position,
    /// What may be done when nobody knows what came of an attempt.
    pub class: Class,
    /// The idempotency key that every attempt sent along. After a person chose a new one (rule P8) the call has another line.
    pub key: StepKey,
    /// What the service calls what the step did there, as the last attempt that knew it said.
    pub reference: Option<Reference>,
    /// How many attempts are on record that may have called the service: not those that were withdrawn, that found the effect done,
    /// that took an output over from an earlier run, or that failed before anything was sent.
    pub calls: u32,
    /// When the first of its entries was written.
    pub since: Timestamp,
    /// When the last was.
    pub until: Timestamp,
    /// What came of it.
    pub outcome: Settled,
    /// What a person decided last, if anybody was asked.
    pub decision: Option<Decision>,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It has an output.
    Succeeded,
    /// Its output was found by looking: it was done before (rule L6).
    Found,
    /// Its output was taken over from an earlier run (rule L4).
    Reused,
    /// It has failed for good.
    Failed,
    /// Nobody knows what came of its last attempt (rule L7).
    Unknown,
    /// It is not known, and a person chose to go on under a new key, which has its own line (rule P8).
    Replaced,
    /// It is open: between attempts, in one, or left where its instance ended.
    Open,
}

impl Settled {
    /// The word shown to people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Found => "found",
            Self::Reused => "reused",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Replaced => "replaced",
            Self::Open => "open",
        }
    }
}

/// What a person decided (rule L8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// `done`, `again` or `fail`; `old_key` or `new_key` where the input of a step has changed.
    pub choice: &'static str,
    /// When.
    pub at: Timestamp,
    /// Who, if it was said.
    pub by: Option<String>,
    /// Why, if it was said.
    pub why: Option<String>,
}

/// Reads the entries of one run, in order, and keeps one line for each call and key.
#[derive(Debug)]
pub struct Audit {
    run: Run,
    open: Vec<Reading>,
    places: HashMap<(Call, StepKey), usize>,
    /// The line of each call that was heard of last.
    last: HashMap<Call, usize>,
    /// What was decided about keys of which nothing has been heard yet: in an earlier run.
    early: HashMap<(Call, StepKey), Decision>,
}

/// A line in the making.
#[derive(Debug)]
struct Reading {
    line: Line,
    /// The attempts that may have called the service. A number that was withdrawn is another attempt's afterwards.
    attempts: BTreeSet<Attempt>,
}

impl Audit {
    /// Of a run of which nothing is read yet.
    #[must_use]
    pub fn new(run: Run) -> Self {
        Self { run, open: Vec::new(), places: HashMap::new(), last: HashMap::new(), early: HashMap::new() }
    }

    /// Reads the next entry; those between that are of no step may be left out.
    pub fn read(&mut self, entry: &Entry) {
        match &entry.fact {
            Fact::Attempted(attempted) => {
                let reading = self.begun(entry, &attempted.call, attempted.policy.class, attempted.key);
                reading.attempted(attempted);
            }
            Fact::Intended(intended) => {
                let reading = self.begun(entry, &intended.call, intended.policy.class, intended.key);
                reading.attempts.insert(intended.attempt);
                reading.line.outcome = Settled::Open;
            }
            Fact::Opened(Opened { call, wait: Wait::Remote(remote), .. }) => {
                self.begun(entry, call, remote.policy.class, remote.key);
            }
            Fact::Withdrawn(withdrawn) => {
                if let Some(reading) = self.known(entry, &withdrawn.call) {
                    reading.attempts.remove(&withdrawn.attempt);
                }
            }
            Fact::Resolved(resolved) => {
                if let Some(reading) = self.known(entry, &resolved.call) {
                    reading.line.resolved(entry.at, resolved);
                }
            }
            Fact::Rekeyed(rekeyed) => self.rekeyed(entry, rekeyed),
            _ => {}
        }
    }

    /// The lines, in the order in which their calls were first heard of.
    pub fn lines(self) -> impl Iterator<Item = Line> {
        self.open.into_iter().map(|Reading { line, attempts }| Line {
            calls: u32::try_from(attempts.len()).unwrap_or(u32::MAX),
            ..line
        })
    }

    /// The line of a call, which begins with this entry if there is none.
    fn begun(&mut self, entry: &Entry, call: &Call, class: Class, key: StepKey) -> &mut Reading {
        let next = self.open.len();
        let place = *self.places.entry((call.clone(), key)).or_insert(next);
        if place == next {
            let line = Line {
                run: self.run,
                call: call.clone(),
                position: entry.position,
                class,
                key,
                reference: None,
                calls: 0,
                since: entry.at,
                until: entry.at,
                outcome: Settled::Open,
                decision: self.early.remove(&(call.clone(), key)),
            };
            self.open.push(Reading { line, attempts: BTreeSet::new() });
        }
        let before = self.last.insert(call.clone(), place).filter(|before| *before != place);
        if let Some(line) = before.map(|before| &mut self.open[before].line)
            && line.outcome == Settled::Open
        {
            line.outcome = Settled::Replaced;
        }
        let reading = &mut self.open[place];
        reading.line.until = entry.at;
        reading
    }

    /// Somebody has decided about the key of a call: it stands with the line of the key that was asked about.
    fn rekeyed(&mut self, entry: &Entry, rekeyed: &Rekeyed) {
        let Rekeyed { by, why, .. } = rekeyed.clone();
        let decision = Decision { choice: rekeyed.choice().word(), at: entry.at, by, why };
        if let Some(reading) = self.known(entry, &rekeyed.call) {
            reading.line.decision = Some(decision);
        } else if let Some(key) = rekeyed.kept {
            self.early.insert((rekeyed.call.clone(), key), decision);
        }
    }

    fn known(&mut self, entry: &Entry, call: &Call) -> Option<&mut Reading> {
        let reading = &mut self.open[*self.last.get(call)?];
        reading.line.until = entry.at;
        Some(reading)
    }
}

impl Reading {
    fn attempted(&mut self, attempted: &Attempted) {
        let marks = attempted.marks;
        let unsent =
            matches!(&attempted.outcome, Outcome::Failed { failure, .. } if failure.sent == Sent::No);
        if marks.found || marks.reused || unsent {
            self.attempts.remove(&attempted.attempt);
        } else {
            self.attempts.insert(attempted.attempt);
        }
        if attempted.reference.is_some() {
            self.line.reference.clone_from(&attempted.reference);
        }
        self.line.outcome = match &attempted.outcome {
            Outcome::Succeeded(_) if marks.found => Settled::Found,
            Outcome::Succeeded(_) if marks.reused => Settled::Reused,
            Outcome::Succeeded(_) => Settled::Succeeded,
            Outcome::Failed { retry_at: Some(_), .. } => Settled::Open,
            Outcome::Failed { retry_at: None, .. } => Settled::Failed,
            Outcome::Unknown { .. } => Settled::Unknown,
        };
    }
}

impl Line {
    fn resolved(&mut self, at: Timestamp, resolved: &Resolved) {
        let (choice, outcome) = match &resolved.choice {
            Choice::Done(_) => ("done", Settled::Succeeded),
            Choice::Again => ("again", Settled::Open),
            Choice::Fail(_) => ("fail", Settled::Failed),
        };
        self.outcome = outcome;
        self.decision = Some(Decision { choice, at, by: resolved.by.clone(), why: resolved.why.clone() });
    }
}
