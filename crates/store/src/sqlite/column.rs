//! Columns to types. Text that breaks its rule, or a code that is not known, is corrupt.

use everstep_protocol::{Call, CallHash, CallKind, CallName, InstanceUid, SessionId, Timestamp, wire};
use rusqlite::Row;
use serde::{Deserialize, de::DeserializeOwned, de::IntoDeserializer};
use uuid::Uuid;

use super::fault::{Fault, Result};

pub(super) fn uid(row: &Row<'_>, column: usize) -> Result<InstanceUid> {
    Ok(InstanceUid(Uuid::from_bytes(row.get(column)?)))
}

pub(super) fn session(row: &Row<'_>, column: usize) -> Result<SessionId> {
    Ok(SessionId(Uuid::from_bytes(row.get(column)?)))
}

pub(super) fn hash(row: &Row<'_>, column: usize) -> Result<CallHash> {
    Ok(CallHash(row.get(column)?))
}

/// A count that is kept as a signed number; ours never reach the sign.
pub(super) fn count(row: &Row<'_>, column: usize) -> Result<u64> {
    Ok(row.get::<_, i64>(column)? as u64)
}

pub(super) fn time(row: &Row<'_>, column: usize) -> Result<Timestamp> {
    Ok(Timestamp(row.get(column)?))
}

pub(super) fn time_if_any(row: &Row<'_>, column: usize) -> Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp))
}

pub(super) fn text<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a str> {
    row.get_ref(column)?.as_str().map_err(|error| Fault::corrupt("reading text", error))
}

pub(super) fn bytes<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a [u8]> {
    row.get_ref(column)?.as_blob().map_err(|error| Fault::corrupt("reading bytes", error))
}

/// A checked name.
pub(super) fn name<'a, T>(row: &'a Row<'_>, column: usize) -> Result<T>
where
    T: TryFrom<&'a str, Error: std::fmt::Display>,
{
    T::try_from(text(row, column)?).map_err(|error| Fault::corrupt("reading a name", error))
}

/// A number that stands for a case.
pub(super) fn code<T>(row: &Row<'_>, column: usize, from: impl Fn(i16) -> Option<T>) -> Result<T> {
    let code: i16 = row.get(column)?;
    from(code).ok_or_else(|| Fault::corrupt("reading a code", format!("{code} is not known")))
}

/// A word that stands for a case, as its type reads it from the wire.
pub(super) fn word<T: for<'de> Deserialize<'de>>(row: &Row<'_>, column: usize) -> Result<T> {
    let word = text(row, column)?.into_deserializer();
    T::deserialize(word).map_err(|error: serde::de::value::Error| Fault::corrupt("reading a word", error))
}

/// An envelope.
pub(super) fn packed<T: DeserializeOwned>(row: &Row<'_>, column: usize, what: &'static str) -> Result<T> {
    wire::decode(what, bytes(row, column)?).map_err(|error| Fault::corrupt("reading an envelope", error))
}

/// A call in three columns, from this one on: kind, name, count.
pub(super) fn call(row: &Row<'_>, column: usize) -> Result<Call> {
    let kind: CallKind = word(row, column)?;
    let name: CallName = name(row, column + 1)?;
    Ok(Call { kind, name, count: row.get(column + 2)? })
}
