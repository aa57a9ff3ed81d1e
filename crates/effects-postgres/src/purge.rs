//! Old effects are forgotten.

use everstep_sdk::{Error, IntoMillis};
use tokio_postgres::Client;

use crate::{Schema, name, schema::of};

const PURGE: &str = include_str!("sql/purge.sql");

/// Forgets effects that are older than `age`, in batches of at most `batch` rows, each a transaction of its own, until none is
/// left or this is dropped; answers with how many. Repeating is safe, also by several at once.
///
/// An effect that is forgotten is not found by an attempt that comes after: `age` must be longer than any step may still be
/// retried or restarted, so longer than instances live and are kept.
///
/// ```no_run
/// # async fn nightly(client: &tokio_postgres::Client) -> Result<(), everstep_sdk::Error> {
/// let forgotten = everstep_postgres::purge(client, None, "180 days", 1_000).await?;
/// # Ok(()) }
/// ```
pub async fn purge(
    client: &Client,
    schema: Option<&Schema>,
    age: impl IntoMillis,
    batch: u32,
) -> Result<u64, Error> {
    let age = age.into_millis().map_err(|error| Error::permanent(format!("the age: {error}")))?;
    let (seconds, batch) = (age.to_std().as_secs_f64(), i64::from(batch.max(1)));
    let sql = of(PURGE, schema);
    let mut forgotten = 0;
    loop {
        let rows = client.execute(&sql, &[&seconds, &batch]).await.map_err(|error| {
            let error = Error::from(error);
            let message = format!("{forgotten} effects were forgotten, then: {error}; trying again is safe");
            Error::failed(message).named(name::DATABASE)
        })?;
        forgotten += rows;
        if rows < batch as u64 {
            return Ok(forgotten);
        }
    }
}
