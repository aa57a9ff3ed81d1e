//! What is due, what is to be offered, and who has which duty.

use std::{borrow::Cow, collections::HashSet};

use async_trait::async_trait;
use everstep_engine::{batch::pinned_queue, rows::Subject};
use everstep_protocol::{CallHash, CoordinatorId, InstanceUid, Millis, Timestamp};
use uuid::Uuid;

use super::{
    PostgresStore,
    fault::Fault,
    letters,
    rows::{hash, micros, time, time_if_any, uid},
    rows_of, statements as sql,
    trip::params,
    write::{RUN, STEP},
};
use crate::{Depth, Due, Error, Mail, Offers, Queue, Schedule, UNSERVED_COUNTED, mail};

const DUTIES: &str = include_str!("sql/duties.sql");
/// By the index `control_by_deadline`.
const OVERDUE: &str = "SELECT instance FROM control
    WHERE cancel_until <= (SELECT everstep_clock()) ORDER BY cancel_until LIMIT $1::bigint";
/// By the index `ended_by_time`.
const EXPIRED: &str = "SELECT instance FROM ended
    WHERE delete_at <= (SELECT everstep_clock()) ORDER BY delete_at LIMIT $1::bigint";
const UNSERVED: &str = include_str!("sql/unserved.sql");
const DEPTHS: &str = include_str!("sql/depths.sql");
const RELEASE: &str = "WITH gone AS (DELETE FROM coordinator WHERE id = $1::uuid)
    DELETE FROM duty WHERE coordinator = $1::uuid";

#[async_trait]
impl Schedule for PostgresStore {
    async fn due(&self, mark: Option<Timestamp>, limit: u32) -> Result<Due, Error> {
        let mark = mark.map_or(i64::MIN, |mark| mark.0);
        let rows = self
            .read("looking for due waits", sql::DUE, params![mark, i64::from(limit)], |row| {
                let now = time(row, 0)?;
                let wait = match time_if_any(row, 3)? {
                    Some(due_at) => Some((uid(row, 1)?, CallHash(hash(row, 2)?), due_at)),
                    None => None,
                };
                Ok((now, wait))
            })
            .await?;
        let mut due = Due::default();
        for (now, wait) in rows {
            due.now = now;
            match wait {
                Some(row) if row.2 <= now => due.rows.push(row),
                Some(row) => due.next = Some(row.2),
                None => {}
            }
        }
        due.rows.sort_by_key(|row| row.2);
        Ok(due)
    }

    async fn overdue(&self, limit: u32) -> Result<Vec<InstanceUid>, Error> {
        self.read("looking for overdue cancels", OVERDUE, params![i64::from(limit)], |row| uid(row, 0)).await
    }

    async fn letters(&self, after: u64, limit: u32) -> Result<Mail, Error> {
        let params = params![after as i64, i64::from(limit), mail::PAGE_BYTES as i64];
        let found = self
            .read("looking for letters", sql::LETTERS, params, |row| {
                Ok((
                    row.try_get::<_, i64>(10)?,
                    (row.try_get::<_, i64>(0)? as u64, letters::posted(row).ok()),
                ))
            })
            .await?;
        let bounded = found.first().map_or(0, |(total, _)| *total);
        let more = bounded == i64::from(limit) || bounded > found.len() as i64;
        Ok(Mail::of(found.into_iter().map(|(_, found)| found).collect(), more))
    }

    async fn expired(&self, limit: u32) -> Result<Vec<InstanceUid>, Error> {
        self.read("looking for what is to be deleted", EXPIRED, params![i64::from(limit)], |row| uid(row, 0))
            .await
    }

    async fn offer(&self, queues: &[Queue], window: u32, again: Millis) -> Result<Offers, Error> {
        const DOING: &str = "offering what is ready";
        if queues.is_empty() {
            return Ok(Offers::default());
        }
        let client = self.client(DOING).await?;
        offer(&client, queues, window as usize, again).await.map_err(|fault| fault.into_error(DOING))
    }

    async fn backlog(&self, queues: &[Queue], window: u32, again: Millis) -> Result<Vec<Queue>, Error> {
        const DOING: &str = "looking what queues hold back";
        if queues.is_empty() {
            return Ok(Vec::new());
        }
        let client = self.client(DOING).await?;
        let scan = scan(&client, queues, window as usize, again).await;
        scan.map(|scan| scan.backlog).map_err(|fault| fault.into_error(DOING))
    }

    async fn unserved(&self, served: &[Queue], limit: u32) -> Result<Vec<(Queue, u64)>, Error> {
        let served: Vec<_> = served.iter().map(columns).collect();
        let params = params![
            served.iter().map(|(namespace, ..)| *namespace).collect::<Vec<_>>(),
            served.iter().map(|(_, name, _)| &**name).collect::<Vec<_>>(),
            served.iter().map(|(.., kind)| *kind).collect::<Vec<_>>(),
            i64::from(limit),
            UNSERVED_COUNTED as i64,
        ];
        self.read("looking for queues that nobody serves", UNSERVED, params, |row| {
            let kind: i16 = row.try_get(2)?;
            let queue =
                Queue::named(row.try_get(0)?, row.try_get(1)?, kind == STEP).map_err(Fault::corrupt)?;
            Ok((queue, row.try_get::<_, i64>(3)? as u64))
        })
        .await
    }

    async fn depths(&self, queues: &[Queue], others: u32) -> Result<Vec<Depth>, Error> {
        let queues: Vec<_> = queues.iter().map(columns).collect();
        let params = params![
            queues.iter().map(|(namespace, ..)| *namespace).collect::<Vec<_>>(),
            queues.iter().map(|(_, name, _)| &**name).collect::<Vec<_>>(),
            queues.iter().map(|(.., kind)| *kind).collect::<Vec<_>>(),
            i64::from(others),
            UNSERVED_COUNTED as i64,
        ];
        self.read("measuring queues", DEPTHS, params, |row| {
            let kind: i16 = row.try_get(2)?;
            let queue =
                Queue::named(row.try_get(0)?, row.try_get(1)?, kind == STEP).map_err(Fault::corrupt)?;
            let oldest = Millis(row.try_get::<_, i64>(4)? as u64 / 1_000);
            Ok(Depth { queue, rows: row.try_get::<_, i64>(3)? as u64, oldest })
        })
        .await
    }

    async fn duties(
        &self,
        coordinator: CoordinatorId,
        names: &[&'static str],
        ttl: Millis,
    ) -> Result<Vec<&'static str>, Error> {
        // In one order, so that two coordinators cannot block each other in a circle.
        let mut sorted = names.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let params = params![coordinator.0, sorted, micros(ttl)];
        let held: Vec<String> =
            self.read("taking duties", DUTIES, params, |row| Ok(row.try_get::<_, String>(0)?)).await?;
        Ok(names.iter().copied().filter(|name| held.iter().any(|held| held == name)).collect())
    }

    async fn release_duties(&self, coordinator: CoordinatorId) -> Result<(), Error> {
        self.execute("releasing duties", RELEASE, params![coordinator.0]).await?;
        Ok(())
    }
}

/// A ready row at the head of its queue.
struct Ready {
    uid: InstanceUid,
    subject: Subject,
    offered_at: Option<Timestamp>,
}

/// What the heads of the queues say.
struct Scan {
    now: Timestamp,
    stale: Timestamp,
    /// What may be offered.
    chosen: Vec<(Queue, InstanceUid, Subject)>,
    /// Queues that hold back more.
    backlog: Vec<Queue>,
}

async fn scan(
    client: &deadpool_postgres::Object,
    queues: &[Queue],
    window: usize,
    again: Millis,
) -> Result<Scan, Fault> {
    let columns: Vec<_> = queues.iter().map(columns).collect();
    let namespaces: Vec<&str> = columns.iter().map(|(namespace, _, _)| *namespace).collect();
    let names: Vec<&str> = columns.iter().map(|(_, name, _)| name.as_ref()).collect();
    let kinds: Vec<i16> = columns.iter().map(|(_, _, kind)| *kind).collect();
    // What may be offered now, behind what is offered already, and one more, which shows a backlog.
    let depth = (2 * window + 1) as i64;
    let rows = rows_of(client, sql::OFFER_SCAN, params![namespaces, names, kinds, depth]).await?;
    let mut heads: Vec<Vec<Ready>> = queues.iter().map(|_| Vec::new()).collect();
    let mut now = Timestamp::default();
    for row in &rows {
        now = now.max(time(row, 1)?);
        let ready =
            Ready { uid: uid(row, 2)?, subject: Subject(hash(row, 3)?), offered_at: time_if_any(row, 4)? };
        heads[row.try_get::<_, i64>(0)? as usize - 1].push(ready);
    }
    let stale = now.minus(again);
    let mut scan = Scan { now, stale, chosen: Vec::new(), backlog: Vec::new() };
    for (queue, head) in queues.iter().zip(heads) {
        let waits = |ready: &Ready| ready.offered_at.is_none_or(|at| at <= stale);
        let (waiting, offered): (Vec<Ready>, Vec<Ready>) = head.into_iter().partition(waits);
        let room = window.saturating_sub(offered.len());
        if waiting.len() > room {
            scan.backlog.push(queue.clone());
        }
        let chosen = waiting.into_iter().take(room);
        scan.chosen.extend(chosen.map(|ready| (queue.clone(), ready.uid, ready.subject)));
    }
    Ok(scan)
}

async fn offer(
    client: &deadpool_postgres::Object,
    queues: &[Queue],
    window: usize,
    again: Millis,
) -> Result<Offers, Fault> {
    let Scan { now, stale, chosen, backlog } = scan(client, queues, window, again).await?;
    let mut offers = Offers { rows: Vec::new(), backlog };
    if chosen.is_empty() {
        return Ok(offers);
    }
    let instances: Vec<Uuid> = chosen.iter().map(|(_, uid, _)| uid.0).collect();
    let subjects: Vec<&[u8]> = chosen.iter().map(|(_, _, subject)| &subject.0[..]).collect();
    let marked = rows_of(client, sql::OFFER_MARK, params![instances, subjects, now.0, stale.0]).await?;
    let mut taken = HashSet::with_capacity(marked.len());
    for row in &marked {
        taken.insert((uid(row, 0)?, Subject(hash(row, 1)?)));
    }
    offers.rows =
        chosen.iter().filter(|(_, uid, subject)| taken.contains(&(*uid, *subject))).cloned().collect();
    Ok(offers)
}

fn columns(queue: &Queue) -> (&str, Cow<'_, str>, i16) {
    match queue {
        Queue::Run(namespace, workflow) => (namespace.as_str(), workflow.as_str().into(), RUN),
        Queue::Pinned(namespace, workflow, build) => {
            (namespace.as_str(), pinned_queue(workflow, build).into(), RUN)
        }
        Queue::Step(namespace, pool) => (namespace.as_str(), pool.as_str().into(), STEP),
    }
}
