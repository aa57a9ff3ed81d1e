//! Hooks: looked up and resumed by their tokens. The body of a resume is the payload; `Idempotency-Key` is the resume id, by which
//! a repetition is known (rule H48).

use axum::{
    Json,
    extract::{FromRequestParts, State},
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use everstep_protocol::{Namespace, Token, journal::Other};
use everstep_store::HookView;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::{
    document::{Always, BodyProblems, Conflict, Full, NotFound},
    events::read_payload,
    extract::{JsonBody, NamespacePath, NoQuery, Operation, Strict, limit, path},
    problem::Refusal,
    view::{InstanceName, raw, time},
};
use crate::{Error, Handle, ResumeRequest, Resumed};

const PAGE_DEFAULT: u32 = 50;
const PAGE_MAX: u32 = 200;

/// `/v1/{namespace}/hooks/{token}/...` and `/hooks/{namespace}/{token}`
#[derive(Debug)]
pub(super) struct HookPath {
    pub(super) namespace: Namespace,
    pub(super) token: Token,
}

impl<S: Sync> FromRequestParts<S> for HookPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let (namespace, token): (String, String) = path(parts).await?;
        Ok(Self { namespace: Namespace::new(namespace)?, token: Token::new(token)? })
    }
}

/// A token and who has it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Hook)]
pub(super) struct Held {
    token: String,
    workflow: String,
    id: String,
    /// The owner's status: open, or how it has ended.
    status: &'static str,
    /// Which hook of its owner it is.
    hook: String,
    since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retain_until: Option<String>,
    /// The owner has ended: it keeps the token by its retention, and cannot be resumed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    retained: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    webhook: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    metadata: Option<Box<RawValue>>,
    /// What every payload must fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    schema: Option<Box<RawValue>>,
    /// From whom it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<InstanceName>)]
    taken_from: Option<Other>,
}

impl From<HookView> for Held {
    fn from(view: HookView) -> Self {
        let HookView { token, hook, status } = view;
        Self {
            token: token.to_string(),
            workflow: hook.name.workflow.to_string(),
            id: hook.name.id.to_string(),
            status: status.word(),
            hook: hook.id.to_string(),
            since: time(hook.since),
            retain_until: hook.retain_until.map(time),
            retained: hook.ended,
            webhook: hook.webhook.is_some(),
            metadata: hook.metadata.as_ref().map(raw),
            schema: hook.schema.as_ref().map(raw),
            taken_from: hook.from,
        }
    }
}

/// Hooks by token, and where to go on.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Hooks)]
pub(super) struct Page {
    hooks: Vec<Held>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// The token after which to go on: the `next` of an earlier page
    #[param(pattern = r"^[^\u0000-\u001f\u007f-\u009f]{1,256}$")]
    after: Option<String>,
    /// How many at most; default 50
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// Tokens and who has them, in the order of the tokens.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/hooks",
    operation_id = "list_hooks",
    tag = "hooks",
    params(NamespacePath, ListQuery),
    responses((status = 200, description = "A page", body = Page), Always)
)]
pub(super) async fn list(
    State(handle): State<Handle>,
    NamespacePath(namespace): NamespacePath,
    Strict(query): Strict<ListQuery>,
) -> Result<Json<Page>, Refusal> {
    let limit = limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let after = query.after.map(Token::new).transpose()?;
    let hooks = handle.store().hooks(&namespace, after.as_ref(), limit).await?;
    let next = (hooks.len() == limit as usize).then(|| hooks.last().map(|last| last.token.to_string()));
    Ok(Json(Page { hooks: hooks.into_iter().map(Held::from).collect(), next: next.flatten() }))
}

/// Who has a token.
///
/// Only advice: who has it may change at any time (rule H56).
#[utoipa::path(
    get,
    path = "/v1/{namespace}/hooks/{token}",
    operation_id = "get_hook",
    tag = "hooks",
    params(HookPath),
    responses((status = 200, description = "The hook", body = Held), Always, NotFound)
)]
pub(super) async fn get(
    State(handle): State<Handle>,
    HookPath { namespace, token }: HookPath,
    Strict(NoQuery {}): Strict<NoQuery>,
) -> Result<Json<Held>, Refusal> {
    let view = handle.store().hook(&namespace, &token).await?;
    Ok(Json(view.ok_or(Refusal::NoHook)?.into()))
}

/// A payload that is kept.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AcceptedResume)]
struct Accepted {
    #[serde(flatten)]
    instance: InstanceName,
    /// The resume id: given, or generated.
    resume: String,
}

/// Resumes a hook.
///
/// The body is the payload, null if empty. `Idempotency-Key` is the resume id (rules H45, H48).
#[utoipa::path(
    post,
    path = "/v1/{namespace}/hooks/{token}/resume",
    operation_id = "resume_hook",
    tag = "hooks",
    params(HookPath, Operation),
    request_body(content = Value, description = "The payload"),
    responses((status = 202, description = "The payload is kept, and its instance is woken", body = Accepted), Always, NotFound, Conflict, BodyProblems, Full)
)]
pub(super) async fn resume(
    State(handle): State<Handle>,
    HookPath { namespace, token }: HookPath,
    Strict(NoQuery {}): Strict<NoQuery>,
    operation: Operation,
    JsonBody(body): JsonBody,
) -> Result<Response, Refusal> {
    let payload = read_payload(&body, handle.limits().event_bytes)?;
    let request = ResumeRequest { namespace, token, id: operation.id.clone(), payload };
    let resumed = handle.resume_hook(request).await.map_err(|error| unknown(error, &operation))?;
    let owner = accepted(resumed, &operation.id, &handle)?;
    let accepted = Accepted { instance: InstanceName::from(&owner), resume: operation.id };
    Ok((StatusCode::ACCEPTED, Json(accepted)).into_response())
}

/// What a resume came to: its owner, or why nothing was kept.
pub(super) fn accepted(resumed: Resumed, id: &str, handle: &Handle) -> Result<Other, Refusal> {
    match resumed {
        Resumed::Accepted { owner } => Ok(owner),
        Resumed::NotFound => Err(Refusal::NoHook),
        Resumed::Unfit(misfit) => Err(misfit.into()),
        Resumed::IdTaken => Err(Refusal::ResumeIdTaken(id.to_owned())),
        Resumed::MailboxFull => Err(Refusal::MailboxFull(handle.limits().events_unread)),
        Resumed::Moved => Err(Refusal::HookMoved),
    }
}

/// Nobody knows whether it was kept.
pub(super) fn unknown(error: Error, operation: &Operation) -> Refusal {
    match error {
        Error::Unknown { .. } => Refusal::EventUnknown { id: operation.id.clone(), given: operation.given },
        error => Refusal::Engine(error),
    }
}
