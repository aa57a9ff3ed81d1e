//! Every way in which a request is refused, and the one `match` that turns it into `application/problem+json` (RFC 9457).

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use everstep_engine::Status;
use everstep_protocol::{name::NameError, payload::PayloadError};
use serde::Serialize;

use crate::{Error, ErrorKind};

/// The media type of a problem.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request is refused.
#[derive(Debug)]
pub(super) enum Refusal {
    /// A name in path, query or body breaks its rule.
    Name(NameError),
    /// A part of the path cannot be read.
    Path(String),
    /// The query has an unknown field or a value that does not fit.
    Query(String),
    /// A header is not what it must be.
    Header { name: &'static str, detail: String },
    /// The body is of another media type.
    MediaType(String),
    /// The body is no JSON or does not fit.
    Body(String),
    /// The body has a field that is not known.
    Field(String),
    /// The input is no acceptable payload.
    Input(PayloadError),
    /// The input is over its limit.
    InputTooLarge { bytes: u64, limit: u64 },
    /// The body is so large that it was not read.
    BodyTooLarge,
    /// The request does not come from this host, or a web page sent it.
    NotFromHere(String),
    /// There is no such route.
    NoSuchRoute(String),
    /// The route exists, the method does not.
    WrongMethod(String),
    /// There is no such instance.
    NotFound(String),
    /// An instance of that id has another input.
    Conflict { id: String, detail: String },
    /// A start was refused for good.
    Rejected { code: Option<String>, detail: String },
    /// Nobody knows whether an instance was started.
    Unknown { id: Option<String>, repeatable: bool },
    /// The operation is not allowed in this status.
    NotAllowed { operation: &'static str, status: Status },
    /// The operation is for parked instances only.
    NotParked,
    /// A probe's answer is no.
    NotHealthy(String),
    /// The coordinator failed.
    Engine(Error),
    /// Something that cannot be: a bug.
    Bug(String),
}

impl From<NameError> for Refusal {
    fn from(error: NameError) -> Self {
        Self::Name(error)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<everstep_store::Error> for Refusal {
    fn from(error: everstep_store::Error) -> Self {
        Self::Engine(error.into())
    }
}

/// A problem as it is sent.
#[derive(Debug, Serialize)]
struct Problem {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    code: String,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    retry_safe: bool,
}

/// What a refusal comes to. `retry_safe`: sending the same request again does no harm and may help.
struct Shape {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: String,
    hint: Option<String>,
    retry_safe: bool,
}

impl Shape {
    fn new(status: StatusCode, code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, title, detail: detail.into(), hint: None, retry_safe: false }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    fn retry_safe(self, retry_safe: bool) -> Self {
        Self { retry_safe, ..self }
    }
}

impl Refusal {
    fn shape(self) -> Shape {
        use StatusCode as S;
        match self {
            Self::Name(error) => Shape::new(S::BAD_REQUEST, "name", "A name breaks its rule", error.to_string()),
            Self::Path(detail) => Shape::new(S::BAD_REQUEST, "path", "The path is not readable", detail),
            Self::Query(detail) => Shape::new(S::BAD_REQUEST, "query", "The query is not acceptable", detail),
            Self::Header { name, detail } => {
                Shape::new(S::BAD_REQUEST, "header", "A header is not acceptable", format!("{name}: {detail}"))
            }
            Self::MediaType(detail) => {
                Shape::new(S::UNSUPPORTED_MEDIA_TYPE, "content_type", "The body is of another type", detail)
                    .hint("send the body as JSON with the header content-type: application/json")
            }
            Self::Body(detail) => Shape::new(S::BAD_REQUEST, "body", "The body is not readable", detail),
            Self::Field(detail) => Shape::new(S::BAD_REQUEST, "unknown_field", "The body has an unknown field", detail),
            Self::Input(error) => {
                Shape::new(S::UNPROCESSABLE_ENTITY, "input", "The input is not acceptable", error.to_string())
            }
            Self::InputTooLarge { bytes, limit } => Shape::new(
                S::PAYLOAD_TOO_LARGE,
                "too_large",
                "The input is too large",
                format!("the input is {bytes} bytes of JSON, the limit is {limit}"),
            )
            .hint("keep large data elsewhere and pass a reference to it"),
            Self::BodyTooLarge => {
                Shape::new(S::PAYLOAD_TOO_LARGE, "too_large", "The body is too large", "the body is over the limit of bytes")
                    .hint("keep large data elsewhere and pass a reference to it")
            }
            Self::NotFromHere(detail) => Shape::new(S::FORBIDDEN, "not_from_here", "Only this host is served", detail)
                .hint("call the API as localhost or 127.0.0.1, and not from a web page"),
            Self::NoSuchRoute(path) => {
                Shape::new(S::NOT_FOUND, "no_such_route", "No such route", format!("there is nothing at {path}"))
            }
            Self::WrongMethod(detail) => {
                Shape::new(S::METHOD_NOT_ALLOWED, "wrong_method", "The route has no such method", detail)
            }
            Self::NotFound(what) => Shape::new(S::NOT_FOUND, "not_found", "No such instance", what),
            Self::Conflict { id, detail } => Shape::new(S::CONFLICT, "conflict", "The id is taken", detail)
                .hint(format!("look at {id}, or start under another id; nothing was created")),
            Self::Rejected { code, detail } => Shape::new(S::UNPROCESSABLE_ENTITY, "rejected", "The start is refused", detail)
                .hint(code.map_or_else(|| "nothing was created".to_owned(), |code| format!("reason {code}; nothing was created"))),
            Self::Unknown { id, repeatable } => unknown(id, repeatable),
            Self::NotAllowed { operation, status } => Shape::new(
                S::CONFLICT,
                "not_allowed",
                "Not allowed in this status",
                format!("{operation} is not possible, the instance is {}", status.word()),
            ),
            Self::NotParked => Shape::new(
                S::CONFLICT,
                "not_parked",
                "The instance is not parked",
                "retry is for an instance that is parked in attention, and this one is not",
            ),
            Self::NotHealthy(detail) => {
                Shape::new(S::SERVICE_UNAVAILABLE, "not_ready", "Not ready", detail).retry_safe(true)
            }
            Self::Engine(error) => engine(&error),
            Self::Bug(detail) => Shape::new(S::INTERNAL_SERVER_ERROR, "internal", "This is a bug", detail)
                .hint("please report it, with the coordinator's log"),
        }
    }
}

fn unknown(id: Option<String>, repeatable: bool) -> Shape {
    let detail = "the store did not confirm in time, so it is not known whether the instance was started";
    let hint = match id {
        _ if repeatable => "send the same request again: it makes no second instance".to_owned(),
        Some(id) => format!("ask for instance {id}: it tells; send starts with an id or Idempotency-Key to make repeating safe"),
        None => "send starts with an id or the header Idempotency-Key: then repeating is safe".to_owned(),
    };
    Shape::new(StatusCode::SERVICE_UNAVAILABLE, "unknown", "The outcome is not known", detail)
        .hint(hint)
        .retry_safe(repeatable)
}

fn engine(error: &Error) -> Shape {
    let (status, code, title) = match error.kind() {
        ErrorKind::Retry => (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Not available now"),
        ErrorKind::Refused => (StatusCode::UNPROCESSABLE_ENTITY, "refused", "The request is refused"),
        ErrorKind::Broken => (StatusCode::INTERNAL_SERVER_ERROR, "broken", "A person has to look"),
    };
    Shape::new(status, code, title, error.to_string()).retry_safe(error.is_retry_safe())
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Shape { status, code, title, detail, hint, retry_safe } = self.shape();
        if status.is_server_error() {
            tracing::warn!(code, detail, "a request failed");
        }
        let problem = Problem {
            kind: format!("urn:everstep:problem:{code}"),
            title,
            status: status.as_u16(),
            code: code.to_owned(),
            detail,
            hint,
            retry_safe,
        };
        let body = serde_json::to_vec(&problem).expect("a problem is plain text and numbers");
        let content_type = (header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        let mut response = (status, [content_type], body).into_response();
        if retry_safe {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
