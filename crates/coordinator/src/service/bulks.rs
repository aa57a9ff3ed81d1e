//! Goes on with bulk operations (rule P33), a page at a time: each instance is operated by an input of its own, as if a person
//! had asked for it. Where it goes on is kept after each page; a page that is repeated, since its coordinator died, does nothing
//! twice.

use std::{sync::Arc, time::Duration};

use everstep_engine::{Answer, Operated, bulk::Progress};
use everstep_store::BulkRow;

use super::duties::BULK;
use crate::{Error, Handle, handle::bulk::fits, shared::Shared};

const EVERY: Duration = Duration::from_secs(1);
/// Bulk operations that go on at once; the others wait.
const AT_ONCE: u32 = 10;

/// Runs until the coordinator stops. Whoever begins one wakes it, if it has the duty.
pub(crate) async fn run(shared: Arc<Shared>) {
    let handle = Handle { shared: Arc::clone(&shared) };
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = shared.bulks.notified() => {}
        }
        while shared.has_duty(BULK) {
            match round(&handle).await {
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "a bulk operation was interrupted; it goes on in a second");
                    break;
                }
            }
        }
    }
}

/// One page of each. True if there may be more to do.
async fn round(handle: &Handle) -> Result<bool, Error> {
    let running = handle.shared.store.running_bulks(AT_ONCE).await?;
    let mut any = false;
    for row in &running {
        match page(handle, row).await {
            Ok(()) => any = true,
            // The others are not to wait for it.
            Err(error) => tracing::warn!(%error, bulk = %row.id, "a bulk operation goes on in a second"),
        }
    }
    Ok(any)
}

/// The next page of one. What cannot be decided now is an error, and the page comes again; what never can is counted as refused.
async fn page(handle: &Handle, row: &BulkRow) -> Result<(), Error> {
    let page = handle.bulk_page(&row.namespace, &row.bulk, row.cursor).await?;
    let mut progress = row.progress;
    progress.looked_at += page.rows.len() as u64;
    // What was created since is none of its business.
    let wanted =
        page.rows.iter().filter(|view| view.created_at <= row.created_at && fits(&row.bulk.which, view));
    let operation = format!("bulk:{}:{}", row.id, row.created_at.0);
    let answers = wanted.map(|view| handle.act(view.uid, operation.clone(), &row.bulk.act));
    for answer in futures::future::join_all(answers).await {
        match answer {
            Ok(answer) => count(&mut progress, &answer)?,
            Err(Error::Undecided { .. }) => refused(&mut progress),
            Err(error) => return Err(error),
        }
    }
    if !handle.shared.store.advance_bulk(row, &progress, page.next).await? {
        tracing::info!(bulk = %row.id, "a bulk operation was stopped, or goes on elsewhere");
    }
    Ok(())
}

fn count(progress: &mut Progress, answer: &Answer) -> Result<(), Error> {
    match answer.operated() {
        // Somebody deleted it meanwhile.
        Some(Operated::NotFound) => return Ok(()),
        Some(Operated::Done) => progress.done += 1,
        // Its decision failed if there is no answer that an operation can have.
        Some(Operated::NotAllowed(_) | Operated::NotParked) | None => {
            refused(progress);
            return Ok(());
        }
        Some(Operated::Moved) => return Err(Error::Unknown { doing: "operate an instance of a bulk" }),
    }
    progress.matched += 1;
    Ok(())
}

const fn refused(progress: &mut Progress) {
    progress.refused += 1;
    progress.matched += 1;
}
