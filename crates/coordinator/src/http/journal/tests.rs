use everstep_protocol::{Generation, Payload, Timestamp, journal::Started};

use super::*;

#[test]
fn a_first_entry_shows_its_input_and_not_its_seed() {
    let input = Payload::from_text(r#"{"total":1.10}"#).unwrap();
    let fact = Fact::Started(Started {
        input,
        seed: [7; 32],
        generation: Generation(1),
        attributes: Vec::new(),
        hook: None,
        trace: None,
    });
    let view = EntryView::from(Entry { position: Position(1), at: Timestamp(0), fact });
    let text = serde_json::to_string(&view).unwrap();
    let expected = concat!(
        r#"{"position":1,"at":"1970-01-01T00:00:00.000000Z","kind":"started","generation":1,"#,
        r#""input":{"total":1.10}}"#
    );
    assert_eq!(text, expected);
}

#[test]
fn p44_a_sensitive_output_is_in_no_journal_that_is_shown() {
    let call = everstep_protocol::Call {
        kind: everstep_protocol::CallKind::Step,
        name: everstep_protocol::CallName::new("log in").unwrap(),
        count: 1,
    };
    let secret = || Payload::from_text(r#""hunter2""#).unwrap();
    let input = everstep_protocol::Fingerprint::of(&Payload::null()).unwrap();
    let key =
        everstep_protocol::StepKey::derive(uuid::Uuid::nil(), 1, "step", "log in", 1, &secret()).unwrap();
    let marks = Marks { sensitive: true, ..Marks::default() };
    let attempted = |outcome| {
        Fact::Attempted(Attempted {
            call: call.clone(),
            attempt: everstep_protocol::Attempt(1),
            called_after: Position(1),
            started_at: Timestamp(0),
            key,
            input,
            policy: everstep_protocol::Policy::default(),
            build: "b".parse().unwrap(),
            session: everstep_protocol::SessionId::generate(),
            outcome,
            progress: None,
            marks,
            reference: None,
        })
    };
    let failure = everstep_protocol::Failure {
        data: Some(secret()),
        ..everstep_protocol::Failure::new(everstep_protocol::FailureKind::Error, "no hunter2")
    };
    let passed_on = || failure.clone().of_sensitive(true);
    let rollback = everstep_protocol::Call {
        kind: everstep_protocol::CallKind::Rollback,
        name: everstep_protocol::CallName::new("rollback").unwrap(),
        count: 1,
    };
    let undone = everstep_protocol::journal::Undone {
        call: call.clone(),
        end: everstep_protocol::journal::UndoneEnd::Failed(passed_on()),
    };
    let facts = [
        attempted(Outcome::Succeeded(secret())),
        attempted(Outcome::Failed { failure: failure.clone(), retry_at: None }),
        Fact::Ended(End::Errored(passed_on())),
        Fact::Returned(everstep_protocol::journal::Returned {
            call: call.clone(),
            outcome: Outcome::Failed { failure: passed_on(), retry_at: None },
        }),
        Fact::Compensating(everstep_protocol::journal::Compensating {
            call: rollback,
            called_after: Position(2),
            failure: Some(passed_on()),
            steps: 1,
        }),
        Fact::Compensated(everstep_protocol::journal::Compensated { steps: vec![undone], more: 0 }),
        Fact::Reusable(everstep_protocol::journal::Reusable {
            call: call.clone(),
            key,
            input,
            policy: everstep_protocol::Policy::default(),
            marks,
            output: secret(),
        }),
    ];
    for fact in facts {
        let view = EntryView::from(Entry { position: Position(2), at: Timestamp(0), fact });
        let text = serde_json::to_string(&view).unwrap();
        assert!(text.contains(r#""sensitive":true"#) && !text.contains("hunter2"), "{text}");
    }
}
