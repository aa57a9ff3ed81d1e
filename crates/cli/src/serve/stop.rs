//! The stop, in two parts: begun (take nothing new, give back what is held), and finished (the coordinator may go too).

use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Running,
    Begun,
    Finished,
}

/// Tells the parts of a process to stop.
#[derive(Clone, Debug)]
pub(super) struct Stop(watch::Sender<Phase>);

impl Stop {
    /// Begins with SIGTERM or SIGINT. A second signal ends the process at once, which is always correct.
    pub(super) fn on_signal() -> io::Result<Self> {
        let stop = Self(watch::Sender::new(Phase::Running));
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let begun = stop.clone();
        tokio::spawn(async move {
            for impatient in [false, true] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if impatient {
                    tracing::warn!("stopping at once");
                    std::process::exit(1);
                }
                tracing::info!("stopping; a second signal stops at once");
                begun.begin();
            }
        });
        Ok(stop)
    }

    /// The stop begins, unless it has.
    pub(super) fn begin(&self) {
        self.reach(Phase::Begun);
    }

    /// The last part may go.
    pub(super) fn finish(&self) {
        self.reach(Phase::Finished);
    }

    /// Until the stop begins.
    pub(super) fn begun(&self) -> impl Future<Output = ()> + Send + 'static {
        self.until(Phase::Begun)
    }

    /// Until the last part may go.
    pub(super) fn finished(&self) -> impl Future<Output = ()> + Send + 'static {
        self.until(Phase::Finished)
    }

    fn reach(&self, phase: Phase) {
        self.0.send_if_modified(|current| {
            let later = phase > *current;
            *current = phase.max(*current);
            later
        });
    }

    fn until(&self, phase: Phase) -> impl Future<Output = ()> + Send + 'static {
        let mut receiver = self.0.subscribe();
        async move {
            // An error means that nobody is left to say so, which is a stop too.
            drop(receiver.wait_for(|current| *current >= phase).await);
        }
    }
}
