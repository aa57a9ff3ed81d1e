//! A system with everything that a test does to it: how it is made (`setup`), its parts that come and go (`parts`), what
//! producers and operators do (`outside`), and what a test sees (`sight`).

mod outside;
mod parts;
mod setup;
mod sight;

use std::{sync::Arc, time::Duration};

use everstep_broker::{AmqpSettings, Broker, MemoryBroker};
use everstep_coordinator::Handle;
use everstep_engine::start::NameKey;
use everstep_protocol::{InstanceId, Namespace, WorkflowName};
use everstep_store::Store;
use everstep_testbed::{Installation, OwnRabbit};

use crate::{
    ends::Ends,
    node::Node,
    proxy::{self, Proxy},
};

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
    /// So many nodes of a broker of its own; none is the one that all share.
    nodes: usize,
    /// The kind that queues of that broker are of if they name none.
    default_queue_type: Option<&'static str>,
    /// See [`AmqpSettings::blocked_max`].
    blocked_max: Duration,
}

#[derive(Debug)]
enum Site {
    Embedded { dir: tempfile::TempDir, hub: MemoryBroker },
    Fleet { installation: Installation, nodes: Vec<OwnRabbit> },
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
    /// The producer's way to a broker of its own.
    _producer_way: Option<Proxy>,
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

impl Setup {
    fn amqp(&self, url: String, name: &str) -> AmqpSettings {
        AmqpSettings { blocked_max: self.blocked_max, ..AmqpSettings::new(url, name) }
    }
}

/// A way to the broker of a fleet, whichever nodes it has.
async fn way_to(installation: &Installation, nodes: &[OwnRabbit]) -> Proxy {
    if nodes.is_empty() {
        return Proxy::start(proxy::target(&installation.amqp)).await;
    }
    Proxy::start_before(nodes.iter().map(|node| proxy::target(&node.url())).collect()).await
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
