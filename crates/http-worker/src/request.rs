//! A call as a workflow describes it: the input of the step, so it stands in the journal. Secrets are in it by reference only.

use base64::{Engine, engine::general_purpose::STANDARD};
use everstep_protocol::Millis;
use everstep_sdk::{IntoMillis, RemoteCall, Workflow};
use serde::{Deserialize, Serialize, Serializer, ser};
use serde_json::value::{RawValue, to_raw_value};

use crate::{FUNCTION, POOL, Response};

/// An HTTP call. What is wrong with it is an error of the step that makes it, not of the code that describes it.
///
/// A worker refuses a request with a field that it does not know, rather than to leave out what the field asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[must_use = "a request is made when it is handed to a step"]
pub struct Request {
    pub(crate) method: String,
    pub(crate) url: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) query: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<Content>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<Millis>,
    #[serde(default, skip_serializing_if = "KeyHeader::is_default")]
    pub(crate) key_header: KeyHeader,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) expect: Vec<u16>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) redirects: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) look_first: Option<LookFirst>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) keep_headers: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) discard_body: bool,
    /// What cannot be written down: the step fails with it, and nothing is sent.
    #[serde(default, skip_deserializing, skip_serializing_if = "Option::is_none", serialize_with = "refuse")]
    pub(crate) broken: Option<String>,
}

/// What a call carries.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// JSON, with the content type `application/json` unless a header says otherwise.
    Json(Box<RawValue>),
    /// Text, with the content type `text/plain; charset=utf-8` unless a header says otherwise.
    Text(String),
    /// Bytes in base64, with the content type `application/octet-stream` unless a header says otherwise.
    Base64(String),
}

/// How the step's idempotency key travels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyHeader {
    /// As `Idempotency-Key`.
    #[default]
    Default,
    /// As this header.
    Named(String),
    /// Not at all; for GET, HEAD and OPTIONS only, unless the URL has it.
    LeftOut,
}

impl KeyHeader {
    fn is_default(&self) -> bool {
        *self == Self::Default
    }
}

/// A look before the call: a GET that tells whether an earlier attempt, or somebody else, has done it already.
///
/// 200 means done, and the answer of the look is the output of the step. 404 means not done, and the call is made. With
/// [`when`](Self::when) a 200 counts only if a value in its JSON body is as said. Everything else is an error, and nothing is
/// sent.
///
/// In the URL `{key}` stands for the step's idempotency key, and `{body:/order/id}` for what this JSON pointer finds in the
/// JSON body of the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[must_use = "hand it to a request"]
pub struct LookFirst {
    pub(crate) url: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) when: Option<When>,
    #[serde(default, skip_deserializing, skip_serializing_if = "Option::is_none", serialize_with = "refuse")]
    broken: Option<String>,
}

/// A condition on the JSON body of a look.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct When {
    pub(crate) pointer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) equals: Option<Box<RawValue>>,
}

/// A GET.
pub fn get(url: impl Into<String>) -> Request {
    request("GET", url)
}

/// A HEAD.
pub fn head(url: impl Into<String>) -> Request {
    request("HEAD", url)
}

/// A POST.
pub fn post(url: impl Into<String>) -> Request {
    request("POST", url)
}

/// A PUT.
pub fn put(url: impl Into<String>) -> Request {
    request("PUT", url)
}

/// A PATCH.
pub fn patch(url: impl Into<String>) -> Request {
    request("PATCH", url)
}

/// A DELETE.
pub fn delete(url: impl Into<String>) -> Request {
    request("DELETE", url)
}

/// A call by any method. The URL begins with `https://`, or with `http://` where the worker's settings allow that for the host.
/// `{key}` and `{body:/pointer}` stand in it for what they do in [`LookFirst`].
pub fn request(method: impl Into<String>, url: impl Into<String>) -> Request {
    Request {
        method: method.into(),
        url: url.into(),
        query: Vec::new(),
        headers: Vec::new(),
        body: None,
        timeout_ms: None,
        key_header: KeyHeader::Default,
        expect: Vec::new(),
        redirects: 0,
        look_first: None,
        keep_headers: Vec::new(),
        discard_body: false,
        broken: None,
    }
}

impl Request {
    /// Adds a pair to the query. It is escaped here.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "reads better at the call, where values are literals and numbers"
    )]
    pub fn query(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.query.push((name.into(), value.to_string()));
        self
    }

    /// Adds a header. `{secret:NAME}` in the value, or in a part of it, is replaced by the worker's secret of that name when the
    /// call is made; the journal holds the reference alone.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Carries this value as JSON.
    pub fn json(mut self, value: &(impl Serialize + ?Sized)) -> Self {
        match to_raw_value(value) {
            Ok(json) => self.body = Some(Content::Json(json)),
            Err(error) => self.spoil(format!("the body has no JSON form: {error}")),
        }
        self
    }

    /// Carries this text.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.body = Some(Content::Text(text.into()));
        self
    }

    /// Carries these bytes.
    pub fn bytes(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.body = Some(Content::Base64(STANDARD.encode(bytes)));
        self
    }

    /// How long the whole exchange may take, from the look-up of the name to the last byte of the answer. Default, and most:
    /// what the worker's settings say, 30 s and 10 min unless changed. A look before the call has as long for itself.
    pub fn timeout(mut self, timeout: impl IntoMillis) -> Self {
        match timeout.into_millis() {
            Ok(timeout) => self.timeout_ms = Some(timeout),
            Err(error) => self.spoil(format!("the timeout: {error}")),
        }
        self
    }

    /// Sends the step's key in a header of this name instead of `Idempotency-Key`.
    pub fn key_header(mut self, name: impl Into<String>) -> Self {
        self.key_header = KeyHeader::Named(name.into());
        self
    }

    /// Does not send the step's key. Refused where the method is not GET, HEAD or OPTIONS and the URL has no `{key}` either: a
    /// retry could then do the work twice.
    pub fn without_key(mut self) -> Self {
        self.key_header = KeyHeader::LeftOut;
        self
    }

    /// The statuses that are an output, whatever they are otherwise. Default: 200 to 299.
    pub fn expect(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.expect = statuses.into_iter().collect();
        self
    }

    /// Follows at most so many redirects, to hosts that the worker's settings allow. 301 and 302 are followed for GET and HEAD
    /// alone, since clients disagree on what becomes of a POST; 303 by a GET; 307 and 308 as they were. Headers with secrets, and
    /// those that identify the caller, do not go to another host. Default: none.
    pub const fn follow_redirects(mut self, at_most: u8) -> Self {
        self.redirects = at_most;
        self
    }

    /// Looks before each attempt whether the call was made already.
    pub fn look_first(mut self, mut look: LookFirst) -> Self {
        if let Some(broken) = look.broken.take() {
            self.spoil(format!("look first: {broken}"));
        }
        self.look_first = Some(look);
        self
    }

    /// Keeps these headers of the answer, beside `content-type`, `etag` and `location`.
    pub fn keep_headers<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.keep_headers.extend(names.into_iter().map(Into::into));
        self
    }

    /// Does not keep the body of the answer, nor read it: for answers that nobody needs, of any size.
    pub const fn discard_body(mut self) -> Self {
        self.discard_body = true;
        self
    }

    /// The step of this name that makes the call, on the pool [`POOL`]. Its policy is set as that of any remote step:
    /// `retry`, `timeout`, `sensitive`, `on` for another pool.
    pub fn step(self, cx: &Workflow, name: impl AsRef<str>) -> RemoteCall<Response> {
        cx.remote(name, self).function(FUNCTION).on(POOL)
    }

    fn spoil(&mut self, reason: String) {
        self.broken.get_or_insert(reason);
    }
}

impl LookFirst {
    /// Looks by a GET to this URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), headers: Vec::new(), when: None, broken: None }
    }

    /// Adds a header, with secrets by reference as in [`Request::header`].
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// A 200 counts only if its JSON body has this value at this JSON pointer.
    pub fn when(mut self, pointer: impl Into<String>, equals: &(impl Serialize + ?Sized)) -> Self {
        match to_raw_value(equals) {
            Ok(value) => self.when = Some(When { pointer: pointer.into(), equals: Some(value) }),
            Err(error) => self.broken = Some(format!("the value has no JSON form: {error}")),
        }
        self
    }

    /// A 200 counts only if its JSON body has anything but null at this JSON pointer.
    pub fn when_present(mut self, pointer: impl Into<String>) -> Self {
        self.when = Some(When { pointer: pointer.into(), equals: None });
        self
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(count: &u8) -> bool {
    *count == 0
}

#[allow(clippy::ref_option, reason = "serde passes references")]
fn refuse<S: Serializer>(broken: &Option<String>, _: S) -> Result<S::Ok, S::Error> {
    Err(ser::Error::custom(broken.as_deref().unwrap_or("the request is broken")))
}

#[cfg(test)]
mod tests {
    //! Proves what a request is as a step's input. What becomes of it: tests/calls.rs.
    use everstep_protocol::Payload;

    use super::*;

    #[test]
    fn l03_a_request_is_written_as_short_as_it_is_and_read_back() {
        let short = Payload::encode(&get("https://a.example/x")).unwrap();
        assert_eq!(short.as_str(), r#"{"method":"GET","url":"https://a.example/x"}"#);
        let long = put("https://a.example/{key}")
            .query("page", 2)
            .header("authorization", "Bearer {secret:A}")
            .json(&serde_json::json!({"n": 12_345_678_901_234_567_890_u64}))
            .timeout("2s")
            .without_key()
            .expect([200, 409])
            .follow_redirects(3)
            .look_first(LookFirst::new("https://a.example/{key}").when("/state", "done"))
            .keep_headers(["x-id"])
            .discard_body();
        let text = Payload::encode(&long).unwrap();
        assert!(text.as_str().contains(r#""body":{"json":{"n":12345678901234567890}}"#), "{text:?}");
        let back: Request = text.decode().unwrap();
        assert_eq!(Payload::encode(&back).unwrap(), text);
    }

    #[test]
    fn what_cannot_be_written_down_is_an_error_of_the_step() {
        let keys = std::collections::BTreeMap::from([((1, 2), 3)]);
        for (broken, says) in [
            (post("https://a.example").json(&keys), "no JSON form"),
            (post("https://a.example").timeout("soon"), "timeout"),
            (get("https://a.example").look_first(LookFirst::new("x").when("/a", &keys)), "look first"),
        ] {
            let error = Payload::encode(&broken).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_field_that_is_not_known_is_refused() {
        let newer = Payload::from_text(r#"{"method":"GET","url":"https://a.example","twice":true}"#).unwrap();
        assert!(newer.decode::<Request>().unwrap_err().to_string().contains("twice"));
    }
}
