//! Proves that a worker, with its copy of a report and the acknowledgement alone, knows the very entries that were written
//! (rule W1), and the size limit (P4). Not: that it asks for them when the acknowledgement says "before".

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use everstep_engine::{
    Effect, What,
    report::{Reporter, entries, too_large},
};
use everstep_protocol::{
    CallKind, FailureKind, Millis, Payload, Policy, Position, Timestamp,
    journal::{End, Entry, Fact, Outcome},
    limits::Limits,
    message::{Ack, AttemptEnd, AttemptOutcome, CoordinatorItem, Open, OpenWait, Report, Taken, Then},
};
use proptest::prelude::*;
use support::*;

fn reporter() -> Reporter {
    Reporter { session: S1, build: build() }
}

fn results() -> impl Strategy<Value = Vec<AttemptEnd>> {
    let outcome = prop_oneof![
        (0..12usize)
            .prop_map(|length| AttemptOutcome::Succeeded(Payload::encode(&"x".repeat(length)).unwrap())),
        prop::option::of(0..3u64).prop_map(failed),
    ];
    prop::collection::vec(outcome, 0..4).prop_map(|outcomes| {
        let names = ["a", "b", "c", "d"];
        names.iter().zip(outcomes).map(|(name, outcome)| end(&step(name), 1, outcome)).collect()
    })
}

fn opened() -> impl Strategy<Value = Vec<Open>> {
    let wait = prop_oneof![
        (0..3u64).prop_map(|millis| OpenWait::Sleep(Millis(millis))),
        (-1..2i64).prop_map(|micros| OpenWait::SleepUntil(Timestamp(NOW.0 + micros))),
        Just(OpenWait::Remote(remote(Policy::default()))),
        (0..2u64).prop_map(|millis| OpenWait::Event {
            types: vec![kind("paid")],
            key: None,
            timeout: Millis(millis),
        }),
        Just(OpenWait::Patch),
        Just(OpenWait::Child(child("c"))),
        Just(OpenWait::Instance(other("c"))),
        Just(OpenWait::Hook(registration("t"))),
        Just(OpenWait::Payload(awaiting_hook("t"))),
        Just(OpenWait::Reply(reply("t", "1", 200))),
        Just(OpenWait::Rollback { failure: None, steps: 2 }),
    ];
    prop::collection::vec(wait, 0..4).prop_map(|waits| {
        let named = |name: &str, wait: &OpenWait| match wait {
            OpenWait::Remote(_) => step(name),
            OpenWait::Sleep(_) | OpenWait::SleepUntil(_) => sleep(name),
            OpenWait::Event { .. } => event(name, 1),
            OpenWait::Patch => call(CallKind::Patch, name, 1),
            OpenWait::Child(_) => call(CallKind::Child, name, 1),
            OpenWait::Instance(_) => call(CallKind::Instance, name, 1),
            OpenWait::Send(_) => call(CallKind::Send, name, 1),
            OpenWait::Resume(_) => call(CallKind::Resume, name, 1),
            OpenWait::Hook(_) => call(CallKind::Hook, name, 1),
            OpenWait::Payload(_) => call(CallKind::Payload, name, 1),
            OpenWait::Reply(_) => call(CallKind::Reply, name, 1),
            OpenWait::Rollback { .. } => call(CallKind::Rollback, name, 1),
        };
        ["u", "v", "w", "x"].iter().zip(waits).map(|(name, wait)| open(&named(name, &wait), wait)).collect()
    })
}

fn then() -> impl Strategy<Value = Then> {
    prop_oneof![
        Just(Then::Continue),
        Just(Then::Suspend),
        Just(Then::End(End::Complete(json("1")))),
        Just(Then::End(End::Errored(error("x")))),
        Just(Then::Park(parked())),
    ]
}

fn ack(effects: &[Effect]) -> Ack {
    let ack = |effect: &Effect| match effect {
        Effect::Item(S1, CoordinatorItem::Ack(ack)) => Some(*ack),
        _ => None,
    };
    effects.iter().find_map(ack).expect("every report of the holder is acknowledged")
}

/// What events added to the report's own entries.
fn pushed(effects: &[Effect]) -> Vec<Entry> {
    let pushed = |effect: &Effect| match effect {
        Effect::Push { entries, .. } => Some(entries.clone()),
        _ => None,
    };
    effects.iter().filter_map(pushed).flatten().collect()
}

fn entries_differ(end: &AttemptEnd, limits: &Limits) -> bool {
    matches!(&end.outcome, AttemptOutcome::Succeeded(output) if output.len() as u64 > limits.output_bytes)
}

proptest! {
    #[test]
    fn w01_the_worker_knows_what_was_written(
        results in results(), opened in opened(), then in then(), folded: bool, behind: bool, closes: bool,
        events in 0..2u8, number in 1..3u64,
    ) {
        let mut store = Store::held();
        store.rules.limits.output_bytes = 8;
        let first = open(&sleep("first"), OpenWait::Sleep(Millis(1)));
        store.report(|report| report.opened = vec![first, awaits(&event("lost", 1), &["lost"], 9)]);
        store.pass(1);
        let seen = store.head().position;
        if behind {
            store.tell(What::Due { call: sleep("first").hash() });
            store.tell(What::Event(sent("e", "lost", 0)));
        }
        for n in 0..events {
            store.tell(What::Event(sent(&n.to_string(), "paid", 0)));
        }
        let closed = if closes { vec![dropped(&event("lost", 1), seen.0)] } else { Vec::new() };
        let report = Report { results, opened, closed, then, folded, number: number + 1, seen, ..report(uid(1), 1, 0, 0) };
        let out = store.tell(reported(S1, report.clone()));
        let ack = ack(&out.effects);
        prop_assert_eq!(ack.number, report.number);
        if ack.taken == Taken::Before {
            // Its limits are not those of the coordinator, and it would be wrong: it reads all of it.
            prop_assert!(report.results.iter().any(|end| entries_differ(end, &store.rules.limits)));
            let read = ack.after.0 + pushed(&out.effects).len() as u64;
            prop_assert_eq!(read, store.head().position.0);
            return Ok(());
        }
        if ack.taken == Taken::Whole && report.then != Then::Continue {
            // Its lease is over: it derives nothing.
            return Ok(());
        }
        let told = Limits::default();
        let mut derived = entries(&report, ack.taken, ack.after, ack.at, &reporter(), &told);
        derived.extend(pushed(&out.effects));
        let written: Vec<Entry> = out.writes.journal.iter().map(|row| row.entry.clone()).collect();
        prop_assert_eq!(derived, written);
    }
}

fn recorded(bytes: usize, limit: u64) -> Outcome {
    let output = Payload::encode(&"x".repeat(bytes - 2)).unwrap();
    assert_eq!(output.len(), bytes);
    let mut report = report(uid(1), 1, 1, 1);
    report.results = vec![end(&step("a"), 1, AttemptOutcome::Succeeded(output))];
    let limits = Limits { output_bytes: limit, ..Limits::default() };
    let mut entries = entries(&report, Taken::Whole, Position(1), NOW, &reporter(), &limits);
    match entries.remove(0).fact {
        Fact::Attempted(attempted) => attempted.outcome,
        other => panic!("{other:?}"),
    }
}

#[test]
fn p04_the_limit_itself_is_accepted_and_one_byte_more_is_a_permanent_failure() {
    for limit in [2, 100, 1 << 20] {
        assert!(matches!(recorded(limit, limit as u64), Outcome::Succeeded(_)));
        let Outcome::Failed { failure, retry_at: None } = recorded(limit + 1, limit as u64) else { panic!() };
        assert_eq!(failure, too_large(limit as u64 + 1, limit as u64));
        assert!(failure.permanent && failure.kind == FailureKind::TooLarge);
        assert!(failure.message.contains(&format!("{} bytes", limit + 1)), "{failure}");
        assert!(failure.message.contains(&limit.to_string()), "{failure}");
    }
}

#[test]
fn p04_bytes_are_counted_not_characters() {
    let mut report = report(uid(1), 1, 1, 1);
    report.results = vec![end(&step("a"), 1, AttemptOutcome::Succeeded(json("\"é\"")))];
    let limits = Limits { output_bytes: 3, ..Limits::default() };
    let entries = entries(&report, Taken::Whole, Position(1), NOW, &reporter(), &limits);
    assert!(format!("{:?}", entries[0].fact).contains("TooLarge"));
}

#[test]
fn w01_what_was_not_taken_becomes_no_entry() {
    let mut report = report(uid(1), 1, 1, 1);
    report.results = vec![end(&step("a"), 1, ok())];
    report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(0)))];
    report.then = Then::End(End::Complete(json("1")));
    let words = |taken| {
        let entries = entries(&report, taken, Position(4), NOW, &reporter(), &Limits::default());
        assert!(
            entries
                .iter()
                .enumerate()
                .all(|(at, entry)| entry.position.0 == 5 + at as u64 && entry.at == NOW)
        );
        entries.iter().map(|entry| entry.fact.word()).collect::<Vec<_>>()
    };
    assert_eq!(words(Taken::Whole), ["attempted", "opened", "fired", "ended"]);
    assert_eq!(words(Taken::Kept), ["attempted", "opened", "fired"]);
    assert_eq!(words(Taken::Results), ["attempted"]);
    assert!(words(Taken::Before).is_empty());
    assert!(words(Taken::OutOfOrder { expected: 1 }).is_empty());
}
