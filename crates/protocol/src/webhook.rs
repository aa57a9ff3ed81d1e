//! Webhooks: hooks that anybody may resume over HTTP (rule H58). What is said of one when it is created, what its code gets of a
//! request, and what whoever sent it is answered.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Fingerprint, Payload, payload::PayloadError};

/// The most bytes of an answer, head and body.
pub const RESPONSE_BYTES: usize = 256 << 10;
/// The most headers of an answer, and the most bytes of one.
const HEADERS_MAX: usize = 32;
const HEADER_BYTES: usize = 4 << 10;
/// Headers of an answer that the server writes, and no workflow.
const NOT_OURS: [&str; 8] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// An HTTP method that a webhook may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// `GET`.
    Get,
    /// `POST`, which one takes unless it is said otherwise.
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
}

crate::every! {
    /// Every method.
    pub Method: Get, Post, Put, Patch, Delete
}

impl Method {
    /// As it stands in a request.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// The method of this name, in capital letters.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.word() == word)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What a webhook takes, and what it answers whoever calls it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// The status; 202 if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The body; empty if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The content type of the body; `text/plain; charset=utf-8` if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// More headers of the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The body of the answer is base64 of bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base64: bool,
    /// The methods that it takes; `POST` if none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<Method>,
    /// What it is resumed with.
    #[serde(default, skip_serializing_if = "is_body")]
    pub carries: Carried,
    /// The code answers: whoever calls waits for that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub manual: bool,
}

/// What a webhook is resumed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carried {
    /// The body alone, as JSON or text.
    #[default]
    Body,
    /// The request, whose body is JSON if it says so, else text or bytes.
    Request,
    /// The request, whose body is text or bytes as it came, for whoever checks a signature.
    RawRequest,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_body(carried: &Carried) -> bool {
    *carried == Carried::Body
}

impl Webhook {
    /// Whether it takes this method.
    #[must_use]
    pub fn takes(&self, method: Method) -> bool {
        if self.methods.is_empty() { method == Method::Post } else { self.methods.contains(&method) }
    }

    /// The methods that it takes, as the header `Allow` says them.
    #[must_use]
    pub fn allow(&self) -> String {
        let methods = Method::ALL.into_iter().filter(|method| self.takes(*method));
        methods.map(Method::word).collect::<Vec<_>>().join(", ")
    }

    /// The answer that was fixed when it was created.
    #[must_use]
    pub fn response(&self) -> WebhookResponse {
        let mut headers = self.headers.clone();
        let has_type = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if self.body.is_some() && !has_type {
            let kind = self.content_type.clone().unwrap_or_else(|| "text/plain; charset=utf-8".to_owned());
            headers.push(("content-type".to_owned(), kind));
        }
        let (status, body) = (self.status.unwrap_or(202), self.body.clone());
        WebhookResponse { status, headers, body, base64: self.base64 }
    }

    /// Whether it may be kept.
    pub fn check(&self) -> Result<(), WebhookError> {
        let is_fixed = self.status.is_some() || self.body.is_some() || !self.headers.is_empty();
        if self.manual && is_fixed {
            return Err(WebhookError::Twice);
        }
        if self.manual && self.carries == Carried::Body {
            return Err(WebhookError::NoRequest);
        }
        self.response().check()
    }
}

/// What whoever calls a webhook is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookResponse {
    /// The status, 200 to 599.
    pub status: u16,
    /// Headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The body; empty if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body is base64 of bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base64: bool,
}

/// Why a webhook, or an answer of one, is refused. The same again is refused again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// The status is none that an answer has.
    #[error("webhook status {0} is refused, it must be 200 to 599")]
    Status(u16),
    /// A header is not acceptable.
    #[error("header {name:?} of the answer is refused: {rule}")]
    Header {
        /// Its name.
        name: String,
        /// What it must be.
        rule: &'static str,
    },
    /// There are too many headers.
    #[error("the answer has {0} headers, the limit is {HEADERS_MAX}")]
    Headers(usize),
    /// The answer is too large.
    #[error("the answer is {0} bytes, the limit is {RESPONSE_BYTES}")]
    TooLarge(usize),
    /// The body is to be base64, and is not.
    #[error("the body of the answer says that it is base64, and is not")]
    Base64,
    /// It has a fixed answer, and one that the code gives.
    #[error("a webhook that the code answers cannot have a fixed answer too")]
    Twice,
    /// The code is to answer, and gets no request that it could answer.
    #[error("a webhook that the code answers must be resumed with the request")]
    NoRequest,
}

impl WebhookResponse {
    /// What is counted of it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        headers + self.body.as_ref().map_or(0, String::len)
    }

    /// Whether it may be kept and sent.
    pub fn check(&self) -> Result<(), WebhookError> {
        if !(200..=599).contains(&self.status) {
            return Err(WebhookError::Status(self.status));
        }
        if self.headers.len() > HEADERS_MAX {
            return Err(WebhookError::Headers(self.headers.len()));
        }
        for (name, value) in &self.headers {
            check_header(name, value)
                .map_err(|rule| WebhookError::Header { name: name.chars().take(64).collect(), rule })?;
        }
        if self.base64 && !self.body.as_deref().is_none_or(is_base64) {
            return Err(WebhookError::Base64);
        }
        let bytes = self.bytes();
        if bytes > RESPONSE_BYTES { Err(WebhookError::TooLarge(bytes)) } else { Ok(()) }
    }
}

/// By its letters and length: what is wrong in the last of them harms nobody.
fn is_base64(text: &str) -> bool {
    let filled = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    text.len().is_multiple_of(4) && filled.bytes().all(is_letter)
}

fn check_header(name: &str, value: &str) -> Result<(), &'static str> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_letter) {
        return Err("its name must be 1 to 64 letters, digits or dashes");
    }
    if NOT_OURS.contains(&name.to_ascii_lowercase().as_str()) {
        return Err("the server writes it itself");
    }
    if value.len() > HEADER_BYTES || !value.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Err("its value must be at most 4,096 printable ASCII characters");
    }
    Ok(())
}

/// What the code gets of a request: the payload of a hook that [carries](Carried) it. Headers that say who may do what, or belong to
/// the way that the request took, are not in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WebhookRequest {
    /// By what a repetition is known; the caller's, or one of its own.
    pub id: String,
    /// The method.
    pub method: Method,
    /// The query, decoded, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<(String, String)>,
    /// The headers, by their names in small letters; of one that came several times the values with commas between.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body, if there is one: JSON, or a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Box<RawValue>>,
    /// What the body is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<BodyEncoding>,
}

/// What the body of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BodyEncoding {
    /// JSON, as such.
    Json,
    /// Text.
    Text,
    /// Bytes that are no text, as base64.
    Base64,
}

impl WebhookRequest {
    /// By what a request with the same id is the same: not by headers, which a sender writes anew for each try.
    pub fn fingerprint(&self) -> Result<Fingerprint, PayloadError> {
        #[derive(Serialize)]
        struct Said<'a> {
            method: Method,
            query: &'a [(String, String)],
            body: Option<&'a RawValue>,
            encoding: Option<BodyEncoding>,
        }
        let Self { method, query, body, encoding, .. } = self;
        let said = Said { method: *method, query, body: body.as_deref(), encoding: *encoding };
        Fingerprint::of(&Payload::encode(&said)?)
    }
}

#[cfg(test)]
mod tests {
    //! Proves what is refused of webhooks and answers, and which requests are the same. Not: who is answered what.
    use super::*;

    #[test]
    fn h58_an_answer_is_checked_before_it_is_kept() {
        let plain = WebhookResponse { status: 200, headers: Vec::new(), body: None, base64: false };
        let with = |name: &str, value: &str| WebhookResponse {
            headers: vec![(name.to_owned(), value.to_owned())],
            ..plain.clone()
        };
        assert_eq!(with("X-Order", "17 \"a\"").check(), Ok(()));
        for (name, value) in [
            ("", "v"),
            ("a b", "v"),
            ("a", "x\r\nset-cookie: a"),
            ("Content-Length", "0"),
            ("transfer-encoding", "chunked"),
            ("a", "ü"),
        ] {
            assert!(matches!(with(name, value).check(), Err(WebhookError::Header { .. })), "{name}");
        }
        for status in [0, 100, 199, 600] {
            let refused = WebhookResponse { status, ..plain.clone() }.check();
            assert_eq!(refused, Err(WebhookError::Status(status)));
        }
        for (body, good) in [("", true), ("YWI=", true), ("YW", false), ("Y=I=", false), ("YWJ\n", false)] {
            let bytes = WebhookResponse { body: Some(body.to_owned()), base64: true, ..plain.clone() };
            assert_eq!(bytes.check().is_ok(), good, "{body:?}");
        }
        let large = WebhookResponse { body: Some("x".repeat(RESPONSE_BYTES + 1)), ..plain.clone() };
        assert_eq!(large.check(), Err(WebhookError::TooLarge(RESPONSE_BYTES + 1)));
        let many = WebhookResponse { headers: vec![("a".to_owned(), String::new()); 33], ..plain };
        assert_eq!(many.check(), Err(WebhookError::Headers(33)));
    }

    #[test]
    fn h58_a_webhook_is_answered_by_its_code_or_by_what_was_fixed() {
        let manual = Webhook { manual: true, carries: Carried::Request, ..Webhook::default() };
        assert_eq!(manual.check(), Ok(()));
        assert_eq!(Webhook { status: Some(200), ..manual.clone() }.check(), Err(WebhookError::Twice));
        assert_eq!(
            Webhook { carries: Carried::Body, ..manual.clone() }.check(),
            Err(WebhookError::NoRequest)
        );
        assert_eq!((manual.allow().as_str(), manual.response().status), ("POST", 202));
        let methods = vec![Method::Delete, Method::Get];
        let other = Webhook { methods, ..Webhook::default() };
        assert_eq!((other.allow().as_str(), other.takes(Method::Post)), ("GET, DELETE", false));
    }

    #[test]
    fn h48_a_request_is_the_same_whatever_its_headers_say() {
        let request = |method, header: &str, body: &str| WebhookRequest {
            id: "1".to_owned(),
            method,
            query: Vec::new(),
            headers: [("webhook-timestamp".to_owned(), header.to_owned())].into(),
            body: Some(RawValue::from_string(body.to_owned()).unwrap()),
            encoding: Some(BodyEncoding::Json),
        };
        let first = request(Method::Post, "1", "{\"a\":1}").fingerprint().unwrap();
        assert_eq!(request(Method::Post, "2", "{\"a\":1}").fingerprint().unwrap(), first);
        assert_ne!(request(Method::Post, "1", "{\"a\":2}").fingerprint().unwrap(), first);
        assert_ne!(request(Method::Put, "1", "{\"a\":1}").fingerprint().unwrap(), first);
    }
}
