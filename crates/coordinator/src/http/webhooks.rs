//! Webhooks: anybody who knows the token resumes the hook with a request, and is answered as the hook says (rule H58). There is no access
//! token here: the hook's token is the secret.

use axum::{
    body::{Body, Bytes},
    extract::{Query, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::any,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use everstep_protocol::hook::{self, WebhookResponse};
use utoipa_axum::router::OpenApiRouter;

use super::{
    document::{Always, BodyProblems, Conflict, Full, NotFound},
    extract::{Operation, sender_id},
    hooks::{HookPath, accepted, unknown},
    problem::Refusal,
};
use crate::{Handle, Uncarried, WebhookAnswer, WebhookCall};

/// The route of webhooks. It takes every method there is, more than the document can name.
pub(super) fn routes() -> OpenApiRouter<Handle> {
    let (schemas, paths, _) = utoipa_axum::routes!(call);
    OpenApiRouter::new().routes((schemas, paths, any(call)))
}

/// Calls a webhook: anybody who has the token may, and the workflow's code or its hook says what is answered.
///
/// Other methods than these go there too, where the hook takes them. `Idempotency-Key` or `Webhook-Id` is what a repetition is
/// known by (rule H58).
#[utoipa::path(
    method(get, post, put, patch, delete),
    path = "/hooks/{namespace}/{token}",
    operation_id = "call_webhook",
    tag = "hooks",
    params(HookPath, Operation, ("Webhook-Id" = Option<String>, Header, description = "The same, by Standard Webhooks", pattern = r"^[\x21-\x7e]{1,100}$")),
    request_body(content = Vec<u8>, description = "Anything; the payload holds it", content_type = "*/*"),
    responses(
        (status = "2XX", description = "What the hook, or the code, answers: other statuses than these too"),
        (status = 405, description = "`wrong_method`: the webhook takes other methods, which `Allow` names"),
        Always, NotFound, Conflict, BodyProblems, Full
    )
)]
pub(super) async fn call(
    State(handle): State<Handle>,
    HookPath { namespace, token }: HookPath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let operation = sender_id(&headers)?;
    let id = operation.id.clone();
    // Of a method that no webhook takes nothing is kept, whatever the token.
    let Some(method) = hook::Method::of(method.as_str()) else {
        let allow = hook::Method::ALL.map(hook::Method::word).join(", ");
        return Err(Refusal::WebhookMethod { method: method.to_string(), allow });
    };
    let Query(query) = Query::<Vec<(String, String)>>::try_from_uri(&uri)
        .map_err(|rejection| Refusal::Query(rejection.body_text()))?;
    // A header that is no text has no place in JSON.
    let text = |(name, value): (&HeaderName, &HeaderValue)| {
        Some((name.to_string(), value.to_str().ok()?.to_owned()))
    };
    let headers = headers.iter().filter_map(text).collect();
    let call = WebhookCall { namespace, token, id, method, query, headers, body };
    match handle.webhook(&call).await.map_err(|error| unknown(error, &operation))? {
        WebhookAnswer::Response(response) => answer(response),
        WebhookAnswer::Method(allow) => Err(Refusal::WebhookMethod { method: method.to_string(), allow }),
        WebhookAnswer::Body(uncarried) => Err(uncarried.into()),
        WebhookAnswer::Not(resumed) => {
            accepted(resumed, &operation.id, &handle)?;
            Err(Refusal::Bug("a webhook was accepted without an answer".to_owned()))
        }
    }
}

impl From<Uncarried> for Refusal {
    fn from(uncarried: Uncarried) -> Self {
        match uncarried {
            Uncarried::Json(error) => Self::Payload(error),
            Uncarried::NoText => Self::Body(uncarried.to_string()),
            Uncarried::Headers(_) => Self::Header { name: "of the request", detail: uncarried.to_string() },
            Uncarried::TooLarge { bytes, limit } => Self::PayloadTooLarge { bytes, limit },
        }
    }
}

/// What was checked before it was kept, so that an answer that HTTP will not take is a bug.
fn answer(response: WebhookResponse) -> Result<Response, Refusal> {
    fn bug(error: &dyn std::fmt::Display) -> Refusal {
        Refusal::Bug(format!("the answer of a webhook: {error}"))
    }
    let WebhookResponse { status, headers, body, base64 } = response;
    let body = body.unwrap_or_default();
    let body = if base64 { STANDARD.decode(body).map_err(|error| bug(&error))? } else { body.into_bytes() };
    let mut answer = StatusCode::from_u16(status).map_err(|error| bug(&error))?.into_response();
    *answer.body_mut() = Body::from(body);
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| bug(&error))?;
        answer.headers_mut().append(name, HeaderValue::from_str(&value).map_err(|error| bug(&error))?);
    }
    Ok(answer)
}
