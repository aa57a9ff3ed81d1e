//! What happened, line by line: every commit, message and fault. Its hash tells two runs apart; its end is shown when one fails.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::clock::Clock;

/// So many lines are kept.
const KEPT: usize = 400;

/// The trace of one run.
#[derive(Clone)]
pub(crate) struct Trace {
    clock: Clock,
    shows: bool,
    lines: Arc<Mutex<Lines>>,
}

#[derive(Default)]
struct Lines {
    hasher: blake3::Hasher,
    last: VecDeque<String>,
    count: u64,
}

impl Trace {
    /// With `shows`, every line is printed too.
    pub(crate) fn new(clock: Clock, shows: bool) -> Self {
        Self { clock, shows, lines: Arc::default() }
    }

    pub(crate) fn note(&self, who: &str, what: fmt::Arguments<'_>) {
        let at = self.clock.now();
        let line = format!("{:>4}.{:03} {who}: {what}", at / 1_000_000, at / 1_000 % 1_000);
        if self.shows {
            println!("{line}");
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.hasher.update(line.as_bytes());
        lines.count += 1;
        if lines.last.len() == KEPT {
            lines.last.pop_front();
        }
        lines.last.push_back(line);
    }

    /// Sixteen digits that two runs have in common only if all their lines are the same.
    pub(crate) fn hash(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.hasher.finalize().to_hex()[..16].to_owned()
    }

    /// The last lines, oldest first.
    pub(crate) fn last(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.last.iter().cloned().collect()
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("hash", &self.hash()).finish_non_exhaustive()
    }
}
