//! Proves that every operation does in every status what the table says (rule P28), and that the reference page shows the table.

mod support;

use everstep_engine::{
    Answer, StatusWord, What,
    transition::{Operation, Outcome, page},
};
use everstep_protocol::{
    Epoch, Millis, Pin,
    journal::End,
    message::{OpenWait, Then},
};
use support::*;

/// Instance 1 in a status.
fn instance(status: StatusWord) -> Store {
    let suspended = |report: &mut everstep_protocol::message::Report| {
        report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(9)))];
        report.then = Then::Suspend;
    };
    let pause = || What::Pause { operation: "before".to_owned() };
    let mut store = Store::held();
    match status {
        StatusWord::Queued => drop(store.tell(What::GiveBack { session: S1, epoch: Epoch(1) })),
        StatusWord::Running => {}
        StatusWord::Waiting => drop(store.report(suspended)),
        StatusWord::Pausing => drop(store.tell(pause())),
        StatusWord::Paused => {
            store.report(suspended);
            store.tell(pause());
        }
        StatusWord::Attention => drop(store.report(|report| report.then = Then::Park(parked()))),
        StatusWord::Complete => {
            drop(store.report(|report| report.then = Then::End(End::Complete(json("1")))));
        }
        StatusWord::Errored => drop(store.report(|report| report.then = Then::End(End::Errored(error("x"))))),
        StatusWord::Terminated => {
            drop(store.tell(What::Terminate { operation: "before".to_owned(), reason: None }));
        }
        StatusWord::Cancelled => {
            drop(store.report(|report| report.then = Then::End(End::Cancelled { reason: None })));
        }
    }
    assert_eq!(store.status(), status);
    store
}

fn what(operation: Operation) -> What {
    let id = "o".to_owned();
    match operation {
        Operation::Pause => What::Pause { operation: id },
        Operation::Resume => What::Resume { operation: id },
        Operation::Cancel => What::Cancel { operation: id, reason: None, within: Millis(9), rollback: false },
        Operation::Rollback => What::Rollback { operation: id, reason: None },
        Operation::Terminate => What::Terminate { operation: id, reason: None },
        Operation::Retry => What::Retry { operation: id },
        Operation::Restart => What::Restart { operation: id, prepared: None },
        Operation::Delete => What::Delete { operation: id, terminate: false },
        Operation::Pin => What::Pin { operation: id, pin: Some(Pin::First) },
    }
}

#[test]
fn p28_every_operation_does_in_every_status_what_the_table_says() {
    for status in StatusWord::ALL {
        for operation in Operation::ALL {
            let mut store = instance(status);
            let before = store.tables.clone();
            let answer = store.tell(what(operation)).answer();
            let pair = format!("{} when {}", operation.word(), status.word());
            match operation.on(status) {
                Outcome::Becomes(next) => {
                    assert_eq!((answer, store.status()), (Answer::Done, next), "{pair}");
                }
                Outcome::Gone => assert_eq!((answer, store.state()), (Answer::Done, "gone"), "{pair}"),
                Outcome::Nothing => {
                    assert_eq!(answer, Answer::Nothing, "{pair}");
                    unchanged(store, &before, &pair);
                }
                Outcome::Refused => {
                    let word = match answer {
                        Answer::Refused(status) => status.word(),
                        Answer::Forbidden(status) => status.word(),
                        Answer::NotParked => status.word(),
                        other => panic!("{pair}: {other:?}"),
                    };
                    assert_eq!(word, status.word(), "{pair}: the error says the status");
                    unchanged(store, &before, &pair);
                }
            }
        }
    }
}

/// Nothing but the answer was noted.
fn unchanged(mut store: Store, before: &Tables, pair: &str) {
    store.tables.operations.retain(|(_, operation), _| operation != "o");
    assert!(store.tables == *before, "{pair}: something changed");
}

#[test]
fn p28_the_reference_page_shows_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/transitions.md");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(committed == page(), "docs/reference/transitions.md is not what `make transitions` writes");
}

#[test]
fn p28_words_of_statuses_and_operations_are_read_back() {
    for status in StatusWord::ALL {
        assert_eq!(StatusWord::parse(status.word()), Some(status));
    }
    for operation in Operation::ALL {
        assert_eq!(Operation::parse(operation.word()), Some(operation));
    }
    assert_eq!((StatusWord::parse("open"), Operation::parse("start")), (None, None));
}
