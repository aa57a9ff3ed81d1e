//! Operations on many instances (rule P33): begun, looked at and stopped here; done by the service `bulks`.

use std::time::Duration;

use everstep_engine::{
    bulk::{Bulk, Candidate, Statuses, Which},
    start::NameKey,
};
use everstep_protocol::{InstanceId, Namespace, crash::around, journal::End};
use everstep_store::{BulkRow, Cursor, Filter, InstanceView, Page};
use tokio::time::Instant;

use super::Handle;
use crate::error::Error;

/// Instances of one page.
pub(crate) const PAGE: u32 = 100;
/// How long a dry run looks.
const COUNT_WITHIN: Duration = Duration::from_secs(10);
/// Instances that a dry run names.
const NAMED: usize = 10;

/// What a bulk operation would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BulkCount {
    /// Instances that fulfil the conditions.
    pub matched: u64,
    /// There was time to look at all.
    pub complete: bool,
    /// The newest of them.
    pub newest: Vec<NameKey>,
}

/// What became of the wish to begin one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BulkBegun {
    /// It goes on, or is over if it was begun before.
    Begun(BulkRow),
    /// Another one has this id.
    Taken(BulkRow),
}

impl Handle {
    /// Begins a bulk operation, which goes on in the background. The same again is the same one.
    pub async fn begin_bulk(
        &self,
        namespace: &Namespace,
        id: &InstanceId,
        bulk: &Bulk,
    ) -> Result<BulkBegun, Error> {
        let row =
            around("commit.bulk_begin", self.shared.store.begin_bulk(namespace, id, bulk, &self.by)).await?;
        self.shared.bulks.notify_one();
        Ok(if row.bulk == *bulk { BulkBegun::Begun(row) } else { BulkBegun::Taken(row) })
    }

    /// Stops a bulk operation after the page under way. None if there is none.
    pub async fn stop_bulk(&self, namespace: &Namespace, id: &InstanceId) -> Result<Option<BulkRow>, Error> {
        Ok(around("commit.bulk_stop", self.shared.store.stop_bulk(namespace, id, &self.by)).await?)
    }

    /// Counts what a bulk operation would be about, and does nothing.
    pub async fn count_bulk(&self, namespace: &Namespace, bulk: &Bulk) -> Result<BulkCount, Error> {
        let began = Instant::now();
        let (mut count, mut cursor) = (BulkCount::default(), None);
        loop {
            let page = self.bulk_page(namespace, bulk, cursor).await?;
            for view in page.rows.iter().filter(|view| fits(&bulk.which, view)) {
                count.matched += 1;
                if count.newest.len() < NAMED {
                    count.newest.push(name(view));
                }
            }
            match page.next {
                None => return Ok(BulkCount { complete: true, ..count }),
                Some(_) if began.elapsed() >= COUNT_WITHIN => return Ok(count),
                next => cursor = next,
            }
        }
    }

    /// The next instances that a bulk operation looks at.
    pub(crate) async fn bulk_page(
        &self,
        namespace: &Namespace,
        bulk: &Bulk,
        cursor: Option<Cursor>,
    ) -> Result<Page, Error> {
        let (open, status) = match bulk.which.statuses(&bulk.act) {
            None => (false, None),
            Some(Statuses::Open) => (true, None),
            Some(Statuses::Only(status)) => (false, Some(status)),
        };
        let (namespace, workflow) = (namespace.clone(), bulk.which.workflow.clone());
        let filter = Filter {
            namespace,
            workflow,
            status,
            open,
            ends: bulk.which.error.is_some(),
            attributes: bulk.which.attributes.clone(),
            id_prefix: None,
        };
        Ok(self.shared.store.instances(&filter, cursor.as_ref(), PAGE).await?)
    }
}

/// The name of an instance.
pub(crate) fn name(view: &InstanceView) -> NameKey {
    NameKey { namespace: view.namespace.clone(), workflow: view.workflow.clone(), id: view.id.clone() }
}

/// Whether an instance fulfils the conditions.
pub(crate) fn fits(which: &Which, view: &InstanceView) -> bool {
    let failure = match &view.end {
        Some(End::Errored(failure)) => Some(failure),
        Some(End::Complete(_) | End::Terminated { .. } | End::Cancelled { .. }) | None => None,
    };
    let parked = view.parked.as_ref().map(|(_, parked)| parked.code.word());
    let errors =
        [failure.map(|failure| failure.name.as_str()), failure.map(|failure| failure.kind.word()).or(parked)];
    let (status, created_at, ended_at) = (view.status, view.created_at, view.ended_at);
    which.fits(&Candidate { status, created_at, ended_at, errors })
}
