//! Events and the waits for them: loaded as the inputs of a batch name them, and written.

use everstep_engine::{
    Rows, Status, Writes,
    hook::ReplyKey,
    mailbox::{AwaitedKey, Delivery, EventId, EventRow, KnownEvent, SentEvent},
    rows::Needs,
};
use everstep_protocol::{
    EventKey, EventType, Fingerprint, InstanceUid, Payload, Position, Run, Timestamp, wire,
};
use rusqlite::{Connection, Params, Row, params};

use super::{
    column,
    fault::{Fault, Result},
    load,
};
use crate::{Error, ErrorKind, Replied};

const ID: &str = "SELECT type, key, fingerprint FROM event WHERE uid = ?1 AND app_id = ?2 AND event_id = ?3";
/// The payload of an event that was delivered is in the journal.
const COLUMNS: &str =
    "sequence, received_at, event.run, event.position, type, key, app_id, event_id, event.call,
    fingerprint, coalesce(event.payload, (SELECT payload FROM journal
        WHERE journal.uid = event.uid AND journal.run = event.run AND journal.position = event.position))";
const AWAITED: &str =
    "SELECT call FROM awaited WHERE uid = ?1 AND type = ?2 AND key = ?3 ORDER BY opened LIMIT ?4";
const AWAITED_DELETE: &str = "DELETE FROM awaited WHERE uid = ?1 AND type = ?2 AND key = ?3 AND opened = ?4";
const AWAITED_INSERT: &str = "INSERT INTO awaited (uid, type, key, opened, call) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (uid, type, key, opened) DO NOTHING";
const EVENT_INSERT: &str =
    "INSERT INTO event (uid, type, sequence, key, app_id, event_id, fingerprint, received_at, unread,
    call, run, position, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
const DELIVERED: &str = "UPDATE event SET unread = 0, call = ?4, run = ?5, position = ?6, payload = NULL
    WHERE uid = ?1 AND type = ?2 AND sequence = ?3";
const RETURNED: &str = "UPDATE event SET unread = 1, call = NULL, run = NULL, position = NULL, payload = ?4
    WHERE uid = ?1 AND type = ?2 AND sequence = ?3";
const REPLY: &str =
    "UPDATE event SET reply = ?4 WHERE uid = ?1 AND app_id = ?2 AND event_id = ?3 AND reply IS NULL";
const REPLIED: &str =
    "SELECT (SELECT reply FROM event WHERE uid = ?1 AND app_id = ?2 AND event_id = ?3), status
    FROM instance WHERE uid = ?1";
const UNREAD_SHOWN: &str = "SELECT type, count(*), min(received_at) FROM event WHERE uid = ?1 AND unread = 1
    GROUP BY type ORDER BY min(sequence) LIMIT 100";
const NEVER_SENT: &str = "SELECT DISTINCT type FROM awaited WHERE uid = ?1
    AND NOT EXISTS (SELECT 1 FROM event WHERE event.uid = ?1 AND event.type = awaited.type) LIMIT 100";

/// A key as it is kept: none is empty, which no key is.
fn any(key: Option<&EventKey>) -> &str {
    key.map_or("", EventKey::as_str)
}

/// Everything that `needs` names of events.
pub(super) fn load(connection: &Connection, needs: &Needs, loaded: &mut Rows) -> Result<()> {
    for key in &needs.event_ids {
        let mut statement = connection.prepare_cached(ID)?;
        let mut rows = statement.query(params![key.0.0.as_bytes(), key.1.app_id, key.1.id])?;
        if let Some(row) = rows.next()? {
            let fingerprint = Fingerprint::from_bytes(row.get(2)?);
            let known = KnownEvent { kind: column::name(row, 0)?, key: read_key(row, 1)?, fingerprint };
            loaded.event_ids.insert(key.clone(), known);
        }
    }
    for query in needs.unread_queries() {
        let key = any(query.key.as_ref());
        let fits = if key.is_empty() { "?3 = ''" } else { "key = ?3 AND key <> ''" };
        let sql = format!(
            "SELECT {COLUMNS} FROM event WHERE uid = ?1 AND type = ?2 AND unread = 1 AND {fits} ORDER BY sequence LIMIT ?4"
        );
        let values = params![query.uid.0.as_bytes(), query.kind.as_str(), key, query.limit];
        events(connection, &sql, values, query.uid, loaded)?;
    }
    for query in needs.waiter_queries() {
        waiters(connection, query.uid, &query.kind, query.key.as_ref(), query.limit, loaded)?;
    }
    for query in needs.return_queries() {
        // Of earlier runs none returns, and their journals may be gone.
        let sql = format!(
            "SELECT {COLUMNS} FROM event WHERE uid = ?1 AND event.call = ?2
            AND event.run = (SELECT run FROM instance WHERE instance.uid = ?1)"
        );
        let values = params![query.uid.0.as_bytes(), query.call.0];
        for (kind, key) in events(connection, &sql, values, query.uid, loaded)? {
            waiters(connection, query.uid, &kind, key.as_ref(), query.limit, loaded)?;
        }
    }
    Ok(())
}

/// Loads events; answers with the type and key of each.
fn events(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    uid: InstanceUid,
    loaded: &mut Rows,
) -> Result<Vec<(EventType, Option<EventKey>)>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let row = event(row)?;
        found.push((row.event.kind.clone(), row.event.key.clone()));
        loaded.events.insert((uid, row.sequence), row);
    }
    Ok(found)
}

fn event(row: &Row<'_>) -> Result<EventRow> {
    let text: Option<String> = row.get(10)?;
    let text = text.ok_or_else(|| Fault::corrupt("reading an event", "its payload is missing"))?;
    let delivery = match row.get::<_, Option<[u8; 16]>>(8)? {
        None => None,
        Some(call) => Some(Delivery {
            call: everstep_protocol::CallHash(call),
            run: Run(row.get(2)?),
            position: Position(column::count(row, 3)?),
        }),
    };
    let event = SentEvent {
        id: EventId { app_id: row.get(6)?, id: row.get(7)? },
        kind: column::name(row, 4)?,
        key: read_key(row, 5)?,
        payload: Payload::from_trusted(text),
        fingerprint: Fingerprint::from_bytes(row.get(9)?),
    };
    let sequence = column::count(row, 0)?;
    Ok(EventRow { sequence, event, received_at: column::time(row, 1)?, delivery })
}

fn read_key(row: &Row<'_>, at: usize) -> Result<Option<EventKey>> {
    if column::text(row, at)?.is_empty() { Ok(None) } else { column::name(row, at).map(Some) }
}

/// The oldest waits that an event of this type and key fits.
fn waiters(
    connection: &Connection,
    uid: InstanceUid,
    kind: &EventType,
    key: Option<&EventKey>,
    limit: u32,
    loaded: &mut Rows,
) -> Result<()> {
    let mut awaited = connection.prepare_cached(AWAITED)?;
    let mut wait = connection.prepare_cached(load::WAIT)?;
    let keys = std::iter::once("").chain(key.map(EventKey::as_str));
    for key in keys {
        let mut rows = awaited.query(params![uid.0.as_bytes(), kind.as_str(), key, limit])?;
        while let Some(row) = rows.next()? {
            let call = column::hash(row, 0)?;
            let mut waits = wait.query(params![uid.0.as_bytes(), call.0])?;
            if let Some(row) = waits.next()? {
                loaded.waits.insert((uid, call), load::wait(row)?);
            }
        }
    }
    Ok(())
}

/// Deletes what is awaited no more.
pub(super) fn deletes(connection: &Connection, keys: &[AwaitedKey]) -> Result<()> {
    for key in keys {
        let mut statement = connection.prepare_cached(AWAITED_DELETE)?;
        let any = any(key.key.as_ref());
        statement.execute(params![key.uid.0.as_bytes(), key.kind.as_str(), any, key.opened.0 as i64])?;
    }
    Ok(())
}

/// Writes what is awaited, what was accepted and where it went.
pub(super) fn write(connection: &Connection, writes: &Writes) -> Result<()> {
    for (key, call) in &writes.awaited {
        let mut statement = connection.prepare_cached(AWAITED_INSERT)?;
        let any = any(key.key.as_ref());
        statement.execute(params![
            key.uid.0.as_bytes(),
            key.kind.as_str(),
            any,
            key.opened.0 as i64,
            call.0
        ])?;
    }
    for (uid, row) in &writes.events {
        insert(connection, *uid, row)?;
    }
    for (to, response) in &writes.replies {
        let id = to.event_id();
        let values = params![to.instance.0.as_bytes(), id.app_id, id.id, wire::encode(response).to_vec()];
        connection.prepare_cached(REPLY)?.execute(values)?;
    }
    for row in &writes.deliveries {
        let (uid, kind, sequence) = (row.uid.0.as_bytes(), row.kind.as_str(), row.sequence as i64);
        let changed = if let Some(to) = row.delivery {
            connection.prepare_cached(DELIVERED)?.execute(params![
                uid,
                kind,
                sequence,
                to.call.0,
                to.run.0,
                to.position.0 as i64
            ])?
        } else {
            let payload = row.payload.as_ref().map(Payload::as_str);
            connection.prepare_cached(RETURNED)?.execute(params![uid, kind, sequence, payload])?
        };
        if changed != 1 {
            let reason = format!("event {} of instance {} does not exist", row.sequence, row.uid);
            return Err(Fault::Said(Error::new(ErrorKind::Refused, "delivering an event", reason)));
        }
    }
    Ok(())
}

fn insert(connection: &Connection, uid: InstanceUid, row: &EventRow) -> Result<()> {
    let (event, to) = (&row.event, row.delivery);
    connection.prepare_cached(EVENT_INSERT)?.execute(params![
        uid.0.as_bytes(),
        event.kind.as_str(),
        row.sequence as i64,
        any(event.key.as_ref()),
        event.id.app_id,
        event.id.id,
        event.fingerprint.as_bytes(),
        row.received_at.0,
        to.is_none(),
        to.map(|to| to.call.0),
        to.map(|to| to.run.0),
        to.map(|to| to.position.0 as i64),
        to.is_none().then_some(event.payload.as_str()),
    ])?;
    Ok(())
}

/// What was answered the request of a webhook.
pub(super) fn replied(connection: &Connection, to: &ReplyKey) -> Result<Replied> {
    let id = to.event_id();
    let mut statement = connection.prepare_cached(REPLIED)?;
    let mut rows = statement.query(params![to.instance.0.as_bytes(), id.app_id, id.id])?;
    let Some(row) = rows.next()? else { return Ok(Replied::Over) };
    let is_there = row.get::<_, Option<Vec<u8>>>(0)?.is_some();
    let response = is_there.then(|| column::packed(row, 0, "answer")).transpose()?;
    Ok(Replied::of(response, Some(column::code(row, 1, Status::from_code)?)))
}

/// Unread events by type: how many, and when the oldest was accepted.
pub(super) fn unread(connection: &Connection, uid: InstanceUid) -> Result<Vec<(EventType, u64, Timestamp)>> {
    let mut statement = connection.prepare_cached(UNREAD_SHOWN)?;
    let mut rows = statement.query([uid.0.as_bytes()])?;
    let mut unread = Vec::new();
    while let Some(row) = rows.next()? {
        unread.push((column::name(row, 0)?, column::count(row, 1)?, column::time(row, 2)?));
    }
    Ok(unread)
}

/// Types that are awaited and of which no event was ever sent.
pub(super) fn never_sent(connection: &Connection, uid: InstanceUid) -> Result<Vec<EventType>> {
    let mut statement = connection.prepare_cached(NEVER_SENT)?;
    let mut rows = statement.query([uid.0.as_bytes()])?;
    let mut types = Vec::new();
    while let Some(row) = rows.next()? {
        types.push(column::name(row, 0)?);
    }
    Ok(types)
}
