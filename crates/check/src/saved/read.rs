//! Reading: every field is checked, and an error names it.

use everstep_protocol::{
    Attempt, Failure, Fingerprint, Generation, Millis, Payload, Position, Timestamp,
    journal::{
        Attempted, Cancelled, Child, Closed, Delivered, End, Entry, Fact, Lost, Marks, Opened, Other,
        Outcome, Parked, Patched, Remote, Resuming, Returned, Sending, Started, Wait,
    },
};
use serde_json::value::RawValue;

use super::{Error, Line};

/// Why what a step gave cannot be read (rule P44).
const HIDDEN: &str = "it is sensitive and not in the export, put another value of its type there";

impl Line {
    /// Whether something that the code has seen is left out, since it is sensitive (rule P44).
    pub(super) fn hides(&self) -> bool {
        let error = self.error.as_ref().is_some_and(|error| error.sensitive) && self.retry_at.is_none();
        error || (self.sensitive && self.output.is_none())
    }

    pub(super) fn entry(self) -> Result<Entry, String> {
        let (position, kind) = (self.position, self.kind.clone());
        let at =
            time(&self.at).ok_or_else(|| format!("entry {position}: at: no RFC 3339 time: {:?}", self.at))?;
        let fact = self.fact().map_err(|field| format!("entry {position} ({kind}): {field}"))?;
        Ok(Entry { position: Position(position), at, fact })
    }

    fn fact(mut self) -> Result<Fact, String> {
        Ok(match self.kind.as_str() {
            "started" => Fact::Started(Started {
                input: payload(&need("input", self.input)?)?,
                seed: self.seed.map_or(Ok([0; 32]), |seed| digits("seed", &seed))?,
                generation: Generation(self.generation.unwrap_or(1)),
                attributes: everstep_protocol::attribute::read(&self.attributes.into_iter().collect())
                    .map_err(|error| format!("attributes: {error}"))?,
                hook: self.token,
                trace: None,
            }),
            "attempted" => Fact::Attempted(self.attempted()?),
            "opened" => Fact::Opened(self.opened()?),
            "fired" => Fact::Fired { call: need("call", self.call)? },
            "delivered" => Fact::Delivered(self.delivered()?),
            "cancelled" => Fact::Cancelled(Cancelled {
                rollback: self.rollback,
                until: moment("until", &need("until", self.until)?)?,
                reason: self.message,
            }),
            "patched" => Fact::Patched(Patched {
                call: need("call", self.call)?,
                called_after: Position(need("called_after", self.called_after)?),
            }),
            "closed" => Fact::Closed(Closed {
                call: need("call", self.call)?,
                after: Position(need("closed_after", self.closed_after)?),
                hook: self.token,
            }),
            "lost" => Fact::Lost(Lost {
                // An export that does not say it is of a worker that ran few: none is charged.
                slots: self.slots.unwrap_or(0),
                counts: need("counts", self.counts)?,
                session: need("session", self.session)?,
                progress: Vec::new(),
            }),
            "parked" => Fact::Parked(Parked::new(need("code", self.code)?, self.message.unwrap_or_default())),
            "retried" => Fact::Retried,
            "continued" => Fact::Continued(payload(&need("input", self.input)?)?),
            "returned" => {
                Fact::Returned(Returned { call: need("call", self.call.clone())?, outcome: self.outcome()? })
            }
            "registered" | "received" | "taken_over" => self.of_hook()?,
            "compensating" | "compensated" | "rollback" | "reusable" => self.of_saga()?,
            "intended" | "withdrawn" | "resolved" | "rekeyed" => self.of_ledger()?,
            "ended" => Fact::Ended(self.ended()?),
            other => return Err(format!("kind: {other:?} is not known")),
        })
    }

    fn outcome(&mut self) -> Result<Outcome, String> {
        Ok(match need("outcome", self.outcome.take())?.as_str() {
            "succeeded" => Outcome::Succeeded(self.output()?),
            "failed" => {
                let retry_at = self.retry_at.take().map(|at| moment("retry_at", &at)).transpose()?;
                let failure = need("error", self.error.take())?.failure()?;
                // The code has seen it, and so has the compensation, whose input it is.
                if failure.sensitive && retry_at.is_none() {
                    return Err(format!("error: {HIDDEN}, and take its \"sensitive\" away"));
                }
                Outcome::Failed { failure, retry_at }
            }
            "unknown" => self.unknown()?,
            other => return Err(format!("outcome: {other:?} is not known")),
        })
    }

    fn attempted(mut self) -> Result<Attempted, String> {
        let (marks, policy) = (self.marks(), self.policy()?);
        let outcome = self.outcome()?;
        let key = need("key", self.key)?;
        Ok(Attempted {
            call: need("call", self.call)?,
            attempt: Attempt(need("attempt", self.attempt)?),
            called_after: Position(need("called_after", self.called_after)?),
            started_at: moment("started_at", &need("started_at", self.started_at)?)?,
            key: key.parse().map_err(|error| format!("key: {error}"))?,
            input: fingerprint(self.fingerprint)?,
            policy,
            build: need("build", self.build)?,
            session: need("session", self.session)?,
            outcome,
            // Only further attempts are given it, and a replay runs none.
            progress: None,
            marks,
            reference: self.reference,
        })
    }

    fn opened(self) -> Result<Opened, String> {
        let (marks, policy) = (self.marks(), self.policy()?);
        let wait = match need("wait", self.wait.clone())?.as_str() {
            "sleep" => Wait::Sleep { until: moment("until", &need("until", self.until)?)? },
            "event" => Wait::Event {
                types: need("types", self.types)?,
                key: self.event_key,
                until: moment("until", &need("until", self.until)?)?,
            },
            "remote_step" => Wait::Remote(Remote {
                pool: need("pool", self.pool)?,
                function: need("function", self.function)?,
                input: payload(&need("input", self.input)?)?,
                key: need("key", self.key)?.parse().map_err(|error| format!("key: {error}"))?,
                fingerprint: fingerprint(self.fingerprint)?,
                policy,
                marks,
                look: self.look_first,
                trace: None,
            }),
            "child" => {
                let hook = self.start_hook()?;
                let keep_for = self.keep_for.as_deref().map(Millis::parse).transpose();
                let keep_for = keep_for.map_err(|error| format!("keep_for: {error}"))?;
                let Other { workflow, id } = need("instance", self.instance)?;
                Wait::Child(Child {
                    workflow,
                    id,
                    input: payload(&need("input", self.input)?)?,
                    fingerprint: fingerprint(self.fingerprint)?,
                    detached: self.detached.unwrap_or(false),
                    only_started: self.only_started.unwrap_or(false),
                    hook,
                    keep_for,
                    trace: None,
                })
            }
            "hook" | "payload" | "reply" => return self.opened_hook(),
            "instance" => Wait::Instance(need("instance", self.instance)?),
            "send" => Wait::Send(Sending {
                to: need("instance", self.instance)?,
                kind: need("types", need("types", self.types)?.pop())?,
                key: self.event_key,
                payload: payload(&need("payload", self.payload)?)?,
                fingerprint: fingerprint(self.fingerprint)?,
            }),
            "resume" => Wait::Resume(Resuming {
                token: need("token", self.token)?,
                payload: payload(&need("payload", self.payload)?)?,
                fingerprint: fingerprint(self.fingerprint)?,
            }),
            other => return Err(format!("wait: {other:?} is not known")),
        };
        let called_after = Position(need("called_after", self.called_after)?);
        Ok(Opened { call: need("call", self.call)?, called_after, wait, build: self.build })
    }

    pub(super) const fn marks(&self) -> Marks {
        let Self { compensated, sensitive, reused, found, .. } = *self;
        Marks { compensated, sensitive, reused, found }
    }

    /// What is sensitive is in no export: a test that needs it puts a stand-in there.
    pub(super) fn output(&self) -> Result<Payload, String> {
        match &self.output {
            None if self.sensitive => Err(format!("output: {HIDDEN}")),
            output => payload(need("output", output.as_ref())?),
        }
    }

    fn delivered(self) -> Result<Delivered, String> {
        let kind = need("types", self.types)?.pop();
        Ok(Delivered {
            call: need("call", self.call)?,
            kind: need("types", kind)?,
            // An export that does not say it is replayed all the same.
            sequence: self.sequence.unwrap_or(0),
            id: need("event", self.event)?,
            key: self.event_key,
            received_at: moment("received_at", &need("received_at", self.received_at)?)?,
            payload: payload(&need("payload", self.payload)?)?,
        })
    }

    fn ended(self) -> Result<End, String> {
        Ok(match need("outcome", self.outcome)?.as_str() {
            "complete" => End::Complete(payload(&need("output", self.output)?)?),
            "errored" => End::Errored(need("error", self.error)?.failure()?),
            "cancelled" => End::Cancelled { reason: self.message },
            "terminated" => End::Terminated { reason: self.message },
            other => return Err(format!("outcome: {other:?} is not known")),
        })
    }
}

impl Error {
    pub(super) fn failure(self) -> Result<Failure, String> {
        Ok(Failure {
            kind: self.kind,
            name: self.name,
            message: self.message,
            data: self.data.as_deref().map(payload).transpose()?,
            permanent: self.permanent,
            retry_after: None,
            sensitive: self.sensitive,
            sent: self.sent,
        })
    }
}

fn fingerprint(text: Option<String>) -> Result<Fingerprint, String> {
    Ok(Fingerprint::from_bytes(digits("fingerprint", &need("fingerprint", text)?)?))
}

pub(super) fn need<T>(field: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("{field}: it is missing"))
}

pub(super) fn payload(raw: &RawValue) -> Result<Payload, String> {
    Payload::from_text(raw.get()).map_err(|error| error.to_string())
}

pub(super) fn digits(field: &str, text: &str) -> Result<[u8; 32], String> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).map_err(|error| format!("{field}: {error}"))?;
    Ok(bytes)
}

pub(super) fn moment(field: &str, text: &str) -> Result<Timestamp, String> {
    time(text).ok_or_else(|| format!("{field}: no RFC 3339 time: {text:?}"))
}

fn time(text: &str) -> Option<Timestamp> {
    let moment = humantime::parse_rfc3339(text).ok()?;
    let micros = moment.duration_since(std::time::UNIX_EPOCH).ok()?.as_micros();
    i64::try_from(micros).ok().map(Timestamp)
}
