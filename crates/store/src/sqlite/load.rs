//! Loads what a batch needs, each row by its primary key.

use std::collections::hash_map::Entry;

use everstep_engine::{
    Head, Rows, Status,
    batch::Loaded,
    head::Cached,
    retention::Own,
    rows::{Cancel, Control, Lease, Needs, RemoteRow, Subject, WaitKind, WaitRow},
    start::{Decided, Existing},
};
use everstep_protocol::{
    Attempt, CallHash, Epoch, Fingerprint, Generation, InstanceUid, Millis, Payload, Pin, Position, Run,
    SessionId, Timestamp,
    journal::{Entry as JournalEntry, Parked},
};
use rusqlite::{Connection, Row, params, types::ValueRef};

use super::{
    audits, column, events,
    fault::{Fault, Result},
    hooks, letters,
};
use crate::{answer, fact};

pub(super) const HEAD: &str =
    "SELECT namespace, workflow, id, run, generation, status, instance.epoch, position,
    reports, waits, steps, journal_bytes, deaths, created_at, ended_at, session, lease.epoch, events, unread, keep_complete,
    keep_failed, paused_at, cancel_position, cancel_until, cached_by, cached_position, pin, links, cancel_rollback,
    compensating_at, hooks, hooks_until FROM instance
    LEFT JOIN lease ON lease.uid = instance.uid AND lease.subject = ?2
    LEFT JOIN control ON control.uid = instance.uid WHERE instance.uid = ?1";
const LEASE: &str = "SELECT session, epoch FROM lease WHERE uid = ?1 AND subject = ?2";
const READY: &str = "SELECT ready_at FROM ready WHERE uid = ?1 AND subject = ?2";
pub(super) const WAIT: &str =
    "SELECT kind, since, due_at, call_kind, call_name, call_count, awaited FROM wait
    WHERE uid = ?1 AND call = ?2";
const REMOTE: &str =
    "SELECT call_kind, call_name, call_count, called_after, attempt, epoch, first_at, granted_at,
    remote, progress FROM remote_step WHERE uid = ?1 AND call = ?2";
const PARKED: &str = "SELECT code, message, changed FROM attention WHERE uid = ?1";
const OPERATION: &str = "SELECT answer FROM operation WHERE uid = ?1 AND operation = ?2";
const FIRST: &str = "SELECT at, entry, payload, EXISTS (SELECT 1 FROM attribute WHERE uid = ?1) FROM journal
    WHERE uid = ?1 AND run = (SELECT run FROM instance WHERE uid = ?1) AND position = 1";
const KEYS: &str = "SELECT position, at, entry FROM journal
    WHERE uid = ?1 AND run = (SELECT run FROM instance WHERE uid = ?1) AND kind = 43 ORDER BY position";
const EXPIRY: &str = "SELECT delete_at FROM ended WHERE uid = ?1";
const NAME: &str = "SELECT name.uid, name.fingerprint, instance.status FROM instance_name name
    JOIN instance ON instance.uid = name.uid
    WHERE name.namespace = ?1 AND name.workflow = ?2 AND name.id = ?3";
const MESSAGE: &str = "SELECT id, answer FROM message_decision
    WHERE namespace = ?1 AND workflow = ?2 AND app_id = ?3 AND message_id = ?4";

/// Everything that `needs` names. Heads are never locked elsewhere: there is one writer.
pub(super) fn load(connection: &Connection, needs: &Needs, now: Timestamp) -> Result<Loaded> {
    let mut loaded = Loaded { now, ..Loaded::default() };
    heads(connection, needs, &mut loaded)?;
    runnable(connection, needs, &mut loaded.rows)?;
    waits(connection, &needs.waits, &mut loaded.rows)?;
    remotes(connection, &needs.remotes, &mut loaded.rows)?;
    operations(connection, needs, &mut loaded.rows)?;
    firsts(connection, needs, &mut loaded.rows)?;
    names(connection, needs, &mut loaded)?;
    messages(connection, needs, &mut loaded)?;
    events::load(connection, needs, &mut loaded.rows)?;
    letters::load(connection, needs, &mut loaded.rows)?;
    hooks::load(connection, needs, &mut loaded.rows)?;
    audits::tallies(connection, needs, &mut loaded.rows)?;
    Ok(loaded)
}

fn heads(connection: &Connection, needs: &Needs, loaded: &mut Loaded) -> Result<()> {
    if needs.heads.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(HEAD)?;
    loaded.heads.reserve(needs.heads.len());
    loaded.rows.leases.reserve(needs.heads.len());
    for uid in &needs.heads {
        if let Entry::Vacant(vacant) = loaded.heads.entry(*uid) {
            let mut rows = statement.query([uid.0.as_bytes(), &Subject::INSTANCE.0])?;
            if let Some(row) = rows.next()? {
                vacant.insert(head(*uid, row)?);
                if let Some(lease) = held(row)? {
                    loaded.rows.leases.insert((*uid, Subject::INSTANCE), lease);
                }
                let control = control(row)?;
                if control != Control::default() {
                    loaded.rows.controls.insert(*uid, control);
                }
            }
        }
    }
    Ok(())
}

/// The head in the columns of [`HEAD`].
pub(super) fn head(uid: InstanceUid, row: &Row<'_>) -> Result<Head> {
    Ok(Head {
        uid,
        namespace: column::name(row, 0)?,
        workflow: column::name(row, 1)?,
        id: column::name(row, 2)?,
        run: Run(row.get(3)?),
        generation: Generation(row.get(4)?),
        status: column::code(row, 5, Status::from_code)?,
        epoch: Epoch(column::count(row, 6)?),
        position: Position(column::count(row, 7)?),
        reports: column::count(row, 8)?,
        waits: row.get(9)?,
        steps: column::count(row, 10)?,
        journal_bytes: column::count(row, 11)?,
        deaths: row.get(12)?,
        created_at: column::time(row, 13)?,
        ended_at: column::time_if_any(row, 14)?,
        events: column::count(row, 17)?,
        unread: column::count(row, 18)?,
        cached: cached(row)?,
        links: row.get(27)?,
        retention: Own { complete: millis_if_any(row, 19)?, failed: millis_if_any(row, 20)? },
        pin: pin(row, 26)?,
        hooks: row.get(30)?,
        hooks_until: column::time_if_any(row, 31)?,
    })
}

/// Who may have kept the body, in the columns of [`HEAD`].
fn cached(row: &Row<'_>) -> Result<Option<Cached>> {
    let (session, position): (Option<[u8; 16]>, Option<i64>) = (row.get(24)?, row.get(25)?);
    Ok(session.zip(position).map(|(session, position)| Cached {
        session: SessionId(uuid::Uuid::from_bytes(session)),
        position: Position(position as u64),
    }))
}

fn pin(row: &Row<'_>, column: usize) -> Result<Option<Pin>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| text.parse().map_err(|error| Fault::corrupt("reading a pin", error))).transpose()
}

fn millis_if_any(row: &Row<'_>, column: usize) -> Result<Option<Millis>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(|millis| Millis(millis as u64)))
}

/// The pause and cancel in the columns of [`HEAD`].
pub(super) fn control(row: &Row<'_>) -> Result<Control> {
    let position: Option<i64> = row.get(22)?;
    let until = column::time_if_any(row, 23)?;
    let rollback = row.get::<_, Option<bool>>(28)?.unwrap_or(false);
    Ok(Control {
        paused_at: column::time_if_any(row, 21)?,
        cancel: position.map(|position| Cancel { position: Position(position as u64), until, rollback }),
        compensating_at: column::time_if_any(row, 29)?,
    })
}

/// The instance's own lease in the columns of [`HEAD`].
pub(super) fn held(row: &Row<'_>) -> Result<Option<Lease>> {
    match row.get::<_, Option<[u8; 16]>>(15)? {
        Some(session) => {
            let session = SessionId(uuid::Uuid::from_bytes(session));
            Ok(Some(Lease { session, epoch: Epoch(column::count(row, 16)?) }))
        }
        None => Ok(None),
    }
}

fn lease(row: &Row<'_>) -> Result<Lease> {
    Ok(Lease { session: column::session(row, 0)?, epoch: Epoch(column::count(row, 1)?) })
}

fn runnable(connection: &Connection, needs: &Needs, loaded: &mut Rows) -> Result<()> {
    if needs.runnable.is_empty() {
        return Ok(());
    }
    let mut ready = connection.prepare_cached(READY)?;
    let mut attention = connection.prepare_cached(PARKED)?;
    for uid in &needs.runnable {
        let mut rows = ready.query(params![uid.0.as_bytes(), Subject::INSTANCE.0])?;
        if let Some(row) = rows.next()? {
            loaded.ready.insert((*uid, Subject::INSTANCE), column::time(row, 0)?);
        }
        let mut rows = attention.query([uid.0.as_bytes()])?;
        if let Some(row) = rows.next()? {
            loaded.parked.insert(*uid, parked(row, 0, 2)?);
        }
    }
    Ok(())
}

/// An open question in two columns, from this one on, and what has changed.
pub(super) fn parked(row: &Row<'_>, column: usize, changed: usize) -> Result<Parked> {
    let packed = row.get_ref(changed)? != ValueRef::Null;
    let changed = packed.then(|| column::packed(row, changed, "changed")).transpose()?;
    Ok(Parked { code: column::word(row, column)?, message: row.get(column + 1)?, changed })
}

fn waits(connection: &Connection, keys: &[(InstanceUid, CallHash)], loaded: &mut Rows) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(WAIT)?;
    for key in keys {
        let mut rows = statement.query(params![key.0.0.as_bytes(), key.1.0])?;
        if let Some(row) = rows.next()? {
            loaded.waits.insert(*key, wait(row)?);
        }
    }
    Ok(())
}

pub(super) fn wait(row: &Row<'_>) -> Result<WaitRow> {
    let kind = column::code(row, 0, WaitKind::from_code)?;
    let is_person = kind == WaitKind::Person;
    Ok(WaitRow {
        kind,
        since: column::time(row, 1)?,
        due_at: column::time_if_any(row, 2)?,
        call: column::call(row, 3)?,
        awaited: match row.get_ref(6)? {
            rusqlite::types::ValueRef::Null => None,
            _ if is_person => None,
            _ => Some(column::packed(row, 6, "awaited events")?),
        },
        question: if is_person { Some(Box::new(column::packed(row, 6, "question")?)) } else { None },
    })
}

/// Remote steps with their wait, lease and ready rows.
fn remotes(connection: &Connection, keys: &[(InstanceUid, CallHash)], loaded: &mut Rows) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut steps = connection.prepare_cached(REMOTE)?;
    let mut leases = connection.prepare_cached(LEASE)?;
    let mut ready = connection.prepare_cached(READY)?;
    for key in keys {
        let mut rows = steps.query(params![key.0.0.as_bytes(), key.1.0])?;
        let Some(row) = rows.next()? else {
            // Without the step there are none of the others.
            continue;
        };
        loaded.remotes.insert(*key, remote(row)?);
        let subject = (key.0, Subject::step(key.1));
        let mut rows = leases.query(params![key.0.0.as_bytes(), key.1.0])?;
        if let Some(row) = rows.next()? {
            loaded.leases.insert(subject, lease(row)?);
        }
        let mut rows = ready.query(params![key.0.0.as_bytes(), key.1.0])?;
        if let Some(row) = rows.next()? {
            loaded.ready.insert(subject, column::time(row, 0)?);
        }
    }
    waits(connection, keys, loaded)
}

fn remote(row: &Row<'_>) -> Result<RemoteRow> {
    Ok(RemoteRow {
        call: column::call(row, 0)?,
        called_after: Position(column::count(row, 3)?),
        attempt: Attempt(row.get(4)?),
        epoch: Epoch(column::count(row, 5)?),
        first_at: column::time_if_any(row, 6)?,
        granted_at: column::time_if_any(row, 7)?,
        remote: column::packed(row, 8, "remote step")?,
        progress: row.get::<_, Option<String>>(9)?.map(Payload::from_trusted),
    })
}

fn operations(connection: &Connection, needs: &Needs, loaded: &mut Rows) -> Result<()> {
    for key in &needs.operations {
        let mut statement = connection.prepare_cached(OPERATION)?;
        let mut rows = statement.query(params![key.0.0.as_bytes(), key.1])?;
        if let Some(row) = rows.next()? {
            loaded.operations.insert(key.clone(), answer(row, 0)?);
        }
    }
    Ok(())
}

/// First entries, what people decided about keys, whether there are attributes, and times of deletion.
fn firsts(connection: &Connection, needs: &Needs, loaded: &mut Rows) -> Result<()> {
    for uid in &needs.firsts {
        let mut statement = connection.prepare_cached(FIRST)?;
        let mut rows = statement.query([uid.0.as_bytes()])?;
        if let Some(row) = rows.next()? {
            let fact = fact::join(column::bytes(row, 1)?, row.get(2)?)?;
            loaded
                .firsts
                .insert(*uid, JournalEntry { position: Position(1), at: column::time(row, 0)?, fact });
            if row.get(3)? {
                loaded.attributed.insert(*uid);
            }
        }
        let mut statement = connection.prepare_cached(KEYS)?;
        let mut rows = statement.query([uid.0.as_bytes()])?;
        while let Some(row) = rows.next()? {
            let fact = fact::join(column::bytes(row, 2)?, None)?;
            let entry = JournalEntry {
                position: Position(row.get::<_, i64>(0)? as u64),
                at: column::time(row, 1)?,
                fact,
            };
            loaded.keys.entry(*uid).or_default().push(entry);
        }
    }
    for uid in &needs.expiries {
        let mut statement = connection.prepare_cached(EXPIRY)?;
        let mut rows = statement.query([uid.0.as_bytes()])?;
        if let Some(row) = rows.next()? {
            loaded.expiries.insert(*uid, column::time(row, 0)?);
        }
    }
    Ok(())
}

fn answer(row: &Row<'_>, column: usize) -> Result<everstep_engine::Answer> {
    let text = column::text(row, column)?;
    answer::decode(text).ok_or_else(|| super::Fault::corrupt("reading an answer", format!("{text:?}")))
}

fn names(connection: &Connection, needs: &Needs, loaded: &mut Loaded) -> Result<()> {
    if needs.names.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(NAME)?;
    for key in &needs.names {
        let parts = params![key.namespace.as_str(), key.workflow.as_str(), key.id.as_str()];
        let mut rows = statement.query(parts)?;
        if let Some(row) = rows.next()? {
            let existing = Existing {
                uid: column::uid(row, 0)?,
                fingerprint: Fingerprint::from_bytes(row.get(1)?),
                status: column::code(row, 2, Status::from_code)?,
            };
            loaded.names.insert(key.clone(), existing);
        }
    }
    Ok(())
}

fn messages(connection: &Connection, needs: &Needs, loaded: &mut Loaded) -> Result<()> {
    if needs.messages.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(MESSAGE)?;
    for key in &needs.messages {
        let parts = params![key.namespace.as_str(), key.workflow.as_str(), key.app_id, key.message_id];
        let mut rows = statement.query(parts)?;
        if let Some(row) = rows.next()? {
            let decided = Decided { id: column::name(row, 0)?, answer: answer(row, 1)? };
            loaded.messages.insert(key.clone(), decided);
        }
    }
    Ok(())
}
