//! Hooks: who owns which token, loaded as the inputs of a batch name them, written, and shown.

use everstep_engine::{
    Rows, Status, Writes,
    hook::{HookEnd, HookRow, TokenKey},
    rows::Needs,
};
use everstep_protocol::{HookId, Namespace, Payload, Position, Run, Timestamp, Token, journal::Other, wire};
use rusqlite::{Connection, Row, params};

use super::{
    column,
    fault::{Fault, Result},
};
use crate::HookView;

/// The columns of a hook, with its owner's name and status. An owner without a name was deleted.
const COLUMNS: &str =
    "hook.uid, instance.workflow, instance.id, hook.run, hook.position, since, retain_until, ended,
    metadata, webhook, from_workflow, from_id, hook.namespace, token, instance.status, schema, unheard
    FROM hook LEFT JOIN instance ON instance.uid = hook.uid";
const FREE: &str = "DELETE FROM hook WHERE uid = ?1 AND (retain_until IS NULL OR retain_until <= ?2)";
const KEEP: &str = "UPDATE hook SET ended = 1 WHERE uid = ?1 AND retain_until IS NOT NULL";
const DROP: &str = "DELETE FROM hook WHERE uid = ?1 AND run > 0";
const DELETE: &str = "DELETE FROM hook WHERE namespace = ?1 AND token = ?2 AND uid = ?3";
const REPLACE: &str = "DELETE FROM hook WHERE namespace = ?1 AND token = ?2 AND uid = ?3 AND ended = 1
    AND retain_until <= ?4";
const INSERT: &str =
    "INSERT INTO hook (namespace, token, uid, run, position, since, retain_until, ended, metadata, webhook,
    from_workflow, from_id, schema, unheard) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13,
    ?14)";
const COUNT: &str = "UPDATE instance SET hooks = ?2, hooks_until = ?3 WHERE uid = ?1";
const DELETED: &str = "DELETE FROM hook WHERE uid = ?1";

/// Everything that `needs` names of hooks.
pub(super) fn load(connection: &Connection, needs: &Needs, loaded: &mut Rows) -> Result<()> {
    for (namespace, token) in &needs.tokens {
        one(
            connection,
            "hook.namespace = ?1 AND token = ?2",
            params![namespace.as_str(), token.as_str()],
            loaded,
        )?;
    }
    for (uid, token) in &needs.tokens_of {
        let condition = "hook.namespace = (SELECT namespace FROM instance WHERE uid = ?1) AND token = ?2";
        one(connection, condition, params![uid.0.as_bytes(), token.as_str()], loaded)?;
    }
    for uid in &needs.start_hooks {
        one(connection, "hook.uid = ?1 AND hook.run = 0", params![uid.0.as_bytes()], loaded)?;
    }
    Ok(())
}

fn one(
    connection: &Connection,
    condition: &str,
    values: &[&dyn rusqlite::ToSql],
    loaded: &mut Rows,
) -> Result<()> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} WHERE {condition}"))?;
    let mut rows = statement.query(values)?;
    if let Some(row) = rows.next()? {
        if row.get::<_, Option<String>>(1)?.is_some() {
            loaded.hooks.insert(key(row)?, hook(row)?);
        } else {
            loaded.orphans.insert(key(row)?, column::uid(row, 0)?);
        }
    }
    Ok(())
}

fn key(row: &Row<'_>) -> Result<TokenKey> {
    Ok((column::name(row, 12)?, column::name(row, 13)?))
}

fn hook(row: &Row<'_>) -> Result<HookRow> {
    let is_from = row.get::<_, Option<String>>(11)?.is_some();
    let from =
        || -> Result<Other> { Ok(Other { workflow: column::name(row, 10)?, id: column::name(row, 11)? }) };
    let is_webhook = row.get::<_, Option<Vec<u8>>>(9)?.is_some();
    Ok(HookRow {
        owner: column::uid(row, 0)?,
        name: Other { workflow: column::name(row, 1)?, id: column::name(row, 2)? },
        id: HookId { run: Run(row.get(3)?), position: Position(column::count(row, 4)?) },
        since: column::time(row, 5)?,
        retain_until: column::time_if_any(row, 6)?,
        ended: row.get(7)?,
        metadata: row.get::<_, Option<String>>(8)?.map(Payload::from_trusted),
        schema: row.get::<_, Option<String>>(15)?.map(Payload::from_trusted),
        webhook: is_webhook.then(|| column::packed(row, 9, "webhook")).transpose()?,
        from: is_from.then(from).transpose()?,
        unheard: row.get(16)?,
    })
}

/// Tokens of a namespace after this one that somebody owns, or keeps by a retention; or only one.
pub(super) fn shown(
    connection: &Connection,
    namespace: &Namespace,
    (after, only): (&str, Option<&Token>),
    limit: u32,
    now: Timestamp,
) -> Result<Vec<HookView>> {
    // Two bounds of the index, so that looking up one token reads one row.
    let sql = format!(
        "SELECT {COLUMNS} WHERE hook.namespace = ?1 AND token >= ?2 AND token <= ?4 AND token <> ?6
         AND instance.uid IS NOT NULL AND NOT (ended = 1 AND retain_until <= ?5) ORDER BY token LIMIT ?3"
    );
    let (from, to, but) = match only {
        Some(token) => (token.as_str(), token.to_string(), ""),
        None => (after, crate::view::last_token(), after),
    };
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![namespace.as_str(), from, limit, to, now.0, but])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (_, token) = key(row)?;
        found.push(HookView { token, hook: hook(row)?, status: column::code(row, 14, Status::from_code)? });
    }
    Ok(found)
}

/// Writes what the batch says, in the order that [`Writes::hooks_ended`] names; rows of deleted instances go last.
pub(super) fn write(connection: &Connection, writes: &Writes, now: Timestamp) -> Result<()> {
    for uid in &writes.hooks_ended {
        connection.prepare_cached(FREE)?.execute(params![uid.0.as_bytes(), now.0])?;
        connection.prepare_cached(KEEP)?.execute([uid.0.as_bytes()])?;
    }
    for uid in &writes.hooks_dropped {
        connection.prepare_cached(DROP)?.execute([uid.0.as_bytes()])?;
    }
    for ((namespace, token), owner, end) in &writes.hook_deletes {
        let (namespace, token, owner) = (namespace.as_str(), token.as_str(), owner.0.as_bytes());
        match end {
            HookEnd::Own => connection.prepare_cached(DELETE)?.execute(params![namespace, token, owner])?,
            HookEnd::Free => {
                connection.prepare_cached(REPLACE)?.execute(params![namespace, token, owner, now.0])?
            }
        };
    }
    for (key, row) in &writes.hooks {
        insert(connection, key, row)?;
    }
    for (uid, count) in &writes.hook_counts {
        let values = params![uid.0.as_bytes(), count.hooks, count.until.map(|until| until.0)];
        connection.prepare_cached(COUNT)?.execute(values)?;
    }
    for row in writes.deleted.iter().filter(|row| row.hooked) {
        connection.prepare_cached(DELETED)?.execute([row.uid.0.as_bytes()])?;
    }
    Ok(())
}

fn insert(connection: &Connection, (namespace, token): &TokenKey, row: &HookRow) -> Result<()> {
    let webhook = row.webhook.as_ref().map(|webhook| wire::encode(webhook).to_vec());
    let values = params![
        namespace.as_str(),
        token.as_str(),
        row.owner.0.as_bytes(),
        row.id.run.0,
        row.id.position.0 as i64,
        row.since.0,
        row.retain_until.map(|until| until.0),
        row.ended,
        row.metadata.as_ref().map(Payload::as_str),
        webhook,
        row.from.as_ref().map(|from| from.workflow.as_str()),
        row.from.as_ref().map(|from| from.id.as_str()),
        row.schema.as_ref().map(Payload::as_str),
        row.unheard,
    ];
    let inserted = connection.prepare_cached(INSERT)?.execute(values);
    inserted.map_err(|error| Fault::or_taken(error, "claiming a token"))?;
    Ok(())
}
