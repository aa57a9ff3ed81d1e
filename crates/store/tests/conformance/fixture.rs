//! A fresh, empty store for each test.

use std::sync::Arc;

use async_trait::async_trait;
use everstep_protocol::Timestamp;
use everstep_store::{
    Store,
    postgres::{PostgresSettings, PostgresStore, migrate},
    sqlite::SqliteStore,
};
use tokio_postgres::NoTls;
use uuid::Uuid;

/// Makes a store, and takes it away when dropped.
#[async_trait]
pub(crate) trait Fixture: Sized {
    async fn create() -> Self;
    fn store(&self) -> Arc<dyn Store>;
}

/// A file in a directory of its own.
pub(crate) struct Sqlite {
    store: Arc<SqliteStore>,
    _directory: tempfile::TempDir,
}

#[async_trait]
impl Fixture for Sqlite {
    async fn create() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = SqliteStore::open(&directory.path().join("everstep.db")).expect("a new file opens");
        Self { store: Arc::new(store), _directory: directory }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }
}

/// In memory, on the thread that asks.
pub(crate) struct Memory(Arc<SqliteStore>);

#[async_trait]
impl Fixture for Memory {
    async fn create() -> Self {
        let began = std::time::Instant::now();
        let clock = move || Timestamp(1_700_000_000_000_000 + began.elapsed().as_micros() as i64);
        let store = SqliteStore::in_memory(Arc::new(clock), Arc::new(|| {})).expect("memory opens");
        Self(Arc::new(store))
    }

    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }
}

/// A database of its own on the server that `EVERSTEP_TEST_POSTGRES_URL` names.
pub(crate) struct Postgres {
    store: Arc<PostgresStore>,
    database: Database,
}

#[async_trait]
impl Fixture for Postgres {
    async fn create() -> Self {
        let database = Database::create().await;
        migrate(&database.url).await.expect("the schema is made");
        let settings = PostgresSettings { pool_max: 4, ..PostgresSettings::new(&database.url) };
        let store = PostgresStore::connect(settings).await.expect("it connects");
        Self { store: Arc::new(store), database }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }
}

impl Postgres {
    #[allow(dead_code, reason = "not in every test binary")]
    pub(crate) fn url(&self) -> &str {
        &self.database.url
    }
}

/// An empty database, dropped with this.
pub(crate) struct Database {
    server: String,
    name: String,
    pub(crate) url: String,
}

impl Database {
    pub(crate) async fn create() -> Self {
        let server = std::env::var("EVERSTEP_TEST_POSTGRES_URL").unwrap_or_else(|_| {
            panic!("EVERSTEP_TEST_POSTGRES_URL is not set: run `make services-up`, then `make test`")
        });
        let name = format!("everstep_test_{}", Uuid::now_v7().simple());
        execute(&server, &format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")).await;
        let (base, query) = server
            .split_once('?')
            .map_or((&*server, String::new()), |(base, query)| (base, format!("?{query}")));
        let (host, _) = base.rsplit_once('/').expect("the URL names a database");
        let url = format!("{host}/{name}{query}");
        Self { server, name, url }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, sql) = (self.server.clone(), format!("DROP DATABASE {} WITH (FORCE)", self.name));
        // The test's own runtime is about to end, and cannot be waited for from here.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(execute(&server, &sql));
        });
        dropped.join().expect("the test's database is dropped");
    }
}

pub(crate) async fn execute(server: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(server, NoTls).await.expect("the server answers");
    let connection = tokio::spawn(connection);
    client.batch_execute(sql).await.expect("the server does as told");
    drop(client);
    drop(connection.await);
}
