//! The auditor's walk, and its records.

use async_trait::async_trait;
use everstep_engine::{
    breach::{Breach, BreachKind, Calls, Tally},
    rows::{Needs, Subject},
    start::NameKey,
};
use everstep_protocol::{CoordinatorId, InstanceUid, Millis, Namespace, Run, Timestamp};
use rusqlite::{Connection, Row, params};

use super::{
    SqliteStore, column,
    fault::{Fault, Result},
};
use crate::{
    Audits, BreachRow, BreachView, Checkup, Error, Present, Suspect, Walked,
    audits::{CHILD_PATIENCE, OVERDUE_COUNTED, checked, unknown_build},
};

/// By the index `instance_open`.
const PAGE: &str = "SELECT uid, namespace, workflow, id, run, waits, (SELECT count(*) FROM wait WHERE wait.uid = instance.uid)
    FROM instance WHERE status = 0 AND uid > ?1 ORDER BY uid LIMIT ?2";
const REASON: &str = "SELECT EXISTS (SELECT 1 FROM lease WHERE uid = ?1 AND subject = zeroblob(16))
    OR EXISTS (SELECT 1 FROM ready WHERE uid = ?1 AND subject = zeroblob(16))
    OR EXISTS (SELECT 1 FROM attention WHERE uid = ?1)
    OR EXISTS (SELECT 1 FROM control WHERE uid = ?1 AND paused_at IS NOT NULL)";
const SESSIONS: &str = "SELECT session, subject FROM lease WHERE uid = ?1
    AND NOT EXISTS (SELECT 1 FROM session WHERE session.session = lease.session)";
/// Each wait with which something is wrong, by the kind of the breach: 4 to 8, as in the statement for PostgreSQL.
const WAITS: &str = "SELECT 4, w.call, NULL, NULL, NULL, NULL FROM wait w
        WHERE w.uid = ?1 AND w.kind = 3 AND w.due_at IS NULL
        AND EXISTS (SELECT 1 FROM remote_step s WHERE s.uid = w.uid AND s.call = w.call)
        AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.uid = w.uid AND l.subject = w.call)
        AND NOT EXISTS (SELECT 1 FROM ready r WHERE r.uid = w.uid AND r.subject = w.call)
    UNION ALL
    SELECT 5, w.call, NULL, NULL, NULL, NULL FROM wait w
        WHERE w.uid = ?1 AND w.kind = 3
        AND NOT EXISTS (SELECT 1 FROM remote_step s WHERE s.uid = w.uid AND s.call = w.call)
        AND NOT EXISTS (SELECT 1 FROM attention a WHERE a.uid = w.uid)
    UNION ALL
    SELECT 6, w.call, w.awaited, NULL, NULL, NULL FROM wait w
        WHERE w.uid = ?1 AND w.kind IN (4, 6)
        AND (NOT EXISTS (SELECT 1 FROM awaited a WHERE a.uid = w.uid AND a.call = w.call)
            OR EXISTS (SELECT 1 FROM awaited a JOIN event e ON e.uid = a.uid AND e.type = a.type AND e.unread = 1
                WHERE a.uid = w.uid AND a.call = w.call AND (a.key = '' OR a.key = e.key)))
    UNION ALL
    SELECT 7, w.call, NULL, NULL, NULL, NULL FROM wait w
        WHERE w.uid = ?1 AND w.kind = 6 AND NOT EXISTS (SELECT 1 FROM hook h WHERE h.uid = w.uid AND h.ended = 0)
    UNION ALL
    SELECT 8, w.call, NULL, c.namespace, c.workflow, c.name FROM wait w
        JOIN child c ON c.uid = w.uid AND c.run = ?2 AND c.call = w.call
        WHERE w.uid = ?1 AND w.kind = 5 AND w.call_kind = 'child' AND w.since < ?3
        AND NOT EXISTS (SELECT 1 FROM instance_name n
            JOIN watcher t ON t.uid = n.uid AND t.caller = w.uid AND t.run = ?2 AND t.call = w.call
            WHERE n.namespace = c.namespace AND n.workflow = c.workflow AND n.id = c.name)
        AND NOT EXISTS (SELECT 1 FROM mailbox m WHERE m.caller = w.uid AND m.run = ?2 AND m.call = w.call)";
const TALLY: &str = "SELECT (SELECT count(*) FROM wait WHERE uid = ?1),
    EXISTS (SELECT 1 FROM hook WHERE uid = ?1 AND ended = 0), waits FROM instance WHERE uid = ?1";
const KEEP: &str = "INSERT INTO breach (at, uid, run, kind, namespace, workflow, id, message)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const LIST: &str = "SELECT at, uid, namespace, workflow, id, run, kind, message FROM breach
    WHERE namespace = ?1 ORDER BY number DESC LIMIT ?2";

const PRESENT: &str =
    "INSERT INTO coordinator (coordinator, heard_at, version, clock_offset) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (coordinator) DO UPDATE SET heard_at = excluded.heard_at, version = excluded.version,
    clock_offset = excluded.clock_offset";
const COORDINATORS: &str =
    "SELECT coordinator, version, heard_at, clock_offset FROM coordinator WHERE heard_at > ?1
    ORDER BY coordinator";
/// As in the statement for PostgreSQL: each line a word, a name and two numbers.
const CHECKUP: &str = "SELECT 'overdue', NULL, count(*), min(due_at) FROM (
        SELECT due_at FROM wait WHERE due_at <= ?1
        AND NOT EXISTS (SELECT 1 FROM control WHERE control.uid = wait.uid AND paused_at IS NOT NULL)
        ORDER BY due_at LIMIT ?2)
    UNION ALL
    SELECT 'letter', NULL, (SELECT written_at FROM mailbox ORDER BY number LIMIT 1), NULL
    UNION ALL
    SELECT 'outbox', NULL, (SELECT min(at) FROM outbox), NULL
    UNION ALL
    SELECT 'duty', name, until_at, NULL FROM duty
    UNION ALL
    SELECT 'breach', kind, count(*), NULL FROM (SELECT kind FROM breach WHERE at > ?3 ORDER BY number DESC LIMIT 1000)
        GROUP BY kind
    UNION ALL
    SELECT 'rejected', code, count(*), NULL FROM (SELECT code FROM rejected WHERE at > ?4 ORDER BY number DESC LIMIT 1000)
        GROUP BY code";

#[async_trait]
impl Audits for SqliteStore {
    async fn suspects(&self, after: Option<InstanceUid>, limit: u32) -> std::result::Result<Walked, Error> {
        let now = self.clock.now();
        let work = move |connection: &Connection| page(connection, after, limit, now);
        self.viewer.read("looking for breaches", work).await
    }

    async fn keep_breaches(&self, found: &[BreachRow]) -> std::result::Result<(), Error> {
        let found = found.to_vec();
        let work = move |connection: &Connection, now: Timestamp| {
            let mut statement = connection.prepare_cached(KEEP)?;
            for row in &found {
                statement.execute(params![
                    now.0,
                    row.uid.0.as_bytes(),
                    row.run.0,
                    row.kind.word(),
                    row.name.namespace.as_str(),
                    row.name.workflow.as_str(),
                    row.name.id.as_str(),
                    row.message,
                ])?;
            }
            Ok(())
        };
        self.writer.write("recording breaches", work).await
    }

    async fn present(&self, present: &Present) -> std::result::Result<Timestamp, Error> {
        let present = present.clone();
        let work = move |connection: &Connection, now: Timestamp| {
            let Present { id, version, clock_offset, .. } = &present;
            let params = params![id.0.as_bytes(), now.0, version, clock_offset];
            connection.prepare_cached(PRESENT)?.execute(params)?;
            Ok(now)
        };
        self.writer.write("noting a coordinator", work).await
    }

    async fn checkup(&self) -> std::result::Result<Checkup, Error> {
        let now = self.clock.now();
        self.viewer.read("looking how the installation is", move |connection| checkup(connection, now)).await
    }

    async fn breaches(
        &self,
        namespace: &Namespace,
        limit: u32,
    ) -> std::result::Result<Vec<BreachView>, Error> {
        let namespace = namespace.clone();
        let work = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(LIST)?;
            let mut rows = statement.query(params![namespace.as_str(), limit])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(view(row)?);
            }
            Ok(found)
        };
        self.reader.read("listing breaches", work).await
    }
}

fn checkup(connection: &Connection, now: Timestamp) -> Result<Checkup> {
    let ago = |hours: u64| now.minus(Millis::from_secs(hours * 3_600)).0;
    let mut statement = connection.prepare_cached(CHECKUP)?;
    let mut rows = statement.query(params![now.0, OVERDUE_COUNTED, ago(24), ago(1)])?;
    let mut lines = Vec::new();
    while let Some(row) = rows.next()? {
        lines.push((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    }
    let mut statement = connection.prepare_cached(COORDINATORS)?;
    let mut rows = statement.query([ago(1)])?;
    let mut coordinators = Vec::new();
    while let Some(row) = rows.next()? {
        let id = CoordinatorId(uuid::Uuid::from_bytes(row.get(0)?));
        let heard_at = column::time(row, 2)?;
        coordinators.push(Present { id, version: row.get(1)?, heard_at, clock_offset: row.get(3)? });
    }
    let schema = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let schema_known = super::schema::known();
    Ok(Checkup { now, schema, schema_known, coordinators, ..checked(lines) })
}

struct Open {
    uid: InstanceUid,
    name: NameKey,
    run: Run,
    noted: i64,
    counted: i64,
}

fn page(connection: &Connection, after: Option<InstanceUid>, limit: u32, now: Timestamp) -> Result<Walked> {
    let after = after.map_or([0; 16], |uid| *uid.0.as_bytes());
    let mut statement = connection.prepare_cached(PAGE)?;
    let mut rows = statement.query(params![after, limit])?;
    let mut walked = Walked::default();
    let mut last = None;
    while let Some(row) = rows.next()? {
        let name = NameKey {
            namespace: column::name(row, 1)?,
            workflow: column::name(row, 2)?,
            id: column::name(row, 3)?,
        };
        let (uid, run) = (column::uid(row, 0)?, Run(row.get(4)?));
        let open = Open { uid, name, run, noted: row.get(5)?, counted: row.get(6)? };
        walked.open += 1;
        last = Some(uid);
        look(connection, &open, now, &mut walked.suspects)?;
    }
    walked.next = last.filter(|_| walked.open >= u64::from(limit));
    Ok(walked)
}

fn look(connection: &Connection, open: &Open, now: Timestamp, found: &mut Vec<Suspect>) -> Result<()> {
    let mut suspect = |breach| {
        let Open { uid, name, run, .. } = open;
        found.push(Suspect { uid: *uid, name: name.clone(), run: *run, breach });
    };
    let uid = open.uid.0.as_bytes();
    if open.noted == 0 && open.counted == 0 {
        let has_reason: bool = connection.prepare_cached(REASON)?.query_row([uid], |row| row.get(0))?;
        if !has_reason {
            suspect(Breach::Idle(Calls::of(open.run)));
        }
    }
    if open.noted != open.counted {
        suspect(Breach::WaitsMiscounted(Calls::of(open.run)));
    }
    let mut statement = connection.prepare_cached(SESSIONS)?;
    let mut rows = statement.query([uid])?;
    while let Some(row) = rows.next()? {
        let build = unknown_build().map_err(|error| Fault::corrupt("naming a build", error))?;
        let (session, subject) = (column::session(row, 0)?, Subject(column::hash(row, 1)?.0));
        suspect(Breach::SessionUnknown { session, subject, build });
    }
    if open.counted > 0 {
        let before = now.minus(CHILD_PATIENCE).0;
        let mut statement = connection.prepare_cached(WAITS)?;
        let mut rows = statement.query(params![uid, open.run.0, before])?;
        while let Some(row) = rows.next()? {
            suspect(of_wait(row)?);
        }
    }
    Ok(())
}

fn of_wait(row: &Row<'_>) -> Result<Breach> {
    let call = column::hash(row, 1)?;
    Ok(match row.get::<_, i64>(0)? {
        4 => Breach::StepUnoffered(call),
        5 => Breach::StepMissing(call),
        6 => Breach::EventUnheard { call, awaited: column::packed(row, 2, "awaited events")? },
        7 => Breach::HookMissing(call),
        _ => Breach::ChildUnwatched {
            call,
            child: NameKey {
                namespace: column::name(row, 3)?,
                workflow: column::name(row, 4)?,
                id: column::name(row, 5)?,
            },
        },
    })
}

/// Counts the rows of the instances for which that is asked.
pub(super) fn tallies(
    connection: &Connection,
    needs: &Needs,
    rows: &mut everstep_engine::Rows,
) -> Result<()> {
    for uid in &needs.tallies {
        let mut statement = connection.prepare_cached(TALLY)?;
        let mut found = statement.query([uid.0.as_bytes()])?;
        if let Some(row) = found.next()? {
            let tally = Tally { waits: row.get(0)?, has_hook: row.get(1)?, noted: row.get(2)? };
            rows.tallies.insert(*uid, tally);
        }
    }
    Ok(())
}

fn view(row: &Row<'_>) -> Result<BreachView> {
    let word = column::text(row, 6)?;
    let kind = BreachKind::parse(word);
    let kind = kind.ok_or_else(|| Fault::corrupt("reading a breach", format!("unknown kind {word:?}")))?;
    let name = NameKey {
        namespace: column::name(row, 2)?,
        workflow: column::name(row, 3)?,
        id: column::name(row, 4)?,
    };
    let (uid, run, message) = (column::uid(row, 1)?, Run(row.get(5)?), row.get(7)?);
    Ok(BreachView { at: column::time(row, 0)?, breach: BreachRow { uid, name, run, kind, message } })
}
