//! Rows and columns of engine types.

use std::borrow::Cow;

use bytes::BytesMut;
use everstep_engine::{
    Head, Status,
    head::Cached,
    mailbox::Awaited,
    retention::Own,
    rows::{Cancel, Control, Question, RemoteRow, WaitKind, WaitRow},
};
use everstep_protocol::{
    Attempt, Call, CallKind, CallName, Epoch, Generation, InstanceUid, Millis, Payload, Pin, Position, Run,
    SessionId, Timestamp,
    journal::{ParkCode, Parked, Remote},
    wire,
};
use serde::{Deserialize, Serialize};
use tokio_postgres::{
    Row,
    types::{FromSql, IsNull, ToSql, Type, to_sql_checked},
};

use super::fault::Fault;

type Boxed = Box<dyn std::error::Error + Sync + Send>;

/// Where a row lies. Good for as long as the row is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tid([u8; 6]);

impl<'a> FromSql<'a> for Tid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Boxed> {
        Ok(Self(raw.try_into()?))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TID
    }
}

impl ToSql for Tid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TID
    }

    to_sql_checked!();
}

/// The database's clock: a `timestamptz`, read without any conversion in the server.
pub(super) struct Clock(pub(super) Timestamp);

impl<'a> FromSql<'a> for Clock {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Boxed> {
        /// From 1970 to 2000, where PostgreSQL counts from.
        const EPOCH_MICROS: i64 = 946_684_800_000_000;
        Ok(Self(Timestamp(i64::from_be_bytes(raw.try_into()?) + EPOCH_MICROS)))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TIMESTAMPTZ
    }
}

/// Bytes that are owned elsewhere than in a `Vec`.
#[derive(Debug)]
pub(super) struct Raw(pub(super) bytes::Bytes);

/// The hash of a call.
#[derive(Debug)]
pub(super) struct Bytes16(pub(super) [u8; 16]);

impl ToSql for Raw {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::BYTEA
    }

    to_sql_checked!();
}

impl ToSql for Bytes16 {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::BYTEA
    }

    to_sql_checked!();
}

/// PostgreSQL's text holds everything but NUL. Texts that are only shown or compared get its picture instead.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{2400}")) } else { Cow::Borrowed(text) }
}

pub(super) fn uid(row: &Row, at: usize) -> Result<InstanceUid, Fault> {
    Ok(InstanceUid(row.try_get(at)?))
}

pub(super) fn time(row: &Row, at: usize) -> Result<Timestamp, Fault> {
    Ok(Timestamp(row.try_get(at)?))
}

pub(super) fn time_if_any(row: &Row, at: usize) -> Result<Option<Timestamp>, Fault> {
    Ok(row.try_get::<_, Option<i64>>(at)?.map(Timestamp))
}

pub(super) fn hash(row: &Row, at: usize) -> Result<[u8; 16], Fault> {
    row.try_get::<_, &[u8]>(at)?.try_into().map_err(Fault::corrupt)
}

/// A name that was checked when it was written.
pub(super) fn name<'a, T>(row: &'a Row, at: usize) -> Result<T, Fault>
where
    T: TryFrom<&'a str>,
    T::Error: std::fmt::Display,
{
    T::try_from(row.try_get(at)?).map_err(Fault::corrupt)
}

pub(super) fn status(code: i16) -> Result<Status, Fault> {
    Status::from_code(code).ok_or_else(|| Fault::corrupt(format!("unknown status {code}")))
}

fn millis_if_any(row: &Row, at: usize) -> Result<Option<Millis>, Fault> {
    Ok(row.try_get::<_, Option<i64>>(at)?.map(|millis| Millis(millis as u64)))
}

/// A pause and cancel: since when the pause, and in four columns from `at` on the position of the cancel's entry, until when,
/// whether with a rollback, and since when there are compensations. All null where there is no row.
pub(super) fn control(paused_at: Option<i64>, row: &Row, at: usize) -> Result<Control, Fault> {
    let until = time_if_any(row, at + 1)?;
    let rollback = row.try_get::<_, Option<bool>>(at + 2)?.unwrap_or(false);
    let cancel = row.try_get::<_, Option<i64>>(at)?.map(|position| Cancel {
        position: Position(position as u64),
        until,
        rollback,
    });
    Ok(Control { paused_at: paused_at.map(Timestamp), cancel, compensating_at: time_if_any(row, at + 3)? })
}

/// A row of `lock_heads.sql`, from its third column on.
pub(super) fn head(row: &Row) -> Result<Head, Fault> {
    let mut head = Head::new(uid(row, 2)?, name(row, 3)?, name(row, 4)?, name(row, 5)?, time(row, 16)?);
    head.run = Run(row.try_get::<_, i32>(6)? as u32);
    head.generation = Generation(row.try_get::<_, i32>(7)? as u32);
    head.status = status(row.try_get(8)?)?;
    head.epoch = Epoch(row.try_get::<_, i64>(9)? as u64);
    head.position = Position(row.try_get::<_, i64>(10)? as u64);
    head.reports = row.try_get::<_, i64>(11)? as u64;
    head.waits = row.try_get::<_, i32>(12)? as u32;
    head.steps = row.try_get::<_, i64>(13)? as u64;
    head.journal_bytes = row.try_get::<_, i64>(14)? as u64;
    head.deaths = row.try_get::<_, i32>(15)? as u32;
    head.ended_at = time_if_any(row, 17)?;
    head.events = row.try_get::<_, i64>(18)? as u64;
    head.unread = row.try_get::<_, i64>(19)? as u64;
    head.links = row.try_get::<_, i32>(25)? as u32;
    head.retention = Own { complete: millis_if_any(row, 20)?, failed: millis_if_any(row, 21)? };
    let cached = row.try_get::<_, Option<uuid::Uuid>>(22)?.zip(row.try_get::<_, Option<i64>>(23)?);
    head.cached = cached.map(|(session, position)| Cached {
        session: SessionId(session),
        position: Position(position as u64),
    });
    head.pin = pin(row, 24)?;
    head.hooks = row.try_get::<_, i32>(26)? as u32;
    head.hooks_until = time_if_any(row, 27)?;
    Ok(head)
}

pub(super) fn pin(row: &Row, at: usize) -> Result<Option<Pin>, Fault> {
    let text: Option<&str> = row.try_get(at)?;
    text.map(|text| text.parse().map_err(Fault::corrupt)).transpose()
}

/// The number that is kept for a kind of call, from 1. Never changes.
pub(super) const fn call_kind_code(kind: CallKind) -> i16 {
    match kind {
        CallKind::Step => 1,
        CallKind::Sleep => 2,
        CallKind::Event => 3,
        CallKind::Hook => 4,
        CallKind::Child => 5,
        CallKind::Action => 6,
        CallKind::Compensation => 7,
        CallKind::Patch => 8,
        CallKind::Instance => 9,
        CallKind::Send => 10,
        CallKind::Rollback => 15,
        CallKind::Payload => 16,
        CallKind::Reply => 17,
        CallKind::Resume => 18,
    }
}

/// A call in three columns: kind, name, count.
pub(super) fn call(row: &Row, at: usize) -> Result<Call, Fault> {
    let code: i16 = row.try_get(at)?;
    let kind = CallKind::ALL.into_iter().find(|kind| call_kind_code(*kind) == code);
    let kind = kind.ok_or_else(|| Fault::corrupt(format!("unknown kind of call {code}")))?;
    let name: CallName = name(row, at + 1)?;
    Ok(Call { kind, name, count: row.try_get::<_, i32>(at + 2)? as u32 })
}

pub(super) fn wait_kind(code: i16) -> Result<WaitKind, Fault> {
    WaitKind::from_code(code).ok_or_else(|| Fault::corrupt(format!("unknown kind of wait {code}")))
}

/// The wait of a row of `calls.sql`.
pub(super) fn wait(row: &Row) -> Result<Option<WaitRow>, Fault> {
    let Some(code) = row.try_get::<_, Option<i16>>(1)? else {
        return Ok(None);
    };
    let kind = wait_kind(code)?;
    let (call, (awaited, question)) = (call(row, 4)?, awaited(row, 15, kind)?);
    Ok(Some(WaitRow { call, kind, since: time(row, 2)?, due_at: time_if_any(row, 3)?, awaited, question }))
}

/// What a wait is for: events, or a person's answer to a question.
type For = (Option<Awaited>, Option<Box<Question>>);

/// See [`For`]; of most kinds of waits the kind says it all.
pub(super) fn awaited(row: &Row, at: usize, kind: WaitKind) -> Result<For, Fault> {
    let Some(packed) = row.try_get::<_, Option<&[u8]>>(at)? else { return Ok((None, None)) };
    if kind == WaitKind::Person {
        return Ok((None, Some(Box::new(question(packed)?))));
    }
    Ok((Some(wire::decode("awaited events", packed).map_err(Fault::corrupt)?), None))
}

/// An open question about an instance: its code and message in two columns from `at` on, and what has changed.
pub(super) fn parked(row: &Row, at: usize, changed: usize) -> Result<Parked, Fault> {
    let packed = row.try_get::<_, Option<&[u8]>>(changed)?;
    let changed = packed.map(|packed| wire::decode("changed", packed).map_err(Fault::corrupt)).transpose()?;
    Ok(Parked { code: park_code(row.try_get(at)?)?, message: row.try_get(at + 1)?, changed })
}

pub(super) fn changed(parked: &Parked) -> Option<Raw> {
    parked.changed.as_ref().map(|changed| Raw(wire::encode(&**changed)))
}

pub(super) fn question(packed: &[u8]) -> Result<Question, Fault> {
    wire::decode("question", packed).map_err(Fault::corrupt)
}

/// What of a remote step no statement looks at.
#[derive(Serialize, Deserialize)]
struct RemoteBody {
    call: Call,
    called_after: Position,
    remote: Remote,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<Payload>,
}

pub(super) fn remote_body(row: &RemoteRow) -> bytes::Bytes {
    wire::encode(&RemoteBody {
        call: row.call.clone(),
        called_after: row.called_after,
        remote: row.remote.clone(),
        progress: row.progress.clone(),
    })
}

/// The remote step of a row of `calls.sql`.
pub(super) fn remote(row: &Row) -> Result<Option<RemoteRow>, Fault> {
    let Some(body) = row.try_get::<_, Option<&[u8]>>(7)? else {
        return Ok(None);
    };
    let body: RemoteBody = wire::decode("remote step", body).map_err(Fault::corrupt)?;
    Ok(Some(RemoteRow {
        call: body.call,
        called_after: body.called_after,
        remote: body.remote,
        attempt: Attempt(row.try_get::<_, i32>(8)? as u32),
        epoch: Epoch(row.try_get::<_, i64>(9)? as u64),
        first_at: time_if_any(row, 10)?,
        granted_at: time_if_any(row, 11)?,
        progress: body.progress,
    }))
}

pub(super) fn park_code(word: &str) -> Result<ParkCode, Fault> {
    ParkCode::ALL
        .into_iter()
        .find(|code| code.word() == word)
        .ok_or_else(|| Fault::corrupt(format!("unknown code of a question {word:?}")))
}

/// A span in microseconds, as times are kept.
pub(super) fn micros(span: Millis) -> i64 {
    i64::try_from(span.as_u64()).unwrap_or(i64::MAX / 4000).min(i64::MAX / 4000) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_calls_keep_their_numbers() {
        let codes: Vec<i16> = CallKind::ALL.into_iter().map(call_kind_code).collect();
        assert_eq!(codes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 18]);
    }

    #[test]
    fn spans_never_overflow() {
        assert_eq!(micros(Millis(2)), 2000);
        assert!(micros(Millis::MAX) > 0);
        assert!(micros(Millis::MAX).checked_mul(3).is_some());
    }

    #[test]
    fn only_nul_is_replaced() {
        assert_eq!(clean("a\u{1}é"), "a\u{1}é");
        assert_eq!(clean("a\0b"), "a\u{2400}b");
    }
}
