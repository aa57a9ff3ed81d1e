//! Writing.

use everstep_protocol::{
    Failure, Payload,
    journal::{Attempted, Delivered, End, Entry, Fact, Opened, Other, Outcome, Wait},
};
use serde_json::value::RawValue;

use super::{Error, Line};

impl Line {
    pub(super) fn of(entry: &Entry) -> Self {
        let line = Self {
            position: entry.position.0,
            at: entry.at.to_string(),
            kind: entry.fact.word().to_owned(),
            call: entry.fact.call().cloned(),
            ..Self::default()
        };
        match &entry.fact {
            Fact::Started(started) => Self {
                generation: Some(started.generation.0),
                attributes: everstep_protocol::attribute::object(&started.attributes),
                seed: Some(hex::encode(started.seed)),
                input: Some(raw(&started.input)),
                token: started.hook.clone(),
                ..line
            },
            Fact::Attempted(attempted) => line.of_attempt(attempted),
            Fact::Opened(opened) => line.of_opened(opened),
            Fact::Fired { .. } | Fact::Retried => line,
            Fact::Delivered(delivered) => line.of_delivered(delivered),
            Fact::Cancelled(cancelled) => Self {
                message: cancelled.reason.clone(),
                until: Some(cancelled.until.to_string()),
                rollback: cancelled.rollback,
                ..line
            },
            Fact::Compensating(compensating) => line.of_compensating(compensating),
            Fact::Compensated(compensated) => line.of_compensated(compensated),
            Fact::Rollback(rollback) => Self { message: rollback.reason.clone(), ..line },
            Fact::Reusable(reusable) => line.of_reusable(reusable),
            Fact::Patched(patched) => Self { called_after: Some(patched.called_after.0), ..line },
            Fact::Closed(closed) => {
                Self { closed_after: Some(closed.after.0), token: closed.hook.clone(), ..line }
            }
            Fact::Registered(registered) => line.of_registered(&registered.outcome),
            Fact::Received(received) => line.of_received(received),
            Fact::TakenOver(taken) => line.of_taken_over(taken),
            Fact::Lost(lost) => Self {
                session: Some(lost.session),
                counts: Some(lost.counts),
                slots: Some(lost.slots),
                ..line
            },
            Fact::Parked(parked) => {
                Self { code: Some(parked.code), message: Some(parked.message.clone()), ..line }
            }
            Fact::Continued(input) => Self { input: Some(raw(input)), ..line },
            Fact::Returned(returned) => line.of_outcome(&returned.outcome, false),
            Fact::Ended(end) => line.of_end(end),
            Fact::Intended(intended) => line.of_intended(intended),
            Fact::Withdrawn(withdrawn) => Self { attempt: Some(withdrawn.attempt.0), ..line },
            Fact::Resolved(resolved) => line.of_resolved(resolved),
            Fact::Rekeyed(rekeyed) => Self {
                fingerprint: Some(rekeyed.input.to_string()),
                key: rekeyed.kept.map(|key| key.to_string()),
                choice: Some(rekeyed.choice().word().to_owned()),
                by: rekeyed.by.clone(),
                why: rekeyed.why.clone(),
                ..line
            },
        }
    }

    fn of_attempt(self, attempted: &Attempted) -> Self {
        let line = Self {
            attempt: Some(attempted.attempt.0),
            called_after: Some(attempted.called_after.0),
            started_at: Some(attempted.started_at.to_string()),
            key: Some(attempted.key.to_string()),
            fingerprint: Some(attempted.input.to_string()),
            build: Some(attempted.build.clone()),
            session: Some(attempted.session),
            reference: attempted.reference.clone(),
            ..self.marked(attempted.marks).of_class(attempted.policy.class)
        };
        line.of_outcome(&attempted.outcome, attempted.marks.sensitive)
    }

    fn of_outcome(self, outcome: &Outcome, sensitive: bool) -> Self {
        match outcome {
            Outcome::Succeeded(output) => {
                let output = (!sensitive).then(|| raw(output));
                Self { outcome: Some("succeeded".to_owned()), output, ..self }
            }
            Outcome::Failed { failure, retry_at } => Self {
                outcome: Some("failed".to_owned()),
                error: Some(Error::of(&failure.clone().of_sensitive(sensitive))),
                retry_at: retry_at.map(|at| at.to_string()),
                ..self
            },
            Outcome::Unknown { failure, asks, epoch } => Self {
                outcome: Some("unknown".to_owned()),
                error: Some(Error::of(&failure.clone().of_sensitive(sensitive))),
                asks: *asks,
                epoch: Some(epoch.0),
                ..self
            },
        }
    }

    fn of_opened(self, opened: &Opened) -> Self {
        let build = opened.build.clone();
        let line = Self { called_after: Some(opened.called_after.0), build, ..self };
        match &opened.wait {
            Wait::Sleep { until } => {
                Self { wait: Some("sleep".to_owned()), until: Some(until.to_string()), ..line }
            }
            Wait::Event { types, key, until } => Self {
                wait: Some("event".to_owned()),
                types: Some(types.clone()),
                event_key: key.clone(),
                until: Some(until.to_string()),
                ..line
            },
            Wait::Remote(remote) => Self {
                wait: Some("remote_step".to_owned()),
                pool: Some(remote.pool.clone()),
                function: Some(remote.function.clone()),
                input: Some(raw(&remote.input)),
                key: Some(remote.key.to_string()),
                fingerprint: Some(remote.fingerprint.to_string()),
                look_first: remote.look.clone(),
                ..line.marked(remote.marks).of_class(remote.policy.class)
            },
            Wait::Child(child) => Self {
                wait: Some("child".to_owned()),
                instance: Some(Other { workflow: child.workflow.clone(), id: child.id.clone() }),
                input: Some(raw(&child.input)),
                fingerprint: Some(child.fingerprint.to_string()),
                detached: Some(child.detached),
                only_started: Some(child.only_started),
                keep_for: child.keep_for.map(|length| length.to_string()),
                ..line.of_start_hook(child.hook.as_ref())
            },
            Wait::Resume(resuming) => Self {
                wait: Some("resume".to_owned()),
                token: Some(resuming.token.clone()),
                payload: Some(raw(&resuming.payload)),
                fingerprint: Some(resuming.fingerprint.to_string()),
                ..line
            },
            Wait::Hook(hook) => line.of_created(hook),
            Wait::Payload(awaiting) => line.of_awaiting(awaiting),
            Wait::Reply(reply) => line.of_reply(reply),
            Wait::Instance(other) => {
                Self { wait: Some("instance".to_owned()), instance: Some(other.clone()), ..line }
            }
            Wait::Send(sending) => Self {
                wait: Some("send".to_owned()),
                instance: Some(sending.to.clone()),
                types: Some(vec![sending.kind.clone()]),
                event_key: sending.key.clone(),
                payload: Some(raw(&sending.payload)),
                fingerprint: Some(sending.fingerprint.to_string()),
                ..line
            },
        }
    }

    fn of_delivered(self, delivered: &Delivered) -> Self {
        Self {
            types: Some(vec![delivered.kind.clone()]),
            event: Some(delivered.id.clone()),
            event_key: delivered.key.clone(),
            sequence: Some(delivered.sequence),
            received_at: Some(delivered.received_at.to_string()),
            payload: Some(raw(&delivered.payload)),
            ..self
        }
    }

    fn of_end(self, end: &End) -> Self {
        let (outcome, line) = match end {
            End::Complete(output) => ("complete", Self { output: Some(raw(output)), ..self }),
            End::Errored(failure) => ("errored", Self { error: Some(Error::of(failure)), ..self }),
            End::Cancelled { reason } => ("cancelled", Self { message: reason.clone(), ..self }),
            End::Terminated { reason } => ("terminated", Self { message: reason.clone(), ..self }),
        };
        Self { outcome: Some(outcome.to_owned()), ..line }
    }
}

impl Error {
    pub(super) fn of(failure: &Failure) -> Self {
        Self {
            kind: failure.kind,
            name: failure.name.clone(),
            message: failure.shown_message().to_owned(),
            data: failure.shown_data().map(raw),
            permanent: failure.permanent,
            sensitive: failure.sensitive,
            sent: failure.sent,
        }
    }
}

/// What is no JSON, which only a damaged store can hold, is written as null.
pub(super) fn raw(payload: &Payload) -> Box<RawValue> {
    RawValue::from_string(payload.as_str().to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
