//! What API and CLI show of instances, from the rows of view.sql: one a wait.

use everstep_engine::{rows::WaitKind, status::Sides};
use everstep_protocol::{BuildName, Epoch, Generation, Position, Run, SessionId, journal::Fact};
use tokio_postgres::Row;
use uuid::Uuid;

use super::super::{
    fault::Fault,
    rows::{self, name, time, time_if_any, uid},
};
use crate::{InstanceView, StatusWord, WaitView, fact};

/// Rows of `view.sql`: those of one instance follow each other.
pub(super) fn views(rows: &[Row]) -> Result<Vec<InstanceView>, Fault> {
    let mut views: Vec<InstanceView> = Vec::new();
    let mut last = 0;
    for row in rows {
        let nth: i64 = row.try_get(0)?;
        if nth != last {
            views.push(view(row)?);
            last = nth;
        }
        if let (Some(view), Some(code)) = (views.last_mut(), row.try_get::<_, Option<i16>>(33)?) {
            let kind = rows::wait_kind(code)?;
            let (awaited, question) = rows::awaited(row, 36, kind)?;
            view.waiting.push(WaitView {
                call: rows::call(row, 30)?,
                kind,
                since: time(row, 34)?,
                due_at: time_if_any(row, 35)?,
                awaited,
                question,
            });
        }
    }
    Ok(views)
}

fn view(row: &Row) -> Result<InstanceView, Fault> {
    let ready_at = time_if_any(row, 17)?;
    let session = row.try_get::<_, Option<Uuid>>(14)?.map(SessionId);
    let parked = match time_if_any(row, 19)? {
        Some(since) => Some((since, rows::parked(row, 20, 40)?)),
        None => None,
    };
    let end = match row.try_get::<_, Option<&[u8]>>(22)? {
        Some(entry) => match fact::join(entry, row.try_get(23)?)? {
            Fact::Ended(end) => Some(end),
            other => return Err(Fault::corrupt(format!("the last entry is {}, not an end", other.word()))),
        },
        None => None,
    };
    let compensated = match row.try_get::<_, Option<&[u8]>>(39)? {
        Some(entry) => match fact::join(entry, None)? {
            Fact::Compensated(compensated) => Some(compensated),
            other => return Err(Fault::corrupt(format!("the entry before the end is {}", other.word()))),
        },
        None => None,
    };
    let stored = rows::status(row.try_get(7)?)?;
    let control = rows::control(row.try_get(24)?, row, 25)?;
    let sides = Sides {
        leased: session.is_some(),
        ready: ready_at.is_some(),
        parked: parked.is_some(),
        // Questions come first.
        asks: row.try_get::<_, Option<i16>>(33)? == Some(WaitKind::Person.code()),
        paused: control.paused_at.is_some(),
        steps_leased: row.try_get::<_, Option<bool>>(29)?.unwrap_or(false),
    };
    Ok(InstanceView {
        uid: uid(row, 1)?,
        namespace: name(row, 2)?,
        workflow: name(row, 3)?,
        id: name(row, 4)?,
        run: Run(row.try_get::<_, i32>(5)? as u32),
        generation: Generation(row.try_get::<_, i32>(6)? as u32),
        status: StatusWord::derive(stored, sides),
        created_at: time(row, 8)?,
        ended_at: time_if_any(row, 9)?,
        position: Position(row.try_get::<_, i64>(10)? as u64),
        steps: row.try_get::<_, i64>(11)? as u64,
        epoch: Epoch(row.try_get::<_, i64>(12)? as u64),
        waits: row.try_get::<_, i32>(13)? as u32,
        holder: session.map(|session| holder(row, session)).transpose()?,
        ready_at,
        served: row.try_get(18)?,
        waiting: Vec::new(),
        events: row.try_get::<_, i64>(37)? as u64,
        pin: rows::pin(row, 38)?,
        unread: Vec::new(),
        never_sent: Vec::new(),
        control,
        parked,
        end,
        compensated,
        attributes: Vec::new(),
        state: None,
        parent: None,
        children: Vec::new(),
        children_total: 0,
    })
}

/// A session that was never registered here still holds its lease.
fn holder(row: &Row, session: SessionId) -> Result<(SessionId, BuildName, String), Fault> {
    let build = row.try_get::<_, Option<&str>>(15)?.unwrap_or("unknown");
    let host = row.try_get::<_, Option<String>>(16)?.unwrap_or_default();
    Ok((session, BuildName::new(build).map_err(Fault::corrupt)?, host))
}
