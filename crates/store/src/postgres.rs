//! The store on PostgreSQL 15 or later. Everything durable is here; several coordinators may share it.
//!
//! | module | what for |
//! | --- | --- |
//! | `fault` | which error of the database is which error of the port |
//! | `migrate` | the schema, forward only |
//! | `trip` | several statements in one round trip |
//! | `transaction`, `load`, `write` | the transaction of a batch: lock and load, decide, write and commit in two round trips |
//! | `rows` | rows and columns of engine types |
//! | `statements` | the hot statements, of which a test asserts the plans (rule W37) |
//! | `journal`, `sessions`, `schedule`, `records`, `bulks`, `schedules`, `access`, `actions`, `views` | the rest of the port |
//!
//! Invariants: locks are taken on heads, in one order, never waited for; side rows change only under their head's lock, but
//! for the offer mark of a ready row; a connection inside a transaction never goes back to the pool.

mod access;
mod actions;
mod attention;
mod audits;
mod bulks;
mod events;
mod fault;
mod hooks;
mod journal;
mod ledger;
mod letters;
mod load;
mod migrate;
mod records;
mod restore;
mod rows;
mod schedule;
mod schedules;
mod sessions;
mod statements;
mod tls;
mod transaction;
mod trip;
mod views;
mod write;

use std::{path::PathBuf, str::FromStr, time::Duration};

use async_trait::async_trait;
use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, QueueMode, RecyclingMethod, Runtime, Timeouts,
};
use everstep_engine::{rows::Needs, start::NameKey};
use everstep_protocol::{Incarnation, InstanceUid, Timestamp, journal::Entry};
use tokio_postgres::{Config, NoTls};

#[doc(hidden)]
pub use self::attention::attention_list;
#[doc(hidden)]
pub use self::audits::suspects_page;
pub use self::ledger::ledger_searches;
pub use self::migrate::{Applied, migrate};
pub use self::restore::{Restored, restored, settled};
#[doc(hidden)]
pub use self::statements::{Statement, hot_statements};
pub use self::tls::PostgresTls;
#[doc(hidden)]
pub use self::views::{attribute_list, ended_lists, ends_list, open_list, prefix_list};
use self::{fault::Fault, tls::Dialer, trip::Trip};
use crate::{Decide, Error, ErrorKind, Instances, Range, StepOver};

const CONNECTING: &str = "connecting to PostgreSQL";
const CLOCK: &str = "SELECT everstep_clock()";
/// How long the database's machine may not answer before a connection counts as gone.
const UNANSWERED: Duration = Duration::from_secs(30);

/// How to reach PostgreSQL.
#[derive(Clone, Debug)]
pub struct PostgresSettings {
    /// Where: `postgres://user:password@host:port/database`.
    pub url: String,
    /// How far the way there is safe. Default: it is not encrypted.
    pub tls: PostgresTls,
    /// Whose certificates are trusted with [`PostgresTls::VerifyFull`]. Default: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The most connections of this process. Default 8.
    pub pool_max: usize,
    /// How long one statement may take; lists for people have 30 s. Default 5 s: transactions must stay shorter than what the
    /// due scan leaves behind its mark (rule W23).
    pub statement_timeout: Duration,
    /// How long to wait for a lock that another transaction holds. Default 500 ms.
    pub lock_timeout: Duration,
    /// After how long the database ends a transaction whose coordinator does nothing. Default 2 s.
    pub idle_timeout: Duration,
    /// How long a new connection may take. Default 5 s.
    pub connect_timeout: Duration,
    /// How long to wait for a free connection. Default 5 s.
    pub wait_timeout: Duration,
    /// What the database calls this process in its own lists. Default `everstep`.
    pub application_name: String,
}

impl PostgresSettings {
    /// The defaults for a database.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            tls: PostgresTls::Off,
            ca_file: None,
            pool_max: 8,
            statement_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_millis(500),
            idle_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(5),
            wait_timeout: Duration::from_secs(5),
            application_name: "everstep".to_owned(),
        }
    }

    /// The settings of each session: plans that cannot go wrong while tables are small (rule W37), and short waits, so
    /// that a frozen coordinator stops nobody for long (rule W19).
    #[doc(hidden)]
    pub fn config(&self) -> Result<Config, Error> {
        let mut config = self.plain_config()?;
        let options = format!(
            "{} -c enable_seqscan=off -c plan_cache_mode=force_generic_plan -c jit=off -c statement_timeout={} \
             -c lock_timeout={} -c idle_in_transaction_session_timeout={}",
            config.get_options().unwrap_or_default(),
            self.statement_timeout.as_millis(),
            self.lock_timeout.as_millis(),
            self.idle_timeout.as_millis(),
        );
        config
            .options(options)
            .application_name(&self.application_name)
            .connect_timeout(self.connect_timeout)
            .keepalives_idle(Duration::from_secs(10))
            .tcp_user_timeout(UNANSWERED);
        Ok(config)
    }

    /// Where the database is and how it is spoken to, without what sessions of the store have.
    fn plain_config(&self) -> Result<Config, Error> {
        let refused = |error: tokio_postgres::Error| Error::new(ErrorKind::Refused, CONNECTING, error);
        let mut config = Config::from_str(&self.url).map_err(refused)?;
        self.dialer()?.apply(&mut config)?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(self.connect_timeout);
        }
        Ok(config)
    }

    fn dialer(&self) -> Result<Dialer, Error> {
        Dialer::of(self.tls, self.ca_file.as_ref())
    }
}

/// The defaults for a database.
impl From<&str> for PostgresSettings {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

/// The defaults for a database.
impl From<&String> for PostgresSettings {
    fn from(url: &String) -> Self {
        Self::new(url)
    }
}

/// The store on PostgreSQL.
#[derive(Debug)]
pub struct PostgresStore {
    pool: Pool,
}

impl PostgresStore {
    /// Connects, and checks that the schema is there and new enough.
    ///
    /// Errors: [`ErrorKind::NotMigrated`] until [`migrate`] has run; [`ErrorKind::Unavailable`] while the database cannot be
    /// reached, repeating is safe.
    pub async fn connect(settings: PostgresSettings) -> Result<Self, Error> {
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let config = settings.config()?;
        let dialer = settings.dialer()?;
        let manager = match dialer.clone() {
            Dialer::Plain => Manager::from_config(config, NoTls, manager),
            Dialer::Encrypted(tls) => Manager::from_config(config, tls, manager),
        };
        let unbuilt =
            |error: deadpool_postgres::BuildError| Error::new(ErrorKind::Refused, CONNECTING, error);
        let timeouts = Timeouts {
            wait: Some(settings.wait_timeout),
            create: Some(settings.connect_timeout),
            recycle: Some(settings.connect_timeout),
        };
        let pool = Pool::builder(manager)
            .max_size(settings.pool_max)
            .timeouts(timeouts)
            // The connection used last: its server process has its caches warm.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .post_create(Hook::async_fn(|client, _| {
                Box::pin(async move { statements::prepare(client).await.map_err(HookError::Backend) })
            }))
            .build()
            .map_err(unbuilt)?;
        migrate::check(&settings.plain_config()?, &dialer).await?;
        let store = Self { pool };
        store.incarnation().await?;
        Ok(store)
    }

    /// The database's time.
    async fn clock(&self, doing: &'static str) -> Result<Timestamp, Error> {
        let now = self.read(doing, CLOCK, trip::Params::new(), |row| rows::time(row, 0)).await?.pop();
        now.ok_or_else(|| Fault::corrupt("the clock does not answer").into_error(doing))
    }

    async fn client(&self, doing: &'static str) -> Result<Object, Error> {
        self.pool.get().await.map_err(|error| fault::of_pool(error, doing))
    }
}

#[async_trait]
impl Instances for PostgresStore {
    async fn incarnation(&self) -> Result<Incarnation, Error> {
        const DOING: &str = "reading the incarnation";
        let client = self.client(DOING).await?;
        let row = client.query_one("SELECT incarnation FROM installation", &[]).await;
        let incarnation: i64 =
            row.and_then(|row| row.try_get(0)).map_err(|error| Fault::from(error).into_error(DOING))?;
        Ok(Incarnation(incarnation as u64))
    }

    async fn restored_at(&self) -> Result<Option<Timestamp>, Error> {
        const DOING: &str = "reading when the database was restored";
        let client = self.client(DOING).await?;
        let row = client.query_one("SELECT restored_at FROM installation", &[]).await;
        let at: Option<i64> =
            row.and_then(|row| row.try_get(0)).map_err(|error| Fault::from(error).into_error(DOING))?;
        Ok(at.map(Timestamp))
    }

    async fn transact(&self, needs: Needs, decide: Decide) -> Result<Vec<StepOver>, Error> {
        const DOING: &str = "a transaction";
        let client = self.client(DOING).await?;
        transaction::run(client, needs, decide).await.map_err(|fault| fault.into_error(DOING))
    }

    async fn journal(&self, ranges: Vec<Range>, bytes_max: usize) -> Result<Vec<Vec<Entry>>, Error> {
        const DOING: &str = "reading journals";
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let client = self.client(DOING).await?;
        journal::read(&client, &ranges, bytes_max).await.map_err(|fault| fault.into_error(DOING))
    }

    async fn find(&self, name: &NameKey) -> Result<Option<InstanceUid>, Error> {
        const DOING: &str = "finding an instance";
        let client = self.client(DOING).await?;
        views::find(&client, name).await.map_err(|fault| fault.into_error(DOING))
    }
}

/// One statement outside a transaction.
async fn rows_of<'a>(
    client: &'a Object,
    sql: &'static str,
    params: trip::Params<'a>,
) -> Result<Vec<tokio_postgres::Row>, Fault> {
    let mut trip = Trip::new(client);
    trip.rows(sql, params).await?;
    Ok(trip.run().await?.pop().unwrap_or_default().rows)
}
