//! Letters between instances, and the rows that tie them: loaded as the inputs of a batch name them, written, and found again.

use everstep_engine::{
    Writes,
    batch::Loaded,
    letter::{Address, Caller, Letter, NewLetter, ParentRow, Said},
    rows::Needs,
    start::NameKey,
};
use everstep_protocol::{
    CallHash, InstanceUid, Position, Run, Timestamp,
    journal::{Entry, Other},
    wire,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    fault::Fault,
    load::ids,
    rows::{self, Bytes16, Raw},
    statements as sql,
    trip::{Trip, params},
};
use crate::{ChildView, Posted, fact};

/// Adds the statements that load what the needs name.
pub(super) async fn plan(needs: &Needs, trip: &mut Trip<'_>) -> Result<(), Fault> {
    if !needs.letters.is_empty() {
        let numbers: Vec<i64> = needs.letters.iter().map(|number| *number as i64).collect();
        trip.rows(sql::LETTERS_LOCK, params![numbers]).await?;
    }
    if !needs.parents.is_empty() {
        trip.rows(sql::PARENTS, params![ids(&needs.parents)]).await?;
    }
    if !needs.lasts.is_empty() {
        trip.rows(sql::LASTS, params![ids(&needs.lasts)]).await?;
    }
    Ok(())
}

/// Reads the answers, in the order of the statements.
pub(super) fn read(
    needs: &Needs,
    next: &mut impl FnMut(bool) -> Vec<Row>,
    loaded: &mut Loaded,
) -> Result<(), Fault> {
    for row in next(!needs.letters.is_empty()) {
        loaded.rows.letters.insert(row.try_get::<_, i64>(0)? as u64);
    }
    for row in next(!needs.parents.is_empty()) {
        loaded.rows.parents.insert(rows::uid(&row, 0)?, parent(&row)?);
    }
    for row in next(!needs.lasts.is_empty()) {
        let position = Position(row.try_get::<_, i64>(1)? as u64);
        let fact = fact::join(row.try_get(3)?, row.try_get(4)?)?;
        let entry = Entry { position, at: rows::time(&row, 2)?, fact };
        loaded.rows.lasts.insert(rows::uid(&row, 0)?, entry);
    }
    Ok(())
}

/// A row of `parent`, in the columns of the statement that loads it.
pub(super) fn parent(row: &Row) -> Result<ParentRow, Fault> {
    Ok(ParentRow {
        caller: caller(row, 1)?,
        name: Other { workflow: rows::name(row, 4)?, id: rows::name(row, 5)? },
        detached: row.try_get(6)?,
        depth: row.try_get::<_, i32>(7)? as u32,
    })
}

/// A caller in three columns: instance, run, call.
fn caller(row: &Row, at: usize) -> Result<Caller, Fault> {
    Ok(Caller {
        uid: rows::uid(row, at)?,
        run: Run(row.try_get::<_, i32>(at + 1)? as u32),
        call: CallHash(rows::hash(row, at + 2)?),
    })
}

/// A row of `letters.sql`.
pub(super) fn posted(row: &Row) -> Result<Posted, Fault> {
    let said: Said = wire::decode("letter", row.try_get::<_, &[u8]>(4)?).map_err(Fault::corrupt)?;
    let name = match row.try_get::<_, Option<&str>>(8)? {
        None => None,
        Some(_) => Some(NameKey {
            namespace: rows::name(row, 6)?,
            workflow: rows::name(row, 7)?,
            id: rows::name(row, 8)?,
        }),
    };
    Ok(Posted {
        letter: Letter { number: row.try_get::<_, i64>(0)? as u64, caller: caller(row, 1)?, said },
        to: row.try_get::<_, Option<Uuid>>(5)?.map(InstanceUid),
        name,
        starting: row.try_get(9)?,
    })
}

/// A row of `children_shown.sql`.
pub(super) fn child(row: &Row) -> Result<ChildView, Fault> {
    Ok(ChildView {
        call: CallHash(rows::hash(row, 0)?),
        run: Run(row.try_get::<_, i32>(1)? as u32),
        name: Other { workflow: rows::name(row, 2)?, id: rows::name(row, 3)? },
        detached: row.try_get(4)?,
        status: row.try_get::<_, Option<i16>>(5)?.map(rows::status).transpose()?,
    })
}

/// Writes what the batch says, in the order that [`Writes::cascades`] names; rows of deleted instances go last.
pub(super) async fn write<'a>(writes: &'a Writes, now: Timestamp, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if !writes.letter_deletes.is_empty() {
        let numbers: Vec<i64> = writes.letter_deletes.iter().map(|number| *number as i64).collect();
        trip.execute(sql::LETTERS_DELETE, params![numbers]).await?;
    }
    if !writes.letters.is_empty() {
        trip.execute(sql::LETTERS_INSERT, letters(&writes.letters, now)).await?;
    }
    if !writes.cascades.is_empty() {
        let rows = &writes.cascades;
        let params = params![
            now.0,
            rows.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.run.0 as i32).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.call.map(|call| Bytes16(call.0))).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.said.code()).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| Raw(wire::encode(&row.said))).collect::<Vec<_>>(),
        ];
        trip.execute(sql::CASCADE, params).await?;
    }
    if !writes.concluded.is_empty() {
        let said = |outcome: &everstep_protocol::journal::Outcome| {
            Raw(wire::encode(&Said::Returned { outcome: outcome.clone(), over: true }))
        };
        let uids: Vec<Uuid> = writes.concluded.iter().map(|(uid, _)| uid.0).collect();
        let bodies: Vec<Raw> = writes.concluded.iter().map(|(_, outcome)| said(outcome)).collect();
        trip.execute(sql::CONCLUDE, params![now.0, uids.clone(), bodies]).await?;
        trip.execute(sql::WATCHERS_DELETE, params![uids]).await?;
    }
    ties(writes, trip).await?;
    let gone: Vec<Uuid> = writes.deleted.iter().filter(|row| row.linked).map(|row| row.uid.0).collect();
    if !gone.is_empty() {
        for statement in [sql::CHILDREN_DELETE, sql::PARENT_DELETE, sql::WATCHERS_DELETE] {
            trip.execute(statement, params![gone.clone()]).await?;
        }
    }
    Ok(())
}

/// Children, parents, watchers.
async fn ties<'a>(writes: &'a Writes, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if !writes.children.is_empty() {
        let rows = &writes.children;
        let params = params![
            rows.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.run.0 as i32).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| Bytes16(row.call.0)).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.name.namespace.as_str()).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.name.workflow.as_str()).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.name.id.as_str()).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.detached).collect::<Vec<_>>(),
        ];
        trip.execute(sql::CHILD_INSERT, params).await?;
    }
    if !writes.children_over.is_empty() {
        let rows = &writes.children_over;
        let params = params![
            rows.iter().map(|(uid, _, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, run, _)| run.0 as i32).collect::<Vec<_>>(),
            rows.iter().map(|(_, _, call)| Bytes16(call.0)).collect::<Vec<_>>(),
        ];
        trip.execute(sql::CHILD_OVER, params).await?;
    }
    if !writes.children_cuts.is_empty() {
        let rows = &writes.children_cuts;
        let params = params![
            rows.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, below)| below.0 as i32).collect::<Vec<_>>(),
        ];
        trip.execute(sql::CHILDREN_CUT, params).await?;
    }
    if !writes.parents.is_empty() {
        let rows = &writes.parents;
        let params = params![
            rows.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.caller.uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.caller.run.0 as i32).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| Bytes16(row.caller.call.0)).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.name.workflow.as_str()).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.name.id.as_str()).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.detached).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.depth as i32).collect::<Vec<_>>(),
        ];
        trip.execute(sql::PARENT_INSERT, params).await?;
    }
    let again: Vec<_> = writes.watchers.iter().filter(|(_, caller)| caller.run > Run(1)).collect();
    if !again.is_empty() {
        let params = params![
            again.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(),
            again.iter().map(|(_, caller)| caller.uid.0).collect::<Vec<_>>(),
            again.iter().map(|(_, caller)| caller.run.0 as i32).collect::<Vec<_>>(),
        ];
        trip.execute(sql::WATCHERS_CUT, params).await?;
    }
    if !writes.watchers.is_empty() {
        let rows = &writes.watchers;
        let params = params![
            rows.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, caller)| caller.uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, caller)| caller.run.0 as i32).collect::<Vec<_>>(),
            rows.iter().map(|(_, caller)| Bytes16(caller.call.0)).collect::<Vec<_>>(),
        ];
        trip.execute(sql::WATCHER_INSERT, params).await?;
    }
    Ok(())
}

fn letters(rows: &[NewLetter], now: Timestamp) -> super::trip::Params<'_> {
    fn name(row: &NewLetter) -> Option<&NameKey> {
        match &row.to {
            Address::Name(name) => Some(name),
            Address::Instance(_) | Address::Token => None,
        }
    }
    let uid = |row: &NewLetter| match &row.to {
        Address::Instance(uid) => Some(uid.0),
        // Its carrier looks up whom it is for.
        Address::Token => Some(row.caller.uid.0),
        Address::Name(_) => None,
    };
    params![
        now.0,
        rows.iter().map(|row| row.said.code()).collect::<Vec<_>>(),
        rows.iter().map(uid).collect::<Vec<_>>(),
        rows.iter().map(|row| name(row).map(|name| name.namespace.as_str())).collect::<Vec<_>>(),
        rows.iter().map(|row| name(row).map(|name| name.workflow.as_str())).collect::<Vec<_>>(),
        rows.iter().map(|row| name(row).map(|name| name.id.as_str())).collect::<Vec<_>>(),
        rows.iter().map(|row| row.caller.uid.0).collect::<Vec<_>>(),
        rows.iter().map(|row| row.caller.run.0 as i32).collect::<Vec<_>>(),
        rows.iter().map(|row| Bytes16(row.caller.call.0)).collect::<Vec<_>>(),
        rows.iter().map(|row| Raw(wire::encode(&row.said))).collect::<Vec<_>>(),
    ]
}
