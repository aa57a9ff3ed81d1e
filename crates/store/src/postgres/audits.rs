//! The auditor's walk, and its records.

use async_trait::async_trait;
use deadpool_postgres::Object;
use everstep_engine::{
    breach::{Breach, BreachKind, Calls, Tally},
    rows::Subject,
    start::NameKey,
};
use everstep_protocol::{CallHash, CoordinatorId, InstanceUid, Namespace, Run, SessionId, Timestamp, wire};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    PostgresStore,
    fault::Fault,
    migrate,
    rows::{clean, hash, micros, name, time, uid},
    transaction::{Open, over},
    trip::params,
};
use crate::{
    Audits, BreachRow, BreachView, Checkup, Error, Present, Suspect, Walked,
    audits::{CHILD_PATIENCE, OVERDUE_COUNTED, Said, checked, unknown_build},
};

const SUSPECTS: &str = include_str!("sql/suspects.sql");
/// Of the instances $1, whose heads are locked: how many waits there are, and whether each owns a token.
/// Indexes: `wait_pkey`, `hook_by_instance`.
pub(super) const TALLIES: &str = "SELECT k.id, (SELECT count(*) FROM wait w WHERE w.instance = k.id),
        coalesce((SELECT true FROM hook h WHERE h.instance = k.id AND NOT h.ended LIMIT 1), false)
    FROM unnest($1::uuid[]) AS k (id)";
const KEEP: &str = "INSERT INTO breach (id, at, instance, run, kind, namespace, workflow, name, message)
    SELECT k.id, everstep_clock(), k.instance, k.run, k.kind, k.namespace, k.workflow, k.name, k.message
    FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
        AS k (id, instance, run, kind, namespace, workflow, name, message)";
/// By the index `breach_by_namespace`.
const LIST: &str = "SELECT at, instance, namespace, workflow, name, run, kind, message FROM breach
    WHERE namespace = $1::text ORDER BY at DESC, id DESC LIMIT $2::bigint";
const PRESENT: &str = "INSERT INTO coordinator (id, heard_at, version, clock_offset)
    VALUES ($1::uuid, everstep_clock(), $2::text, $3::bigint)
    ON CONFLICT (id) DO UPDATE SET heard_at = excluded.heard_at, version = excluded.version, clock_offset = excluded.clock_offset
    RETURNING heard_at";
const CHECKUP: &str = include_str!("sql/checkup.sql");
/// Coordinators that were there in the last hour.
const COORDINATORS: &str = "SELECT id, version, heard_at, clock_offset FROM coordinator
    WHERE heard_at > (SELECT everstep_clock()) - 3600000000 ORDER BY id";
/// A page may take longer than what holds locks.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SET LOCAL statement_timeout = '30s'";

/// The auditor's page.
#[doc(hidden)]
#[must_use]
pub const fn suspects_page() -> &'static str {
    SUSPECTS
}

#[async_trait]
impl Audits for PostgresStore {
    async fn suspects(&self, after: Option<InstanceUid>, limit: u32) -> Result<Walked, Error> {
        const DOING: &str = "looking for breaches";
        let client = Open::new(self.client(DOING).await?);
        let walked = page(client.client(), after, limit).await;
        over(client, walked).await.map_err(|fault| fault.into_error(DOING))
    }

    async fn keep_breaches(&self, found: &[BreachRow]) -> Result<(), Error> {
        if found.is_empty() {
            return Ok(());
        }
        let params = params![
            found.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>(),
            found.iter().map(|row| row.uid.0).collect::<Vec<_>>(),
            found.iter().map(|row| row.run.0 as i32).collect::<Vec<_>>(),
            found.iter().map(|row| row.kind.word()).collect::<Vec<_>>(),
            found.iter().map(|row| row.name.namespace.as_str()).collect::<Vec<_>>(),
            found.iter().map(|row| row.name.workflow.as_str()).collect::<Vec<_>>(),
            found.iter().map(|row| row.name.id.as_str()).collect::<Vec<_>>(),
            found.iter().map(|row| clean(&row.message)).collect::<Vec<_>>(),
        ];
        self.execute("recording breaches", KEEP, params).await?;
        Ok(())
    }

    async fn present(&self, present: &Present) -> Result<Timestamp, Error> {
        let params = params![present.id.0, clean(&present.version).into_owned(), present.clock_offset];
        let heard = self.read("noting a coordinator", PRESENT, params, |row| time(row, 0)).await?;
        Ok(heard.first().copied().unwrap_or_default())
    }

    async fn checkup(&self) -> Result<Checkup, Error> {
        const DOING: &str = "looking how the installation is";
        let params = params![i64::from(OVERDUE_COUNTED)];
        let facts: Vec<Said> = self.read(DOING, CHECKUP, params, said).await?;
        let coordinators = self.read(DOING, COORDINATORS, params![], coordinator).await?;
        Ok(Checkup { coordinators, schema_known: migrate::known(), ..checked(facts) })
    }

    async fn breaches(&self, namespace: &Namespace, limit: u32) -> Result<Vec<BreachView>, Error> {
        self.read("listing breaches", LIST, params![namespace.as_str(), i64::from(limit)], view).await
    }
}

fn said(row: &Row) -> Result<Said, Fault> {
    Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?))
}

fn coordinator(row: &Row) -> Result<Present, Fault> {
    let (id, version) = (CoordinatorId(row.try_get(0)?), row.try_get(1)?);
    Ok(Present { id, version, heard_at: time(row, 2)?, clock_offset: row.try_get(3)? })
}

async fn page(client: &Object, after: Option<InstanceUid>, limit: u32) -> Result<Walked, Fault> {
    client.batch_execute(BEGIN).await?;
    let after = after.map_or(Uuid::nil(), |uid| uid.0);
    let found =
        super::rows_of(client, SUSPECTS, params![after, i64::from(limit), micros(CHILD_PATIENCE)]).await?;
    let mut walked = Walked::default();
    for row in &found {
        match row.try_get::<_, i16>(0)? {
            0 => {
                let is_full = row.try_get::<_, i32>(5)? as u32 >= limit;
                walked.next = row.try_get::<_, Option<Uuid>>(1)?.filter(|_| is_full).map(InstanceUid);
                walked.open = row.try_get::<_, i64>(12)? as u64;
            }
            kind => walked.suspects.push(suspect(row, kind)?),
        }
    }
    Ok(walked)
}

fn suspect(row: &Row, kind: i16) -> Result<Suspect, Fault> {
    let run = Run(row.try_get::<_, i32>(5)? as u32);
    let call = || hash(row, 7).map(CallHash);
    let breach = match kind {
        1 => Breach::Idle(Calls::of(run)),
        2 => Breach::WaitsMiscounted(Calls::of(run)),
        3 => Breach::SessionUnknown {
            session: SessionId(row.try_get(6)?),
            subject: Subject(hash(row, 7)?),
            build: unknown_build().map_err(Fault::corrupt)?,
        },
        4 => Breach::StepUnoffered(call()?),
        5 => Breach::StepMissing(call()?),
        6 => {
            let awaited = wire::decode("awaited events", row.try_get(8)?).map_err(Fault::corrupt)?;
            Breach::EventUnheard { call: call()?, awaited }
        }
        7 => Breach::HookMissing(call()?),
        8 => {
            let child = NameKey { namespace: name(row, 9)?, workflow: name(row, 10)?, id: name(row, 11)? };
            Breach::ChildUnwatched { call: call()?, child }
        }
        other => return Err(Fault::corrupt(format!("unknown kind of breach {other}"))),
    };
    let name = NameKey { namespace: name(row, 2)?, workflow: name(row, 3)?, id: name(row, 4)? };
    Ok(Suspect { uid: uid(row, 1)?, name, run, breach })
}

/// What is counted of an instance; how many waits its head notes, whoever has loaded that adds.
pub(super) fn tally(
    row: &Row,
    noted: impl Fn(InstanceUid) -> Option<u32>,
) -> Result<Option<(InstanceUid, Tally)>, Fault> {
    let uid = uid(row, 0)?;
    let waits = u32::try_from(row.try_get::<_, i64>(1)?).map_err(Fault::corrupt)?;
    let has_hook = row.try_get(2)?;
    Ok(noted(uid).map(|noted| (uid, Tally { waits, noted, has_hook })))
}

fn view(row: &Row) -> Result<BreachView, Fault> {
    let word: &str = row.try_get(6)?;
    let kind =
        BreachKind::parse(word).ok_or_else(|| Fault::corrupt(format!("unknown kind of breach {word:?}")))?;
    let breach = BreachRow {
        uid: uid(row, 1)?,
        name: NameKey { namespace: name(row, 2)?, workflow: name(row, 3)?, id: name(row, 4)? },
        run: Run(row.try_get::<_, i32>(5)? as u32),
        kind,
        message: row.try_get(7)?,
    };
    Ok(BreachView { at: time(row, 0)?, breach })
}
