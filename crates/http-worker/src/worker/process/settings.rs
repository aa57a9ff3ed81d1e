//! All settings of the process. A table of them is in docs/guides/http-steps.md.

use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf};

use everstep_protocol::{BuildName, Millis, Namespace, Pool};
use everstep_settings::{Log, Otlp, PREFIX, Reading, SecretUrl, Sources};
use serde::{Deserialize, Serialize};

use crate::{
    POOL,
    worker::{HostRule, Secrets, Settings},
};

/// Variables that begin so after the prefix are secrets, named by the rest.
const SECRET: &str = "SECRET_";
const READING: Reading =
    Reading { no_settings: &["EVERSTEP_CONFIG", "EVERSTEP_SECRET_"], listed_by: "docs/guides/http-steps.md" };

/// All settings: file, then environment, then flags.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessSettings {
    /// RabbitMQ.
    pub amqp: Amqp,
    /// The worker of the fleet.
    pub worker: WorkerPart,
    /// The calls.
    pub calls: Settings,
    /// Where secrets are.
    pub secrets: SecretSources,
    /// Metrics.
    pub metrics: MetricsPage,
    /// Logs, on standard error.
    pub log: Log,
    /// Traces.
    pub otlp: Otlp,
    /// Secrets from the environment; never written down.
    #[serde(skip)]
    pub(super) given: Secrets,
}

/// RabbitMQ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Amqp {
    /// Where: `amqp://user:password@host:port/vhost` or `amqps://`. Required.
    pub url: SecretUrl,
}

/// The worker of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerPart {
    /// Its namespace. Default `default`.
    pub namespace: String,
    /// The pools whose remote steps it runs. Default `["http"]`.
    pub pools: Vec<String>,
    /// How many calls it makes at once. Default 100.
    pub slots: u32,
    /// How many step tasks the broker may hand over before they are settled. Default 100.
    pub prefetch: u16,
    /// How many report queues the installation has, as the coordinator's setting says. Default 4.
    pub report_queues: u32,
    /// How long calls that are under way may go on after a stop, in milliseconds. Default 30,000.
    pub shutdown_grace: Millis,
    /// The build of its code. Default: the first 16 hexadecimal digits of the executable's hash.
    pub build: Option<String>,
}

impl Default for WorkerPart {
    fn default() -> Self {
        Self {
            namespace: "default".to_owned(),
            pools: vec![POOL.to_owned()],
            slots: 100,
            prefetch: 100,
            report_queues: 4,
            shutdown_grace: Millis::from_secs(30),
            build: None,
        }
    }
}

/// Where secrets are, beside the variables of the environment that begin with `EVERSTEP_SECRET_`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecretSources {
    /// A directory with a file for each secret, named like it. Read anew for each call. Default: none.
    pub directory: Option<PathBuf>,
    /// By the name of a secret, the only hosts that it may go to. Default: each goes to all of `calls.hosts`.
    pub hosts: BTreeMap<String, Vec<HostRule>>,
}

/// Metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsPage {
    /// Address and port to serve `/metrics`, `/healthz` and `/readyz` at, and nothing else. Default: not served.
    pub listen: Option<SocketAddr>,
}

impl ProcessSettings {
    /// Reads the settings. The error lists what is wrong with the names and types.
    pub fn load(sources: &Sources) -> Result<Self, Vec<String>> {
        let mut settings: Self = READING.load(sources)?;
        let set = sources.environment.iter().filter(|(_, value)| !value.is_empty());
        let named =
            set.filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.strip_prefix(SECRET)?, value)));
        settings.given = named.fold(Secrets::default(), |secrets, (name, value)| secrets.with(name, value));
        Ok(settings)
    }

    /// All problems, not only the first.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = self.calls.validate();
        let mut check = |good: bool, problem: String| {
            if !good {
                problems.push(problem);
            }
        };
        let url = self.amqp.url.reveal();
        let is_amqp = url.starts_with("amqp://") || url.starts_with("amqps://");
        check(is_amqp, "amqp.url must be set, and begin with amqp:// or amqps://".to_owned());
        check(self.worker.slots > 0, "worker.slots must be at least 1".to_owned());
        check(self.worker.prefetch > 0, "worker.prefetch must be at least 1".to_owned());
        check(self.worker.report_queues > 0, "worker.report_queues must be at least 1".to_owned());
        check(!self.worker.pools.is_empty(), "worker.pools must name one at least".to_owned());
        let namespace = Namespace::new(&self.worker.namespace).err();
        check(namespace.is_none(), format!("worker.namespace: {}", told(namespace)));
        for pool in &self.worker.pools {
            let refused = Pool::new(pool).err();
            check(refused.is_none(), format!("worker.pools: {}", told(refused)));
        }
        let build = self.worker.build.as_ref().and_then(|build| BuildName::new(build).err());
        check(build.is_none(), format!("worker.build: {}", told(build)));
        problems.extend(self.log.validate());
        problems.extend(self.otlp.validate());
        problems.extend(self.secrets().validate());
        problems
    }

    /// Where secrets are looked up.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        let mut secrets = self.given.clone();
        for (name, hosts) in &self.secrets.hosts {
            secrets = secrets.only_to(name, hosts.iter().cloned());
        }
        match &self.secrets.directory {
            Some(directory) => secrets.directory(directory),
            None => secrets,
        }
    }
}

fn told(error: Option<impl fmt::Display>) -> String {
    error.map(|error| error.to_string()).unwrap_or_default()
}
