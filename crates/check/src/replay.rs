//! Feeds a journal to the code, as a worker that takes the instance up would, and runs no step.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use everstep_protocol::{
    BuildName, Failure, Payload, Position, SessionId, Timestamp,
    journal::{End, Entry, Fact, ParkCode, Parked},
    limits::Limits,
    message::{LedgerItem, Report, Then, WorkerItem},
};
use everstep_sdk::Registry;
use everstep_worker::{
    Metrics,
    clock::Now,
    hosted::{Env, Hosted, Out},
    watch::Watch,
};
use serde::Serialize;
use tokio::time::Instant;

use crate::saved::Saved;

/// What replays count is read by nobody, and dear to make for each of many journals.
static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::default);

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// How many entries were fed.
    pub entries: u64,
    /// The journal says how the instance ended, and the code ends in the same way.
    pub ended: bool,
    /// How many recorded outputs were used although the code now gives their steps another input, which only another build
    /// may do (rule P8). A journal of this very build must have none.
    pub drifted: u64,
    /// What the code would do next, if the journal has no end.
    pub next: Vec<String>,
}

/// Where journal and code disagree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{reason}")]
#[non_exhaustive]
pub struct Breach {
    /// The entry, if it is one that disagrees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<u64>,
    /// What that entry is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// The call that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// In words: names the entry, and the call, that disagree, and what the code asks for instead.
    pub reason: String,
}

impl Breach {
    pub(crate) fn whole(reason: impl Into<String>) -> Self {
        Self { entry: None, kind: None, call: None, reason: reason.into() }
    }

    fn at(entry: &Entry, reason: String) -> Self {
        Self {
            entry: Some(entry.position.0),
            kind: Some(entry.fact.word()),
            call: entry.fact.call().map(ToString::to_string),
            reason,
        }
    }
}

/// What is needed to replay.
#[derive(Debug)]
pub struct Replayer<'a> {
    /// The code.
    pub registry: &'a Registry,
    /// The build that the code counts as: only another one may give a recorded step another input (rule P8).
    pub build: BuildName,
    /// The limits of payloads and steps.
    pub limits: Limits,
    /// Sees a body that blocks.
    pub watch: Arc<Watch>,
}

impl Replayer<'_> {
    /// Feeds the journal to the code and compares the ends. No step is run, and nothing is sent.
    pub fn replay(&self, saved: &Saved) -> Result<Replayed, Breach> {
        if self.registry.definition(&saved.workflow).is_none() {
            return Err(Breach::whole(format!("workflow {} is not registered", saved.workflow)));
        }
        let (entries, end) = split(&saved.entries);
        if entries.is_empty() {
            return Err(Breach::whole("the journal has no entries"));
        }
        let last = entries.len() as u64;
        let at = saved.entries.last().map_or(Timestamp(0), |entry| entry.at);
        let mut hosted = Hosted::new(Arc::new(self.env()), saved.grant(entries.to_vec()));
        let mut out = Vec::new();
        hosted.turn(Now { at: Instant::now(), db: at }, &mut out);
        let code = Code::of(out).map_err(|trouble| trouble.breach(entries, hosted.position()))?;
        let drifted = hosted.drifted();
        let Some((entry, end)) = end else {
            return Ok(Replayed { entries: last, ended: false, drifted, next: code.next });
        };
        if let Some(difference) = code.differs(&end) {
            let (position, word, recorded) = (entry.position, entry.fact.word(), say(&end));
            let reason =
                format!("entry {position} ({word}) says that it {recorded}, but now the code {difference}");
            return Err(Breach::at(entry, reason));
        }
        Ok(Replayed { entries: last + 1, ended: true, drifted, next: Vec::new() })
    }

    fn env(&self) -> Env {
        Env {
            registry: self.registry.clone(),
            build: self.build.clone(),
            session: SessionId::generate(),
            limits: self.limits,
            linger: Duration::ZERO,
            caches: false,
            interceptor: None,
            watch: self.watch.clone(),
            metrics: METRICS.clone(),
            // A body that something else wakes later has been replayed by then.
            foreign: Arc::new(|_, _| {}),
        }
    }
}

/// How a journal ends, or the code comes to its end.
#[derive(Clone, Debug, PartialEq)]
enum Last {
    Ended(End),
    /// It goes on as new, with this input.
    Continued(Payload),
}

/// The entries before the end, and the end.
fn split(entries: &[Entry]) -> (&[Entry], Option<(&Entry, Last)>) {
    match entries.split_last() {
        Some((last @ Entry { fact: Fact::Ended(end), .. }, before)) => {
            (before, Some((last, Last::Ended(end.clone()))))
        }
        Some((last @ Entry { fact: Fact::Continued(input), .. }, before)) => {
            (before, Some((last, Last::Continued(input.clone()))))
        }
        Some(_) | None => (entries, None),
    }
}

/// What the code comes to after the last entry.
#[derive(Debug, Default)]
struct Code {
    end: Option<Last>,
    next: Vec<String>,
}

/// Why the code does not get to the end of the journal.
enum Trouble {
    Parked(Parked),
    Missing(Position),
}

impl Trouble {
    /// `position` is the last entry that was fed.
    fn breach(self, entries: &[Entry], position: Position) -> Breach {
        match self {
            Self::Missing(after) => Breach::whole(format!("the entries after {after} are missing")),
            Self::Parked(Parked { code: ParkCode::JournalMismatch, message, .. }) => {
                match entries.iter().find(|entry| entry.position == position) {
                    Some(entry) => Breach::at(entry, message),
                    None => Breach::whole(message),
                }
            }
            Self::Parked(Parked { message, .. }) => Breach::whole(message),
        }
    }
}

impl Code {
    /// An error if it contradicts the journal.
    fn of(out: Vec<Out>) -> Result<Self, Trouble> {
        let mut code = Self::default();
        for out in out {
            match out {
                Out::Start(order) => {
                    code.next.push(format!(
                        "{} {:?} #{}",
                        order.info.kind,
                        order.info.name.as_str(),
                        order.info.count
                    ));
                }
                Out::Send(WorkerItem::Report(report), _) => code.report(report)?,
                Out::Send(WorkerItem::Ask { after, .. }, _) => {
                    return Err(Trouble::Missing(after));
                }
                Out::Send(..) | Out::Cancel { .. } | Out::Finished(_) => {}
            }
        }
        Ok(code)
    }

    fn report(&mut self, report: Report) -> Result<(), Trouble> {
        self.next.extend(report.opened.iter().map(|open| open.call.to_string()));
        self.next.extend(report.ledger.iter().filter_map(|item| match item {
            LedgerItem::Intend(intent) => Some(intent.call.to_string()),
            LedgerItem::Withdraw(_) | LedgerItem::Dropped(_) => None,
        }));
        match report.then {
            Then::Park(parked) => return Err(Trouble::Parked(parked)),
            Then::End(end) => self.end = Some(Last::Ended(end)),
            Then::Again(again) => self.end = Some(Last::Continued(again.input)),
            Then::Continue | Then::Suspend => {}
        }
        Ok(())
    }

    /// In words, if the code does not end as the journal does.
    fn differs(&self, recorded: &Last) -> Option<String> {
        match (recorded, &self.end) {
            // It was ended from outside, wherever the code was.
            (Last::Ended(End::Terminated { .. }), _) => None,
            (_, Some(end)) if same(recorded, end) => None,
            (_, Some(end)) => Some(say(end)),
            (_, None) if self.next.is_empty() => Some("waits for something".to_owned()),
            (_, None) => Some(format!("goes on with {}", self.next.join(", "))),
        }
    }
}

/// The same, as far as both are recorded: a saved journal does not have all of an error.
fn same(one: &Last, other: &Last) -> bool {
    let (Last::Ended(one), Last::Ended(other)) = (one, other) else { return one == other };
    match (one, other) {
        (End::Complete(one), End::Complete(other)) => one == other,
        (End::Errored(one), End::Errored(other)) => alike(one, other),
        (End::Cancelled { .. }, End::Cancelled { .. }) => true,
        (End::Terminated { .. } | End::Complete(_) | End::Errored(_) | End::Cancelled { .. }, _) => false,
    }
}

/// What a saved journal hides (rule P44) is not compared.
fn alike(recorded: &Failure, other: &Failure) -> bool {
    (recorded.kind, &recorded.name) == (other.kind, &other.name)
        && (recorded.sensitive || recorded.message == other.message)
}

fn say(end: &Last) -> String {
    let end = match end {
        Last::Continued(input) => return format!("goes on as new with {}", input.as_str()),
        Last::Ended(end) => end,
    };
    match end {
        End::Complete(output) => format!("completes with {}", output.as_str()),
        End::Errored(failure) => format!("fails with {failure}"),
        End::Terminated { .. } => "was terminated".to_owned(),
        End::Cancelled { .. } => "ends as cancelled".to_owned(),
    }
}
