//! After an older database was restored: nothing of the life that it has forgotten is believed.

use everstep_engine::{
    access::Asker,
    action::{Action, Target},
};
use everstep_protocol::{Incarnation, Scope};
use tokio_postgres::Client;

use super::{
    PostgresSettings,
    actions::{record, recorded},
    fault::Fault,
    migrate::{self, check},
};
use crate::{Error, ErrorKind};

const RESTORING: &str = "beginning a new life of a restored database";
const SETTLING: &str = "ending the questions of a restore";

/// Nobody takes a duty or is seen until this is over: a coordinator that begins is seen first, and reads the number of its life after that.
const CLOSE: &str = "LOCK TABLE duty, coordinator IN SHARE MODE";

/// Duties last for 3 s, and every coordinator is seen each 5 s: whoever renews that has this database open.
const COORDINATORS: &str = "SELECT count(*) FROM (
    SELECT coordinator FROM duty WHERE until_at > everstep_clock()
    UNION SELECT id FROM coordinator WHERE heard_at > everstep_clock() - 7000000) running";

/// The number is one that no other life can have had, also where the same backup is restored twice: it is not below the clock.
const RAISE: &str = "UPDATE installation
    SET incarnation = greatest(incarnation + 1, everstep_clock() / 1000000), restored_at = everstep_clock()
    RETURNING incarnation";

/// No session of before is one of now: its worker opens another, and what it held is free. Nobody is to blame for the loss.
const END_SESSIONS: &str =
    "UPDATE session SET ended_at = everstep_clock(), counts = false WHERE ended_at IS NULL";

/// Transactions of another server may be ahead of this one's counter, which would tell these ends only once it had come so far.
const REORDER_ENDS: &str = "UPDATE ended SET tx = pg_current_xact_id()::text::bigint
    WHERE tx > pg_current_xact_id()::text::bigint";

const RECORD: &str = concat!("WITH done AS (SELECT everstep_clock() AS at)", recorded!("$1"));

const OPEN: &str = "SELECT count(*) FROM instance WHERE status = 0";

/// What a restored database begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The number of its life.
    pub incarnation: Incarnation,
    /// Instances that are open.
    pub open: u64,
    /// Sessions that were ended.
    pub sessions: u64,
    /// Ends that another server's transactions had written.
    pub ends: u64,
}

/// Begins a new life of an older database that was restored, in one transaction: raises the incarnation, ends the sessions, and has steps
/// that are called at most once ask a person before an instance that is older than this calls them (rule L7), until
/// [`settled`] says that it is over.
///
/// Coordinators must be stopped before, and read this when they start. Repeating it is safe.
///
/// Errors: [`ErrorKind::InUse`] while a coordinator has the database open.
pub async fn restored(settings: impl Into<PostgresSettings>) -> Result<Restored, Error> {
    let mut client = open(&settings.into(), RESTORING).await?;
    begin(&mut client).await.map_err(|fault| fault.into_error(RESTORING))?.map_err(|coordinators| {
        let reason = format!(
            "coordinators that run with this database: {coordinators}; stop them first, and try again 7 s later"
        );
        Error::new(ErrorKind::InUse, RESTORING, reason)
    })
}

/// How many coordinators run, if some do: then nothing was done.
async fn begin(client: &mut Client) -> Result<Result<Restored, i64>, Fault> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(CLOSE).await?;
    let coordinators: i64 = transaction.query_one(COORDINATORS, &[]).await?.get(0);
    if coordinators > 0 {
        return Ok(Err(coordinators));
    }
    let incarnation: i64 = transaction.query_one(RAISE, &[]).await?.get(0);
    let sessions = transaction.execute(END_SESSIONS, &[]).await?;
    let ends = transaction.execute(REORDER_ENDS, &[]).await?;
    let action = Action::done(&Asker::command_line(), Scope::All, Target::Installation, "restored");
    transaction.execute(RECORD, &[&record(&action)]).await?;
    let open: i64 = transaction.query_one(OPEN, &[]).await?.get(0);
    transaction.commit().await?;
    Ok(Ok(Restored { incarnation: Incarnation(incarnation as u64), open: open as u64, sessions, ends }))
}

/// Ends the questions of a restore: whatever the history that was lost may have done is known by now. Answers with whether there was
/// a restore whose questions were not over. Coordinators read it when they start.
pub async fn settled(settings: impl Into<PostgresSettings>) -> Result<bool, Error> {
    const SETTLE: &str = concat!(
        "WITH done AS (
            UPDATE installation SET restored_at = NULL WHERE restored_at IS NOT NULL RETURNING everstep_clock() AS at)",
        recorded!("$1")
    );
    let client = open(&settings.into(), SETTLING).await?;
    let action = Action::done(&Asker::command_line(), Scope::All, Target::Installation, "restored-settled");
    let settled = client.execute(SETTLE, &[&record(&action)]).await;
    Ok(settled.map_err(|error| Fault::from(error).into_error(SETTLING))? > 0)
}

async fn open(settings: &PostgresSettings, doing: &'static str) -> Result<Client, Error> {
    check(&settings.plain_config()?, &settings.dialer()?).await?;
    migrate::open(settings, doing).await
}
