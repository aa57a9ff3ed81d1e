//! Every way in which a request is refused, and the one `match` that gives each its place in HTTP. What is sent is
//! `application/problem+json` (RFC 9457); the detail is the refusal's own text.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use everstep_protocol::{
    AccessError, AttributeError, hook::HookError, journal::Other, name::NameError, payload::PayloadError,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::view::InstanceName;
use crate::{Error, ErrorKind, Misfit};

/// The media type of a problem.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request is refused. Its text is the detail that the caller reads.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// A name in path, query or body breaks its rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An attribute breaks its rule.
    #[error(transparent)]
    Attributes(#[from] AttributeError),
    /// A part of the path cannot be read.
    #[error("{0}")]
    Path(String),
    /// The query has an unknown field or a value that does not fit.
    #[error("{0}")]
    Query(String),
    /// A header is not what it must be.
    #[error("header {name}: {detail}")]
    Header { name: &'static str, detail: String },
    /// The body is of another media type.
    #[error("content-type {0:?} is not application/json")]
    MediaType(String),
    /// The body is no JSON or does not fit.
    #[error("{0}")]
    Body(String),
    /// The body has a field that is not known.
    #[error("{0}")]
    Field(String),
    /// A batch has too few or too many items.
    #[error("instances has {0} items and is refused, it must have 1 to {max}; nothing was created", max = crate::BATCH_STARTS_MAX)]
    BatchSize(usize),
    /// An item of a batch is refused, and with it the batch.
    #[error("instances[{index}] is refused, and nothing was created: {refusal}")]
    Item { index: usize, refusal: Box<Refusal> },
    /// A list has too few or too many ids.
    #[error("ids has {0} items and is refused, it must have 1 to {max}; nothing was done", max = crate::IDS_MAX)]
    IdsSize(usize),
    /// An id of a list is refused, and with it the list.
    #[error("ids[{index}] is refused, and nothing was done: {refusal}")]
    Id { index: usize, refusal: Box<Refusal> },
    /// The input is no acceptable payload.
    #[error("the input is not acceptable: {0}")]
    Input(PayloadError),
    /// The input is over its limit.
    #[error("the input is {bytes} bytes of JSON, the limit is {limit}")]
    InputTooLarge { bytes: u64, limit: u64 },
    /// The payload of an event is not acceptable.
    #[error("the payload is not acceptable: {0}")]
    Payload(PayloadError),
    /// The payload of an event is over its limit.
    #[error("the payload is {bytes} bytes of JSON, the limit is {limit}")]
    PayloadTooLarge { bytes: u64, limit: u64 },
    /// Another event has this id.
    #[error(
        "the instance has another event with the id {0:?}, of another type, key or payload; this one was not kept"
    )]
    EventIdTaken(String),
    /// The instance has as many unread events as it may.
    #[error("the instance has {0} unread events, which is the limit; this one was not kept")]
    MailboxFull(u64),
    /// Nobody knows whether an event was accepted.
    #[error("the store did not confirm in time, so it is not known whether the event was accepted")]
    EventUnknown { id: String, given: bool },
    /// The body is so large that it was not read.
    #[error("the body is over the limit of bytes")]
    BodyTooLarge,
    /// The request does not come from this host, or a web page sent it.
    #[error("{0}")]
    NotFromHere(String),
    /// The request has no access token, or one that opens nothing.
    #[error("{detail}")]
    Unauthenticated { is_given: bool, detail: String },
    /// Its access token is not enough.
    #[error("{0}")]
    Forbidden(String),
    /// An access token that is asked for is not acceptable.
    #[error("{0}")]
    Access(String),
    /// There is no such route.
    #[error("there is nothing at {0}")]
    NoSuchRoute(String),
    /// The route exists, the method does not.
    #[error("{0}")]
    WrongMethod(String),
    /// There is no such instance.
    #[error("{0}")]
    NotFound(String),
    /// An instance of that id has another input.
    #[error("{detail}")]
    Conflict { id: String, detail: String },
    /// Another instance has the token that a start asks for (rule H32).
    #[error("{detail}")]
    HookHeld { owner: Option<Other>, detail: String },
    /// A hook is not acceptable.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// Nobody can be resumed by this token.
    #[error("no open instance has a hook with this token; nothing was kept")]
    NoHook,
    /// The payload does not fit the schema of the hook.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// The webhook takes other methods only.
    #[error("{method} is not possible, the webhook takes {allow}; nothing was kept")]
    WebhookMethod { method: String, allow: String },
    /// Another payload has this resume id.
    #[error("the hook was resumed with another payload under the id {0:?}; this one was not kept")]
    ResumeIdTaken(String),
    /// The token went from hand to hand faster than its owner could be reached.
    #[error("the token has changed hands several times meanwhile; nothing was kept")]
    HookMoved,
    /// A start was refused for good.
    #[error("{detail}")]
    Rejected { code: Option<String>, detail: String },
    /// A strict start that nobody serves.
    #[error("{0}")]
    NotServed(String),
    /// Nobody knows whether an instance was started.
    #[error("the store did not confirm in time, so it is not known whether the instance was started")]
    Unknown { id: Option<String>, repeatable: bool },
    /// The operation is not allowed in this status.
    #[error("{operation} is not possible, the instance is {status}")]
    NotAllowed { operation: &'static str, status: &'static str },
    /// The instance moved on faster than the operation could be prepared.
    #[error("{operation} was not done: the instance moved on meanwhile; nothing has changed")]
    Moved { operation: &'static str },
    /// The operation is for parked instances only.
    #[error("retry is for an instance that is parked in attention, and this one is not")]
    NotParked,
    /// A question that is to be answered is not open (rule L8).
    #[error("the question is not open: {0}; nothing has changed")]
    NotAsked(String),
    /// There is no such question.
    #[error("the instance asks nothing under {0:?}, and never did")]
    NoQuestion(String),
    /// A schedule, or what is to be done with it, is not acceptable (rule S1).
    #[error("{0}")]
    Schedule(String),
    /// Others change a schedule all the time.
    #[error("the schedule is being changed or started all the time; nothing has changed")]
    ScheduleBusy,
    /// An instance of a schedule was started by hand and not noted there.
    #[error(
        "instance {id} was started, but the schedule is being changed or started all the time, so it is not noted there"
    )]
    ScheduleNotNoted { id: String, repeatable: bool },
    /// A probe's answer is no.
    #[error("{0}")]
    NotHealthy(String),
    /// As many streams as may be are served.
    #[error("as many streams of events as may be at once are served already")]
    TooManyStreams,
    /// The caller asks faster than one may.
    #[error("one caller may not ask so fast; nothing was done")]
    TooFast { wait: Duration },
    /// The coordinator failed.
    #[error(transparent)]
    Engine(Error),
    /// Something that cannot be: a bug.
    #[error("{0}")]
    Bug(String),
}

impl From<AccessError> for Refusal {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Scope(_) | AccessError::Id(_) => Self::Path(error.to_string()),
            AccessError::Role(_) | AccessError::Text => Self::Access(error.to_string()),
        }
    }
}

impl From<everstep_store::Error> for Refusal {
    fn from(error: everstep_store::Error) -> Self {
        Self::Engine(error.into())
    }
}

impl Refusal {
    /// Status, code and title. The one place where a refusal meets HTTP.
    fn place(&self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::Name(_) | Self::Attributes(AttributeError::Name(_)) => {
                (S::BAD_REQUEST, "name", "A name breaks its rule")
            }
            Self::Attributes(_) => (S::UNPROCESSABLE_ENTITY, "attributes", "An attribute breaks its rule"),
            Self::Path(_) => (S::BAD_REQUEST, "path", "The path is not readable"),
            Self::Query(_) => (S::BAD_REQUEST, "query", "The query is not acceptable"),
            Self::Header { .. } => (S::BAD_REQUEST, "header", "A header is not acceptable"),
            Self::MediaType(_) => (S::UNSUPPORTED_MEDIA_TYPE, "content_type", "The body is of another type"),
            Self::Body(_) => (S::BAD_REQUEST, "body", "The body is not readable"),
            Self::Field(_) => (S::BAD_REQUEST, "unknown_field", "The body has an unknown field"),
            Self::BatchSize(_) => (S::UNPROCESSABLE_ENTITY, "batch", "The batch is not acceptable"),
            Self::IdsSize(_) => (S::UNPROCESSABLE_ENTITY, "ids", "The list of ids is not acceptable"),
            Self::Item { refusal, .. } | Self::Id { refusal, .. } => refusal.place(),
            Self::Input(_) => (S::UNPROCESSABLE_ENTITY, "input", "The input is not acceptable"),
            Self::InputTooLarge { .. } => (S::PAYLOAD_TOO_LARGE, "too_large", "The input is too large"),
            Self::Payload(_) => (S::UNPROCESSABLE_ENTITY, "input", "The payload is not acceptable"),
            Self::PayloadTooLarge { .. } => (S::PAYLOAD_TOO_LARGE, "too_large", "The payload is too large"),
            Self::EventIdTaken(_) => (S::CONFLICT, "event_id_taken", "The event's id is taken"),
            Self::MailboxFull(_) => (S::TOO_MANY_REQUESTS, "mailbox_full", "Too many unread events"),
            Self::BodyTooLarge => (S::PAYLOAD_TOO_LARGE, "too_large", "The body is too large"),
            Self::NotFromHere(_) => (S::FORBIDDEN, "not_from_here", "Only this host is served"),
            Self::Unauthenticated { .. } => (S::UNAUTHORIZED, "unauthenticated", "An access token is needed"),
            Self::Forbidden(_) => (S::FORBIDDEN, "forbidden", "The access token is not enough"),
            Self::Access(_) => {
                (S::UNPROCESSABLE_ENTITY, "access_token", "The access token is not acceptable")
            }
            Self::NoSuchRoute(_) => (S::NOT_FOUND, "no_such_route", "No such route"),
            Self::WrongMethod(_) => (S::METHOD_NOT_ALLOWED, "wrong_method", "The route has no such method"),
            Self::NotFound(_) => (S::NOT_FOUND, "not_found", "No such instance"),
            Self::Conflict { .. } => (S::CONFLICT, "conflict", "The id is taken"),
            Self::HookHeld { .. } => (S::CONFLICT, "hook_held", "Another instance has the token"),
            Self::Hook(HookError::Token(_)) => (S::BAD_REQUEST, "name", "A name breaks its rule"),
            Self::Hook(_) => (S::UNPROCESSABLE_ENTITY, "hook", "The hook is not acceptable"),
            Self::NoHook => (S::NOT_FOUND, "hook_not_found", "No such hook"),
            Self::Misfit(_) => {
                (S::UNPROCESSABLE_ENTITY, "payload_misfit", "The payload does not fit the hook")
            }
            Self::WebhookMethod { .. } => {
                (S::METHOD_NOT_ALLOWED, "wrong_method", "The webhook takes other methods")
            }
            Self::ResumeIdTaken(_) => (S::CONFLICT, "resume_id_taken", "The resume id is taken"),
            Self::HookMoved => (S::CONFLICT, "moved", "The token moved on"),
            Self::Rejected { .. } => (S::UNPROCESSABLE_ENTITY, "rejected", "The start is refused"),
            Self::NotServed(_) => (S::CONFLICT, "not_served", "No worker serves the workflow"),
            Self::Unknown { .. } | Self::EventUnknown { .. } => {
                (S::SERVICE_UNAVAILABLE, "unknown", "The outcome is not known")
            }
            Self::NotAllowed { .. } => (S::CONFLICT, "not_allowed", "Not allowed in this status"),
            Self::Moved { .. } => (S::CONFLICT, "moved", "The instance moved on"),
            Self::NotParked => (S::CONFLICT, "not_parked", "The instance is not parked"),
            Self::NotAsked(_) => (S::CONFLICT, "not_asked", "The question is not open"),
            Self::NoQuestion(_) => (S::NOT_FOUND, "question_not_found", "No such question"),
            Self::Schedule(_) => (S::UNPROCESSABLE_ENTITY, "schedule", "The schedule is not acceptable"),
            Self::ScheduleBusy | Self::ScheduleNotNoted { .. } => {
                (S::CONFLICT, "moved", "The schedule moved on")
            }
            Self::TooManyStreams => (S::TOO_MANY_REQUESTS, "too_many_streams", "Too many streams"),
            Self::TooFast { .. } => (S::TOO_MANY_REQUESTS, "rate_limited", "Too many requests"),
            Self::NotHealthy(_) => (S::SERVICE_UNAVAILABLE, "not_ready", "Not ready"),
            Self::Engine(error) => match error.kind() {
                ErrorKind::Retry => (S::SERVICE_UNAVAILABLE, "unavailable", "Not available now"),
                ErrorKind::Refused => (S::UNPROCESSABLE_ENTITY, "refused", "The request is refused"),
                ErrorKind::Broken => (S::INTERNAL_SERVER_ERROR, "broken", "A person has to look"),
            },
            Self::Bug(_) => (S::INTERNAL_SERVER_ERROR, "internal", "This is a bug"),
        }
    }

    /// What the caller can do.
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::MediaType(_) => "send the body as JSON with the header content-type: application/json",
            Self::InputTooLarge { .. } | Self::PayloadTooLarge { .. } | Self::BodyTooLarge => {
                "keep large data elsewhere and pass a reference to it"
            }
            Self::BatchSize(_) => "send several requests of at most 1,000 starts each",
            Self::IdsSize(_) => {
                "send several requests of at most 1,000 ids each, or one with conditions to /v1/{namespace}/bulk"
            }
            Self::Item { refusal, .. } | Self::Id { refusal, .. } => return refusal.hint(),
            Self::NotFromHere(_) => "call the API as localhost or 127.0.0.1, and not from a web page",
            Self::Unauthenticated { .. } => {
                "send the header Authorization: Bearer with an access token; `everstep access-token create` makes one"
            }
            Self::Forbidden(_) => "ask an admin for an access token with that role in that namespace",
            Self::Conflict { id, .. } => return Some(format!("look at {id}, or start under another id")),
            Self::HookHeld { owner: Some(owner), .. } => {
                return Some(format!(
                    "look at {} of workflow {}, or resume its hook",
                    owner.id, owner.workflow
                ));
            }
            Self::NoHook => {
                "it was never there, was let go of, or its instance has ended: a start may take the token"
            }
            Self::Misfit(_) => {
                "send what fits: a payload by the schema, which GET /v1/{namespace}/hooks/{token} shows, or a request to the webhook"
            }
            Self::ResumeIdTaken(_) => "give every payload an id of its own in the header Idempotency-Key",
            Self::Rejected { code: Some(code), .. } => {
                return Some(format!("reason {code}; nothing was created"));
            }
            Self::Unknown { repeatable: true, .. } => {
                "send the same request again: it makes no second instance"
            }
            Self::Unknown { id: Some(id), .. } => return Some(format!("ask for instance {id}: it tells")),
            Self::Unknown { .. } => {
                "starts with an id or the header Idempotency-Key can be sent again safely"
            }
            Self::TooManyStreams => "close streams that nobody reads, or ask another coordinator",
            Self::TooFast { .. } => {
                "wait for as many seconds as Retry-After says, and ask more slowly from then on"
            }
            Self::MailboxFull(_) => {
                "look at the instance: its status lists what is unread and what is awaited"
            }
            Self::EventIdTaken(_) => "give every event an id of its own in the header Idempotency-Key",
            Self::EventUnknown { id, .. } => {
                return Some(format!(
                    "send it again with the header Idempotency-Key: {id}, then it is one event"
                ));
            }
            Self::NotServed(_) => {
                "start a worker that serves it, or send the start with strict: false: then it waits"
            }
            Self::ScheduleNotNoted { repeatable: true, .. } => {
                "send the same request again: it is one instance"
            }
            Self::Moved { .. } => "pause the instance first, then try again",
            Self::NotAllowed { operation: "delete", .. } => {
                "ask for it to be terminated first, or wait for its end"
            }
            Self::Bug(_) => "please report it, with the coordinator's log",
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// What the caller is told: the refusal's own text, but of a failure of the store not the database's words. Those are in the
    /// log.
    fn detail(&self, status: StatusCode) -> String {
        match self {
            Self::Engine(Error::Store(error)) if status.is_server_error() => error.for_outsiders(),
            other => other.to_string(),
        }
    }

    /// After how many seconds the same request may help.
    fn retry_after(&self) -> u64 {
        match self {
            Self::TooFast { wait } => wait.as_millis().div_ceil(1_000).max(1).try_into().unwrap_or(u64::MAX),
            _ => 1,
        }
    }

    /// What a client is told of how to come in (RFC 6750).
    const fn challenge(&self) -> Option<&'static str> {
        match self {
            Self::Unauthenticated { is_given: false, .. } => Some(r#"Bearer realm="everstep""#),
            Self::Unauthenticated { is_given: true, .. } => {
                Some(r#"Bearer realm="everstep", error="invalid_token""#)
            }
            Self::Forbidden(_) => Some(r#"Bearer realm="everstep", error="insufficient_scope""#),
            _ => None,
        }
    }

    /// Sending the same request again does no harm and may help.
    const fn is_retry_safe(&self) -> bool {
        match self {
            Self::Unknown { repeatable, .. } | Self::ScheduleNotNoted { repeatable, .. } => *repeatable,
            Self::EventUnknown { given, .. } => *given,
            Self::NotHealthy(_)
            | Self::TooManyStreams
            | Self::TooFast { .. }
            | Self::MailboxFull(_)
            | Self::Moved { .. }
            | Self::HookMoved
            | Self::ScheduleBusy
            | Self::NotServed(_) => true,
            Self::Engine(error) => error.is_retry_safe(),
            _ => false,
        }
    }
}

/// What is wrong with a start's hook has a name of its own, also in a batch.
impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Hook(error) => Self::Hook(error),
            Error::BatchItem { index, error } if matches!(*error, Error::Hook(_)) => {
                Self::Item { index, refusal: Box::new(Self::from(*error)) }
            }
            error => Self::Engine(error),
        }
    }
}

/// A problem as it is sent.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Problem {
    /// `urn:everstep:problem:` and the code.
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    /// A stable word: docs/errors says what it means, and so does `everstep errors`.
    code: &'static str,
    /// What is wrong with this request.
    detail: String,
    /// What can be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Sending the same request again does no harm and may help.
    retry_safe: bool,
    /// Who has the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<InstanceName>)]
    owner: Option<Other>,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, code, title) = self.place();
        let retry_safe = self.is_retry_safe();
        if status.is_server_error() {
            tracing::warn!(code, detail = %self, "a request failed");
        }
        let detail = self.detail(status);
        let kind = format!("urn:everstep:problem:{code}");
        let hint = self.hint();
        let allow = if let Self::WebhookMethod { allow, .. } = &self {
            HeaderValue::from_str(allow).ok()
        } else {
            None
        };
        let owner = if let Self::HookHeld { owner, .. } = &self { owner.clone() } else { None };
        let problem = Problem { kind, title, status: status.as_u16(), code, detail, hint, retry_safe, owner };
        let body = serde_json::to_vec(&problem).expect("a problem is plain text and numbers");
        let content_type = (header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        let mut response = (status, [content_type], body).into_response();
        if let Some(challenge) = self.challenge() {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if let Some(allow) = allow {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        if retry_safe {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(self.retry_after()));
        }
        response
    }
}
