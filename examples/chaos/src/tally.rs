//! What came of a run: the table by kind of fault, what is wrong, and the last line.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    check::{ELSEWHERE_WITHIN, Found},
    fault::{Fault, Kind},
};

/// Of what is wrong so many are shown.
const SHOWN: usize = 5;
/// The share of the undisturbed throughput that is left at least.
const LEFT: f64 = 0.5;

/// The faults of one kind.
#[derive(Debug, Default)]
struct Row {
    fired: u32,
    without_effect: u32,
    lasted: Vec<Duration>,
    healed: Vec<Duration>,
    stuck: usize,
}

/// The whole run.
#[derive(Debug)]
pub(crate) struct Tally {
    rows: BTreeMap<Kind, Row>,
    /// Instances a second, undisturbed and disturbed.
    pub(crate) throughput: (f64, f64),
    /// What went wrong on the way.
    pub(crate) breaches: Vec<String>,
    /// How often each kind must have been there.
    pub(crate) least: u32,
    /// Starts that were in a broker that has lost everything, and were sent again.
    pub(crate) sent_again: u64,
}

impl Tally {
    /// One of these kinds.
    pub(crate) fn of(kinds: &[Kind], least: u32) -> Self {
        let rows = kinds.iter().map(|kind| (*kind, Row::default())).collect();
        Self { rows, throughput: (0.0, 0.0), breaches: Vec::new(), least, sent_again: 0 }
    }

    /// One fault more.
    pub(crate) fn add(&mut self, fault: &Fault) {
        let row = self.rows.entry(fault.kind).or_default();
        if fault.took_effect {
            row.fired += 1;
        } else {
            row.without_effect += 1;
        }
        row.lasted.push(fault.lasted);
        row.healed.extend(&fault.healing.times);
        row.stuck += fault.healing.stuck.len();
        for stuck in fault.healing.stuck.iter().take(SHOWN) {
            self.breaches.push(format!("{stuck} did not go on after {}", fault.kind));
        }
    }

    /// The table.
    pub(crate) fn table(&self) -> String {
        let head = ["fault", "fired", "lasted ms", "hit", "heal p50 ms", "p99 ms", "max ms"];
        let lines = self.rows.iter().map(|(kind, row)| {
            let ms = |times: &[Duration], share| at(times, share).map_or("-".to_owned(), |ms| ms.to_string());
            [
                kind.to_string(),
                row.fired.to_string(),
                ms(&row.lasted, 0.5),
                (row.healed.len() + row.stuck).to_string(),
                ms(&row.healed, 0.5),
                ms(&row.healed, 0.99),
                ms(&row.healed, 1.0),
            ]
        });
        let mut text = String::new();
        for cells in std::iter::once(head.map(str::to_owned)).chain(lines) {
            let [fault, rest @ ..] = cells;
            text.push_str(&format_args!("{fault:<18}").to_string());
            text.extend(rest.iter().map(|cell| format!("{cell:>13}")));
            text.push('\n');
        }
        text
    }

    /// Everything that is wrong.
    pub(crate) fn wrong(&self, found: &Found) -> Vec<String> {
        let mut wrong = self.breaches.clone();
        for (kind, row) in &self.rows {
            if row.fired < self.least {
                let without = row.without_effect;
                wrong.push(format!(
                    "{kind} was there {} times, which is less than {} ({without} more took no effect): give it more --minutes",
                    row.fired, self.least
                ));
            }
            let slowest = at(&row.healed, 0.99).unwrap_or(0);
            if kind.is_kill() && u128::from(slowest) > ELSEWHERE_WITHIN.as_millis() {
                wrong.push(format!("after {kind} work went on elsewhere in {slowest} ms (p99) only"));
            }
        }
        let (calm, rough) = self.throughput;
        if rough < calm * LEFT {
            wrong.push(format!("the throughput fell from {calm:.1} to {rough:.1} instances a second"));
        }
        for list in [&found.lost, &found.doubled, &found.unsound] {
            wrong.extend(list.iter().take(SHOWN).cloned());
        }
        wrong
    }

    /// The last line.
    pub(crate) fn line(&self, found: &Found) -> String {
        let faults: u32 = self.rows.values().map(|row| row.fired).sum();
        let all: Vec<Duration> = self.rows.values().flat_map(|row| row.healed.iter().copied()).collect();
        let heal = [0.5, 0.99, 1.0].map(|share| at(&all, share).unwrap_or(0).to_string()).join("/");
        format!(
            "chaos: {} steps, {faults} faults, {} lost, {} doubled, heal p50/p99/max {heal} ms",
            found.steps,
            found.lost.len(),
            found.doubled.len()
        )
    }
}

/// The time within which this share of all lies, in milliseconds.
fn at(times: &[Duration], share: f64) -> Option<u64> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).map(|time| time.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    //! Pure: what a run must have been to be a good one.
    use super::*;
    use crate::heal::Healing;

    fn fault(kind: Kind, healed_ms: &[u64]) -> Fault {
        let times = healed_ms.iter().copied().map(Duration::from_millis).collect();
        let healing = Healing { times, stuck: Vec::new() };
        Fault { kind, took_effect: true, lasted: Duration::from_millis(1), healing }
    }

    fn tally(faults: &[Fault]) -> Tally {
        let mut tally = Tally::of(&[Kind::KillWorker], 1);
        for fault in faults {
            tally.add(fault);
        }
        tally.throughput = (10.0, 9.0);
        tally
    }

    #[test]
    fn a_good_run_has_nothing_wrong_and_says_what_it_measured() {
        let found = Found { steps: 12, ..Found::default() };
        let tally = tally(&[fault(Kind::KillWorker, &[100, 200, 300])]);
        assert_eq!(tally.wrong(&found), Vec::<String>::new());
        assert_eq!(
            tally.line(&found),
            "chaos: 12 steps, 1 faults, 0 lost, 0 doubled, heal p50/p99/max 200/300/300 ms"
        );
        assert!(tally.table().contains("kill-worker"), "{}", tally.table());
    }

    #[test]
    fn whatever_is_wrong_is_said() {
        let found = Found { lost: vec!["c-1.2 never came".to_owned()], ..Found::default() };
        let mut tally = tally(&[fault(Kind::KillWorker, &[5_200])]);
        tally.least = 2;
        tally.throughput.1 = 4.9;
        let stuck = Healing { times: Vec::new(), stuck: vec![uuid::Uuid::nil()] };
        tally.add(&Fault { healing: stuck, took_effect: false, ..fault(Kind::KillWorker, &[]) });
        let wrong = tally.wrong(&found).join("\n");
        for part in ["less than 2 (1 more", "5200 ms", "10.0 to 4.9", "never came", "did not go on"] {
            assert!(wrong.contains(part), "{part}: {wrong}");
        }
    }
}
