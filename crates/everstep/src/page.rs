//! The page of a worker of a fleet, and of an embedded system.

use std::{io, net::SocketAddr};

use everstep_metrics::page::{Page, Probes, serve};
use everstep_worker::{Metrics, Probe};
use prometheus::Registry;
use tokio::runtime::Handle;

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

    /// Serves it for a worker, on a runtime that steps do not run on.
    pub(crate) fn of_worker(self, probe: Probe, runtime: &Handle) -> io::Result<Page> {
        let missing = probe.clone();
        let probes = Probes::new(move || probe.dead(), move || missing.missing());
        serve(self.listen, vec![self.registry], probes, runtime)
    }

    /// Serves it for coordinator and worker in one process, on a runtime that steps do not run on. The worker is the one that this
    /// channel has at the moment.
    #[cfg(feature = "embedded")]
    pub(crate) fn of_system(
        self,
        handle: everstep_coordinator::Handle,
        worker: tokio::sync::watch::Receiver<Probe>,
        runtime: &Handle,
    ) -> io::Result<Page> {
        let registries = vec![handle.metrics().clone(), self.registry];
        let (handles, workers) = (handle.clone(), worker.clone());
        let coordinator = Probes::new(move || handle.dead(), move || handles.missing());
        let worker = Probes::new(move || worker.borrow().dead(), move || workers.borrow().missing());
        serve(self.listen, registries, coordinator.and(worker), runtime)
    }
}
