//! Live worker processes, and the leases that ended ones still hold.

use std::collections::HashMap;

use async_trait::async_trait;
use everstep_engine::{account::Kept, rows::Subject};
use everstep_protocol::{
    CoordinatorId, Epoch, Millis, Position, Run, SessionId, Timestamp,
    message::{OpenSession, Running},
    wire,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{SqliteStore, column, fault};
use crate::{Error, Heard, LeaseRow, Orphan, Session, Sessions};

const FIND: &str = "SELECT ended_at IS NOT NULL FROM session WHERE session = ?1";
const INSERT: &str =
    "INSERT INTO session (session, inbox, opened_at, heard_at, open) VALUES (?1, ?2, ?3, ?3, ?4)";
const HEARD: &str = "UPDATE session SET heard_at = ?2, inbox = ?3 WHERE session = ?1 AND ended_at IS NULL";
const HELD: &str = "SELECT lease.uid, subject, lease.epoch, run, position, reports
    , EXISTS (SELECT 1 FROM control WHERE control.uid = lease.uid AND paused_at IS NOT NULL)
    FROM lease CROSS JOIN instance ON instance.uid = lease.uid WHERE session = ?1";
const BEAT: &str = "INSERT INTO session_clock (one, open_since, last_beat_at, gap) VALUES (1, ?1, ?1, ?2)
    ON CONFLICT (one) DO UPDATE SET gap = excluded.gap, last_beat_at = excluded.last_beat_at,
    open_since = iif(excluded.last_beat_at - last_beat_at > excluded.gap * 1000, excluded.last_beat_at, open_since)";
const KEEP_PROGRESS: &str = "UPDATE session SET progress = ?2 WHERE session = ?1 AND ended_at IS NULL";
const KEPT_PROGRESS: &str = "SELECT progress FROM session WHERE session = ?1 AND progress IS NOT NULL";
const LIVE: &str =
    "SELECT inbox, open, opened_at, heard_at FROM session WHERE ended_at IS NULL ORDER BY session";
const SILENT: &str = "SELECT session FROM session, session_clock
    WHERE ended_at IS NULL AND heard_at <= ?1 AND open_since <= ?1 AND last_beat_at >= ?2 - 1000 * gap
    ORDER BY session";
const OBSERVED: &str = "SELECT 1 FROM session, session_clock
    WHERE session = ?1 AND ended_at IS NULL AND last_beat_at >= ?3 - 1000 * gap
    AND (open_since <= ?2 OR heard_at > open_since)";
const END: &str = "UPDATE session SET ended_at = ?2, counts = ?3 WHERE session = ?1 AND ended_at IS NULL";
const END_SILENT: &str = "UPDATE session SET ended_at = ?2, counts = 1
    WHERE session = ?1 AND ended_at IS NULL AND heard_at <= ?3 AND EXISTS (
        SELECT 1 FROM session_clock WHERE open_since <= ?3 AND last_beat_at >= ?2 - 1000 * gap)";
const END_UNREACHABLE: &str = "UPDATE session SET ended_at = ?2, counts = 1
    WHERE session = ?1 AND ended_at IS NULL AND inbox = ?4 AND EXISTS (
        SELECT 1 FROM session_clock WHERE last_beat_at >= ?2 - 1000 * gap
        AND (open_since <= ?3 OR session.heard_at > open_since))";
const HEARD_SINCE: &str = "SELECT 1 FROM session WHERE session = ?1 AND ended_at IS NULL AND heard_at > ?2";
const END_ALL: &str = "UPDATE session SET ended_at = ?1, counts = 1 WHERE ended_at IS NULL";
const ORPHANS: &str = "SELECT lease.uid, subject, epoch, inbox, open, counts
    FROM session CROSS JOIN lease ON lease.session = session.session
    WHERE ended_at IS NOT NULL LIMIT ?1";

#[async_trait]
impl Sessions for SqliteStore {
    async fn open_session(&self, open: &OpenSession) -> Result<bool, Error> {
        let open = open.clone();
        let work = move |connection: &Connection, now| register(connection, &open, now);
        self.writer.write("opening a session", work).await
    }

    async fn heard(&self, heard: &[Heard]) -> Result<Vec<Option<Vec<Kept>>>, Error> {
        let heard = heard.to_vec();
        let work = move |connection: &Connection, now: Timestamp| {
            let mut statement = connection.prepare_cached(HEARD)?;
            let mut held = connection.prepare_cached(HELD)?;
            let mut answers = Vec::with_capacity(heard.len());
            for one in &heard {
                let session = one.session.0.as_bytes();
                let lives = statement.execute(params![session, now.0, one.inbox])? == 1;
                answers.push(if lives { Some(leases(&mut held, one.session)?) } else { None });
            }
            Ok(answers)
        };
        self.writer.write("noting heartbeats", work).await
    }

    async fn beat(&self, _: CoordinatorId, gap: Millis) -> Result<(), Error> {
        let work = move |connection: &Connection, now: Timestamp| {
            connection.prepare_cached(BEAT)?.execute([now.0, gap.as_u64() as i64])?;
            Ok(())
        };
        self.writer.write("noting a coordinator's heartbeat", work).await
    }

    async fn sessions(&self) -> Result<Vec<Session>, Error> {
        self.reader.read("listing sessions", live).await
    }

    async fn silent(&self, lease: Millis) -> Result<Vec<SessionId>, Error> {
        let now = self.clock.now();
        let work = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(SILENT)?;
            let mut rows = statement.query([now.minus(lease).0, now.0])?;
            let mut sessions = Vec::new();
            while let Some(row) = rows.next()? {
                sessions.push(column::session(row, 0)?);
            }
            Ok(sessions)
        };
        self.reader.read("looking for silent sessions", work).await
    }

    async fn observed(&self, sessions: &[SessionId], lease: Millis) -> Result<Vec<SessionId>, Error> {
        let (now, sessions) = (self.clock.now(), sessions.to_vec());
        let work = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(OBSERVED)?;
            let mut observed = Vec::new();
            for session in sessions {
                if statement.exists(params![session.0.as_bytes(), now.minus(lease).0, now.0])? {
                    observed.push(session);
                }
            }
            observed.sort_unstable();
            Ok(observed)
        };
        self.reader.read("looking for sessions that may end early", work).await
    }

    async fn heard_since(&self, sessions: &[SessionId], since: Timestamp) -> Result<Vec<SessionId>, Error> {
        let sessions = sessions.to_vec();
        let work = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(HEARD_SINCE)?;
            let mut heard = Vec::new();
            for session in sessions {
                if statement.exists(params![session.0.as_bytes(), since.0])? {
                    heard.push(session);
                }
            }
            heard.sort_unstable();
            Ok(heard)
        };
        self.reader.read("looking for sessions that were heard", work).await
    }

    async fn end_silent(&self, session: SessionId, lease: Millis) -> Result<bool, Error> {
        let work = move |connection: &Connection, now: Timestamp| {
            let mut statement = connection.prepare_cached(END_SILENT)?;
            Ok(statement.execute(params![session.0.as_bytes(), now.0, now.minus(lease).0])? == 1)
        };
        self.writer.write("ending a session", work).await
    }

    async fn end_unreachable(&self, session: SessionId, inbox: &str, lease: Millis) -> Result<bool, Error> {
        let inbox = inbox.to_owned();
        let work = move |connection: &Connection, now: Timestamp| {
            let mut statement = connection.prepare_cached(END_UNREACHABLE)?;
            Ok(statement.execute(params![session.0.as_bytes(), now.0, now.minus(lease).0, inbox])? == 1)
        };
        self.writer.write("ending a session", work).await
    }

    async fn end_session(&self, session: SessionId, counts: bool) -> Result<(), Error> {
        let work = move |connection: &Connection, now: Timestamp| {
            connection.prepare_cached(END)?.execute(params![session.0.as_bytes(), now.0, counts])?;
            Ok(())
        };
        self.writer.write("ending a session", work).await
    }

    async fn keep_progress(&self, session: SessionId, progress: &[Running]) -> Result<(), Error> {
        let packed = wire::encode(&progress);
        let work = move |connection: &Connection, _: Timestamp| {
            connection.prepare_cached(KEEP_PROGRESS)?.execute(params![session.0.as_bytes(), &packed[..]])?;
            Ok(())
        };
        self.writer.write("keeping the progress of attempts", work).await
    }

    async fn kept_progress(&self, sessions: &[SessionId]) -> Result<HashMap<SessionId, Vec<Running>>, Error> {
        let sessions = sessions.to_vec();
        let work = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(KEPT_PROGRESS)?;
            let mut kept = HashMap::new();
            for session in sessions {
                let mut rows = statement.query([session.0.as_bytes()])?;
                if let Some(row) = rows.next()? {
                    kept.insert(session, column::packed(row, 0, "progress of attempts")?);
                }
            }
            Ok(kept)
        };
        self.reader.read("reading the progress of attempts", work).await
    }

    async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>, Error> {
        let work = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(ORPHANS)?;
            let mut rows = statement.query([limit])?;
            let mut orphans = Vec::new();
            while let Some(row) = rows.next()? {
                orphans.push(Orphan { lease: lease(row)?, open: open(row, 3)?, counts: row.get(5)? });
            }
            Ok(orphans)
        };
        self.reader.read("looking for orphaned leases", work).await
    }

    async fn end_all_sessions(&self) -> Result<(), Error> {
        self.writer.write("ending all sessions", end_all).await
    }
}

/// Ends all sessions as lost with their process: a step that kills the process must use up its attempts (rule W11).
pub(super) fn end_all(connection: &Connection, now: Timestamp) -> fault::Result<()> {
    connection.execute(END_ALL, [now.0])?;
    Ok(())
}

fn register(connection: &Connection, open: &OpenSession, now: Timestamp) -> fault::Result<bool> {
    let session = open.session.0.as_bytes();
    let mut find = connection.prepare_cached(FIND)?;
    let ended: Option<bool> = find.query_row([session], |row| row.get(0)).optional()?;
    match ended {
        Some(true) => return Ok(false),
        Some(false) => connection.prepare_cached(HEARD)?.execute(params![session, now.0, open.inbox])?,
        None => {
            let packed = wire::encode(open);
            connection.prepare_cached(INSERT)?.execute(params![session, open.inbox, now.0, &packed[..]])?
        }
    };
    Ok(true)
}

/// Live sessions.
pub(super) fn live(connection: &Connection) -> fault::Result<Vec<Session>> {
    let mut statement = connection.prepare_cached(LIVE)?;
    let mut rows = statement.query([])?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next()? {
        let (opened_at, heard_at) = (column::time(row, 2)?, column::time(row, 3)?);
        sessions.push(Session { open: open(row, 0)?, opened_at, heard_at });
    }
    Ok(sessions)
}

/// How a session presented itself, with its current inbox, in two columns from this one on.
pub(super) fn open(row: &Row<'_>, column: usize) -> fault::Result<OpenSession> {
    let mut open: OpenSession = column::packed(row, column + 1, "session")?;
    open.inbox = row.get(column)?;
    Ok(open)
}

fn leases(statement: &mut rusqlite::Statement<'_>, session: SessionId) -> fault::Result<Vec<Kept>> {
    let mut rows = statement.query([session.0.as_bytes()])?;
    let mut leases = Vec::new();
    while let Some(row) = rows.next()? {
        let LeaseRow { uid, subject, epoch } = lease(row)?;
        let (run, position, reports) = (row.get(3)?, column::count(row, 4)?, column::count(row, 5)?);
        let paused = row.get(6)?;
        leases.push(Kept {
            uid,
            subject,
            epoch,
            run: Run(run),
            position: Position(position),
            reports,
            paused,
        });
    }
    Ok(leases)
}

fn lease(row: &Row<'_>) -> fault::Result<LeaseRow> {
    Ok(LeaseRow {
        uid: column::uid(row, 0)?,
        subject: Subject(row.get(1)?),
        epoch: Epoch(column::count(row, 2)?),
    })
}
