//! JSON text to canonical JSON text in one pass (L2): no tree is built, only members out of order are moved.

use std::fmt::{self, Write as _};
use std::ops::Range;

use serde::de::{self, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::payload::PayloadError;

/// What an error shows of a member's name, in characters.
const SHOWN_CHARS: usize = 60;

pub(super) fn write(text: &str) -> Result<String, PayloadError> {
    let mut writer =
        Writer { out: String::with_capacity(text.len()), names: String::new(), named_twice: None };
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = writer.deserialize(&mut reader).and_then(|()| reader.end());
    match (read, writer.named_twice) {
        (Ok(()), _) => Ok(writer.out),
        (Err(_), Some(name)) => Err(PayloadError::MemberTwice { name }),
        (Err(error), None) => Err(PayloadError::not_json(text, &error)),
    }
}

pub(super) fn push_integer(out: &mut String, integer: impl fmt::Display) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{integer}");
}

/// Only what JSON must escape is escaped, in the shortest way.
pub(super) fn push_string(out: &mut String, text: &str) {
    out.push('"');
    let mut copied = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[copied..at]);
        copied = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            8 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            12 => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            other => {
                let _ = write!(out, "\\u{other:04x}");
            }
        }
    }
    out.push_str(&text[copied..]);
    out.push('"');
}

struct Writer {
    out: String,
    /// The names of the members of all open objects, one behind the other, unescaped.
    names: String,
    named_twice: Option<String>,
}

/// One member of an open object: where its name is in `names` and its whole text in `out`.
struct Member {
    name: Range<usize>,
    text: Range<usize>,
}

impl Writer {
    /// Puts the members, which begin at `start` with commas between them, into their order.
    fn sort(&mut self, start: usize, mut members: Vec<Member>) -> Result<(), ()> {
        let name = |member: &Member| &self.names[member.name.clone()];
        let order = |a: &Member, b: &Member| name(a).encode_utf16().cmp(name(b).encode_utf16());
        if members.is_sorted_by(|a, b| order(a, b).is_lt()) {
            return Ok(());
        }
        members.sort_unstable_by(order);
        if let Some([twice, ..]) = members.windows(2).find(|pair| order(&pair[0], &pair[1]).is_eq()) {
            self.named_twice = Some(name(twice).chars().take(SHOWN_CHARS).collect());
            return Err(());
        }
        let mut sorted = String::with_capacity(self.out.len() - start);
        for member in &members {
            if !sorted.is_empty() {
                sorted.push(',');
            }
            sorted.push_str(&self.out[member.text.clone()]);
        }
        self.out.truncate(start);
        self.out.push_str(&sorted);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &mut Writer {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Writer {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.out.push_str("null");
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.out.push_str(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        push_integer(&mut self.out, value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        push_integer(&mut self.out, value);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.out.push_str(ryu_js::Buffer::new().format_finite(value));
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        push_string(&mut self.out, text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.out.push('[');
        let start = self.out.len();
        while items.next_element_seed(&mut *self)?.is_some() {
            self.out.push(',');
        }
        if self.out.len() > start {
            self.out.pop();
        }
        self.out.push(']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        self.out.push('{');
        let start = self.out.len();
        let names_start = self.names.len();
        let mut seen = Vec::new();
        loop {
            let text_start = self.out.len();
            let Some(name) = members.next_key_seed(Name(&mut *self))? else { break };
            self.out.push(':');
            members.next_value_seed(&mut *self)?;
            seen.push(Member { name, text: text_start..self.out.len() });
            self.out.push(',');
        }
        if self.out.len() > start {
            self.out.pop();
        }
        self.sort(start, seen).map_err(|()| A::Error::custom("a member twice"))?;
        self.names.truncate(names_start);
        self.out.push('}');
        Ok(())
    }
}

/// Writes the name of a member and keeps it for sorting.
struct Name<'a>(&'a mut Writer);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Range<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Range<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Range<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Range<usize>, E> {
        push_string(&mut self.0.out, text);
        let start = self.0.names.len();
        self.0.names.push_str(text);
        Ok(start..self.0.names.len())
    }
}
