//! What goes in and out of a hosted instance.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use everstep_engine::retry::Asked;
use everstep_protocol::{
    Attempt, BuildName, Epoch, Failure, InstanceUid, Millis, Payload, Reference, Run, SessionId,
    limits::Limits, message::WorkerItem,
};
use everstep_sdk::{
    Registry,
    host::{DelayFn, StepFn, StepInfo},
};
use everstep_telemetry::trace::Spanning;

use crate::{metrics::Metrics, settings::Interceptor, watch::Watch};

/// What all instances of one session share.
pub struct Env {
    /// The workflows.
    pub registry: Registry,
    /// The build of the code.
    pub build: BuildName,
    /// The session.
    pub session: SessionId,
    /// The installation's limits.
    pub limits: Limits,
    /// See [`Settings::linger`](crate::Settings::linger).
    pub linger: Duration,
    /// Whether bodies are kept over a suspend (rule W27).
    pub caches: bool,
    /// Who is polled.
    pub watch: Arc<Watch>,
    /// Where is counted.
    pub metrics: Metrics,
    /// Sees what instances wait for.
    pub interceptor: Option<Arc<dyn Interceptor>>,
    /// Is told, from any thread, that something foreign woke a body.
    pub foreign: ForeignListener,
}

/// See [`Env::foreign`].
pub type ForeignListener = Arc<dyn Fn(InstanceUid, Epoch) + Send + Sync>;

/// What a turn asks for.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all of it is the large one")]
pub enum Out {
    /// Send this; it is worth nothing after this time.
    Send(WorkerItem, Duration),
    /// Start an attempt.
    Start(Box<Order>),
    /// Cancel the attempt of this call, running or waiting for a slot.
    Cancel {
        /// The call's number.
        number: u64,
    },
    /// The instance is no longer held; nothing more comes.
    Finished(Finish),
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The instance waits.
    Suspended,
    /// The body has returned.
    Ended,
    /// It is parked.
    Parked,
    /// It goes on as the next generation, under another lease.
    Continued,
    /// It was given back.
    GivenBack,
}

impl Finish {
    /// The word in spans and lines.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Suspended => "suspended",
            Self::Ended => "ended",
            Self::Parked => "parked",
            Self::Continued => "continued",
            Self::GivenBack => "given_back",
        }
    }
}

/// An attempt to run.
pub struct Order {
    /// The call's number.
    pub number: u64,
    /// What the step function is told.
    pub info: StepInfo,
    /// Runs the attempt.
    pub run: StepFn,
    /// Computes the delay after a failure.
    pub delay: Option<DelayFn>,
    /// What the attempts before told last of their progress.
    pub last: Option<Payload>,
    /// What this one tells.
    pub progress: Progress,
    /// The run of the instance; not known of a remote step.
    pub run_of: Option<Run>,
    /// The session that runs it.
    pub session: Option<SessionId>,
    /// The span that begins with it, if the instance is in a trace.
    pub span: Option<Box<Spanning>>,
}

/// What an attempt told last of its progress. Each attempt has its own: what one that is written off still tells is nobody's.
pub type Progress = Arc<Mutex<Option<Payload>>>;

/// An attempt that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The call's number.
    pub number: u64,
    /// Which attempt.
    pub attempt: Attempt,
    /// How long it ran.
    pub ran_for: Millis,
    /// Its outcome.
    pub result: Result<Payload, Failure>,
    /// That was found by looking (rule L6).
    pub found: bool,
    /// What its service calls what it did (rule L14).
    pub reference: Option<Reference>,
    /// Who says when the next attempt may start.
    pub asked: Asked,
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order")
            .field("number", &self.number)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("session", &self.session)
            .field("build", &self.build)
            .finish_non_exhaustive()
    }
}
