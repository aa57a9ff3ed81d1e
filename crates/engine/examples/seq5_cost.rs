//! What an instance of five steps in sequence costs, without anything around it (rule W38): `seq5_cost MODE N` does the
//! work of one part of the path for N instances. `scripts/instructions.sh` counts its instructions.
//!
//! | mode | what is done for each instance |
//! | --- | --- |
//! | `decide` | the coordinator's decisions: a start with a direct grant, five folded reports |
//! | `encode` | the messages of both sides, written |
//! | `decode` | the same, read |
//! | `replay` | the worker's part: entries derived from five acknowledgements and fed, then the whole journal once more |
//!
//! Ids are fixed and nothing reads a clock, so two runs differ by the seeds of hash maps alone. Instances come ten to a
//! batch and message, as under load. Keys are given, not derived: SHA-256 takes another path on each kind of processor.

use std::{collections::HashMap, hint::black_box};

use everstep_engine::{
    Answer, Batch, Effect, Head, Input, What, Writes,
    batch::{Loaded, Rules, Verdict},
    place::Room,
    replay::{Asked, Fed, Next, Replay},
    report::{Reporter, entries},
    rows::{IdMap, Lease, Rows},
    start::{NameKey, Start},
};
use everstep_protocol::{
    Attempt, BuildName, Call, CallKind, CallName, CoordinatorId, Epoch, Fingerprint, Incarnation, InstanceId,
    InstanceUid, Millis, Namespace, Payload, Policy, Position, SessionId, StepKey, Timestamp, WorkflowName,
    journal::{End, Entry},
    message::{
        Ack, AttemptEnd, AttemptOutcome, CoordinatorItem, FromWorker, Grant, Report, Taken, Then, ToWorker,
        WorkerItem,
    },
    wire::{decode, encode},
};
use uuid::Uuid;

const STEPS: u32 = 5;
/// Instances in one batch, and items in one message.
const TOGETHER: u64 = 10;
const SESSION: SessionId = SessionId(Uuid::from_u128(0x51));
const COORDINATOR: CoordinatorId = CoordinatorId(Uuid::from_u128(0xc0));
const NOW: Timestamp = Timestamp(1_764_000_000_000_000);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(mode), Some(Ok(count)), None) =
        (arguments.next(), arguments.next().map(|text| text.parse::<u64>()), arguments.next())
    else {
        return usage();
    };
    let work = Work::new();
    for _ in 0..count.div_ceil(TOGETHER) {
        match mode.as_str() {
            "decide" => drop(black_box(work.decide())),
            "encode" => work.encode(),
            "decode" => work.decode(),
            "replay" => work.replay(),
            _ => return usage(),
        }
    }
}

fn usage() {
    eprintln!("usage: seq5_cost decide|encode|decode|replay N");
    std::process::exit(2);
}

/// The same ten instances in every round, and everything that is given to the part that is counted.
struct Work {
    build: BuildName,
    rules: Rules,
    room: Room,
    starts: Vec<Input>,
    reports: Vec<Vec<Input>>,
    from_worker: Vec<FromWorker>,
    to_worker: Vec<ToWorker>,
    from_worker_bytes: Vec<Vec<u8>>,
    to_worker_bytes: Vec<Vec<u8>>,
    journals: Vec<Vec<Entry>>,
}

/// What the decisions of a round came to: what was sent, and the journal of each instance.
struct Decided {
    sent: Vec<Vec<CoordinatorItem>>,
    journals: Vec<Vec<Entry>>,
}

impl Work {
    fn new() -> Self {
        let workflow = WorkflowName::new("seq5").expect("a valid name");
        let build = BuildName::new("b1").expect("a valid name");
        let mut room = Room::default();
        room.serve(SESSION, &Namespace::default(), std::slice::from_ref(&workflow));
        room.credit(SESSION, 1_000);
        let items: Vec<Vec<Report>> =
            (1..=STEPS).map(|step| (0..TOGETHER).map(|n| report(n, step)).collect()).collect();
        let input = |report: &Report| Input::On {
            instance: report.instance,
            what: What::Report { session: SESSION, build: build.clone(), report: report.clone() },
        };
        let reports = items.iter().map(|reports| reports.iter().map(input).collect()).collect();
        let message = |reports: &Vec<Report>| FromWorker {
            incarnation: Incarnation(1),
            session: SESSION,
            credits: Vec::new(),
            items: reports.iter().cloned().map(WorkerItem::Report).collect(),
        };
        let mut work = Self {
            rules: Rules::default(),
            room,
            starts: (0..TOGETHER).map(|n| start(n, &workflow)).collect(),
            reports,
            from_worker: items.iter().map(message).collect(),
            to_worker: Vec::new(),
            from_worker_bytes: Vec::new(),
            to_worker_bytes: Vec::new(),
            journals: Vec::new(),
            build,
        };
        let decided = work.decide();
        let message = |items| ToWorker {
            incarnation: Incarnation(1),
            coordinator: COORDINATOR,
            session: SESSION,
            items,
        };
        work.to_worker = decided.sent.into_iter().map(message).collect();
        work.journals = decided.journals;
        work.from_worker_bytes = work.from_worker.iter().map(|message| encode(message).to_vec()).collect();
        work.to_worker_bytes = work.to_worker.iter().map(|message| encode(message).to_vec()).collect();
        work
    }

    /// One batch of starts, five of reports; the store is only what is carried from one to the next.
    fn decide(&self) -> Decided {
        let mut room = self.room.clone();
        let mut store = Store::default();
        let mut sent = Vec::new();
        for inputs in std::iter::once(&self.starts).chain(&self.reports) {
            let mut batch = Batch::new(store.load(), self.rules.clone());
            for input in inputs {
                assert_accepted(&batch.apply(input, &mut room));
            }
            let (writes, effects, _) = batch.finish(&mut room);
            sent.push(effects.into_iter().map(|effect| item(effect, &writes)).collect());
            store.write(writes);
        }
        assert!(store.heads.values().all(|head| head.status.is_ended()), "every instance ends");
        let mut journals: Vec<_> = store.journals.into_iter().collect();
        journals.sort_by_key(|(uid, _)| *uid);
        Decided { sent, journals: journals.into_iter().map(|(_, journal)| journal).collect() }
    }

    fn encode(&self) {
        for message in &self.from_worker {
            black_box(encode(message));
        }
        for message in &self.to_worker {
            black_box(encode(message));
        }
    }

    fn decode(&self) {
        for bytes in &self.from_worker_bytes {
            black_box(decode::<FromWorker>("report", bytes).expect("our own bytes"));
        }
        for bytes in &self.to_worker_bytes {
            black_box(decode::<ToWorker>("inbox", bytes).expect("our own bytes"));
        }
    }

    /// As in the worker: the body makes its next call when it is shown an outcome, at first before its acknowledgement, and
    /// in the second life of the instance when the entry is fed.
    fn replay(&self) {
        let reporter = Reporter { session: SESSION, build: self.build.clone() };
        for (index, journal) in (0..).zip(&self.journals) {
            let mut folded = Replay::new(self.build.clone(), Position(1));
            folded.made(1, call(1), Asked::Step(fingerprint()));
            for (step, (message, acks)) in (1..).zip(self.from_worker.iter().zip(&self.to_worker[1..])) {
                let next = folded.next_steps().expect("the journal fits");
                assert!(matches!(&next[..], [Next::Start(_)]), "one step may run");
                folded.fold(step);
                if step < u64::from(STEPS) {
                    folded.made(step + 1, call(step as u32 + 1), Asked::Step(fingerprint()));
                }
                let (WorkerItem::Report(report), CoordinatorItem::Ack(ack)) =
                    (&message.items[index], &acks.items[index])
                else {
                    panic!("reports are acknowledged");
                };
                for entry in entries(report, ack.taken, ack.after, ack.at, &reporter, &self.rules.limits) {
                    assert_eq!(folded.feed(&entry).expect("the journal fits"), Fed::Nothing);
                }
            }
            black_box(&folded);
            self.replay_journal(journal);
        }
    }

    fn replay_journal(&self, journal: &[Entry]) {
        let mut replay = Replay::new(self.build.clone(), Position(1));
        replay.made(1, call(1), Asked::Step(fingerprint()));
        let mut outcomes = 0;
        for entry in &journal[1..] {
            if let Fed::Resolve { number, result } = replay.feed(entry).expect("the journal fits") {
                black_box(result).expect("every step succeeded");
                outcomes += 1;
                if number < u64::from(STEPS) {
                    replay.made(number + 1, call(number as u32 + 1), Asked::Step(fingerprint()));
                }
            }
        }
        assert_eq!((outcomes, replay.next_steps().expect("the journal fits").len()), (STEPS, 0));
    }
}

/// What the decisions need to find again. No more than a map: its cost is not the engine's.
#[derive(Default)]
struct Store {
    heads: IdMap<InstanceUid, Head>,
    rows: Rows,
    journals: HashMap<InstanceUid, Vec<Entry>>,
}

impl Store {
    fn load(&self) -> Loaded {
        Loaded { now: NOW, heads: self.heads.clone(), rows: self.rows.clone(), ..Loaded::default() }
    }

    fn write(&mut self, writes: Writes) {
        for head in writes.created.into_iter().chain(writes.heads) {
            self.heads.insert(head.uid, head);
        }
        for row in writes.journal {
            self.journals.entry(row.uid).or_default().push(row.entry);
        }
        for (uid, subject) in writes.lease_deletes {
            self.rows.leases.remove(&(uid, subject));
        }
        for (uid, subject, Lease { session, epoch }) in writes.leases {
            self.rows.leases.insert((uid, subject), Lease { session, epoch });
        }
    }
}

fn assert_accepted(verdict: &Verdict) {
    let accepted = match verdict {
        Verdict::Started(decided) => decided.answer == Answer::Created,
        Verdict::Decided(answer) => *answer == Answer::Taken,
        Verdict::Held | Verdict::Broken => false,
    };
    assert!(accepted, "what is counted is the usual path: {verdict:?}");
}

/// What the coordinator sends for an effect.
fn item(effect: Effect, writes: &Writes) -> CoordinatorItem {
    match effect {
        Effect::Item(_, item) => {
            let whole = matches!(item, CoordinatorItem::Ack(Ack { taken: Taken::Whole, .. }));
            assert!(whole, "every report is taken whole: {item:?}");
            item
        }
        Effect::Grant { head, direct, .. } => {
            let rows = writes.journal.iter().filter(|row| row.uid == head.uid);
            CoordinatorItem::Grant(Grant {
                instance: head.uid,
                epoch: head.epoch,
                namespace: head.namespace,
                workflow: head.workflow,
                id: head.id,
                run: head.run,
                generation: head.generation,
                now: NOW,
                reports: head.reports,
                last: head.position,
                entries: rows.map(|row| row.entry.clone()).collect(),
                direct,
                restored_at: None,
            })
        }
        Effect::StepGrant(..)
        | Effect::Push { .. }
        | Effect::Offer { .. }
        | Effect::Reply(..)
        | Effect::OfferStep { .. } => {
            panic!("not on this path: {effect:?}")
        }
    }
}

fn start(n: u64, workflow: &WorkflowName) -> Input {
    let name = NameKey {
        namespace: Namespace::default(),
        workflow: workflow.clone(),
        id: InstanceId::new(format!("seq5-{n}")).expect("a valid id"),
    };
    let input = Payload::from_text(r#"{"order":"seq5"}"#).expect("valid JSON");
    let fingerprint = fingerprint();
    let (seed, retention) = ([7; 32], everstep_engine::retention::Own::default());
    Input::Start(Box::new(Start {
        uid: uid(n),
        name,
        input,
        fingerprint,
        seed,
        retention,
        pin: None,
        strict: false,
        attributes: Vec::new(),
        message: None,
        letter: None,
        hook: None,
        trace: None,
    }))
}

/// The report of a step, folded with the call of the next one or the end (rule W36).
fn report(n: u64, step: u32) -> Report {
    let output = Payload::from_text(&format!("\"{}\"", "x".repeat(98))).expect("valid JSON");
    let then = if step == STEPS { Then::End(End::Complete(output.clone())) } else { Then::Continue };
    let seen = Position(u64::from(step));
    let end = AttemptEnd {
        call: call(step),
        attempt: Attempt::FIRST,
        called_after: seen,
        ran_for: Millis(5),
        key: "5e".repeat(32).parse::<StepKey>().expect("64 digits"),
        input: fingerprint(),
        policy: Policy::default(),
        outcome: AttemptOutcome::Succeeded(output),
        progress: None,
        marks: everstep_protocol::journal::Marks::default(),
        reference: None,
    };
    Report {
        instance: uid(n),
        epoch: Epoch(1),
        number: u64::from(step),
        seen,
        results: vec![end],
        opened: Vec::new(),
        closed: Vec::new(),
        then,
        folded: true,
        cached: false,
        state: None,
        attributes: Vec::new(),
        compensated: None,
        ledger: Vec::new(),
    }
}

fn call(step: u32) -> Call {
    const NAMES: [&str; STEPS as usize] = ["one", "two", "three", "four", "five"];
    let name = CallName::new(NAMES[step as usize - 1]).expect("a valid name");
    Call { kind: CallKind::Step, name, count: 1 }
}

fn fingerprint() -> Fingerprint {
    Fingerprint::from_bytes([0xf1; 32])
}

fn uid(n: u64) -> InstanceUid {
    InstanceUid(Uuid::from_u128(0x0198_f2c4_5b7e_7d10_9a3f_0c1d_2e3f_4a00 + u128::from(n)))
}
