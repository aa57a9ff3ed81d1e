//! Webhooks: a request becomes the payload of a hook, and whoever sent it is answered as the hook says, or by its code (rule H58).

mod call;
mod carry;

use std::time::Duration;

use bytes::Bytes;
use everstep_engine::hook::{HookRow, ReplyKey};
use everstep_protocol::{
    Namespace, Token,
    hook::{Method, Webhook, WebhookResponse},
};
use everstep_store::Replied;
use tokio::time::Instant;

pub use self::carry::Uncarried;
use self::carry::carry;
use super::{
    Handle,
    hook::{Delivered, Resumed, Sender},
};
use crate::Error;

/// How soon the store is asked for an answer that nobody here has heard of, at first and at last: another coordinator may have taken
/// it.
const LOOK_FIRST: Duration = Duration::from_millis(25);
const LOOK_LAST: Duration = Duration::from_secs(1);

/// A request to a webhook, as it came.
#[derive(Clone, Debug)]
pub struct WebhookCall {
    /// Namespace.
    pub namespace: Namespace,
    /// The webhook's token.
    pub token: Token,
    /// By what a repetition is known.
    pub id: String,
    /// Its method.
    pub method: Method,
    /// Its query, decoded.
    pub query: Vec<(String, String)>,
    /// Its headers. Those that are nobody's business do not get to the code.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Bytes,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookAnswer {
    /// It is kept, and whoever sent it is answered this.
    Response(WebhookResponse),
    /// The webhook takes other methods only, these: nothing was kept.
    Method(String),
    /// Its body cannot be taken: nothing was kept.
    Body(Uncarried),
    /// Nothing was kept, for what a resume says. A hook that is no webhook is not found.
    Not(Resumed),
}

impl WebhookAnswer {
    /// What whoever sent it is answered, if it was kept.
    #[must_use]
    pub const fn response(&self) -> Option<&WebhookResponse> {
        match self {
            Self::Response(response) => Some(response),
            Self::Method(_) | Self::Body(_) | Self::Not(_) => None,
        }
    }
}

/// Why a request is not even sent.
enum Unsent {
    NoWebhook,
    Method(String),
    Body(Uncarried),
}

impl Handle {
    /// Calls a webhook, and answers after the commit that keeps the request and wakes the owner: at once, or when its code has
    /// answered, for which it waits as long as the settings say. The same id with the same method, query and body is kept once, and
    /// answered the same.
    ///
    /// Errors: [`Error::Unknown`] when the decision did not come in time; repeating with the same id is safe.
    pub async fn webhook(&self, call: &WebhookCall) -> Result<WebhookAnswer, Error> {
        let sender = Sender { namespace: &call.namespace, token: &call.token, app_id: "", id: &call.id };
        let limit = self.limits().event_bytes;
        let make = |hook: &HookRow| {
            let webhook = hook.webhook.as_ref().ok_or(Unsent::NoWebhook)?;
            if !webhook.takes(call.method) {
                return Err(Unsent::Method(webhook.allow()));
            }
            carry(call, webhook.carries, limit).map_err(Unsent::Body)
        };
        let (instance, webhook) = match self.deliver(&sender, make).await? {
            Delivered::Accepted { instance, webhook, .. } => (instance, webhook.unwrap_or_default()),
            Delivered::Refused(resumed) => return Ok(WebhookAnswer::Not(resumed)),
            Delivered::Unsent(Unsent::NoWebhook) => return Ok(WebhookAnswer::Not(Resumed::NotFound)),
            Delivered::Unsent(Unsent::Method(allow)) => return Ok(WebhookAnswer::Method(allow)),
            Delivered::Unsent(Unsent::Body(uncarried)) => return Ok(WebhookAnswer::Body(uncarried)),
        };
        if !webhook.manual {
            return Ok(WebhookAnswer::Response(webhook.response()));
        }
        let to = ReplyKey { instance, token: call.token.clone(), id: call.id.clone() };
        let response = self.replied(to).await.unwrap_or_else(|| Webhook::default().response());
        Ok(WebhookAnswer::Response(response))
    }

    /// What the code answers; none if it does not in time, or the coordinator stops. The request is safe all the same.
    async fn replied(&self, to: ReplyKey) -> Option<WebhookResponse> {
        let deadline = Instant::now() + self.shared.settings.webhook_reply_within.to_std();
        // It is waited for before it is looked for, so that no answer falls between.
        let mut place = self.shared.replying.wait(to.clone());
        let mut pause = LOOK_FIRST;
        loop {
            match self.shared.store.reply(&to).await {
                Ok(Replied::With(response)) => return Some(response),
                Ok(Replied::Over) => return None,
                Ok(Replied::NotYet) => {}
                Err(error) => {
                    tracing::warn!(%error, "the answer of a webhook was not looked up; it is looked up again");
                }
            }
            let now = Instant::now();
            if now >= deadline || self.shared.is_stopping() {
                return None;
            }
            tokio::select! {
                biased;
                Ok(response) = &mut place.response => return Some(response),
                () = tokio::time::sleep_until((now + pause).min(deadline)) => {}
            }
            pause = (pause * 2).min(LOOK_LAST);
        }
    }
}
