//! Outbox, rejected messages, cleaning.

use async_trait::async_trait;
use everstep_protocol::{InstanceUid, Millis, Namespace, Run, Timestamp};
use rusqlite::{Connection, params};

use super::{SqliteStore, column, fault, write};
use crate::{BODY_BYTES_MAX, Error, OutboxRow, RECORD_BYTES, Records, Rejected, answer};

const OUTBOX: &str = "SELECT uid, run, routing_key, message_id, body FROM outbox WHERE at < ?1
    ORDER BY at, uid LIMIT ?2";
const DECISION: &str =
    "INSERT INTO message_decision (namespace, workflow, app_id, message_id, at, id, answer)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
const REJECT: &str =
    "INSERT INTO rejected (at, namespace, workflow, app_id, message_id, code, reason, headers,
    body_bytes, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING";

/// By the index `rejected_namespace`, which has all that is read.
const REJECTED_BYTES: &str =
    "SELECT coalesce(sum(min(body_bytes, ?2) + ?3), 0) FROM rejected WHERE namespace = ?1";

const DAY: Millis = Millis::from_secs(86_400);
const WEEK: Millis = Millis::from_secs(7 * 86_400);
const MONTH: Millis = Millis::from_secs(30 * 86_400);
const QUARTER: Millis = Millis::from_secs(90 * 86_400);

/// What is deleted after how long. A decision that met an instance lasts as long as it, and is not in the index by time
/// (rule P27). Rejected records are numbered in the order of their times.
const CLEAN: [(Millis, &str); 9] = [
    (
        WEEK,
        "DELETE FROM message_decision WHERE (namespace, workflow, app_id, message_id) IN (
            SELECT namespace, workflow, app_id, message_id FROM message_decision WHERE at < ?1
            AND substr(answer, 1, 7) NOT IN ('created', 'exists:', 'conflic') ORDER BY at LIMIT ?2)",
    ),
    (
        MONTH,
        "DELETE FROM rejected WHERE number IN (
            SELECT number FROM (SELECT number, at FROM rejected ORDER BY number LIMIT ?2) WHERE at < ?1)",
    ),
    (
        MONTH,
        "DELETE FROM breach WHERE number IN (
            SELECT number FROM (SELECT number, at FROM breach ORDER BY number LIMIT ?2) WHERE at < ?1)",
    ),
    (
        DAY,
        "DELETE FROM coordinator WHERE coordinator IN (
            SELECT coordinator FROM coordinator WHERE heard_at < ?1 LIMIT ?2)",
    ),
    (
        MONTH,
        "DELETE FROM bulk WHERE (namespace, id) IN (
            SELECT namespace, id FROM bulk WHERE ended_at < ?1 LIMIT ?2)",
    ),
    (
        QUARTER,
        "DELETE FROM action WHERE number IN (
            SELECT number FROM action WHERE at < ?1 ORDER BY at LIMIT ?2)",
    ),
    (
        QUARTER,
        "DELETE FROM access_token WHERE id IN (
            SELECT id FROM access_token WHERE expires_at < ?1 OR revoked_at < ?1 LIMIT ?2)",
    ),
    (
        DAY,
        "DELETE FROM session WHERE session IN (
            SELECT session FROM session WHERE ended_at < ?1
            AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.session = session.session) LIMIT ?2)",
    ),
    (
        Millis(0),
        "DELETE FROM hook WHERE (namespace, token) IN (
            SELECT namespace, token FROM hook WHERE ended = 1 AND retain_until < ?1 LIMIT ?2)",
    ),
];

/// By the journal's primary key. The highest cut of an instance is the only one that counts: by each of them the same entries
/// would be found, and fewer than the limit would be no sign that none is left.
const SWEEP: &str = "DELETE FROM journal WHERE (uid, run, position) IN (
    SELECT journal.uid, run, position FROM (SELECT uid, max(below) AS below FROM journal_cut GROUP BY uid) cut
    CROSS JOIN journal ON journal.uid = cut.uid AND run < below LIMIT ?1)";
const SWEPT: &str = "DELETE FROM journal_cut
    WHERE NOT EXISTS (SELECT 1 FROM journal WHERE journal.uid = journal_cut.uid AND run < below)";

#[async_trait]
impl Records for SqliteStore {
    async fn outbox(&self, older: Millis, limit: u32) -> Result<Vec<OutboxRow>, Error> {
        let before = self.clock.now().minus(older);
        let work = move |connection: &Connection| outbox(connection, before, limit);
        self.reader.read("reading the outbox", work).await
    }

    async fn sent(&self, rows: &[(InstanceUid, Run)]) -> Result<(), Error> {
        let rows = rows.to_vec();
        let work = move |connection: &Connection, _| {
            let mut statement = connection.prepare_cached(write::OUTBOX_DELETE)?;
            for (uid, run) in &rows {
                statement.execute(params![uid.0.as_bytes(), run.0])?;
            }
            Ok(())
        };
        self.writer.write("clearing the outbox", work).await
    }

    async fn reject(&self, rejected: &[Rejected]) -> Result<(), Error> {
        let rejected = rejected.to_vec();
        let work = move |connection: &Connection, now| {
            rejected.iter().try_for_each(|rejected| reject(connection, rejected, now))
        };
        self.writer.write("recording rejected messages", work).await
    }

    async fn rejected_bytes(&self, namespaces: &[Namespace]) -> Result<Vec<u64>, Error> {
        let namespaces = namespaces.to_vec();
        let work = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(REJECTED_BYTES)?;
            let mut of = |namespace: &Namespace| {
                let params = params![namespace.as_str(), BODY_BYTES_MAX as i64, RECORD_BYTES as i64];
                Ok(statement.query_row(params, |row| row.get::<_, i64>(0))?.try_into().unwrap_or(0))
            };
            namespaces.iter().map(&mut of).collect()
        };
        self.reader.read("measuring rejected records", work).await
    }

    async fn sweep(&self, limit: u32) -> Result<u64, Error> {
        let work = move |connection: &Connection, _| {
            let count = connection.prepare_cached(SWEEP)?.execute([limit])? as u64;
            if count < u64::from(limit) {
                connection.prepare_cached(SWEPT)?.execute([])?;
            }
            Ok(count)
        };
        self.writer.write("removing journals", work).await
    }

    async fn clean(&self, limit: u32) -> Result<u64, Error> {
        let work = move |connection: &Connection, now: Timestamp| {
            let mut count = 0;
            for (age, statement) in CLEAN {
                let deleted =
                    connection.prepare_cached(statement)?.execute(params![now.minus(age).0, limit])?;
                count += deleted as u64;
            }
            Ok(count)
        };
        self.writer.write("cleaning", work).await
    }
}

fn outbox(connection: &Connection, before: Timestamp, limit: u32) -> fault::Result<Vec<OutboxRow>> {
    let mut statement = connection.prepare_cached(OUTBOX)?;
    let mut found = statement.query(params![before.0, limit])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        rows.push(OutboxRow {
            uid: column::uid(row, 0)?,
            run: Run(row.get(1)?),
            routing_key: row.get(2)?,
            message_id: row.get(3)?,
            body: row.get(4)?,
        });
    }
    Ok(rows)
}

/// A message without an id cannot be told from its repetition, so each is recorded.
fn reject(connection: &Connection, rejected: &Rejected, now: Timestamp) -> fault::Result<()> {
    let message = rejected.message.as_ref();
    if let (Some(message), Some((workflow, decided))) = (message, &rejected.decided) {
        connection.prepare_cached(DECISION)?.execute(params![
            rejected.namespace.as_str(),
            workflow.as_str(),
            message.app_id,
            message.message_id,
            now.0,
            decided.id.as_str(),
            answer::encode(&decided.answer),
        ])?;
    }
    connection.prepare_cached(REJECT)?.execute(params![
        now.0,
        rejected.namespace.as_str(),
        rejected.decided.as_ref().map(|(workflow, _)| workflow.as_str()),
        message.map(|message| &message.app_id),
        message.map(|message| &message.message_id),
        rejected.code,
        rejected.reason,
        rejected.headers.as_str(),
        rejected.body_bytes as i64,
        rejected.body,
    ])?;
    Ok(())
}
