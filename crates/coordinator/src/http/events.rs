//! Events. The body is the payload; `Idempotency-Key` is the event's id, by which a repetition is known (rule P24).

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use everstep_engine::{Answer, Operated, mailbox::EventId};
use everstep_protocol::{EventKey, Payload};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    document::{Always, BodyProblems, Conflict, Full, NotFound},
    extract::{EventPath, JsonBody, Operation, Strict},
    instances::{FullName, not_found},
    problem::Refusal,
};
use crate::{Error, EventRequest, Handle};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct SendQuery {
    /// The correlation key: only waits for this key, or for any, take the event
    #[param(
        min_length = 1,
        max_length = 100,
        pattern = r"^(?!\.{1,2}$)[^\u0000-\u001f\u007f-\u009f]{1,100}$"
    )]
    key: Option<String>,
}

/// An event that is kept.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AcceptedEvent)]
struct Accepted {
    #[serde(flatten)]
    name: FullName,
    #[serde(rename = "type")]
    kind: String,
    /// The event's id: given, or generated.
    event: String,
}

/// Sends an event to an instance.
///
/// The body is the payload, null if empty. `Idempotency-Key` is the event's id: the same again is the same event (rule P24).
#[utoipa::path(
    post,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/events/{type}",
    operation_id = "send_event",
    tag = "events",
    params(EventPath, SendQuery, Operation),
    request_body(content = Value, description = "The payload"),
    responses((status = 202, description = "It is kept, now or before", body = Accepted), Always, NotFound, Conflict, BodyProblems, Full)
)]
pub(super) async fn send(
    State(handle): State<Handle>,
    EventPath { name, kind }: EventPath,
    Strict(query): Strict<SendQuery>,
    operation: Operation,
    JsonBody(body): JsonBody,
) -> Result<Response, Refusal> {
    let key = query.key.map(EventKey::new).transpose()?;
    let payload = read_payload(&body, handle.limits().event_bytes)?;
    let id = EventId { app_id: String::new(), id: operation.id.clone() };
    let event = EventRequest { kind: kind.clone(), key, id, payload };
    let answer = handle.send_event(name.clone(), event).await.map_err(|error| match error {
        Error::Unknown { .. } => Refusal::EventUnknown { id: operation.id.clone(), given: operation.given },
        error => Refusal::Engine(error),
    })?;
    match answer {
        Answer::EventIdTaken => return Err(Refusal::EventIdTaken(operation.id)),
        Answer::MailboxFull => return Err(Refusal::MailboxFull(handle.limits().events_unread)),
        _ => {}
    }
    match answer.operated() {
        Some(Operated::Done) => {
            let accepted =
                Accepted { name: FullName::from(&name), kind: kind.to_string(), event: operation.id };
            Ok((StatusCode::ACCEPTED, Json(accepted)).into_response())
        }
        Some(Operated::NotAllowed(status)) => Err(Refusal::NotAllowed { operation: "an event", status }),
        Some(Operated::NotFound) => Err(not_found(&name)),
        Some(Operated::Moved | Operated::NotParked | Operated::NotAsked) | None => {
            Err(Refusal::Bug(format!("an event was answered with {answer:?}")))
        }
    }
}

/// The payload as it will be stored; null if the body is empty.
pub(super) fn read_payload(body: &[u8], limit: u64) -> Result<Payload, Refusal> {
    if body.is_empty() {
        return Ok(Payload::null());
    }
    let text = std::str::from_utf8(body).map_err(|error| Refusal::Body(error.to_string()))?;
    let payload = Payload::from_text(text).map_err(Refusal::Payload)?;
    let bytes = payload.len() as u64;
    if bytes > limit { Err(Refusal::PayloadTooLarge { bytes, limit }) } else { Ok(payload) }
}
