//! How envelopes become bytes: `MessagePack` with named fields, unknown fields ignored (rule W25).

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

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
    #[cfg(feature = "crash")]
    if crate::crash::speaks_later() {
        bytes = crate::crash::later::written(&bytes);
    }
    Bytes::from(bytes)
}

/// Decodes an envelope from untrusted bytes.
pub fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, Unreadable> {
    read(bytes).map_err(|error| Unreadable { what, reason: error.to_string() })
}

/// So deep may lists and maps lie in each other, as in JSON: each takes of the stack of whoever reads.
const DEPTH_MAX: usize = 128;

/// Reads `MessagePack` from outside.
pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, rmp_serde::decode::Error> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
    reader.set_max_depth(DEPTH_MAX);
    T::deserialize(&mut reader)
}
