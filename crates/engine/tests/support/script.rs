//! A scripted body: what it calls and drops at first, and after each outcome that it is handed.

use std::collections::HashMap;

use everstep_engine::replay::{Asked, Fed, Next, Replay};
use everstep_protocol::{
    Attempt, BuildName, Call, CallKind, Failure, HookId, Payload, Policy, Position, Timestamp,
    journal::{
        Attempted, Closed, Delivered, Entry, Fact, HookOutcome, Lost, Opened, Outcome, Parked, Patched, Wait,
    },
};

use super::{NOW, S1, build, call, error, fingerprint, json, key, remote};

#[derive(Clone, Copy, Debug)]
pub enum Act {
    Step(&'static str, u8),
    Remote(&'static str, u8),
    Sleep(&'static str),
    Event(&'static str),
    Patch(&'static str),
    /// A hook whose token is its name.
    Hook(&'static str),
    /// The next payload of this hook.
    Payload(&'static str, HookId),
    /// An answer to the request with this id.
    Reply(&'static str),
    Drop(u64),
    LetGo(u64),
}

/// What the body does at each of its turns.
pub type Script = Vec<Vec<Act>>;

/// A replay with its body.
#[derive(Debug)]
pub struct Run {
    pub replay: Replay,
    pub calls: Vec<(Call, Asked)>,
    pub got: Vec<(u64, Result<Payload, Failure>)>,
    script: Script,
    counts: HashMap<(CallKind, &'static str), u32>,
}

impl Run {
    pub fn new(script: Script) -> Self {
        Self::of_build(script, build())
    }

    pub fn of_build(script: Script, build: BuildName) -> Self {
        let replay = Replay::new(build, Position(1));
        let mut run = Self { replay, calls: Vec::new(), got: Vec::new(), script, counts: HashMap::new() };
        run.turn();
        run
    }

    fn turn(&mut self) {
        for act in self.script.get(self.got.len()).cloned().unwrap_or_default() {
            match act {
                Act::Step(name, input) => self.made(CallKind::Step, name, Asked::Step(fingerprint(input))),
                Act::Remote(name, input) => {
                    self.made(CallKind::Step, name, Asked::Remote(fingerprint(input)));
                }
                Act::Sleep(name) => self.made(CallKind::Sleep, name, Asked::Sleep),
                Act::Patch(name) => self.made(CallKind::Patch, name, Asked::Patch),
                Act::Event(name) => self.made(CallKind::Event, name, Asked::Event(None)),
                Act::Hook(name) => {
                    self.made(CallKind::Hook, name, Asked::Hook(name.parse().unwrap()));
                }
                Act::Payload(name, hook) => self.made(CallKind::Payload, name, Asked::Payload(hook)),
                Act::Reply(id) => self.made(CallKind::Reply, "h", Asked::Reply(id.to_owned())),
                Act::LetGo(number) => {
                    let call = self.call(number).0.clone();
                    let token = call.name.as_str().parse().unwrap();
                    self.replay.let_go(number, call, token, self.replay.position());
                }
                Act::Drop(number) => self.replay.dropped(number, self.replay.position()),
            }
        }
    }

    fn made(&mut self, kind: CallKind, name: &'static str, asked: Asked) {
        let count = self.counts.entry((kind, name)).or_default();
        *count += 1;
        let call = call(kind, name, *count);
        self.calls.push((call.clone(), asked.clone()));
        self.replay.made(self.calls.len() as u64, call, asked);
    }

    pub fn call(&self, number: u64) -> &(Call, Asked) {
        &self.calls[number as usize - 1]
    }

    pub fn feed(&mut self, entry: &Entry) -> Result<(), Parked> {
        loop {
            match self.replay.feed(entry)? {
                // What the body does with a cancel is the tests' own business.
                Fed::Nothing | Fed::Cancel { .. } | Fed::Rollback => return Ok(()),
                Fed::Resolve { number, result } => {
                    self.got.push((number, result));
                    self.turn();
                    return Ok(());
                }
                Fed::Deliver { number, event } => {
                    self.got.push((number, Ok(event.payload)));
                    self.turn();
                    return Ok(());
                }
                Fed::Registered { number, outcome } => {
                    let word = match outcome {
                        HookOutcome::Owned { hook, .. } => Ok(json(&format!("\"owned {hook}\""))),
                        HookOutcome::Conflict { owner } => Ok(json(&format!("\"conflict {}\"", owner.id))),
                        HookOutcome::Refused(failure) => Err(failure),
                    };
                    self.got.push((number, word));
                    self.turn();
                    return Ok(());
                }
                Fed::LetGo { number } => {
                    self.got.push((number, Ok(json("\"free\""))));
                    self.turn();
                    return Ok(());
                }
                Fed::Unpatched { number } => {
                    self.got.push((number, Ok(json("false"))));
                    self.turn();
                }
            }
        }
    }

    pub fn feed_all(&mut self, journal: &[Entry]) -> Result<(), Parked> {
        journal.iter().try_for_each(|entry| self.feed(entry))
    }

    /// What may run, each as a word: "start 1 attempt 2".
    pub fn next(&mut self) -> Vec<String> {
        let word = |next: &Next| match next {
            Next::Start(start) => format!("start {} attempt {}", start.number, start.attempt),
            Next::Charge(start) => format!("charge {} attempt {}", start.number, start.attempt),
            Next::Open { number } => format!("open {number}"),
            Next::Reuse(start, output) => format!("reuse {} {}", start.number, output.as_str()),
            Next::Intend(start) => format!("intend {} attempt {}", start.number, start.attempt),
            Next::Unknown(start, epoch) => {
                format!("unknown {} attempt {} of lease {epoch}", start.number, start.attempt)
            }
        };
        self.replay.next_steps().unwrap().iter().map(word).collect()
    }
}

/// The entries of these facts, from position 2.
pub fn journal(facts: Vec<Fact>) -> Vec<Entry> {
    let entry = |(at, fact)| Entry { position: Position(2 + at as u64), at: NOW, fact };
    facts.into_iter().enumerate().map(entry).collect()
}

pub fn attempted(call: &Call, attempt: u32, input: u8, outcome: Outcome) -> Fact {
    Fact::Attempted(Attempted {
        call: call.clone(),
        attempt: Attempt(attempt),
        called_after: Position(1),
        started_at: Timestamp(NOW.0 - 1000 * (10 - i64::from(attempt))),
        key: key(attempt as u8),
        input: fingerprint(input),
        policy: Policy::default(),
        build: build(),
        session: S1,
        outcome,
        progress: None,
        marks: everstep_protocol::journal::Marks::default(),
        reference: None,
    })
}

pub fn succeeded(call: &Call, attempt: u32) -> Fact {
    attempted(call, attempt, 1, Outcome::Succeeded(json(&attempt.to_string())))
}

/// What the pool reports bears its own build, and the input of `opened_remote`.
pub fn by_the_pool(fact: Fact) -> Fact {
    match fact {
        Fact::Attempted(attempted) => {
            let build = BuildName::new("pool").unwrap();
            Fact::Attempted(Attempted { build, input: fingerprint(2), ..attempted })
        }
        other => other,
    }
}

/// A failure of which the next attempt is due so many microseconds later; none: final.
pub fn failed_until(call: &Call, attempt: u32, later: Option<i64>) -> Fact {
    let retry_at = later.map(|micros| Timestamp(NOW.0 + micros));
    attempted(call, attempt, 1, Outcome::Failed { failure: error("no"), retry_at })
}

pub fn opened_sleep(call: &Call, later: i64) -> Fact {
    let wait = Wait::Sleep { until: Timestamp(NOW.0 + later) };
    Fact::Opened(Opened { call: call.clone(), called_after: Position(1), wait, build: None })
}

pub fn opened_remote(call: &Call) -> Fact {
    let wait = Wait::Remote(remote(Policy::default()));
    Fact::Opened(Opened { call: call.clone(), called_after: Position(1), wait, build: Some(build()) })
}

pub fn opened_event(call: &Call) -> Fact {
    let types = vec![everstep_protocol::EventType::new(call.name.as_str()).unwrap()];
    let wait = Wait::Event { types, key: None, until: Timestamp(NOW.0 + 1_000_000) };
    Fact::Opened(Opened { call: call.clone(), called_after: Position(1), wait, build: None })
}

pub fn delivered(call: &Call, sequence: u64) -> Fact {
    Fact::Delivered(Delivered {
        call: call.clone(),
        kind: everstep_protocol::EventType::new(call.name.as_str()).unwrap(),
        sequence,
        id: format!("e{sequence}"),
        key: None,
        received_at: NOW,
        payload: json(&sequence.to_string()),
    })
}

pub fn closed(call: &Call, after: u64) -> Fact {
    Fact::Closed(Closed { call: call.clone(), after: Position(after), hook: None })
}

pub fn patched(call: &Call) -> Fact {
    Fact::Patched(Patched { call: call.clone(), called_after: Position(1) })
}

pub fn fired(call: &Call) -> Fact {
    Fact::Fired { call: call.clone() }
}

pub fn lost(slots: u32, counts: bool) -> Fact {
    Fact::Lost(Lost { slots, counts, session: S1, progress: Vec::new() })
}
