//! The table, as SQL that may be run again.

use tokio_postgres::Client;

use crate::{Schema, once::told, schema::of};

const HEAD: &str = "\
-- The table of effects, for steps that write to this database. Run it in one transaction, as `psql -1 -f FILE` does, and as
-- tools for migrations do. It changes nothing where it was run before.

";

/// Of several at once all but one wait: also for the schema, which two cannot make at once.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7308613718402164836);\n\n";

/// In their order. Each may be run again, and each leaves what the version before needs.
const MIGRATIONS: [&str; 1] = [include_str!("sql/migration_1.sql")];

/// The database refused the migration, or could not be reached. Trying again is safe.
#[derive(Debug, thiserror::Error)]
#[error("the table of effects cannot be made: {reason}; trying again is safe")]
pub struct MigrateError {
    reason: String,
}

impl From<tokio_postgres::Error> for MigrateError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self { reason: told(&error) }
    }
}

/// The SQL that brings a database up to this version, whichever it has; what `everstep effects-migration` prints. Run it in one
/// transaction. With a schema it is made too, if it is not there; without one the search path decides.
#[must_use]
pub fn migration(schema: Option<&Schema>) -> String {
    let made = schema.map(|schema| format!("CREATE SCHEMA IF NOT EXISTS {schema};\n\n")).unwrap_or_default();
    let mut sql = [HEAD, LOCK, &made].concat();
    for (at, migration) in MIGRATIONS.iter().enumerate() {
        if at > 0 {
            sql.push('\n');
        }
        sql.push_str(&of(migration, schema));
    }
    sql
}

/// Brings a database up to this version. Repeating is safe, also by several at once.
pub async fn migrate(client: &mut Client, schema: Option<&Schema>) -> Result<(), MigrateError> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(&migration(schema)).await?;
    Ok(transaction.commit().await?)
}
