//! Goes on with bulk operations (rule P33), a page at a time: each instance is operated by an input of its own, as if a person
//! had asked for it. Where it goes on is kept after each page; a page that is repeated, since its coordinator died, does nothing
//! twice.

use std::{sync::Arc, time::Duration};

use everstep_engine::{Answer, Operated, access::Asker, bulk::Progress};
use everstep_protocol::crash::around;
use everstep_store::BulkRow;

use super::duties::BULK;
use crate::{
    Error, ErrorKind, Handle,
    handle::{
        act::Whom,
        bulk::{fits, name},
    },
    shared::Shared,
};

const EVERY: Duration = Duration::from_secs(1);
/// Bulk operations that go on at once; the others wait.
const AT_ONCE: u32 = 10;

/// Runs until the coordinator stops. Whoever begins one wakes it, if it has the duty.
pub(crate) async fn run(shared: Arc<Shared>) {
    let handle = Handle::new(Arc::clone(&shared));
    loop {
        tokio::select! {
            biased;
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
    let wanted = wanted.map(|view| Whom { name: name(view), uid: Some(view.uid) }).collect();
    // Whoever began it has asked for each of them.
    let beginner = Asker { who: row.by.clone(), from: format!("bulk {}", row.id) };
    let handle = handle.acting_for(beginner);
    for answer in handle.act_on(wanted, &operation, &row.bulk.act).await {
        match answer {
            Ok(answer) => count(&mut progress, &answer),
            // Such as a restart from a step that it has not called.
            Err(error) if error.kind() == ErrorKind::Refused => refused(&mut progress),
            Err(error) => return Err(error),
        }
    }
    if !around("commit.bulk_advance", handle.shared.store.advance_bulk(row, &progress, page.next)).await? {
        tracing::info!(bulk = %row.id, "a bulk operation was stopped, or goes on elsewhere");
    }
    Ok(())
}

fn count(progress: &mut Progress, answer: &Answer) {
    match answer.operated() {
        // Somebody deleted it meanwhile.
        Some(Operated::NotFound) => {}
        Some(Operated::Done) => {
            progress.done += 1;
            progress.matched += 1;
        }
        // Its decision failed if there is no answer that an operation can have. One that moved on each time that its restart was
        // prepared may do so for ever: the others are not to wait for it.
        Some(Operated::NotAllowed(_) | Operated::NotParked | Operated::NotAsked | Operated::Moved) | None => {
            refused(progress);
        }
    }
}

const fn refused(progress: &mut Progress) {
    progress.refused += 1;
    progress.matched += 1;
}
