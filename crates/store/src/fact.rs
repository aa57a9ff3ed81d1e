//! How a journal entry's fact is kept: its main payload as text of its own, so that a person can read it and a database
//! can keep it apart, and the rest as `MessagePack`. What comes back is exactly what went in.

use bytes::Bytes;
use everstep_protocol::{
    Payload, Reference,
    journal::{Choice, End, Fact, Outcome, Wait},
    wire,
};

use crate::{Error, ErrorKind};

/// The fact without its main payload, and the main payload. The place of the payload holds `null` instead.
pub(crate) fn split(fact: &Fact) -> (Bytes, Option<&str>) {
    let Some(payload) = main(fact) else {
        return (wire::encode(fact), None);
    };
    // All that is long in a fact is shared text, so this copies little.
    let mut rest = fact.clone();
    if let Some(place) = main_mut(&mut rest) {
        *place = Payload::null();
    }
    (wire::encode(&rest), Some(payload.as_str()))
}

/// The fact of its two parts.
pub(crate) fn join(rest: &[u8], payload: Option<String>) -> Result<Fact, Error> {
    let corrupt = |reason: String| Error::new(ErrorKind::Corrupt, "reading a journal entry", reason);
    let mut fact = bare(rest)?;
    match (main_mut(&mut fact), payload) {
        (Some(place), Some(text)) => *place = Payload::from_trusted(text),
        (None, None) => {}
        (Some(_), None) => return Err(corrupt("its payload is missing".to_owned())),
        (None, Some(_)) => return Err(corrupt("it has a payload that it should not have".to_owned())),
    }
    Ok(fact)
}

/// The fact without its main payload, for whoever does not look at that.
pub(crate) fn bare(rest: &[u8]) -> Result<Fact, Error> {
    let corrupt = |reason: String| Error::new(ErrorKind::Corrupt, "reading a journal entry", reason);
    wire::decode("journal entry", rest).map_err(|unreadable| corrupt(unreadable.to_string()))
}

/// What the service of a step calls what the step did, if the entry says it.
pub(crate) fn reference(fact: &Fact) -> Option<&str> {
    match fact {
        Fact::Attempted(attempted) => attempted.reference.as_ref().map(Reference::as_str),
        _ => None,
    }
}

const fn main(fact: &Fact) -> Option<&Payload> {
    match fact {
        Fact::Started(started) => Some(&started.input),
        Fact::Attempted(attempted) => match &attempted.outcome {
            Outcome::Succeeded(output) => Some(output),
            Outcome::Failed { .. } | Outcome::Unknown { .. } => None,
        },
        Fact::Opened(opened) => match &opened.wait {
            Wait::Remote(remote) => Some(&remote.input),
            Wait::Child(child) => Some(&child.input),
            Wait::Send(sending) => Some(&sending.payload),
            Wait::Resume(resuming) => Some(&resuming.payload),
            Wait::Sleep { .. }
            | Wait::Event { .. }
            | Wait::Instance(_)
            | Wait::Hook(_)
            | Wait::Reply(_)
            | Wait::Payload(_) => None,
        },
        Fact::Returned(returned) => match &returned.outcome {
            Outcome::Succeeded(output) => Some(output),
            Outcome::Failed { .. } | Outcome::Unknown { .. } => None,
        },
        Fact::Delivered(delivered) => Some(&delivered.payload),
        Fact::Received(received) => Some(&received.payload),
        Fact::Reusable(reusable) => Some(&reusable.output),
        Fact::Resolved(resolved) => match &resolved.choice {
            Choice::Done(output) => Some(output),
            Choice::Again | Choice::Fail(_) => None,
        },
        Fact::Ended(End::Complete(output)) => Some(output),
        Fact::Continued(input) => Some(input),
        Fact::Ended(End::Errored(_) | End::Terminated { .. } | End::Cancelled { .. })
        | Fact::Fired { .. }
        | Fact::Lost(_)
        | Fact::Parked(_)
        | Fact::Closed(_)
        | Fact::Patched(_)
        | Fact::Registered(_)
        | Fact::TakenOver(_)
        | Fact::Cancelled(_)
        | Fact::Compensating(_)
        | Fact::Compensated(_)
        | Fact::Rollback(_)
        | Fact::Intended(_)
        | Fact::Withdrawn(_)
        | Fact::Rekeyed(_)
        | Fact::Retried => None,
    }
}

const fn main_mut(fact: &mut Fact) -> Option<&mut Payload> {
    match fact {
        Fact::Started(started) => Some(&mut started.input),
        Fact::Attempted(attempted) => match &mut attempted.outcome {
            Outcome::Succeeded(output) => Some(output),
            Outcome::Failed { .. } | Outcome::Unknown { .. } => None,
        },
        Fact::Opened(opened) => match &mut opened.wait {
            Wait::Remote(remote) => Some(&mut remote.input),
            Wait::Child(child) => Some(&mut child.input),
            Wait::Send(sending) => Some(&mut sending.payload),
            Wait::Resume(resuming) => Some(&mut resuming.payload),
            Wait::Sleep { .. }
            | Wait::Event { .. }
            | Wait::Instance(_)
            | Wait::Hook(_)
            | Wait::Reply(_)
            | Wait::Payload(_) => None,
        },
        Fact::Returned(returned) => match &mut returned.outcome {
            Outcome::Succeeded(output) => Some(output),
            Outcome::Failed { .. } | Outcome::Unknown { .. } => None,
        },
        Fact::Delivered(delivered) => Some(&mut delivered.payload),
        Fact::Received(received) => Some(&mut received.payload),
        Fact::Reusable(reusable) => Some(&mut reusable.output),
        Fact::Resolved(resolved) => match &mut resolved.choice {
            Choice::Done(output) => Some(output),
            Choice::Again | Choice::Fail(_) => None,
        },
        Fact::Ended(End::Complete(output)) => Some(output),
        Fact::Continued(input) => Some(input),
        Fact::Ended(End::Errored(_) | End::Terminated { .. } | End::Cancelled { .. })
        | Fact::Fired { .. }
        | Fact::Lost(_)
        | Fact::Parked(_)
        | Fact::Closed(_)
        | Fact::Patched(_)
        | Fact::Registered(_)
        | Fact::TakenOver(_)
        | Fact::Cancelled(_)
        | Fact::Compensating(_)
        | Fact::Compensated(_)
        | Fact::Rollback(_)
        | Fact::Intended(_)
        | Fact::Withdrawn(_)
        | Fact::Rekeyed(_)
        | Fact::Retried => None,
    }
}

#[cfg(test)]
mod tests {
    use everstep_protocol::{
        Attempt, Call, CallKind, CallName, Class, Epoch, Failure, FailureKind, Fingerprint, FunctionName,
        Generation, Millis, Policy, Pool, Position, SessionId, StepKey, Timestamp,
        journal::{
            Attempted, Cancelled, Closed, Compensated, Compensating, Delivered, Intended, Lost, Marks,
            Opened, ParkCode, Parked, Patched, Remote, Resolved, Reusable, Rollback, Started, Undone,
            UndoneEnd, Withdrawn,
        },
    };

    use super::*;

    fn call() -> Call {
        Call { kind: CallKind::Step, name: CallName::new("Prüfung \"1\"").unwrap(), count: 3 }
    }

    fn attempted(outcome: Outcome) -> Fact {
        let input = Payload::from_text("[1]").unwrap();
        Fact::Attempted(Attempted {
            call: call(),
            attempt: Attempt(2),
            called_after: Position(4),
            started_at: Timestamp(5),
            key: StepKey::derive(uuid::Uuid::nil(), 1, "step", "a", 1, &input).unwrap(),
            input: Fingerprint::of(&input).unwrap(),
            policy: Policy::default(),
            build: "b1".parse().unwrap(),
            session: SessionId::generate(),
            outcome,
            progress: None,
            marks: Marks::default(),
            reference: None,
        })
    }

    fn remote() -> Remote {
        let input = Payload::from_text(r#"{"z":1.0,"a":12345678901234567890}"#).unwrap();
        Remote {
            pool: Pool::new("gpu").unwrap(),
            function: FunctionName::new("f").unwrap(),
            key: StepKey::derive(uuid::Uuid::nil(), 1, "step", "a", 1, &input).unwrap(),
            fingerprint: Fingerprint::of(&input).unwrap(),
            input,
            policy: Policy::default(),
            marks: Marks { compensated: true, sensitive: true, ..Marks::default() },
            look: Some(FunctionName::new("find").unwrap()),
            trace: None,
        }
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "one line for each fact")]
    fn every_fact_comes_back() {
        let failure = Failure {
            data: Some(Payload::null()),
            retry_after: Some(Millis(7)),
            ..Failure::new(FailureKind::TimedOut, "too slow")
        };
        let text = Payload::from_text(r#"{"b":"\u0000","a":[null,1e3]}"#).unwrap();
        let started = Started {
            input: text.clone(),
            seed: std::array::from_fn(|i| i as u8),
            generation: Generation(2),
            attributes: Vec::new(),
            hook: None,
            trace: None,
        };
        let opened = |wait| {
            let build = matches!(wait, Wait::Remote(_)).then(|| "b1".parse().unwrap());
            Fact::Opened(Opened { call: call(), called_after: Position(9), wait, build })
        };
        let kind = || everstep_protocol::EventType::new("approved").unwrap();
        let delivered = Delivered {
            call: call(),
            kind: kind(),
            sequence: 2,
            id: "e-1".to_owned(),
            key: Some(everstep_protocol::EventKey::new("k").unwrap()),
            received_at: Timestamp(9),
            payload: text.clone(),
        };
        let undone = |end| Undone { call: call(), end };
        let steps = vec![undone(UndoneEnd::Done), undone(UndoneEnd::Failed(failure.clone()))];
        let compensated = Compensated { steps, more: 3 };
        let Remote { key, fingerprint: input, policy, marks, .. } = remote();
        let reusable = Reusable { call: call(), key, input, policy, marks, output: text.clone() };
        let resolved = |choice| {
            let (by, why) = (Some("ann".to_owned()), None);
            Fact::Resolved(Resolved { call: call(), attempt: Attempt(1), choice, by, why, sensitive: true })
        };
        let intended = Intended {
            call: call(),
            attempt: Attempt(1),
            called_after: Position(9),
            key,
            input,
            policy: Policy { class: Class::AtMostOnce, ..Policy::default() },
            marks,
            build: "b1".parse().unwrap(),
            session: SessionId::generate(),
            epoch: Epoch(3),
        };
        let unknown = Outcome::Unknown { failure: failure.clone(), asks: true, epoch: Epoch(3) };
        let facts = [
            (Fact::Intended(intended), false),
            (Fact::Withdrawn(Withdrawn { call: call(), attempt: Attempt(1) }), false),
            (attempted(unknown), false),
            (resolved(Choice::Done(text.clone())), true),
            (resolved(Choice::Again), false),
            (resolved(Choice::Fail(failure.clone())), false),
            (Fact::Started(started), true),
            (attempted(Outcome::Succeeded(text.clone())), true),
            (attempted(Outcome::Succeeded(Payload::null())), true),
            (attempted(Outcome::Failed { failure: failure.clone(), retry_at: Some(Timestamp(-1)) }), false),
            (opened(Wait::Sleep { until: Timestamp(i64::MAX) }), false),
            (opened(Wait::Remote(remote())), true),
            (opened(Wait::Event { types: vec![kind()], key: None, until: Timestamp(7) }), false),
            (Fact::Delivered(delivered), true),
            (Fact::Closed(Closed { call: call(), after: Position(3), hook: None }), false),
            (Fact::Fired { call: call() }, false),
            (
                Fact::Lost(Lost {
                    slots: 4,
                    counts: true,
                    session: SessionId::generate(),
                    progress: Vec::new(),
                }),
                false,
            ),
            (Fact::Parked(Parked::new(ParkCode::Poison, "m".to_owned())), false),
            (Fact::Patched(Patched { call: call(), called_after: Position(9) }), false),
            (Fact::Retried, false),
            (Fact::Continued(text.clone()), true),
            (Fact::Ended(End::Complete(text)), true),
            (Fact::Ended(End::Errored(failure.clone())), false),
            (Fact::Ended(End::Terminated { reason: None }), false),
            (Fact::Ended(End::Cancelled { reason: Some("why".to_owned()) }), false),
            (Fact::Cancelled(Cancelled { reason: None, until: Timestamp(7), rollback: true }), false),
            (Fact::Ended(End::Terminated { reason: Some("why".to_owned()) }), false),
            (
                Fact::Compensating(Compensating {
                    call: call(),
                    called_after: Position(9),
                    failure: Some(failure.clone()),
                    steps: 2,
                }),
                false,
            ),
            (Fact::Compensated(compensated), false),
            (Fact::Rollback(Rollback { reason: Some("why".to_owned()) }), false),
            (Fact::Reusable(reusable), true),
        ];
        for (fact, has_payload) in facts {
            let (rest, payload) = split(&fact);
            assert_eq!(payload.is_some(), has_payload, "{fact:?}");
            let payload = payload.map(str::to_owned);
            assert_eq!(join(&rest, payload).unwrap(), fact);
        }
    }

    #[test]
    fn what_does_not_fit_is_corrupt() {
        let fact = attempted(Outcome::Succeeded(Payload::null()));
        let (rest, _) = split(&fact);
        assert_eq!(join(&rest, None).unwrap_err().kind(), ErrorKind::Corrupt);
        let (rest, _) = split(&Fact::Retried);
        assert_eq!(join(&rest, Some("1".to_owned())).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(join(b"\xc1", None).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
