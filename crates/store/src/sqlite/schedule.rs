//! Due waits, offers, duties.

use std::{borrow::Cow, collections::HashSet};

use async_trait::async_trait;
use everstep_engine::{batch::pinned_queue, rows::Subject};
use everstep_protocol::{CoordinatorId, InstanceUid, Millis, Timestamp};
use rusqlite::{Connection, params};

use super::{SqliteStore, column, depths, fault, letters};
use crate::{Depth, Due, Error, Mail, Offers, Queue, Schedule, UNSERVED_COUNTED};

// By the index `wait_due`.
const DUE: &str = "SELECT uid, call, due_at FROM wait WHERE due_at >= ?1 AND due_at <= ?2
    AND NOT EXISTS (SELECT 1 FROM control WHERE control.uid = wait.uid AND paused_at IS NOT NULL)
    ORDER BY due_at LIMIT ?3";
const NEXT: &str = "SELECT min(due_at) FROM wait WHERE due_at > ?1";
/// By the index `control_deadline`.
const OVERDUE: &str = "SELECT uid FROM control WHERE cancel_until <= ?1 ORDER BY cancel_until LIMIT ?2";
/// By the index `ended_time`.
const EXPIRED: &str = "SELECT uid FROM ended WHERE delete_at <= ?1 ORDER BY delete_at LIMIT ?2";
const DUTY: &str = "INSERT INTO duty (name, coordinator, until_at) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET coordinator = excluded.coordinator, until_at = excluded.until_at
    WHERE coordinator = excluded.coordinator OR until_at <= ?4";
/// By the indexes `ready_run` and `ready_step`.
const HELD: &str =
    "SELECT namespace, workflow, 0, count(*) FROM ready WHERE pool IS NULL GROUP BY namespace, workflow
    UNION ALL
    SELECT namespace, pool, 1, count(*) FROM ready WHERE pool IS NOT NULL GROUP BY namespace, pool";
const OFFER: &str = "UPDATE ready SET offered_at = ?3 WHERE uid = ?1 AND subject = ?2";

/// The statements of one kind of queue, each one or two ranges of its index. `?3` is the time before which an offer is
/// too old to count.
struct Statements {
    offered: &'static str,
    candidates: &'static str,
}

const RUN: Statements = Statements {
    offered: "SELECT count(*) FROM ready WHERE pool IS NULL AND namespace = ?1 AND workflow = ?2 AND offered_at >= ?3",
    candidates: "SELECT uid, subject FROM (
            SELECT uid, subject, ready_at FROM (SELECT uid, subject, ready_at FROM ready
                WHERE pool IS NULL AND namespace = ?1 AND workflow = ?2 AND offered_at IS NULL
                ORDER BY ready_at LIMIT ?4)
            UNION ALL
            SELECT uid, subject, ready_at FROM ready
                WHERE pool IS NULL AND namespace = ?1 AND workflow = ?2 AND offered_at < ?3
        ) ORDER BY ready_at LIMIT ?4",
};

const STEP: Statements = Statements {
    offered: "SELECT count(*) FROM ready WHERE pool IS NOT NULL AND namespace = ?1 AND pool = ?2 AND offered_at >= ?3",
    candidates: "SELECT uid, subject FROM (
            SELECT uid, subject, ready_at FROM (SELECT uid, subject, ready_at FROM ready
                WHERE pool IS NOT NULL AND namespace = ?1 AND pool = ?2 AND offered_at IS NULL
                ORDER BY ready_at LIMIT ?4)
            UNION ALL
            SELECT uid, subject, ready_at FROM ready
                WHERE pool IS NOT NULL AND namespace = ?1 AND pool = ?2 AND offered_at < ?3
        ) ORDER BY ready_at LIMIT ?4",
};

#[async_trait]
impl Schedule for SqliteStore {
    async fn due(&self, mark: Option<Timestamp>, limit: u32) -> Result<Due, Error> {
        let now = self.clock.now();
        let work = move |connection: &Connection| due(connection, now, mark, limit);
        self.reader.read("looking for due waits", work).await
    }

    async fn overdue(&self, limit: u32) -> Result<Vec<InstanceUid>, Error> {
        let now = self.clock.now();
        let work = move |connection: &Connection| past(connection, OVERDUE, now, limit);
        self.reader.read("looking for overdue cancels", work).await
    }

    async fn letters(&self, after: u64, limit: u32) -> Result<Mail, Error> {
        let work = move |connection: &Connection| letters::mail(connection, after, limit);
        self.reader.read("looking for letters", work).await
    }

    async fn expired(&self, limit: u32) -> Result<Vec<InstanceUid>, Error> {
        let now = self.clock.now();
        let work = move |connection: &Connection| past(connection, EXPIRED, now, limit);
        self.reader.read("looking for what is to be deleted", work).await
    }

    async fn offer(&self, queues: &[Queue], window: u32, again: Millis) -> Result<Offers, Error> {
        let queues = queues.to_vec();
        let work = move |connection: &Connection, now: Timestamp| {
            let mut offers = Offers::default();
            let mut seen = HashSet::with_capacity(queues.len());
            for queue in queues.iter().filter(|queue| seen.insert(*queue)) {
                offer(connection, queue, window, now, now.minus(again), &mut offers)?;
            }
            Ok(offers)
        };
        self.writer.write("taking rows to offer", work).await
    }

    async fn backlog(&self, queues: &[Queue], window: u32, again: Millis) -> Result<Vec<Queue>, Error> {
        let queues = queues.to_vec();
        let stale = self.clock.now().minus(again);
        let work = move |connection: &Connection| {
            let mut backlog = Vec::new();
            for queue in queues {
                let room = room(connection, &queue, window, stale)?;
                if candidates(connection, &queue, stale, room as u64 + 1)?.len() > room {
                    backlog.push(queue);
                }
            }
            Ok(backlog)
        };
        self.reader.read("looking what queues hold back", work).await
    }

    async fn unserved(&self, served: &[Queue], limit: u32) -> Result<Vec<(Queue, u64)>, Error> {
        let served: HashSet<Queue> = served.iter().cloned().collect();
        let work = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(HELD)?;
            let mut rows = statement.query([])?;
            let mut unserved = Vec::new();
            while let Some(row) = rows.next()? {
                let (namespace, name): (String, String) = (row.get(0)?, row.get(1)?);
                let queue = Queue::named(&namespace, &name, row.get(2)?);
                let queue = queue.map_err(|error| fault::Fault::corrupt("queue", error))?;
                if !served.contains(&queue) && unserved.len() < limit as usize {
                    unserved.push((queue, column::count(row, 3)?.min(UNSERVED_COUNTED)));
                }
            }
            Ok(unserved)
        };
        self.reader.read("looking for queues that nobody serves", work).await
    }

    async fn depths(&self, queues: &[Queue], others: u32) -> Result<Vec<Depth>, Error> {
        let queues = queues.to_vec();
        let now = self.clock.now();
        let work = move |connection: &Connection| depths::of(connection, &queues, others as usize, now);
        // It may take long, and what schedules must not wait behind it.
        self.viewer.read("measuring queues", work).await
    }

    async fn duties(
        &self,
        coordinator: CoordinatorId,
        names: &[&'static str],
        ttl: Millis,
    ) -> Result<Vec<&'static str>, Error> {
        let names = names.to_vec();
        let work = move |connection: &Connection, now: Timestamp| {
            let mut statement = connection.prepare_cached(DUTY)?;
            let mut held = Vec::with_capacity(names.len());
            for name in names {
                let values = params![name, coordinator.0.as_bytes(), now.plus(ttl).0, now.0];
                if statement.execute(values)? == 1 {
                    held.push(name);
                }
            }
            Ok(held)
        };
        self.writer.write("taking duties", work).await
    }

    async fn release_duties(&self, coordinator: CoordinatorId) -> Result<(), Error> {
        let work = move |connection: &Connection, _| {
            connection.execute("DELETE FROM duty WHERE coordinator = ?1", [coordinator.0.as_bytes()])?;
            connection
                .execute("DELETE FROM coordinator WHERE coordinator = ?1", [coordinator.0.as_bytes()])?;
            Ok(())
        };
        self.writer.write("giving duties up", work).await
    }
}

fn due(connection: &Connection, now: Timestamp, mark: Option<Timestamp>, limit: u32) -> fault::Result<Due> {
    let mut statement = connection.prepare_cached(DUE)?;
    let mut found = statement.query(params![mark.map_or(i64::MIN, |at| at.0), now.0, limit])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        rows.push((column::uid(row, 0)?, column::hash(row, 1)?, column::time(row, 2)?));
    }
    let next: Option<i64> = connection.prepare_cached(NEXT)?.query_row([now.0], |row| row.get(0))?;
    Ok(Due { now, rows, next: next.map(Timestamp) })
}

/// The instances whose moment is past.
fn past(connection: &Connection, sql: &str, now: Timestamp, limit: u32) -> fault::Result<Vec<InstanceUid>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![now.0, limit])?;
    let mut uids = Vec::new();
    while let Some(row) = rows.next()? {
        uids.push(column::uid(row, 0)?);
    }
    Ok(uids)
}

fn offer(
    connection: &Connection,
    queue: &Queue,
    window: u32,
    now: Timestamp,
    stale: Timestamp,
    offers: &mut Offers,
) -> fault::Result<()> {
    let room = room(connection, queue, window, stale)?;
    // One more than there is room for tells whether the queue holds something back.
    let mut rows = candidates(connection, queue, stale, room as u64 + 1)?;
    if rows.len() > room {
        rows.truncate(room);
        offers.backlog.push(queue.clone());
    }
    let mut mark = connection.prepare_cached(OFFER)?;
    for (uid, subject) in rows {
        mark.execute(params![uid.0.as_bytes(), subject.0, now.0])?;
        offers.rows.push((queue.clone(), uid, subject));
    }
    Ok(())
}

fn columns(queue: &Queue) -> (&'static Statements, &str, Cow<'_, str>) {
    match queue {
        Queue::Run(namespace, workflow) => (&RUN, namespace.as_str(), workflow.as_str().into()),
        Queue::Pinned(namespace, workflow, build) => {
            (&RUN, namespace.as_str(), pinned_queue(workflow, build).into())
        }
        Queue::Step(namespace, pool) => (&STEP, namespace.as_str(), pool.as_str().into()),
    }
}

/// How many rows more may be offered.
fn room(connection: &Connection, queue: &Queue, window: u32, stale: Timestamp) -> fault::Result<usize> {
    let (statements, namespace, name) = columns(queue);
    let mut offered = connection.prepare_cached(statements.offered)?;
    let offered: u32 = offered.query_row(params![namespace, name, stale.0], |row| row.get(0))?;
    Ok(window.saturating_sub(offered) as usize)
}

/// Rows to offer, oldest first.
fn candidates(
    connection: &Connection,
    queue: &Queue,
    stale: Timestamp,
    limit: u64,
) -> fault::Result<Vec<(InstanceUid, Subject)>> {
    let (statements, namespace, name) = columns(queue);
    let mut statement = connection.prepare_cached(statements.candidates)?;
    let mut rows = statement.query(params![namespace, name, stale.0, limit as i64])?;
    let mut taken = Vec::new();
    while let Some(row) = rows.next()? {
        taken.push((column::uid(row, 0)?, Subject(row.get(1)?)));
    }
    Ok(taken)
}
