//! Hooks: looked up and resumed by their tokens. The body of a resume is the payload; `Idempotency-Key` is the resume id, by which
//! a repetition is known (rule H48).

use axum::{
    Json,
    body::Bytes,
    extract::{FromRequestParts, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use everstep_protocol::{Namespace, Payload, Token, hook::Webhook, journal::Other};
use everstep_store::HookView;
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};

use super::{
    events::read_payload,
    extract::{JsonBody, NamespacePath, NoQuery, Operation, Strict, limit, path},
    problem::Refusal,
    view::{raw, time},
};
use crate::{Error, Handle, ResumeRequest, Resumed};

const PAGE_DEFAULT: u32 = 50;
const PAGE_MAX: u32 = 200;

/// `/v1/{namespace}/hooks/{token}/...` and `/hooks/{namespace}/{token}`
#[derive(Debug)]
pub(super) struct HookPath {
    namespace: Namespace,
    token: Token,
}

impl<S: Sync> FromRequestParts<S> for HookPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let (namespace, token): (String, String) = path(parts).await?;
        Ok(Self { namespace: Namespace::new(namespace)?, token: Token::new(token)? })
    }
}

/// A token and who has it.
#[derive(Debug, Serialize)]
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
    metadata: Option<Box<RawValue>>,
    /// From whom it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
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
            taken_from: hook.from,
        }
    }
}

/// Hooks by token, and where to go on.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    hooks: Vec<Held>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    after: Option<String>,
    limit: Option<u32>,
}

/// `GET /v1/{namespace}/hooks`: tokens in their order.
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

/// `GET /v1/{namespace}/hooks/{token}`. Only advice: who has the token may change at any time (rule H56).
pub(super) async fn get(
    State(handle): State<Handle>,
    HookPath { namespace, token }: HookPath,
    Strict(NoQuery {}): Strict<NoQuery>,
) -> Result<Json<Held>, Refusal> {
    let view = handle.store().hook(&namespace, &token).await?;
    Ok(Json(view.ok_or(Refusal::NoHook)?.into()))
}

/// `POST /v1/{namespace}/hooks/{token}/resume`: 202 once the payload is durable and its instance is woken (rule H45).
pub(super) async fn resume(
    State(handle): State<Handle>,
    HookPath { namespace, token }: HookPath,
    Strict(NoQuery {}): Strict<NoQuery>,
    operation: Operation,
    JsonBody(body): JsonBody,
) -> Result<Response, Refusal> {
    let payload = read_payload(&body, handle.limits().event_bytes)?;
    let request = ResumeRequest { namespace, token, id: operation.id.clone(), payload, webhook: false };
    let (owner, _) = resumed(&handle, request, &operation).await?;
    let accepted = json!({ "workflow": owner.workflow, "id": owner.id, "resume": operation.id });
    Ok((StatusCode::ACCEPTED, Json(accepted)).into_response())
}

async fn resumed(
    handle: &Handle,
    request: ResumeRequest,
    operation: &Operation,
) -> Result<(Other, Option<Webhook>), Refusal> {
    let resumed = handle.resume_hook(request).await.map_err(|error| match error {
        Error::Unknown { .. } => Refusal::EventUnknown { id: operation.id.clone(), given: operation.given },
        error => Refusal::Engine(error),
    })?;
    match resumed {
        Resumed::Accepted { owner, webhook } => Ok((owner, webhook)),
        Resumed::NotFound => Err(Refusal::NoHook),
        Resumed::IdTaken => Err(Refusal::ResumeIdTaken(operation.id.clone())),
        Resumed::MailboxFull => Err(Refusal::MailboxFull(handle.limits().events_unread)),
        Resumed::Moved => Err(Refusal::HookMoved),
    }
}

/// `POST /hooks/{namespace}/{token}`: anybody resumes a hook that is a webhook, and is answered as that says (rule H58). A body of
/// JSON is the payload; another is the payload as a text.
pub(super) async fn webhook(
    State(handle): State<Handle>,
    HookPath { namespace, token }: HookPath,
    operation: Operation,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let payload = received(&headers, &body, handle.limits().event_bytes)?;
    let request = ResumeRequest { namespace, token, id: operation.id.clone(), payload, webhook: true };
    let (_, webhook) = resumed(&handle, request, &operation).await?;
    answer(webhook.unwrap_or_default())
}

fn received(headers: &HeaderMap, body: &Bytes, limit: u64) -> Result<Payload, Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" || kind.ends_with("+json") {
        return read_payload(body, limit);
    }
    let text = std::str::from_utf8(body)
        .map_err(|_| Refusal::Body("the body is neither JSON nor text in UTF-8".to_owned()))?;
    let payload = Payload::encode(text).map_err(Refusal::Payload)?;
    let bytes = payload.len() as u64;
    if bytes > limit { Err(Refusal::PayloadTooLarge { bytes, limit }) } else { Ok(payload) }
}

fn answer(webhook: Webhook) -> Result<Response, Refusal> {
    let status = webhook.status.map_or(Ok(StatusCode::ACCEPTED), StatusCode::from_u16);
    let status = status.map_err(|error| Refusal::Bug(error.to_string()))?;
    let Some(body) = webhook.body else { return Ok(status.into_response()) };
    let kind = webhook.content_type.unwrap_or_else(|| "text/plain; charset=utf-8".to_owned());
    let kind = HeaderValue::from_str(&kind).map_err(|error| Refusal::Bug(error.to_string()))?;
    Ok((status, [(header::CONTENT_TYPE, kind)], body).into_response())
}
