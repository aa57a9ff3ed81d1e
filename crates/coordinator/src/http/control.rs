//! Control operations. Repeating one with the same `Idempotency-Key` gives the first answer (rule W4).

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use everstep_engine::{Answer, Operated, bulk::Again, start::NameKey, transition::Operation as Kind};
use everstep_protocol::{BuildName, Call, CallKind, CallName, Millis, Pin};
use serde::Deserialize;
use serde_json::json;

use super::{
    act::how,
    extract::{Asked, InstancePath, Operation, Strict},
    instances::{done, not_found},
    problem::Refusal,
};
use crate::Handle;

/// The longest reason that is recorded, in characters.
const REASON_CHARS_MAX: usize = 1000;
/// The longest time that a cancel may give.
const WITHIN_MAX: Millis = Millis(86_400_000);

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TerminateBody {
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    rollback: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelBody {
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    within: Option<String>,
    #[serde(default)]
    rollback: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RestartBody {
    #[serde(default)]
    from: Option<FromCall>,
    #[serde(default)]
    reuse: bool,
}

/// The call that a restart begins at: a step, its first, unless it says otherwise.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FromCall {
    pub(super) name: String,
    #[serde(default)]
    pub(super) count: Option<u32>,
    #[serde(default)]
    pub(super) kind: Option<CallKind>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PinBody {
    #[serde(default)]
    build: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyBody {}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteQuery {
    #[serde(default)]
    terminate: bool,
}

/// `POST .../{id}/pause`.
pub(super) async fn pause(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let EmptyBody {} = body.read()?;
    let answer = handle.pause(name.clone(), operation).await?;
    answered(&handle, Kind::Pause, &name, answer).await
}

/// `POST .../{id}/resume`.
pub(super) async fn resume(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let EmptyBody {} = body.read()?;
    let answer = handle.resume(name.clone(), operation).await?;
    answered(&handle, Kind::Resume, &name, answer).await
}

/// `POST .../{id}/cancel`, with an optional body `{"reason", "within", "rollback"}`; `within` is a duration such as `5 min`.
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

/// `POST .../{id}/terminate`, with an optional body `{"reason", "rollback"}`.
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

/// `POST .../{id}/retry`.
pub(super) async fn retry(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let EmptyBody {} = body.read()?;
    let answer = handle.retry(name.clone(), operation).await?;
    answered(&handle, Kind::Retry, &name, answer).await
}

/// `POST .../{id}/pin`, with a body `{"build"}`.
pub(super) async fn pin(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let PinBody { build } = body.read()?;
    let Some(build) = build else {
        return Err(Refusal::Body("build: it is missing; to let any build have it, unpin it".to_owned()));
    };
    let pin = Some(Pin::Build(BuildName::new(build)?));
    let answer = handle.pin(name.clone(), operation, pin).await?;
    answered(&handle, Kind::Pin, &name, answer).await
}

/// `POST .../{id}/unpin`.
pub(super) async fn unpin(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let EmptyBody {} = body.read()?;
    let answer = handle.pin(name.clone(), operation, None).await?;
    answered(&handle, Kind::Pin, &name, answer).await
}

/// `POST .../{id}/restart`, with an optional body `{"from": {"name", "count", "kind"}}` or `{"reuse": true}`.
pub(super) async fn restart(Asked { handle, name, operation, body }: Asked) -> Result<Response, Refusal> {
    let RestartBody { from, reuse } = body.read()?;
    let answer = match how(from, reuse)? {
        Again::Whole => handle.restart(name.clone(), operation, None).await?,
        Again::From(call) => handle.restart(name.clone(), operation, Some(call)).await?,
        Again::Reuse => handle.restart_and_reuse(name.clone(), operation).await?,
    };
    answered(&handle, Kind::Restart, &name, answer).await
}

/// `DELETE .../{id}`, with `?terminate=true` for one that has not ended.
pub(super) async fn delete(
    State(handle): State<Handle>,
    InstancePath(name): InstancePath,
    Strict(DeleteQuery { terminate }): Strict<DeleteQuery>,
    operation: Operation,
) -> Result<Response, Refusal> {
    let answer = handle.delete(name.clone(), operation.id, terminate).await?;
    if answer == Answer::Done {
        let NameKey { namespace, workflow, id } = name;
        return Ok(Json(json!({"namespace": namespace, "workflow": workflow, "id": id, "deleted": true}))
            .into_response());
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
