//! What sessions say of themselves: that they begin, live and end, and what they hold (rules W5 to W9).

use serde::{Deserialize, Serialize};

use super::Credit;
use crate::{
    BuildName, CallHash, CoordinatorId, Epoch, FunctionName, InstanceUid, Millis, Namespace, Pool, Position,
    Run, SessionId, WorkflowName, journal::Progress,
};

/// What a worker, or a coordinator for itself, sends to the sessions queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionMessage {
    /// Registers a session, or its new inbox after a reconnect.
    Open(OpenSession),
    /// Says that the session lives and what it holds.
    Heartbeat(Heartbeat),
    /// Ends the session: what it holds goes back at once and uncounted.
    Goodbye {
        /// The session.
        session: SessionId,
    },
    /// A coordinator's own heartbeat, which shows that the way is open (rule W8).
    Beat {
        /// The coordinator.
        coordinator: CoordinatorId,
    },
}

/// A worker process presents itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenSession {
    /// The session, chosen by the worker.
    pub session: SessionId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The workflows that it serves.
    pub workflows: Vec<WorkflowName>,
    /// Those of its workflows whose instances are pinned to the build that takes them up first (rule P40).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<WorkflowName>,
    /// The pools whose remote steps it runs.
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// The functions that it runs for them.
    #[serde(default)]
    pub functions: Vec<FunctionName>,
    /// The build of its code.
    pub build: BuildName,
    /// The name of its inbox queue.
    pub inbox: String,
    /// How many steps it runs at once.
    pub slots: u32,
    /// How many instances it holds at once.
    pub instances: u32,
    /// Where it runs, for people: host name and process id.
    pub host: String,
}

/// A sign of life that names everything held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The session.
    pub session: SessionId,
    /// 1, 2, 3, ...
    pub number: u64,
    /// The number of the last heartbeat whose answer arrived; 0 for none.
    pub answered: u64,
    /// The inbox, should the coordinator have missed the reopening.
    pub inbox: String,
    /// Every instance held.
    pub held: Vec<Held>,
    /// Every remote step held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<HeldStep>,
    /// Steps that are running.
    pub running: u32,
    /// How long ago the work loop last came round: it does so each second, even with nothing to do, unless it is
    /// blocked (rule W12). An earlier version does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turned: Option<Millis>,
    /// Room for direct grants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credits: Vec<Credit>,
    /// What attempts that run have told of their progress (rule P5).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<Running>,
}

/// What an attempt that runs has told of its progress. All of it is in every heartbeat while the attempt runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// The instance.
    pub instance: InstanceUid,
    /// The epoch of the lease that it runs under: the instance's, or the remote step's.
    pub epoch: Epoch,
    /// What it told.
    pub progress: Progress,
}

/// An instance that a session holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The instance.
    pub instance: InstanceUid,
    /// The lease's epoch.
    pub epoch: Epoch,
    /// The last position up to which the worker has every entry.
    pub position: Position,
    /// The run that the position counts in. Where an earlier version does not say it, positions are not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// The number of the last report of this lease that was answered, as were all before it; 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reports: Option<u64>,
}

/// A remote step that a session holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldStep {
    /// The instance.
    pub instance: InstanceUid,
    /// Its call.
    pub call: CallHash,
    /// The step lease's epoch.
    pub epoch: Epoch,
}
