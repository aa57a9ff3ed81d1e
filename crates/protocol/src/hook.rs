//! Hooks: addresses that outsiders resume with payloads, each owned by one instance at a time (rules H1 to H70).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

pub use crate::schema::{PATTERN_BYTES, PATTERNS_MAX, SCHEMA_BYTES, check_schema};
pub use crate::webhook::{
    BodyEncoding, Carried, Method, RESPONSE_BYTES, Webhook, WebhookError, WebhookRequest, WebhookResponse,
};
use crate::{Millis, Payload, Position, Run, Timestamp, Token, payload::PayloadError};

/// The name of the error of an await whose hook another instance has taken.
pub const HOOK_TAKEN: &str = "HookTaken";
/// The name of the error of an await, or of the start of a child, whose token another instance has.
pub const HOOK_CONFLICT: &str = "HookConflict";
/// The name of the failure of a resume that found nobody.
pub const HOOK_NOT_FOUND: &str = "HookNotFound";
/// The name of the error of an await whose hook was let go of.
pub const HOOK_DISPOSED: &str = "HookDisposed";

/// The most bytes of a hook's metadata, as JSON.
pub const METADATA_BYTES: usize = 16 << 10;

/// Which hook of its instance: the run and the position of the entry that opened it. A token that is let go and claimed again is
/// another hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HookId {
    /// The run.
    pub run: Run,
    /// The position.
    pub position: Position,
}

impl HookId {
    /// The hook that an instance was started with.
    pub const START: Self = Self { run: Run(0), position: Position(0) };
}

impl fmt::Display for HookId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.run, self.position)
    }
}

/// The text is not that of a hook's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no id of a hook, which is a run and a position with a dot between")]
pub struct NotAHookId;

impl FromStr for HookId {
    type Err = NotAHookId;

    fn from_str(text: &str) -> Result<Self, NotAHookId> {
        let (run, position) = text.split_once('.').ok_or(NotAHookId)?;
        let id = Self {
            run: Run(run.parse().map_err(|_| NotAHookId)?),
            position: Position(position.parse().map_err(|_| NotAHookId)?),
        };
        if id.to_string() == text { Ok(id) } else { Err(NotAHookId) }
    }
}

/// For how long a token stays its instance's at least, also after the end (rules H13 to H16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookRetention {
    /// This long from the start or the creation.
    #[serde(rename = "length")]
    For(Millis),
    /// Until this moment.
    #[serde(rename = "moment")]
    Until(Timestamp),
}

impl HookRetention {
    /// When it is over, counted from `now`.
    #[must_use]
    pub fn until(self, now: Timestamp) -> Timestamp {
        match self {
            Self::For(length) => now.plus(length),
            Self::Until(moment) => moment,
        }
    }

    /// Reads what people write: a duration such as `10 min`, or a moment such as `2027-01-31T12:00:00Z`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Ok(length) = Millis::parse(text) {
            return Self::of_millis(length.as_u64());
        }
        let refused = || {
            format!(
                "retention {text:?} is refused, it must be a duration such as \"10 min\" or a moment such as \
                 \"2027-01-31T12:00:00Z\""
            )
        };
        let moment = humantime::parse_rfc3339_weak(text).map_err(|_| refused())?;
        let since = moment.duration_since(std::time::UNIX_EPOCH).map_err(|_| refused())?;
        let micros = i64::try_from(since.as_micros()).map_err(|_| refused())?;
        Ok(Self::Until(Timestamp(micros)))
    }

    /// This many milliseconds; none is refused, since it is not in the future (rule H30).
    pub fn of_millis(millis: u64) -> Result<Self, String> {
        if millis == 0 {
            return Err("retention 0 is refused, it must end in the future; leave it out for none".to_owned());
        }
        Ok(Self::For(Millis(millis)))
    }
}

impl fmt::Display for HookRetention {
    /// What [`parse`](Self::parse) reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(length) => write!(f, "{} ms", length.as_u64()),
            Self::Until(moment) => moment.fmt(f),
        }
    }
}

/// The hook that an instance is started with (rules H1 to H11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartHook {
    /// The token.
    pub token: Token,
    /// For how long it is the instance's at least; to its end, if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<HookRetention>,
    /// What whoever looks the token up reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Payload>,
    /// The JSON Schema that every payload must fit before it is kept (rule H57).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Payload>,
}

impl StartHook {
    /// A hook with nothing but a token.
    #[must_use]
    pub const fn new(token: Token) -> Self {
        Self { token, retention: None, metadata: None, schema: None }
    }
}

/// A hook that a body creates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The token: the author's, or one that follows from the instance's random bytes (rule W33).
    pub token: Token,
    /// For how long it is the instance's at least; to its end, if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<HookRetention>,
    /// What whoever looks the token up reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Payload>,
    /// Anybody may resume it over HTTP, without an access token, and is answered with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// Takes the token from whoever holds it (rule H59).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The JSON Schema that every payload must fit before it is kept (rule H57).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Payload>,
}

impl Registration {
    /// A hook with nothing but a token.
    #[must_use]
    pub const fn new(token: Token) -> Self {
        Self { token, retention: None, metadata: None, webhook: None, force: false, schema: None }
    }

    /// Bytes of what it says at length: metadata, schema, a fixed answer.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let length = |payload: &Option<Payload>| payload.as_ref().map_or(0, Payload::len);
        let answer = self.webhook.as_ref().map_or(0, |webhook| webhook.response().bytes());
        length(&self.metadata) + length(&self.schema) + answer
    }

    /// What cannot be asked for together (rules H54, H67).
    #[must_use]
    pub const fn contradiction(&self) -> Option<&'static str> {
        match (&self.webhook, self.force, self.retention) {
            (Some(_), true, _) => Some("a webhook cannot take a token from another instance"),
            (Some(_), _, Some(_)) => Some("a webhook cannot have a retention"),
            _ => None,
        }
    }
}

/// Whether metadata may be kept.
pub fn check_metadata(metadata: &Payload) -> Result<(), HookError> {
    let bytes = metadata.len();
    if bytes > METADATA_BYTES { Err(HookError::Metadata { bytes }) } else { Ok(()) }
}

/// Why a hook cannot be had as it is asked for. Asking again for the same gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// The token breaks its rule.
    #[error(transparent)]
    Token(#[from] crate::name::NameError),
    /// The metadata is too large.
    #[error("the metadata of the hook is {bytes} bytes of JSON, the limit is {METADATA_BYTES}")]
    Metadata {
        /// Its size.
        bytes: usize,
    },
    /// The metadata is no JSON.
    #[error("the metadata of the hook is not acceptable: {0}")]
    Json(#[from] PayloadError),
    /// The schema cannot be used.
    #[error("the schema of the hook is refused: {0}; the same schema will be refused again")]
    Schema(String),
}

/// A retention as a person writes it in JSON: milliseconds, a duration, or a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenRetention(pub HookRetention);

impl<'de> Deserialize<'de> for WrittenRetention {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Millis(u64),
            Text(String),
        }
        let form = Form::deserialize(deserializer).map_err(|_| {
            D::Error::custom("the retention of a hook must be milliseconds, a duration or a moment")
        })?;
        let read = match form {
            Form::Millis(millis) => HookRetention::of_millis(millis),
            Form::Text(text) => HookRetention::parse(&text),
        };
        read.map(Self).map_err(D::Error::custom)
    }
}

/// A start hook as a person writes it in JSON; `V` is how a value of any form is read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenHook<V> {
    token: String,
    #[serde(default = "Option::default")]
    retention: Option<WrittenRetention>,
    #[serde(default = "Option::default")]
    metadata: Option<V>,
    #[serde(default = "Option::default")]
    schema: Option<V>,
}

impl<V> WrittenHook<V> {
    /// Checks it; `read` makes payloads of the metadata and of the schema.
    pub fn check(self, read: impl Fn(V) -> Result<Payload, PayloadError>) -> Result<StartHook, HookError> {
        let metadata = self.metadata.map(&read).transpose()?;
        metadata.as_ref().map_or(Ok(()), check_metadata)?;
        let schema = self.schema.map(read).transpose();
        let schema = schema.map_err(|error| HookError::Schema(error.to_string()))?;
        schema.as_ref().map_or(Ok(()), check_schema)?;
        let retention = self.retention.map(|written| written.0);
        Ok(StartHook { token: Token::new(self.token)?, retention, metadata, schema })
    }
}

#[cfg(test)]
mod tests {
    //! Proves how hooks are written and what is refused before anybody is asked. Not: who gets a token.
    use super::*;

    #[test]
    fn h14_a_retention_is_milliseconds_a_duration_or_a_moment() {
        let read = |text: &str| serde_json::from_str::<WrittenRetention>(text).ok().map(|read| read.0);
        assert_eq!(read("1500"), Some(HookRetention::For(Millis(1_500))));
        assert_eq!(read(r#""10 min""#), Some(HookRetention::For(Millis(600_000))));
        let moment = HookRetention::Until(Timestamp(1_801_396_800_000_000));
        assert_eq!(read(r#""2027-01-31T12:00:00Z""#), Some(moment));
        assert_eq!(HookRetention::For(Millis(5)).until(Timestamp(7)), Timestamp(5_007));
        for retention in [HookRetention::For(Millis(1_500)), moment] {
            assert_eq!(HookRetention::parse(&retention.to_string()), Ok(retention));
        }
        assert_eq!(moment.until(Timestamp(7)), Timestamp(1_801_396_800_000_000));
    }

    #[test]
    fn h30_an_empty_token_and_a_retention_without_length_are_refused() {
        for text in ["0", r#""0 s""#, r#""soon""#, "[]", "-5", r#""1969-01-01T00:00:00Z""#] {
            assert!(serde_json::from_str::<WrittenRetention>(text).is_err(), "{text}");
        }
        let hook = |text: &str| {
            let written: WrittenHook<serde_json::Value> = serde_json::from_str(text).unwrap();
            written.check(|value| Payload::encode(&value))
        };
        assert!(matches!(hook(r#"{"token":""}"#), Err(HookError::Token(_))));
        let long = "x".repeat(257);
        assert!(matches!(hook(&format!(r#"{{"token":"{long}"}}"#)), Err(HookError::Token(_))));
        assert_eq!(hook(&format!(r#"{{"token":"{}"}}"#, &long[1..])).unwrap().token.as_str().len(), 256);
        let metadata = "m".repeat(METADATA_BYTES);
        let large = hook(&format!(r#"{{"token":"t","metadata":"{metadata}"}}"#));
        assert_eq!(large, Err(HookError::Metadata { bytes: METADATA_BYTES + 2 }));
    }

    #[test]
    fn h10_a_start_hook_knows_neither_webhook_nor_force() {
        for field in ["webhook", "force"] {
            let text = format!(r#"{{"token":"t","{field}":true}}"#);
            let read = serde_json::from_str::<WrittenHook<serde_json::Value>>(&text);
            assert!(read.unwrap_err().to_string().contains("unknown field"), "{field}");
        }
    }

    #[test]
    fn h54_h67_a_webhook_has_no_retention_and_takes_nothing() {
        let plain = Registration { force: true, ..Registration::new(Token::new("t").unwrap()) };
        assert_eq!(plain.contradiction(), None);
        let webhook = Registration { webhook: Some(Webhook::default()), ..plain };
        assert!(webhook.contradiction().unwrap().contains("take"));
        let kept = Registration { force: false, retention: Some(HookRetention::For(Millis(1))), ..webhook };
        assert!(kept.contradiction().unwrap().contains("retention"));
    }

    #[test]
    fn the_id_of_a_hook_reads_back() {
        for id in [HookId::START, HookId { run: Run(3), position: Position(u64::MAX) }] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in ["", "1", "1.", "01.2", "1.2.3", "-1.2"] {
            assert_eq!(text.parse::<HookId>(), Err(NotAHookId), "{text}");
        }
    }
}
