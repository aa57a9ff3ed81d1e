//! Writes the rows of a batch: deletes before inserts, as the engine's fold expects.

use everstep_engine::{
    Head, Writes,
    batch::{JournalRow, ReadyRow},
    effect::Forget,
    lifecycle::Lifecycle,
    rows::{Lease, RemoteRow, Subject, WaitRow},
};
use everstep_protocol::{CallHash, Epoch, InstanceUid, Millis, Payload, Pin, Timestamp, wire};
use rusqlite::{Connection, params};

use super::{
    actions, column, events,
    fault::{Fault, Result},
    hooks, letters,
};
use crate::{Error, ErrorKind, StepOver, answer, fact};

const HEAD_INSERT: &str =
    "INSERT INTO instance (uid, namespace, workflow, id, run, generation, status, epoch, position,
    reports, waits, steps, journal_bytes, deaths, created_at, ended_at, events, unread, keep_complete, keep_failed,
    links)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)";
// An open head that stays open: no indexed column is named, so no index is touched.
const HEAD_UPDATE: &str =
    "UPDATE instance SET run = ?2, generation = ?3, epoch = ?4, position = ?5, reports = ?6,
    waits = ?7, steps = ?8, journal_bytes = ?9, deaths = ?10, events = ?11, unread = ?12, links = ?13,
    cached_by = ?14, cached_position = ?15 WHERE uid = ?1 AND status = 0";
const HEAD_UPDATE_ALL: &str =
    "UPDATE instance SET run = ?2, generation = ?3, epoch = ?4, position = ?5, reports = ?6,
    waits = ?7, steps = ?8, journal_bytes = ?9, deaths = ?10, events = ?11, unread = ?12, links = ?13,
    cached_by = ?14, cached_position = ?15, status = ?16, ended_at = ?17 WHERE uid = ?1";
const PIN: &str = "UPDATE instance SET pin = ?2 WHERE uid = ?1";
const NAME_INSERT: &str = "INSERT INTO instance_name (namespace, workflow, id, uid, fingerprint)
    VALUES (?1, ?2, ?3, ?4, ?5)";
const MESSAGE_INSERT: &str =
    "INSERT INTO message_decision (namespace, workflow, app_id, message_id, at, id, answer)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const JOURNAL_INSERT: &str =
    "INSERT INTO journal (uid, run, position, kind, call, at, entry, payload, reference)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const LEASE_DELETE: &str = "DELETE FROM lease WHERE uid = ?1 AND subject = ?2";
const LEASE_INSERT: &str = "INSERT INTO lease (uid, subject, session, epoch) VALUES (?1, ?2, ?3, ?4)";
const READY_DELETE: &str = "DELETE FROM ready WHERE uid = ?1 AND subject = ?2";
const READY_INSERT: &str = "INSERT INTO ready (uid, subject, namespace, workflow, pool, ready_at, offered_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const WAIT_DELETE: &str = "DELETE FROM wait WHERE uid = ?1 AND call = ?2";
const WAIT_INSERT: &str =
    "INSERT INTO wait (uid, call, kind, since, due_at, call_kind, call_name, call_count, awaited)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const REMOTE_DELETE: &str = "DELETE FROM remote_step WHERE uid = ?1 AND call = ?2";
const REMOTE_INSERT: &str =
    "INSERT INTO remote_step (uid, call, call_kind, call_name, call_count, called_after,
    attempt, epoch, first_at, granted_at, remote, progress)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
const CLEARED: [&str; 4] = [
    "DELETE FROM awaited WHERE uid = ?1",
    "DELETE FROM wait WHERE uid = ?1",
    "DELETE FROM remote_step WHERE uid = ?1",
    "DELETE FROM ready WHERE uid = ?1 AND subject <> zeroblob(16)",
];
const LEASES_CLEARED: &str =
    "DELETE FROM lease WHERE uid = ?1 AND subject <> zeroblob(16) RETURNING subject, session, epoch";
const DELETED: [&str; 14] = [
    "DELETE FROM instance WHERE uid = ?1",
    // Those of remote steps are cleared, and named.
    "DELETE FROM lease WHERE uid = ?1 AND subject = zeroblob(16)",
    "DELETE FROM ready WHERE uid = ?1",
    "DELETE FROM wait WHERE uid = ?1",
    "DELETE FROM awaited WHERE uid = ?1",
    "DELETE FROM event WHERE uid = ?1",
    "DELETE FROM remote_step WHERE uid = ?1",
    "DELETE FROM attention WHERE uid = ?1",
    "DELETE FROM operation WHERE uid = ?1",
    CONTROL_DELETE,
    ENDED_DELETE,
    ATTRIBUTES_CLEAR,
    "DELETE FROM published WHERE uid = ?1",
    "INSERT INTO journal_cut (uid, below) VALUES (?1, 2147483647)",
];
const ATTRIBUTES_CLEAR: &str = "DELETE FROM attribute WHERE uid = ?1";
const ATTRIBUTE_DELETE: &str = "DELETE FROM attribute WHERE uid = ?1 AND name = ?2";
/// One that has the value already is not written again.
const ATTRIBUTE_SET: &str = "INSERT INTO attribute (uid, namespace, name, value) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (uid, name) DO UPDATE SET value = excluded.value WHERE attribute.value <> excluded.value";
const PUBLISH: &str = "INSERT INTO published (uid, at, run, state) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (uid) DO UPDATE SET at = excluded.at, run = excluded.run, state = excluded.state
    WHERE published.state <> excluded.state OR published.run <> excluded.run";
const JOURNAL_CUT: &str = "INSERT INTO journal_cut (uid, below) VALUES (?1, ?2)";
const NAME_DELETE: &str = "DELETE FROM instance_name WHERE namespace = ?1 AND workflow = ?2 AND id = ?3";
const MESSAGES_DELETE: &str = "DELETE FROM message_decision
    WHERE namespace = ?1 AND workflow = ?2 AND id = ?3 AND at < ?4";
/// The mark puts them into the index by time: they last as long as decisions that met no instance.
const MESSAGES_OUTLIVE: &str = "UPDATE message_decision SET answer = 'was:' || answer
    WHERE namespace = ?1 AND workflow = ?2 AND id = ?3 AND substr(answer, 1, 4) <> 'was:'";
const WAITS_DUE: &str = "UPDATE wait SET due_at = ?2 WHERE uid = ?1 AND due_at < ?2";
const CONTROL_DELETE: &str = "DELETE FROM control WHERE uid = ?1";
const CONTROL_INSERT: &str =
    "INSERT INTO control (uid, paused_at, cancel_position, cancel_until, cancel_rollback, compensating_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const ENDED_DELETE: &str = "DELETE FROM ended WHERE uid = ?1";
const ENDED_INSERT: &str =
    "INSERT INTO ended (uid, namespace, workflow, status, delete_at, number) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const ENDS_COUNT: &str = "UPDATE installation SET ends = ends + 1 RETURNING ends";
const PARKED_DELETE: &str = "DELETE FROM attention WHERE uid = ?1";
const PARKED_INSERT: &str =
    "INSERT INTO attention (uid, at, code, message, changed) VALUES (?1, ?2, ?3, ?4, ?5)";
const OPERATION_INSERT: &str = "INSERT INTO operation (uid, operation, at, answer) VALUES (?1, ?2, ?3, ?4)";
const OUTBOX_INSERT: &str = "INSERT INTO outbox (uid, run, at, routing_key, message_id, body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
pub(super) const OUTBOX_DELETE: &str = "DELETE FROM outbox WHERE uid = ?1 AND run = ?2";

/// Writes all rows of a batch. Gives the leases of remote steps that ended with their instances.
pub(super) fn write(connection: &Connection, writes: &Writes, now: Timestamp) -> Result<Vec<StepOver>> {
    deleted(connection, writes, now)?;
    for (uid, below) in &writes.cuts {
        connection.prepare_cached(JOURNAL_CUT)?.execute(params![key(uid), below.0])?;
    }
    starts(connection, writes, now)?;
    heads(connection, &writes.heads)?;
    pins(connection, &writes.pins)?;
    shown(connection, writes)?;
    journal(connection, &writes.journal)?;
    deletes(connection, writes)?;
    let over = clear(connection, &writes.cleared)?;
    leases(connection, writes)?;
    ready(connection, &writes.ready)?;
    waits(connection, &writes.waits)?;
    events::write(connection, writes)?;
    remotes(connection, &writes.remotes)?;
    parked(connection, writes)?;
    controls(connection, writes, now)?;
    letters::write(connection, writes, now)?;
    hooks::write(connection, writes, now)?;
    operations(connection, writes, now)?;
    outbox(connection, &writes.outbox)?;
    Ok(over)
}

const fn key(uid: &InstanceUid) -> &[u8; 16] {
    uid.0.as_bytes()
}

/// All rows of deleted instances but their journals, which are cut off: they may be large. Before anything is inserted, since
/// the name may be given again in the same batch.
fn deleted(connection: &Connection, writes: &Writes, now: Timestamp) -> Result<()> {
    for row in &writes.deleted {
        for statement in DELETED {
            connection.prepare_cached(statement)?.execute([key(&row.uid)])?;
        }
        let (namespace, workflow) = (row.name.namespace.as_str(), row.name.workflow.as_str());
        let name = params![namespace, workflow, row.name.id.as_str()];
        connection.prepare_cached(NAME_DELETE)?.execute(name)?;
        let before = match row.forget {
            Forget::Everything => i64::MAX,
            Forget::AllButRecentMessages => now.minus(crate::MESSAGES_KEPT).0,
        };
        let older = params![namespace, workflow, row.name.id.as_str(), before];
        connection.prepare_cached(MESSAGES_DELETE)?.execute(older)?;
        connection.prepare_cached(MESSAGES_OUTLIVE)?.execute(name)?;
    }
    Ok(())
}

/// Pauses, cancels, and what follows from their end; times of deletion.
fn controls(connection: &Connection, writes: &Writes, now: Timestamp) -> Result<()> {
    for uid in &writes.waits_due {
        connection.prepare_cached(WAITS_DUE)?.execute(params![key(uid), now.0])?;
    }
    for uid in &writes.control_deletes {
        connection.prepare_cached(CONTROL_DELETE)?.execute([key(uid)])?;
    }
    for (uid, control) in &writes.controls {
        connection.prepare_cached(CONTROL_INSERT)?.execute(params![
            key(uid),
            control.paused_at.map(|at| at.0),
            control.cancel.map(|cancel| cancel.position.0 as i64),
            control.cancel.and_then(|cancel| cancel.until).map(|until| until.0),
            control.cancel.is_some_and(|cancel| cancel.rollback),
            control.compensating_at.map(|at| at.0),
        ])?;
    }
    for uid in &writes.ended_deletes {
        connection.prepare_cached(ENDED_DELETE)?.execute([key(uid)])?;
    }
    if writes.ended.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(ENDED_INSERT)?;
    let mut count = connection.prepare_cached(ENDS_COUNT)?;
    for row in &writes.ended {
        let number: i64 = count.query_row([], |row| row.get(0))?;
        let values = params![
            key(&row.uid),
            row.namespace.as_str(),
            row.workflow.as_str(),
            row.status.code(),
            row.delete_at.0,
            number
        ];
        statement.execute(values)?;
    }
    Ok(())
}

/// What instances show of themselves: attributes, and the state that they published.
fn shown(connection: &Connection, writes: &Writes) -> Result<()> {
    for uid in &writes.attribute_resets {
        connection.prepare_cached(ATTRIBUTES_CLEAR)?.execute([key(uid)])?;
    }
    for row in &writes.attributes {
        let name = row.attribute.name.as_str();
        match &row.attribute.value {
            Some(value) => connection.prepare_cached(ATTRIBUTE_SET)?.execute(params![
                key(&row.uid),
                row.namespace.as_str(),
                name,
                value.as_json()
            ])?,
            None => connection.prepare_cached(ATTRIBUTE_DELETE)?.execute(params![key(&row.uid), name])?,
        };
    }
    for (uid, row) in &writes.states {
        let values = params![key(uid), row.at.0, row.run.0, row.state.as_str()];
        connection.prepare_cached(PUBLISH)?.execute(values)?;
    }
    Ok(())
}

fn millis(span: Millis) -> i64 {
    i64::try_from(span.as_u64()).unwrap_or(i64::MAX)
}

fn starts(connection: &Connection, writes: &Writes, now: Timestamp) -> Result<()> {
    if !writes.names.is_empty() {
        let mut statement = connection.prepare_cached(NAME_INSERT)?;
        for row in &writes.names {
            let name = &row.key;
            let values = params![
                name.namespace.as_str(),
                name.workflow.as_str(),
                name.id.as_str(),
                key(&row.uid),
                row.fingerprint.as_bytes(),
            ];
            statement.execute(values).map_err(|error| Fault::or_taken(error, "taking a name"))?;
        }
    }
    if !writes.messages.is_empty() {
        let mut statement = connection.prepare_cached(MESSAGE_INSERT)?;
        for (message, decided) in &writes.messages {
            let values = params![
                message.namespace.as_str(),
                message.workflow.as_str(),
                message.app_id,
                message.message_id,
                now.0,
                decided.id.as_str(),
                answer::encode(&decided.answer),
            ];
            statement.execute(values).map_err(|error| Fault::or_taken(error, "deciding a message"))?;
        }
    }
    if !writes.created.is_empty() {
        let mut statement = connection.prepare_cached(HEAD_INSERT)?;
        for head in &writes.created {
            create(&mut statement, head)?;
        }
    }
    Ok(())
}

fn create(statement: &mut rusqlite::Statement<'_>, head: &Head) -> Result<()> {
    statement.execute(params![
        key(&head.uid),
        head.namespace.as_str(),
        head.workflow.as_str(),
        head.id.as_str(),
        head.run.0,
        head.generation.0,
        head.status.code(),
        head.epoch.0 as i64,
        head.position.0 as i64,
        head.reports as i64,
        head.waits,
        head.steps as i64,
        head.journal_bytes as i64,
        head.deaths,
        head.created_at.0,
        head.ended_at.map(|at| at.0),
        head.events as i64,
        head.unread as i64,
        head.retention.complete.map(millis),
        head.retention.failed.map(millis),
        head.links,
    ])?;
    Ok(())
}

fn heads(connection: &Connection, heads: &[Head]) -> Result<()> {
    if heads.is_empty() {
        return Ok(());
    }
    let mut open = connection.prepare_cached(HEAD_UPDATE)?;
    for head in heads {
        let changed = !head.status.is_ended()
            && open.execute(params![
                key(&head.uid),
                head.run.0,
                head.generation.0,
                head.epoch.0 as i64,
                head.position.0 as i64,
                head.reports as i64,
                head.waits,
                head.steps as i64,
                head.journal_bytes as i64,
                head.deaths,
                head.events as i64,
                head.unread as i64,
                head.links,
                head.cached.map(|cached| *cached.session.0.as_bytes()),
                head.cached.map(|cached| cached.position.0 as i64),
            ])? == 1;
        if !changed {
            change_status(connection, head)?;
        }
    }
    Ok(())
}

/// A head that ends, or one that had ended.
fn change_status(connection: &Connection, head: &Head) -> Result<()> {
    let mut statement = connection.prepare_cached(HEAD_UPDATE_ALL)?;
    let changed = statement.execute(params![
        key(&head.uid),
        head.run.0,
        head.generation.0,
        head.epoch.0 as i64,
        head.position.0 as i64,
        head.reports as i64,
        head.waits,
        head.steps as i64,
        head.journal_bytes as i64,
        head.deaths,
        head.events as i64,
        head.unread as i64,
        head.links,
        head.cached.map(|cached| *cached.session.0.as_bytes()),
        head.cached.map(|cached| cached.position.0 as i64),
        head.status.code(),
        head.ended_at.map(|at| at.0),
    ])?;
    if changed == 1 {
        return Ok(());
    }
    let reason = format!("instance {} does not exist", head.uid);
    Err(Fault::Said(Error::new(ErrorKind::Refused, "changing a head", reason)))
}

fn journal(connection: &Connection, rows: &[JournalRow]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(JOURNAL_INSERT)?;
    for row in rows {
        let entry = &row.entry;
        let (rest, payload) = fact::split(&entry.fact);
        statement.execute(params![
            key(&row.uid),
            row.run.0,
            entry.position.0 as i64,
            entry.fact.code(),
            entry.fact.call().map(|call| call.hash().0),
            entry.at.0,
            &rest[..],
            payload,
            fact::reference(&entry.fact),
        ])?;
    }
    Ok(())
}

fn deletes(connection: &Connection, writes: &Writes) -> Result<()> {
    let leases = writes.lease_deletes.iter().map(|(uid, subject)| (uid, &subject.0));
    delete(connection, LEASE_DELETE, leases)?;
    let ready = writes.ready_deletes.iter().map(|(uid, subject)| (uid, &subject.0));
    delete(connection, READY_DELETE, ready)?;
    let waits = writes.wait_deletes.iter().map(|(uid, call)| (uid, &call.0));
    delete(connection, WAIT_DELETE, waits)?;
    events::deletes(connection, &writes.awaited_deletes)?;
    let remotes = writes.remote_deletes.iter().map(|(uid, call)| (uid, &call.0));
    delete(connection, REMOTE_DELETE, remotes)?;
    for uid in &writes.parked_deletes {
        connection.prepare_cached(PARKED_DELETE)?.execute([key(uid)])?;
    }
    for (uid, run) in &writes.sent {
        connection.prepare_cached(OUTBOX_DELETE)?.execute(params![key(uid), run.0])?;
    }
    Ok(())
}

/// Deletes all side rows of instances that have ended but those of the instances themselves.
fn clear(connection: &Connection, cleared: &[InstanceUid]) -> Result<Vec<StepOver>> {
    let mut over = Vec::new();
    for uid in cleared {
        for statement in CLEARED {
            connection.prepare_cached(statement)?.execute([key(uid)])?;
        }
        let mut leases = connection.prepare_cached(LEASES_CLEARED)?;
        let mut rows = leases.query([key(uid)])?;
        while let Some(row) = rows.next()? {
            let lease = Lease { session: column::session(row, 1)?, epoch: Epoch(column::count(row, 2)?) };
            over.push(StepOver { uid: *uid, call: CallHash(row.get(0)?), lease });
        }
    }
    Ok(over)
}

fn delete<'a>(
    connection: &Connection,
    statement: &str,
    keys: impl ExactSizeIterator<Item = (&'a InstanceUid, &'a [u8; 16])>,
) -> Result<()> {
    if keys.len() == 0 {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(statement)?;
    for (uid, second) in keys {
        statement.execute([key(uid), second])?;
    }
    Ok(())
}

fn leases(connection: &Connection, writes: &Writes) -> Result<()> {
    if writes.leases.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(LEASE_INSERT)?;
    for (uid, Subject(subject), lease) in &writes.leases {
        statement.execute(params![key(uid), subject, lease.session.0.as_bytes(), lease.epoch.0 as i64])?;
    }
    Ok(())
}

fn pins(connection: &Connection, rows: &[(InstanceUid, Option<Pin>)]) -> Result<()> {
    for (uid, pin) in rows {
        connection.prepare_cached(PIN)?.execute(params![key(uid), pin.as_ref().map(Pin::as_str)])?;
    }
    Ok(())
}

fn ready(connection: &Connection, rows: &[ReadyRow]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(READY_INSERT)?;
    for row in rows {
        statement.execute(params![
            key(&row.uid),
            row.subject.0,
            row.namespace.as_str(),
            if row.pool.is_none() { row.queue() } else { row.workflow.as_str().into() },
            row.pool.as_ref().map(AsRef::<str>::as_ref),
            row.ready_at.0,
            row.offered.then_some(row.ready_at.0),
        ])?;
    }
    Ok(())
}

fn waits(connection: &Connection, rows: &[(InstanceUid, WaitRow)]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(WAIT_INSERT)?;
    for (uid, wait) in rows {
        statement.execute(params![
            key(uid),
            wait.call.hash().0,
            wait.kind.code(),
            wait.since.0,
            wait.due_at.map(|at| at.0),
            wait.call.kind.word(),
            wait.call.name.as_str(),
            wait.call.count,
            match (&wait.awaited, &wait.question) {
                (None, None) => None,
                (Some(awaited), _) => Some(wire::encode(awaited).to_vec()),
                (None, Some(question)) => Some(wire::encode(&**question).to_vec()),
            },
        ])?;
    }
    Ok(())
}

fn remotes(connection: &Connection, rows: &[(InstanceUid, RemoteRow)]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(REMOTE_INSERT)?;
    for (uid, row) in rows {
        statement.execute(params![
            key(uid),
            row.call.hash().0,
            row.call.kind.word(),
            row.call.name.as_str(),
            row.call.count,
            row.called_after.0 as i64,
            row.attempt.0,
            row.epoch.0 as i64,
            row.first_at.map(|at| at.0),
            row.granted_at.map(|at| at.0),
            &wire::encode(&row.remote)[..],
            row.progress.as_ref().map(Payload::as_str),
        ])?;
    }
    Ok(())
}

fn parked(connection: &Connection, writes: &Writes) -> Result<()> {
    for (uid, at, parked) in &writes.parked {
        let mut statement = connection.prepare_cached(PARKED_INSERT)?;
        let changed = parked.changed.as_ref().map(wire::encode);
        statement.execute(params![key(uid), at.0, parked.code.word(), parked.message, changed.as_deref()])?;
    }
    Ok(())
}

fn operations(connection: &Connection, writes: &Writes, now: Timestamp) -> Result<()> {
    for (uid, operation, given) in &writes.operations {
        let mut statement = connection.prepare_cached(OPERATION_INSERT)?;
        statement.execute(params![key(uid), operation, now.0, answer::encode(given)])?;
    }
    for action in &writes.actions {
        actions::record(connection, action, now)?;
    }
    Ok(())
}

fn outbox(connection: &Connection, messages: &[Lifecycle]) -> Result<()> {
    if messages.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(OUTBOX_INSERT)?;
    for message in messages {
        statement.execute(params![
            key(&message.instance),
            message.head.run.0,
            message.at.0,
            message.routing_key(),
            message.message_id(),
            message.body(),
        ])?;
    }
    Ok(())
}
