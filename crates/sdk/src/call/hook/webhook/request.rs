//! A request, as the code of its webhook receives and answers it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use everstep_protocol::hook::{self as said, BodyEncoding};
use everstep_protocol::{CallKind, FailureKind, journal::Reply};
use serde::de::DeserializeOwned;

use super::super::Core;
use super::WebhookResponse;
use crate::Error;
use crate::call::Pending;
use crate::host::Spec;

/// The name of the error of a body that is not what the code asks for.
const BODY: &str = "WebhookBody";

/// A request that a webhook was called with. From [`Webhook::next`](super::Webhook::next).
///
/// Headers that say who may do what (`authorization`, `cookie` and their like), and those of the way that the request took, are not in
/// it: what is received stands in the journal.
pub struct WebhookRequest {
    said: said::WebhookRequest,
    core: Core,
    /// It has its answer. Another await that gets the same request again, since nobody has received it, begins anew.
    is_answered: Arc<AtomicBool>,
    /// By what was fixed when the webhook was created.
    is_fixed: bool,
}

impl WebhookRequest {
    pub(super) fn new(said: said::WebhookRequest, core: Core, is_fixed: bool) -> Self {
        Self { said, core, is_answered: Arc::default(), is_fixed }
    }

    /// By what a repetition of it is known: the caller's `Idempotency-Key` or `Webhook-Id`, or an id of its own. A request that comes
    /// again is not received again, and is answered the same.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.said.id
    }

    /// Its method.
    #[must_use]
    pub const fn method(&self) -> said::Method {
        self.said.method
    }

    /// Its query, decoded, in its order.
    #[must_use]
    pub fn query(&self) -> &[(String, String)] {
        &self.said.query
    }

    /// The first value of this name in its query.
    #[must_use]
    pub fn query_value(&self, name: &str) -> Option<&str> {
        self.said.query.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// A header, whose name may be written in any way; of one that came several times the values with commas between.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.said.headers.get(&name.to_ascii_lowercase()).map(String::as_str)
    }

    /// The headers, by their names in small letters.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.said.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// One with the name `WebhookBody` if it is none, or none that fits.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let read = |text: &str| serde_json::from_str(text).map_err(|error| self.misfit(&error));
        match (&self.said.body, self.said.encoding) {
            (Some(body), Some(BodyEncoding::Json)) => read(body.get()),
            (None, _) => read("null"),
            (Some(_), _) => read(&self.text()?),
        }
    }

    /// The body as text; empty if there is none. Of a body of JSON it is the compact form, unless the webhook was created with
    /// [`raw_body`](super::WebhookCall::raw_body).
    ///
    /// # Errors
    /// One with the name `WebhookBody` if it is bytes that are no text.
    pub fn text(&self) -> Result<String, Error> {
        match (&self.said.body, self.said.encoding) {
            (None, _) => Ok(String::new()),
            (Some(body), Some(BodyEncoding::Json)) => Ok(body.get().to_owned()),
            (Some(_), Some(BodyEncoding::Base64)) => Err(self.misfit(&"it is bytes that are no text")),
            (Some(body), Some(BodyEncoding::Text) | None) => {
                serde_json::from_str(body.get()).map_err(|error| self.misfit(&error))
            }
        }
    }

    /// The body as bytes; see [`text`](Self::text).
    ///
    /// # Errors
    /// One with the name `WebhookBody` if the payload is none that a coordinator has made.
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        match (&self.said.body, self.said.encoding) {
            (Some(body), Some(BodyEncoding::Base64)) => {
                let text: String = serde_json::from_str(body.get()).map_err(|error| self.misfit(&error))?;
                STANDARD.decode(text).map_err(|error| self.misfit(&error))
            }
            _ => Ok(self.text()?.into_bytes()),
        }
    }

    /// Answers whoever sent it; ready when that is on record. It is said once, and not again in a replay: whoever sends the request
    /// again is answered the same. An answer that comes when nobody waits for it any more harms nothing.
    ///
    /// Errors, when it is awaited: the request was answered before, the webhook was not created with
    /// [`replying`](super::WebhookCall::replying), or the answer is not acceptable. Nothing is answered then.
    pub fn respond(&self, response: WebhookResponse) -> RespondCall {
        let mut pending = Pending::make(&self.core.shared, CallKind::Reply, &self.core.name);
        if self.is_fixed {
            let reason =
                "the webhook is answered by what was fixed when it was created; create it with replying()";
            pending.refuse(FailureKind::Invalid, reason);
        }
        let response = response.into_said().map_err(|error| pending.refuse(FailureKind::Invalid, error));
        let (token, id) = (self.core.token.clone(), self.said.id.clone());
        let reply = response.ok().map(|response| Reply { token, id, response });
        RespondCall { pending, reply, is_answered: Arc::clone(&self.is_answered) }
    }

    fn misfit(&self, reason: &dyn fmt::Display) -> Error {
        let what = self.core.describe();
        Error::permanent(format_args!("{what}: reading the body of a request: {reason}"))
            .of_kind(FailureKind::Invalid)
            .named(BODY)
    }
}

/// The answer to a request. From [`WebhookRequest::respond`].
#[must_use = "nothing is answered until this is awaited"]
pub struct RespondCall {
    pending: Pending,
    reply: Option<Reply>,
    is_answered: Arc<AtomicBool>,
}

impl Future for RespondCall {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pending, reply, is_answered } = self.get_mut();
        // What counts is which answer begins first, which every replay knows alike.
        if pending.is_made() && is_answered.swap(true, Ordering::Relaxed) {
            pending.refuse(
                FailureKind::Invalid,
                "the request was answered before, and one answer is all it has",
            );
        }
        let outcome =
            ready!(pending.poll(context, || {
                Spec::Reply(reply.take().expect("a call without an answer was refused"))
            }));
        Poll::Ready(outcome.map(|_| ()))
    }
}

/// Not what it says, which may be anything.
impl fmt::Debug for WebhookRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = self.said.method.word();
        f.debug_struct("WebhookRequest")
            .field("hook", &self.core)
            .field("method", &method)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RespondCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RespondCall").field(&self.pending).finish()
    }
}
