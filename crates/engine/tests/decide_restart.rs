//! Proves what a restart keeps and what it begins anew (rule P31). Not: that the same keys come of it; see the worker's rules.

mod support;

use everstep_engine::{Answer, Effect, StatusWord, What, decide::Prepared, keep::keep};
use everstep_protocol::{
    Call, CallKind, Epoch, Generation, HookId, Millis, Namespace, Policy, Position, Run, Timestamp, Token,
    hook::Registration,
    journal::{
        Attempted, Awaiting, Cancelled, Child, Closed, Entry, Fact, HookOutcome, Lost, Opened, Other,
        Outcome, Received, Registered, Returned, Started, TakenOver, Wait,
    },
    message::{AttemptOutcome, OpenWait, Then},
};
use support::*;

fn restart(id: &str) -> What {
    What::Restart { operation: id.to_owned(), prepared: None }
}

#[test]
fn p31_a_restart_is_a_new_run_with_the_same_beginning() {
    let ends: [fn(&mut Store); 5] = [
        |_| {},
        |store| {
            drop(store.report(|report| {
                report.then = Then::End(everstep_protocol::journal::End::Complete(json("1")));
            }));
        },
        |store| drop(store.report(|report| report.then = Then::Park(parked()))),
        |store| drop(store.tell(What::Terminate { operation: "t".to_owned(), reason: None })),
        |store| {
            store.tell(What::Pause { operation: "p".to_owned() });
            store.tell(What::GiveBack { session: S1, epoch: Epoch(1) });
        },
    ];
    for end_it in ends {
        let mut store = Store::held();
        store.report(|report| {
            report.results = vec![end(&step("a"), 1, ok())];
            report.opened = vec![
                open(&sleep("s"), OpenWait::Sleep(Millis(9))),
                open(&step("img"), OpenWait::Remote(remote(Policy::default()))),
            ];
        });
        store.tell(What::StepClaim { session: S2, call: step("img").hash() });
        end_it(&mut store);
        let first = store.tables.journal[&uid(1)][0].fact.clone();
        let earlier = store.tables.journal[&uid(1)].clone();
        let epoch = store.head().epoch;
        let out = store.tell(restart("r"));
        assert_eq!((out.answer(), store.status()), (Answer::Done, StatusWord::Queued));
        let head = store.head();
        assert_eq!((head.run, head.generation, head.position), (Run(2), Generation(1), Position(1)));
        assert_eq!((head.epoch, head.steps, head.waits), (epoch, 0, 0), "the epoch only grows (W2)");
        assert_eq!(store.tables.journal[&uid(1)][0].fact, first, "input and seed are the same");
        assert_eq!(store.tables.earlier[&(uid(1), Run(1))], earlier, "the earlier journal stays");
        let again = store.tell(restart("r"));
        assert_eq!((again.answer(), store.head().run), (Answer::Done, Run(2)), "repeated, nothing is done");
        let late = store.tell(step_reported(S2, &step("img"), 1, ok()));
        assert!(late.entries().is_empty(), "what ran for the earlier run is over");
        store.tell(What::Claim { session: S2, have: None });
        assert_eq!(store.head().epoch, epoch.next());
    }
}

#[test]
fn p31_the_holder_of_the_earlier_run_is_fenced() {
    let mut store = Store::held();
    let (session, late) = store.next_report(|report| report.results = vec![end(&step("a"), 1, ok())]);
    assert_eq!(store.tell(restart("r")).sent(), ["fence", "offer"]);
    assert_eq!(store.tell(reported(session, late)).answer(), Answer::Fenced);
}

#[test]
fn p31_a_restart_that_was_prepared_from_what_has_changed_is_refused() {
    let mut store = Store::held();
    store.report(|report| report.results = vec![end(&step("a"), 1, ok())]);
    let entries = store.tables.journal[&uid(1)].clone();
    let kept = keep(&entries, &step("a")).expect("it is known");
    let prepared = |from, seen| What::Restart {
        operation: "r".to_owned(),
        prepared: Some(Prepared { from: Run(from), seen: Position(seen), entries: kept.clone() }),
    };
    for (from, seen) in [(1, 1), (0, 2), (2, 2)] {
        let out = store.tell(prepared(from, seen));
        assert_eq!((out.answer(), out.writes.is_empty()), (Answer::Moved, true), "{from} {seen}");
    }
    assert_eq!(store.tell(prepared(1, 2)).answer(), Answer::Done);
    assert_eq!((store.head().run, store.head().position, store.head().steps), (Run(2), Position(1), 0));
    assert_eq!(
        store.tell(prepared(0, 9)).answer(),
        Answer::Done,
        "an operation that is known has its answer"
    );
}

/// A long journal that a restart begins with goes out in parts, like any other.
#[test]
fn w26_a_long_journal_of_a_restart_is_not_in_its_grant() {
    for (bytes, known) in [(10, 3), (everstep_protocol::limits::PART_BYTES, 0)] {
        let mut store = Store::held();
        let output = AttemptOutcome::Succeeded(json(&format!("\"{}\"", "x".repeat(bytes))));
        store.report(|report| report.results = vec![end(&step("a"), 1, output)]);
        store.report(|report| report.results = vec![end(&step("b"), 1, ok())]);
        let entries = store.tables.journal[&uid(1)].clone();
        store.room.serve(S2, &Namespace::default(), &[workflow()]);
        store.room.credit(S2, 1);
        let prepared = Prepared { from: Run(1), seen: store.head().position, entries };
        let out = store.tell(What::Restart { operation: "r".to_owned(), prepared: Some(prepared) });
        let granted = out.effects.iter().find_map(|effect| match effect {
            Effect::Grant { entries, .. } => Some(entries.len()),
            _ => None,
        });
        assert_eq!((out.answer(), granted), (Answer::Done, Some(known)), "{bytes} bytes");
    }
}

/// The restart ends the child, so the new run starts one of its own, and does anew what it did knowing of it.
#[test]
fn p31_a_child_that_was_only_started_is_started_anew() {
    let (a, b, c) = (step("a"), step("b"), step("c"));
    for (detached, kept) in
        [(false, vec!["started", "a@1"]), (true, vec!["started", "a@1", "open k@1", "returned", "b@4"])]
    {
        let wait = Wait::Child(Child { only_started: true, detached, ..child("k") });
        let call = child_call("k");
        let opened = Opened { call: call.clone(), called_after: Position(1), wait, build: None };
        let facts = vec![
            started(),
            attempted(&a, 1, 1, true),
            Fact::Opened(opened),
            Fact::Returned(Returned { call, outcome: Outcome::Succeeded(json("1")) }),
            attempted(&b, 1, 4, true),
            attempted(&c, 1, 5, true),
        ];
        assert_eq!(shown(&keep(&journal(facts), &c).unwrap()), kept, "detached {detached}");
    }
}

/// A hook is created anew by the new run, and so begin the awaits of its payloads, though they were made before it was known.
#[test]
fn h08_p31_what_waited_for_a_hook_that_is_created_anew_is_not_kept() {
    let hook = HookId { run: Run(1), position: Position(2) };
    let facts = vec![
        started(),
        created("t"),
        Fact::Registered(Registered {
            call: hook_call("t"),
            outcome: HookOutcome::Owned { hook, from: None },
        }),
        awaited(hook, 1),
        received(hook),
        attempted(&step("s"), 1, 5, true),
    ];
    assert_eq!(shown(&keep(&journal(facts), &step("s")).unwrap()), ["started"]);
}

/// The start hook stays, so what the body did with it is kept: that it let go of it, and why an await of it has failed.
#[test]
fn h21_h60_p31_what_became_of_a_start_hook_is_kept() {
    let token = || "t".parse::<Token>().unwrap();
    let closed = Closed { call: hook_call("t"), after: Position(2), hook: Some(token()) };
    let let_go = vec![
        started(),
        attempted(&step("a"), 1, 1, true),
        Fact::Closed(closed),
        attempted(&step("b"), 1, 3, true),
        attempted(&step("s"), 1, 4, true),
    ];
    let kept = keep(&journal(let_go), &step("s")).unwrap();
    assert_eq!(shown(&kept), ["started", "a@1", "closed", "b@3"]);
    assert!(matches!(&kept[2].fact, Fact::Closed(closed) if closed.after == Position(2)));

    let other = Other { workflow: workflow(), id: "two".parse().unwrap() };
    let by_hook = HookId { run: Run(1), position: Position(2) };
    let by_force = vec![
        started(),
        awaited(HookId::START, 1),
        Fact::TakenOver(TakenOver { hook: HookId::START, by: other, by_hook }),
        Fact::Fired { call: payload_call() },
        attempted(&step("a"), 1, 4, true),
        attempted(&step("s"), 1, 5, true),
    ];
    let kept = keep(&journal(by_force), &step("s")).unwrap();
    assert_eq!(shown(&kept), ["started", "open p@1", "taken_over", "fired p", "a@4"]);
}

fn hook_call(name: &str) -> Call {
    Call { kind: CallKind::Hook, ..step(name) }
}

fn payload_call() -> Call {
    Call { kind: CallKind::Payload, ..step("p") }
}

fn created(token: &str) -> Fact {
    let asked = Registration::new(token.parse().expect("a token"));
    Fact::Opened(Opened {
        call: hook_call(token),
        called_after: Position(1),
        wait: Wait::Hook(asked),
        build: None,
    })
}

fn awaited(hook: HookId, after: u64) -> Fact {
    let wait = Wait::Payload(Awaiting { hook, token: "t".parse().expect("a token") });
    Fact::Opened(Opened { call: payload_call(), called_after: Position(after), wait, build: None })
}

fn received(hook: HookId) -> Fact {
    Fact::Received(Received {
        call: payload_call(),
        hook,
        sequence: 1,
        id: "r-1".to_owned(),
        received_at: NOW,
        payload: json("1"),
    })
}

fn started() -> Fact {
    Fact::Started(Started {
        input: json("1"),
        seed: [7; 32],
        generation: Generation(1),
        attributes: Vec::new(),
        hook: None,
        trace: None,
    })
}

fn attempted(call: &Call, attempt: u32, after: u64, done: bool) -> Fact {
    let outcome = if done {
        Outcome::Succeeded(json("1"))
    } else {
        Outcome::Failed { failure: error("no"), retry_at: Some(Timestamp(9)) }
    };
    let end = end(call, attempt, ok());
    Fact::Attempted(Attempted {
        call: call.clone(),
        attempt: end.attempt,
        called_after: Position(after),
        started_at: NOW,
        key: end.key,
        input: end.input,
        policy: end.policy,
        build: build(),
        session: S1,
        outcome,
        progress: None,
        marks: everstep_protocol::journal::Marks::default(),
        reference: None,
    })
}

fn slept(call: &Call, after: u64) -> [Fact; 2] {
    let wait = Wait::Sleep { until: NOW };
    let opened = Opened { call: call.clone(), called_after: Position(after), wait, build: None };
    [Fact::Opened(opened), Fact::Fired { call: call.clone() }]
}

fn journal(facts: Vec<Fact>) -> Vec<Entry> {
    (1..)
        .zip(facts)
        .map(|(position, fact)| Entry { position: Position(position), at: Timestamp(position as i64), fact })
        .collect()
}

/// What is kept, as `call after position` and the word of what is about no call.
fn shown(entries: &[Entry]) -> Vec<String> {
    let dense: Vec<u64> = (1..=entries.len() as u64).collect();
    assert_eq!(entries.iter().map(|entry| entry.position.0).collect::<Vec<_>>(), dense);
    entries
        .iter()
        .map(|entry| match &entry.fact {
            Fact::Attempted(attempted) => format!("{}@{}", attempted.call.name, attempted.called_after.0),
            Fact::Opened(opened) => format!("open {}@{}", opened.call.name, opened.called_after.0),
            Fact::Fired { call } => format!("fired {}", call.name),
            other => other.word().to_owned(),
        })
        .collect()
}

#[test]
fn p31_a_restart_from_a_step_keeps_what_was_called_before_its_outcome_was_known() {
    let (a, b, c, d) = (step("a"), step("b"), step("c"), step("d"));
    // a; then b and c together, b ends first and d follows it; c ends last.
    let [open_s, fired_s] = slept(&sleep("s"), 2);
    let facts = vec![
        started(),
        attempted(&a, 1, 1, true),
        open_s,
        attempted(&b, 1, 2, false),
        fired_s,
        attempted(&b, 2, 2, true),
        attempted(&d, 1, 6, true),
        attempted(&c, 1, 2, true),
    ];
    let entries = journal(facts);
    let of = |call: &Call| keep(&entries, call).map(|kept| shown(&kept));
    assert_eq!(
        of(&b).unwrap(),
        ["started", "a@1", "open s@2", "fired s", "c@2"],
        "the sibling c stays, d follows from b"
    );
    assert_eq!(of(&a).unwrap(), ["started"], "everything followed from a");
    assert_eq!(of(&c).unwrap(), ["started", "a@1", "open s@2", "b@2", "fired s", "b@2", "d@6"]);
    assert_eq!(of(&d).unwrap(), ["started", "a@1", "open s@2", "b@2", "fired s", "b@2", "c@2"]);
    assert_eq!(of(&step("e")), None, "a step that was not called is unknown");
    assert_eq!(of(&call(everstep_protocol::CallKind::Step, "b", 2)), None);
    assert_eq!(of(&step("s")), None, "a sleep of that name is no step");
    assert_eq!(of(&sleep("s")).unwrap(), ["started", "a@1", "b@2", "b@2", "c@2"]);
}

#[test]
fn p31_positions_that_calls_name_move_with_the_entries() {
    let (a, b, c) = (step("a"), step("b"), step("c"));
    let facts = vec![
        started(),
        attempted(&b, 1, 1, false),
        attempted(&a, 1, 1, true),
        attempted(&c, 1, 3, true),
        attempted(&b, 2, 1, true),
    ];
    let kept = keep(&journal(facts), &b).unwrap();
    assert_eq!(shown(&kept), ["started", "a@1", "c@2"], "c was called after a, which is entry 2 now");
    assert_eq!(kept[2].at, Timestamp(4), "times stay");
}

#[test]
fn p31_a_step_without_an_outcome_keeps_all_that_is_known() {
    let (a, b) = (step("a"), step("b"));
    let facts = vec![started(), attempted(&a, 1, 1, true), attempted(&b, 1, 2, false)];
    assert_eq!(shown(&keep(&journal(facts), &b).unwrap()), ["started", "a@1"]);
}

#[test]
fn p31_what_followed_a_cancel_is_not_kept_and_losses_charge_nobody() {
    let (a, b, c) = (step("a"), step("b"), step("clean up"));
    let facts = vec![
        started(),
        Fact::Lost(Lost { slots: 4, counts: true, session: S1, progress: Vec::new() }),
        attempted(&a, 1, 1, true),
        Fact::Cancelled(Cancelled { reason: None, until: NOW, rollback: false }),
        attempted(&c, 1, 4, true),
        attempted(&b, 1, 3, true),
    ];
    let kept = keep(&journal(facts), &b).unwrap();
    assert_eq!(shown(&kept), ["started", "lost", "a@1"]);
    assert!(matches!(&kept[1].fact, Fact::Lost(lost) if !lost.counts));
}
