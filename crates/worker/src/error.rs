//! Why a worker cannot start, or has stopped.

use everstep_protocol::{InstanceId, WorkflowName};

/// What a worker ends with. A variant exists only where the owner acts differently.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The registry has problems; a retry gives the same answer.
    #[error(transparent)]
    Registry(#[from] everstep_sdk::RegistryError),
    /// The settings have problems; a retry gives the same answer.
    #[error("the worker's settings are refused: {}", problems.join("; "))]
    Settings {
        /// One sentence for each.
        problems: Vec<String>,
    },
    /// The build could not be named after the running executable; name it in the settings.
    #[error("the running executable cannot be read to name the build, set `build`: {0}")]
    Build(#[source] std::io::Error),
    /// The broker refused something that the worker needs: rights or names. A retry gives the same answer.
    #[error(transparent)]
    Broker(#[from] everstep_broker::Error),
    /// A thread could not be started, or has died by a bug of the engine; a new worker may be started.
    #[error("the worker's {0} thread is gone; starting a new worker is safe")]
    Thread(&'static str),
    /// One poll of a body did not come back (rule W12). Everything else was given back; a new worker may be started.
    #[error(
        "workflow {workflow} instance {instance} blocks the worker: one poll of its body did not end; starting a new worker is safe"
    )]
    Stuck {
        /// The workflow.
        workflow: WorkflowName,
        /// The instance.
        instance: InstanceId,
    },
}
