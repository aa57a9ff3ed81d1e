//! Letters between instances, and the rows that tie them: loaded as the inputs of a batch name them, written, and found again.

use everstep_engine::{
    Rows, Status, Writes,
    letter::{Address, Caller, Letter, NewLetter, ParentRow, Said},
    rows::Needs,
    start::NameKey,
};
use everstep_protocol::{
    CallHash, InstanceUid, Position, Run, Timestamp,
    journal::{Entry, Other},
    wire,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{column, fault::Result};
use crate::{ChildView, Mail, Posted, fact, mail::PAGE_BYTES};

const LETTER: &str = "SELECT 1 FROM mailbox WHERE number = ?1";
const PARENT: &str = "SELECT caller, run, call, workflow, name, detached, depth FROM parent WHERE uid = ?1";
const LAST: &str = "SELECT journal.position, at, entry, payload FROM instance
    JOIN journal ON journal.uid = instance.uid AND journal.run = instance.run AND journal.position = instance.position
    WHERE instance.uid = ?1";
const LETTER_DELETE: &str = "DELETE FROM mailbox WHERE number = ?1";
const LETTER_INSERT: &str =
    "INSERT INTO mailbox (written_at, kind, uid, namespace, workflow, name, caller, run, call, body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
const CHILD_INSERT: &str = "INSERT INTO child (uid, run, call, namespace, workflow, name, detached, over)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0)";
const CHILD_OVER: &str = "UPDATE child SET over = 1 WHERE uid = ?1 AND run = ?2 AND call = ?3";
const CASCADE: &str =
    "INSERT INTO mailbox (written_at, kind, namespace, workflow, name, caller, run, call, body)
    SELECT ?1, ?5, namespace, workflow, name, uid, run, call, ?6 FROM child
    WHERE uid = ?2 AND run = ?3 AND (?4 IS NULL OR call = ?4) AND over = 0 AND detached = 0";
const PARENT_INSERT: &str = "INSERT INTO parent (uid, caller, run, call, workflow, name, detached, depth)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const CHILDREN_CUT: &str = "DELETE FROM child WHERE uid = ?1 AND run < ?2";
const WATCHERS_CUT: &str = "DELETE FROM watcher WHERE uid = ?1 AND caller = ?2 AND run < ?3";
const WATCHER_INSERT: &str = "INSERT INTO watcher (uid, caller, run, call) VALUES (?1, ?2, ?3, ?4)";
const CONCLUDE: &str = "INSERT INTO mailbox (written_at, kind, uid, caller, run, call, body)
    SELECT ?1, 4, caller, caller, run, call, ?3 FROM watcher WHERE uid = ?2";
const WATCHERS_DELETE: &str = "DELETE FROM watcher WHERE uid = ?1";
const DELETED: [&str; 3] =
    ["DELETE FROM child WHERE uid = ?1", "DELETE FROM parent WHERE uid = ?1", WATCHERS_DELETE];
/// `starting`: another letter is about to start an instance of that name.
const POSTED: &str =
    "SELECT number, caller, run, call, body, coalesce(mailbox.uid, instance_name.uid), mailbox.namespace,
    mailbox.workflow, name, EXISTS (SELECT 1 FROM mailbox start WHERE start.kind = 1
        AND start.namespace = mailbox.namespace AND start.workflow = mailbox.workflow AND start.name = mailbox.name
        AND start.number <> mailbox.number)
    FROM mailbox LEFT JOIN instance_name ON instance_name.namespace = mailbox.namespace
        AND instance_name.workflow = mailbox.workflow AND instance_name.id = mailbox.name
    WHERE number > ?1 ORDER BY number LIMIT ?2";
const CHILDREN: &str =
    "SELECT child.call, child.run, child.workflow, child.name, detached, instance.status FROM child
    LEFT JOIN instance_name ON instance_name.namespace = child.namespace
        AND instance_name.workflow = child.workflow AND instance_name.id = child.name
    LEFT JOIN instance ON instance.uid = instance_name.uid
    WHERE child.uid = ?1 ORDER BY over, child.run DESC, child.call LIMIT 100";
const CHILDREN_TOTAL: &str = "SELECT count(*) FROM child WHERE uid = ?1";

/// Everything that `needs` names of letters and ties.
pub(super) fn load(connection: &Connection, needs: &Needs, loaded: &mut Rows) -> Result<()> {
    for number in &needs.letters {
        if connection.prepare_cached(LETTER)?.exists([*number as i64])? {
            loaded.letters.insert(*number);
        }
    }
    for uid in &needs.parents {
        if let Some(row) = parent(connection, *uid)? {
            loaded.parents.insert(*uid, row);
        }
    }
    for uid in &needs.lasts {
        let mut statement = connection.prepare_cached(LAST)?;
        let mut rows = statement.query([uid.0.as_bytes()])?;
        if let Some(row) = rows.next()? {
            let position = Position(column::count(row, 0)?);
            let fact = fact::join(column::bytes(row, 2)?, row.get(3)?)?;
            loaded.lasts.insert(*uid, Entry { position, at: column::time(row, 1)?, fact });
        }
    }
    Ok(())
}

/// The parent of an instance.
pub(super) fn parent(connection: &Connection, uid: InstanceUid) -> Result<Option<ParentRow>> {
    let mut statement = connection.prepare_cached(PARENT)?;
    let mut rows = statement.query([uid.0.as_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let name = Other { workflow: column::name(row, 3)?, id: column::name(row, 4)? };
    Ok(Some(ParentRow { caller: caller(row, 0)?, name, detached: row.get(5)?, depth: row.get(6)? }))
}

/// The children of an instance that are shown, and the count of all.
pub(super) fn children(connection: &Connection, uid: InstanceUid) -> Result<(Vec<ChildView>, u64)> {
    let mut statement = connection.prepare_cached(CHILDREN)?;
    let mut rows = statement.query([uid.0.as_bytes()])?;
    let mut children = Vec::new();
    while let Some(row) = rows.next()? {
        let is_there = row.get::<_, Option<i16>>(5)?.is_some();
        children.push(ChildView {
            call: column::hash(row, 0)?,
            run: Run(row.get(1)?),
            name: Other { workflow: column::name(row, 2)?, id: column::name(row, 3)? },
            detached: row.get(4)?,
            status: is_there.then(|| column::code(row, 5, Status::from_code)).transpose()?,
        });
    }
    let total: Option<i64> = connection
        .prepare_cached(CHILDREN_TOTAL)?
        .query_row([uid.0.as_bytes()], |row| row.get(0))
        .optional()?;
    Ok((children, total.unwrap_or(0) as u64))
}

/// A caller in three columns: instance, run, call.
fn caller(row: &Row<'_>, at: usize) -> Result<Caller> {
    let call: CallHash = column::hash(row, at + 2)?;
    Ok(Caller { uid: column::uid(row, at)?, run: Run(row.get(at + 1)?), call })
}

/// Letters that nobody has taken, after a number, in their order.
pub(super) fn mail(connection: &Connection, after: u64, limit: u32) -> Result<Mail> {
    let mut statement = connection.prepare_cached(POSTED)?;
    let mut rows = statement.query(params![after as i64, limit])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        bytes += column::bytes(row, 4)?.len();
        if bytes > PAGE_BYTES && !found.is_empty() {
            return Ok(Mail::of(found, true));
        }
        found.push((column::count(row, 0)?, posted(row).ok()));
    }
    let more = found.len() == limit as usize;
    Ok(Mail::of(found, more))
}

/// A row of [`POSTED`].
fn posted(row: &Row<'_>) -> Result<Posted> {
    let to = row.get::<_, Option<[u8; 16]>>(5)?;
    let is_named = row.get::<_, Option<String>>(8)?.is_some();
    let name = || -> Result<NameKey> {
        let (namespace, workflow) = (column::name(row, 6)?, column::name(row, 7)?);
        Ok(NameKey { namespace, workflow, id: column::name(row, 8)? })
    };
    Ok(Posted {
        letter: Letter {
            number: column::count(row, 0)?,
            caller: caller(row, 1)?,
            said: column::packed(row, 4, "letter")?,
        },
        to: to.map(|uid| InstanceUid(uuid::Uuid::from_bytes(uid))),
        name: is_named.then(name).transpose()?,
        starting: row.get(9)?,
    })
}

/// Writes what the batch says, in the order that [`Writes::cascades`] names; rows of deleted instances go last.
pub(super) fn write(connection: &Connection, writes: &Writes, now: Timestamp) -> Result<()> {
    for number in &writes.letter_deletes {
        connection.prepare_cached(LETTER_DELETE)?.execute([*number as i64])?;
    }
    for letter in &writes.letters {
        insert(connection, letter, now)?;
    }
    for (uid, cascade) in &writes.cascades {
        connection.prepare_cached(CASCADE)?.execute(params![
            now.0,
            uid.0.as_bytes(),
            cascade.run.0,
            cascade.call.map(|call| call.0),
            cascade.said.code(),
            &wire::encode(&cascade.said)[..],
        ])?;
    }
    for (uid, outcome) in &writes.concluded {
        let said = wire::encode(&Said::Returned { outcome: outcome.clone(), over: true });
        connection.prepare_cached(CONCLUDE)?.execute(params![now.0, uid.0.as_bytes(), &said[..]])?;
        connection.prepare_cached(WATCHERS_DELETE)?.execute([uid.0.as_bytes()])?;
    }
    ties(connection, writes)?;
    for row in writes.deleted.iter().filter(|row| row.linked) {
        for statement in DELETED {
            connection.prepare_cached(statement)?.execute([row.uid.0.as_bytes()])?;
        }
    }
    Ok(())
}

/// Children, parents, watchers.
fn ties(connection: &Connection, writes: &Writes) -> Result<()> {
    for (uid, row) in &writes.children {
        connection.prepare_cached(CHILD_INSERT)?.execute(params![
            uid.0.as_bytes(),
            row.run.0,
            row.call.0,
            row.name.namespace.as_str(),
            row.name.workflow.as_str(),
            row.name.id.as_str(),
            row.detached,
        ])?;
    }
    for (uid, run, call) in &writes.children_over {
        connection.prepare_cached(CHILD_OVER)?.execute(params![uid.0.as_bytes(), run.0, call.0])?;
    }
    for (uid, below) in &writes.children_cuts {
        connection.prepare_cached(CHILDREN_CUT)?.execute(params![uid.0.as_bytes(), below.0])?;
    }
    for (uid, row) in &writes.parents {
        connection.prepare_cached(PARENT_INSERT)?.execute(params![
            uid.0.as_bytes(),
            row.caller.uid.0.as_bytes(),
            row.caller.run.0,
            row.caller.call.0,
            row.name.workflow.as_str(),
            row.name.id.as_str(),
            row.detached,
            row.depth,
        ])?;
    }
    for (uid, caller) in &writes.watchers {
        // In its first run it has watched nothing before.
        if caller.run > Run(1) {
            let earlier = params![uid.0.as_bytes(), caller.uid.0.as_bytes(), caller.run.0];
            connection.prepare_cached(WATCHERS_CUT)?.execute(earlier)?;
        }
        let key = params![uid.0.as_bytes(), caller.uid.0.as_bytes(), caller.run.0, caller.call.0];
        connection.prepare_cached(WATCHER_INSERT)?.execute(key)?;
    }
    Ok(())
}

fn insert(connection: &Connection, letter: &NewLetter, now: Timestamp) -> Result<()> {
    let (uid, name) = match &letter.to {
        Address::Instance(uid) => (Some(uid.0.as_bytes()), None),
        // Its carrier looks up whom it is for.
        Address::Token => (Some(letter.caller.uid.0.as_bytes()), None),
        Address::Name(name) => (None, Some(name)),
    };
    connection.prepare_cached(LETTER_INSERT)?.execute(params![
        now.0,
        letter.said.code(),
        uid,
        name.map(|name| name.namespace.as_str()),
        name.map(|name| name.workflow.as_str()),
        name.map(|name| name.id.as_str()),
        letter.caller.uid.0.as_bytes(),
        letter.caller.run.0,
        letter.caller.call.0,
        &wire::encode(&letter.said)[..],
    ])?;
    Ok(())
}
