//! Journals.

use everstep_protocol::{
    InstanceUid, Position, Run,
    journal::{Entry, Fact},
};
use rusqlite::{Connection, params};

use super::{column, fault::Result};
use crate::{Range, fact};

const ENTRIES_MAX: u32 = 1_000;

const RANGE: &str = "SELECT position, at, entry, payload FROM journal
    WHERE uid = ?1 AND run = ?2 AND position > ?3 ORDER BY position LIMIT ?4";
/// How compensations ended, if that is what stands there: what else does is not read.
const COMPENSATED: &str =
    "SELECT entry FROM journal WHERE uid = ?1 AND run = ?2 AND position = ?3 AND kind = 16";
const ONE: &str = "SELECT entry, payload FROM journal WHERE uid = ?1 AND run = ?2 AND position = ?3";

/// The entries of a range: the first whatever its size, then as many as fit.
pub(super) fn read(connection: &Connection, range: &Range, bytes_max: usize) -> Result<Vec<Entry>> {
    let mut statement = connection.prepare_cached(RANGE)?;
    // A position comes from outside: beyond the numbers of the database there is nothing.
    let after = i64::try_from(range.after.0).unwrap_or(i64::MAX);
    let values = params![range.uid.0.as_bytes(), range.run.0, after, ENTRIES_MAX];
    let mut rows = statement.query(values)?;
    let mut entries = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let rest = column::bytes(row, 2)?;
        let payload: Option<String> = row.get(3)?;
        bytes += rest.len() + payload.as_ref().map_or(0, String::len);
        if bytes > bytes_max && !entries.is_empty() {
            break;
        }
        let fact = fact::join(rest, payload)?;
        entries.push(Entry { position: Position(column::count(row, 0)?), at: column::time(row, 1)?, fact });
    }
    Ok(entries)
}

/// How compensations ended, if the entry says that.
pub(super) fn compensated(
    connection: &Connection,
    uid: InstanceUid,
    run: Run,
    position: Position,
) -> Result<Option<Fact>> {
    let mut statement = connection.prepare_cached(COMPENSATED)?;
    let mut rows = statement.query(params![uid.0.as_bytes(), run.0, position.0 as i64])?;
    rows.next()?.map(|row| Ok(fact::join(column::bytes(row, 0)?, None)?)).transpose()
}

/// One entry's fact, if it is there.
pub(super) fn one(
    connection: &Connection,
    uid: InstanceUid,
    run: Run,
    position: Position,
) -> Result<Option<Fact>> {
    let mut statement = connection.prepare_cached(ONE)?;
    let mut rows = statement.query(params![uid.0.as_bytes(), run.0, position.0 as i64])?;
    match rows.next()? {
        Some(row) => Ok(Some(fact::join(column::bytes(row, 0)?, row.get(1)?)?)),
        None => Ok(None),
    }
}
