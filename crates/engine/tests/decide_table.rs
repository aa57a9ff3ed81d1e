//! Proves the table in the docs of `decide`: every pair of state and input has the outcome written there. A new input breaks
//! the build of `word`, and a row that is missing fails. Not: the details of an outcome; see the other decide tests.

mod support;

use everstep_engine::{
    What,
    hook::SentPayload,
    letter::{Address, Caller, Letter, NewLetter, Said},
};
use everstep_protocol::{
    Call, CallKind, Epoch, HookId, Millis, Pin, Policy, Position, Run,
    journal::{Awaiting, End, Outcome},
    message::{OpenWait, Then},
};
use support::*;

/// The states of the table's columns. The sender is S1, which held the lease of epoch 1 and holds the remote step "img".
const STATES: [&str; 7] =
    ["held by the sender", "held by another", "ready", "waiting", "paused", "parked", "ended"];

/// Instance 1 in a state, with a sleep that is due and a remote step that S1 runs, as far as the state allows.
fn instance(state: &str) -> Store {
    let mut store = Store::held();
    store.report(|report| {
        let img = OpenWait::Remote(remote(Policy::default()));
        report.opened = vec![
            open(&sleep("s"), OpenWait::Sleep(Millis(9))),
            open(&step("img"), img),
            awaits(&event("paid", 1), &["paid"], 1_000),
            open(&other_call(), OpenWait::Instance(other("o"))),
            open(&call(CallKind::Hook, "h", 1), OpenWait::Hook(registration("t"))),
            open(&call(CallKind::Payload, "h", 1), OpenWait::Payload(awaiting())),
        ];
    });
    store
        .tables
        .mailbox
        .insert(LETTER, NewLetter { to: Address::Instance(uid(1)), caller: caller(), said: answer() });
    store.tell(What::StepClaim { session: S1, call: step("img").hash() });
    match state {
        "held by the sender" => {}
        "ready" | "held by another" => {
            store.tell(What::GiveBack { session: S1, epoch: Epoch(1) });
        }
        "waiting" | "paused" => drop(store.report(|report| report.then = Then::Suspend)),
        "parked" => drop(store.report(|report| report.then = Then::Park(parked()))),
        "ended" => drop(store.report(|report| report.then = Then::End(End::Complete(json("1"))))),
        other => panic!("{other}"),
    }
    if state == "held by another" {
        store.tell(What::Claim { session: S2, have: None });
    }
    if state == "paused" {
        store.tell(What::Pause { operation: "before".to_owned() });
    }
    store.pass(9);
    assert!(state.starts_with(store.state()));
    store
}

/// The letter that is there for instance 1: what came of its call to another one.
const LETTER: u64 = 50;

/// The hook that instance 1 created.
fn awaiting() -> Awaiting {
    let hook = HookId { run: Run(1), position: Position(6) };
    Awaiting { hook, token: "t".parse().expect("a token") }
}

fn other_call() -> Call {
    call(CallKind::Instance, "fulfil/o", 1)
}

fn caller() -> Caller {
    Caller { uid: uid(1), run: Run(1), call: other_call().hash() }
}

fn answer() -> Said {
    Said::Returned { outcome: Outcome::Succeeded(json("1")), over: true }
}

/// The row of an input. No wildcard: a new input has to be given a row.
fn word(what: &What) -> &'static str {
    match what {
        What::Claim { .. } => "claim",
        What::Report { .. } => "report",
        What::GiveBack { .. } => "give back",
        What::Due { .. } => "due",
        What::LeaseEnded { .. } => "lease ended",
        What::StepClaim { .. } => "step claim",
        What::StepReport { .. } => "step report",
        What::StepLeaseEnded { .. } => "step lease ended",
        What::Event(_) => "event",
        What::Payload(_) => "payload of a hook",
        What::Letter(_) => "letter: an answer",
        What::Terminate { .. } => "terminate",
        What::Abandon { .. } => "abandon",
        What::Unwritable { .. } => "unwritable",
        What::Retry { .. } => "retry",
        What::Rekey { .. } => "rekey",
        What::Pause { .. } => "pause",
        What::Resume { .. } => "resume",
        What::Cancel { .. } => "cancel",
        What::Rollback { .. } => "rollback",
        What::Overdue => "overdue",
        What::Restart { .. } => "restart",
        What::Delete { .. } => "delete",
        What::Expire => "expire",
        What::Resolve { .. } => "resolve",
        What::Pin { .. } => "pin",
        What::Breach(_) => "breach",
    }
}

/// How many inputs `word` knows.
const INPUTS: usize = 27;

/// What comes of it: entries written, messages sent, the state afterwards.
fn outcome(state: &str, what: &What) -> String {
    let mut store = instance(state);
    let before = store.state();
    let out = store.tell(what.clone());
    let after = store.state();
    let mut words = out.entries();
    words.extend(out.sent());
    if after != before {
        words.push("->");
        words.push(after);
    }
    if words.is_empty() {
        if out.writes.is_empty() { "nothing".to_owned() } else { "noted".to_owned() }
    } else {
        words.join(" ")
    }
}

/// The row of an event.
const EVENT: [&str; 7] = [
    "delivered push",
    "delivered push",
    "delivered",
    "delivered offer -> ready",
    "delivered",
    "delivered",
    "nothing",
];

/// The row of what a hook is resumed with.
const PAYLOAD: [&str; 7] = [
    "received push",
    "received push",
    "received",
    "received offer -> ready",
    "received",
    "received",
    "nothing",
];

/// The row of a rollback.
const ROLLBACK: [&str; 7] = [
    "rollback push step fence",
    "rollback push step fence",
    "rollback step fence",
    "rollback offer step fence -> ready",
    "rollback offer step fence -> ready",
    "rollback offer step fence -> ready",
    "noted",
];

/// One row: the outcome in each state, in the order of `STATES`.
fn row(what: &What) -> [&'static str; 7] {
    match word(what) {
        "claim" => [
            "grant",
            "not granted",
            "grant -> held",
            "not granted",
            "not granted",
            "not granted",
            "not granted",
        ],
        "report" => ["attempted ack", "fence", "fence", "fence", "fence", "fence", "fence"],
        "give back" => ["offer -> ready", "nothing", "nothing", "nothing", "nothing", "nothing", "nothing"],
        "due" => ["fired push", "fired push", "fired", "fired offer -> ready", "nothing", "fired", "nothing"],
        "lease ended" => {
            ["lost offer -> ready", "nothing", "nothing", "nothing", "nothing", "nothing", "nothing"]
        }
        "step claim" => {
            ["step grant", "step grant", "step grant", "step grant", "step grant", "step grant", "step fence"]
        }
        "step report" => [
            "attempted step ack push",
            "attempted step ack push",
            "attempted step ack",
            "attempted step ack offer -> ready",
            "attempted step ack",
            "attempted step ack",
            "step fence",
        ],
        "step lease ended" => [
            "attempted push",
            "attempted push",
            "attempted",
            "attempted",
            "attempted",
            "attempted",
            "nothing",
        ],
        "event" => EVENT,
        "payload of a hook" => PAYLOAD,
        "letter: an answer" => [
            "returned push",
            "returned push",
            "returned",
            "returned offer -> ready",
            "returned",
            "returned",
            "noted",
        ],
        "terminate" => [
            "ended fence step fence -> ended",
            "ended fence step fence -> ended",
            "ended step fence -> ended",
            "ended step fence -> ended",
            "ended step fence -> ended",
            "ended step fence -> ended",
            "noted",
        ],
        // Only a parked instance is abandoned.
        "abandon" => ["noted", "noted", "noted", "noted", "noted", "ended step fence -> ended", "noted"],
        "unwritable" => [
            "parked fence -> parked",
            "parked fence -> parked",
            "parked -> parked",
            "parked -> parked",
            "parked -> parked",
            "nothing",
            "nothing",
        ],
        "retry" => ["noted", "noted", "noted", "noted", "noted", "retried offer -> ready", "noted"],
        "pause" => ["pause", "pause", "-> paused", "-> paused", "noted", "noted", "noted"],
        "resume" => ["noted", "noted", "noted", "noted", "offer -> ready", "noted", "noted"],
        "rollback" => ROLLBACK,
        "cancel" => [
            "cancelled push step fence",
            "cancelled push step fence",
            "cancelled step fence",
            "cancelled offer step fence -> ready",
            "cancelled offer step fence -> ready",
            "cancelled step fence",
            "noted",
        ],
        // Nothing is wrong with any of them; see decide_mend.rs for those with which something is.
        "overdue" | "expire" | "breach" => ["nothing"; 7],
        "restart" => [
            "started fence offer step fence -> ready",
            "started fence offer step fence -> ready",
            "started offer step fence",
            "started offer step fence -> ready",
            "started offer step fence -> ready",
            "started offer step fence -> ready",
            "started offer -> ready",
        ],
        // The queue of that build has no session, so that nothing is offered.
        // None of them asks anything; see decide_ledger.rs for those that do.
        "pin" | "resolve" | "rekey" => ["noted"; 7],
        "delete" => ["noted", "noted", "noted", "noted", "noted", "noted", "-> gone"],
        other => panic!("no row for {other}"),
    }
}

fn inputs() -> Vec<What> {
    let mut late = report(uid(1), 1, 2, 8);
    late.results = vec![end(&step("a"), 1, ok())];
    let operation = || "o".to_owned();
    vec![
        What::Claim { session: S1, have: None },
        reported(S1, late),
        What::GiveBack { session: S1, epoch: Epoch(1) },
        What::Due { call: sleep("s").hash() },
        lease_ended(S1, true),
        What::StepClaim { session: S1, call: step("img").hash() },
        step_reported(S1, &step("img"), 1, ok()),
        step_ended(S1, &step("img"), true),
        What::Event(sent("e", "paid", 1)),
        What::Payload(SentPayload {
            token: awaiting().token,
            hook: awaiting().hook,
            app_id: String::new(),
            id: "r".to_owned(),
            payload: json("1"),
            fingerprint: fingerprint(1),
        }),
        What::Letter(Letter { number: LETTER, caller: caller(), said: answer() }),
        What::Terminate { operation: operation(), reason: None },
        What::Abandon { operation: operation(), reason: None },
        What::Unwritable { message: operation() },
        What::Retry { operation: operation() },
        What::Rekey {
            operation: operation(),
            rekeying: Box::new(everstep_engine::decide::Rekeying {
                question: everstep_protocol::journal::QuestionId { run: Run(1), position: Position(1) },
                choice: everstep_engine::decide::Unparking::Retry,
                by: None,
                why: None,
            }),
        },
        What::Pause { operation: operation() },
        What::Resume { operation: operation() },
        What::Cancel { operation: operation(), reason: None, within: Millis(1), rollback: false },
        What::Rollback { operation: operation(), reason: None },
        What::Overdue,
        What::Breach(everstep_engine::breach::Breach::StepUnoffered(step("img").hash())),
        What::Restart { operation: operation(), prepared: None },
        What::Delete { operation: operation(), terminate: false },
        What::Expire,
        What::Resolve {
            operation: operation(),
            resolution: Box::new(everstep_engine::decide::Resolution {
                question: "1.2".parse().expect("an id"),
                call: Some(step("a").hash()),
                choice: everstep_protocol::journal::Choice::Again,
                by: None,
                why: None,
            }),
        },
        What::Pin { operation: operation(), pin: Some(Pin::Build("b-2".parse().expect("a name"))) },
    ]
}

#[test]
fn every_pair_of_state_and_input_has_its_outcome() {
    let mut wrong = Vec::new();
    for what in inputs() {
        for (state, expected) in STATES.iter().zip(row(&what)) {
            let outcome = outcome(state, &what);
            if outcome != expected {
                wrong.push(format!("{} when {state}: expected {expected:?}, came {outcome:?}", word(&what)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_input_has_its_row() {
    let words: std::collections::BTreeSet<_> = inputs().iter().map(word).collect();
    assert_eq!(words.len(), INPUTS);
}

#[test]
fn every_pair_twice_in_one_batch_keeps_the_invariants() {
    for first in inputs() {
        for second in inputs() {
            for state in STATES {
                let mut store = instance(state);
                store.batch(&[on(uid(1), first.clone()), on(uid(1), second.clone())]);
            }
        }
    }
}
