//! Control operations. Repeating one with the same `Idempotency-Key` gives the first answer (rule W4).

use axum::{extract::State, response::Response};
use everstep_engine::{Answer, start::NameKey};
use serde::Deserialize;

use super::{
    extract::{InstancePath, JsonBody, NoQuery, Operation, Strict},
    instances::{done, not_found},
    problem::Refusal,
};
use crate::Handle;

/// The longest reason that is recorded, in characters.
const REASON_CHARS_MAX: usize = 1000;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TerminateBody {
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryBody {}

/// `POST .../{id}/terminate`, with an optional body `{"reason"}`.
pub(super) async fn terminate(
    State(handle): State<Handle>,
    InstancePath(name): InstancePath,
    Strict(NoQuery {}): Strict<NoQuery>,
    operation: Operation,
    body: JsonBody,
) -> Result<Response, Refusal> {
    let TerminateBody { reason } = body.read()?;
    if reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
        return Err(Refusal::Body(format!("the reason is longer than {REASON_CHARS_MAX} characters")));
    }
    let answer = handle.terminate(name.clone(), operation.id, reason).await?;
    answered(&handle, "terminate", &name, answer).await
}

/// `POST .../{id}/retry`.
pub(super) async fn retry(
    State(handle): State<Handle>,
    InstancePath(name): InstancePath,
    Strict(NoQuery {}): Strict<NoQuery>,
    operation: Operation,
    body: JsonBody,
) -> Result<Response, Refusal> {
    let RetryBody {} = body.read()?;
    let answer = handle.retry(name.clone(), operation.id).await?;
    answered(&handle, "retry", &name, answer).await
}

async fn answered(
    handle: &Handle,
    operation: &'static str,
    name: &NameKey,
    answer: Answer,
) -> Result<Response, Refusal> {
    match answer {
        Answer::Done | Answer::Nothing => Ok(done(handle, name).await),
        Answer::Refused(status) => Err(Refusal::NotAllowed { operation, status }),
        Answer::NotParked => Err(Refusal::NotParked),
        Answer::NotFound => Err(not_found(name)),
        Answer::Granted
        | Answer::NotGranted
        | Answer::Taken
        | Answer::Fenced
        | Answer::FromTheFuture
        | Answer::Parked
        | Answer::Created
        | Answer::Exists(_)
        | Answer::Conflict(_)
        | Answer::EventIdTaken
        | Answer::MailboxFull => Err(Refusal::Bug(format!("{operation} was answered with {answer:?}"))),
    }
}
