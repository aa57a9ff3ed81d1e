//! All settings of the `everstep` command, composed from those of its parts: file, then environment, then flags.
//!
//! The few variables that stand for options of the command line (`EVERSTEP_URL` and the like) are read by the parser of the command
//! line itself.

pub mod reference;
mod section;

use everstep_settings::Reading;
use serde::{Deserialize, Serialize};

pub use everstep_settings::{Log, LogFormat, Otlp, SecretUrl, Sources};
pub use section::{Amqp, Http, Metrics, Postgres, Worker};

/// How they are read: the variables that are none stand for options of the command line, or are for scripts.
const READING: Reading = Reading {
    no_settings: &[
        "EVERSTEP_URL",
        "EVERSTEP_NAMESPACE",
        "EVERSTEP_ACCESS_TOKEN",
        "EVERSTEP_ACCESS_TOKEN_FILE",
        "EVERSTEP_OUTPUT",
        "EVERSTEP_CONFIG",
        "EVERSTEP_RABBITMQCTL",
    ],
    listed_by: "`everstep settings --reference`",
};

/// All settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// PostgreSQL, for `migrate` and `coordinator`.
    pub postgres: Postgres,
    /// RabbitMQ, for `coordinator`.
    pub amqp: Amqp,
    /// The HTTP API, for `coordinator` and `dev`.
    pub http: Http,
    /// What Prometheus and probes ask.
    pub metrics: Metrics,
    /// The coordinator, also the one in `dev`.
    pub coordinator: everstep_coordinator::Settings,
    /// The worker in `dev`.
    pub worker: Worker,
    /// Logs, on standard error.
    pub log: Log,
    /// OpenTelemetry.
    pub otlp: Otlp,
}

/// For what the settings are to be used; decides what must be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// To be shown: nothing must be set.
    Any,
    /// `everstep migrate` and `everstep restored`.
    Migrate,
    /// `everstep coordinator`.
    Coordinator,
    /// `everstep dev`.
    Dev,
}

impl Settings {
    /// Reads the settings. The error lists all unknown names, or else what does not fit its type.
    pub fn load(sources: &Sources) -> Result<Self, Vec<String>> {
        READING.load(sources)
    }

    /// All problems, not only the first.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        self.validate_for(Role::Any)
    }

    /// All problems, and what this role misses.
    #[must_use]
    pub fn validate_for(&self, role: Role) -> Vec<String> {
        let mut problems = Vec::new();
        if matches!(role, Role::Migrate | Role::Coordinator) && self.postgres.url.is_empty() {
            problems.push(
                "postgres.url is not set; set EVERSTEP_POSTGRES__URL, or url under [postgres] in the file"
                    .to_owned(),
            );
        }
        if role == Role::Coordinator && self.amqp.url.is_empty() {
            problems.push(
                "amqp.url is not set; set EVERSTEP_AMQP__URL, or url under [amqp] in the file".to_owned(),
            );
        }
        problems.extend(self.postgres.validate());
        problems.extend(self.amqp.validate());
        problems.extend(self.http.validate());
        problems.extend(self.coordinator.validate());
        problems.extend(self.worker.validate());
        problems.extend(self.log.validate());
        problems.extend(self.otlp.validate());
        problems
    }

    /// The same with the secrets in URLs masked: for people to see.
    #[must_use]
    pub fn masked(&self) -> Self {
        let mut shown = self.clone();
        shown.postgres.url = self.postgres.url.masked();
        shown.amqp.url = self.amqp.url.masked();
        shown.otlp.endpoint = self.otlp.endpoint.as_ref().map(SecretUrl::masked);
        shown
    }
}
