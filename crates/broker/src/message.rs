//! Messages on their way out and in.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;

/// A message to publish.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The exchange; empty for the default exchange, where the routing key is the queue's name.
    pub exchange: Cow<'static, str>,
    /// The routing key: at most 255 bytes.
    pub routing_key: String,
    /// The payload.
    pub body: Bytes,
    /// Everything else.
    pub properties: Properties,
}

impl Outgoing {
    /// A message for one queue, through the default exchange.
    pub fn to_queue(queue: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::to_exchange("", queue, body)
    }

    /// A message for an exchange.
    pub fn to_exchange(
        exchange: impl Into<Cow<'static, str>>,
        routing_key: impl Into<String>,
        body: impl Into<Bytes>,
    ) -> Self {
        Self {
            exchange: exchange.into(),
            routing_key: routing_key.into(),
            body: body.into(),
            properties: Properties::default(),
        }
    }

    /// The same message with these properties.
    pub fn with(mut self, properties: Properties) -> Self {
        self.properties = properties;
        self
    }
}

/// The properties of a message. Texts are at most 255 bytes (header texts excepted).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Identity for deduplication; [`crate::Broker::send_confirmed`] makes one up where it is missing.
    pub message_id: Option<String>,
    /// The sending application.
    pub app_id: Option<String>,
    /// Media type of the body.
    pub content_type: Option<String>,
    /// What an answer refers to.
    pub correlation_id: Option<String>,
    /// Queue to answer to.
    pub reply_to: Option<String>,
    /// Survives a restart of the broker (delivery mode 2).
    pub persistent: bool,
    /// Dropped if not delivered within this many milliseconds.
    pub expiration_ms: Option<u32>,
    /// Application headers.
    pub headers: BTreeMap<String, HeaderValue>,
}

/// The value of a header. Kinds of other clients (arrays, tables, floats, ...) arrive rendered as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderValue {
    /// Text.
    Text(String),
    /// Any integer.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

impl HeaderValue {
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Int(_) | Self::Bool(_) => None,
        }
    }
}

impl From<&str> for HeaderValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for HeaderValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for HeaderValue {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for HeaderValue {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

/// A received message without its settle handle.
#[derive(Clone, Debug)]
pub struct Message {
    /// The payload.
    pub body: Bytes,
    /// Everything else.
    pub properties: Properties,
    /// The key it was published with.
    pub routing_key: String,
    /// The exchange it was published to.
    pub exchange: String,
    /// It was delivered before, to somebody, and not settled.
    pub redelivered: bool,
}

/// What became of a message published with a confirm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// The broker has it.
    Confirmed,
    /// No queue takes it (mandatory only).
    Unroutable,
    /// The broker would not take it.
    Refused,
    /// No answer: it may or may not be there. Repeat with the same message id.
    Unknown,
}
