//! Attributes: searchable pairs of a name and a plain value that an instance carries (rule P37).

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize, de};

use crate::{AttributeName, Payload, key::canonical, name::NameError};

/// The most attributes of one instance.
pub const ATTRIBUTES_MAX: usize = 32;

/// The longest text of an attribute, in characters.
pub const TEXT_CHARS_MAX: usize = 256;

/// One attribute; without a value it is one that is removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attribute {
    /// Its name.
    pub name: AttributeName,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<AttributeValue>,
}

/// A text, a number or a truth, by its canonical JSON: two that are equal have the same text, so `1` is `1.0`, and the text
/// `"1"` is neither.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct AttributeValue(String);

/// Why attributes are refused. Trying again gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// A name breaks its rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A value is none of the kinds that there are, or too long.
    #[error("{name}is refused, it must be a text of at most {max} characters without control characters, a number, true or false", max = TEXT_CHARS_MAX)]
    Value {
        /// Which attribute, followed by a blank; empty where it is not known.
        name: String,
    },
    /// There are too many.
    #[error("{0} attributes are refused, an instance has at most {max}", max = ATTRIBUTES_MAX)]
    TooMany(usize),
    /// What should be a pair is none.
    #[error("attribute {0:?} is refused, it must be name=value")]
    NoPair(String),
}

impl AttributeValue {
    /// Reads a JSON text, a number or a truth.
    pub fn from_json(json: &str) -> Result<Self, AttributeError> {
        let refused = || AttributeError::Value { name: String::new() };
        let payload = Payload::from_text(json).map_err(|_| refused())?;
        match payload.as_str().as_bytes().first() {
            Some(b'"') => {
                let text: String = payload.decode().map_err(|_| refused())?;
                // Characters are counted only of what cannot be a hostile megabyte.
                let fits = text.len() <= 4 * TEXT_CHARS_MAX && text.chars().count() <= TEXT_CHARS_MAX;
                if !fits || text.chars().any(char::is_control) {
                    return Err(refused());
                }
            }
            Some(b't' | b'f' | b'-' | b'0'..=b'9') => {}
            Some(_) | None => return Err(refused()),
        }
        canonical(&payload).map(Self).map_err(|_| refused())
    }

    /// A value as people write it on a command line or in a query: a number, `true`, `false` or a text in quotes; everything else
    /// is a text as it stands.
    pub fn from_words(words: &str) -> Result<Self, AttributeError> {
        match words.as_bytes().first() {
            Some(b'"' | b't' | b'f' | b'-' | b'0'..=b'9') => {
                Self::from_json(words).or_else(|_| Self::from_text(words))
            }
            Some(_) | None => Self::from_text(words),
        }
    }

    /// A text.
    pub fn from_text(text: &str) -> Result<Self, AttributeError> {
        let refused = |_| AttributeError::Value { name: String::new() };
        Self::from_json(Payload::encode(text).map_err(refused)?.as_str())
    }

    /// Its canonical JSON.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for AttributeValue {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = String::deserialize(deserializer)?;
        Self::from_json(&json).map_err(de::Error::custom)
    }
}

impl Attribute {
    /// Checks a name and a value.
    pub fn new(name: &str, value: &serde_json::Value) -> Result<Self, AttributeError> {
        let named = |_| AttributeError::Value { name: format!("attribute {name:?} ") };
        let value = AttributeValue::from_json(&value.to_string()).map_err(named)?;
        Ok(Self { name: AttributeName::new(name)?, value: Some(value) })
    }

    /// Reads `name=value`, the value as [people write it](AttributeValue::from_words).
    pub fn from_words(words: &str) -> Result<Self, AttributeError> {
        let (name, value) = words.split_once('=').ok_or_else(|| AttributeError::NoPair(shown(words)))?;
        let named = |_| AttributeError::Value { name: format!("attribute {name:?} ") };
        let value = AttributeValue::from_words(value).map_err(named)?;
        Ok(Self { name: AttributeName::new(name)?, value: Some(value) })
    }
}

fn shown(words: &str) -> String {
    words.chars().take(60).collect()
}

/// Reads the attributes of a start: an object of plain values.
pub fn read(object: &BTreeMap<String, serde_json::Value>) -> Result<Vec<Attribute>, AttributeError> {
    if object.len() > ATTRIBUTES_MAX {
        return Err(AttributeError::TooMany(object.len()));
    }
    object.iter().map(|(name, value)| Attribute::new(name, value)).collect()
}

/// Their form as a JSON object.
#[must_use]
pub fn object(attributes: &[Attribute]) -> serde_json::Map<String, serde_json::Value> {
    let pair = |attribute: &Attribute| {
        let value = serde_json::from_str(attribute.value.as_ref()?.as_json()).ok()?;
        Some((attribute.name.to_string(), value))
    };
    attributes.iter().filter_map(pair).collect()
}

/// Checks how many there are; each is checked by its type.
pub fn check(attributes: &[Attribute]) -> Result<(), AttributeError> {
    if attributes.len() > ATTRIBUTES_MAX { Err(AttributeError::TooMany(attributes.len())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p37_a_value_is_a_text_a_number_or_a_truth_in_one_form() {
        let long = format!("\"{}\"", "ä".repeat(256));
        let cases = [
            ("\"eu\"", Some("\"eu\"")),
            ("\"\\u0065u\"", Some("\"eu\"")),
            ("1", Some("1")),
            ("1.0", Some("1")),
            ("1e2", Some("100")),
            ("9007199254740993", Some("9007199254740993")),
            ("-0.5", Some("-0.5")),
            ("true", Some("true")),
            (long.as_str(), Some(long.as_str())),
            ("null", None),
            ("[1]", None),
            ("{}", None),
            ("", None),
            ("eu", None),
            ("\"a\\nb\"", None),
            ("\"a\\u0000\"", None),
        ];
        for (json, expected) in cases {
            let read = AttributeValue::from_json(json).ok();
            assert_eq!(read.as_ref().map(AttributeValue::as_json), expected, "{json}");
        }
        assert!(AttributeValue::from_json(&format!("\"{}\"", "ä".repeat(257))).is_err());
    }

    #[test]
    fn p37_words_are_read_as_people_mean_them() {
        let cases = [
            ("customer=c-17", "customer", "\"c-17\""),
            ("n=42", "n", "42"),
            ("n=\"42\"", "n", "\"42\""),
            ("b=true", "b", "true"),
            ("b=truely", "b", "\"truely\""),
            ("d=2026-01-02", "d", "\"2026-01-02\""),
            ("empty=", "empty", "\"\""),
            ("eq=a=b", "eq", "\"a=b\""),
        ];
        for (words, name, value) in cases {
            let read = Attribute::from_words(words).unwrap();
            assert_eq!((read.name.as_str(), read.value.unwrap().as_json()), (name, value), "{words}");
        }
        assert_eq!(Attribute::from_words("no pair"), Err(AttributeError::NoPair("no pair".to_owned())));
        assert!(matches!(Attribute::from_words("a b=1"), Err(AttributeError::Name(_))));
        let error = Attribute::new("a", &serde_json::Value::Null).unwrap_err().to_string();
        assert!(error.starts_with("attribute \"a\" is refused, it must be a text"), "{error}");
    }

    #[test]
    fn p37_the_most_attributes_are_accepted_and_one_more_is_refused() {
        let of = |count: usize| (0..count).map(|n| (format!("a{n}"), serde_json::json!(n))).collect();
        assert_eq!(read(&of(32)).unwrap().len(), 32);
        assert_eq!(read(&of(33)), Err(AttributeError::TooMany(33)));
    }
}
