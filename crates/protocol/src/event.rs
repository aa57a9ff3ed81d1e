//! The event message: what any AMQP client sends to an instance (rules P21, P26, W40). It has the shape of a start.

use serde::Deserialize;

use crate::{
    EventKey, EventType, InstanceId, Payload, WorkflowName,
    name::NameError,
    payload::PayloadError,
    start::{Encoding, is_map, strict::Strict},
};

/// What an event message's body says, after the checks at the edge.
#[derive(Clone, Debug, PartialEq)]
pub struct EventMessage {
    /// The workflow of the instance.
    pub workflow: WorkflowName,
    /// The instance's id.
    pub id: InstanceId,
    /// The event's type.
    pub kind: EventType,
    /// Its correlation key.
    pub key: Option<EventKey>,
    /// What it says; null if absent.
    pub payload: Payload,
}

/// Why an event cannot be accepted. Sending the same again cannot help, whatever the variant.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The content type is none that is known.
    #[error("content_type {0:?} is not known; it must be application/json or application/msgpack")]
    ContentType(String),
    /// The body is not readable in its encoding.
    #[error("the body is not readable: {0}")]
    Body(String),
    /// The body has a field that is not known.
    #[error("{0}; the fields are workflow, id, type, key, payload")]
    Field(String),
    /// A name breaks its rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The payload is not acceptable.
    #[error("the payload is not acceptable: {0}")]
    Payload(#[from] PayloadError),
    /// The payload is over the limit (rule P4).
    #[error("the payload is {bytes} bytes of JSON, the limit is {limit}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The message has no id by which a redelivery could be known.
    #[error("a message_id is required, so that a redelivery can never make a second event")]
    NoIdentity,
}

impl EventError {
    /// The code of the reason: stands in replies, records and metrics.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::ContentType(_) => "content_type",
            Self::Body(_) => "body",
            Self::Field(_) => "unknown_field",
            Self::Name(_) => "name",
            Self::Payload(_) => "input",
            Self::TooLarge { .. } => "too_large",
            Self::NoIdentity => "no_identity",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    workflow: String,
    id: String,
    r#type: String,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    payload: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonBody<'a> {
    workflow: String,
    id: String,
    r#type: String,
    #[serde(default)]
    key: Option<String>,
    #[serde(default, borrow)]
    payload: Option<&'a serde_json::value::RawValue>,
}

impl EventMessage {
    /// Reads and checks a body.
    pub fn parse(encoding: Encoding, body: &[u8], limit: u64) -> Result<Self, EventError> {
        if !is_map(encoding, body) {
            return Err(EventError::Body("it is not a map of fields".to_owned()));
        }
        let (names, payload) = match encoding {
            Encoding::Json => {
                let body: JsonBody<'_> =
                    serde_json::from_slice(body).map_err(|error| refused(&error.to_string()))?;
                let payload = body.payload.map(|raw| Payload::from_text(raw.get())).transpose()?;
                ((body.workflow, body.id, body.r#type, body.key), payload)
            }
            Encoding::MessagePack => {
                let Strict(value) =
                    rmp_serde::from_slice(body).map_err(|error| refused(&error.to_string()))?;
                let body: Body =
                    serde_json::from_value(value).map_err(|error| refused(&error.to_string()))?;
                let payload = body.payload.map(|payload| Payload::encode(&payload)).transpose()?;
                ((body.workflow, body.id, body.r#type, body.key), payload)
            }
        };
        let (workflow, id, kind, key) = names;
        let payload = payload.unwrap_or_else(Payload::null);
        check_payload(&payload, limit)?;
        Ok(Self {
            workflow: WorkflowName::new(workflow)?,
            id: InstanceId::new(id)?,
            kind: EventType::new(kind)?,
            key: key.map(EventKey::new).transpose()?,
            payload,
        })
    }
}

/// Checks the size of an event's payload (rule P4).
pub fn check_payload(payload: &Payload, limit: u64) -> Result<(), EventError> {
    let bytes = payload.len() as u64;
    if bytes > limit { Err(EventError::TooLarge { bytes, limit }) } else { Ok(()) }
}

fn refused(message: &str) -> EventError {
    if message.contains("unknown field") {
        EventError::Field(message.to_owned())
    } else {
        EventError::Body(message.to_owned())
    }
}

#[cfg(test)]
mod tests {
    //! Proves what bodies are accepted and how others are refused. Not: what becomes of an event.
    use super::*;

    const LIMIT: u64 = 100;

    fn parse(body: &str) -> Result<EventMessage, EventError> {
        EventMessage::parse(Encoding::Json, body.as_bytes(), LIMIT)
    }

    #[test]
    fn w40_an_event_names_its_instance_and_keeps_its_payload_as_written() {
        let body =
            r#"{"workflow":"fulfil","id":"o-1","type":"paid","key":"k","payload":{"b": 9007199254740993}}"#;
        let event = parse(body).unwrap();
        assert_eq!((event.workflow.as_str(), event.id.as_str()), ("fulfil", "o-1"));
        assert_eq!((event.kind.as_str(), event.key.unwrap().as_str()), ("paid", "k"));
        assert_eq!(event.payload.as_str(), r#"{"b":9007199254740993}"#);
        let bare = parse(r#"{"workflow":"fulfil","id":"o-1","type":"paid"}"#).unwrap();
        assert_eq!((bare.key, bare.payload), (None, Payload::null()));
    }

    #[test]
    fn w40_an_event_in_message_pack_says_the_same() {
        let body = serde_json::json!({"workflow":"fulfil","id":"o-1","type":"paid","payload":{"n":u64::MAX}});
        let body = rmp_serde::to_vec_named(&body).unwrap();
        let event = EventMessage::parse(Encoding::MessagePack, &body, LIMIT).unwrap();
        assert_eq!(event.payload.as_str(), r#"{"n":18446744073709551615}"#);
    }

    #[test]
    fn w40_every_refusal_of_an_event_has_its_code() {
        let with = |rest: &str| format!(r#"{{"workflow":"fulfil","id":"o-1","type":"paid"{rest}}}"#);
        let long = "x".repeat(99);
        let cases = [
            (String::new(), "body"),
            ("[]".to_owned(), "body"),
            ("{}".to_owned(), "body"),
            (r#"{"workflow":"fulfil","id":"o-1"}"#.to_owned(), "body"),
            (with(r#","colour":1"#), "unknown_field"),
            (r#"{"workflow":"Fulfil","id":"o-1","type":"paid"}"#.to_owned(), "name"),
            (r#"{"workflow":"fulfil","id":"a b","type":"paid"}"#.to_owned(), "name"),
            (r#"{"workflow":"fulfil","id":"o-1","type":""}"#.to_owned(), "name"),
            (with(r#","key":"""#), "name"),
            (with(&format!(r#","payload":"{long}""#)), "too_large"),
        ];
        for (body, code) in cases {
            assert_eq!(parse(&body).unwrap_err().code(), code, "{body}");
        }
    }

    #[test]
    fn p04_the_limit_of_a_payload_itself_is_accepted() {
        let exact = format!(r#"{{"workflow":"f","id":"o","type":"t","payload":"{}"}}"#, "x".repeat(98));
        assert_eq!(parse(&exact).unwrap().payload.len(), 100);
    }
}
