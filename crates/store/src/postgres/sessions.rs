//! Live worker processes, their leases, and the way's own heartbeat.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use deadpool_postgres::Object;
use everstep_engine::{account::Kept, rows::Subject};
use everstep_protocol::{
    CoordinatorId, Epoch, Millis, Position, Run, SessionId, Timestamp,
    message::{OpenSession, Running},
    wire,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    PostgresStore,
    fault::Fault,
    rows::{Raw, clean, hash, micros, name, time, uid},
    rows_of, statements as sql,
    trip::{Trip, params},
};
use crate::{Error, Heard, LeaseRow, Orphan, Session, Sessions};

const OPEN: &str = include_str!("sql/session_open.sql");
const HEARD: &str = include_str!("sql/session_heard.sql");
const BEAT: &str = include_str!("sql/session_beat.sql");
const SILENT: &str = include_str!("sql/session_silent.sql");
const ORPHANS: &str = include_str!("sql/session_orphans.sql");
const OBSERVED: &str = include_str!("sql/session_observed.sql");
/// The session's row is locked only against its deletion, and only by the first of them.
const KEEP_PROGRESS: &str = "INSERT INTO session_progress (session, body)
    SELECT id, $2::bytea FROM session WHERE id = $1::uuid AND ended_at IS NULL
    ON CONFLICT (session) DO UPDATE SET body = excluded.body";
const KEPT_PROGRESS: &str = "SELECT session, body FROM session_progress WHERE session = ANY($1::uuid[])";
const LIVE: &str = "SELECT * FROM session WHERE ended_at IS NULL ORDER BY opened_at, id";
const END: &str = "UPDATE session SET ended_at = everstep_clock(), counts = $2::boolean
    WHERE id = $1::uuid AND ended_at IS NULL";
const END_SILENT: &str = include_str!("sql/session_end_silent.sql");
const END_UNREACHABLE: &str = include_str!("sql/session_end_unreachable.sql");
const HEARD_SINCE: &str = "SELECT id FROM session
    WHERE id = ANY($1::uuid[]) AND ended_at IS NULL AND heard_at > $2::bigint ORDER BY id";
const END_ALL: &str = "UPDATE session SET ended_at = everstep_clock(), counts = true WHERE ended_at IS NULL";

#[async_trait]
impl Sessions for PostgresStore {
    async fn open_session(&self, open: &OpenSession) -> Result<bool, Error> {
        let params = params![
            open.session.0,
            open.namespace.as_str(),
            texts(&open.workflows),
            texts(&open.pools),
            texts(&open.functions),
            open.build.as_str(),
            clean(&open.inbox),
            i64::from(open.slots),
            i64::from(open.instances),
            clean(&open.host),
            texts(&open.pinned),
        ];
        Ok(self.execute("opening a session", OPEN, params).await? == 1)
    }

    async fn heard(&self, heard: &[Heard]) -> Result<Vec<Option<Vec<Kept>>>, Error> {
        const DOING: &str = "noting heartbeats";
        if heard.is_empty() {
            return Ok(Vec::new());
        }
        let client = self.client(DOING).await?;
        let noted = note_heard(&client, heard).await;
        let (live, mut leases) = noted.map_err(|fault| fault.into_error(DOING))?;
        let mut answers = Vec::with_capacity(heard.len());
        for heard in heard {
            let session = heard.session.0;
            answers
                .push(live.contains(&session).then(|| leases.get_mut(&session).cloned().unwrap_or_default()));
        }
        Ok(answers)
    }

    async fn beat(&self, coordinator: CoordinatorId, gap: Millis) -> Result<(), Error> {
        self.execute("noting the coordinators' heartbeat", BEAT, params![coordinator.0, micros(gap)]).await?;
        Ok(())
    }

    async fn sessions(&self) -> Result<Vec<Session>, Error> {
        self.read("reading sessions", LIVE, params![], |row| {
            Ok(Session { open: open(row, 0)?, opened_at: time(row, 1)?, heard_at: time(row, 2)? })
        })
        .await
    }

    async fn silent(&self, lease: Millis) -> Result<Vec<SessionId>, Error> {
        self.read("looking for silent sessions", SILENT, params![micros(lease)], |row| {
            Ok(SessionId(row.try_get(0)?))
        })
        .await
    }

    async fn observed(&self, sessions: &[SessionId], lease: Millis) -> Result<Vec<SessionId>, Error> {
        let ids: Vec<Uuid> = sessions.iter().map(|session| session.0).collect();
        let doing = "looking for sessions that may end early";
        self.read(doing, OBSERVED, params![ids, micros(lease)], |row| Ok(SessionId(row.try_get(0)?))).await
    }

    async fn heard_since(&self, sessions: &[SessionId], since: Timestamp) -> Result<Vec<SessionId>, Error> {
        let ids: Vec<Uuid> = sessions.iter().map(|session| session.0).collect();
        let doing = "looking for sessions that were heard";
        self.read(doing, HEARD_SINCE, params![ids, since.0], |row| Ok(SessionId(row.try_get(0)?))).await
    }

    async fn end_silent(&self, session: SessionId, lease: Millis) -> Result<bool, Error> {
        Ok(self.execute("ending a session", END_SILENT, params![session.0, micros(lease)]).await? == 1)
    }

    async fn end_unreachable(&self, session: SessionId, inbox: &str, lease: Millis) -> Result<bool, Error> {
        let params = params![session.0, clean(inbox), micros(lease)];
        Ok(self.execute("ending a session", END_UNREACHABLE, params).await? == 1)
    }

    async fn end_session(&self, session: SessionId, counts: bool) -> Result<(), Error> {
        self.execute("ending a session", END, params![session.0, counts]).await?;
        Ok(())
    }

    async fn keep_progress(&self, session: SessionId, progress: &[Running]) -> Result<(), Error> {
        let params = params![session.0, Raw(wire::encode(&progress))];
        self.execute("keeping the progress of attempts", KEEP_PROGRESS, params).await.map(drop)
    }

    async fn kept_progress(&self, sessions: &[SessionId]) -> Result<HashMap<SessionId, Vec<Running>>, Error> {
        let ids: Vec<_> = sessions.iter().map(|session| session.0).collect();
        let read = |row: &Row| {
            let body = row.try_get::<_, &[u8]>(1)?;
            let progress = wire::decode("progress of attempts", body).map_err(Fault::corrupt)?;
            Ok((SessionId(row.try_get(0)?), progress))
        };
        let kept = self.read("reading the progress of attempts", KEPT_PROGRESS, params![ids], read).await?;
        Ok(kept.into_iter().collect())
    }

    async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>, Error> {
        self.read("looking for leases of ended sessions", ORPHANS, params![i64::from(limit)], |row| {
            Ok(Orphan { lease: lease(row, 0, 1, 2)?, counts: row.try_get(3)?, open: open(row, 4)? })
        })
        .await
    }

    async fn end_all_sessions(&self) -> Result<(), Error> {
        self.execute("ending all sessions", END_ALL, params![]).await?;
        Ok(())
    }
}

/// The sessions that live, and the leases of each with what their heads say.
async fn note_heard(
    client: &deadpool_postgres::Object,
    heard: &[Heard],
) -> Result<(HashSet<Uuid>, HashMap<Uuid, Vec<Kept>>), Fault> {
    // Sorted, so that two coordinators lock them in one order; the last inbox of a session counts.
    let inboxes: std::collections::BTreeMap<Uuid, &str> =
        heard.iter().map(|heard| (heard.session.0, heard.inbox.as_str())).collect();
    let ids: Vec<Uuid> = inboxes.keys().copied().collect();
    let inboxes: Vec<_> = inboxes.values().map(|inbox| clean(inbox)).collect();
    let mut trip = Trip::new(client);
    trip.rows(HEARD, params![ids.clone(), inboxes]).await?;
    trip.rows(sql::SESSION_LEASES, params![ids]).await?;
    let answers = trip.run().await?;
    let mut live = HashSet::new();
    for row in &answers[0].rows {
        live.insert(row.try_get(0)?);
    }
    let mut leases: HashMap<Uuid, Vec<Kept>> = HashMap::new();
    for row in &answers[1].rows {
        let LeaseRow { uid, subject, epoch } = lease(row, 1, 2, 3)?;
        leases.entry(row.try_get(0)?).or_default().push(Kept {
            uid,
            subject,
            epoch,
            run: Run(row.try_get::<_, i32>(4)? as u32),
            position: Position(row.try_get::<_, i64>(5)? as u64),
            reports: row.try_get::<_, i64>(6)? as u64,
            paused: row.try_get(7)?,
        });
    }
    Ok((live, leases))
}

fn lease(row: &Row, instance: usize, subject: usize, epoch: usize) -> Result<LeaseRow, Fault> {
    Ok(LeaseRow {
        uid: uid(row, instance)?,
        subject: Subject(hash(row, subject)?),
        epoch: Epoch(row.try_get::<_, i64>(epoch)? as u64),
    })
}

/// A row of `session` that begins at this column.
fn open(row: &Row, at: usize) -> Result<OpenSession, Fault> {
    Ok(OpenSession {
        session: SessionId(row.try_get(at)?),
        slots: row.try_get::<_, i64>(at + 5)? as u32,
        instances: row.try_get::<_, i64>(at + 6)? as u32,
        namespace: name(row, at + 7)?,
        build: name(row, at + 8)?,
        inbox: row.try_get(at + 9)?,
        host: row.try_get(at + 10)?,
        workflows: names(row, at + 11)?,
        pinned: names(row, at + 12)?,
        pools: names(row, at + 13)?,
        functions: names(row, at + 14)?,
    })
}

fn names<'a, T>(row: &'a Row, at: usize) -> Result<Vec<T>, Fault>
where
    T: TryFrom<&'a str>,
    T::Error: std::fmt::Display,
{
    let texts: Vec<&str> = row.try_get(at)?;
    texts.into_iter().map(|text| T::try_from(text).map_err(Fault::corrupt)).collect()
}

fn texts<T: AsRef<str>>(names: &[T]) -> Vec<&str> {
    names.iter().map(AsRef::as_ref).collect()
}

/// A connection that takes no writes serves nobody any more.
fn given_up(client: Object, fault: Fault) -> Fault {
    if fault.is_read_only() {
        drop(Object::take(client));
    }
    fault
}

impl PostgresStore {
    /// One statement of its own that answers with a count.
    pub(super) async fn execute(
        &self,
        doing: &'static str,
        sql: &'static str,
        params: super::trip::Params<'_>,
    ) -> Result<u64, Error> {
        let client = self.client(doing).await?;
        let answered = {
            let mut trip = Trip::new(&client);
            match trip.execute(sql, params).await {
                Ok(()) => trip.run().await,
                Err(fault) => Err(fault),
            }
        };
        answered
            .map(|answers| answers.iter().map(|one| one.count).sum())
            .map_err(|fault| given_up(client, fault).into_error(doing))
    }

    /// One statement of its own that answers with rows.
    pub(super) async fn read<T>(
        &self,
        doing: &'static str,
        sql: &'static str,
        params: super::trip::Params<'_>,
        row: impl Fn(&Row) -> Result<T, Fault> + Send,
    ) -> Result<Vec<T>, Error> {
        let client = self.client(doing).await?;
        let rows = rows_of(&client, sql, params).await;
        rows.and_then(|rows| rows.iter().map(row).collect())
            .map_err(|fault| given_up(client, fault).into_error(doing))
    }
}
