//! How often and how soon a failed step is tried again: the resolved policy as its first attempt pins it (P8, P10, P11).
//!
//! These are only the values; the engine computes delays from them. On the wire a field that has its default is left
//! out, so the default policy is an empty map and a partial policy is merged with the defaults field by field.
//! Because of that a policy must be encoded as a map, never as an array.

use serde::{Deserialize, Serialize};

use crate::duration::Millis;

/// How the delay grows with the failed attempts (P11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// The same delay each time.
    Constant,
    /// `delay * n` after failed attempt n.
    Linear,
    /// `delay * 2^(n-1)` after failed attempt n. The default.
    #[default]
    Exponential,
}

/// How many retries may follow the first attempt (P10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// So many retries, one attempt more in all; zero is a single attempt. Default: 5.
    Times(u32),
    /// Until it succeeds or something else ends it.
    Unlimited,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit::Times(5)
    }
}

/// What may be done when nobody knows whether an attempt took effect (rule L6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Call again with the same key: the callee, or the step's own code, honours it. The default.
    #[default]
    Keyed,
    /// Look before every call, the first included, and take what is found for the output.
    Lookup {
        /// How long after an attempt that may have taken effect looking would not yet show it.
        visibility_lag: Millis,
    },
    /// Never call again by itself: a person is asked.
    AtMostOnce,
}

impl Class {
    /// The word shown to people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Keyed => "keyed",
            Self::Lookup { .. } => "lookup",
            Self::AtMostOnce => "at_most_once",
        }
    }

    /// Whether an intent is recorded before each attempt (rule L5).
    #[must_use]
    pub const fn is_intended(self) -> bool {
        !matches!(self, Self::Keyed)
    }
}

/// The retry policy of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Retries after the first attempt. Default: 5.
    #[serde(skip_serializing_if = "is_default::limit")]
    pub limit: Limit,
    /// The base of the delay before a retry. Default: 10 s.
    #[serde(skip_serializing_if = "is_default::delay")]
    pub delay: Millis,
    /// How the delay grows. Default: exponential.
    #[serde(skip_serializing_if = "is_default::backoff")]
    pub backoff: Backoff,
    /// How long one attempt may take. Default: 10 min.
    #[serde(skip_serializing_if = "is_default::timeout")]
    pub timeout: Millis,
    /// The policy's own delay never exceeds this; one that the error or a function asks for may. Default: 1 day.
    #[serde(skip_serializing_if = "is_default::max_delay")]
    pub max_delay: Millis,
    /// No attempt starts later than this after the start of the first one. Default: none.
    #[serde(skip_serializing_if = "is_default::max_elapsed")]
    pub max_elapsed: Option<Millis>,
    /// Whether the policy's own delay is shortened by up to half, differently for each instance, step and attempt
    /// but always the same for one of them. Default: off.
    #[serde(skip_serializing_if = "is_default::jitter")]
    pub jitter: bool,
    /// What may be done when nobody knows whether an attempt took effect (rule L6). Default: it is called again with the same key.
    #[serde(skip_serializing_if = "is_default::class")]
    pub class: Class,
}

const DEFAULT: Policy = Policy {
    limit: Limit::Times(5),
    delay: Millis::from_secs(10),
    backoff: Backoff::Exponential,
    timeout: Millis::from_secs(600),
    max_delay: Millis::from_secs(86_400),
    max_elapsed: None,
    jitter: false,
    class: Class::Keyed,
};

impl Default for Policy {
    fn default() -> Policy {
        DEFAULT
    }
}

/// One question per field, in the form that serde asks it.
#[allow(
    clippy::trivially_copy_pass_by_ref,
    clippy::ref_option,
    reason = "serde passes a reference to the field"
)]
mod is_default {
    use super::{Backoff, Class, DEFAULT, Limit, Millis};

    pub(super) fn limit(value: &Limit) -> bool {
        *value == DEFAULT.limit
    }

    pub(super) fn delay(value: &Millis) -> bool {
        *value == DEFAULT.delay
    }

    pub(super) fn backoff(value: &Backoff) -> bool {
        *value == DEFAULT.backoff
    }

    pub(super) fn timeout(value: &Millis) -> bool {
        *value == DEFAULT.timeout
    }

    pub(super) fn max_delay(value: &Millis) -> bool {
        *value == DEFAULT.max_delay
    }

    pub(super) fn max_elapsed(value: &Option<Millis>) -> bool {
        *value == DEFAULT.max_elapsed
    }

    pub(super) fn jitter(value: &bool) -> bool {
        *value == DEFAULT.jitter
    }

    pub(super) fn class(value: &Class) -> bool {
        *value == DEFAULT.class
    }
}

#[cfg(test)]
mod tests {
    //! Proves the defaults and their form on the wire. Not: what delays follow (see the engine's retry module).
    use super::*;

    #[test]
    fn p10_the_default_policy_is_an_empty_map() {
        assert_eq!(serde_json::to_string(&Policy::default()).unwrap(), "{}");
        assert_eq!(rmp_serde::to_vec_named(&Policy::default()).unwrap(), [0x80]);
        assert_eq!(Limit::default(), Policy::default().limit);
        assert_eq!(Backoff::default(), Policy::default().backoff);
        assert_eq!(Policy::default().timeout, Millis::parse("10 min").unwrap());
        assert_eq!(Policy::default().max_delay, Millis::parse("1 day").unwrap());
    }

    #[test]
    fn p10_a_partial_policy_is_merged_field_by_field() {
        let read: Policy = serde_json::from_str(r#"{"limit":{"times":2},"later_field":1}"#).unwrap();
        assert_eq!(read, Policy { limit: Limit::Times(2), ..Policy::default() });
        let read: Policy = serde_json::from_str(r#"{"limit":"unlimited","backoff":"linear"}"#).unwrap();
        assert_eq!(read, Policy { limit: Limit::Unlimited, backoff: Backoff::Linear, ..Policy::default() });
    }

    #[test]
    fn p10_every_field_survives_the_wire() {
        let policy = Policy {
            limit: Limit::Times(0),
            delay: Millis(0),
            backoff: Backoff::Constant,
            timeout: Millis::MAX,
            max_delay: Millis(1),
            max_elapsed: Some(Millis(0)),
            jitter: true,
            class: Class::Lookup { visibility_lag: Millis(3) },
        };
        let wire = rmp_serde::to_vec_named(&policy).unwrap();
        assert_eq!(rmp_serde::from_slice::<Policy>(&wire).unwrap(), policy);
        let wire = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<Policy>(&wire).unwrap(), policy);
        let once: Policy = serde_json::from_str(r#"{"class":"at_most_once"}"#).unwrap();
        assert_eq!(once, Policy { class: Class::AtMostOnce, ..Policy::default() });
    }
}
