//! The calls of steps that an auditor asks for (rule L14).

use deadpool_postgres::Object;
use everstep_engine::start::NameKey;
use everstep_protocol::{CallHash, Position, Run, Timestamp, journal::Entry};
use tokio_postgres::Row;

use super::{
    fault::Fault,
    rows::{hash, name, time, uid},
    rows_of,
    trip::params,
};
use crate::{
    LedgerCall, LedgerSearch, fact,
    view::{Gathered, Of, window},
};

const INSTANCE: &str = include_str!("sql/ledger_instance.sql");
const REFERENCE: &str = include_str!("sql/ledger_reference.sql");
const NOW: &str = "SELECT everstep_clock()";
const KEY: &str = include_str!("sql/ledger_key.sql");

/// The searches that an index answers.
#[doc(hidden)]
#[must_use]
pub const fn ledger_searches() -> [&'static str; 2] {
    [INSTANCE, REFERENCE]
}

pub(super) async fn search(
    client: &Object,
    search: &LedgerSearch,
    limit: u32,
) -> Result<Vec<LedgerCall>, Fault> {
    let limit = i64::from(limit);
    let rows = match search {
        LedgerSearch::Instance(instance, run, after) => {
            let after = i64::try_from(after.0).unwrap_or(i64::MAX);
            rows_of(client, INSTANCE, params![instance.0, run.0 as i32, after, limit]).await?
        }
        LedgerSearch::Reference(namespace, reference) => {
            rows_of(client, REFERENCE, params![namespace.as_str(), reference.as_str(), limit]).await?
        }
        LedgerSearch::Key { namespace, key, since, until } => {
            let now = rows_of(client, NOW, params![]).await?;
            let now = now.first().map(|row| time(row, 0)).transpose()?.unwrap_or_default();
            let (from, to) = (since.at(now), until.unwrap_or(Timestamp(i64::MAX)));
            let (first, last) = window(from, to);
            let params = params![namespace.as_str(), &key.as_bytes()[..], from.0, to.0, first, last, limit];
            rows_of(client, KEY, params).await?
        }
    };
    let mut found = Gathered::default();
    for row in &rows {
        let (call, name, entry) = read(row)?;
        found.add(call, name, entry);
    }
    Ok(found.calls())
}

fn read(row: &Row) -> Result<(Of, NameKey, Entry), Fault> {
    let named = NameKey { namespace: name(row, 0)?, workflow: name(row, 1)?, id: name(row, 2)? };
    let call = (uid(row, 3)?, Run(row.try_get::<_, i32>(4)? as u32), CallHash(hash(row, 5)?));
    let position = Position(row.try_get::<_, i64>(6)? as u64);
    Ok((call, named, Entry { position, at: time(row, 7)?, fact: fact::bare(row.try_get(8)?)? }))
}
