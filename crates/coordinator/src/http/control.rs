//! Control operations. Repeating one with the same `Idempotency-Key` gives the first answer (rule W4).

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use everstep_engine::{Answer, Operated, bulk::Again, start::NameKey, transition::Operation as Kind};
use everstep_protocol::{BuildName, Call, CallKind, CallName, Millis, Pin};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    act::how,
    document::{Always, BodyProblems, Conflict, NotFound},
    extract::{Acting, Asked, InstancePath, Operation, Strict},
    instances::{Done, FullName, done, not_found},
    problem::Refusal,
};
use crate::Handle;

/// The longest reason that is recorded, in characters.
const REASON_CHARS_MAX: usize = 1000;
/// The longest time that a cancel may give.
const WITHIN_MAX: Millis = Millis(86_400_000);

#[derive(Default, Deserialize, ToSchema)]
#[schema(as = Terminate)]
#[serde(deny_unknown_fields)]
struct TerminateBody {
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    rollback: bool,
}

#[derive(Default, Deserialize, ToSchema)]
#[schema(as = Cancel)]
#[serde(deny_unknown_fields)]
struct CancelBody {
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    within: Option<String>,
    #[serde(default)]
    rollback: bool,
}

#[derive(Default, Deserialize, ToSchema)]
#[schema(as = Restart)]
#[serde(deny_unknown_fields)]
struct RestartBody {
    #[serde(default)]
    from: Option<FromCall>,
    #[serde(default)]
    reuse: bool,
}

/// The call that a restart begins at: a step, its first, unless it says otherwise.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FromCall {
    pub(super) name: String,
    #[serde(default)]
    pub(super) count: Option<u32>,
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(super) kind: Option<CallKind>,
}

#[derive(Default, Deserialize, ToSchema)]
#[schema(as = PinTo)]
#[serde(deny_unknown_fields)]
struct PinBody {
    #[serde(default)]
    build: Option<String>,
}

#[derive(Default, Deserialize, ToSchema)]
#[schema(as = Nothing)]
#[serde(deny_unknown_fields)]
struct EmptyBody {}

#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteQuery {
    /// Terminate it first if it has not ended
    #[serde(default)]
    terminate: bool,
}

/// What was deleted.
#[derive(Debug, Serialize, ToSchema)]
struct Deleted {
    #[serde(flatten)]
    name: FullName,
    deleted: bool,
}

/// Lets what runs of an instance finish, and nothing more begin.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/pause",
    operation_id = "pause_instance",
    tag = "control",
    params(InstancePath, Operation),
    request_body(content = EmptyBody, description = "What is asked for"),
    responses((status = 200, description = "The instance afterwards", body = Done), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn pause(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let EmptyBody {} = body.read()?;
    let answer = handle.pause(name.clone(), operation).await?;
    answered(&handle, Kind::Pause, &name, answer).await
}

/// Lets a paused instance go on.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/resume",
    operation_id = "resume_instance",
    tag = "control",
    params(InstancePath, Operation),
    request_body(content = EmptyBody, description = "What is asked for"),
    responses((status = 200, description = "The instance afterwards", body = Done), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn resume(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let EmptyBody {} = body.read()?;
    let answer = handle.resume(name.clone(), operation).await?;
    answered(&handle, Kind::Resume, &name, answer).await
}

/// Asks an instance to end by itself, with its clean-up.
///
/// What has not ended in time is terminated.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/cancel",
    operation_id = "cancel_instance",
    tag = "control",
    params(InstancePath, Operation),
    request_body(content = CancelBody, description = "What is asked for"),
    responses((status = 200, description = "The instance afterwards", body = Done), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn cancel(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let CancelBody { reason, within, rollback } = body.read()?;
    let reason = checked(reason)?;
    let within = within.map(|text| read_within(&text)).transpose()?;
    let answer = if rollback {
        handle.cancel_and_roll_back(name.clone(), operation, reason, within).await?
    } else {
        handle.cancel(name.clone(), operation, reason, within).await?
    };
    answered(&handle, Kind::Cancel, &name, answer).await
}

/// Ends an instance now, or after its compensations with `rollback`.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/terminate",
    operation_id = "terminate_instance",
    tag = "control",
    params(InstancePath, Operation),
    request_body(content = TerminateBody, description = "What is asked for"),
    responses((status = 200, description = "The instance afterwards", body = Done), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn terminate(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let TerminateBody { reason, rollback } = body.read()?;
    let reason = checked(reason)?;
    if rollback {
        let answer = handle.roll_back(name.clone(), operation, reason).await?;
        return answered(&handle, Kind::Rollback, &name, answer).await;
    }
    let answer = handle.terminate(name.clone(), operation, reason).await?;
    answered(&handle, Kind::Terminate, &name, answer).await
}

/// Lets an instance that is parked in attention go on.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/retry",
    operation_id = "retry_instance",
    tag = "control",
    params(InstancePath, Operation),
    request_body(content = EmptyBody, description = "What is asked for"),
    responses((status = 200, description = "The instance afterwards", body = Done), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn retry(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let EmptyBody {} = body.read()?;
    let answer = handle.retry(name.clone(), operation).await?;
    answered(&handle, Kind::Retry, &name, answer).await
}

/// Lets only workers of one build take an instance up.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/pin",
    operation_id = "pin_instance",
    tag = "control",
    params(InstancePath, Operation),
    request_body(content = PinBody, description = "What is asked for"),
    responses((status = 200, description = "The instance afterwards", body = Done), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn pin(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let PinBody { build } = body.read()?;
    let Some(build) = build else {
        return Err(Refusal::Body("build: it is missing; to let any build have it, unpin it".to_owned()));
    };
    let pin = Some(Pin::Build(BuildName::new(build)?));
    let answer = handle.pin(name.clone(), operation, pin).await?;
    answered(&handle, Kind::Pin, &name, answer).await
}

/// Lets workers of any build take an instance up.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/unpin",
    operation_id = "unpin_instance",
    tag = "control",
    params(InstancePath, Operation),
    request_body(content = EmptyBody, description = "What is asked for"),
    responses((status = 200, description = "The instance afterwards", body = Done), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn unpin(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let EmptyBody {} = body.read()?;
    let answer = handle.pin(name.clone(), operation, None).await?;
    answered(&handle, Kind::Pin, &name, answer).await
}

/// Runs an instance again, in a new run with the same input and keys: from the beginning, or from a step.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/restart",
    operation_id = "restart_instance",
    tag = "control",
    params(InstancePath, Operation),
    request_body(content = RestartBody, description = "What is asked for"),
    responses((status = 200, description = "The instance afterwards", body = Done), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn restart(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let RestartBody { from, reuse } = body.read()?;
    let answer = match how(from, reuse)? {
        Again::Whole => handle.restart(name.clone(), operation, None).await?,
        Again::From(call) => handle.restart(name.clone(), operation, Some(call)).await?,
        Again::Reuse => handle.restart_and_reuse(name.clone(), operation).await?,
    };
    answered(&handle, Kind::Restart, &name, answer).await
}

/// Removes every trace of an ended instance; with `terminate` of one that has not ended too.
#[utoipa::path(
    delete,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}",
    operation_id = "delete_instance",
    tag = "control",
    params(InstancePath, DeleteQuery, Operation),
    responses((status = 200, description = "It is deleted", body = Deleted), Always, NotFound, Conflict)
)]
pub(super) async fn delete(
    Acting(handle): Acting,
    InstancePath(name): InstancePath,
    Strict(DeleteQuery { terminate }): Strict<DeleteQuery>,
    operation: Operation,
) -> Result<Response, Refusal> {
    let answer = handle.delete(name.clone(), operation.id, terminate).await?;
    if answer == Answer::Done {
        return Ok(Json(Deleted { name: FullName::from(&name), deleted: true }).into_response());
    }
    if answer.operated() == Some(Operated::Done) {
        let detail =
            "another operation on this instance was known by it, and is answered as before".to_owned();
        return Err(Refusal::Header { name: "Idempotency-Key", detail });
    }
    answered(&handle, Kind::Delete, &name, answer).await
}

pub(super) fn checked(reason: Option<String>) -> Result<Option<String>, Refusal> {
    if reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
        return Err(Refusal::Body(format!("the reason is longer than {REASON_CHARS_MAX} characters")));
    }
    Ok(reason)
}

pub(super) fn read_within(text: &str) -> Result<Millis, Refusal> {
    let within = Millis::parse(text).map_err(|error| Refusal::Body(format!("within: {error}")))?;
    if within > Millis::ZERO && within <= WITHIN_MAX {
        Ok(within)
    } else {
        Err(Refusal::Body(format!(
            "within {text:?} is refused, it must be more than zero and at most {WITHIN_MAX}"
        )))
    }
}

pub(super) fn call(from: FromCall) -> Result<Call, Refusal> {
    let FromCall { name, count, kind } = from;
    let name = CallName::new(name)?;
    let count = count.unwrap_or(1);
    if count == 0 {
        return Err(Refusal::Body("from.count 0 is refused, calls of a name are counted from 1".to_owned()));
    }
    Ok(Call { kind: kind.unwrap_or(CallKind::Step), name, count })
}

pub(super) async fn answered(
    handle: &Handle,
    operation: Kind,
    name: &NameKey,
    answer: Answer,
) -> Result<Response, Refusal> {
    let operation = operation.word();
    match answer.operated() {
        Some(Operated::Done) => Ok(done(handle, name).await),
        Some(Operated::NotAllowed(status)) => Err(Refusal::NotAllowed { operation, status }),
        Some(Operated::Moved) => Err(Refusal::Moved { operation }),
        Some(Operated::NotParked) => Err(Refusal::NotParked),
        Some(Operated::NotFound) => Err(not_found(name)),
        Some(Operated::NotAsked) => {
            Err(Refusal::NotAsked("it was never asked, or was answered before".to_owned()))
        }
        None => Err(Refusal::Bug(format!("{operation} was answered with {answer:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p30_the_time_of_a_cancel_is_checked() {
        assert!(matches!(read_within("5 min"), Ok(Millis(300_000))));
        for text in ["", "0s", "25 h", "soon"] {
            let Err(Refusal::Body(detail)) = read_within(text) else { panic!("{text:?} is accepted") };
            assert!(detail.starts_with("within"), "{detail}");
        }
    }

    #[test]
    fn p31_a_restart_names_a_call() {
        let of = |text: &str| call(serde_json::from_str(text).unwrap()).map(|call| call.to_string());
        assert_eq!(of(r#"{"name":"charge"}"#).ok().as_deref(), Some("step \"charge\" #1"));
        assert_eq!(of(r#"{"name":"x","count":3,"kind":"sleep"}"#).ok().as_deref(), Some("sleep \"x\" #3"));
        assert!(of(r#"{"name":""}"#).is_err());
        assert!(of(r#"{"name":"x","count":0}"#).is_err());
    }
}
