//! Canonical JSON, and what is derived from it: idempotency keys and fingerprints (rules L1, L2).
//!
//! Canonical is RFC 8785 with one deviation: an integer within 64 bits is written exactly. The order of members and the
//! spelling of numbers and strings do not matter, any other change gives another text. The vectors in
//! `golden/keys.json` never change; SDKs in other languages are checked against them.

mod canonical;

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};
use thiserror::Error;
use uuid::Uuid;

use crate::payload::{Payload, PayloadError};

/// The canonical text of a payload (L2): members sorted by their UTF-16 units, numbers as ECMAScript writes them.
///
/// Refused are text that is no JSON and an object with two members of one name.
pub fn canonical(payload: &Payload) -> Result<String, PayloadError> {
    canonical::write(payload.as_str())
}

/// Key and fingerprint of one call from a single reading of its input; see [`StepKey::derive`].
pub fn keys_of(
    instance: Uuid,
    generation: u32,
    kind: &str,
    name: &str,
    count: u32,
    input: &Payload,
) -> Result<(StepKey, Fingerprint), PayloadError> {
    let text = canonical(input)?;
    Ok((StepKey::of(instance, generation, kind, name, count, &text), Fingerprint::of_canonical(&text)))
}

/// The idempotency key of one call: what the callee gets to recognise a repetition (L1, L3). Shown, sent and stored as
/// 64 lowercase hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepKey([u8; 32]);

impl StepKey {
    /// A mistake that one could make: the key of one attempt alone.
    #[cfg(feature = "planted")]
    #[doc(hidden)]
    #[must_use]
    pub fn of_attempt(mut self, attempt: u32) -> Self {
        self.0[31] ^= attempt as u8;
        self
    }

    #[cfg(not(feature = "planted"))]
    #[doc(hidden)]
    #[must_use]
    pub const fn of_attempt(self, _attempt: u32) -> Self {
        self
    }

    /// SHA-256 of the canonical JSON array `["everstep-key-1", instance, generation, kind, name, count, input]` (L1).
    ///
    /// `instance` is the internal id, new with every creation; `generation` and `count` begin at 1; `kind` is one of
    /// `step`, `sleep`, `event`, `hook`, `child`, `action`, `compensation`. The attempt plays no part.
    pub fn derive(
        instance: Uuid,
        generation: u32,
        kind: &str,
        name: &str,
        count: u32,
        input: &Payload,
    ) -> Result<StepKey, PayloadError> {
        Ok(StepKey::of(instance, generation, kind, name, count, &canonical(input)?))
    }

    /// The key as 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn of(instance: Uuid, generation: u32, kind: &str, name: &str, count: u32, input: &str) -> StepKey {
        let mut head = String::with_capacity(96 + kind.len() + name.len());
        head.push_str("[\"everstep-key-1\",\"");
        head.push_str(instance.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
        head.push_str("\",");
        canonical::push_integer(&mut head, generation);
        head.push(',');
        canonical::push_string(&mut head, kind);
        head.push(',');
        canonical::push_string(&mut head, name);
        head.push(',');
        canonical::push_integer(&mut head, count);
        head.push(',');
        StepKey(Sha256::new().chain_update(head).chain_update(input).chain_update("]").finalize().into())
    }
}

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, f)
    }
}

impl fmt::Debug for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StepKey({self})")
    }
}

/// Text that is no [`StepKey`]. Trying again gives the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a step key is 64 lowercase hexadecimal digits")]
pub struct StepKeyError;

impl FromStr for StepKey {
    type Err = StepKeyError;

    fn from_str(text: &str) -> Result<StepKey, StepKeyError> {
        let mut bytes = [0; 32];
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(StepKeyError);
        }
        hex::decode_to_slice(text, &mut bytes).map_err(|_| StepKeyError)?;
        Ok(StepKey(bytes))
    }
}

impl Serialize for StepKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return serializer.serialize_bytes(&self.0);
        }
        let mut digits = [0; 64];
        serializer.serialize_str(hex_digits(&self.0, &mut digits))
    }
}

impl<'de> Deserialize<'de> for StepKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StepKey, D::Error> {
        struct Digits;

        impl Visitor<'_> for Digits {
            type Value = StepKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("64 lowercase hexadecimal digits, or 32 bytes in a binary format")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<StepKey, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<StepKey, E> {
                let bytes = bytes.try_into().map_err(|_| E::invalid_length(bytes.len(), &"32 bytes"))?;
                Ok(StepKey(bytes))
            }
        }

        if deserializer.is_human_readable() {
            deserializer.deserialize_str(Digits)
        } else {
            deserializer.deserialize_bytes(Digits)
        }
    }
}

/// SHA-256 of the canonical text: two payloads with the same one are the same value (P8, P27). On the wire 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(#[serde(with = "serde_bytes")] [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a payload; fails where [`canonical`] does.
    pub fn of(payload: &Payload) -> Result<Fingerprint, PayloadError> {
        Ok(Fingerprint::of_canonical(&canonical(payload)?))
    }

    /// A fingerprint as it was stored.
    pub const fn from_bytes(bytes: [u8; 32]) -> Fingerprint {
        Fingerprint(bytes)
    }

    /// The fingerprint as 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn of_canonical(text: &str) -> Fingerprint {
        Fingerprint(Sha256::digest(text).into())
    }
}

/// 64 lowercase hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, f)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

fn show(bytes: &[u8; 32], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut digits = [0; 64];
    f.pad(hex_digits(bytes, &mut digits))
}

fn hex_digits<'a>(bytes: &[u8; 32], digits: &'a mut [u8; 64]) -> &'a str {
    hex::encode_to_slice(bytes, digits).expect("32 bytes are 64 digits");
    str::from_utf8(digits).expect("hexadecimal digits are ASCII")
}

#[cfg(test)]
mod tests;
