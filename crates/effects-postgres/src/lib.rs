//! Writes to a PostgreSQL database of your own that happen once, whatever happens to the worker (rule L12).
//!
//! A step that writes to a database and dies before it has reported is run again, and writes again. Here the step's idempotency
//! key is recorded in a table of that same database, in the same transaction as the write. So either both are there or
//! neither; an attempt that comes later finds the key, and with it the output of the attempt that wrote, and writes nothing.
//!
//! ```no_run
//! use everstep_sdk::{Error, Step};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Payout {
//!     account: i64,
//!     cents: i64,
//! }
//!
//! async fn pay_out(step: Step, payout: Payout) -> Result<i64, Error> {
//!     let mut client = connection().await?;
//!     everstep_postgres::once(&step, &mut client, async |tx| {
//!         let row = tx
//!             .query_one(
//!                 "UPDATE account SET balance = balance - $2 WHERE id = $1 RETURNING balance",
//!                 &[&payout.account, &payout.cents],
//!             )
//!             .await?;
//!         Ok::<i64, Error>(row.get(0))
//!     })
//!     .await
//! }
//! # async fn connection() -> Result<tokio_postgres::Client, Error> {
//! #     let (client, connection) =
//! #         tokio_postgres::connect("host=localhost", tokio_postgres::NoTls).await.map_err(Error::failed)?;
//! #     tokio::spawn(connection);
//! #     Ok(client)
//! # }
//! # fn main() { drop(everstep_sdk::Registry::new().function("pay out", pay_out)); }
//! ```
//!
//! The client is one of tokio-postgres; an object of a deadpool is one as well, by `&mut client`. The table is made by
//! [`migrate`], or by what `everstep effects-migration` prints.
//!
//! # How it goes
//! 1. `BEGIN`, then the key is inserted with `ON CONFLICT DO NOTHING`. Of two attempts at once the second waits here until the
//!    first has committed or rolled back.
//! 2. If the key was there, the recorded output is the step's, and the transaction is rolled back.
//! 3. If not, your write runs in the transaction. An error of it rolls everything back, the key included.
//! 4. The output is put to the key, and `COMMIT`.
//!
//! # When the answer to the commit is lost
//! Nobody knows then whether the transaction is there. The error is named [`name::UNKNOWN`] and may be retried: the next attempt
//! finds the output, or writes. After every other error nothing was written, but for [`name::ENDED`], which is a fault of the write, and
//! [`name::MISFIT`], by which it was written before.
//!
//! # What it does not do
//! It guards one database. What the write does elsewhere, a mail or a call, is not part of the transaction.

pub mod name;

mod migration;
mod once;
mod purge;
mod schema;

pub use migration::{MigrateError, migrate, migration};
pub use once::{Once, once};
pub use purge::purge;
pub use schema::{Schema, SchemaError};

/// The samples of the guide compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/database-writes.md")]
struct Guide;
