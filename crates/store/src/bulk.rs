//! Bulk operations as they are kept: one row each, with where it goes on (rule P33).

use async_trait::async_trait;
use everstep_engine::{
    access::Asker,
    bulk::{Bulk, Progress, State},
};
use everstep_protocol::{InstanceId, Namespace, Timestamp};

use crate::{Cursor, Error};

/// A bulk operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkRow {
    /// Namespace.
    pub namespace: Namespace,
    /// Its id, unique within the namespace; of the form of an instance's.
    pub id: InstanceId,
    /// What was asked for.
    pub bulk: Bulk,
    /// Whether it goes on.
    pub state: State,
    /// After which instance it goes on; none before the first page.
    pub cursor: Option<Cursor>,
    /// How far it has come.
    pub progress: Progress,
    /// When it began. Instances that are created later are none of its business.
    pub created_at: Timestamp,
    /// When it was over.
    pub ended_at: Option<Timestamp>,
    /// Who began it.
    pub by: String,
}

/// Says which rows cannot be read and were passed over.
pub(crate) fn warn(ids: &[String]) {
    if !ids.is_empty() {
        tracing::warn!(
            ?ids,
            "bulk operations cannot be read and are passed over: a newer version may know more"
        );
    }
}

/// Operations on many instances.
#[async_trait]
pub trait Bulks: Send + Sync + std::fmt::Debug + 'static {
    /// Begins a bulk operation, and records that, unless there is one of that id. Answers with the row that there is then.
    async fn begin_bulk(
        &self,
        namespace: &Namespace,
        id: &InstanceId,
        bulk: &Bulk,
        by: &Asker,
    ) -> Result<BulkRow, Error>;

    /// The bulk operation of that id.
    async fn bulk(&self, namespace: &Namespace, id: &InstanceId) -> Result<Option<BulkRow>, Error>;

    /// Bulk operations of a namespace, newest first. Those that this version cannot read are passed over.
    async fn bulks(&self, namespace: &Namespace, limit: u32) -> Result<Vec<BulkRow>, Error>;

    /// Bulk operations that go on, oldest first. Those that this version cannot read are passed over, and count for nothing.
    async fn running_bulks(&self, limit: u32) -> Result<Vec<BulkRow>, Error>;

    /// Keeps how far a bulk operation has come, `next` being where it goes on; with none it is done. False, and nothing is kept, if
    /// it does not stand where `row` says any more: it was stopped, or another coordinator has gone on with it.
    async fn advance_bulk(
        &self,
        row: &BulkRow,
        progress: &Progress,
        next: Option<Cursor>,
    ) -> Result<bool, Error>;

    /// Stops a bulk operation, and records that; one that is over stays as it is. Answers with the row that there is then.
    async fn stop_bulk(
        &self,
        namespace: &Namespace,
        id: &InstanceId,
        by: &Asker,
    ) -> Result<Option<BulkRow>, Error>;
}
