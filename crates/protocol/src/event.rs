//! The event message: what any AMQP client sends to an instance, or to whoever has a token (rules P21, P26, W40). It has the shape
//! of a start.

use serde::Deserialize;

use crate::{
    EventKey, EventType, InstanceId, Payload, Token, WorkflowName,
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

/// What a message that resumes a hook says, after the checks at the edge.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeMessage {
    /// The hook's token.
    pub token: Token,
    /// What it is resumed with; null if absent.
    pub payload: Payload,
}

/// What a message to an instance is: with a token it resumes a hook.
#[derive(Clone, Debug, PartialEq)]
pub enum SentMessage {
    /// An event for an instance.
    Event(EventMessage),
    /// A payload for whoever has a token.
    Resume(ResumeMessage),
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
    #[error("{0}; the fields are workflow, id, type, key, payload, or token, payload")]
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

/// `V` is how a value of any form is read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<V> {
    workflow: Option<String>,
    id: Option<String>,
    r#type: Option<String>,
    key: Option<String>,
    token: Option<String>,
    payload: Option<V>,
}

impl SentMessage {
    /// Reads and checks a body.
    pub fn parse(encoding: Encoding, body: &[u8], limit: u64) -> Result<Self, EventError> {
        if !is_map(encoding, body) {
            return Err(EventError::Body("it is not a map of fields".to_owned()));
        }
        match encoding {
            Encoding::Json => {
                let body: Body<&serde_json::value::RawValue> =
                    serde_json::from_slice(body).map_err(|error| refused(&error.to_string()))?;
                body.check(limit, |raw| Payload::from_text(raw.get()))
            }
            Encoding::MessagePack => {
                let Strict(value) = crate::wire::read(body).map_err(|error| refused(&error.to_string()))?;
                let body: Body<serde_json::Value> =
                    serde_json::from_value(value).map_err(|error| refused(&error.to_string()))?;
                body.check(limit, |value| Payload::encode(&value))
            }
        }
    }
}

impl<V> Body<V> {
    fn check(
        self,
        limit: u64,
        read: impl FnOnce(V) -> Result<Payload, PayloadError>,
    ) -> Result<SentMessage, EventError> {
        let payload = self.payload.map(read).transpose()?.unwrap_or_else(Payload::null);
        check_payload(&payload, limit)?;
        let Some(token) = self.token else {
            return Ok(SentMessage::Event(EventMessage {
                workflow: WorkflowName::new(needed("workflow", self.workflow)?)?,
                id: InstanceId::new(needed("id", self.id)?)?,
                kind: EventType::new(needed("type", self.r#type)?)?,
                key: self.key.map(EventKey::new).transpose()?,
                payload,
            }));
        };
        let names = [("workflow", self.workflow), ("id", self.id), ("type", self.r#type), ("key", self.key)];
        if let Some((name, _)) = names.iter().find(|(_, text)| text.is_some()) {
            return Err(EventError::Field(format!("field `{name}` does not go with `token`")));
        }
        Ok(SentMessage::Resume(ResumeMessage { token: Token::new(token)?, payload }))
    }
}

fn needed(name: &str, text: Option<String>) -> Result<String, EventError> {
    text.ok_or_else(|| EventError::Body(format!("missing field `{name}`")))
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
        read(Encoding::Json, body.as_bytes()).map(|sent| match sent {
            SentMessage::Event(event) => event,
            SentMessage::Resume(resume) => panic!("{resume:?}"),
        })
    }

    fn read(encoding: Encoding, body: &[u8]) -> Result<SentMessage, EventError> {
        SentMessage::parse(encoding, body, LIMIT)
    }

    #[test]
    fn h45_a_message_with_a_token_resumes_its_hook() {
        let body = r#"{"token":"order:1","payload":{"n": 9007199254740993}}"#;
        let packed = rmp_serde::to_vec_named(&serde_json::json!({"token":"order:1"})).unwrap();
        let resume = |encoding, body| match read(encoding, body) {
            Ok(SentMessage::Resume(ResumeMessage { token, payload })) => (token.to_string(), payload.clone()),
            other => panic!("{other:?}"),
        };
        let (token, payload) = resume(Encoding::Json, body.as_bytes());
        assert_eq!((token.as_str(), payload.as_str()), ("order:1", r#"{"n":9007199254740993}"#));
        assert_eq!(resume(Encoding::MessagePack, &packed), ("order:1".to_owned(), Payload::null()));
        for (body, code) in [
            (r#"{"token":""}"#, "name"),
            (r#"{"token":"t","id":"o-1"}"#, "unknown_field"),
            (r#"{"token":7}"#, "body"),
        ] {
            assert_eq!(parse(body).unwrap_err().code(), code, "{body}");
        }
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
        let Ok(SentMessage::Event(event)) = read(Encoding::MessagePack, &body) else { panic!("no event") };
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
