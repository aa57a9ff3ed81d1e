//! Proves what becomes of what a body publishes and sets (rule P37). Not: that a body comes to it; see the worker's rules.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use everstep_engine::{Answer, What, batch::Published};
use everstep_protocol::{
    Attribute, Run,
    message::{Taken, Then},
};
use support::*;

fn attribute(words: &str) -> Attribute {
    Attribute::from_words(words).unwrap()
}

fn shown(out: &Out) -> Vec<String> {
    let of = |row: &everstep_engine::batch::AttributeRow| {
        let value = row.attribute.value.as_ref().map_or("gone", |value| value.as_json());
        format!("{}={value}", row.attribute.name)
    };
    out.writes.attributes.iter().map(of).collect()
}

#[test]
fn p37_what_a_report_shows_is_written_with_it_and_nothing_else() {
    let mut store = Store::held();
    let out = store.report(|report| {
        report.results = vec![end(&step("a"), 1, ok())];
        report.state = Some(json("1"));
        report.attributes = vec![attribute("stage=packed"), attribute("n=1")];
    });
    assert_eq!(out.entries(), ["attempted"], "it is no entry");
    assert_eq!(shown(&out), ["n=1", "stage=\"packed\""]);
    let published = Published { state: json("1"), run: Run(1), at: store.now };
    assert_eq!(out.writes.states, [(uid(1), published)]);
    let out = store.report(|report| report.results = vec![end(&step("b"), 1, ok())]);
    assert!(out.writes.states.is_empty() && out.writes.attributes.is_empty());
}

#[test]
fn p37_the_last_of_a_batch_is_written() {
    let mut store = Store::held();
    let (session, mut first) = store.next_report(|report| {
        report.state = Some(json("1"));
        report.attributes = vec![attribute("a=1"), attribute("b=1")];
    });
    let removed = Attribute { value: None, ..attribute("a=1") };
    let mut second = first.clone();
    second.number += 1;
    (second.state, second.attributes) = (Some(json("2")), vec![removed]);
    first.then = Then::Continue;
    let out = store.batch(&[on(uid(1), reported(session, first)), on(uid(1), reported(session, second))]);
    assert_eq!(shown(&out), ["a=gone", "b=1"]);
    assert_eq!(out.writes.states[0].1.state, json("2"));
}

#[test]
fn p37_what_came_of_a_refused_fold_is_not_shown() {
    let mut store = Store::held();
    store.tell(What::Event(sent("e", "note", 1)));
    store.report(|report| report.opened = vec![awaits(&event("note", 1), &["note"], 99)]);
    let fold = |seen: u64| {
        move |report: &mut everstep_protocol::message::Report| {
            report.seen = everstep_protocol::Position(seen);
            report.results = vec![end(&step("a"), 1, ok())];
            report.state = Some(json("1"));
            report.attributes = vec![attribute("a=1")];
            report.folded = true;
        }
    };
    let out = store.report(fold(1));
    assert_eq!(out.taken(), [Taken::Results]);
    assert!(out.writes.states.is_empty() && out.writes.attributes.is_empty());
}

#[test]
fn p37_a_late_report_shows_nothing() {
    let mut store = Store::held();
    let (session, late) = store.next_report(|report| report.state = Some(json("1")));
    store.tell(lease_ended(session, false));
    let out = store.tell(reported(session, late));
    assert_eq!((out.answer(), out.writes.states.len()), (Answer::Fenced, 0));
}

#[test]
fn p37_a_start_has_attributes_and_a_new_run_has_those_of_its_beginning() {
    let mut store = Store::default();
    let out = store.start(everstep_engine::start::Start {
        attributes: vec![attribute("a=1")],
        ..start(1, "order-1", 1)
    });
    assert_eq!(shown(&out), ["a=1"]);
    assert!(out.writes.attribute_resets.is_empty());
    let out = store.tell(What::Restart { operation: "r".to_owned(), prepared: None });
    assert_eq!((shown(&out), out.writes.attribute_resets.clone()), (vec!["a=1".to_owned()], vec![uid(1)]));
}

#[test]
fn p37_a_new_run_removes_attributes_only_where_there_are_some() {
    let restart = |operation: &str| What::Restart { operation: operation.to_owned(), prepared: None };
    let mut store = Store::held();
    let out = store.tell(restart("none"));
    assert!(out.writes.attributes.is_empty() && out.writes.attribute_resets.is_empty());
    // What the code has set since is removed, also where that stands in the same batch.
    let mut store = Store::held();
    let (session, report) = store.next_report(|report| report.attributes = vec![attribute("a=1")]);
    let mut other = store.clone();
    store.tell(reported(session, report.clone()));
    let out = store.tell(restart("some"));
    assert_eq!((shown(&out), out.writes.attribute_resets.clone()), (vec![], vec![uid(1)]));
    let out = other.batch(&[on(uid(1), reported(session, report)), on(uid(1), restart("some"))]);
    assert_eq!((shown(&out), other.tables.attributes.len()), (vec![], 0));
    let out = store.tell(restart("gone by now"));
    assert!(out.writes.attribute_resets.is_empty());
}

#[test]
fn p37_what_is_deleted_shows_nothing() {
    let mut store = Store::held();
    let (session, mut last) = store.next_report(|report| report.state = Some(json("1")));
    last.attributes = vec![attribute("a=1")];
    let delete = What::Delete { operation: "d".to_owned(), terminate: true };
    let out = store.batch(&[on(uid(1), reported(session, last)), on(uid(1), delete)]);
    assert!(out.writes.states.is_empty() && out.writes.attributes.is_empty());
}
