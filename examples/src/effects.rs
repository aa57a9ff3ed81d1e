//! Four effects on services that cannot be rolled back, each with what its service offers against doing it twice. The samples of
//! `docs/guides/side-effects.md` stand here word for word.

use std::sync::Arc;

use everstep::{Error, Retry, Step, Workflow};
use serde::{Deserialize, Serialize};

/// What is to be paid, by whom and to whom.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Invoice {
    /// Its number.
    pub number: u64,
    /// Whom to write to.
    pub mail: String,
    /// How much.
    pub cents: u64,
}

/// The services that are called.
pub trait Services: Send + Sync + 'static {
    /// Takes money from a card. Answers the same for the same key.
    fn charge(&self, key: &str, cents: u64) -> Result<String, ServiceError>;
    /// Sends a mail. The address and the key make one mail, for a day.
    fn send(&self, key: &str, to: &str, text: &str) -> Result<(), ServiceError>;
    /// Finds a contact of the customer relations by what we wrote into it.
    fn find_contact(&self, external: &str) -> Result<Option<u64>, ServiceError>;
    /// Creates a contact. Twice makes two.
    fn create_contact(&self, external: &str, mail: &str) -> Result<u64, ServiceError>;
    /// Transfers money. No key, and no way to ask.
    fn transfer(&self, reference: &str, cents: u64) -> Result<String, ServiceError>;
}

/// What a service fails with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceError {
    /// It could not be reached: nothing was sent.
    Unreachable,
    /// It said no.
    Refused(String),
    /// The answer did not come.
    NoAnswer,
}

impl From<ServiceError> for Error {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Unreachable => Self::not_sent("the service could not be reached"),
            ServiceError::Refused(why) => Self::refused(why),
            ServiceError::NoAnswer => Self::failed("no answer came"),
        }
    }
}

/// The services, as the workflows of this page have them.
pub type Shared = Arc<dyn Services>;

/// A payment: the provider knows keys. It is what a step is by default, and the step has the key.
pub async fn pay(cx: Workflow, invoice: Invoice, services: Shared) -> Result<String, Error> {
    cx.step("charge", invoice.cents, move |step: Step, cents: u64| {
        let services = services.clone();
        async move { services.charge(step.idempotency_key(), cents) }
    })
    .await
}

/// A payment that several workflows may ask for: it is an instance of its own, whose id is the ledger key.
pub async fn settle(cx: Workflow, invoice: Invoice) -> Result<String, Error> {
    let key = format!("invoice:{}", invoice.number);
    cx.child("pay", "pay", invoice).ledger_key(key).keep_for("400 days").await
}

/// A mail: the provider knows keys for a day, so that no attempt comes later than that.
pub async fn write(cx: Workflow, invoice: Invoice, services: Shared) -> Result<(), Error> {
    cx.step("mail", invoice.mail, move |step: Step, to: String| {
        let services = services.clone();
        async move { services.send(step.idempotency_key(), &to, "Thank you") }
    })
    .retry(Retry::exponential("10s").unlimited().max_elapsed("20 hours"))
    .await
}

/// A contact: no keys, but what is there can be found, up to half a minute after it was made.
pub async fn register(cx: Workflow, invoice: Invoice, services: Shared) -> Result<u64, Error> {
    let create = services.clone();
    cx.step("contact", invoice.mail, move |step: Step, mail: String| {
        let services = create.clone();
        async move { services.create_contact(step.idempotency_key(), &mail) }
    })
    .look_first(move |step: Step, _: String| {
        let services = services.clone();
        async move { services.find_contact(step.idempotency_key()) }
    })
    .visibility_lag("30s")
    .await
}

/// A transfer: no keys, and nobody to ask but a person with the bank's statement.
pub async fn transfer(cx: Workflow, invoice: Invoice, services: Shared) -> Result<String, Error> {
    cx.step("transfer", invoice.cents, move |step: Step, cents: u64| {
        let services = services.clone();
        async move {
            let booking = services.transfer(&format!("invoice {}", invoice.number), cents)?;
            step.reference(&booking);
            Ok::<_, Error>(booking)
        }
    })
    .at_most_once()
    .await
}
