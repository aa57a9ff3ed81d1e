//! Proves on random bodies and journals that a replay hands over what the live run handed over, in the same order, that
//! replaying twice is equal, that no open call is ever forgotten, and that attempts are numbered without gaps (W11, W32).
//! Journals are written as the coordinator writes them, by a worker that may be lost or stop after any entry.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use everstep_engine::replay::{Asked, Next};
use everstep_protocol::{
    Call, Position, Timestamp,
    journal::{Entry, Fact, Outcome, Wait},
};
use proptest::prelude::*;
use support::{
    script::{Act, Run, Script, attempted, fired, lost, opened_remote, opened_sleep},
    *,
};

fn scripts() -> impl Strategy<Value = Script> {
    let name = prop_oneof![Just("a"), Just("b")];
    let act = prop_oneof![
        4 => name.clone().prop_map(|name| Act::Step(name, 1)),
        1 => name.clone().prop_map(|name| Act::Remote(name, 2)),
        2 => name.prop_map(Act::Sleep),
        1 => (1..8u64).prop_map(Act::Drop),
    ];
    prop::collection::vec(prop::collection::vec(act, 0..4), 1..8)
}

/// One worker after the other, and the journal that they write.
struct World {
    script: Script,
    journal: Vec<Entry>,
    run: Run,
    told: Vec<Next>,
}

impl World {
    fn new(script: Script) -> Self {
        Self { run: Run::new(script.clone()), script, journal: Vec::new(), told: Vec::new() }
    }

    fn append(&mut self, fact: Fact) {
        let entry = Entry { position: Position(2 + self.journal.len() as u64), at: NOW, fact };
        self.journal.push(entry);
    }

    fn record(&mut self, fact: Fact) {
        self.append(fact);
        self.run.feed(self.journal.last().unwrap()).unwrap();
    }

    /// Calls whose wait is recorded and not over, and whether they are remote.
    fn waits(&self) -> BTreeMap<Call, bool> {
        let mut waits = BTreeMap::new();
        for entry in &self.journal {
            match &entry.fact {
                Fact::Opened(opened) => {
                    waits.insert(opened.call.clone(), matches!(opened.wait, Wait::Remote(_)));
                }
                Fact::Fired { call } => {
                    waits.remove(call);
                }
                Fact::Attempted(attempted) => match attempted.retry_at() {
                    None => {
                        waits.remove(&attempted.call);
                    }
                    Some(at) if at > entry.at => {
                        waits.entry(attempted.call.clone()).or_insert(false);
                    }
                    Some(_) => {}
                },
                _ => {}
            }
        }
        waits
    }

    fn recorded(&self, call: &Call) -> u32 {
        let is_its =
            |entry: &&Entry| matches!(&entry.fact, Fact::Attempted(attempted) if attempted.call == *call);
        self.journal.iter().filter(is_its).count() as u32
    }

    /// A new worker begins from the first entry.
    fn restart(&mut self) {
        let mut run = Run::new(self.script.clone());
        run.feed_all(&self.journal).unwrap();
        assert_eq!(run.got, self.run.got, "replay gives what was given live");
        assert_eq!(run.calls, self.run.calls);
        let mut twice = Run::new(self.script.clone());
        twice.feed_all(&self.journal).unwrap();
        assert_eq!(run.got, twice.got);
        assert_eq!(run.next(), twice.next(), "replay twice is equal");
        let mut run = Run::new(self.script.clone());
        run.feed_all(&self.journal).unwrap();
        self.run = run;
        self.told.clear();
    }

    /// Takes what replay says may run; no open call is left without a way to go on.
    fn ask(&mut self) {
        self.told.extend(self.run.replay.next_steps().unwrap());
        self.told.retain(|next| self.run.replay.is_open(number(next)));
        let told: BTreeSet<_> = self.told.iter().map(number).collect();
        let waits = self.waits();
        for (index, (call, _)) in self.run.calls.iter().enumerate() {
            let number = index as u64 + 1;
            if self.run.replay.is_open(number) {
                let is_told = told.contains(&number);
                assert!(is_told != waits.contains_key(call), "{call}: told {is_told}, {:#?}", self.journal);
            }
        }
        let mut next = BTreeMap::new();
        for told in &self.told {
            let (Next::Start(start) | Next::Charge(start) | Next::Intend(start)) = told else { continue };
            let call = &self.run.call(start.number).0;
            let due = next.entry(start.number).or_insert(self.recorded(call) + 1);
            assert_eq!(start.attempt.0, *due, "attempts have no gaps");
            *due += 1;
        }
    }

    fn step(&mut self, what: u8, which: u8, how: u8) {
        self.ask();
        match what {
            0..=5 if !self.told.is_empty() => self.go_on(usize::from(which) % self.told.len(), how),
            6 | 7 => {
                let waits: Vec<_> = self.waits().into_iter().collect();
                if let Some((call, is_remote)) = waits.get(usize::from(which) % waits.len().max(1)).cloned() {
                    let attempt = self.recorded(&call) + 1;
                    self.record(if is_remote {
                        attempted(&call, attempt, 1, outcome(how))
                    } else {
                        fired(&call)
                    });
                }
            }
            8 => {
                self.append(lost(u32::from(which % 3), !how.is_multiple_of(4)));
                self.restart();
            }
            9 => self.restart(),
            _ => {}
        }
    }

    fn go_on(&mut self, index: usize, how: u8) {
        let number = number(&self.told[index]);
        // Charges of one call are reported in order.
        let first = self.told.iter().position(|told| self::number(told) == number).unwrap();
        let told = self.told.remove(first);
        let (call, asked) = self.run.call(number).clone();
        match told {
            Next::Start(start) => self.record(attempted(&call, start.attempt.0, 1, outcome(how))),
            Next::Reuse(start, output) => {
                self.record(attempted(&call, start.attempt.0, 1, Outcome::Succeeded(output)));
            }
            Next::Charge(start) => {
                let is_last = !self.told.iter().any(|told| self::number(told) == number);
                let outcome = if is_last {
                    outcome(how)
                } else {
                    Outcome::Failed { failure: everstep_engine::replay::lost_failure(), retry_at: Some(NOW) }
                };
                self.record(attempted(&call, start.attempt.0, 1, outcome));
            }
            Next::Open { .. } if asked == Asked::Sleep => {
                self.record(opened_sleep(&call, i64::from(how % 2)));
                if how.is_multiple_of(2) {
                    self.record(fired(&call));
                }
            }
            Next::Open { .. } => self.record(opened_remote(&call)),
            Next::Intend(_) | Next::Unknown(..) => unreachable!("no step here has a class"),
        }
    }
}

fn number(next: &Next) -> u64 {
    match next {
        Next::Start(start)
        | Next::Charge(start)
        | Next::Reuse(start, _)
        | Next::Intend(start)
        | Next::Unknown(start, _) => start.number,
        Next::Open { number } => *number,
    }
}

fn outcome(how: u8) -> Outcome {
    let failed = |later: Option<i64>| Outcome::Failed {
        failure: error("no"),
        retry_at: later.map(|micros| Timestamp(NOW.0 + micros)),
    };
    match how % 6 {
        0 | 1 => Outcome::Succeeded(json(&how.to_string())),
        2 => failed(None),
        3 => failed(Some(0)),
        _ => failed(Some(9)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn p07_replay_gives_what_was_given_live(
        script in scripts(),
        steps in prop::collection::vec((0..10u8, any::<u8>(), any::<u8>()), 1..60),
    ) {
        let mut world = World::new(script);
        for (what, which, how) in steps {
            world.step(what, which, how);
        }
        world.restart();
        world.ask();
    }
}
