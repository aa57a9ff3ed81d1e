//! The page of a worker of a fleet, and of an embedded system.

use std::{io, net::SocketAddr};

use everstep_metrics::page::{Page, Standing, serve};
use everstep_worker::{Metrics, Probe};
use prometheus::Registry;

/// Where the page is to be served, and what else it shows.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    listen: SocketAddr,
    registry: Registry,
}

impl Wanted {
    /// A page that shows what this registry holds, and counters for a worker that are in it.
    ///
    /// Errors: the registry has such counters already.
    pub(crate) fn new(listen: SocketAddr, registry: Registry) -> Result<(Self, Metrics), prometheus::Error> {
        let metrics = Metrics::new(&registry)?;
        Ok((Self { listen, registry }, metrics))
    }

    /// Where.
    pub(crate) const fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Serves it for a worker.
    pub(crate) async fn of_worker(self, probe: Probe) -> io::Result<Page> {
        serve(self.listen, vec![self.registry], move || {
            let standing = Standing { dead: probe.dead(), missing: probe.missing() };
            async { standing }
        })
        .await
    }

    /// Serves it for coordinator and worker in one process.
    #[cfg(feature = "embedded")]
    pub(crate) async fn of_system(self, handle: everstep_coordinator::Handle) -> io::Result<Page> {
        let registries = vec![handle.metrics().clone(), self.registry];
        serve(self.listen, registries, move || {
            let handle = handle.clone();
            async move {
                let health = handle.health().await;
                Standing { dead: health.dead(), missing: health.missing() }
            }
        })
        .await
    }
}
