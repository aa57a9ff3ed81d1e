//! Reads journals.

use deadpool_postgres::Object;
use everstep_protocol::{Position, journal::Entry};
use uuid::Uuid;

use super::{fault::Fault, rows::time, rows_of, statements as sql, trip::params};
use crate::{Range, fact};

pub(super) async fn read(
    client: &Object,
    ranges: &[Range],
    bytes_max: usize,
) -> Result<Vec<Vec<Entry>>, Fault> {
    let instances: Vec<Uuid> = ranges.iter().map(|range| range.uid.0).collect();
    let runs: Vec<i32> = ranges.iter().map(|range| range.run.0 as i32).collect();
    let after: Vec<i64> =
        ranges.iter().map(|range| i64::try_from(range.after.0).unwrap_or(i64::MAX)).collect();
    let bytes = i64::try_from(bytes_max).unwrap_or(i64::MAX);
    let rows = rows_of(client, sql::JOURNAL, params![instances, runs, after, bytes]).await?;
    let mut journals = vec![Vec::new(); ranges.len()];
    for row in rows {
        let nth = row.try_get::<_, i64>(0)? as usize - 1;
        let position = Position(row.try_get::<_, i64>(1)? as u64);
        let fact = fact::join(row.try_get(3)?, row.try_get(4)?)?;
        journals[nth].push(Entry { position, at: time(&row, 2)?, fact });
    }
    Ok(journals)
}
