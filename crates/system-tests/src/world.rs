//! A system with everything that a test does to it: how it is made (`setup`), its parts that come and go (`parts`), what
//! producers and operators do (`outside`), and what a test sees (`sight`).

mod outside;
mod parts;
mod setup;
mod sight;

use std::sync::Arc;

use everstep_broker::{Broker, MemoryBroker};
use everstep_coordinator::Handle;
use everstep_engine::start::NameKey;
use everstep_protocol::{InstanceId, Namespace, WorkflowName};
use everstep_store::Store;
use everstep_testbed::Installation;

use crate::{ends::Ends, node::Node, proxy::Proxy};

/// Settings of a coordinator.
pub type CoordinatorSettings = everstep_coordinator::Settings;
/// Settings of a worker.
pub type WorkerSettings = everstep_worker::Settings;

/// Which back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SQLite and the in-process broker: the parts of the embedded mode.
    Embedded,
    /// PostgreSQL and RabbitMQ.
    Fleet,
}

/// A system in the making.
#[derive(Clone, Debug)]
pub struct Setup {
    kind: Kind,
    coordinators: usize,
    coordinator: CoordinatorSettings,
    worker: WorkerSettings,
}

#[derive(Debug)]
enum Site {
    Embedded { dir: tempfile::TempDir, hub: MemoryBroker },
    Fleet { installation: Installation },
}

#[derive(Debug)]
struct CoordinatorNode {
    node: Node,
    handle: Handle,
    proxy: Option<Proxy>,
}

#[derive(Debug)]
struct WorkerNode {
    node: Node,
    proxy: Option<Proxy>,
}

/// A running system.
#[derive(Debug)]
pub struct World {
    setup: Setup,
    coordinators: Vec<Option<CoordinatorNode>>,
    workers: Vec<Option<WorkerNode>>,
    observer: Option<Arc<dyn Store>>,
    producer: Arc<dyn Broker>,
    ends: Ends,
    /// Last, so that nothing uses it when it is removed.
    site: Site,
}

/// The full name of an instance.
pub fn name(workflow: &str, id: &str) -> NameKey {
    NameKey {
        namespace: Namespace::default(),
        workflow: WorkflowName::new(workflow).expect("a valid name"),
        id: InstanceId::new(id).expect("a valid id"),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
