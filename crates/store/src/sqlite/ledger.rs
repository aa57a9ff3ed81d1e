//! The calls of steps that an auditor asks for (rule L14).

use everstep_engine::start::NameKey;
use everstep_protocol::{Position, Run, Timestamp, journal::Entry};
use rusqlite::{Connection, Row, params};

use super::{column, fault::Result};
use crate::{
    LedgerCall, LedgerSearch, fact,
    view::{Gathered, Of, window},
};

const INSTANCE: &str = "SELECT i.namespace, i.workflow, i.id, j.uid, j.run, j.call, j.position, j.at, j.entry
    FROM instance i
    JOIN (
        SELECT h.call, min(h.position) AS first FROM journal h
        WHERE h.uid = ?1 AND h.run = ?2 AND h.kind IN (2, 3, 40)
        GROUP BY h.call HAVING min(h.position) > ?3 ORDER BY first LIMIT ?4
    ) hit
    JOIN journal j ON j.uid = i.uid AND j.run = ?2 AND j.call = hit.call AND j.position >= hit.first
    WHERE i.uid = ?1 ORDER BY hit.first, j.position";
const REFERENCE: &str =
    "SELECT hit.namespace, hit.workflow, hit.id, j.uid, j.run, j.call, j.position, j.at, j.entry FROM (
        SELECT DISTINCT h.uid, h.run, h.call, i.namespace, i.workflow, i.id
        FROM journal h JOIN instance i ON i.uid = h.uid
        WHERE h.reference = ?2 AND i.namespace = ?1 ORDER BY h.uid, h.run, h.call LIMIT ?3
    ) hit JOIN journal j ON j.uid = hit.uid AND j.run = hit.run AND j.call = hit.call
    ORDER BY j.uid, j.run, j.call, j.position";
/// Keys are in no index, since every step of every instance would pay for it: the journals of the window are read.
const KEY: &str =
    "SELECT hit.namespace, hit.workflow, hit.id, j.uid, j.run, j.call, j.position, j.at, j.entry FROM (
        SELECT DISTINCT h.uid, h.run, h.call, i.namespace, i.workflow, i.id
        FROM instance i JOIN journal h ON h.uid = i.uid
        WHERE i.uid >= ?5 AND i.uid < ?6 AND i.namespace = ?1 AND i.created_at >= ?3 AND i.created_at < ?4
        AND h.kind IN (2, 3, 40) AND instr(h.entry, ?2) > 0 LIMIT ?7
    ) hit JOIN journal j ON j.uid = hit.uid AND j.run = hit.run AND j.call = hit.call
    ORDER BY j.uid, j.run, j.call, j.position";

pub(super) fn search(
    connection: &Connection,
    search: &LedgerSearch,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<LedgerCall>> {
    let sql = match search {
        LedgerSearch::Instance(..) => INSTANCE,
        LedgerSearch::Reference(..) => REFERENCE,
        LedgerSearch::Key { .. } => KEY,
    };
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = match search {
        LedgerSearch::Instance(instance, run, after) => {
            let after = i64::try_from(after.0).unwrap_or(i64::MAX);
            statement.query(params![instance.0.as_bytes(), run.0, after, limit])?
        }
        LedgerSearch::Reference(namespace, reference) => {
            statement.query(params![namespace.as_str(), reference.as_str(), limit])?
        }
        LedgerSearch::Key { namespace, key, since, until } => {
            let (from, to) = (since.at(now), until.unwrap_or(Timestamp(i64::MAX)));
            let (first, last) = window(from, to);
            let (first, last) = (first.as_bytes(), last.as_bytes());
            statement.query(params![
                namespace.as_str(),
                &key.as_bytes()[..],
                from.0,
                to.0,
                first,
                last,
                limit
            ])?
        }
    };
    let mut found = Gathered::default();
    while let Some(row) = rows.next()? {
        let (call, name, entry) = read(row)?;
        found.add(call, name, entry);
    }
    Ok(found.calls())
}

fn read(row: &Row<'_>) -> Result<(Of, NameKey, Entry)> {
    let name = NameKey {
        namespace: column::name(row, 0)?,
        workflow: column::name(row, 1)?,
        id: column::name(row, 2)?,
    };
    let call = (column::uid(row, 3)?, Run(row.get(4)?), column::hash(row, 5)?);
    let fact = fact::bare(column::bytes(row, 8)?)?;
    Ok((call, name, Entry { position: Position(column::count(row, 6)?), at: column::time(row, 7)?, fact }))
}
