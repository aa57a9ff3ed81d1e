//! What user code takes and gives, as compact JSON text: the form in which it is sent, stored, measured and hashed (P3).
//!
//! Text from outside enters through [`Payload::from_text`], values of Rust through [`Payload::encode`]. Both keep every
//! digit and the order of members, and refuse what would not come back the same. Sizes are limited elsewhere (P4).

mod watched;

use std::sync::{Arc, LazyLock};

use serde::de::{DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How deep arrays and objects may be nested; the JSON reader stops there too, which keeps the stack bounded.
pub const DEPTH_MAX: u32 = 127;

/// One JSON value as compact text. Cloning shares the text; equality is equality of text.
///
/// On the wire it is a string. Reading it from the wire does not parse it: whoever receives it from an untrusted
/// sender calls [`Payload::check`] once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Payload(Arc<str>);

impl Payload {
    /// The JSON value `null`, which also stands for a unit.
    pub fn null() -> Payload {
        static NULL: LazyLock<Payload> = LazyLock::new(|| Payload("null".into()));
        NULL.clone()
    }

    /// Checks that `text` is exactly one JSON value and keeps it without the blanks between its tokens. Numbers,
    /// strings and the order of members stay as they were written.
    pub fn from_text(text: &str) -> Result<Payload, PayloadError> {
        check(text)?;
        Ok(Payload(compact(text).into()))
    }

    /// Takes over compact JSON text that this program wrote itself, such as a row of the store. Not checked; text that
    /// is no JSON comes to light as an error of [`Payload::decode`].
    pub fn from_trusted(text: String) -> Payload {
        Payload(text.into())
    }

    /// Writes a value as JSON.
    ///
    /// Refused are NaN and infinity anywhere inside, integers beyond 64 bits, nesting beyond [`DEPTH_MAX`], map keys
    /// that JSON cannot hold, and values whose own `Serialize` fails. None of them succeeds when tried again.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Payload, PayloadError> {
        let (text, holds_raw) = watched::write(value)?;
        if holds_raw { Payload::from_text(&text) } else { Ok(Payload(text.into())) }
    }

    /// Reads the text as a value of the wanted type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        serde_json::from_str(&self.0).map_err(|error| PayloadError::DoesNotFit { message: error.to_string() })
    }

    /// Whether the text is what [`Payload::from_text`] would accept, apart from blanks.
    pub fn check(&self) -> Result<(), PayloadError> {
        check(&self.0)
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The length of the text in bytes, which is what limits count (P4).
    #[allow(clippy::len_without_is_empty, reason = "JSON text is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl Default for Payload {
    fn default() -> Payload {
        Payload::null()
    }
}

impl AsRef<str> for Payload {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// A value or text that cannot be a payload, or a payload that is not the wanted value. A retry gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PayloadError {
    /// The text is not one JSON value, or is nested too deep.
    #[error("not JSON at byte {at}: {message}")]
    NotJson {
        /// Where reading stopped, in bytes from the start.
        at: usize,
        /// What was wrong there.
        message: String,
    },
    /// A float is NaN or infinite, which JSON cannot hold (P3).
    #[error("the number at {path} is NaN or infinite, which JSON cannot hold")]
    NotFinite {
        /// Where in the value, `$` being the whole: `$.prices[3]`.
        path: String,
    },
    /// The value cannot be written as JSON.
    #[error("not serialisable as JSON: {message}")]
    Unserialisable {
        /// Why, and where inside the value.
        message: String,
    },
    /// The payload is not of the type that was asked for.
    #[error("the payload does not fit the type asked for: {message}")]
    DoesNotFit {
        /// What the type's own reader said.
        message: String,
    },
    /// An object has two members of one name, so that readers would disagree about its value; it has no canonical form.
    #[error("an object has the member {name:?} twice")]
    MemberTwice {
        /// The name, at most 60 characters of it.
        name: String,
    },
}

impl PayloadError {
    /// `error` is what reading `text` ended with.
    pub(crate) fn not_json(text: &str, error: &serde_json::Error) -> PayloadError {
        let before: usize =
            text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(&*message, |(reason, _)| reason);
        PayloadError::NotJson { at: before + error.column(), message: message.to_owned() }
    }
}

fn check(text: &str) -> Result<(), PayloadError> {
    serde_json::from_str::<Strict>(text).map(drop).map_err(|error| PayloadError::not_json(text, &error))
}

/// Reads any JSON value and forgets it. Unlike serde's `IgnoredAny` it decodes strings and numbers and counts the
/// depth, so that lone surrogates, `1e999` and endless nesting are found.
struct Strict;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strict, D::Error> {
        deserializer.deserialize_any(Strict)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Strict;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Strict, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Strict, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Strict, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Strict, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Strict, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Strict, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Strict, A::Error> {
        while items.next_element::<Strict>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Strict, A::Error> {
        while members.next_entry::<Strict, Strict>()?.is_some() {}
        Ok(self)
    }
}

/// Drops the blanks between the tokens of valid JSON text.
fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut kept_from = 0;
    let mut in_string = false;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            b' ' | b'\t' | b'\n' | b'\r' if !in_string => {
                out.push_str(&text[kept_from..at]);
                kept_from = at + 1;
            }
            _ => {}
        }
    }
    out.push_str(&text[kept_from..]);
    out
}

#[cfg(test)]
mod tests;
