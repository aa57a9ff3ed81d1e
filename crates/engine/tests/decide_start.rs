//! Proves admission: created, exists, conflict, and the kept decision on a message (rule P27). Not: the checks at the edge.

mod support;

use everstep_engine::{Answer, Input, Status, What, start::Start};
use everstep_protocol::{Namespace, WorkflowName, journal::Fact, message::Then};
use support::*;

fn with_message(mut start: Start, id: &str) -> Start {
    start.message = Some(message(id));
    start
}

fn batch(starts: Vec<Start>) -> (Vec<Answer>, Store) {
    let mut store = Store::default();
    let inputs: Vec<_> = starts.into_iter().map(|start| Input::Start(Box::new(start))).collect();
    (store.batch(&inputs).answers(), store)
}

#[test]
fn p27_a_start_creates_head_name_and_first_entry() {
    let mut store = Store::default();
    let out = store.start(start(1, "i", 3));
    assert_eq!((out.answer(), out.entries(), out.sent()), (Answer::Created, vec!["started"], vec!["offer"]));
    let Fact::Started(started) = &store.tables.journal[&uid(1)][0].fact else { panic!() };
    assert_eq!((started.input.as_str(), started.seed), ("3", [7; 32]));
    assert_eq!((store.state(), store.head().created_at), ("ready", NOW));
}

#[test]
fn p27_the_same_input_exists_another_conflicts() {
    let mut store = Store::default();
    store.start(start(1, "i", 1));
    assert_eq!(store.start(start(2, "i", 1)).answer(), Answer::Exists(Status::Open));
    assert_eq!(store.start(start(3, "i", 2)).answer(), Answer::Conflict(Status::Open));
    assert_eq!(store.start(start(4, "j", 2)).answer(), Answer::Created);
    store.tell(What::Terminate { operation: "t".to_owned(), reason: None });
    assert_eq!(store.start(start(5, "i", 1)).answer(), Answer::Exists(Status::Terminated));
    assert_eq!(store.start(start(6, "i", 2)).answer(), Answer::Conflict(Status::Terminated));
    assert_eq!(store.tables.heads.len(), 2);
}

#[test]
fn p27_ids_are_apart_by_workflow_and_namespace() {
    let mut other = start(2, "i", 1);
    other.name.workflow = WorkflowName::new("refund").unwrap();
    let mut third = start(3, "i", 1);
    third.name.namespace = Namespace::new("test").unwrap();
    let (answers, _) = batch(vec![start(1, "i", 1), other, third]);
    assert_eq!(answers, [Answer::Created, Answer::Created, Answer::Created]);
}

#[test]
fn p27_two_starts_of_one_name_in_one_batch() {
    let (answers, store) =
        batch(vec![start(1, "i", 1), start(2, "i", 1), start(3, "i", 2), start(4, "j", 1)]);
    let open = Status::Open;
    assert_eq!(answers, [Answer::Created, Answer::Exists(open), Answer::Conflict(open), Answer::Created]);
    assert_eq!(store.tables.names.len(), 2);
}

#[test]
fn p27_a_message_keeps_its_first_decision() {
    let mut store = Store::default();
    store.start(start(1, "i", 1));
    for (id, input, answer) in [
        ("created", 9, Answer::Created),
        ("exists", 1, Answer::Exists(Status::Open)),
        ("conflict", 2, Answer::Conflict(Status::Open)),
    ] {
        let name = if id == "created" { "new" } else { "i" };
        let first = with_message(start(10 + u128::from(input), name, input), id);
        assert_eq!(store.start(first).answer(), answer);
        let redelivered = with_message(start(20 + u128::from(input), "another", 5), id);
        assert_eq!(store.start(redelivered).answer(), answer, "{id}");
    }
    assert_eq!(store.tables.heads.len(), 2);
}

#[test]
fn p27_a_message_twice_in_one_batch_creates_once() {
    let again = with_message(start(2, "generated-2", 1), "m");
    let (answers, store) = batch(vec![with_message(start(1, "generated-1", 1), "m"), again]);
    assert_eq!(answers, [Answer::Created, Answer::Created]);
    assert_eq!((store.tables.heads.len(), store.tables.messages.len()), (1, 1));
    assert_eq!(store.tables.messages[&message("m")].id, named("generated-1").id);
}

#[test]
fn p27_two_messages_for_one_instance_are_both_kept() {
    let (answers, store) =
        batch(vec![with_message(start(1, "i", 1), "m"), with_message(start(2, "i", 1), "n")]);
    assert_eq!(answers, [Answer::Created, Answer::Exists(Status::Open)]);
    assert_eq!(store.tables.messages.len(), 2);
}

#[test]
fn p27_a_start_after_an_end_in_one_batch_sees_the_end() {
    let mut store = Store::held();
    let (_, fin) = store
        .next_report(|report| report.then = Then::End(everstep_protocol::journal::End::Errored(error("x"))));
    let out = store.batch(&[on(uid(1), reported(S1, fin)), Input::Start(Box::new(start(2, "i", 1)))]);
    assert_eq!(out.answers(), [Answer::Taken, Answer::Exists(Status::Errored)]);
}

#[test]
fn w35_a_start_goes_straight_to_a_session_with_room() {
    let mut store = Store::default();
    store.room.serve(S2, &Namespace::default(), &[workflow()]);
    store.room.credit(S2, 1);
    let out = store.start(start(1, "i", 1));
    assert_eq!((out.sent(), out.credits, store.lease().unwrap().epoch.0), (vec!["grant"], vec![S2], 1));
    let out = store.start(start(2, "j", 1));
    assert_eq!((out.sent(), out.credits), (vec!["offer"], vec![]));
}

#[test]
fn w35_a_start_that_exists_takes_no_credit() {
    let mut store = Store::started();
    store.room.serve(S2, &Namespace::default(), &[workflow()]);
    store.room.credit(S2, 1);
    assert!(store.start(start(2, "i", 1)).credits.is_empty());
    assert_eq!(store.start(start(3, "k", 1)).credits, [S2]);
}
