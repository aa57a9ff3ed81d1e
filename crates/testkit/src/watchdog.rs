//! Runs a test on a thread of its own and looks from outside whether a body blocks it (rule W12): on one thread with a clock
//! that stands still, nobody else could tell.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use everstep_worker::watch::{Polled, Watch};

/// How often is looked.
const LOOK: Duration = Duration::from_millis(50);

/// Everybody who polls bodies in this test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watches(Arc<Mutex<Vec<Arc<Watch>>>>);

impl Watches {
    pub(crate) fn add(&self, watch: Arc<Watch>) {
        self.lock().push(watch);
    }

    fn stuck(&self, limit: Duration) -> Option<Polled> {
        self.lock().iter().find_map(|watch| watch.stuck(limit))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Watch>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs this on a thread of its own. Panics as it does, and if a body blocks it for longer than the limit; that thread is then
/// left behind, since nobody can stop it.
pub(crate) fn guarded<T: Send + 'static>(
    watches: &Watches,
    limit: Duration,
    run: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (done, result) = mpsc::channel();
    // Under the name of the test, so that what it prints is told apart.
    let name = thread::current().name().unwrap_or("testkit").to_owned();
    let spawned = thread::Builder::new().name(name).spawn(move || {
        // Whoever waits for it may have given up.
        let _ = done.send(catch_unwind(AssertUnwindSafe(run)));
    });
    if let Err(error) = spawned {
        panic!("the test kit cannot start its thread: {error}");
    }
    loop {
        match result.recv_timeout(LOOK) {
            Ok(Ok(value)) => return value,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(RecvTimeoutError::Disconnected) => panic!("the thread of the test has vanished"),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(Polled { workflow, id, .. }) = watches.stuck(limit) {
                    panic!(
                        "workflow {workflow} instance {id} blocks its thread: one poll of its body has taken longer than \
                         {limit:?}; in production its worker would end after 10 s. What blocks belongs into a step"
                    );
                }
            }
        }
    }
}
