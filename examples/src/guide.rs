//! The samples of the guide for authors, `docs/guides/authors.md`: each of them stands here word for word, so that it compiles, and a
//! test looks for it. A trip is booked: flight, hotel and car, a payment, and a day of departure.

#![allow(clippy::unused_async, reason = "what the steps call is async, as it would be if it did anything")]

use everstep::{
    Compensation, Either, Error, FailureKind, Retry, SendEvent, Step, StepOutcome, Undo, Workflow,
    client::{Client, OperationError, ResultError},
};
use serde::{Deserialize, Serialize};

/// What is booked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trip {
    /// Who travels.
    pub traveller: String,
    /// Where the days begin.
    pub flight: String,
    /// Where the nights are.
    pub hotel: String,
    /// What it costs, in hundredths.
    pub cents: u64,
}

/// Something that is held until it is given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// What the service calls it.
    pub id: String,
}

/// Errors and retries: what is retried, what is not, and what is done instead.
pub async fn pay(cx: &Workflow, trip: &Trip) -> Result<String, Error> {
    let paid = cx
        .step("charge", (&trip.traveller, trip.cents), charge)
        .retry(Retry::exponential("10s").limit(5))
        .timeout("2 min")
        .await;
    match paid {
        Ok(payment) => Ok(payment),
        Err(error) if error.name() == "CardDeclined" => cx.step("invoice", trip, invoice).await,
        Err(error) if error.kind() == FailureKind::TimedOut => Err(error.named("BankAway")),
        Err(error) => Err(error),
    }
}

/// An attempt: its error says whether another may follow.
pub async fn charge(step: Step, (traveller, cents): (String, u64)) -> Result<String, Error> {
    match bank(&traveller, cents, step.idempotency_key()).await {
        402 => Err(Error::permanent("the card was declined").named("CardDeclined")),
        429 => Err(Error::failed("too many at once").retry_after("30s")),
        503 => Err(Error::failed("the bank is away")),
        _ => Ok(format!("payment of {cents}")),
    }
}

/// Waiting: for an answer or for the end of patience, and for a moment.
pub async fn approved(cx: &Workflow, trip: &Trip) -> Result<bool, Error> {
    if trip.cents < 100_000 {
        return Ok(true);
    }
    cx.step("ask", trip, ask).await?;
    let answer = cx.event::<bool>("approval").timeout("2 days").await;
    match answer {
        Ok(approved) => Ok(approved),
        Err(error) if error.is_timed_out() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Parallel work: both at once, and one against a deadline.
pub async fn look_up(cx: &Workflow, trip: &Trip) -> Result<(u64, Option<u64>), Error> {
    let nights = cx.join_all(["mon", "tue", "wed"].map(|day| cx.step("price", (trip, day), price))).await;
    let nights: u64 = nights.into_iter().collect::<Result<Vec<u64>, _>>()?.into_iter().sum();
    let offer = match cx.either(cx.step("offer", trip, offer), cx.sleep("patience", "10 min")).await {
        Either::First(offer) => Some(offer?),
        Either::Second(_) => None,
    };
    Ok((nights, offer))
}

/// A saga: what is booked is given back if the trip comes to nothing.
#[everstep::workflow]
pub async fn book(cx: Workflow, trip: Trip) -> Result<String, Error> {
    let release = Compensation::new(release_hotel).retry(Retry::constant("1 min").limit(60));
    let flight: Hold = cx.step("flight", &trip.flight, hold_flight).compensate(release_flight).await?;
    let hotel: Hold = cx.step("hotel", &trip.hotel, hold_hotel).compensate_with(release).await?;
    if !approved(&cx, &trip).await? {
        return Err(Error::failed("nobody approved it").named("NotApproved"));
    }
    let payment = pay(&cx, &trip).await?;
    cx.step("confirm", (&flight, &hotel), confirm).await?;
    cx.step("tell", (&trip.traveller, &payment), tell).await
}

/// Takes a flight back, whatever became of its booking.
pub async fn release_flight(step: Step, undo: Undo<String, Hold>) -> Result<(), Error> {
    match undo.outcome {
        StepOutcome::Completed(hold) => release(&hold.id).await,
        // Nobody knows whether it was held: the airline looks it up by the key of the step.
        StepOutcome::Failed(_) | StepOutcome::Unknown => release_by_key(step.undoes()).await,
    }
}

/// A token that no view, log or export shows.
pub async fn log_in(cx: &Workflow, trip: &Trip) -> Result<u64, Error> {
    let token: String = cx.step("log in", &trip.traveller, fetch_token).sensitive().await?;
    cx.step("miles", &token, miles).await
}

/// A change of the code that open instances do not take.
pub async fn say_goodbye(cx: &Workflow, trip: &Trip) -> Result<String, Error> {
    if cx.patched("goodbye by push").await? {
        cx.step("push", (&trip.traveller, "bon voyage"), tell).await
    } else {
        cx.step("mail", (&trip.traveller, "bon voyage"), tell).await
    }
}

async fn bank(_traveller: &str, _cents: u64, _key: &str) -> u16 {
    200
}

async fn invoice(_step: Step, trip: Trip) -> Result<String, Error> {
    Ok(format!("invoice to {}", trip.traveller))
}

async fn ask(_step: Step, _trip: Trip) -> Result<(), Error> {
    Ok(())
}

async fn price(_step: Step, (_trip, _day): (Trip, String)) -> Result<u64, Error> {
    Ok(100)
}

async fn offer(_step: Step, _trip: Trip) -> Result<u64, Error> {
    Ok(250)
}

async fn hold_flight(_step: Step, flight: String) -> Result<Hold, Error> {
    Ok(Hold { id: flight })
}

async fn hold_hotel(_step: Step, hotel: String) -> Result<Hold, Error> {
    Ok(Hold { id: hotel })
}

async fn release_hotel(step: Step, _: Undo<String, Hold>) -> Result<(), Error> {
    release_by_key(step.undoes()).await
}

async fn release(_hold: &str) -> Result<(), Error> {
    Ok(())
}

async fn release_by_key(_key: Option<&str>) -> Result<(), Error> {
    Ok(())
}

async fn confirm(_step: Step, (_flight, _hotel): (Hold, Hold)) -> Result<(), Error> {
    Ok(())
}

async fn tell(_step: Step, (traveller, what): (String, String)) -> Result<String, Error> {
    Ok(format!("{what}, {traveller}"))
}

async fn fetch_token(_step: Step, traveller: String) -> Result<String, Error> {
    Ok(format!("token of {traveller}"))
}

async fn miles(_step: Step, token: String) -> Result<u64, Error> {
    Ok(token.len() as u64)
}

/// From outside: starts, and waits for the end.
pub async fn book_and_wait(client: &Client, trip: &Trip) -> Result<String, ResultError> {
    let booking = client.start("book", Some("trip-17"), trip).await?;
    match booking.result().await {
        Err(ResultError::Errored { error, .. }) if error.name() == "NotApproved" => {
            Ok("nobody approved".to_owned())
        }
        other => other,
    }
}

/// From outside: an event for an instance that somebody else has started.
pub async fn approve(client: &Client, trip: &str, approved: bool) -> Result<(), OperationError> {
    let booking = client.handle("book", trip)?;
    booking.send_event(&SendEvent::new("approval").id("by the manager"), &approved).await
}
