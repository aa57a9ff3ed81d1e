//! Several statements in one round trip: all are sent before the first answer is awaited, in the order in which they were
//! added. The server runs them one after the other, so each sees what the ones before it did.

use deadpool_postgres::Object;
use futures::future::{BoxFuture, join_all};
use tokio_postgres::{Error, Row, types::ToSql};

use super::fault::Fault;

/// Parameters of one statement; columns, mostly.
pub(super) type Params<'a> = Vec<Box<dyn ToSql + Sync + Send + 'a>>;

/// Boxes parameters.
macro_rules! params {
    ($($value:expr),* $(,)?) => { vec![$(Box::new($value) as Box<dyn tokio_postgres::types::ToSql + Sync + Send + '_>),*] };
}
pub(super) use params;

/// What one statement answered.
#[derive(Debug, Default)]
pub(super) struct Answered {
    pub(super) rows: Vec<Row>,
    pub(super) count: u64,
}

/// Statements to send together.
pub(super) struct Trip<'a> {
    client: &'a Object,
    statements: Vec<BoxFuture<'a, Result<Answered, Error>>>,
}

impl<'a> Trip<'a> {
    pub(super) fn new(client: &'a Object) -> Self {
        Self { client, statements: Vec::with_capacity(24) }
    }

    /// How many statements there are: the place of the next one's answer.
    pub(super) fn len(&self) -> usize {
        self.statements.len()
    }

    /// Adds a command without parameters or answer.
    pub(super) fn command(&mut self, sql: &'static str) {
        let client = self.client;
        self.statements.push(Box::pin(async move {
            client.batch_execute(sql).await?;
            Ok(Answered::default())
        }));
    }

    /// Adds a statement that answers with rows. It is prepared here if this connection has not done so yet, so that nothing
    /// but the statements themselves is sent later.
    pub(super) async fn rows(&mut self, sql: &'static str, params: Params<'a>) -> Result<(), Fault> {
        let client = self.client;
        let statement = client.prepare_cached(sql).await?;
        self.statements.push(Box::pin(async move {
            let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|value| &**value as _).collect();
            Ok(Answered { rows: client.query(&statement, &params).await?, count: 0 })
        }));
        Ok(())
    }

    /// Adds a statement that answers with a count.
    pub(super) async fn execute(&mut self, sql: &'static str, params: Params<'a>) -> Result<(), Fault> {
        let client = self.client;
        let statement = client.prepare_cached(sql).await?;
        self.statements.push(Box::pin(async move {
            let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|value| &**value as _).collect();
            Ok(Answered { rows: Vec::new(), count: client.execute(&statement, &params).await? })
        }));
        Ok(())
    }

    /// Sends them all and waits for all answers. The error is that of the statement that failed, not of those that were
    /// refused because of it.
    pub(super) async fn run(self) -> Result<Vec<Answered>, Fault> {
        // The order of the first polls is the order of sending; `join_all` polls in order.
        let answers = join_all(self.statements).await;
        answers.into_iter().collect::<Result<_, _>>().map_err(Fault::from)
    }
}
