//! Starts what schedules have due (rules S5, S10). The holder of the duty looks when the next one is due, and at least each second; many that are
//! due at once are taken in pages, so that others and the loop go on meanwhile.

use std::{sync::Arc, time::Duration};

use super::duties::SCHEDULES;
use crate::{Handle, shared::Shared};

/// Schedules of one page.
const PAGE: u32 = 200;
/// It sleeps no longer than this.
const LONGEST: Duration = Duration::from_secs(1);

/// Runs until the coordinator stops. Whoever changes a schedule wakes it, if it has the duty.
pub(crate) async fn run(shared: Arc<Shared>) {
    let handle = Handle::new(Arc::clone(&shared));
    loop {
        let pause = if shared.has_duty(SCHEDULES) { rounds(&handle).await } else { LONGEST };
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => {}
            () = shared.schedules.notified() => {}
        }
    }
}

/// Takes what is due, page by page. Answers with how long nothing is.
async fn rounds(handle: &Handle) -> Duration {
    while handle.shared.has_duty(SCHEDULES) && !handle.shared.is_stopping() {
        let woken = match handle.shared.store.woken_schedules(PAGE).await {
            Ok(woken) => woken,
            Err(error) => {
                tracing::warn!(%error, "due schedules were not read; tried again in a second");
                return LONGEST;
            }
        };
        handle.shared.clock.read(woken.now);
        if woken.rows.is_empty() {
            let until = |next: everstep_protocol::Timestamp| {
                Duration::from_micros(u64::try_from(next.0.saturating_sub(woken.now.0)).unwrap_or(0))
            };
            return woken.next.map_or(LONGEST, until).clamp(Duration::from_millis(1), LONGEST);
        }
        match handle.fire(woken.rows, woken.now).await {
            Ok(true) => tokio::task::yield_now().await,
            // Somebody else has them, for a moment.
            Ok(false) => return LONGEST,
            Err(error) => {
                tracing::warn!(%error, "schedules go on in a second");
                return LONGEST;
            }
        }
    }
    LONGEST
}
