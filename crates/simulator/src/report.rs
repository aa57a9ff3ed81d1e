//! What came of runs, for people.

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::{
    check::{Breach, Tally},
    faults::Kind,
};

/// What came of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    /// Two runs of a seed have the same.
    pub hash: String,
    /// How often which faults come.
    pub plan: String,
    /// What must not have been.
    pub breach: Option<Breach>,
    pub tally: Tally,
    pub faults: BTreeMap<Kind, u64>,
    pub kills: u64,
    /// Effects that came again from a process that had stood still between its look and its call.
    pub past_a_freeze: u64,
    pub virtual_micros: u64,
    /// The end of the trace.
    pub last: Vec<String>,
}

impl Outcome {
    /// What is printed of a run that failed.
    #[must_use]
    pub fn failure(&self, lines: usize) -> Option<String> {
        let breach = self.breach.as_ref()?;
        let first = self.last.len().saturating_sub(lines);
        let trace = self.last[first..].join("\n  ");
        let (seed, plan) = (self.seed, &self.plan);
        Some(format!(
            "seed {seed} failed: {breach}\n  faults, {plan}\n  ...\n  {trace}\nall of it: cargo run --release -p everstep-simulator --bin sim -- --seed {seed} --trace"
        ))
    }
}

/// What came of many runs.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    pub seeds: u64,
    pub failed: Vec<u64>,
    pub steps: u64,
    pub commits: u64,
    pub asked: u64,
    pub kills: u64,
    pub unexplained: u64,
    pub past_a_freeze: u64,
    pub faults: BTreeMap<Kind, u64>,
    pub virtual_micros: u64,
    pub took: Duration,
}

impl Sum {
    pub fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.steps += outcome.tally.steps;
        self.commits += outcome.tally.commits;
        self.asked += outcome.tally.asked;
        self.kills += outcome.kills;
        self.past_a_freeze += outcome.past_a_freeze;
        self.virtual_micros += outcome.virtual_micros;
        for (kind, count) in &outcome.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
        if let Some(breach) = &outcome.breach {
            self.failed.push(outcome.seed);
            self.unexplained += u64::from(breach.checker == "steps");
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64().max(0.001);
        let virtual_hours = self.virtual_micros as f64 / 3_600_000_000.0;
        writeln!(
            f,
            "{} seeds in {seconds:.1} s ({:.1}/s), {virtual_hours:.1} virtual hours, {} steps ({:.0}/s), {} commits",
            self.seeds,
            self.seeds as f64 / seconds,
            self.steps,
            self.steps as f64 / seconds,
            self.commits,
        )?;
        let faults: Vec<_> =
            self.faults.iter().map(|(kind, count)| format!("{} {count}", kind.word())).collect();
        writeln!(f, "faults: {}", faults.join(", "))?;
        if self.past_a_freeze > 0 {
            writeln!(
                f,
                "called after a look by a process that had stood still in between: {}",
                self.past_a_freeze
            )?;
        }
        if !self.failed.is_empty() {
            writeln!(f, "failed: {:?}", self.failed)?;
        }
        write!(
            f,
            "ledger: {} steps, {} kills, {} duplicates, {} in attention, {} unexplained",
            self.steps, self.kills, self.unexplained, self.asked, self.unexplained
        )
    }
}
