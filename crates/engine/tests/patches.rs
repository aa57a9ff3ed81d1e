//! Proves what a question about a change of the code is answered (rule P40), on journals written by hand. Not: that a worker
//! records the answer before anything follows from it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use everstep_protocol::{
    CallKind,
    journal::{Fact, ParkCode},
};
use support::{
    script::{Act::*, *},
    *,
};

fn patch(count: u32) -> everstep_protocol::Call {
    call(CallKind::Patch, "p", count)
}

/// The answers that the journal gives, by number, and what may run after it.
fn answers(script: Script, facts: Vec<Fact>) -> (Vec<(u64, String)>, Vec<String>) {
    let mut run = Run::new(script);
    run.feed_all(&journal(facts)).unwrap();
    let text = |(number, result): &(u64, Result<everstep_protocol::Payload, _>)| {
        let output = result.as_ref().unwrap();
        (*number, output.as_str().to_owned())
    };
    (run.got.iter().map(text).collect(), run.next())
}

fn got(number: u64, output: &str) -> (u64, String) {
    (number, output.to_owned())
}

#[test]
fn p40_the_answer_is_yes_where_the_journal_says_so_or_ends() {
    let script = || vec![vec![Patch("p")], vec![Step("new", 1)]];
    assert_eq!(answers(script(), vec![]), (vec![], vec!["open 1".to_owned()]));
    let facts = vec![patched(&patch(1)), succeeded(&step("new"), 1)];
    assert_eq!(answers(script(), facts), (vec![got(1, "true"), got(2, "1")], vec![]));
}

#[test]
fn p40_the_answer_is_no_where_the_journal_goes_on_without_it() {
    let script = || vec![vec![Patch("p")], vec![Step("old", 1)]];
    let facts = vec![succeeded(&step("old"), 1)];
    assert_eq!(answers(script(), facts).0, [got(1, "false"), got(2, "1")]);
}

#[test]
fn p40_entries_that_code_without_the_change_need_not_have_written_decide_nothing() {
    let script = || vec![vec![Step("a", 1), Sleep("s"), Patch("p")], vec![]];
    let (a, s) = (step("a"), sleep("s"));
    let facts = vec![
        opened_sleep(&s, 5),
        lost(1, false),
        Fact::Parked(parked()),
        Fact::Retried,
        failed_until(&a, 1, Some(9)),
        fired(&a),
    ];
    assert_eq!(answers(script(), facts), (vec![], vec!["start 1 attempt 2".to_owned(), "open 3".to_owned()]));
}

#[test]
fn p40_one_change_has_one_answer_wherever_it_is_asked() {
    let script = || vec![vec![Patch("p"), Patch("p"), Patch("q")], vec![], vec![Step("old", 1)]];
    let facts = vec![succeeded(&step("old"), 1)];
    // Both that ask for p are answered before the entry is fed, and the other only if it is still unknown.
    assert_eq!(answers(script(), facts).0, [got(1, "false"), got(2, "false"), got(4, "1")]);
    let script = vec![vec![Patch("p"), Patch("p"), Patch("q")], vec![], vec![Step("new", 1)]];
    let facts = vec![patched(&patch(1)), succeeded(&step("new"), 1)];
    let mut run = Run::new(script);
    run.feed_all(&journal(facts)[..1]).unwrap();
    // What is recorded is never taken back, though the next entry be unknown: that is the other change's.
    run.feed_all(&journal(vec![Fact::Retried, succeeded(&step("new"), 1)])[1..]).unwrap();
    let answers: Vec<_> = run.got.iter().map(|(number, _)| *number).collect();
    assert_eq!(answers, [1, 3, 4]);
    assert_eq!(run.next(), ["open 2"]);
}

#[test]
fn p40_a_dropped_question_is_not_answered() {
    let script = vec![vec![Patch("p"), Step("a", 1)], vec![Drop(1), Step("b", 1)]];
    let facts = vec![succeeded(&step("a"), 1), patched(&patch(1)), succeeded(&step("b"), 1)];
    assert_eq!(answers(script, facts).0, [got(2, "1"), got(3, "1")]);
}

#[test]
fn p40_a_recorded_change_that_the_code_does_not_ask_about_is_a_mismatch() {
    let mut run = Run::new(vec![vec![Step("new", 1)]]);
    let parked = run.feed_all(&journal(vec![patched(&patch(1))])).unwrap_err();
    assert_eq!(parked.code, ParkCode::JournalMismatch);
    let says =
        "entry 2 (patched): the code has not called patch \"p\" #1 by then; it asks for step \"new\" #1";
    assert!(parked.message.contains(says), "{parked:?}");
}
