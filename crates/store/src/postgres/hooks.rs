//! Hooks: who owns which token, loaded as the inputs of a batch name them, written, and shown.

use everstep_engine::{
    Writes,
    batch::Loaded,
    hook::{HookEnd, HookRow, TokenKey},
    rows::Needs,
};
use everstep_protocol::{HookId, InstanceUid, Payload, Position, Run, Timestamp, journal::Other, wire};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    fault::Fault,
    load::ids,
    rows::{self, Raw},
    statements as sql,
    trip::{Trip, params},
};
use crate::HookView;

/// Adds the statements that load what the needs name.
pub(super) async fn plan<'a>(needs: &'a Needs, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if !needs.tokens.is_empty() {
        let namespaces: Vec<&str> = needs.tokens.iter().map(|(namespace, _)| namespace.as_str()).collect();
        let tokens: Vec<&str> = needs.tokens.iter().map(|(_, token)| token.as_str()).collect();
        trip.rows(sql::HOOKS, params![namespaces, tokens]).await?;
    }
    if !needs.tokens_of.is_empty() {
        let instances: Vec<Uuid> = needs.tokens_of.iter().map(|(uid, _)| uid.0).collect();
        let tokens: Vec<&str> = needs.tokens_of.iter().map(|(_, token)| token.as_str()).collect();
        trip.rows(sql::HOOKS_OF, params![instances, tokens]).await?;
    }
    if !needs.start_hooks.is_empty() {
        trip.rows(sql::START_HOOKS, params![ids(&needs.start_hooks)]).await?;
    }
    Ok(())
}

/// Reads the answers, in the order of the statements.
pub(super) fn read(
    needs: &Needs,
    next: &mut impl FnMut(bool) -> Vec<Row>,
    loaded: &mut Loaded,
) -> Result<(), Fault> {
    let nth = |row: &Row| Ok::<_, Fault>(row.try_get::<_, i64>(0)? as usize - 1);
    for row in next(!needs.tokens.is_empty()) {
        put(&row, needs.tokens[nth(&row)?].clone(), loaded)?;
    }
    for row in next(!needs.tokens_of.is_empty()) {
        let (_, token) = &needs.tokens_of[nth(&row)?];
        put(&row, (rows::name(&row, 15)?, token.clone()), loaded)?;
    }
    for row in next(!needs.start_hooks.is_empty()) {
        loaded.rows.hooks.insert((rows::name(&row, 15)?, rows::name(&row, 16)?), hook(&row)?);
    }
    Ok(())
}

/// A row whose owner was deleted meanwhile stands for nobody.
fn put(row: &Row, key: TokenKey, loaded: &mut Loaded) -> Result<(), Fault> {
    match row.try_get::<_, Option<&str>>(2)? {
        Some(_) => drop(loaded.rows.hooks.insert(key, hook(row)?)),
        None => drop(loaded.rows.orphans.insert(key, rows::uid(row, 1)?)),
    }
    Ok(())
}

/// A hook in the columns after the first of the statements that load it.
fn hook(row: &Row) -> Result<HookRow, Fault> {
    let from = match row.try_get::<_, Option<&str>>(12)? {
        Some(_) => Some(Other { workflow: rows::name(row, 11)?, id: rows::name(row, 12)? }),
        None => None,
    };
    let webhook = row.try_get::<_, Option<&[u8]>>(10)?;
    Ok(HookRow {
        owner: rows::uid(row, 1)?,
        name: Other { workflow: rows::name(row, 2)?, id: rows::name(row, 3)? },
        id: HookId {
            run: Run(row.try_get::<_, i32>(4)? as u32),
            position: Position(row.try_get::<_, i64>(5)? as u64),
        },
        since: rows::time(row, 6)?,
        retain_until: rows::time_if_any(row, 7)?,
        ended: row.try_get(8)?,
        metadata: row.try_get::<_, Option<String>>(9)?.map(Payload::from_trusted),
        schema: row.try_get::<_, Option<String>>(13)?.map(Payload::from_trusted),
        webhook: webhook.map(|packed| wire::decode("webhook", packed).map_err(Fault::corrupt)).transpose()?,
        from,
        unheard: row.try_get(14)?,
    })
}

/// A row of `hooks_shown.sql`.
pub(super) fn shown(row: &Row) -> Result<HookView, Fault> {
    Ok(HookView { token: rows::name(row, 16)?, hook: hook(row)?, status: rows::status(row.try_get(17)?)? })
}

/// Writes what the batch says, in the order that [`Writes::hooks_ended`] names; rows of deleted instances go last.
pub(super) async fn write<'a>(writes: &'a Writes, now: Timestamp, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if !writes.hooks_ended.is_empty() {
        trip.execute(sql::HOOKS_FREE, params![ids(&writes.hooks_ended), now.0]).await?;
        trip.execute(sql::HOOKS_KEEP, params![ids(&writes.hooks_ended)]).await?;
    }
    if !writes.hooks_dropped.is_empty() {
        trip.execute(sql::HOOKS_DROP, params![ids(&writes.hooks_dropped)]).await?;
    }
    for (end, over) in [(HookEnd::Own, None), (HookEnd::Free, Some(now.0))] {
        let rows: Vec<_> = writes.hook_deletes.iter().filter(|(_, _, other)| *other == end).collect();
        if rows.is_empty() {
            continue;
        }
        let namespaces: Vec<&str> = rows.iter().map(|(key, _, _)| key.0.as_str()).collect();
        let tokens: Vec<&str> = rows.iter().map(|(key, _, _)| key.1.as_str()).collect();
        let owners: Vec<Uuid> = rows.iter().map(|(_, owner, _)| owner.0).collect();
        trip.execute(sql::HOOK_DELETE, params![namespaces, tokens, owners, over]).await?;
    }
    if !writes.hooks.is_empty() {
        trip.execute(sql::HOOK_INSERT, inserted(&writes.hooks)).await?;
    }
    if !writes.hook_counts.is_empty() {
        let rows = &writes.hook_counts;
        let params = params![
            rows.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, count)| count.hooks as i32).collect::<Vec<_>>(),
            rows.iter().map(|(_, count)| count.until.map(|until| until.0)).collect::<Vec<_>>(),
        ];
        trip.execute(sql::HOOK_COUNTS, params).await?;
    }
    let gone: Vec<InstanceUid> = writes.deleted.iter().filter(|row| row.hooked).map(|row| row.uid).collect();
    if !gone.is_empty() {
        trip.execute(sql::HOOKS_DELETE, params![ids(&gone)]).await?;
    }
    Ok(())
}

/// They come in the order of their keys, so that two batches that race for the same tokens cannot block each other in a circle.
fn inserted(rows: &[(TokenKey, HookRow)]) -> super::trip::Params<'_> {
    params![
        rows.iter().map(|(key, _)| key.0.as_str()).collect::<Vec<_>>(),
        rows.iter().map(|(key, _)| key.1.as_str()).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.owner.0).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.id.run.0 as i32).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.id.position.0 as i64).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.since.0).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.retain_until.map(|until| until.0)).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.ended).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.metadata.as_ref().map(Payload::as_str)).collect::<Vec<_>>(),
        rows.iter()
            .map(|(_, row)| row.webhook.as_ref().map(|webhook| Raw(wire::encode(webhook))))
            .collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.from.as_ref().map(|from| from.workflow.as_str())).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.from.as_ref().map(|from| from.id.as_str())).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.schema.as_ref().map(Payload::as_str)).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.unheard).collect::<Vec<_>>(),
    ]
}
