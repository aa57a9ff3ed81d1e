//! What whoever calls a webhook is answered, in the making.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use everstep_protocol::hook as said;
use serde::Serialize;

const CONTENT_TYPE: &str = "content-type";

/// What whoever calls a webhook is answered. It is checked where it is used: at most 256 KiB and 32 headers, a status of 200 to 599.
#[derive(Clone)]
#[must_use = "it is answered by whoever is given it"]
pub struct WebhookResponse {
    said: said::WebhookResponse,
    /// Why there is no such body. The first reason stays.
    refused: Option<String>,
}

impl WebhookResponse {
    /// An answer without a body.
    pub const fn new(status: u16) -> Self {
        let said = said::WebhookResponse { status, headers: Vec::new(), body: None, base64: false };
        Self { said, refused: None }
    }

    /// With a header; the same name again is one more.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.said.headers.push((name.into(), value.into()));
        self
    }

    /// With a body of text: `text/plain` in UTF-8, unless a header `content-type` says otherwise.
    pub fn text(mut self, body: impl Into<String>) -> Self {
        (self.said.body, self.said.base64) = (Some(body.into()), false);
        self.typed("text/plain; charset=utf-8")
    }

    /// With a body of JSON: `application/json`, unless a header `content-type` says otherwise.
    pub fn json(mut self, body: &(impl Serialize + ?Sized)) -> Self {
        match serde_json::to_string(body) {
            Ok(text) => (self.said.body, self.said.base64) = (Some(text), false),
            Err(error) => {
                self.refused.get_or_insert(format!("the body of the answer: {error}"));
            }
        }
        self.typed("application/json")
    }

    /// With a body of bytes: `application/octet-stream`, unless a header `content-type` says otherwise.
    pub fn bytes(mut self, body: impl AsRef<[u8]>) -> Self {
        (self.said.body, self.said.base64) = (Some(STANDARD.encode(body)), true);
        self.typed("application/octet-stream")
    }

    fn typed(self, kind: &str) -> Self {
        let has_type = self.said.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE));
        if has_type { self } else { self.header(CONTENT_TYPE, kind) }
    }

    pub(super) fn into_said(self) -> Result<said::WebhookResponse, String> {
        let Self { mut said, refused } = self;
        if let Some(reason) = refused {
            return Err(reason);
        }
        // One content type, the author's, wherever it was said.
        let mut types = 0;
        said.headers.reverse();
        said.headers.retain(|(name, _)| {
            types += usize::from(name.eq_ignore_ascii_case(CONTENT_TYPE));
            !name.eq_ignore_ascii_case(CONTENT_TYPE) || types == 1
        });
        said.headers.reverse();
        said.check().map_err(|error| error.to_string())?;
        Ok(said)
    }
}

/// Not what it says, which may be anything.
impl fmt::Debug for WebhookResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookResponse").field("status", &self.said.status).finish_non_exhaustive()
    }
}
