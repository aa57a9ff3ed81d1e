//! Events and the waits for them: loaded as the inputs of a batch name them, and written.

use everstep_engine::{
    Writes,
    batch::Loaded,
    mailbox::{Delivery, EventId, EventRow, KnownEvent, Query, ReturnQuery, SentEvent},
    rows::{Needs, WaitRow},
};
use everstep_protocol::{
    CallHash, EventKey, EventType, Fingerprint, InstanceUid, Payload, Position, Run, wire,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    fault::Fault,
    rows::{self, Bytes16, Raw, clean},
    statements as sql,
    trip::{Trip, params},
};

/// What was asked for.
pub(super) struct Planned {
    unread: bool,
    waiters: bool,
    returns: bool,
}

/// Adds the statements that load what the needs name.
pub(super) async fn plan(needs: &Needs, trip: &mut Trip<'_>) -> Result<Planned, Fault> {
    if !needs.event_ids.is_empty() {
        let keys = &needs.event_ids;
        let params = params![
            keys.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(),
            keys.iter().map(|(_, id)| clean(&id.app_id).into_owned()).collect::<Vec<_>>(),
            keys.iter().map(|(_, id)| clean(&id.id).into_owned()).collect::<Vec<_>>(),
        ];
        trip.rows(sql::EVENT_IDS, params).await?;
    }
    let (unread, waiters) = (needs.unread_queries(), needs.waiter_queries());
    let returns = needs.return_queries();
    for (statement, queries) in [(sql::EVENT_UNREAD, &unread), (sql::EVENT_WAITERS, &waiters)] {
        if !queries.is_empty() {
            trip.rows(statement, topics(queries)).await?;
        }
    }
    if !returns.is_empty() {
        let (instances, calls) = calls(&returns);
        trip.rows(sql::EVENT_RETURNS, params![instances, calls]).await?;
        let (instances, calls) = self::calls(&returns);
        let limit = returns.iter().map(|query| i64::from(query.limit)).max().unwrap_or(0);
        trip.rows(sql::EVENT_RETURN_WAITERS, params![instances, calls, limit]).await?;
    }
    Ok(Planned { unread: !unread.is_empty(), waiters: !waiters.is_empty(), returns: !returns.is_empty() })
}

/// The statement knows one limit only: more than one query asks for does no harm.
fn topics(queries: &[Query]) -> super::trip::Params<'static> {
    let limit = queries.iter().map(|query| i64::from(query.limit)).max().unwrap_or(0);
    params![
        queries.iter().map(|query| query.uid.0).collect::<Vec<_>>(),
        queries.iter().map(|query| query.kind.to_string()).collect::<Vec<_>>(),
        queries.iter().map(|query| any(query.key.as_ref()).to_owned()).collect::<Vec<_>>(),
        limit,
    ]
}

fn calls(returns: &[ReturnQuery]) -> (Vec<Uuid>, Vec<Bytes16>) {
    returns.iter().map(|query| (query.uid.0, Bytes16(query.call.0))).unzip()
}

/// A key as it is kept: none is empty, which no key is.
fn any(key: Option<&EventKey>) -> &str {
    key.map_or("", EventKey::as_str)
}

impl Planned {
    /// Reads the answers, in the order of the statements.
    pub(super) fn read(
        &self,
        needs: &Needs,
        next: &mut impl FnMut(bool) -> Vec<Row>,
        loaded: &mut Loaded,
    ) -> Result<(), Fault> {
        for row in next(!needs.event_ids.is_empty()) {
            let nth = row.try_get::<_, i64>(0)? as usize - 1;
            let (kind, key) = (rows::name(&row, 1)?, key(&row, 2)?);
            let known = KnownEvent { kind, key, fingerprint: fingerprint(&row, 3)? };
            loaded.rows.event_ids.insert(needs.event_ids[nth].clone(), known);
        }
        for row in next(self.unread) {
            let (uid, event) = event(&row)?;
            loaded.rows.events.insert((uid, event.sequence), event);
        }
        for row in next(self.waiters) {
            waiter(&row, loaded)?;
        }
        for row in next(self.returns) {
            let (uid, event) = event(&row)?;
            loaded.rows.events.insert((uid, event.sequence), event);
        }
        for row in next(self.returns) {
            waiter(&row, loaded)?;
        }
        Ok(())
    }
}

/// A row of `event_waiters.sql` or `event_return_waiters.sql`.
fn waiter(row: &Row, loaded: &mut Loaded) -> Result<(), Fault> {
    let call = rows::call(row, 4)?;
    let key = (rows::uid(row, 0)?, call.hash());
    let kind = rows::wait_kind(row.try_get(1)?)?;
    let (awaited, question) = rows::awaited(row, 7, kind)?;
    let (since, due_at) = (rows::time(row, 2)?, rows::time_if_any(row, 3)?);
    let wait = WaitRow { call, kind, since, due_at, awaited, question };
    loaded.rows.waits.insert(key, wait);
    Ok(())
}

/// A row of `event_unread.sql` or `event_returns.sql`.
fn event(row: &Row) -> Result<(InstanceUid, EventRow), Fault> {
    let text: Option<String> = row.try_get(12)?;
    let text = text.ok_or_else(|| Fault::corrupt("the payload of an event is missing"))?;
    let delivery = match row.try_get::<_, Option<&[u8]>>(10)? {
        None => None,
        Some(call) => Some(Delivery {
            call: CallHash(call.try_into().map_err(Fault::corrupt)?),
            run: Run(row.try_get::<_, i32>(3)? as u32),
            position: Position(row.try_get::<_, i64>(4)? as u64),
        }),
    };
    let event = SentEvent {
        id: EventId { app_id: row.try_get(8)?, id: row.try_get(9)? },
        kind: rows::name(row, 6)?,
        key: key(row, 7)?,
        payload: Payload::from_trusted(text),
        fingerprint: fingerprint(row, 11)?,
    };
    let sequence = row.try_get::<_, i64>(1)? as u64;
    Ok((rows::uid(row, 0)?, EventRow { sequence, event, received_at: rows::time(row, 2)?, delivery }))
}

fn key(row: &Row, at: usize) -> Result<Option<EventKey>, Fault> {
    let text: &str = row.try_get(at)?;
    if text.is_empty() { Ok(None) } else { rows::name(row, at).map(Some) }
}

fn fingerprint(row: &Row, at: usize) -> Result<Fingerprint, Fault> {
    let bytes: [u8; 32] = row.try_get::<_, &[u8]>(at)?.try_into().map_err(Fault::corrupt)?;
    Ok(Fingerprint::from_bytes(bytes))
}

/// Deletes what is awaited no more.
pub(super) async fn deletes<'a>(writes: &'a Writes, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if writes.awaited_deletes.is_empty() {
        return Ok(());
    }
    let keys = &writes.awaited_deletes;
    let params = params![
        keys.iter().map(|key| key.uid.0).collect::<Vec<_>>(),
        keys.iter().map(|key| key.kind.as_str()).collect::<Vec<_>>(),
        keys.iter().map(|key| any(key.key.as_ref())).collect::<Vec<_>>(),
        keys.iter().map(|key| key.opened.0 as i64).collect::<Vec<_>>(),
    ];
    trip.execute(sql::AWAITED_DELETE, params).await
}

/// Writes what is awaited, what was accepted and where it went.
pub(super) async fn write<'a>(writes: &'a Writes, trip: &mut Trip<'a>) -> Result<(), Fault> {
    if !writes.awaited.is_empty() {
        let rows = &writes.awaited;
        let params = params![
            rows.iter().map(|(key, _)| key.uid.0).collect::<Vec<_>>(),
            rows.iter().map(|(key, _)| key.kind.as_str()).collect::<Vec<_>>(),
            rows.iter().map(|(key, _)| any(key.key.as_ref())).collect::<Vec<_>>(),
            rows.iter().map(|(key, _)| key.opened.0 as i64).collect::<Vec<_>>(),
            rows.iter().map(|(_, call)| Bytes16(call.0)).collect::<Vec<_>>(),
        ];
        trip.execute(sql::AWAITED_INSERT, params).await?;
    }
    if !writes.events.is_empty() {
        trip.execute(sql::EVENT_INSERT, inserted(&writes.events)).await?;
    }
    if !writes.deliveries.is_empty() {
        let rows = &writes.deliveries;
        let of = |row: &everstep_engine::batch::DeliveryRow| row.delivery;
        let params = params![
            rows.iter().map(|row| row.uid.0).collect::<Vec<_>>(),
            rows.iter().map(|row| row.kind.as_str()).collect::<Vec<_>>(),
            rows.iter().map(|row| row.sequence as i64).collect::<Vec<_>>(),
            rows.iter().map(|row| of(row).map(|to| Bytes16(to.call.0))).collect::<Vec<_>>(),
            rows.iter().map(|row| of(row).map(|to| to.run.0 as i32)).collect::<Vec<_>>(),
            rows.iter().map(|row| of(row).map(|to| to.position.0 as i64)).collect::<Vec<_>>(),
            rows.iter().map(|row| row.payload.as_ref().map(Payload::as_str)).collect::<Vec<_>>(),
        ];
        trip.rows(sql::EVENT_DELIVERY, params).await?;
    }
    if !writes.replies.is_empty() {
        let rows = &writes.replies;
        let ids: Vec<EventId> = rows.iter().map(|(to, _)| to.event_id()).collect();
        let params = params![
            rows.iter().map(|(to, _)| to.instance.0).collect::<Vec<_>>(),
            ids.iter().map(|id| clean(&id.app_id).into_owned()).collect::<Vec<_>>(),
            ids.iter().map(|id| clean(&id.id).into_owned()).collect::<Vec<_>>(),
            rows.iter().map(|(_, response)| Raw(wire::encode(response))).collect::<Vec<_>>(),
        ];
        trip.execute(sql::EVENT_REPLY, params).await?;
    }
    Ok(())
}

fn inserted(rows: &[(InstanceUid, EventRow)]) -> super::trip::Params<'_> {
    let of = |row: &EventRow| row.delivery;
    params![
        rows.iter().map(|(uid, _)| uid.0).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.sequence as i64).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.received_at.0).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| of(row).map(|to| to.position.0 as i64)).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| of(row).map(|to| to.run.0 as i32)).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.delivery.is_none()).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.event.kind.as_str()).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| any(row.event.key.as_ref())).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| clean(&row.event.id.app_id)).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| clean(&row.event.id.id)).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| of(row).map(|to| Bytes16(to.call.0))).collect::<Vec<_>>(),
        rows.iter().map(|(_, row)| row.event.fingerprint.as_bytes().to_vec()).collect::<Vec<_>>(),
        rows.iter()
            .map(|(_, row)| row.delivery.is_none().then_some(row.event.payload.as_str()))
            .collect::<Vec<_>>(),
    ]
}

/// A row of `events_shown.sql`: unread events of a type, or a type of which none was ever sent.
pub(super) fn shown(row: &Row) -> Result<(EventType, Option<(u64, everstep_protocol::Timestamp)>), Fault> {
    let unread = match row.try_get::<_, Option<i64>>(1)? {
        Some(count) => Some((count as u64, rows::time(row, 2)?)),
        None => None,
    };
    Ok((rows::name(row, 0)?, unread))
}
