//! What is read from a request: names of the path, a strict query, the operation id, a JSON body. Parsed once, here.

use std::convert::Infallible;

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, StatusCode, header, request::Parts},
};
use everstep_engine::{access::Asker, start::NameKey};
use everstep_protocol::{EventType, InstanceId, Namespace, Position, Timestamp, WorkflowName};
use serde::{Deserialize, de::DeserializeOwned};
use uuid::Uuid;

use super::problem::Refusal;
use crate::Handle;

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
const WEBHOOK_ID: &str = "Webhook-Id";
const OPERATION_LEN_MAX: usize = 100;

pub(super) async fn path<T: DeserializeOwned + Send>(parts: &mut Parts) -> Result<T, Refusal> {
    match Path::<T>::from_request_parts(parts, &()).await {
        Ok(Path(names)) => Ok(names),
        Err(rejection) => Err(Refusal::Path(rejection.body_text())),
    }
}

/// `/v1/{namespace}/...`
#[derive(Debug)]
pub(super) struct NamespacePath(pub(super) Namespace);

impl<S: Sync> FromRequestParts<S> for NamespacePath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let namespace: String = path(parts).await?;
        Ok(Self(Namespace::new(namespace)?))
    }
}

/// `/v1/{namespace}/workflows/{workflow}/...`
#[derive(Debug)]
pub(super) struct WorkflowPath {
    pub(super) namespace: Namespace,
    pub(super) workflow: WorkflowName,
}

impl<S: Sync> FromRequestParts<S> for WorkflowPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let (namespace, workflow): (String, String) = path(parts).await?;
        Ok(Self { namespace: Namespace::new(namespace)?, workflow: WorkflowName::new(workflow)? })
    }
}

/// `/v1/{namespace}/workflows/{workflow}/instances/{id}/...`
#[derive(Debug)]
pub(super) struct InstancePath(pub(super) NameKey);

impl<S: Sync> FromRequestParts<S> for InstancePath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let (namespace, workflow, id): (String, String, String) = path(parts).await?;
        let namespace = Namespace::new(namespace)?;
        Ok(Self(NameKey { namespace, workflow: WorkflowName::new(workflow)?, id: InstanceId::new(id)? }))
    }
}

/// `/v1/{namespace}/workflows/{workflow}/instances/{id}/events/{type}`
#[derive(Debug)]
pub(super) struct EventPath {
    pub(super) name: NameKey,
    pub(super) kind: EventType,
}

impl<S: Sync> FromRequestParts<S> for EventPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let (namespace, workflow, id, kind): (String, String, String, String) = path(parts).await?;
        let namespace = Namespace::new(namespace)?;
        let name = NameKey { namespace, workflow: WorkflowName::new(workflow)?, id: InstanceId::new(id)? };
        Ok(Self { name, kind: EventType::new(kind)? })
    }
}

/// `/v1/{namespace}/bulk/{id}/...`
#[derive(Debug)]
pub(super) struct BulkPath {
    pub(super) namespace: Namespace,
    pub(super) id: InstanceId,
}

impl<S: Sync> FromRequestParts<S> for BulkPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let (namespace, id): (String, String) = path(parts).await?;
        Ok(Self { namespace: Namespace::new(namespace)?, id: InstanceId::new(id)? })
    }
}

/// A query; fields that its type does not know are refused.
#[derive(Debug)]
pub(super) struct Strict<T>(pub(super) T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Strict<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query)),
            Err(rejection) => Err(Refusal::Query(rejection.body_text())),
        }
    }
}

/// For routes without a query of their own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoQuery {}

/// Checks a page's size.
pub(super) fn limit(wanted: Option<u32>, default: u32, max: u32) -> Result<u32, Refusal> {
    match wanted {
        None => Ok(default),
        Some(limit) if (1..=max).contains(&limit) => Ok(limit),
        Some(limit) => Err(Refusal::Query(format!("limit {limit} is refused, it must be 1 to {max}"))),
    }
}

/// The position after which a page begins. What stores count with has a sign.
pub(super) fn after(wanted: Option<u64>) -> Result<Position, Refusal> {
    let position = wanted.unwrap_or(0);
    if i64::try_from(position).is_err() {
        return Err(Refusal::Query(format!("after {position} is refused, it must be 0 to {}", i64::MAX)));
    }
    Ok(Position(position))
}

/// A moment, by RFC 3339. The error names the field.
pub(super) fn moment(field: &str, text: &str) -> Result<Timestamp, String> {
    let read = humantime::parse_rfc3339(text)
        .ok()
        .and_then(|moment| moment.duration_since(std::time::UNIX_EPOCH).ok())
        .and_then(|since| i64::try_from(since.as_micros()).ok());
    read.map(Timestamp)
        .ok_or_else(|| format!("{field} {text:?} is refused, it must be a time such as 2026-01-31T12:00:00Z"))
}

/// By what a repeated request is known (rule W4).
#[derive(Debug)]
pub(super) struct Operation {
    /// The id.
    pub(super) id: String,
    /// The caller gave it, so that the caller can repeat the request.
    pub(super) given: bool,
}

impl<S: Sync> FromRequestParts<S> for Operation {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        operation(&parts.headers)
    }
}

fn operation(headers: &HeaderMap) -> Result<Operation, Refusal> {
    known_by(headers, IDEMPOTENCY_KEY)
}

/// By what the repetition of a request to a webhook is known: senders that follow Standard Webhooks name it `Webhook-Id`.
pub(super) fn sender_id(headers: &HeaderMap) -> Result<Operation, Refusal> {
    let is_named = !headers.contains_key(IDEMPOTENCY_KEY) && headers.contains_key(WEBHOOK_ID);
    known_by(headers, if is_named { WEBHOOK_ID } else { IDEMPOTENCY_KEY })
}

fn known_by(headers: &HeaderMap, name: &'static str) -> Result<Operation, Refusal> {
    let refused = |detail: &str| Err(Refusal::Header { name, detail: detail.to_owned() });
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(Operation { id: Uuid::now_v7().to_string(), given: false });
    };
    if values.next().is_some() {
        return refused("it is given more than once");
    }
    let bytes = value.as_bytes();
    if !(1..=OPERATION_LEN_MAX).contains(&bytes.len()) || !bytes.iter().all(u8::is_ascii_graphic) {
        return refused("it must be 1 to 100 visible ASCII characters");
    }
    Ok(Operation { id: String::from_utf8_lossy(bytes).into_owned(), given: true })
}

/// The bytes of a body that says it is JSON, or of none at all.
#[derive(Debug)]
pub(super) struct JsonBody(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let content_type = request.headers().get(header::CONTENT_TYPE).cloned();
        let bytes = match Bytes::from_request(request, state).await {
            Ok(bytes) => bytes,
            Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                return Err(Refusal::BodyTooLarge);
            }
            Err(rejection) => return Err(Refusal::Body(rejection.body_text())),
        };
        if bytes.is_empty() {
            return Ok(Self(bytes));
        }
        // Required, not only polite: a page in a browser can send other types anywhere without being asked first.
        let text = content_type.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = text.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case("application/json") {
            return Ok(Self(bytes));
        }
        Err(Refusal::MediaType(text.to_owned()))
    }
}

impl JsonBody {
    /// Reads the body; an absent one is the default. The error names the position and the field.
    pub(super) fn read<'a, T: Deserialize<'a> + Default>(&'a self) -> Result<T, Refusal> {
        if self.0.is_empty() {
            return Ok(T::default());
        }
        read_json(&self.0)
    }
}

/// The handle that acts for whoever asks: what they do is recorded with them (rule A6).
#[derive(Debug)]
pub(super) struct Acting(pub(super) Handle);

impl FromRequestParts<Handle> for Acting {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, handle: &Handle) -> Result<Self, Infallible> {
        let by = parts.extensions.get::<Asker>().cloned();
        Ok(Self(by.map_or_else(|| handle.clone(), |by| handle.acting_for(by))))
    }
}

/// What every operation on an instance is asked with: a body, by whom it is known when it is repeated, and no query.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) handle: Handle,
    pub(super) name: NameKey,
    pub(super) operation: String,
    pub(super) body: JsonBody,
}

impl FromRequest<Handle> for Asked {
    type Rejection = Refusal;

    async fn from_request(request: Request, handle: &Handle) -> Result<Self, Refusal> {
        let (mut parts, body) = request.into_parts();
        let InstancePath(name) = InstancePath::from_request_parts(&mut parts, handle).await?;
        let Strict(NoQuery {}) = Strict::from_request_parts(&mut parts, handle).await?;
        let operation = Operation::from_request_parts(&mut parts, handle).await?.id;
        let Ok(Acting(acting)) = Acting::from_request_parts(&mut parts, handle).await;
        let body = JsonBody::from_request(Request::from_parts(parts, body), handle).await?;
        Ok(Self { handle: acting, name, operation, body })
    }
}

/// Reads an object of JSON. The error names the position and the field.
pub(super) fn read_json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Refusal> {
    // Derived readers would also take a list of values in the order of the fields.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Refusal::Body("it must be an object, not a list".to_owned()));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        if text.starts_with("unknown field") { Refusal::Field(text) } else { Refusal::Body(text) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w04_an_operation_id_is_checked() {
        let of = |key: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(IDEMPOTENCY_KEY, key.parse().unwrap());
            operation(&headers)
        };
        let longest = "x".repeat(100);
        for key in ["a", "order:1/2", longest.as_str()] {
            assert!(of(key).is_ok_and(|operation| operation.given && operation.id == key), "{key}");
        }
        for key in ["", "a b", &"x".repeat(101)] {
            assert!(matches!(of(key), Err(Refusal::Header { .. })), "{key}");
        }
        assert!(
            operation(&HeaderMap::new()).is_ok_and(|operation| !operation.given && operation.id.len() == 36)
        );
    }

    #[test]
    fn a_page_has_a_size() {
        assert!(matches!(limit(None, 50, 200), Ok(50)));
        assert!(matches!(limit(Some(200), 50, 200), Ok(200)));
        assert!(matches!(limit(Some(0), 50, 200), Err(Refusal::Query(_))));
        assert!(matches!(limit(Some(201), 50, 200), Err(Refusal::Query(_))));
    }
}
