//! Proves how hooks are fed to a body (rules H37, H41 to H44, H52, H60 to H62), on journals written by hand. Not: who gets a token,
//! nor what the body sees of it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use everstep_protocol::{
    Call, CallKind, HookId, Position, Run as RunNumber,
    hook::{HOOK_DISPOSED, Registration},
    journal::{
        Awaiting, Closed, Fact, HookOutcome, Opened, Other, ParkCode, Received, Registered, TakenOver, Wait,
    },
};
use support::{
    script::{Act::*, *},
    *,
};

const HOOK: HookId = HookId { run: RunNumber(1), position: Position(2) };

fn hook(token: &str) -> Call {
    call(CallKind::Hook, token, 1)
}

fn payload(count: u32) -> Call {
    call(CallKind::Payload, "h", count)
}

fn opened(call: &Call, wait: Wait) -> Fact {
    Fact::Opened(Opened { call: call.clone(), called_after: Position(1), wait, build: None })
}

fn created(token: &str) -> Fact {
    opened(&hook(token), Wait::Hook(Registration { force: true, ..registration(token) }))
}

fn awaited(count: u32) -> Fact {
    opened(&payload(count), Wait::Payload(Awaiting { hook: HOOK, token: "h".parse().unwrap() }))
}

fn registered(token: &str, outcome: HookOutcome) -> Fact {
    Fact::Registered(Registered { call: hook(token), outcome })
}

fn owned() -> Fact {
    registered("h", HookOutcome::Owned { hook: HOOK, from: None })
}

fn other() -> Other {
    Other { workflow: "orders".parse().unwrap(), id: "o-9".parse().unwrap() }
}

fn received(count: u32, n: u64) -> Fact {
    Fact::Received(Received {
        call: payload(count),
        hook: HOOK,
        sequence: n,
        id: format!("r{n}"),
        received_at: NOW,
        payload: json(&n.to_string()),
    })
}

fn taken() -> Fact {
    Fact::TakenOver(TakenOver { hook: HOOK, by: other(), by_hook: HookId::START })
}

fn let_go(token: &str) -> Fact {
    Fact::Closed(Closed { call: hook(token), after: Position(9), hook: Some(token.parse().unwrap()) })
}

/// What the calls came to, by number, in order.
fn fed(script: Script, facts: Vec<Fact>) -> Vec<(u64, String)> {
    let mut run = Run::new(script);
    run.feed_all(&journal(facts)).unwrap();
    let word = |result: &Result<everstep_protocol::Payload, everstep_protocol::Failure>| match result {
        Ok(payload) => payload.as_str().trim_matches('"').to_owned(),
        Err(failure) => failure.name.clone(),
    };
    run.got.iter().map(|(number, result)| (*number, word(result))).collect()
}

fn words(got: &[(u64, String)]) -> Vec<(u64, &str)> {
    got.iter().map(|(number, word)| (*number, word.as_str())).collect()
}

#[test]
fn h41_a_hook_is_registered_and_its_payloads_come_in_the_order_of_the_journal() {
    let script = vec![vec![Hook("h")], vec![Payload("h", HOOK)], vec![Payload("h", HOOK)]];
    let facts = vec![created("h"), owned(), awaited(1), received(1, 7), awaited(2), received(2, 8)];
    assert_eq!(words(&fed(script, facts)), [(1, "owned 1.2"), (2, "7"), (3, "8")]);
}

#[test]
fn h37_a_conflict_is_an_outcome_of_its_own_and_leaves_nothing_to_close() {
    let mut run = Run::new(vec![vec![Hook("h")]]);
    let facts = vec![created("h"), registered("h", HookOutcome::Conflict { owner: other() })];
    run.feed_all(&journal(facts)).unwrap();
    assert_eq!(run.got, [(1, Ok(json("\"conflict o-9\"")))]);
    assert!(run.replay.next_closed().is_empty() && !run.replay.has_waits());
}

#[test]
fn h43_a_payload_of_the_loser_of_a_race_is_skipped_and_its_wait_closed() {
    let script =
        vec![vec![Hook("h")], vec![Payload("h", HOOK), Sleep("s")], vec![Drop(2), Payload("h", HOOK)]];
    let mut run = Run::new(script);
    let facts = vec![
        created("h"),
        owned(),
        awaited(1),
        opened_sleep(&sleep("s"), 5),
        fired(&sleep("s")),
        received(1, 7),
    ];
    run.feed_all(&journal(facts)).unwrap();
    // The payload is not the body's, so the wait is closed with what it had seen when it dropped it.
    let closed = run.replay.next_closed();
    assert_eq!(closed.len(), 1);
    assert_eq!((&closed[0].call, closed[0].after, &closed[0].hook), (&payload(1), Position(6), &None));
    assert_eq!(run.next(), ["open 4"]);
}

#[test]
fn h60_h61_what_came_before_is_received_then_the_awaits_fail_with_the_claimant() {
    let script = vec![vec![Hook("h")], vec![Payload("h", HOOK)], vec![Payload("h", HOOK)]];
    let facts =
        vec![created("h"), owned(), taken(), awaited(1), received(1, 7), awaited(2), fired(&payload(2))];
    let mut run = Run::new(script.clone());
    run.feed_all(&journal(facts.clone())).unwrap();
    assert_eq!(words(&fed(script, facts)), [(1, "owned 1.2"), (2, "7"), (3, "HookTaken")]);
    let failure = run.got[2].1.clone().unwrap_err();
    assert_eq!(failure.data.unwrap().as_str(), r#"{"workflow":"orders","id":"o-9","hook":"0.0"}"#);
    assert!(failure.permanent && failure.message.contains("orders/o-9"), "{}", failure.message);
}

#[test]
fn h52_an_await_of_a_hook_that_is_over_for_no_other_reason_says_so() {
    let script = vec![vec![Hook("h")], vec![Payload("h", HOOK)]];
    let got = fed(script, vec![created("h"), owned(), awaited(1), fired(&payload(1))]);
    assert_eq!(got[1], (2, HOOK_DISPOSED.to_owned()));
}

#[test]
fn h52_letting_go_is_told_once_and_handed_over_when_it_is_recorded() {
    let mut run = Run::new(vec![vec![Hook("h")], vec![LetGo(1)]]);
    run.feed_all(&journal(vec![created("h"), owned()])).unwrap();
    let closed = run.replay.next_closed();
    assert_eq!(
        (closed.len(), closed[0].hook.as_ref().unwrap().as_str(), closed[0].after),
        (1, "h", Position(3))
    );
    assert!(run.replay.next_closed().is_empty());
    let facts = vec![created("h"), owned(), let_go("h")];
    run.feed(&journal(facts.clone())[2]).unwrap();
    assert_eq!(run.got[1], (1, Ok(json("\"free\""))));
    // A replay finds it recorded, and tells it no more.
    let mut again = Run::new(vec![vec![Hook("h")], vec![LetGo(1)]]);
    again.feed_all(&journal(facts)).unwrap();
    assert_eq!(again.got, run.got);
    assert!(again.replay.next_closed().is_empty());
}

#[test]
fn h21_the_hook_that_the_instance_was_started_with_is_let_go_without_ever_being_opened() {
    let script = || vec![vec![Hook("h"), Step("a", 1)]];
    let mut run = Run::new(script());
    // Its call is numbered, and never begun: here by a name that nobody made.
    run.replay.let_go(9, hook("start"), "start".parse().unwrap(), Position(1));
    run.feed_all(&journal(vec![let_go("start")])).unwrap();
    assert_eq!(run.got, [(9, Ok(json("\"free\"")))]);
    let parked = Run::new(script()).feed_all(&journal(vec![let_go("start")])).unwrap_err();
    assert_eq!(parked.code, ParkCode::JournalMismatch);
    assert!(parked.message.contains("has not let go of"), "{}", parked.message);
}

#[test]
fn h52_a_creation_that_is_dropped_under_way_is_let_go_whether_it_is_owned_or_not() {
    let owns = [(owned(), 1), (registered("h", HookOutcome::Conflict { owner: other() }), 0)];
    for (outcome, closes) in owns {
        // Dropped by a replay before the entry that opened it is fed.
        let mut run = Run::new(vec![vec![Hook("h"), Step("a", 1)], vec![Drop(1)]]);
        run.feed_all(&journal(vec![succeeded(&step("a"), 1), created("h"), outcome])).unwrap();
        assert_eq!(run.replay.next_closed().len(), closes);
        assert_eq!(run.got.len(), 1, "the body is told nothing of it");
    }
    // Dropped while the report that opens it is under way: another hook of that token may follow at once.
    let mut run = Run::new(vec![vec![Hook("h"), Step("a", 1)], vec![Drop(1)]]);
    assert_eq!(run.next(), ["open 1", "start 2 attempt 1"]);
    run.feed(&journal(vec![succeeded(&step("a"), 1)])[0]).unwrap();
    let closed = run.replay.next_closed();
    assert_eq!((closed.len(), closed[0].hook.is_some()), (1, true));
    // Dropped before anybody was told.
    let mut run = Run::new(vec![vec![Hook("h"), Drop(1)]]);
    assert!(run.next().is_empty() && run.replay.next_closed().is_empty());
    run.feed_all(&journal(vec![let_go("h")])).unwrap();
}

/// By the time it is opened, another hook may have its token.
#[test]
fn h52_p30_a_hook_that_is_opened_after_the_cancel_that_ended_it_lets_nothing_go() {
    let mut run = Run::new(vec![vec![Hook("h")]]);
    assert_eq!(run.next(), ["open 1"]);
    run.replay.cancelled_at(1, Position(1));
    assert!(run.replay.next_closed().is_empty());
    run.feed(&journal(vec![created("h")])[0]).unwrap();
    assert!(run.replay.next_closed().is_empty());
}

#[test]
fn p41_another_token_or_another_hook_is_a_mismatch() {
    let check = |script: Script, facts: Vec<Fact>| {
        let parked = Run::new(script).feed_all(&journal(facts)).unwrap_err();
        assert_eq!(parked.code, ParkCode::JournalMismatch, "{}", parked.message);
    };
    let token = opened(&hook("h"), Wait::Hook(registration("other")));
    check(vec![vec![Hook("h")]], vec![token]);
    let elsewhere = HookId { run: RunNumber(1), position: Position(7) };
    check(vec![vec![Hook("h")], vec![Payload("h", elsewhere)]], vec![created("h"), owned(), awaited(1)]);
    check(vec![vec![Step("a", 1)]], vec![owned()]);
}

#[test]
fn h58_an_answer_is_over_when_it_is_on_record_and_is_said_once() {
    let call = call(CallKind::Reply, "h", 1);
    let answered = |id: &str| opened(&call, Wait::Reply(reply("h", id, 200)));
    let journal = journal(vec![answered("1"), Fact::Fired { call: call.clone() }]);
    let mut run = Run::new(vec![vec![Reply("1")], vec![]]);
    assert_eq!(run.next(), ["open 1"]);
    run.feed_all(&journal).unwrap();
    assert_eq!(run.got, [(1, Ok(json("null")))]);
    assert_eq!(run.next(), [""; 0], "a replay says it no more");

    // An answer to another request is another call: the code has changed.
    let mut other = Run::new(vec![vec![Reply("2")]]);
    assert_eq!(other.feed_all(&journal).unwrap_err().code, ParkCode::JournalMismatch);
}
