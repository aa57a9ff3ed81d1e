//! What a worker is given to work on.

use serde::{Deserialize, Serialize};

use crate::{
    Attempt, Call, CallHash, Epoch, Generation, InstanceId, InstanceUid, Namespace, Payload, Position, Run,
    Timestamp, WorkflowName,
    journal::{Entry, Remote},
};

/// A lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// The instance.
    pub instance: InstanceUid,
    /// The lease's epoch.
    pub epoch: Epoch,
    /// The instance's namespace.
    pub namespace: Namespace,
    /// Its workflow.
    pub workflow: WorkflowName,
    /// Its id.
    pub id: InstanceId,
    /// Its run.
    pub run: Run,
    /// Its generation.
    pub generation: Generation,
    /// The database's clock when the grant was decided.
    pub now: Timestamp,
    /// The number of the last report of this lease that was taken; 0 for a fresh lease.
    pub reports: u64,
    /// The journal's last position. Entries up to it that are not here are asked for.
    pub last: Position,
    /// The first part of the journal.
    pub entries: Vec<Entry>,
    /// Sent without a claim, against a credit (rule W35).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
    /// When an older database was restored, if the instance is older than that: steps that are called at most once may have been called
    /// by the history that was lost (rule L7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_at: Option<Timestamp>,
}

/// Entries of an instance that the worker holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entries {
    /// The instance.
    pub instance: InstanceUid,
    /// The lease's epoch.
    pub epoch: Epoch,
    /// A position that the journal had reached when this was sent. A part of a journal that was asked for is read under no
    /// lock and says its own last position; whoever asked knows from the grant how far the journal goes.
    pub last: Position,
    /// The entries, dense and in order.
    pub entries: Vec<Entry>,
    /// The instance is being paused (true): what runs here goes on, nothing else begins, then the lease is given up; or it is
    /// no longer (false). An earlier version does not hear it and goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<bool>,
}

/// The lease of a remote step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepGrant {
    /// The instance.
    pub instance: InstanceUid,
    /// Its call's hash.
    pub hash: CallHash,
    /// The step lease's epoch.
    pub epoch: Epoch,
    /// The instance's namespace.
    pub namespace: Namespace,
    /// Its workflow.
    pub workflow: WorkflowName,
    /// Its id.
    pub id: InstanceId,
    /// The call.
    pub call: Call,
    /// Which attempt, from 1.
    pub attempt: Attempt,
    /// What to run, with which input, key and policy.
    pub remote: Remote,
    /// What the attempts before told last of their progress (rule P5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Payload>,
}
