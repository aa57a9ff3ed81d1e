//! Names that people choose, checked once where they enter: at construction and when read from the wire.
//!
//! Holding one of these types means that its rule holds (W41, P2, P27). Cloning shares the text.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use crate::hook::HookId;

/// What an error shows of the refused value, in characters.
const SHOWN_CHARS: usize = 60;

/// A name that breaks its rule. Trying again gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} {value:?} is refused, it must be {rule}")]
pub struct NameError {
    /// What the name was to be used for, for example `workflow name`.
    pub field: &'static str,
    /// The refused value, at most 60 characters of it.
    pub value: String,
    /// What holds for every accepted value.
    pub rule: &'static str,
}

impl NameError {
    fn new(field: &'static str, value: &str, rule: &'static str) -> NameError {
        let mut shown: String = value.chars().take(SHOWN_CHARS).collect();
        if shown.len() < value.len() {
            shown.push('…');
        }
        NameError { field, value: shown, rule }
    }
}

/// A rule, as a check and in words.
struct Rule {
    holds: fn(&str) -> bool,
    words: &'static str,
}

const ROUTING: Rule = Rule {
    holds: |text| {
        (1..=50).contains(&text.len())
            && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
    },
    words: "1 to 50 of the characters a-z, 0-9, _ and -",
};

const INSTANCE: Rule = Rule {
    holds: |text| {
        (1..=100).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte))
            && !is_dots(text)
    },
    words: "1 to 100 of the characters A-Z, a-z, 0-9, _, -, . and :, and not . or .. alone",
};

const CALL: Rule = Rule {
    // The byte length spares counting the characters of a hostile megabyte: 256 characters are at most 1024 bytes.
    holds: |text| {
        (1..=1024).contains(&text.len()) && text.chars().count() <= 256 && !text.chars().any(char::is_control)
    },
    words: "1 to 256 characters without control characters",
};

/// What people may call an event; and what stands for the payloads of a hook, which nobody can write: it begins with a control
/// character.
const EVENT_WIRE: Rule =
    Rule { holds: |text| (EVENT.holds)(text) || hook_of(text).is_some(), words: EVENT.words };

/// The hook whose payloads have this type.
fn hook_of(text: &str) -> Option<HookId> {
    text.strip_prefix(HOOK_PREFIX)?.parse().ok()
}

const HOOK_PREFIX: &str = "\u{1}hook:";

const EVENT: Rule = Rule {
    holds: |text| {
        (1..=400).contains(&text.len())
            && text.chars().count() <= 100
            && !text.chars().any(char::is_control)
            && !is_dots(text)
    },
    words: "1 to 100 characters without control characters, and not . or .. alone",
};

/// What stands in the path of a URL and is this cannot be addressed: clients take it as a way to somewhere else, however it is
/// escaped.
fn is_dots(text: &str) -> bool {
    matches!(text, "." | "..")
}

/// Short enough that a due time fits behind it in the id of an instance, and without what parts the two.
const SCHEDULE: Rule = Rule {
    holds: |text| {
        (1..=60).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
            && !is_dots(text)
    },
    words: "1 to 60 of the characters A-Z, a-z, 0-9, _, - and ., and not . or .. alone",
};

const ATTRIBUTE: Rule = Rule {
    holds: |text| {
        (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    },
    words: "1 to 64 of the characters A-Z, a-z, 0-9, _, - and .",
};

const ACCESS: Rule = Rule {
    holds: |text| {
        (1..=240).contains(&text.len()) && text.chars().count() <= 60 && !text.chars().any(char::is_control)
    },
    words: "1 to 60 characters without control characters",
};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $field:literal, $rule:expr) => {
        name! { $(#[$doc])* $name, $field, $rule, $rule }
    };
    ($(#[$doc:meta])* $name:ident, $field:literal, $rule:expr, $wire:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text against the rule.
            pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
                let text = text.as_ref();
                if ($rule.holds)(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(NameError::new($field, text, $rule.words))
                }
            }

            /// Reads what was checked before.
            fn read(text: &str) -> Result<Self, NameError> {
                if ($wire.holds)(text) { Ok(Self(text.into())) } else { Self::new(text) }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), &*self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = NameError;

            fn try_from(text: &str) -> Result<Self, NameError> {
                Self::read(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($field)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::read(text).map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }
    };
}

name! {
    /// The space that instances, names and rights are kept apart by: 1 to 50 of `[a-z0-9_-]` (W41). Default `default`.
    Namespace, "namespace", ROUTING
}

name! {
    /// The name of a workflow: 1 to 50 of `[a-z0-9_-]` (W41).
    WorkflowName, "workflow name", ROUTING
}

name! {
    /// The name of a pool of workers: 1 to 50 of `[a-z0-9_-]` (W41).
    Pool, "pool", ROUTING
}

name! {
    /// The name of a build of a user's code: 1 to 50 of `[a-z0-9_-]` (W41).
    BuildName, "build", ROUTING
}

name! {
    /// The name by which a pool's workers find a registered function (W39): 1 to 50 of `[a-z0-9_-]`.
    FunctionName, "function name", ROUTING
}

name! {
    /// The id of an instance as its starter chose it: 1 to 100 ASCII letters, digits, `_`, `-`, `.`, `:` (P27).
    InstanceId, "instance id", INSTANCE
}

name! {
    /// The id of a schedule: 1 to 60 ASCII letters, digits, `_`, `-`, `.` (S1).
    ScheduleId, "schedule id", SCHEDULE
}

name! {
    /// The name of a step, sleep or wait: 1 to 256 characters of any Unicode, no control characters (P2).
    CallName, "call name", CALL
}

name! {
    /// The type of an event: 1 to 100 characters of any Unicode, no control characters (P21).
    EventType, "event type", EVENT, EVENT_WIRE
}

impl EventType {
    /// The type that the payloads of a hook have within their instance. Nobody can send an event of it.
    #[must_use]
    pub fn of_hook(hook: HookId) -> Self {
        Self(format!("{HOOK_PREFIX}{hook}").into())
    }

    /// The hook whose payloads have this type, if it is one's.
    #[must_use]
    pub fn hook(&self) -> Option<HookId> {
        hook_of(&self.0)
    }
}

name! {
    /// The correlation key of an event: 1 to 100 characters of any Unicode, no control characters (P26).
    EventKey, "event key", EVENT
}

name! {
    /// The token of a hook: 1 to 256 characters of any Unicode, no control characters (H1).
    Token, "hook token", CALL
}

name! {
    /// What the service that a step calls calls what the step did there, such as the number of a charge (rule L14).
    Reference, "external reference", CALL
}

impl Reference {
    /// Of a text of any kind: control characters become blanks, what is longer than 256 characters is cut. None if nothing is left.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(256).collect();
        Self::new(shown.trim()).ok()
    }
}

name! {
    /// The name of an attribute: 1 to 64 of `[A-Za-z0-9_.-]` (P37).
    AttributeName, "attribute name", ATTRIBUTE
}

name! {
    /// What people call an access token, such as `ci`: 1 to 60 characters of any Unicode, no control characters.
    AccessName, "access token name", ACCESS
}

impl Default for Namespace {
    fn default() -> Namespace {
        Namespace("default".into())
    }
}

#[cfg(test)]
mod tests {
    //! Proves the rule of each name at both doors, construction and wire. Not: that a name is known to anybody.
    use super::*;

    fn check<T>(accepted: &[&str], refused: &[&str])
    where
        T: FromStr<Err = NameError> + serde::de::DeserializeOwned + Serialize + fmt::Display,
    {
        for text in accepted {
            let name: T = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(name.to_string(), *text);
            let wire = serde_json::to_string(&name).unwrap();
            assert_eq!(wire, serde_json::to_string(text).unwrap());
            assert_eq!(serde_json::from_str::<T>(&wire).unwrap().to_string(), *text);
            let wire = rmp_serde::to_vec(&name).unwrap();
            assert_eq!(rmp_serde::from_slice::<T>(&wire).unwrap().to_string(), *text);
        }
        for text in refused {
            let error = text.parse::<T>().err().unwrap_or_else(|| panic!("{text:?} was accepted"));
            let wire = serde_json::to_string(text).unwrap();
            let on_wire =
                serde_json::from_str::<T>(&wire).err().unwrap_or_else(|| panic!("{text:?} was read"));
            assert!(on_wire.to_string().contains(&error.to_string()), "{on_wire}");
        }
        assert!(serde_json::from_str::<T>("7").is_err());
    }

    #[test]
    fn w41_routing_names() {
        let longest = "a".repeat(50);
        let accepted = ["a", "0", "_", "-", "fulfil-order_2", &longest];
        let too_long = "a".repeat(51);
        let refused = ["", "A", "é", "a.b", "a b", "a#", "*", "a\n", "a/b", "a\0", &too_long];
        check::<Namespace>(&accepted, &refused);
        check::<WorkflowName>(&accepted, &refused);
        check::<Pool>(&accepted, &refused);
        check::<BuildName>(&accepted, &refused);
        check::<FunctionName>(&accepted, &refused);
        assert_eq!(Namespace::default().as_str(), "default");
    }

    #[test]
    fn w41_an_error_names_field_value_and_rule() {
        let error = WorkflowName::new("Größe".repeat(100)).unwrap_err();
        assert_eq!(error.field, "workflow name");
        assert_eq!(error.value, format!("{}…", "Größe".repeat(12)));
        let text = Pool::new("big pool\n").unwrap_err().to_string();
        assert_eq!(
            text,
            r#"pool "big pool\n" is refused, it must be 1 to 50 of the characters a-z, 0-9, _ and -"#
        );
    }

    #[test]
    fn p27_instance_ids() {
        let longest = "Z".repeat(100);
        let too_long = "Z".repeat(101);
        check::<InstanceId>(
            &["a", "A", "0", "order:2024.11_x-Y", "0190b5a8-7c00-7000-8000-000000000001", &longest],
            &["", " ", "a b", "ä", "a/b", "a#b", "٣", "a\u{0}", "a\r\n", &too_long],
        );
        // In a URL each of these is a way to somewhere else, also when it is escaped.
        check::<InstanceId>(&["...", ".a", "a..", "-", ":"], &[".", ".."]);
    }

    #[test]
    fn s01_schedule_ids() {
        let (longest, too_long) = ("Z".repeat(60), "Z".repeat(61));
        check::<ScheduleId>(
            &["a", "nightly-report_2.v", "...", &longest],
            &["", "a:b", "a b", "ä", ".", "..", &too_long],
        );
    }

    #[test]
    fn p02_call_names() {
        let longest = "😀".repeat(256);
        let too_long = "a".repeat(257);
        let huge = "😀".repeat(1_000_000);
        check::<CallName>(
            &["a", " ", "reserve stock", "Prüfung №1/3: \"x\"", "家👩‍👩‍👧", "\u{2028}", &longest],
            &["", "a\nb", "a\0", "\u{7f}", "\u{85}", &too_long, &huge],
        );
    }

    #[test]
    fn p21_p26_event_types_and_keys() {
        let (longest, too_long) = ("😀".repeat(100), "a".repeat(101));
        let accepted = ["a", "msg ", "Freigabe №1", "order.approved/v2", &longest];
        let refused = ["", "a\nb", "a\0", "\u{85}", ".", "..", &too_long];
        check::<EventType>(&accepted, &refused);
        check::<EventKey>(&accepted, &refused);
    }

    #[test]
    fn p02_names_are_looked_up_by_text() {
        let map = std::collections::HashMap::from([(CallName::new("a").unwrap(), 1)]);
        assert_eq!(map.get("a"), Some(&1));
    }
}
