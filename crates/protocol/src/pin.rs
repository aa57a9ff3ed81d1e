//! To which build an instance is pinned: only workers of that build take it up (rule P40).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{BuildName, name::NameError};

/// A pin. In JSON `true`, or the name of a build.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pin {
    /// To the build of the worker that takes the instance up first, once one has.
    First,
    /// To this build.
    Build(BuildName),
}

/// What stands for [`Pin::First`] where a pin is text: no build can have this name.
const FIRST: &str = "*";

impl Pin {
    /// The build, once it is known.
    #[must_use]
    pub const fn build(&self) -> Option<&BuildName> {
        match self {
            Self::First => None,
            Self::Build(build) => Some(build),
        }
    }

    /// As text: the build's name, or `*`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::First => FIRST,
            Self::Build(build) => build.as_str(),
        }
    }
}

impl FromStr for Pin {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text == FIRST { Ok(Self::First) } else { Ok(Self::Build(BuildName::new(text)?)) }
    }
}

impl Serialize for Pin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::First => serializer.serialize_bool(true),
            Self::Build(build) => serializer.serialize_str(build.as_str()),
        }
    }
}

impl<'de> Deserialize<'de> for Pin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl de::Visitor<'_> for Reader {
    type Value = Pin;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pin: true, or the name of a build")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Pin, E> {
        if value { Ok(Pin::First) } else { Err(E::invalid_value(de::Unexpected::Bool(false), &self)) }
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Pin, E> {
        BuildName::new(value).map(Pin::Build).map_err(|error| E::custom(format!("pin: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p40_a_pin_is_true_or_a_build() {
        let build = || Pin::Build("v-7".parse().unwrap());
        for (text, expected) in [
            ("true", Some(Pin::First)),
            (r#""v-7""#, Some(build())),
            ("false", None),
            (r#""V7""#, None),
            (r#""*""#, None),
            ("1", None),
            ("{}", None),
        ] {
            let read = serde_json::from_str::<Pin>(text);
            assert!(read.as_ref().err().is_none_or(|error| error.to_string().contains("pin: ")), "{read:?}");
            assert_eq!(read.ok(), expected, "{text}");
            if let Some(pin) = expected {
                assert_eq!(serde_json::to_string(&pin).unwrap(), text);
                assert_eq!(pin.as_str().parse::<Pin>().ok(), Some(pin));
            }
        }
    }
}
