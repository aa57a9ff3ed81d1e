//! Checkers: each watches all that happens in a run and says what must never be. They know nothing of the workload.
//!
//! | checker | says |
//! | --- | --- |
//! | `starts` | an accepted start is there at the end, and there is one instance of it |
//! | `writer` | at any commit at most one holder, of the build that the instance is pinned to; what a holder reports is taken from the
//! holder alone; epochs only grow |
//! | `journal` | journals only grow, without gaps; an outcome is recorded once and never changes |
//! | `steps` | a completed step is not run again; each effect is there once, or a person was asked |
//! | `events` | events and payloads come in order, each to one call |
//! | `hooks` | a token has one owner; whoever is told that it owns one does |
//! | `moves` | every open instance has a reason to move; at rest none is open, and every producer has its answer |
//! | `schedules` | each due time is started once, in its turn and not before, none while paused, and none is passed over without a reason |
//! | `sessions` | a session ends only with its process, or where that could not be heard for a cause of its own |
//! | `silence` | no session ends within a lease after a gap; whoever speaks no more is ended |
//! | `written` | what is decided can be written |
//! | `replay` | a journal, fed to the code again, comes to the same end |

mod events;
mod hooks;
mod journal;
mod moves;
mod replay;
mod schedules;
mod sessions;
mod silence;
mod starts;
mod steps;
#[cfg(test)]
mod tests;
mod writer;
mod written;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use everstep_engine::{Writes, batch::Loaded, head::Head, rows::IdMap, start::NameKey};
use everstep_protocol::{
    BuildName, Call, InstanceId, InstanceUid, Run, SessionId, StepKey, WorkflowName,
    journal::{Entry, Fact},
};
use everstep_sdk::Registry;
use everstep_store::{InstanceView, ScheduleChange, ScheduleWrite};

use crate::workload::effects::Counted;

/// One transaction that was committed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commit {
    /// The heads that it found.
    pub(crate) heads: IdMap<InstanceUid, Head>,
    pub(crate) writes: Writes,
}

impl Commit {
    pub(crate) fn before(loaded: &Loaded) -> Self {
        Self { heads: loaded.heads.clone(), writes: Writes::default() }
    }
}

/// A step's function is about to be called.
#[derive(Clone, Debug)]
pub(crate) struct Attempting {
    pub(crate) workflow: WorkflowName,
    pub(crate) id: InstanceId,
    pub(crate) call: Call,
    pub(crate) key: StepKey,
    /// The session of the process that calls it.
    pub(crate) session: Option<SessionId>,
}

/// What happens in a run.
#[derive(Debug)]
pub(crate) enum Seen<'a> {
    /// A transaction was committed.
    Committed(&'a Commit),
    /// A step begins somewhere.
    Attempting(&'a Attempting),
    /// A producer was told that its start is accepted.
    Accepted(&'a NameKey),
    /// All open instances, at a moment in between.
    Audited(&'a [InstanceView]),
    /// Time has come to this (the world's, in microseconds, as everywhere here).
    Passed { at: i64 },
    /// A worker of this build opens a session.
    Opens { session: SessionId, build: &'a BuildName },
    /// Something kept a process from being heard, or any of them, until then.
    Troubled { session: Option<SessionId>, until: i64 },
    /// The coordinators' own heartbeat was noted.
    Beat { at: i64 },
    /// A session was opened, or its heartbeat was noted.
    Heard { session: SessionId, at: i64 },
    /// The process of a session has died, or stands still for ever.
    Gone { session: SessionId, at: i64 },
    /// A session has said goodbye.
    Goodbye { session: SessionId },
    /// Somebody ended a session that had not said goodbye: early, where its inbox could not be reached, or as silent.
    SessionEnded { session: SessionId, at: i64, early: bool },
    /// A person has changed a schedule.
    Changed(&'a ScheduleChange),
    /// It was written where a schedule stands after a turn.
    Settled(&'a ScheduleWrite),
    /// The store refused for good what was decided.
    Unwritable { reason: &'a str },
}

/// The end of a run.
#[derive(Debug)]
pub(crate) struct Rest<'a> {
    /// Where the effects of steps were counted.
    pub(crate) effects: &'a Counted,
    pub(crate) instances: &'a [InstanceView],
    pub(crate) journals: &'a BTreeMap<(InstanceUid, Run), Vec<Entry>>,
    /// The code, to replay journals.
    pub(crate) registry: &'a Registry,
    /// How many producers still try to get an answer, and bulk operations and schedules go on.
    pub(crate) unanswered: usize,
}

/// Watches a run. An error says what must not have been, in words.
pub(crate) trait Checker: Send {
    fn name(&self) -> &'static str;
    fn sees(&mut self, seen: &Seen<'_>) -> Result<(), String>;
    /// Looks at what is left when everything has come to rest. Default: what there is to see was seen before.
    fn at_rest(&mut self, _rest: &Rest<'_>) -> Result<(), String> {
        Ok(())
    }
}

/// What must not have been, and who found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    pub checker: &'static str,
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.what)
    }
}

/// All checkers of a run.
#[derive(Clone)]
pub(crate) struct Watchers(Arc<Mutex<Watching>>);

struct Watching {
    checkers: Vec<Box<dyn Checker>>,
    breach: Option<Breach>,
    tally: Tally,
}

/// What was seen in a run, for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub commits: u64,
    /// Steps, remote ones and compensations too, with an outcome.
    pub steps: u64,
    /// Questions that a person was asked.
    pub asked: u64,
}

impl Watchers {
    pub(crate) fn new() -> Self {
        let checkers: Vec<Box<dyn Checker>> = vec![
            Box::<starts::Starts>::default(),
            Box::<writer::Writer>::default(),
            Box::<journal::Journal>::default(),
            Box::<steps::Steps>::default(),
            Box::<events::Events>::default(),
            Box::<hooks::Hooks>::default(),
            Box::<moves::Moves>::default(),
            Box::<schedules::Schedules>::default(),
            Box::<sessions::Sessions>::default(),
            Box::<silence::Silence>::default(),
            Box::<written::Written>::default(),
            Box::<replay::Replay>::default(),
        ];
        Self(Arc::new(Mutex::new(Watching { checkers, breach: None, tally: Tally::default() })))
    }

    pub(crate) fn see(&self, seen: &Seen<'_>) {
        let mut watching = self.lock();
        if let Seen::Committed(commit) = seen {
            watching.tally.count(commit);
        }
        watching.ask(|checker| checker.sees(seen));
    }

    /// A process could not be heard until then; a coordinator's trouble is no session's.
    pub(crate) fn troubled(&self, session: Option<SessionId>, until: i64) {
        if session.is_some() {
            self.see(&Seen::Troubled { session, until });
        }
    }

    /// A process speaks no more.
    pub(crate) fn gone(&self, session: Option<SessionId>, at: i64) {
        if let Some(session) = session {
            self.see(&Seen::Gone { session, at });
        }
    }

    /// No process could be heard for sure until then.
    pub(crate) fn all_troubled(&self, until: i64) {
        self.see(&Seen::Troubled { session: None, until });
    }

    pub(crate) fn rest(&self, rest: &Rest<'_>) {
        self.lock().ask(|checker| checker.at_rest(rest));
    }

    /// Something that no checker but the world itself has seen.
    pub(crate) fn breach(&self, checker: &'static str, what: String) {
        self.lock().breach.get_or_insert(Breach { checker, what });
    }

    pub(crate) fn breached(&self) -> Option<Breach> {
        self.lock().breach.clone()
    }

    pub(crate) fn tally(&self) -> Tally {
        self.lock().tally
    }

    fn lock(&self) -> MutexGuard<'_, Watching> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchers").field("breach", &self.breached()).finish_non_exhaustive()
    }
}

impl Watching {
    fn ask(&mut self, ask: impl Fn(&mut dyn Checker) -> Result<(), String>) {
        for checker in &mut self.checkers {
            if let Err(what) = ask(checker.as_mut()) {
                self.breach.get_or_insert(Breach { checker: checker.name(), what });
            }
        }
    }
}

impl Tally {
    fn count(&mut self, commit: &Commit) {
        self.commits += 1;
        for row in &commit.writes.journal {
            if let Fact::Attempted(attempted) = &row.entry.fact {
                self.steps += u64::from(!attempted.goes_on());
                self.asked += u64::from(attempted.goes_on() && attempted.retry_at().is_none());
            }
        }
    }
}
