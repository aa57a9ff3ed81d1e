//! Writes what a batch has decided: one statement a table and way of writing, all sent together with the COMMIT. Deletes come
//! before inserts. What must not fail silently makes its statement fail, so that the COMMIT behind it rolls back.

use everstep_engine::{
    Writes,
    batch::{Deleted, ReadyRow},
    effect::Forget,
    lifecycle::Lifecycle,
    rows::{Lease, Subject},
};
use everstep_protocol::{AttributeValue, CallHash, Epoch, InstanceUid, Pin, SessionId, Timestamp, wire};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    actions, events,
    fault::Fault,
    hooks, letters,
    load::{Places, ids},
    rows::{Bytes16, Raw, Tid, call_kind_code, changed, clean, hash, remote_body, uid},
    statements as sql,
    trip::{Trip, params},
};
use crate::{ErrorKind, StepOver, answer, fact};

/// Adds the statements for the writes to a trip. `now` is the batch's time. Says which of the trip's statements answers with
/// the leases of remote steps that end with their instances, if there is one.
pub(super) async fn plan<'a>(
    writes: &'a Writes,
    places: &Places,
    now: Timestamp,
    trip: &mut Trip<'a>,
) -> Result<Option<usize>, Fault> {
    heads(writes, places, trip).await?;
    deleted(writes, now, trip).await?;
    cuts(writes, trip).await?;
    created(writes, now, trip).await?;
    pins(writes, trip).await?;
    shown(writes, trip).await?;
    journal(writes, trip).await?;
    let cleared = deletes(writes, trip).await?;
    leases_and_ready(writes, trip).await?;
    waits_and_remotes(writes, trip).await?;
    events::write(writes, trip).await?;
    controls(writes, now, trip).await?;
    letters::write(writes, now, trip).await?;
    hooks::write(writes, now, trip).await?;
    rest(writes, now, trip).await?;
    Ok(cleared)
}

async fn heads(writes: &Writes, places: &Places, trip: &mut Trip<'_>) -> Result<(), Fault> {
    if writes.heads.is_empty() {
        return Ok(());
    }
    let heads = &writes.heads;
    let place = |uid: InstanceUid| {
        places.get(&uid).copied().ok_or_else(|| {
            Fault::Own(ErrorKind::Refused, format!("the head of {uid} was not locked but is to be written"))
        })
    };
    let tids: Vec<Tid> = heads.iter().map(|head| place(head.uid)).collect::<Result<_, _>>()?;
    let params = params![
        tids,
        heads.iter().map(|head| head.epoch.0 as i64).collect::<Vec<_>>(),
        heads.iter().map(|head| head.position.0 as i64).collect::<Vec<_>>(),
        heads.iter().map(|head| head.reports as i64).collect::<Vec<_>>(),
        heads.iter().map(|head| head.steps as i64).collect::<Vec<_>>(),
        heads.iter().map(|head| head.journal_bytes as i64).collect::<Vec<_>>(),
        heads.iter().map(|head| head.run.0 as i32).collect::<Vec<_>>(),
        heads.iter().map(|head| head.generation.0 as i32).collect::<Vec<_>>(),
        heads.iter().map(|head| head.waits as i32).collect::<Vec<_>>(),
        heads.iter().map(|head| head.deaths as i32).collect::<Vec<_>>(),
        heads.iter().map(|head| head.status.code()).collect::<Vec<_>>(),
        heads.iter().map(|head| head.ended_at.map(|at| at.0)).collect::<Vec<_>>(),
        heads.iter().map(|head| head.events as i64).collect::<Vec<_>>(),
        heads.iter().map(|head| head.unread as i64).collect::<Vec<_>>(),
        heads.iter().map(|head| head.links as i32).collect::<Vec<_>>(),
        heads.iter().map(|head| head.cached.map(|cached| cached.session.0)).collect::<Vec<_>>(),
        heads.iter().map(|head| head.cached.map(|cached| cached.position.0 as i64)).collect::<Vec<_>>(),
    ];
    trip.rows(sql::HEADS_UPDATE, params).await
}

/// To which builds instances are pinned: after their heads, which were found by where they lay.
async fn pins<'a>(writes: &'a Writes, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if writes.pins.is_empty() {
        return Ok(());
    }
    let pins = writes.pins.iter().map(|(_, pin)| pin.as_ref().map(Pin::as_str)).collect::<Vec<_>>();
    trip.execute(sql::PINS, params![writes.pins.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(), pins]).await
}

/// All rows of deleted instances but their journals, which are cut off: they may be large. Before anything is inserted, since
/// the name may be given again in the same batch.
async fn deleted<'a>(writes: &'a Writes, now: Timestamp, trip: &mut Trip<'a>) -> Result<(), Fault> {
    let rows = &writes.deleted;
    if rows.is_empty() {
        return Ok(());
    }
    let uids: Vec<Uuid> = rows.iter().map(|row| row.uid.0).collect();
    for statement in [
        sql::HEADS_DELETE,
        // Those of remote steps are cleared, and named.
        sql::LEASE_END,
        sql::READY_ALL_DELETE,
        sql::WAIT_CLEAR,
        sql::AWAITED_CLEAR,
        sql::EVENTS_DELETE,
        sql::REMOTE_CLEAR,
        sql::ATTENTION_DELETE,
        sql::OPERATIONS_DELETE,
        sql::CONTROL_DELETE,
        sql::ENDED_DELETE,
        sql::ATTRIBUTES_CLEAR,
        sql::PUBLISHED_DELETE,
    ] {
        trip.execute(statement, params![uids.clone()]).await?;
    }
    let names = |rows: &[&'a Deleted]| -> (Vec<&'a str>, Vec<&'a str>, Vec<&'a str>) {
        let namespaces = rows.iter().map(|row| row.name.namespace.as_str()).collect();
        let workflows = rows.iter().map(|row| row.name.workflow.as_str()).collect();
        (namespaces, workflows, rows.iter().map(|row| row.name.id.as_str()).collect())
    };
    let all: Vec<&Deleted> = rows.iter().collect();
    let (namespaces, workflows, ids) = names(&all);
    trip.execute(sql::NAMES_DELETE, params![namespaces, workflows, ids]).await?;
    let (namespaces, workflows, ids) = names(&all);
    let before = |row: &Deleted| match row.forget {
        Forget::Everything => i64::MAX,
        Forget::AllButRecentMessages => now.minus(crate::MESSAGES_KEPT).0,
    };
    let before: Vec<i64> = rows.iter().map(before).collect();
    trip.execute(sql::MESSAGES_DELETE, params![namespaces, workflows, ids, before]).await?;
    let outlived: Vec<&Deleted> =
        rows.iter().filter(|row| row.forget == Forget::AllButRecentMessages).collect();
    if !outlived.is_empty() {
        let (namespaces, workflows, ids) = names(&outlived);
        trip.execute(sql::MESSAGES_OUTLIVE, params![namespaces, workflows, ids]).await?;
    }
    Ok(())
}

/// The journals of deleted instances, and of generations that are over, are removed later.
async fn cuts<'a>(writes: &'a Writes, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if writes.cuts.is_empty() && writes.deleted.is_empty() {
        return Ok(());
    }
    let generations = writes.cuts.iter().map(|(uid, below)| (uid.0, below.0 as i32));
    let deleted = writes.deleted.iter().map(|row| (row.uid.0, i32::MAX));
    let (instances, below): (Vec<Uuid>, Vec<i32>) = generations.chain(deleted).unzip();
    trip.execute(sql::JOURNAL_CUT, params![instances, below]).await
}

/// Pauses, cancels, and what follows from their end; times of deletion.
async fn controls<'a>(writes: &'a Writes, now: Timestamp, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if !writes.waits_due.is_empty() {
        trip.execute(sql::WAITS_DUE, params![ids(&writes.waits_due), now.0]).await?;
    }
    if !writes.control_deletes.is_empty() {
        trip.execute(sql::CONTROL_DELETE, params![ids(&writes.control_deletes)]).await?;
    }
    if !writes.controls.is_empty() {
        let rows = &writes.controls;
        let params = params![
            rows.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, control)| control.paused_at.map(|at| at.0)).collect::<Vec<_>>(),
            rows.iter()
                .map(|(_, control)| control.cancel.map(|cancel| cancel.position.0 as i64))
                .collect::<Vec<_>>(),
            rows.iter().map(|(_, control)| Some(control.cancel?.until?.0)).collect::<Vec<Option<i64>>>(),
            rows.iter()
                .map(|(_, control)| control.cancel.is_some_and(|cancel| cancel.rollback))
                .collect::<Vec<_>>(),
            rows.iter().map(|(_, control)| control.compensating_at.map(|at| at.0)).collect::<Vec<_>>(),
        ];
        trip.execute(sql::CONTROL_INSERT, params).await?;
    }
    if !writes.ended_deletes.is_empty() {
        trip.execute(sql::ENDED_DELETE, params![ids(&writes.ended_deletes)]).await?;
    }
    if !writes.ended.is_empty() {
        let rows = &writes.ended;
        let params = params![
            rows.iter().map(|row| row.uid.0).collect::<Vec<_>>(),
            rows.iter().map(|row| row.delete_at.0).collect::<Vec<_>>(),
            rows.iter().map(|row| row.status.code()).collect::<Vec<_>>(),
            rows.iter().map(|row| row.namespace.as_str()).collect::<Vec<_>>(),
            rows.iter().map(|row| row.workflow.as_str()).collect::<Vec<_>>(),
        ];
        trip.execute(sql::ENDED_INSERT, params).await?;
    }
    Ok(())
}

fn millis(span: everstep_protocol::Millis) -> i64 {
    i64::try_from(span.as_u64()).unwrap_or(i64::MAX)
}

async fn created<'a>(writes: &'a Writes, now: Timestamp, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if !writes.created.is_empty() {
        let heads = &writes.created;
        let params = params![
            heads.iter().map(|head| head.uid.0).collect::<Vec<_>>(),
            heads.iter().map(|head| head.created_at.0).collect::<Vec<_>>(),
            heads.iter().map(|head| head.namespace.as_str()).collect::<Vec<_>>(),
            heads.iter().map(|head| head.workflow.as_str()).collect::<Vec<_>>(),
            heads.iter().map(|head| head.id.as_str()).collect::<Vec<_>>(),
            heads.iter().map(|head| head.epoch.0 as i64).collect::<Vec<_>>(),
            heads.iter().map(|head| head.position.0 as i64).collect::<Vec<_>>(),
            heads.iter().map(|head| head.reports as i64).collect::<Vec<_>>(),
            heads.iter().map(|head| head.steps as i64).collect::<Vec<_>>(),
            heads.iter().map(|head| head.journal_bytes as i64).collect::<Vec<_>>(),
            heads.iter().map(|head| head.run.0 as i32).collect::<Vec<_>>(),
            heads.iter().map(|head| head.generation.0 as i32).collect::<Vec<_>>(),
            heads.iter().map(|head| head.waits as i32).collect::<Vec<_>>(),
            heads.iter().map(|head| head.deaths as i32).collect::<Vec<_>>(),
            heads.iter().map(|head| head.status.code()).collect::<Vec<_>>(),
            heads.iter().map(|head| head.ended_at.map(|at| at.0)).collect::<Vec<_>>(),
            heads.iter().map(|head| head.events as i64).collect::<Vec<_>>(),
            heads.iter().map(|head| head.unread as i64).collect::<Vec<_>>(),
            heads.iter().map(|head| head.retention.complete.map(millis)).collect::<Vec<_>>(),
            heads.iter().map(|head| head.retention.failed.map(millis)).collect::<Vec<_>>(),
            heads.iter().map(|head| head.links as i32).collect::<Vec<_>>(),
        ];
        trip.execute(sql::HEADS_INSERT, params).await?;
    }
    // In one order, so that two batches that race for the same names cannot block each other in a circle.
    if !writes.names.is_empty() {
        let mut names: Vec<_> = writes.names.iter().collect();
        names.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let params = params![
            names.iter().map(|row| row.key.namespace.as_str()).collect::<Vec<_>>(),
            names.iter().map(|row| row.key.workflow.as_str()).collect::<Vec<_>>(),
            names.iter().map(|row| row.key.id.as_str()).collect::<Vec<_>>(),
            names.iter().map(|row| row.uid.0).collect::<Vec<_>>(),
            names.iter().map(|row| &row.fingerprint.as_bytes()[..]).collect::<Vec<_>>(),
        ];
        trip.execute(sql::NAMES_INSERT, params).await?;
    }
    if !writes.messages.is_empty() {
        let mut messages: Vec<_> = writes.messages.iter().collect();
        messages.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let params = params![
            now.0,
            messages.iter().map(|(key, _)| key.namespace.as_str()).collect::<Vec<_>>(),
            messages.iter().map(|(key, _)| key.workflow.as_str()).collect::<Vec<_>>(),
            messages.iter().map(|(key, _)| clean(&key.app_id)).collect::<Vec<_>>(),
            messages.iter().map(|(key, _)| clean(&key.message_id)).collect::<Vec<_>>(),
            messages.iter().map(|(_, decided)| decided.id.as_str()).collect::<Vec<_>>(),
            messages.iter().map(|(_, decided)| answer::encode(&decided.answer)).collect::<Vec<_>>(),
        ];
        trip.execute(sql::MESSAGES_INSERT, params).await?;
    }
    Ok(())
}

/// What instances show of themselves: attributes, and the state that they published.
async fn shown<'a>(writes: &'a Writes, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if !writes.attribute_resets.is_empty() {
        trip.execute(sql::ATTRIBUTES_CLEAR, params![ids(&writes.attribute_resets)]).await?;
    }
    let (set, removed): (Vec<_>, Vec<_>) =
        writes.attributes.iter().partition(|row| row.attribute.value.is_some());
    if !removed.is_empty() {
        let params = params![
            removed.iter().map(|row| row.uid.0).collect::<Vec<_>>(),
            removed.iter().map(|row| row.attribute.name.as_str()).collect::<Vec<_>>(),
        ];
        trip.execute(sql::ATTRIBUTE_DELETE, params).await?;
    }
    if !set.is_empty() {
        let params = params![
            set.iter().map(|row| row.uid.0).collect::<Vec<_>>(),
            set.iter().map(|row| row.namespace.as_str()).collect::<Vec<_>>(),
            set.iter().map(|row| row.attribute.name.as_str()).collect::<Vec<_>>(),
            set.iter()
                .map(|row| row.attribute.value.as_ref().map_or("null", AttributeValue::as_json))
                .collect::<Vec<_>>(),
        ];
        trip.execute(sql::ATTRIBUTE_SET, params).await?;
    }
    if !writes.states.is_empty() {
        let rows = &writes.states;
        let params = params![
            rows.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.at.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.run.0 as i32).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.state.as_str()).collect::<Vec<_>>(),
        ];
        trip.execute(sql::PUBLISH, params).await?;
    }
    Ok(())
}

async fn journal<'a>(writes: &'a Writes, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if writes.journal.is_empty() {
        return Ok(());
    }
    let rows = &writes.journal;
    let (entries, payloads): (Vec<_>, Vec<Option<&'a str>>) = rows
        .iter()
        .map(|row| fact::split(&row.entry.fact))
        .map(|(entry, payload)| (Raw(entry), payload))
        .unzip();
    let params = params![
        rows.iter().map(|row| row.uid.0).collect::<Vec<_>>(),
        rows.iter().map(|row| row.run.0 as i32).collect::<Vec<_>>(),
        rows.iter().map(|row| row.entry.position.0 as i64).collect::<Vec<_>>(),
        rows.iter().map(|row| row.entry.at.0).collect::<Vec<_>>(),
        rows.iter().map(|row| row.entry.fact.code()).collect::<Vec<_>>(),
        rows.iter().map(|row| row.entry.fact.call().map(|call| Bytes16(call.hash().0))).collect::<Vec<_>>(),
        entries,
        payloads,
        rows.iter().map(|row| fact::reference(&row.entry.fact)).collect::<Vec<_>>(),
    ];
    trip.execute(sql::JOURNAL_INSERT, params).await
}

async fn deletes<'a>(writes: &'a Writes, trip: &mut Trip<'a>) -> Result<Option<usize>, Fault> {
    let (instances, steps) = by_subject(&writes.lease_deletes);
    if !instances.is_empty() {
        trip.execute(sql::LEASE_END, params![instances]).await?;
    }
    if !steps.0.is_empty() {
        trip.execute(sql::LEASE_DELETE, params![steps.0, steps.1]).await?;
    }
    let (instances, steps) = by_subject(&writes.ready_deletes);
    if !instances.is_empty() {
        trip.execute(sql::READY_END, params![instances]).await?;
    }
    if !steps.0.is_empty() {
        trip.rows(sql::READY_LOCK, params![steps.0.clone(), steps.1.clone()]).await?;
        trip.execute(sql::READY_DELETE, params![steps.0, steps.1]).await?;
    }
    if !writes.wait_deletes.is_empty() {
        let (instances, calls) = by_call(&writes.wait_deletes);
        trip.execute(sql::WAIT_DELETE, params![instances, calls]).await?;
    }
    events::deletes(writes, trip).await?;
    if !writes.remote_deletes.is_empty() {
        let (instances, calls) = by_call(&writes.remote_deletes);
        trip.execute(sql::REMOTE_DELETE, params![instances, calls]).await?;
    }
    let mut cleared = None;
    if !writes.cleared.is_empty() {
        for statement in [sql::WAIT_CLEAR, sql::AWAITED_CLEAR, sql::REMOTE_CLEAR, sql::READY_CLEAR] {
            trip.execute(statement, params![ids(&writes.cleared)]).await?;
        }
        cleared = Some(trip.len());
        trip.rows(sql::LEASE_CLEAR, params![ids(&writes.cleared)]).await?;
    }
    if !writes.parked_deletes.is_empty() {
        trip.execute(sql::ATTENTION_DELETE, params![ids(&writes.parked_deletes)]).await?;
    }
    if !writes.sent.is_empty() {
        let (instances, runs): (Vec<Uuid>, Vec<i32>) =
            writes.sent.iter().map(|(uid, run)| (uid.0, run.0 as i32)).unzip();
        trip.execute(sql::OUTBOX_DELETE, params![instances, runs]).await?;
    }
    Ok(cleared)
}

/// The leases of remote steps that ended with their instances.
pub(super) fn steps_over(rows: &[Row]) -> Result<Vec<StepOver>, Fault> {
    let step_over = |row: &Row| {
        let lease =
            Lease { session: SessionId(row.try_get(2)?), epoch: Epoch(row.try_get::<_, i64>(3)? as u64) };
        Ok(StepOver { uid: uid(row, 0)?, call: CallHash(hash(row, 1)?), lease })
    };
    rows.iter().map(step_over).collect()
}

async fn leases_and_ready<'a>(writes: &'a Writes, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if !writes.leases.is_empty() {
        let rows = &writes.leases;
        let params = params![
            rows.iter().map(|(uid, _, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, subject, _)| &subject.0[..]).collect::<Vec<_>>(),
            rows.iter().map(|(_, _, lease)| lease.session.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, _, lease)| lease.epoch.0 as i64).collect::<Vec<_>>(),
        ];
        trip.execute(sql::LEASE_INSERT, params).await?;
    }
    if !writes.ready.is_empty() {
        let rows = &writes.ready;
        let params = params![
            rows.iter().map(|row| row.uid.0).collect::<Vec<_>>(),
            rows.iter().map(|row| &row.subject.0[..]).collect::<Vec<_>>(),
            rows.iter().map(|row| if row.pool.is_some() { STEP } else { RUN }).collect::<Vec<_>>(),
            rows.iter().map(|row| row.namespace.as_str()).collect::<Vec<_>>(),
            rows.iter().map(ReadyRow::queue).collect::<Vec<_>>(),
            rows.iter().map(|row| row.ready_at.0).collect::<Vec<_>>(),
            rows.iter().map(|row| row.offered.then_some(row.ready_at.0)).collect::<Vec<_>>(),
        ];
        trip.execute(sql::READY_INSERT, params).await?;
    }
    Ok(())
}

async fn waits_and_remotes<'a>(writes: &'a Writes, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if !writes.waits.is_empty() {
        let rows = &writes.waits;
        let params = params![
            rows.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, wait)| Bytes16(wait.call.hash().0)).collect::<Vec<_>>(),
            rows.iter().map(|(_, wait)| wait.kind.code()).collect::<Vec<_>>(),
            rows.iter().map(|(_, wait)| wait.since.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, wait)| wait.due_at.map(|at| at.0)).collect::<Vec<_>>(),
            rows.iter().map(|(_, wait)| call_kind_code(wait.call.kind)).collect::<Vec<_>>(),
            rows.iter().map(|(_, wait)| wait.call.name.as_str()).collect::<Vec<_>>(),
            rows.iter().map(|(_, wait)| wait.call.count as i32).collect::<Vec<_>>(),
            rows.iter()
                .map(|(_, wait)| match (&wait.awaited, &wait.question) {
                    (None, None) => None,
                    (Some(awaited), _) => Some(Raw(wire::encode(awaited))),
                    (None, Some(question)) => Some(Raw(wire::encode(&**question))),
                })
                .collect::<Vec<_>>(),
        ];
        trip.execute(sql::WAIT_INSERT, params).await?;
    }
    if !writes.remotes.is_empty() {
        let rows = &writes.remotes;
        let params = params![
            rows.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| Bytes16(row.call.hash().0)).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| Raw(remote_body(row))).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.attempt.0 as i32).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.epoch.0 as i64).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.first_at.map(|at| at.0)).collect::<Vec<_>>(),
            rows.iter().map(|(_, row)| row.granted_at.map(|at| at.0)).collect::<Vec<_>>(),
        ];
        trip.execute(sql::REMOTE_INSERT, params).await?;
    }
    Ok(())
}

async fn rest<'a>(writes: &'a Writes, now: Timestamp, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if !writes.parked.is_empty() {
        let rows = &writes.parked;
        let params = params![
            rows.iter().map(|(uid, _, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, since, _)| since.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, _, parked)| parked.code.word()).collect::<Vec<_>>(),
            rows.iter().map(|(_, _, parked)| clean(&parked.message)).collect::<Vec<_>>(),
            rows.iter().map(|(_, _, parked)| changed(parked)).collect::<Vec<_>>(),
        ];
        trip.execute(sql::ATTENTION_INSERT, params).await?;
    }
    if !writes.operations.is_empty() {
        let rows = &writes.operations;
        let params = params![
            now.0,
            rows.iter().map(|(uid, _, _)| uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(_, operation, _)| clean(operation)).collect::<Vec<_>>(),
            rows.iter().map(|(_, _, answer)| answer::encode(answer)).collect::<Vec<_>>(),
        ];
        trip.execute(sql::OPERATION_INSERT, params).await?;
    }
    if !writes.actions.is_empty() {
        let rows: Vec<_> = writes.actions.iter().map(actions::record).collect();
        let column = |at: usize| rows.iter().map(|row| row[at].clone()).collect::<Vec<_>>();
        let params = params![
            now.0,
            column(0),
            column(1),
            column(2),
            column(3),
            column(4),
            column(5),
            column(6),
            column(7)
        ];
        trip.execute(sql::ACTION_INSERT, params).await?;
    }
    if !writes.outbox.is_empty() {
        let rows = &writes.outbox;
        let params = params![
            rows.iter().map(|row| row.instance.0).collect::<Vec<_>>(),
            rows.iter().map(|row| row.head.run.0 as i32).collect::<Vec<_>>(),
            rows.iter().map(Lifecycle::routing_key).collect::<Vec<_>>(),
            rows.iter().map(Lifecycle::message_id).collect::<Vec<_>>(),
            rows.iter().map(Lifecycle::body).collect::<Vec<_>>(),
            rows.iter().map(|row| row.at.0).collect::<Vec<_>>(),
        ];
        trip.execute(sql::OUTBOX_INSERT, params).await?;
    }
    Ok(())
}

/// The kind of a run task's queue, and of a step task's.
pub(super) const RUN: i16 = 1;
pub(super) const STEP: i16 = 2;

/// Instances themselves, and columns of their remote steps.
#[allow(clippy::type_complexity, reason = "columns")]
fn by_subject(keys: &[(InstanceUid, Subject)]) -> (Vec<Uuid>, (Vec<Uuid>, Vec<&[u8]>)) {
    let mut instances = Vec::with_capacity(keys.len());
    let mut steps = (Vec::new(), Vec::new());
    for (uid, subject) in keys {
        if *subject == Subject::INSTANCE {
            instances.push(uid.0);
        } else {
            steps.0.push(uid.0);
            steps.1.push(&subject.0[..]);
        }
    }
    (instances, steps)
}

fn by_call(keys: &[(InstanceUid, CallHash)]) -> (Vec<Uuid>, Vec<&[u8]>) {
    keys.iter().map(|(uid, call)| (uid.0, &call.0[..])).unzip()
}
