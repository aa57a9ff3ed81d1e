//! The head of an instance: the one row that a decision locks. It never grows with the instance (rule W21).

use everstep_protocol::{
    BuildName, Epoch, Generation, InstanceId, InstanceUid, Namespace, Pin, Position, Run, SessionId,
    Timestamp, WorkflowName,
};

/// What the head itself stores of an instance's status; what an open instance is doing follows from its side rows (rule W24).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Not ended.
    Open,
    /// Ended with an output.
    Complete,
    /// Ended with an error.
    Errored,
    /// Ended by somebody.
    Terminated,
    /// Ended by itself, because somebody cancelled it.
    Cancelled,
}

everstep_protocol::every! {
    /// Every status, in the order of their codes.
    pub Status: Open, Complete, Errored, Terminated, Cancelled
}

impl Status {
    /// The number that stores keep. Never changes.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Open => 0,
            Self::Complete => 1,
            Self::Errored => 2,
            Self::Terminated => 3,
            Self::Cancelled => 4,
        }
    }

    /// The status of a stored number.
    #[must_use]
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }

    /// The word shown to people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Complete => "complete",
            Self::Errored => "errored",
            Self::Terminated => "terminated",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing can happen any more.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        !matches!(self, Self::Open)
    }
}

/// A body that a worker has kept after a suspend. A hint, never counted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached {
    /// The session that suspended it.
    pub session: SessionId,
    /// The last entry that the body was fed.
    pub position: Position,
}

/// The head row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Internal id.
    pub uid: InstanceUid,
    /// Namespace.
    pub namespace: Namespace,
    /// Workflow.
    pub workflow: WorkflowName,
    /// The id that users see.
    pub id: InstanceId,
    /// Current run.
    pub run: Run,
    /// Current generation.
    pub generation: Generation,
    /// Open, or how it ended.
    pub status: Status,
    /// The epoch of the latest lease; only grows (rule W2).
    pub epoch: Epoch,
    /// The last position of the current run's journal (rule W1).
    pub position: Position,
    /// The number of the last report taken from the current lease.
    pub reports: u64,
    /// How many wait rows are open.
    pub waits: u32,
    /// How many steps of this generation have an outcome (rule P4).
    pub steps: u64,
    /// Bytes of the journal (rule P4).
    pub journal_bytes: u64,
    /// Holders that died in a row without progress (rule W11).
    pub deaths: u32,
    /// The number of the last event that was accepted (rule P22).
    pub events: u64,
    /// Events that no call has got yet.
    pub unread: u64,
    /// Who may have kept its body, while nobody holds it (rule W27).
    pub cached: Option<Cached>,
    /// Rows that tie it to other instances: children, a parent, those who wait for its end. Never less than there are; without
    /// any, none is looked for (rule P36).
    pub links: u32,
    /// Tokens that it owns, or may. Never less than there are; without any, none is looked for.
    pub hooks: u32,
    /// The end of the longest retention of a hook that it ever had: it is kept as long (rule H55).
    pub hooks_until: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it ended: set exactly when the status is not open.
    pub ended_at: Option<Timestamp>,
    /// How long its start wants it kept after its end. Never changes.
    pub retention: crate::retention::Own,
    /// Only workers of this build take it up (rule P40); any worker does where there is none.
    pub pin: Option<Pin>,
}

impl Head {
    /// The moment of a restore, if the history that was lost with it may have had this instance: it is older, or is tied to another. A child
    /// that its older parent starts anew looks young, and may have run in the time that was lost.
    #[must_use]
    pub fn doubted(&self, restored_at: Option<Timestamp>) -> Option<Timestamp> {
        restored_at.filter(|at| self.created_at <= *at || self.links > 0)
    }

    /// The head of a new instance, before its first entry.
    #[must_use]
    pub const fn new(
        uid: InstanceUid,
        namespace: Namespace,
        workflow: WorkflowName,
        id: InstanceId,
        created_at: Timestamp,
    ) -> Self {
        Self {
            uid,
            namespace,
            workflow,
            id,
            run: Run(1),
            generation: Generation(1),
            status: Status::Open,
            epoch: Epoch(0),
            position: Position(0),
            reports: 0,
            waits: 0,
            steps: 0,
            journal_bytes: 0,
            deaths: 0,
            events: 0,
            unread: 0,
            cached: None,
            links: 0,
            hooks: 0,
            hooks_until: None,
            created_at,
            ended_at: None,
            retention: crate::retention::Own { complete: None, failed: None },
            pin: None,
        }
    }

    /// The build that alone may take it up, if there is one.
    #[must_use]
    pub fn pinned_to(&self) -> Option<&BuildName> {
        self.pin.as_ref().and_then(Pin::build)
    }
}
