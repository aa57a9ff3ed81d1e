//! Proves what an auditor reads of a journal (rule L14). Not: how entries are found; see the stores.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use everstep_engine::{
    What,
    audit::{Audit, Line, Settled},
    decide::Resolution,
};
use everstep_protocol::{
    Attempt, Call, Class, Epoch, Failure, FailureKind, Millis, Policy, Position, Reference, Run, Timestamp,
    journal::{Choice, Entry, Fact, Marks, QuestionId, Rekeyed},
    message::{AttemptEnd, AttemptOutcome, Intent, LedgerItem},
};
use support::*;

fn of(class: Class) -> Policy {
    Policy { class, ..Policy::default() }
}

fn ended(call: &Call, attempt: u32, class: Class, outcome: AttemptOutcome) -> AttemptEnd {
    AttemptEnd { policy: of(class), ..end(call, attempt, outcome) }
}

fn announce(call: &Call, attempt: u32, class: Class) -> LedgerItem {
    LedgerItem::Intend(Intent {
        call: call.clone(),
        attempt: Attempt(attempt),
        called_after: Position(1),
        key: key(1),
        input: fingerprint(1),
        policy: of(class),
        marks: Marks::default(),
    })
}

fn failed(retry_in: Option<u64>) -> AttemptOutcome {
    let failure = Failure::new(FailureKind::Error, "away");
    AttemptOutcome::Failed { failure, retry_in: retry_in.map(Millis) }
}

fn lines(store: &Store) -> Vec<Line> {
    let mut audit = Audit::new(Run(1));
    store.tables.journal[&uid(1)].iter().for_each(|entry| audit.read(entry));
    audit.lines().collect()
}

fn said(line: &Line) -> (&str, u32, Settled) {
    (line.call.name.as_str(), line.calls, line.outcome)
}

#[test]
fn l14_a_line_counts_calls_and_says_what_came_of_them() {
    let mut store = Store::held();
    let reference = Reference::of("ch_1");
    store.report(|report| {
        report.results = vec![
            end(&step("a"), 1, failed(Some(0))),
            AttemptEnd { reference: reference.clone(), ..end(&step("a"), 2, ok()) },
            end(&step("b"), 1, failed(None)),
            AttemptEnd { marks: Marks { reused: true, ..Marks::default() }, ..end(&step("c"), 1, ok()) },
            end(&step("d"), 1, failed(Some(60_000))),
        ];
    });
    let lines = lines(&store);
    assert_eq!(
        lines.iter().map(said).collect::<Vec<_>>(),
        [
            ("a", 2, Settled::Succeeded),
            ("b", 1, Settled::Failed),
            ("c", 0, Settled::Reused),
            ("d", 1, Settled::Open)
        ]
    );
    assert_eq!((&lines[0].reference, &lines[1].reference), (&reference, &None));
    assert_eq!((lines[0].class, lines[0].position, lines[0].run), (Class::Keyed, Position(2), Run(1)));
}

#[test]
fn l14_what_was_announced_is_counted_once_and_not_if_it_found_the_effect_or_never_began() {
    let lookup = Class::Lookup { visibility_lag: Millis::ZERO };
    let mut store = Store::held();
    let (a, b) = (step("a"), step("b"));
    store.report(|report| report.ledger = vec![announce(&a, 1, lookup), announce(&b, 1, lookup)]);
    let calls =
        |store: &Store| lines(store).iter().map(|line| (line.calls, line.outcome)).collect::<Vec<_>>();
    assert_eq!(calls(&store), [(1, Settled::Open), (1, Settled::Open)]);
    store.report(|report| {
        report.results = vec![ended(&a, 1, lookup, failed(Some(0)))];
        report.ledger = vec![LedgerItem::Withdraw(everstep_protocol::journal::Withdrawn {
            call: b.clone(),
            attempt: Attempt(1),
        })];
    });
    assert_eq!(calls(&store), [(1, Settled::Open), (0, Settled::Open)]);
    store.report(|report| report.ledger = vec![announce(&a, 2, lookup), announce(&b, 1, lookup)]);
    store.report(|report| {
        let found = Marks { found: true, ..Marks::default() };
        report.results =
            vec![AttemptEnd { marks: found, ..ended(&a, 2, lookup, ok()) }, ended(&b, 1, lookup, ok())];
    });
    assert_eq!(calls(&store), [(1, Settled::Found), (1, Settled::Succeeded)]);
}

#[test]
fn l14_a_line_says_who_decided_what_and_why() {
    let pay = step("pay");
    let mut store = Store::held();
    store.report(|report| report.ledger = vec![announce(&pay, 1, Class::AtMostOnce)]);
    store.report(|report| {
        let failure = Failure::new(FailureKind::TimedOut, "slow");
        let outcome = AttemptOutcome::Unknown { failure, asks: true, epoch: Epoch(1) };
        report.results = vec![ended(&pay, 1, Class::AtMostOnce, outcome)];
    });
    let line = |store: &Store| lines(store).remove(0);
    assert_eq!((said(&line(&store)), line(&store).decision), (("pay", 1, Settled::Unknown), None));
    for (operation, choice, outcome, word) in [
        ("r1", Choice::Again, Settled::Open, "again"),
        ("r2", Choice::Done(json("1")), Settled::Succeeded, "done"),
    ] {
        let position = lines(&store).remove(0).position.0 + if operation == "r1" { 1 } else { 4 };
        let resolution = Resolution {
            question: QuestionId { run: Run(1), position: Position(position) },
            call: Some(pay.hash()),
            choice,
            by: Some("ann".to_owned()),
            why: Some("the bank said so".to_owned()),
        };
        store.tell(What::Resolve { operation: operation.to_owned(), resolution: Box::new(resolution) });
        let line = line(&store);
        assert_eq!(line.outcome, outcome, "{operation}");
        let decision = line.decision.unwrap();
        assert_eq!((decision.choice, decision.by.as_deref()), (word, Some("ann")));
        assert_eq!(decision.why.as_deref(), Some("the bank said so"));
        if operation == "r1" {
            store.report(|report| report.ledger = vec![announce(&pay, 2, Class::AtMostOnce)]);
            store.report(|report| {
                let failure = Failure::new(FailureKind::TimedOut, "slow");
                let outcome = AttemptOutcome::Unknown { failure, asks: true, epoch: Epoch(1) };
                report.results = vec![ended(&pay, 2, Class::AtMostOnce, outcome)];
            });
            assert_eq!(lines(&store).remove(0).calls, 2);
        }
    }
}

#[test]
fn l14_each_key_of_a_call_has_a_line_of_its_own() {
    let mut store = Store::held();
    let tried =
        |attempt, under: u8, outcome| AttemptEnd { key: key(under), ..end(&step("a"), attempt, outcome) };
    store.report(|report| report.results = vec![tried(1, 1, failed(Some(0)))]);
    let mut journal = store.tables.journal[&uid(1)].clone();
    let mut add = |fact| {
        let position = journal.last().unwrap().position.next();
        journal.push(Entry { position, at: Timestamp(7), fact });
    };
    let (by, why) = (Some("ann".to_owned()), Some("v2".to_owned()));
    add(Fact::Rekeyed(Rekeyed { call: step("a"), input: fingerprint(2), kept: None, by, why }));
    store.report(|report| {
        report.results = vec![tried(2, 1, failed(Some(0))), tried(3, 2, ok())];
    });
    let later = store.tables.journal[&uid(1)].iter().skip(2).map(|entry| entry.fact.clone());
    later.collect::<Vec<_>>().into_iter().for_each(&mut add);
    let mut audit = Audit::new(Run(1));
    for entry in &journal {
        audit.read(entry);
    }
    let lines: Vec<Line> = audit.lines().collect();
    assert_eq!(
        lines.iter().map(said).collect::<Vec<_>>(),
        [("a", 2, Settled::Replaced), ("a", 1, Settled::Succeeded)]
    );
    assert_eq!((lines[0].key, lines[1].key), (key(1), key(2)));
    let decision = lines[0].decision.as_ref().expect("somebody decided");
    assert_eq!(
        (decision.choice, decision.by.as_deref(), decision.at),
        ("new_key", Some("ann"), Timestamp(7))
    );
    assert_eq!(lines[1].decision, None);
}
