//! Webhooks: a payment provider that tells what became of a payment, and a shop that answers who asks. The samples of
//! `docs/guides/webhooks.md` stand here word for word.

use everstep::{Error, Hook, WebhookMethod, WebhookResponse, Workflow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a payment provider says of a payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct Payment {
    /// What was paid.
    #[schemars(range(min = 1))]
    pub cents: u64,
}

/// Waits for one payment, whose sender is told that it was taken.
#[everstep::workflow]
pub async fn paying(cx: Workflow, order: u64) -> Result<u64, Error> {
    let paid = cx
        .webhook("paid")
        .schema_of::<Payment>()
        .answering(WebhookResponse::new(200).text("thank you"))
        .create()?;
    cx.publish(&format!("/hooks/default/{}", paid.token()))?;
    let payment: Payment = paid.next().await?.json()?;
    Ok(order + payment.cents)
}

/// Quotes prices until an offer is taken: each caller gets an answer of its own.
#[everstep::workflow]
pub async fn quoting(cx: Workflow, base: u64) -> Result<u64, Error> {
    let methods = [WebhookMethod::Get, WebhookMethod::Post];
    let quotes = cx.webhook("quote").token("quotes").methods(methods).replying().create()?;
    loop {
        let request = quotes.next().await?;
        let pieces: u64 = request.query_value("pieces").and_then(|text| text.parse().ok()).unwrap_or(1);
        let price = base * pieces;
        if request.method() == WebhookMethod::Get {
            request.respond(WebhookResponse::new(200).json(&price)).await?;
        } else {
            request.respond(WebhookResponse::new(201).header("location", "/orders/1").json(&price)).await?;
            return Ok(price);
        }
    }
}

/// Checks the signature of what it is sent, for which it needs the very bytes.
#[everstep::workflow]
pub async fn checking(cx: Workflow, (): ()) -> Result<String, Error> {
    let signed = cx.webhook("signed").token("signed").raw_body().create()?;
    loop {
        let request = signed.next().await?;
        if request.header("x-signature") == Some(signature(&request.text()?).as_str()) {
            return request.text();
        }
    }
}

/// A stand-in: senders use a keyed hash.
fn signature(body: &str) -> String {
    body.len().to_string()
}

/// A hook whose payloads are checked before they are kept, whoever sends them.
#[everstep::workflow]
pub async fn counting(cx: Workflow, token: String) -> Result<u64, Error> {
    let payments: Hook<Payment> = cx.hook("payments").token(token).schema_of::<Payment>().create()?;
    Ok(payments.next().await?.cents)
}
