//! What is done with the system under test: programs that use every feature, producers that start them and send to them, and a person.

pub(crate) mod effects;
pub(crate) mod interpret;
pub(crate) mod outside;
pub(crate) mod person;
pub(crate) mod program;
pub(crate) mod schedules;

use everstep_engine::start::NameKey;
use everstep_protocol::{BuildName, InstanceId, Namespace, WorkflowName};

/// The builds that workers bear, one after the other: the same code under two names.
pub(crate) const BUILDS: [&str; 2] = ["simulated", "simulated-too"];
/// The one workflow.
pub(crate) const WORKFLOW: &str = "program";
/// The pool of remote steps.
pub(crate) const POOL: &str = "pool";
/// So many tokens are contended for.
pub(crate) const TOKENS: u64 = 4;
/// So many types of events are sent.
pub(crate) const TYPES: u64 = 3;

/// The build of the worker of this number.
pub(crate) fn build(number: usize) -> BuildName {
    BuildName::new(BUILDS[number % BUILDS.len()]).expect("the names of builds are valid")
}

/// The name of an instance.
pub(crate) fn name(id: &str) -> NameKey {
    NameKey {
        namespace: Namespace::default(),
        workflow: WorkflowName::new(WORKFLOW).expect("the workflow's name is valid"),
        id: InstanceId::new(id).expect("ids of this workload are valid"),
    }
}
