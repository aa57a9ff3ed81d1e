//! A hook in the making: what may be said of it, and what is refused before anybody is asked (rules H9, H30, H54, H67).

use std::fmt;
use std::marker::PhantomData;

use everstep_protocol::hook::{HookRetention, Registration, Webhook, check_metadata, check_schema};
use everstep_protocol::{FailureKind, Payload, Token};
use serde::Serialize;

use super::{Core, Hook, IntoRetention, check_moment};
use crate::Error;
use crate::call::Pending;
use crate::host::{Created, Numbered, Shared};

/// A hook in the making: [`create`](Self::create) makes it. From [`Workflow::hook`](crate::Workflow::hook).
#[must_use = "nobody has the token until it is created"]
pub struct HookCall<T> {
    pub(super) pending: Pending,
    token: Option<Token>,
    asked: Asked,
    payload: PhantomData<fn() -> T>,
}

#[derive(Default)]
struct Asked {
    retention: Option<HookRetention>,
    metadata: Option<Payload>,
    webhook: Option<Webhook>,
    force: bool,
    schema: Option<Payload>,
}

impl<T> HookCall<T> {
    pub(crate) fn new(pending: Pending) -> Self {
        Self { pending, token: None, asked: Asked::default(), payload: PhantomData }
    }

    /// The token by which it is resumed, of 1 to 256 characters: whoever knows it may resume the hook. One instance of the namespace
    /// has a token at a time. Without it the token is one that nobody can guess, and the same in every replay.
    pub fn token(mut self, token: impl AsRef<str>) -> Self {
        match Token::new(token) {
            Ok(token) => self.token = Some(token),
            Err(error) => self.pending.refuse(FailureKind::Invalid, error),
        }
        self
    }

    /// For how long, from its creation, the token stays this instance's although that has ended: a duration as for a sleep, or a
    /// moment. It holds only for a hook that is never let go, so [`keep`](Hook::keep) it. Default: none, the token is free when the
    /// instance ends.
    pub fn retention(mut self, retention: impl IntoRetention) -> Self {
        match retention.into_retention() {
            Ok(retention) => self.asked.retention = Some(retention),
            Err(error) => self.pending.refuse(FailureKind::Invalid, error),
        }
        self
    }

    /// What whoever looks the token up reads: any value of at most 16 KiB of JSON.
    pub fn metadata(mut self, metadata: &impl Serialize) -> Self {
        self.asked.metadata = encode_metadata(&mut self.pending, metadata);
        self
    }

    /// The JSON Schema that every payload must fit: one that does not is refused when it is sent, and nothing is kept of it (rule
    /// H57). At most 64 KiB of JSON, without references to anything outside of it. A schema that cannot be used fails the awaits of
    /// the hook.
    pub fn schema(mut self, schema: &impl Serialize) -> Self {
        self.asked.schema = encode_schema(&mut self.pending, schema);
        self
    }

    /// The JSON Schema of this type, which need not be the one that the code receives; see [`schema`](Self::schema).
    #[cfg(feature = "schemars")]
    pub fn schema_of<S: schemars::JsonSchema>(self) -> Self {
        self.schema(&schemars::schema_for!(S))
    }

    /// Takes the token from whoever has it (rule H59): from then on this instance receives what the hook is resumed with. The
    /// instance before fails with [`HookTaken`](super::HookTaken) where it awaits the hook, once it has received what came before.
    pub fn force(mut self) -> Self {
        self.asked.force = true;
        self
    }

    /// Anybody who knows the token may resume it over HTTP with the body of a `POST`, and is answered 202 without a body. Code that is
    /// to see the request, or to answer it, creates a [webhook](crate::Workflow::webhook).
    pub fn webhook(mut self) -> Self {
        self.asked.webhook = Some(Webhook::default());
        self
    }

    /// Like [`webhook`](Self::webhook), with an answer of its own: a status of 200 to 599, and a body of plain text.
    pub fn webhook_answering(mut self, status: u16, body: impl Into<String>) -> Self {
        if !(200..=599).contains(&status) {
            let reason = format_args!("webhook status {status} is refused, it must be 200 to 599");
            self.pending.refuse(FailureKind::Invalid, reason);
        }
        let (status, body) = (Some(status), Some(body.into()));
        self.of_webhook(Webhook { status, body, ..Webhook::default() })
    }

    pub(super) fn of_webhook(mut self, webhook: Webhook) -> Self {
        self.asked.webhook = Some(webhook);
        self
    }

    /// Creates the hook. Whether the token is this instance's is known a moment later, without this function waiting for it:
    /// [`conflict`](Hook::conflict) does, and so does [`next`](Hook::next). Steps that are called before that begin all the same
    /// (rule H39).
    ///
    /// The token that the instance was started with is already its own: the hook is that one, as the start made it, and nothing but
    /// the token may be said of it (rules H8, H9).
    ///
    /// # Errors
    /// What is not valid: a token, a retention, metadata; a webhook with a retention or by force; force without a token; a token that
    /// another hook of this instance has. The same call fails the same way again.
    pub fn create(mut self) -> Result<Hook<T>, Error> {
        let is_generated = self.token.is_none();
        let shared = self.pending.shared().clone();
        let (name, what) = (self.pending.name().to_owned(), self.pending.describe());
        if is_generated && self.asked.force {
            self.pending.refuse(FailureKind::Invalid, "force needs a token to take, and none is given");
        }
        let generated = self.pending.call().and_then(|call| crate::random::token(&shared, call.hash()));
        let numbered = self.pending.into_numbered()?;
        let Some(token) = self.token.or(generated) else {
            return Err(Error::permanent("the call has no name").of_kind(FailureKind::Invalid));
        };
        let Asked { retention, metadata, webhook, force, schema } = self.asked;
        let registration = Registration { token: token.clone(), retention, metadata, webhook, force, schema };
        let refused = |reason: &dyn fmt::Display| {
            Error::permanent(format_args!("{what}: {reason}")).of_kind(FailureKind::Invalid).named("Invalid")
        };
        if let Some(contradiction) = registration.contradiction() {
            return Err(refused(&contradiction));
        }
        check_moment(&shared, registration.retention).map_err(|reason| refused(&reason))?;
        let number = numbered.number;
        match create(&shared, numbered, registration) {
            Ok(()) => {
                Ok(Hook { core: Core { shared, number, name, token }, keeps: false, payload: PhantomData })
            }
            Err(reason) => Err(refused(&reason)),
        }
    }
}

/// The metadata of a hook as it is recorded; a call whose metadata cannot be is refused.
pub(in crate::call) fn encode_metadata(pending: &mut Pending, metadata: &impl Serialize) -> Option<Payload> {
    let encoded = Payload::encode(metadata)
        .map_err(|error| {
            pending.refuse(FailureKind::Unserialisable, format_args!("recording the metadata: {error}"));
        })
        .ok()?;
    check_metadata(&encoded).map_err(|error| pending.refuse(FailureKind::Invalid, error)).ok()?;
    Some(encoded)
}

/// The schema of a hook as it is recorded; a call whose schema cannot be is refused.
pub(in crate::call) fn encode_schema(pending: &mut Pending, schema: &impl Serialize) -> Option<Payload> {
    let encoded = Payload::encode(schema).map_err(|error| error.to_string());
    let checked = encoded.and_then(|schema| {
        check_schema(&schema).map_err(|error| error.to_string())?;
        Ok(schema)
    });
    checked.map_err(|reason| pending.refuse(FailureKind::Invalid, reason)).ok()
}

fn create(shared: &Shared, numbered: Numbered, registration: Registration) -> Result<(), String> {
    let token = registration.token.clone();
    match shared.create_hook(numbered, registration) {
        Created::Yes => Ok(()),
        Created::Twice(call) => Err(format!(
            "token {token:?} is refused, {call} of this instance has it; let go of that one first"
        )),
        Created::StartWith(field) => Err(format!(
            "{field} is refused, token {token:?} is the one that the instance was started with, and its hook is as the start made it"
        )),
    }
}

impl<T> fmt::Debug for HookCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookCall").field("call", &self.pending).finish_non_exhaustive()
    }
}
