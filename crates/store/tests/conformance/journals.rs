//! Journals come back exactly, in order and in parts.

use std::sync::Arc;

use everstep_engine::{Writes, batch::JournalRow, rows::Needs};
use everstep_protocol::{
    Attempt, Call, CallKind, CallName, Class, Failure, FailureKind, Fingerprint, FunctionName, Generation,
    HookId, InstanceUid, Millis, Payload, Policy, Position, Run, SessionId, StepKey, Timestamp, Token,
    hook::{HookRetention, Registration},
    journal::{
        Attempted, Awaiting, Closed, Compensated, Compensating, End, Entry, Fact, HookOutcome, Lost, Opened,
        Other, Outcome, ParkCode, Parked, Patched, Progress, Received, Registered, Rekeyed, Remote, Reusable,
        Rollback, Started, TakenOver, Undone, UndoneEnd, Wait,
    },
    policy::{Backoff, Limit},
};
use everstep_store::{Range, Store};

use super::scene::{Scene, build, failure, key, payload, pool};

async fn write(scene: &Scene, uid: InstanceUid, run: Run, entries: &[Entry]) {
    let journal = entries.iter().map(|entry| JournalRow { uid, run, entry: entry.clone() }).collect();
    scene.write(Needs::default(), Writes { journal, ..Writes::default() }).await.unwrap();
}

fn entries(facts: Vec<Fact>) -> Vec<Entry> {
    let numbered = facts.into_iter().zip(1..);
    numbered
        .map(|(fact, position)| Entry {
            position: Position(position),
            at: Timestamp(-7 + position as i64),
            fact,
        })
        .collect()
}

fn call(kind: CallKind) -> Call {
    Call {
        kind, name: CallName::new("Prüfung №1/3: \"家👩‍👩‍👧\" \u{2028}").unwrap(), count: u32::MAX
    }
}

fn attempted(outcome: Outcome, policy: Policy) -> Fact {
    Fact::Attempted(Attempted {
        call: call(CallKind::Step),
        attempt: Attempt(u32::MAX),
        called_after: Position(u64::MAX),
        started_at: Timestamp(i64::MIN),
        key: key(),
        input: Fingerprint::from_bytes([255; 32]),
        policy,
        build: build(),
        session: SessionId::generate(),
        outcome,
        progress: None,
        marks: everstep_protocol::journal::Marks::default(),
        reference: None,
    })
}

fn rekeyed(kept: Option<StepKey>) -> Fact {
    let input = Fingerprint::from_bytes([9; 32]);
    Fact::Rekeyed(Rekeyed { call: call(CallKind::Step), input, kept, by: Some("\0".to_owned()), why: None })
}

fn opened(kind: CallKind, wait: Wait) -> Fact {
    let build = matches!(wait, Wait::Remote(_)).then(build);
    Fact::Opened(Opened { call: call(kind), called_after: Position(0), wait, build })
}

fn lost(slots: u32, counts: bool, told: &[&str]) -> Fact {
    let progress = told.iter().map(|text| Progress {
        call: call(CallKind::Step).hash(),
        attempt: Attempt(3),
        told: Payload::from_text(text).unwrap(),
    });
    Fact::Lost(Lost { slots, counts, session: SessionId::generate(), progress: progress.collect() })
}

fn of_saga(loud: &Failure, big: &Payload, policy: Policy) -> Vec<Fact> {
    vec![
        Fact::Compensating(Compensating {
            call: call(CallKind::Rollback),
            called_after: Position(3),
            failure: Some(loud.clone()),
            steps: u64::MAX,
        }),
        Fact::Compensated(Compensated {
            steps: vec![Undone { call: call(CallKind::Compensation), end: UndoneEnd::Failed(loud.clone()) }],
            more: 1,
        }),
        Fact::Rollback(Rollback { reason: Some("\0 é".to_owned()) }),
        Fact::Reusable(Reusable {
            call: call(CallKind::Step),
            key: key(),
            input: Fingerprint::from_bytes([255; 32]),
            policy,
            marks: everstep_protocol::journal::Marks {
                compensated: true,
                sensitive: true,
                reused: true,
                found: true,
            },
            output: big.clone(),
        }),
    ]
}

fn started(input: Payload, generation: u32) -> Fact {
    Fact::Started(Started {
        input,
        seed: std::array::from_fn(|i| i as u8 * 8),
        generation: Generation(generation),
        attributes: Vec::new(),
        hook: Some("order:é".parse().unwrap()),
        trace: None,
    })
}

/// What hooks write.
fn of_hooks(loud: &Failure, big: &Payload) -> Vec<Fact> {
    let token: Token = "order:é".parse().unwrap();
    let hook = HookId { run: Run(3), position: Position(u64::MAX) };
    let other = Other { workflow: "orders".parse().unwrap(), id: "o-1".parse().unwrap() };
    let registered = |outcome| Fact::Registered(Registered { call: call(CallKind::Hook), outcome });
    let created = Registration {
        token: token.clone(),
        retention: Some(HookRetention::For(Millis(1))),
        metadata: Some(payload("[1.0]")),
        webhook: None,
        force: true,
        schema: Some(payload(r#"{"type":"object"}"#)),
    };
    vec![
        opened(CallKind::Hook, Wait::Hook(created)),
        opened(CallKind::Payload, Wait::Payload(Awaiting { hook, token: token.clone() })),
        registered(HookOutcome::Owned { hook, from: Some(other.clone()) }),
        registered(HookOutcome::Conflict { owner: other.clone() }),
        registered(HookOutcome::Refused(loud.clone())),
        Fact::Received(Received {
            call: call(CallKind::Payload),
            hook,
            sequence: 7,
            id: "r\u{1}".to_owned(),
            received_at: Timestamp(-1),
            payload: big.clone(),
        }),
        Fact::TakenOver(TakenOver { hook: HookId::START, by: other, by_hook: hook }),
        Fact::Closed(Closed { call: call(CallKind::Hook), after: Position(3), hook: Some(token) }),
    ]
}

pub(crate) async fn every_fact_comes_back_exactly(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let policy = Policy {
        limit: Limit::Unlimited,
        delay: Millis(0),
        backoff: Backoff::Linear,
        timeout: Millis::MAX,
        max_delay: Millis(1),
        max_elapsed: Some(Millis(0)),
        jitter: true,
        class: Class::Lookup { visibility_lag: Millis(7) },
    };
    let texts = [
        r#"{"z":1.0,"a":[1e400000,0.1,-0,12345678901234567890123],"z":"\u0000\ud83d\ude00 é家\\\"\n"}"#,
        r#""""#,
        "null",
        " { \"blanks\" : [ ] } ",
    ];
    let big = Payload::from_trusted(format!("\"{}é\"", "0123456789abcdef".repeat((1 << 20) / 16)));
    let remote = |input: Payload| Remote {
        look: Some("find".parse().unwrap()),
        pool: pool(),
        function: FunctionName::new("resize").unwrap(),
        fingerprint: Fingerprint::of(&input).unwrap(),
        input,
        key: key(),
        policy,
        marks: everstep_protocol::journal::Marks::default(),
        trace: None,
    };
    let loud = Failure {
        name: "\0Loud".to_owned(),
        data: Some(payload(texts[1])),
        permanent: true,
        retry_after: Some(Millis::MAX),
        sensitive: true,
        ..Failure::new(FailureKind::TimedOut, "a\0\u{1}\"é家")
    };
    let mut facts = vec![
        started(big.clone(), 1),
        attempted(Outcome::Failed { failure: loud.clone(), retry_at: Some(Timestamp(i64::MAX)) }, policy),
        attempted(Outcome::Failed { failure: failure(), retry_at: None }, Policy::default()),
        attempted(Outcome::Succeeded(big.clone()), Policy::default()),
        opened(CallKind::Sleep, Wait::Sleep { until: Timestamp(-1) }),
        opened(CallKind::Step, Wait::Remote(remote(payload("[1,2]")))),
        lost(u32::MAX, true, &[]),
        lost(0, false, &[r#""\u0000""#, "[1.10]"]),
        Fact::Patched(Patched { call: call(CallKind::Patch), called_after: Position(3) }),
        Fact::Retried,
        rekeyed(Some(key())),
        rekeyed(None),
        Fact::Ended(End::Complete(big.clone())),
        Fact::Ended(End::Errored(loud.clone())),
        Fact::Ended(End::Terminated { reason: None }),
        Fact::Ended(End::Terminated { reason: Some("\0 é".to_owned()) }),
    ];
    facts.extend(of_saga(&loud, &big, policy));
    facts.extend(of_hooks(&loud, &big));
    for text in texts {
        // What a worker wrote itself is not read again, so some of these need not be valid numbers.
        let text = Payload::from_trusted(text.to_owned());
        facts.push(attempted(Outcome::Succeeded(text.clone()), policy));
        facts.push(started(text, u32::MAX));
    }
    for kind in [
        CallKind::Step,
        CallKind::Sleep,
        CallKind::Event,
        CallKind::Hook,
        CallKind::Child,
        CallKind::Action,
        CallKind::Compensation,
        CallKind::Patch,
        CallKind::Rollback,
    ] {
        facts.push(Fact::Fired { call: call(kind) });
    }
    for code in [
        ParkCode::JournalMismatch,
        ParkCode::BodyPanicked,
        ParkCode::ForeignAwait,
        ParkCode::NothingToWaitFor,
        ParkCode::Poison,
        ParkCode::Broken,
        ParkCode::InputChanged,
        ParkCode::Unreadable,
        ParkCode::CompensationMissing,
    ] {
        facts.push(Fact::Parked(Parked::new(code, format!("\0{}", code.word()))));
    }
    let entries = entries(facts);
    let uid = InstanceUid::generate();
    write(&scene, uid, Run(1), &entries).await;
    let read = scene.journal(uid).await;
    assert_eq!(read.len(), entries.len());
    for (read, written) in read.iter().zip(&entries) {
        assert!(read == written, "position {} came back changed", written.position);
    }
}

fn texts(count: usize, bytes: usize) -> Vec<Entry> {
    let text = Payload::from_trusted(format!("\"{}\"", "x".repeat(bytes)));
    entries((0..count).map(|_| Fact::Ended(End::Complete(text.clone()))).collect())
}

async fn read(scene: &Scene, uid: InstanceUid, after: u64, bytes: usize) -> Vec<u64> {
    let range = Range { uid, run: Run(1), after: Position(after) };
    let journals = scene.store.journal(vec![range], bytes).await.unwrap();
    journals[0].iter().map(|entry| entry.position.0).collect()
}

pub(crate) async fn a_range_ends_at_its_bytes(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let uid = InstanceUid::generate();
    write(&scene, uid, Run(1), &texts(10, 10_000)).await;
    assert_eq!(read(&scene, uid, 0, 0).await, [1]);
    assert_eq!(read(&scene, uid, 0, 5_000).await, [1]);
    assert_eq!(read(&scene, uid, 4, 35_000).await, [5, 6, 7]);
    assert_eq!(read(&scene, uid, 8, 1_000_000).await, [9, 10]);
    assert_eq!(read(&scene, uid, 10, 1_000_000).await, [0; 0]);
    assert_eq!(read(&scene, uid, u64::MAX, 1_000_000).await, [0; 0]);
}

pub(crate) async fn a_range_ends_after_a_thousand(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let uid = InstanceUid::generate();
    write(&scene, uid, Run(1), &texts(1_050, 1)).await;
    assert_eq!(read(&scene, uid, 0, usize::MAX).await, (1..=1_000).collect::<Vec<_>>());
    assert_eq!(read(&scene, uid, 1_000, usize::MAX).await, (1_001..=1_050).collect::<Vec<_>>());
}

pub(crate) async fn ranges_are_answered_in_order(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (one, two, none) = (InstanceUid::generate(), InstanceUid::generate(), InstanceUid::generate());
    write(&scene, two, Run(1), &texts(3, 1)).await;
    write(&scene, one, Run(1), &texts(2, 1)).await;
    write(&scene, one, Run(2), &texts(1, 1)).await;
    let range = |uid, run, after| Range { uid, run: Run(run), after: Position(after) };
    let ranges =
        vec![range(two, 1, 1), range(none, 1, 0), range(one, 2, 0), range(one, 1, 0), range(two, 1, 1)];
    let journals = scene.store.journal(ranges, usize::MAX).await.unwrap();
    let lengths: Vec<usize> = journals.iter().map(Vec::len).collect();
    assert_eq!(lengths, [2, 0, 1, 2, 2]);
    assert_eq!(scene.store.journal(Vec::new(), 1).await.unwrap(), Vec::<Vec<Entry>>::new());
}
