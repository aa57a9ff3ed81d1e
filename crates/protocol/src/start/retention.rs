//! How long a start wants its instance kept: a duration for both ends, or one for each.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::{Millis, duration::SLEEP_MAX};

/// How long an instance is kept after its end, where it differs from what its workflow says (rule P32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Retention {
    /// If it ends with an output.
    pub complete: Option<Millis>,
    /// If it ends in any other way.
    pub failed: Option<Millis>,
}

impl Retention {
    /// The same after any end.
    #[must_use]
    pub const fn of_both(span: Millis) -> Self {
        Self { complete: Some(span), failed: Some(span) }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Both(Span),
    Each(BTreeMap<String, Option<Span>>),
}

/// Milliseconds, or text such as `30 days`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Span {
    Millis(u64),
    Text(String),
}

impl Span {
    fn read(self) -> Result<Millis, String> {
        let span = match self {
            Self::Millis(millis) => Millis(millis),
            Self::Text(text) => Millis::parse(&text).map_err(|error| format!("retention: {error}"))?,
        };
        if span <= SLEEP_MAX {
            Ok(span)
        } else {
            Err(format!("retention {span} is refused, the longest is {SLEEP_MAX}"))
        }
    }
}

impl<'de> Deserialize<'de> for Retention {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = Form::deserialize(deserializer).map_err(|_| {
            D::Error::custom(
                "retention must be a duration such as \"30 days\", or {\"complete\": .., \"failed\": ..} of durations",
            )
        })?;
        match form {
            Form::Both(span) => {
                let span = span.read().map_err(D::Error::custom)?;
                Ok(Self { complete: Some(span), failed: Some(span) })
            }
            Form::Each(mut each) => {
                let mut take = |name| each.remove(name).flatten().map(Span::read).transpose();
                let complete = take("complete").map_err(D::Error::custom)?;
                let failed = take("failed").map_err(D::Error::custom)?;
                match each.keys().next() {
                    Some(other) => Err(D::Error::custom(format!(
                        "retention has the field {other:?}, the fields are complete, failed"
                    ))),
                    None => Ok(Self { complete, failed }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p32_a_start_says_how_long_its_instance_is_kept() {
        let day = Millis(86_400_000);
        let cases = [
            (r#""1 day""#, Some((Some(day), Some(day)))),
            ("86400000", Some((Some(day), Some(day)))),
            (r#"{"complete":"1 day"}"#, Some((Some(day), None))),
            (r#"{"complete":0,"failed":"1 day"}"#, Some((Some(Millis(0)), Some(day)))),
            ("{}", Some((None, None))),
            (r#""ten years and a day""#, None),
            (r#""11 years""#, None),
            (r#"{"errored":"1 day"}"#, None),
            ("-1", None),
            ("[1]", None),
        ];
        for (text, expected) in cases {
            let read = serde_json::from_str::<Retention>(text).ok();
            assert_eq!(read.map(|read| (read.complete, read.failed)), expected, "{text}");
        }
    }
}
