//! Order fulfilment: validate, reserve stock, charge over real HTTP, cool off, print a label on another pool, ship.
//!
//! The payment service fails now and then, also after it has charged. Nobody is charged twice all the same, because every attempt
//! of the charge bears the step's idempotency key.

use std::sync::OnceLock;

use everstep::{Error, Registry, Retry, Step, Workflow};
use serde::{Deserialize, Serialize};

/// The pool that prints labels.
pub const LABEL_POOL: &str = "labels";

/// An order as it comes in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Who ordered.
    pub customer: Customer,
    /// What was ordered.
    pub lines: Vec<Line>,
    /// ISO code of the currency.
    pub currency: String,
    /// What the customer wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether it is urgent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub express: Option<bool>,
    /// The customer's own reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<i64>,
}

/// Who ordered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Customer {
    /// Name.
    pub name: String,
    /// E-mail address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

/// One line of an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The article.
    pub sku: String,
    /// How many.
    pub quantity: i64,
    /// Price of one, in hundredths.
    pub cents: i64,
}

/// What a fulfilled order comes to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Receipt {
    /// The payment's id.
    pub payment: String,
    /// The parcel's tracking code.
    pub tracking: String,
    /// What was charged, in hundredths.
    pub cents: i64,
}

/// What the label pool is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LabelRequest {
    /// The order's id.
    pub order: String,
    /// To whom it goes.
    pub name: String,
    /// How many parcels.
    pub parcels: usize,
}

const CURRENCIES: [&str; 5] = ["EUR", "USD", "GBP", "JPY", "CHF"];
const TOTAL_MAX: i64 = 10_000_000;

/// Fulfils one order.
#[everstep::workflow]
pub async fn fulfil(cx: Workflow, order: Order) -> Result<Receipt, Error> {
    let cents = cx.step("validate", &order, validate).await?;
    let hold: String = cx.step("reserve stock", &order.lines, reserve).await?;
    let charge_request =
        ChargeRequest { order: cx.instance_id().to_string(), cents, currency: order.currency };
    let payment = cx
        .step("charge", charge_request, charge)
        .retry(Retry::exponential("200 ms").limit(8))
        .timeout("10 s")
        .await?;
    cx.sleep("cooling off", "1 second").await?;
    let request = LabelRequest {
        order: cx.instance_id().to_string(),
        name: order.customer.name,
        parcels: order.lines.len(),
    };
    let tracking: String = cx.remote("label", &request).on(LABEL_POOL).await?;
    cx.step("ship", (hold, &tracking), ship).await?;
    Ok(Receipt { payment, tracking, cents })
}

/// The rules that an order must meet; what breaks one can never be fulfilled, so there is nothing to retry.
async fn validate(_step: Step, order: Order) -> Result<i64, Error> {
    let refuse = |rule: String| Err(Error::permanent(rule).named("InvalidOrder"));
    if order.customer.name.trim().is_empty() {
        return refuse("the customer has no name".to_owned());
    }
    if order.customer.email.as_ref().is_some_and(|email| !email.contains('@')) {
        return refuse("the e-mail address has no @".to_owned());
    }
    if !CURRENCIES.contains(&order.currency.as_str()) {
        return refuse(format!("currency {:?} is not taken", order.currency));
    }
    if order.lines.is_empty() {
        return refuse("the order has no lines".to_owned());
    }
    for line in &order.lines {
        if !(1..=10_000).contains(&line.quantity) {
            return refuse(format!("quantity {} of {} is not 1 to 10,000", line.quantity, line.sku));
        }
        if !(1..=1_000_000).contains(&line.cents) {
            return refuse(format!("price {} of {} is not 1 to 1,000,000", line.cents, line.sku));
        }
    }
    let total: i64 = order.lines.iter().map(|line| line.quantity * line.cents).sum();
    if total > TOTAL_MAX {
        return refuse(format!("the total of {total} is over {TOTAL_MAX}"));
    }
    Ok(total)
}

async fn reserve(step: Step, lines: Vec<Line>) -> Result<String, Error> {
    Ok(format!("hold-{}-{}", step.instance_id(), lines.len()))
}

async fn ship(_step: Step, (_hold, tracking): (String, String)) -> Result<String, Error> {
    Ok(format!("shipped {tracking}"))
}

#[derive(Debug, Serialize, Deserialize)]
struct ChargeRequest {
    order: String,
    cents: i64,
    currency: String,
}

async fn charge(step: Step, request: ChargeRequest) -> Result<String, Error> {
    let shop = SHOP.get().ok_or_else(|| Error::permanent("the payment service is not configured"))?;
    let key = shop.key(&step);
    let response = shop
        .client
        .post(format!("{}/charges", shop.payment_url))
        .header("Idempotency-Key", &key)
        .json(&request)
        .send()
        .await?;
    let status = response.status();
    if status.is_client_error() {
        return Err(Error::permanent(response.text().await?).named("PaymentRefused"));
    }
    if !status.is_success() {
        return Err(Error::failed(format!("the payment service answered {status}")));
    }
    Ok(format!("payment-{}", &key[..16]))
}

/// What the workflow's steps need of the world outside.
#[derive(Debug)]
struct Shop {
    payment_url: String,
    client: reqwest::Client,
    fault: Option<Fault>,
}

/// A fault planted on purpose, to show that the demo would notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The idempotency key differs from attempt to attempt.
    AttemptInKey,
}

static SHOP: OnceLock<Shop> = OnceLock::new();

impl Shop {
    fn key(&self, step: &Step) -> String {
        match self.fault {
            None => step.idempotency_key().to_owned(),
            Some(Fault::AttemptInKey) => format!("{}-{}", step.idempotency_key(), step.attempt()),
        }
    }
}

/// Tells the steps of this process where the payment service is. The first call wins.
pub fn configure(payment_url: impl Into<String>, fault: Option<Fault>) {
    let client = reqwest::Client::new();
    // A second configuration in one process is of no use to anybody: steps may already have used the first.
    drop(SHOP.set(Shop { payment_url: payment_url.into(), client, fault }));
}

/// Prints a label, on whichever worker of the pool.
async fn label(step: Step, request: LabelRequest) -> Result<String, Error> {
    Ok(format!("{}-{}-{}", request.order, request.parcels, &step.idempotency_key()[..8]))
}

/// The example workflows and the functions of their pools.
pub fn registry() -> Registry {
    Registry::new().workflow(fulfil).function("label", label)
}
