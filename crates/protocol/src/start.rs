//! The start message: the most public contract there is (rule W40). Any AMQP client can send one.

mod retention;
pub(crate) mod strict;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::retention::Retention;
use self::strict::Strict;
use crate::{
    Attribute, AttributeError, InstanceId, Payload, Pin, WorkflowName,
    hook::{HookError, StartHook, WrittenHook},
    journal::Other,
    name::NameError,
    payload::PayloadError,
};

/// What a start message's body says, after the checks at the edge.
#[derive(Clone, Debug, PartialEq)]
pub struct StartMessage {
    /// The workflow to start.
    pub workflow: WorkflowName,
    /// The instance's id, if the producer chose one.
    pub id: Option<InstanceId>,
    /// The input; null if absent.
    pub input: Payload,
    /// How long the instance is kept after its end, where the start says so.
    pub retention: Retention,
    /// To which build the instance is pinned (rule P40).
    pub pin: Option<Pin>,
    /// Whether the start is refused if no worker serves the workflow, where it differs from the installation (rule P35).
    pub strict: Option<bool>,
    /// What it can be found by (rule P37).
    pub attributes: Vec<Attribute>,
    /// The token that it is started with, which no other instance may have (rule H1).
    pub hook: Option<StartHook>,
}

/// How a body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`; also what an absent content type means.
    Json,
    /// `application/msgpack`: maps with text keys, no binary or extension types.
    MessagePack,
}

impl Encoding {
    /// The encoding of a content type; parameters such as a charset are ignored.
    #[must_use]
    pub fn of(content_type: Option<&str>) -> Option<Self> {
        let Some(text) = content_type else {
            return Some(Self::Json);
        };
        match text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "" | "application/json" => Some(Self::Json),
            "application/msgpack" | "application/x-msgpack" => Some(Self::MessagePack),
            _ => None,
        }
    }
}

/// Why a start cannot be accepted. Sending the same again cannot help, whatever the variant.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The content type is none that is known.
    #[error("content_type {0:?} is not known; it must be application/json or application/msgpack")]
    ContentType(String),
    /// The body is not readable in its encoding.
    #[error("the body is not readable: {0}")]
    Body(String),
    /// The body has a field that is not known.
    #[error("{0}; the fields are workflow, id, input, retention, pin, strict, attributes, hook, token")]
    Field(String),
    /// The body names a token twice.
    #[error("token is short for hook with that token alone; leave one of both out")]
    TokenTwice,
    /// The hook is not acceptable.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// A name breaks its rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The attributes are not acceptable.
    #[error(transparent)]
    Attributes(#[from] AttributeError),
    /// The input is not acceptable.
    #[error("the input is not acceptable: {0}")]
    Input(#[from] PayloadError),
    /// The input is over the limit (rule P4).
    #[error("the input is {bytes} bytes of JSON, the limit is {limit}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Neither the body nor the message names what a redelivery could be known by.
    #[error(
        "an id or a hook in the body, or a message_id, is required, so that a redelivery can never make a second instance"
    )]
    NoIdentity,
}

impl StartError {
    /// The code of the reason: stands in replies, records and metrics.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::ContentType(_) => "content_type",
            Self::Body(_) => "body",
            Self::Field(_) => "unknown_field",
            Self::TokenTwice
            | Self::Hook(HookError::Metadata { .. } | HookError::Json(_) | HookError::Schema(_)) => "hook",
            Self::Name(_) | Self::Attributes(AttributeError::Name(_)) | Self::Hook(HookError::Token(_)) => {
                "name"
            }
            Self::Attributes(_) => "attributes",
            Self::Input(_) => "input",
            Self::TooLarge { .. } => "too_large",
            Self::NoIdentity => "no_identity",
        }
    }
}

/// What a body that is refused says of itself, as far as it is readable: for the reply to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// The workflow that it names, valid or not.
    pub workflow: Option<String>,
    /// The id that it names, valid or not.
    pub id: Option<String>,
}

impl Claimed {
    /// The longest text that is repeated to a producer.
    const BYTES_MAX: usize = 256;

    /// Reads what can be read.
    #[must_use]
    pub fn of(encoding: Encoding, body: &[u8]) -> Self {
        #[derive(Default, Deserialize)]
        struct Lenient {
            #[serde(default)]
            workflow: serde_json::Value,
            #[serde(default)]
            id: serde_json::Value,
        }
        if !is_map(encoding, body) {
            return Self::default();
        }
        let read: Lenient = match encoding {
            Encoding::Json => serde_json::from_slice(body).unwrap_or_default(),
            Encoding::MessagePack => crate::wire::read(body).unwrap_or_default(),
        };
        let text = |value: serde_json::Value| match value {
            serde_json::Value::String(text) if text.len() <= Self::BYTES_MAX => Some(text),
            _ => None,
        };
        Self { workflow: text(read.workflow), id: text(read.id) }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    workflow: String,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    input: Option<serde_json::Value>,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    hook: Option<WrittenHook<serde_json::Value>>,
    #[serde(default)]
    retention: Option<Retention>,
    #[serde(default)]
    pin: Option<Pin>,
    #[serde(default)]
    strict: Option<bool>,
    #[serde(default)]
    attributes: Option<BTreeMap<String, serde_json::Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonBody<'a> {
    workflow: String,
    #[serde(default)]
    id: Option<String>,
    #[serde(default, borrow)]
    input: Option<&'a serde_json::value::RawValue>,
    #[serde(default)]
    token: Option<String>,
    #[serde(default, borrow)]
    hook: Option<WrittenHook<&'a serde_json::value::RawValue>>,
    #[serde(default)]
    retention: Option<Retention>,
    #[serde(default)]
    pin: Option<Pin>,
    #[serde(default)]
    strict: Option<bool>,
    #[serde(default)]
    attributes: Option<BTreeMap<String, serde_json::Value>>,
}

impl StartMessage {
    /// Reads and checks a body.
    pub fn parse(encoding: Encoding, body: &[u8], input_limit: u64) -> Result<Self, StartError> {
        if !is_map(encoding, body) {
            return Err(StartError::Body("it is not a map of fields".to_owned()));
        }
        let (workflow, id, input, rest, attributes, hook) = match encoding {
            Encoding::Json => {
                let body: JsonBody<'_> =
                    serde_json::from_slice(body).map_err(|error| refused(&error.to_string()))?;
                let input = body.input.map(|raw| Payload::from_text(raw.get())).transpose()?;
                let rest = (body.retention, body.pin, body.strict);
                let hook =
                    body.hook.map(|hook| hook.check(|raw| Payload::from_text(raw.get()))).transpose()?;
                (body.workflow, body.id, input, rest, body.attributes, of_token(hook, body.token)?)
            }
            Encoding::MessagePack => {
                let Strict(value) = crate::wire::read(body).map_err(|error| refused(&error.to_string()))?;
                let body: Body =
                    serde_json::from_value(value).map_err(|error| refused(&error.to_string()))?;
                let input = body.input.map(|input| Payload::encode(&input)).transpose()?;
                let rest = (body.retention, body.pin, body.strict);
                let hook = body.hook.map(|hook| hook.check(|value| Payload::encode(&value))).transpose()?;
                (body.workflow, body.id, input, rest, body.attributes, of_token(hook, body.token)?)
            }
        };
        let attributes = crate::attribute::read(&attributes.unwrap_or_default())?;
        let input = input.unwrap_or_else(Payload::null);
        check_input(&input, input_limit)?;
        let id = id.map(InstanceId::new).transpose()?;
        let (retention, pin, strict) = rest;
        let retention = retention.unwrap_or_default();
        Ok(Self {
            workflow: WorkflowName::new(workflow)?,
            id,
            input,
            retention,
            pin,
            strict,
            attributes,
            hook,
        })
    }
}

/// A token alone is short for a hook with nothing but a token.
fn of_token(hook: Option<StartHook>, token: Option<String>) -> Result<Option<StartHook>, StartError> {
    match (hook, token) {
        (hook, None) => Ok(hook),
        (None, Some(token)) => {
            let token = crate::Token::new(token).map_err(HookError::Token)?;
            Ok(Some(StartHook::new(token)))
        }
        (Some(_), Some(_)) => Err(StartError::TokenTwice),
    }
}

/// Derived readers would also take an array of values in field order; the contract knows maps only.
pub(crate) fn is_map(encoding: Encoding, body: &[u8]) -> bool {
    match encoding {
        Encoding::Json => body.trim_ascii_start().first() == Some(&b'{'),
        Encoding::MessagePack => matches!(body.first(), Some(0x80..=0x8f | 0xde | 0xdf)),
    }
}

/// Checks the size of a start's input (rule P4).
pub fn check_input(input: &Payload, limit: u64) -> Result<(), StartError> {
    let bytes = input.len() as u64;
    if bytes > limit { Err(StartError::TooLarge { bytes, limit }) } else { Ok(()) }
}

fn refused(message: &str) -> StartError {
    if message.contains("unknown field") {
        StartError::Field(message.to_owned())
    } else {
        StartError::Body(message.to_owned())
    }
}

/// The reply to a start or an event, if the producer asked for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartReply {
    /// What became of it.
    pub outcome: StartOutcome,
    /// The workflow, if the message named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The instance's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The instance's status, if it existed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The code of a rejection or conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Who has the token that a start asked for; or whose hook was resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Other>,
    /// Whether sending the same again is safe and may help.
    pub retry_safe: bool,
}

/// What became of a start or an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartOutcome {
    /// An instance was created.
    Created,
    /// An instance of that id with the same input exists.
    Exists,
    /// An instance of that id with another input exists, or another instance has the token, and nothing was created; or the
    /// instance that an event was sent to has ended, or it or a hook has another payload of that id, and nothing was kept.
    Conflict,
    /// An event or the payload of a hook was accepted, now or before.
    Accepted,
    /// The start, event or payload can never be accepted.
    Rejected,
    /// Nobody knows; sending it again with the same id tells.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 100;

    fn parse(body: &str) -> Result<StartMessage, StartError> {
        StartMessage::parse(Encoding::Json, body.as_bytes(), LIMIT)
    }

    #[test]
    fn w40_a_start_names_its_workflow_and_keeps_its_input_as_written() {
        let start = parse(r#"{"workflow":"fulfil","id":"o-1","input":{"b": 9007199254740993,"a":"\u0000"}}"#)
            .unwrap();
        assert_eq!(start.workflow.as_str(), "fulfil");
        assert_eq!(start.id.unwrap().as_str(), "o-1");
        assert_eq!(start.input.as_str(), r#"{"b":9007199254740993,"a":"\u0000"}"#);
    }

    #[test]
    fn p37_a_start_has_attributes() {
        let body = r#"{"workflow":"fulfil","attributes":{"region":"eu","n":1.0,"vip":true}}"#;
        let packed: serde_json::Value = serde_json::from_str(body).unwrap();
        let packed = rmp_serde::to_vec_named(&packed).unwrap();
        for (encoding, body) in [(Encoding::Json, body.as_bytes()), (Encoding::MessagePack, &packed)] {
            let start = StartMessage::parse(encoding, body, LIMIT).unwrap();
            let shown: Vec<_> = start
                .attributes
                .iter()
                .map(|attribute| format!("{}={}", attribute.name, attribute.value.as_ref().unwrap()))
                .collect();
            assert_eq!(shown, ["n=1", "region=\"eu\"", "vip=true"]);
        }
    }

    #[test]
    fn h57_a_start_names_the_schema_of_its_hook() {
        let body = r##"{"workflow":"w","hook":{"token":"t","schema":{"items":{"$ref":"#/$defs/a"},"$defs":{"a":true}}}}"##;
        let packed =
            rmp_serde::to_vec_named(&serde_json::from_str::<serde_json::Value>(body).unwrap()).unwrap();
        let hook = parse(body).unwrap().hook.unwrap();
        assert!(hook.schema.is_some());
        let same = StartMessage::parse(Encoding::MessagePack, &packed, LIMIT).unwrap().hook.unwrap();
        let value = |hook: &StartHook| {
            hook.schema.as_ref().map(|schema| schema.decode::<serde_json::Value>().unwrap())
        };
        assert_eq!(value(&hook), value(&same));
        let outside = r#"{"workflow":"w","hook":{"token":"t","schema":{"$ref":"https://example.com"}}}"#;
        let refused = parse(outside).unwrap_err();
        assert!(refused.code() == "hook" && refused.to_string().contains("example.com"), "{refused}");
    }

    #[test]
    fn h01_a_start_names_the_token_of_its_hook() {
        let body =
            r#"{"workflow":"fulfil","hook":{"token":"order:1","retention":"1 day","metadata":{"by": 1.50}}}"#;
        let packed: serde_json::Value =
            serde_json::from_str(r#"{"workflow":"fulfil","hook":{"token":"order:1","retention":86400000}}"#)
                .unwrap();
        let packed = rmp_serde::to_vec_named(&packed).unwrap();
        let hook = parse(body).unwrap().hook.unwrap();
        assert_eq!(hook.metadata.as_ref().map(Payload::as_str), Some(r#"{"by":1.50}"#));
        let same = StartMessage::parse(Encoding::MessagePack, &packed, LIMIT).unwrap().hook.unwrap();
        assert_eq!(StartHook { metadata: None, ..hook }, same);
        let short = parse(r#"{"workflow":"fulfil","token":"order:1"}"#).unwrap().hook.unwrap();
        assert_eq!((short.token.as_str(), short.retention), ("order:1", None));
    }

    #[test]
    fn w40_an_absent_input_is_null() {
        assert_eq!(parse(r#"{"workflow":"fulfil"}"#).unwrap().input, Payload::null());
    }

    #[test]
    fn w40_message_pack_says_the_same() {
        let body = rmp_serde::to_vec_named(&serde_json::json!({"workflow":"fulfil","input":{"n":u64::MAX}}))
            .unwrap();
        let start = StartMessage::parse(Encoding::MessagePack, &body, LIMIT).unwrap();
        assert_eq!(start.input.as_str(), r#"{"n":18446744073709551615}"#);
    }

    #[test]
    fn w40_every_refusal_has_its_code() {
        let long = format!(r#"{{"workflow":"fulfil","input":"{}"}}"#, "x".repeat(99));
        let cases = [
            ("", "body"),
            ("[]", "body"),
            (r#"["fulfil"]"#, "body"),
            ("{", "body"),
            ("{}", "body"),
            (r#"{"workflow":"fulfil","inputs":1}"#, "unknown_field"),
            (r#"{"workflow":"Fulfil"}"#, "name"),
            (r#"{"workflow":"fulfil","id":"a b"}"#, "name"),
            (r#"{"workflow":"fulfil","token":""}"#, "name"),
            (r#"{"workflow":"fulfil","token":7}"#, "body"),
            (r#"{"workflow":"fulfil","hook":{"token":""}}"#, "name"),
            (r#"{"workflow":"fulfil","hook":{"token":"t","retention":0}}"#, "body"),
            (r#"{"workflow":"fulfil","hook":{"token":"t","webhook":{}}}"#, "unknown_field"),
            (r#"{"workflow":"fulfil","hook":{"token":"t"},"token":"t"}"#, "hook"),
            (r#"{"workflow":"fulfil","attributes":{"a":[]}}"#, "attributes"),
            (r#"{"workflow":"fulfil","attributes":{"a b":1}}"#, "name"),
            (&long, "too_large"),
        ];
        for (body, code) in cases {
            assert_eq!(parse(body).unwrap_err().code(), code, "{body}");
        }
        let binary = rmp_serde::to_vec_named(&std::collections::BTreeMap::from([(
            "workflow",
            serde_bytes::ByteBuf::from(vec![1, 2]),
        )]))
        .unwrap();
        assert_eq!(StartMessage::parse(Encoding::MessagePack, &binary, LIMIT).unwrap_err().code(), "body");
    }

    #[test]
    fn p04_the_limit_itself_is_accepted() {
        let exact = format!(r#"{{"workflow":"fulfil","input":"{}"}}"#, "x".repeat(98));
        assert_eq!(parse(&exact).unwrap().input.len(), 100);
    }

    #[test]
    fn w40_a_refused_body_is_still_read_for_its_names() {
        let claimed = |workflow: Option<&str>, id: Option<&str>| Claimed {
            workflow: workflow.map(str::to_owned),
            id: id.map(str::to_owned),
        };
        let read = |body: &str| Claimed::of(Encoding::Json, body.as_bytes());
        assert_eq!(read(r#"{"workflow":"w","id":"x","colour":[1]}"#), claimed(Some("w"), Some("x")));
        assert_eq!(read(r#"{"workflow":"Not A Name","id":7}"#), claimed(Some("Not A Name"), None));
        assert_eq!(
            read(&format!(r#"{{"workflow":"w","id":"{}"}}"#, "y".repeat(257))),
            claimed(Some("w"), None)
        );
        for body in ["", "garbage", "[1]", r#"{"workflow":"w""#] {
            assert_eq!(read(body), claimed(None, None), "{body}");
        }
        let pack = rmp_serde::to_vec_named(&serde_json::json!({"workflow": "w", "x": 1})).unwrap();
        assert_eq!(Claimed::of(Encoding::MessagePack, &pack), claimed(Some("w"), None));
    }

    #[test]
    fn w40_an_absent_content_type_means_json() {
        assert_eq!(Encoding::of(None), Some(Encoding::Json));
        assert_eq!(Encoding::of(Some("application/json; charset=utf-8")), Some(Encoding::Json));
        assert_eq!(Encoding::of(Some("application/msgpack")), Some(Encoding::MessagePack));
        assert_eq!(Encoding::of(Some("text/plain")), None);
    }
}
