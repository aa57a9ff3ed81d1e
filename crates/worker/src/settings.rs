//! What an owner decides about a worker. Checked once, passed as a value.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use everstep_protocol::{
    BuildName, Call, Namespace, Pool, SessionId,
    message::{Grant, OpenWait},
};
use everstep_sdk::host::{InstanceInfo, StepFn, StepInfo};
use tokio::runtime::Handle;

use crate::{error::Error, metrics::Metrics};

/// The settings of one worker.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its namespace. Default `default`.
    pub namespace: Namespace,
    /// The build of its code. Default: the first 16 hexadecimal digits of the executable's hash.
    pub build: Option<BuildName>,
    /// The pools whose remote steps it runs. Default: none.
    pub pools: Vec<Pool>,
    /// How many steps it runs at once. Default 100.
    pub slots: u32,
    /// How many instances it holds at once. Default 1000.
    pub instances: u32,
    /// How many tasks of one queue the broker may hand over before they are settled. Default 100.
    pub prefetch: u16,
    /// How many messages of its inbox the broker may hand over before they are settled. Default 1000.
    pub inbox_prefetch: u16,
    /// How long one poll of a body may take before it counts as stuck (rule W12). Default 10 s.
    pub poll_limit: Duration,
    /// How long the retry of a timed-out step waits for the old attempt to go (rule W34). Default 30 s.
    pub timeout_grace: Duration,
    /// With a wait due within this time the instance is kept instead of suspended (rule W27). Default 100 ms.
    pub linger: Duration,
    /// How many bytes bodies of suspended instances may take, by an estimate, so that their wake need not replay the journal (rule
    /// W27); 0 keeps none. Default 64 MiB.
    pub cache_bytes: u64,
    /// How many report queues the installation has (rule W16). Default 4.
    pub report_queues: u32,
    /// How long running steps may go on after a stop. Default 30 s.
    pub shutdown_grace: Duration,
    /// The runtime that receives and beats, if the broker's connection has one of its own: on the same runtime each message
    /// takes one hop between threads less. It must run nothing of the user's (rule W12). Default: a thread of its own.
    pub link_runtime: Option<Handle>,
    /// Where its own loops run. Default: on threads of their own.
    pub loops: Loops,
    /// What stands between the worker and the functions of steps: for tests. Default: nothing.
    pub interceptor: Option<Arc<dyn Interceptor>>,
    /// Where the ids of its sessions come from: for runs that repeat. Default: a new one by time and chance.
    pub session_ids: SessionIds,
    /// What happens when a body is stuck. Default: the process exits.
    pub on_stuck: OnStuck,
    /// Where the worker counts. Default: counters of its own.
    pub metrics: Metrics,
}

/// Where the work loop and the link run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loops {
    /// Each on a thread of its own, so that user code can block neither heartbeats nor steps (rule W12).
    Threads,
    /// As tasks of the runtime that [`Worker::run`](crate::Worker::run) is called on: a whole system on one thread, whose
    /// clock may be paused. A body that blocks then blocks everything, and nothing in here can tell.
    Current,
}

/// Sees every attempt of a step, remote ones too, before it runs, and says what runs instead. Timeouts, retries, policies
/// and reports are the worker's all the same. Called on the work loop: it must not block or panic.
pub trait Interceptor: fmt::Debug + Send + Sync {
    /// An instance was taken up, not always for the first time; its body has not been polled yet.
    fn granted(&self, grant: &Grant);

    /// What runs for this attempt: `run` itself, something around it, or something else.
    fn attempt(&self, attempt: &StepInfo, run: StepFn) -> StepFn;

    /// A call of an instance is about to wait. Its timeout may be changed, nothing else: the body is compared with what it asked for.
    fn opens(&self, _instance: &InstanceInfo, _call: &Call, _wait: &mut OpenWait) {}
}

/// Gives each session of a worker its id, which must be one that no session ever had.
#[derive(Clone)]
pub struct SessionIds(Arc<dyn Fn() -> SessionId + Send + Sync>);

impl SessionIds {
    /// They come from here.
    pub fn new(next: impl Fn() -> SessionId + Send + Sync + 'static) -> Self {
        Self(Arc::new(next))
    }

    pub(crate) fn next(&self) -> SessionId {
        (self.0)()
    }
}

impl Default for SessionIds {
    fn default() -> Self {
        Self::new(SessionId::generate)
    }
}

impl fmt::Debug for SessionIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionIds").finish_non_exhaustive()
    }
}

/// What happens after everything but the stuck instance was given back (rule W12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStuck {
    /// The process exits with code 70: no thread can be stopped from outside.
    ExitProcess,
    /// The stuck thread is abandoned and [`Worker::run`](crate::Worker::run) returns [`Error::Stuck`].
    Abandon,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: Namespace::default(),
            build: None,
            pools: Vec::new(),
            slots: 100,
            instances: 1000,
            prefetch: 100,
            inbox_prefetch: 1000,
            poll_limit: Duration::from_secs(10),
            timeout_grace: Duration::from_secs(30),
            linger: Duration::from_millis(100),
            cache_bytes: 64 * 1024 * 1024,
            report_queues: 4,
            shutdown_grace: Duration::from_secs(30),
            link_runtime: None,
            loops: Loops::Threads,
            interceptor: None,
            session_ids: SessionIds::default(),
            on_stuck: OnStuck::ExitProcess,
            metrics: Metrics::default(),
        }
    }
}

impl Settings {
    /// All problems together.
    pub fn validate(&self) -> Result<(), Error> {
        let least_one = [
            ("slots", u64::from(self.slots)),
            ("instances", u64::from(self.instances)),
            ("prefetch", u64::from(self.prefetch)),
            ("inbox_prefetch", u64::from(self.inbox_prefetch)),
            ("report_queues", u64::from(self.report_queues)),
            ("poll_limit", u64::try_from(self.poll_limit.as_millis()).unwrap_or(u64::MAX)),
        ];
        let problems: Vec<_> = least_one
            .iter()
            .filter(|(_, value)| *value == 0)
            .map(|(name, _)| format!("{name} must be at least 1"))
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(Error::Settings { problems }) }
    }

    /// The build that a worker with these settings announces: named after the executable where nobody named it.
    pub fn build(&self) -> Result<BuildName, Error> {
        static NAMED: OnceLock<BuildName> = OnceLock::new();
        if let Some(build) = &self.build {
            return Ok(build.clone());
        }
        if let Some(build) = NAMED.get() {
            return Ok(build.clone());
        }
        let mut hasher = blake3::Hasher::new();
        let mut file = std::env::current_exe().and_then(std::fs::File::open).map_err(Error::Build)?;
        std::io::copy(&mut file, &mut hasher).map_err(Error::Build)?;
        let digits = hasher.finalize().to_hex();
        let build = BuildName::new(&digits[..16]).expect("hexadecimal digits are a name");
        Ok(NAMED.get_or_init(|| build).clone())
    }
}
