//! The answer to a call: the output of the step, so it stands in the journal.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use everstep_sdk::Error;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Response {
    /// Its status.
    pub status: u16,
    /// `content-type`, `etag`, `location` and what the request asked for, by their names in lower case. Of a header that came
    /// several times the values are joined by a comma.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Its body.
    #[serde(default, skip_serializing_if = "Body::is_empty")]
    pub body: Body,
    /// A look before the call found this; the call was not made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub found: bool,
}

/// The body of an answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// There was none, or it was not wanted.
    #[default]
    Empty,
    /// JSON, as it was written.
    Json(Box<RawValue>),
    /// Text.
    Text(String),
    /// Bytes in base64: what is not UTF-8, and what is compressed.
    Base64(String),
}

impl Body {
    /// There was none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

impl Response {
    /// Its JSON body as a value; a permanent error if it is no JSON or does not fit.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let text = match &self.body {
            Body::Json(json) => json.get(),
            Body::Text(text) => text,
            Body::Empty | Body::Base64(_) => {
                let message = format!("the answer with status {} has no JSON body", self.status);
                return Err(Error::permanent(message).named("HttpBody"));
            }
        };
        serde_json::from_str(text).map_err(|error| {
            let message = format!("the body of the answer with status {} does not fit: {error}", self.status);
            Error::permanent(message).named("HttpBody")
        })
    }

    /// Its body as text: JSON as it was written, nothing for none. A permanent error if it is not UTF-8.
    pub fn text(&self) -> Result<&str, Error> {
        match &self.body {
            Body::Empty => Ok(""),
            Body::Json(json) => Ok(json.get()),
            Body::Text(text) => Ok(text),
            Body::Base64(_) => Err(Error::permanent("the body of the answer is no text").named("HttpBody")),
        }
    }

    /// Its body as bytes.
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        match &self.body {
            Body::Base64(text) => STANDARD.decode(text).map_err(|error| {
                Error::permanent(format!("the body of the answer is no base64: {error}")).named("HttpBody")
            }),
            Body::Empty | Body::Json(_) | Body::Text(_) => Ok(self.text()?.as_bytes().to_vec()),
        }
    }

    /// A header that was kept; the name in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(&name.to_ascii_lowercase()).map(String::as_str)
    }
}
