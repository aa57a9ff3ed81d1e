//! What a saved journal says of attempts that may not simply be made again (rules L5 to L8).

use everstep_protocol::{
    Attempt, Class, Epoch, Millis, Policy, Position,
    journal::{Choice, Fact, Intended, Outcome, Rekeyed, Resolved, Withdrawn},
};

use super::{
    Error, Line,
    read::{digits, need},
    write::raw,
};

impl Line {
    pub(super) fn of_ledger(self) -> Result<Fact, String> {
        Ok(match self.kind.as_str() {
            "intended" => {
                let (marks, policy) = (self.marks(), self.policy()?);
                let input = digits("fingerprint", &need("fingerprint", self.fingerprint)?)?;
                Fact::Intended(Intended {
                    call: need("call", self.call)?,
                    attempt: Attempt(need("attempt", self.attempt)?),
                    called_after: Position(need("called_after", self.called_after)?),
                    key: need("key", self.key)?.parse().map_err(|error| format!("key: {error}"))?,
                    input: everstep_protocol::Fingerprint::from_bytes(input),
                    policy,
                    marks,
                    build: need("build", self.build)?,
                    session: need("session", self.session)?,
                    epoch: Epoch(need("epoch", self.epoch)?),
                })
            }
            "withdrawn" => Fact::Withdrawn(Withdrawn {
                call: need("call", self.call)?,
                attempt: Attempt(need("attempt", self.attempt)?),
            }),
            "rekeyed" => {
                let key =
                    self.key.map(|key| key.parse().map_err(|error| format!("key: {error}"))).transpose()?;
                let kept = match &*need("choice", self.choice)? {
                    "old_key" => Some(need("key", key)?),
                    "new_key" => None,
                    other => return Err(format!("choice: {other:?} is not known")),
                };
                let input = digits("fingerprint", &need("fingerprint", self.fingerprint)?)?;
                let (call, input) =
                    (need("call", self.call)?, everstep_protocol::Fingerprint::from_bytes(input));
                Fact::Rekeyed(Rekeyed { call, input, kept, by: self.by, why: self.why })
            }
            _ => {
                let choice = match need("choice", self.choice.as_deref())? {
                    "done" => Choice::Done(self.output()?),
                    "again" => Choice::Again,
                    "fail" => Choice::Fail(need("error", self.error)?.failure()?),
                    other => return Err(format!("choice: {other:?} is not known")),
                };
                Fact::Resolved(Resolved {
                    call: need("call", self.call)?,
                    attempt: Attempt(need("attempt", self.attempt)?),
                    choice,
                    by: self.by,
                    why: self.why,
                    sensitive: self.sensitive,
                })
            }
        })
    }

    /// The default policy with the class that it has.
    pub(super) fn policy(&self) -> Result<Policy, String> {
        let lag = self.visibility_lag.as_deref().map_or(Ok(Millis::ZERO), Millis::parse);
        let class = match self.class.as_deref() {
            None | Some("keyed") => Class::Keyed,
            Some("lookup") => {
                Class::Lookup { visibility_lag: lag.map_err(|error| format!("visibility_lag: {error}"))? }
            }
            Some("at_most_once") => Class::AtMostOnce,
            Some(other) => return Err(format!("class: {other:?} is not known")),
        };
        Ok(Policy { class, ..Policy::default() })
    }

    /// An outcome that nobody knows.
    pub(super) fn unknown(&mut self) -> Result<Outcome, String> {
        let failure = need("error", self.error.take())?.failure()?;
        Ok(Outcome::Unknown { failure, asks: self.asks, epoch: Epoch(need("epoch", self.epoch)?) })
    }

    pub(super) fn of_class(self, class: Class) -> Self {
        let visibility_lag = match class {
            Class::Lookup { visibility_lag } => Some(visibility_lag.to_string()),
            Class::Keyed | Class::AtMostOnce => None,
        };
        Self { class: class.is_intended().then(|| class.word().to_owned()), visibility_lag, ..self }
    }

    pub(super) fn of_intended(self, intended: &Intended) -> Self {
        Self {
            attempt: Some(intended.attempt.0),
            called_after: Some(intended.called_after.0),
            key: Some(intended.key.to_string()),
            fingerprint: Some(intended.input.to_string()),
            build: Some(intended.build.clone()),
            session: Some(intended.session),
            epoch: Some(intended.epoch.0),
            ..self.marked(intended.marks).of_class(intended.policy.class)
        }
    }

    pub(super) fn of_resolved(self, resolved: &Resolved) -> Self {
        let (output, error) = match &resolved.choice {
            Choice::Done(output) => ((!resolved.sensitive).then(|| raw(output)), None),
            Choice::Again => (None, None),
            Choice::Fail(failure) => {
                (None, Some(Error::of(&failure.clone().of_sensitive(resolved.sensitive))))
            }
        };
        Self {
            attempt: Some(resolved.attempt.0),
            choice: Some(resolved.choice.word().to_owned()),
            by: resolved.by.clone(),
            why: resolved.why.clone(),
            sensitive: resolved.sensitive,
            output,
            error,
            ..self
        }
    }
}
