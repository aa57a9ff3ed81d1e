//! How envelopes become bytes: `MessagePack` with named fields, unknown fields ignored (rule W25).

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

/// Bytes that are not the envelope they should be. A retry would end the same way.
#[derive(Debug, thiserror::Error)]
#[error("not a readable {what}: {reason}; sending the same bytes again cannot help")]
pub struct Unreadable {
    /// Which envelope was expected.
    pub what: &'static str,
    /// What the decoder said.
    pub reason: String,
}

/// Encodes an envelope. Ours always encode: they hold no maps with keys that are not text and no failing serializer.
#[must_use]
pub fn encode<T: Serialize>(envelope: &T) -> Bytes {
    let mut bytes = Vec::with_capacity(256);
    rmp_serde::encode::write_named(&mut bytes, envelope).expect("an envelope of our own always encodes");
    Bytes::from(bytes)
}

/// Decodes an envelope from untrusted bytes.
pub fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, Unreadable> {
    rmp_serde::from_slice(bytes).map_err(|error| Unreadable { what, reason: error.to_string() })
}
