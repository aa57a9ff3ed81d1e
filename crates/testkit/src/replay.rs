//! Feeds a journal to the code, as a worker that takes the instance up would, and runs no step.

use std::{sync::Arc, time::Duration};

use everstep_protocol::{
    BuildName, Failure, SessionId, Timestamp,
    journal::{End, Entry, Fact},
    limits::Limits,
    message::{Report, Then, WorkerItem},
};
use everstep_sdk::Registry;
use everstep_worker::{
    Metrics,
    clock::Now,
    hosted::{Env, Hosted, Out},
    watch::Watch,
};
use tokio::time::Instant;

use crate::{saved::Saved, system::BUILD, watchdog::Watches};

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

/// What is needed to replay.
#[derive(Debug)]
pub(crate) struct Replayer<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) limits: Limits,
    pub(crate) watches: &'a Watches,
}

impl Replayer<'_> {
    /// An error names the entry, and the call, that disagree.
    pub(crate) fn replay(&self, saved: &Saved) -> Result<Replayed, String> {
        if self.registry.definition(&saved.workflow).is_none() {
            return Err(format!("workflow {} is not registered", saved.workflow));
        }
        let (entries, end) = split(&saved.entries);
        if entries.is_empty() {
            return Err("the journal has no entries".to_owned());
        }
        let last = entries.len();
        let at = saved.entries.last().map_or(Timestamp(0), |entry| entry.at);
        let mut hosted = Hosted::new(Arc::new(self.env()?), saved.grant(entries.to_vec()));
        let mut out = Vec::new();
        hosted.turn(Now { at: Instant::now(), db: at }, &mut out);
        let (code, drifted) = (Code::of(out)?, hosted.drifted());
        let Some((end_at, end)) = end else {
            return Ok(Replayed { entries: last as u64, ended: false, drifted, next: code.next });
        };
        if let Some(difference) = code.differs(end) {
            return Err(format!(
                "entry {} (ended) says that it {}, but now the code {difference}",
                end_at,
                say(end)
            ));
        }
        Ok(Replayed { entries: last as u64 + 1, ended: true, drifted, next: Vec::new() })
    }

    fn env(&self) -> Result<Env, String> {
        let watch = Arc::new(Watch::default());
        self.watches.add(watch.clone());
        Ok(Env {
            registry: self.registry.clone(),
            build: BuildName::new(BUILD).map_err(|error| error.to_string())?,
            session: SessionId::generate(),
            limits: self.limits,
            linger: Duration::ZERO,
            watch,
            metrics: Metrics::default(),
            // A body that something else wakes later has been replayed by then.
            foreign: Arc::new(|_, _| {}),
        })
    }
}

/// The entries before the end, and the end.
fn split(entries: &[Entry]) -> (&[Entry], Option<(u64, &End)>) {
    match entries.split_last() {
        Some((Entry { position, fact: Fact::Ended(end), .. }, before)) => (before, Some((position.0, end))),
        Some(_) | None => (entries, None),
    }
}

/// What the code comes to after the last entry.
#[derive(Debug, Default)]
struct Code {
    end: Option<End>,
    next: Vec<String>,
}

impl Code {
    /// An error if it contradicts the journal.
    fn of(out: Vec<Out>) -> Result<Self, String> {
        let mut code = Self::default();
        for out in out {
            match out {
                Out::Start(order) => {
                    code.next.push(format!("step {:?} #{}", order.info.name.as_str(), order.info.count));
                }
                Out::Send(WorkerItem::Report(report), _) => code.report(report)?,
                Out::Send(WorkerItem::Ask { after, .. }, _) => {
                    return Err(format!("the entries after {after} are missing"));
                }
                Out::Send(..) | Out::Cancel { .. } | Out::Finished(_) => {}
            }
        }
        Ok(code)
    }

    fn report(&mut self, report: Report) -> Result<(), String> {
        self.next.extend(report.opened.iter().map(|open| open.call.to_string()));
        match report.then {
            Then::Park(parked) => return Err(parked.message),
            Then::End(end) => self.end = Some(end),
            Then::Continue | Then::Suspend => {}
        }
        Ok(())
    }

    /// In words, if the code does not end as the journal does.
    fn differs(&self, recorded: &End) -> Option<String> {
        match (recorded, &self.end) {
            // It was ended from outside, wherever the code was.
            (End::Terminated { .. }, _) => None,
            (_, Some(end)) if same(recorded, end) => None,
            (_, Some(end)) => Some(say(end)),
            (_, None) if self.next.is_empty() => Some("waits for something".to_owned()),
            (_, None) => Some(format!("goes on with {}", self.next.join(", "))),
        }
    }
}

/// The same, as far as both are recorded: a saved journal does not have all of an error.
fn same(one: &End, other: &End) -> bool {
    match (one, other) {
        (End::Complete(one), End::Complete(other)) => one == other,
        (End::Errored(one), End::Errored(other)) => seen(one) == seen(other),
        (End::Cancelled { .. }, End::Cancelled { .. }) => true,
        (End::Terminated { .. } | End::Complete(_) | End::Errored(_) | End::Cancelled { .. }, _) => false,
    }
}

fn seen(failure: &Failure) -> (everstep_protocol::FailureKind, &str, &str) {
    (failure.kind, &failure.name, &failure.message)
}

fn say(end: &End) -> String {
    match end {
        End::Complete(output) => format!("completes with {}", output.as_str()),
        End::Errored(failure) => format!("fails with {failure}"),
        End::Terminated { .. } => "was terminated".to_owned(),
        End::Cancelled { .. } => "ends as cancelled".to_owned(),
    }
}
