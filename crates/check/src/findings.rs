//! What the check found, for people and for programs.

use std::{collections::BTreeMap, fmt};

use everstep_protocol::BuildName;
use serde::Serialize;

use crate::{Breach, Replayed};

/// How many instances with drift are named.
const DRIFT_NAMED: usize = 10;

/// What was found of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finding {
    /// The code takes it up where its journal ends.
    Replays {
        /// How many recorded outputs were used although the code now gives their steps another input (rule P8).
        drifted: u64,
    },
    /// The code would not get to the end of its journal: the instance would be parked.
    Breaks(Breach),
    /// This program does not serve its workflow.
    Unserved,
    /// It is pinned to another build, whose workers alone take it up: what this program makes of it does not matter.
    Pinned {
        /// The build.
        build: BuildName,
    },
    /// What it needs is sensitive, and so in no journal that leaves the coordinator (rule P44): nobody can say from here.
    Hidden {
        /// Names the entry and the field.
        reason: String,
    },
    /// Its journal cannot be read.
    Unreadable {
        /// Why.
        reason: String,
    },
}

impl From<Result<Replayed, Breach>> for Finding {
    fn from(result: Result<Replayed, Breach>) -> Self {
        match result {
            Ok(replayed) => Self::Replays { drifted: replayed.drifted },
            Err(breach) => Self::Breaks(breach),
        }
    }
}

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// The build that was checked.
    pub build: BuildName,
    /// How many instances were looked at.
    pub checked: u64,
    /// How many the code takes up where their journals end.
    pub replay: u64,
    /// How many would break, or cannot be read.
    pub breaks: u64,
    /// How many are of workflows that this program does not serve, by workflow.
    pub unserved: BTreeMap<String, u64>,
    /// How many are pinned to other builds, by build.
    pub pinned: BTreeMap<String, u64>,
    /// How many cannot be checked, since what they need is sensitive.
    pub hidden: u64,
    /// Recorded outputs that were used although their steps now get another input, by instance.
    pub drifted: BTreeMap<String, u64>,
}

impl Findings {
    /// Nothing yet.
    #[must_use]
    pub const fn new(build: BuildName) -> Self {
        Self {
            build,
            checked: 0,
            replay: 0,
            breaks: 0,
            unserved: BTreeMap::new(),
            pinned: BTreeMap::new(),
            hidden: 0,
            drifted: BTreeMap::new(),
        }
    }

    /// Counts one instance, `WORKFLOW/ID`.
    pub fn add(&mut self, workflow: &str, id: &str, finding: &Finding) {
        self.checked += 1;
        match finding {
            Finding::Replays { drifted } => {
                self.replay += 1;
                if *drifted > 0 {
                    self.drifted.insert(format!("{workflow}/{id}"), *drifted);
                }
            }
            Finding::Breaks(_) | Finding::Unreadable { .. } => self.breaks += 1,
            Finding::Pinned { build } => *self.pinned.entry(build.to_string()).or_default() += 1,
            Finding::Hidden { .. } => self.hidden += 1,
            Finding::Unserved => *self.unserved.entry(workflow.to_owned()).or_default() += 1,
        }
    }
}

/// One instance that would break, for people; nothing for one that would not.
pub(crate) fn line(workflow: &str, id: &str, finding: &Finding) -> Option<String> {
    match finding {
        Finding::Breaks(Breach { entry, kind, call, reason }) => {
            let at = entry.map(|entry| format!(" at entry {entry}")).unwrap_or_default();
            let kind = kind.map(|kind| format!(" ({kind})")).unwrap_or_default();
            let call = call.as_ref().map(|call| format!(" of {call}")).unwrap_or_default();
            Some(format!("{workflow}/{id} would break{at}{kind}{call}\n  {reason}"))
        }
        Finding::Hidden { reason } | Finding::Unreadable { reason } => {
            Some(format!("{workflow}/{id} cannot be checked\n  {reason}"))
        }
        Finding::Replays { .. } | Finding::Pinned { .. } | Finding::Unserved => None,
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { build, checked, replay, breaks, unserved, pinned, hidden, drifted } = self;
        let noun = if *checked == 1 { "instance" } else { "instances" };
        write!(f, "checked {checked} {noun} against build {build}: {replay} replay, {breaks} would break")?;
        let named = |counts: &BTreeMap<String, u64>| {
            counts.iter().map(|(name, count)| format!("{name} ({count})")).collect::<Vec<_>>().join(", ")
        };
        if !unserved.is_empty() {
            write!(f, "\nnot served by this program, and not checked: {}", named(unserved))?;
        }
        if !pinned.is_empty() {
            write!(f, "\npinned to other builds, and not checked: {}", named(pinned))?;
        }
        if *hidden > 0 {
            write!(f, "\nnot checked, since what is sensitive is in no journal here: {hidden}")?;
        }
        if !drifted.is_empty() {
            let named: Vec<_> = drifted
                .iter()
                .take(DRIFT_NAMED)
                .map(|(instance, count)| format!("{instance} ({count})"))
                .collect();
            let more = match drifted.len().saturating_sub(DRIFT_NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            write!(
                f,
                "\nrecorded outputs are used although their steps now get another input: {}{more}",
                named.join(", ")
            )?;
        }
        Ok(())
    }
}
