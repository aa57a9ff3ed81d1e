//! The transaction of a batch: load, decide, write, commit.

use async_trait::async_trait;
use everstep_engine::{rows::Needs, start::NameKey};
use everstep_protocol::{Incarnation, InstanceUid, journal::Entry};
use rusqlite::{Connection, params};

use super::{SqliteStore, column, fault, journal, load, write};
use crate::{Decide, Error, Instances, Range, StepOver};

const FIND: &str = "SELECT uid FROM instance_name WHERE namespace = ?1 AND workflow = ?2 AND id = ?3";

#[async_trait]
impl Instances for SqliteStore {
    async fn incarnation(&self) -> Result<Incarnation, Error> {
        let work = |connection: &Connection| {
            let number: i64 =
                connection.query_row("SELECT incarnation FROM installation", [], |row| row.get(0))?;
            Ok(Incarnation(number as u64))
        };
        self.reader.read("reading the incarnation", work).await
    }

    async fn transact(&self, needs: Needs, decide: Decide) -> Result<Vec<StepOver>, Error> {
        let work = move |connection: &Connection, now| {
            let loaded = load::load(connection, &needs, now)?;
            let writes = decide(loaded);
            let over = write::write(connection, &writes, now)?;
            Ok((over, needs, writes))
        };
        // The others are dropped here, where nobody waits for the writer.
        self.writer.write("running a batch", work).await.map(|(over, _, _)| over)
    }

    async fn journal(&self, ranges: Vec<Range>, bytes_max: usize) -> Result<Vec<Vec<Entry>>, Error> {
        let work = move |connection: &Connection| {
            ranges.iter().map(|range| journal::read(connection, range, bytes_max)).collect()
        };
        self.reader.read("reading journals", work).await
    }

    async fn find(&self, name: &NameKey) -> Result<Option<InstanceUid>, Error> {
        let name = name.clone();
        self.reader.read("looking up a name", move |connection| find(connection, &name)).await
    }
}

pub(super) fn find(connection: &Connection, name: &NameKey) -> fault::Result<Option<InstanceUid>> {
    let mut statement = connection.prepare_cached(FIND)?;
    let parts = params![name.namespace.as_str(), name.workflow.as_str(), name.id.as_str()];
    let mut rows = statement.query(parts)?;
    rows.next()?.map(|row| column::uid(row, 0)).transpose()
}
