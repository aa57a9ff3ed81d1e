//! Webhooks: hooks that anybody may resume over HTTP, whose requests the code receives, and answers if it likes (rule H58).

mod request;
mod response;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use everstep_protocol::hook::{self as said, Carried};
use everstep_protocol::{CallKind, FailureKind};
use serde::Serialize;

pub use self::request::{RespondCall, WebhookRequest};
pub use self::response::WebhookResponse;
use super::{ConflictCall, Disposal, Hook, HookCall, NextPayload};
use crate::call::Pending;
use crate::{Error, Workflow};

impl Workflow {
    /// A webhook: a hook that anybody who knows its token may resume over HTTP, at `/hooks/{namespace}/{token}`, and whose requests the
    /// code receives. The name is the call's, as of a step.
    ///
    /// ```
    /// # use everstep_sdk::{Error, WebhookResponse, Workflow};
    /// # async fn body(cx: Workflow) -> Result<u64, Error> {
    /// let webhook = cx.webhook("payment").replying().create()?;
    /// cx.publish(&webhook.token())?;
    /// let request = webhook.next().await?;
    /// let cents: u64 = request.json()?;
    /// request.respond(WebhookResponse::new(200).text(format!("{cents} cents, thank you"))).await?;
    /// # Ok(cents) }
    /// ```
    pub fn webhook(&self, name: impl AsRef<str>) -> WebhookCall {
        let pending = Pending::make(self.shared(), CallKind::Hook, name.as_ref());
        let asked = said::Webhook { carries: Carried::Request, ..said::Webhook::default() };
        WebhookCall { hook: HookCall::new(pending), asked }
    }
}

/// A webhook in the making: [`create`](Self::create) makes it. From [`Workflow::webhook`].
#[must_use = "nobody can call it until it is created"]
pub struct WebhookCall {
    hook: HookCall<said::WebhookRequest>,
    asked: said::Webhook,
}

impl WebhookCall {
    /// The token by which it is called, of 1 to 256 characters: whoever knows it may. Without it the token is one that nobody can
    /// guess, and the same in every replay.
    pub fn token(self, token: impl AsRef<str>) -> Self {
        Self { hook: self.hook.token(token), ..self }
    }

    /// What whoever looks the token up reads: any value of at most 16 KiB of JSON.
    pub fn metadata(self, metadata: &impl Serialize) -> Self {
        Self { hook: self.hook.metadata(metadata), ..self }
    }

    /// The JSON Schema that the JSON body of every request must fit; see [`HookCall::schema`].
    pub fn schema(self, schema: &impl Serialize) -> Self {
        Self { hook: self.hook.schema(schema), ..self }
    }

    /// The JSON Schema of this type; see [`schema`](Self::schema).
    #[cfg(feature = "schemars")]
    pub fn schema_of<T: schemars::JsonSchema>(self) -> Self {
        Self { hook: self.hook.schema_of::<T>(), ..self }
    }

    /// The methods that it takes; others are answered 405. Default: `POST`.
    pub fn methods(mut self, methods: impl IntoIterator<Item = said::Method>) -> Self {
        self.asked.methods = methods.into_iter().collect();
        self.asked.methods.sort_unstable();
        self.asked.methods.dedup();
        self
    }

    /// The body of a request stays the text, or the bytes, that it came as, also where it is JSON: for code that checks a signature
    /// of it. [`WebhookRequest::json`] reads it all the same.
    pub fn raw_body(mut self) -> Self {
        self.asked.carries = Carried::RawRequest;
        self
    }

    /// Whoever calls it is answered with this, as soon as the request is safe. Default: 202 without a body.
    pub fn answering(mut self, response: WebhookResponse) -> Self {
        match response.into_said() {
            Ok(said::WebhookResponse { status, headers, body, base64 }) => {
                self.asked = said::Webhook { status: Some(status), headers, body, base64, ..self.asked };
            }
            Err(reason) => self.hook.pending.refuse(FailureKind::Invalid, reason),
        }
        self
    }

    /// The code answers each request with [`WebhookRequest::respond`]. Whoever calls waits for that for a while, 30 seconds unless the
    /// coordinator is set otherwise; what has no answer by then is answered 202, and stays safe.
    pub fn replying(mut self) -> Self {
        self.asked.manual = true;
        self
    }

    /// Creates it; see [`HookCall::create`].
    ///
    /// # Errors
    /// What is not valid: a token, metadata, a schema, an answer; a token that another hook of this instance has. The same call fails
    /// the same way again.
    pub fn create(self) -> Result<Webhook, Error> {
        let Self { mut hook, asked } = self;
        if let Err(error) = asked.check() {
            hook.pending.refuse(FailureKind::Invalid, error);
        }
        let is_answered = !asked.manual;
        Ok(Webhook { hook: hook.of_webhook(asked).create()?, is_answered })
    }
}

/// A webhook of this instance. Like a [`Hook`] it is a guard: when it is dropped the token is free, and who calls then is answered 404.
pub struct Webhook {
    hook: Hook<said::WebhookRequest>,
    /// By what was fixed when it was created.
    is_answered: bool,
}

impl Webhook {
    /// The token by which it is called.
    #[must_use]
    pub fn token(&self) -> &str {
        self.hook.token()
    }

    /// It lasts until the instance ends; see [`Hook::keep`].
    #[must_use = "what is kept is this value, which awaits requests as before"]
    pub fn keep(self) -> Self {
        Self { hook: self.hook.keep(), ..self }
    }

    /// Waits until it is known whether the token is this instance's; see [`Hook::conflict`].
    pub fn conflict(&self) -> ConflictCall {
        self.hook.conflict()
    }

    /// Waits for the next request; see [`Hook::next`], whose errors it has.
    pub fn next(&self) -> NextRequest {
        NextRequest { payload: self.hook.next(), is_answered: self.is_answered }
    }

    /// Lets it go; see [`Hook::dispose`].
    pub fn dispose(&self) -> Disposal {
        self.hook.dispose()
    }
}

/// A wait for the next request of a webhook. From [`Webhook::next`].
#[must_use = "a request is not waited for until this is awaited"]
pub struct NextRequest {
    payload: NextPayload<said::WebhookRequest>,
    is_answered: bool,
}

impl Future for NextRequest {
    type Output = Result<WebhookRequest, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let request = ready!(Pin::new(&mut this.payload).poll(context));
        let core = &this.payload.core;
        Poll::Ready(request.map(|request| WebhookRequest::new(request, core.clone(), this.is_answered)))
    }
}

impl fmt::Debug for WebhookCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WebhookCall").field(&self.hook).finish()
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Webhook").field(&self.hook).finish()
    }
}

impl fmt::Debug for NextRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NextRequest").field(&self.payload).finish()
    }
}
