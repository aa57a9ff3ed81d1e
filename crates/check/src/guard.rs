//! Replays one journal on a thread of its own, so that a body that blocks is named instead of stopping the check (rule W12).

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use everstep_protocol::{BuildName, limits::Limits};
use everstep_sdk::Registry;
use everstep_worker::watch::Watch;

use crate::{Breach, Replayed, Replayer, saved::Saved};

/// How often is looked.
const LOOK: Duration = Duration::from_millis(50);
/// How long one poll of a body may take.
const POLL_MAX: Duration = Duration::from_secs(10);
/// What was recorded was within the limits of its installation, which nobody here knows.
const NO_LIMITS: Limits = Limits {
    output_bytes: u64::MAX,
    // The one of which a body knows: an instance whose next generation was refused by it is taking back what it did.
    input_bytes: 1 << 20,
    steps: u64::MAX,
    journal_bytes: u64::MAX,
    event_bytes: u64::MAX,
    events_unread: u64::MAX,
    hook_retention: everstep_protocol::Millis::MAX,
};

/// A thread that is stuck is left behind, since nobody can stop it.
pub(crate) fn replay(registry: &Registry, build: &BuildName, saved: Saved) -> Result<Replayed, Breach> {
    let watch = Arc::new(Watch::default());
    let (done, result) = mpsc::channel();
    let run = {
        let (registry, build, watch) = (registry.clone(), build.clone(), watch.clone());
        move || {
            let replayer = Replayer { registry: &registry, build, limits: NO_LIMITS, watch };
            // Whoever waits for it may have given up.
            drop(done.send(replayer.replay(&saved).map_err(|breach| saved.explain(breach))));
        }
    };
    if let Err(error) = thread::Builder::new().name("everstep-check".to_owned()).spawn(run) {
        return Err(Breach::whole(format!("no thread could be started for its replay: {error}")));
    }
    loop {
        match result.recv_timeout(LOOK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Breach::whole("the replay panicked, which is a bug of everstep"));
            }
            Err(RecvTimeoutError::Timeout) if watch.stuck(POLL_MAX).is_some() => {
                return Err(Breach::whole(format!(
                    "the body blocks its thread: one poll of it takes longer than {} s",
                    POLL_MAX.as_secs()
                )));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
