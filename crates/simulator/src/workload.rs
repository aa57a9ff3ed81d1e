//! What is done with the system under test: programs that use every feature, producers that start them and send to them, and a person.

pub(crate) mod effects;
pub(crate) mod interpret;
pub(crate) mod outside;
pub(crate) mod person;
pub(crate) mod program;

use everstep_engine::start::NameKey;
use everstep_protocol::{InstanceId, Namespace, WorkflowName};

/// The build that all workers bear.
pub(crate) const BUILD: &str = "simulated";
/// The one workflow.
pub(crate) const WORKFLOW: &str = "program";
/// The pool of remote steps.
pub(crate) const POOL: &str = "pool";
/// So many tokens are contended for.
pub(crate) const TOKENS: u64 = 4;
/// So many types of events are sent.
pub(crate) const TYPES: u64 = 3;

/// The name of an instance.
pub(crate) fn name(id: &str) -> NameKey {
    NameKey {
        namespace: Namespace::default(),
        workflow: WorkflowName::new(WORKFLOW).expect("the workflow's name is valid"),
        id: InstanceId::new(id).expect("ids of this workload are valid"),
    }
}
