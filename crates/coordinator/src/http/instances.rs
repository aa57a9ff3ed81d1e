//! Starting, listing and showing instances.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use everstep_engine::start::{MessageKey, NameKey};
use everstep_protocol::{
    Fingerprint, InstanceId, Millis, Payload, Pin,
    duration::IntoMillis,
    hook::{StartHook, WrittenHook},
    start::{Retention, StartOutcome, StartReply},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::{
    document::{Always, BodyProblems, Conflict, NotFound, shapes},
    extract::{InstancePath, JsonBody, NoQuery, Operation, Strict, WorkflowPath},
    problem::Refusal,
    view::Instance,
};
use crate::{Error, Handle, StartRequest, reply};

/// The application id under which the operation ids of HTTP starts count (rule P27).
const APP_ID: &str = "http";
/// How long an answer may wait for an instance's end.
const WAIT_MAX: Millis = Millis::from_secs(60);

/// What a start says.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = Start)]
#[serde(deny_unknown_fields)]
pub(super) struct StartBody<'a> {
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default, borrow)]
    #[schema(value_type = Option<Value>)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(default)]
    #[schema(value_type = Option<shapes::Retention>)]
    pub(super) retention: Retention,
    #[serde(default)]
    #[schema(value_type = Option<shapes::Pin>)]
    pub(super) pin: Option<Pin>,
    #[serde(default)]
    pub(super) strict: Option<bool>,
    #[serde(default)]
    #[schema(value_type = shapes::Attributes)]
    pub(super) attributes: BTreeMap<String, serde_json::Value>,
    #[serde(default, borrow)]
    #[schema(value_type = Option<shapes::Hook>)]
    pub(super) hook: Option<WrittenHook<&'a RawValue>>,
}

/// Starts an instance.
///
/// With an id, a hook or the header `Idempotency-Key` it can be repeated safely: 201 says that an instance was created, 200 that
/// one with the same input exists, 409 that one with another input does (rule P27).
#[utoipa::path(
    post,
    path = "/v1/{namespace}/workflows/{workflow}/instances",
    operation_id = "start_instance",
    tag = "instances",
    params(WorkflowPath, Operation),
    request_body(content = StartBody, description = "What is asked for"),
    responses((status = 201, description = "Created", body = Done), (status = 200, description = "It exists, with the same input", body = Done), Always, BodyProblems, Conflict)
)]
pub(super) async fn start(
    State(handle): State<Handle>,
    WorkflowPath { namespace, workflow }: WorkflowPath,
    Strict(NoQuery {}): Strict<NoQuery>,
    operation: Operation,
    body: JsonBody,
) -> Result<Response, Refusal> {
    let StartBody { id, input, retention, pin, strict, attributes, hook } = body.read()?;
    let id = id.map(InstanceId::new).transpose()?;
    let input = read_input(input, handle.limits().input_bytes)?;
    let hook = read_hook(hook)?;
    let repeatable = id.is_some() || operation.given || hook.is_some();
    let message = operation.given.then(|| MessageKey {
        namespace: namespace.clone(),
        workflow: workflow.clone(),
        app_id: APP_ID.to_owned(),
        message_id: operation.id,
    });
    let request = StartRequest {
        namespace: namespace.clone(),
        workflow: workflow.clone(),
        id,
        input,
        retention,
        pin,
        strict,
        attributes: everstep_protocol::attribute::read(&attributes)?,
        hook,
        message,
    };
    let asked = request.id.as_ref().map(ToString::to_string);
    let reply = handle.start(request).await.map_err(|error| match error {
        Error::Unknown { .. } => Refusal::Unknown { id: asked, repeatable },
        error => error.into(),
    })?;
    let (status, id) = outcome(reply, repeatable)?;
    started(&handle, status, NameKey { namespace, workflow, id }).await
}

/// The input as it will be stored; null if absent.
pub(super) fn read_input(input: Option<&RawValue>, limit: u64) -> Result<Payload, Refusal> {
    let input = match input {
        None => Payload::null(),
        Some(raw) => Payload::from_text(raw.get()).map_err(Refusal::Input)?,
    };
    let bytes = input.len() as u64;
    if bytes > limit {
        return Err(Refusal::InputTooLarge { bytes, limit });
    }
    // An input without a canonical form cannot be compared with another, so that "exists" would be a guess (rule P27).
    Fingerprint::of(&input).map_err(Refusal::Input)?;
    Ok(input)
}

/// The hook as it will be claimed.
pub(super) fn read_hook(hook: Option<WrittenHook<&RawValue>>) -> Result<Option<StartHook>, Refusal> {
    let checked = hook.map(|hook| hook.check(|raw| Payload::from_text(raw.get()))).transpose();
    checked.map_err(Refusal::from)
}

fn outcome(reply: StartReply, repeatable: bool) -> Result<(StatusCode, InstanceId), Refusal> {
    let StartReply { outcome, id, status, code, message, owner, .. } = reply;
    let known = |id: Option<String>| match id.map(InstanceId::new) {
        Some(Ok(id)) => Ok(id),
        _ => Err(Refusal::Bug("the reply to a start bears no instance id".to_owned())),
    };
    match outcome {
        StartOutcome::Created => Ok((StatusCode::CREATED, known(id)?)),
        StartOutcome::Exists => Ok((StatusCode::OK, known(id)?)),
        StartOutcome::Conflict if owner.is_some() => {
            let detail = message.unwrap_or_else(|| "another instance has the token".to_owned());
            Err(Refusal::HookHeld { owner, detail })
        }
        StartOutcome::Conflict => {
            let id = known(id)?.to_string();
            let status = status.map_or_else(String::new, |status| format!(", it is {status}"));
            let detail =
                message.unwrap_or_else(|| format!("instance {id} exists with another input{status}"));
            Err(Refusal::Conflict { id, detail })
        }
        StartOutcome::Accepted => Err(Refusal::Bug("a start was answered like an event".to_owned())),
        StartOutcome::Rejected if code.as_deref() == Some(reply::NOT_SERVED) => {
            Err(Refusal::NotServed(message.unwrap_or_else(|| "no worker serves the workflow".to_owned())))
        }
        StartOutcome::Rejected => {
            let detail = message.unwrap_or_else(|| "the start can never be accepted".to_owned());
            Err(Refusal::Rejected { code, detail })
        }
        StartOutcome::Unknown => Err(Refusal::Unknown { id, repeatable }),
    }
}

/// The view of what was just started. If it cannot be read now, the start still stands: the answer is its name alone.
async fn started(handle: &Handle, status: StatusCode, name: NameKey) -> Result<Response, Refusal> {
    let path = format!("/v1/{}/workflows/{}/instances/{}", name.namespace, name.workflow, name.id);
    let location = HeaderValue::from_str(&path).map_err(|error| Refusal::Bug(error.to_string()))?;
    Ok((status, [(header::LOCATION, location)], done(handle, &name).await).into_response())
}

/// The instance after something was done to it; its name alone if it cannot be read now.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Done {
    Instance(Box<Instance>),
    Name(NameAlone),
}

/// The name of an instance that cannot be read now: it and nothing else.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NameAlone {
    namespace: String,
    workflow: String,
    id: String,
}

/// The name of an instance.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FullName {
    namespace: String,
    workflow: String,
    id: String,
}

impl From<&NameKey> for FullName {
    fn from(name: &NameKey) -> Self {
        let NameKey { namespace, workflow, id } = name;
        Self { namespace: namespace.to_string(), workflow: workflow.to_string(), id: id.to_string() }
    }
}

/// What is answered after something was done to an instance.
pub(super) async fn done(handle: &Handle, name: &NameKey) -> Response {
    let done = if let Ok(Some(view)) = handle.store().instance(name).await {
        Done::Instance(Box::new(Instance::from(view)))
    } else {
        let FullName { namespace, workflow, id } = FullName::from(name);
        Done::Name(NameAlone { namespace, workflow, id })
    };
    Json(done).into_response()
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct GetQuery {
    /// How long to wait for the end: a duration of at most one minute, such as `30s`
    wait: Option<String>,
}

/// One instance.
///
/// With `wait` the answer comes when it has ended, or after that time.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}",
    operation_id = "get_instance",
    tag = "instances",
    params(InstancePath, GetQuery),
    responses((status = 200, description = "The instance", body = Instance), Always, NotFound)
)]
pub(super) async fn get(
    State(handle): State<Handle>,
    InstancePath(name): InstancePath,
    Strict(query): Strict<GetQuery>,
) -> Result<Json<Instance>, Refusal> {
    let within = query.wait.as_deref().map_or(Ok(Millis::ZERO), read_wait)?;
    let view = handle.ended(&name, within.to_std()).await.map_err(Refusal::Engine)?;
    Ok(Json(Instance::from(view.ok_or_else(|| not_found(&name))?)))
}

fn read_wait(text: &str) -> Result<Millis, Refusal> {
    let wait = text.into_millis().map_err(|error| Refusal::Query(format!("wait: {error}")))?;
    if wait > WAIT_MAX {
        return Err(Refusal::Query(format!("wait {wait} is refused, it must be at most {WAIT_MAX}")));
    }
    Ok(wait)
}

/// There is no instance of this name.
pub(super) fn not_found(name: &NameKey) -> Refusal {
    Refusal::NotFound(format!(
        "there is no instance {} of workflow {} in {}",
        name.id, name.workflow, name.namespace
    ))
}

#[cfg(test)]
mod tests {
    //! Proves what becomes of a start's body and reply. The routes as a whole are tested in tests/http.
    use super::*;

    fn reply(outcome: StartOutcome) -> StartReply {
        let id = Some("o-1".to_owned());
        StartReply {
            outcome,
            workflow: None,
            id,
            status: None,
            code: None,
            message: None,
            owner: None,
            retry_safe: true,
        }
    }

    #[test]
    fn p27_each_outcome_has_its_answer() {
        assert!(matches!(outcome(reply(StartOutcome::Created), false), Ok((StatusCode::CREATED, _))));
        assert!(matches!(outcome(reply(StartOutcome::Exists), false), Ok((StatusCode::OK, _))));
        let conflict = StartReply { status: Some("open".to_owned()), ..reply(StartOutcome::Conflict) };
        let Err(Refusal::Conflict { detail, .. }) = outcome(conflict, false) else { panic!("no conflict") };
        assert_eq!(detail, "instance o-1 exists with another input, it is open");
        let unknown = outcome(reply(StartOutcome::Unknown), true);
        assert!(matches!(unknown, Err(Refusal::Unknown { repeatable: true, .. })));
    }

    #[test]
    fn p04_the_limit_itself_is_accepted_and_blanks_do_not_count() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert!(matches!(read_input(Some(&raw("[1,   2]")), 5), Ok(input) if input.as_str() == "[1,2]"));
        let refused = read_input(Some(&raw("[1,22]")), 5);
        assert!(matches!(refused, Err(Refusal::InputTooLarge { bytes: 6, limit: 5 })));
        assert!(matches!(read_input(None, 5), Ok(input) if input == Payload::null()));
    }
}
