//! The settings that have no crate of their own. The docs of the fields are the reference page.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use everstep_broker::amqp::AmqpSettings;
use everstep_coordinator::http::{Demand, Rate};
use everstep_protocol::{BuildName, Millis, Pool};
use everstep_settings::SecretUrl;
use everstep_store::postgres::{PostgresSettings, PostgresTls};
use everstep_tls::Identity;
use serde::{Deserialize, Serialize};

/// PostgreSQL, for `migrate` and `coordinator`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Postgres {
    /// Where: `postgres://user:password@host:port/database`. Required where PostgreSQL is used.
    pub url: SecretUrl,
    /// The most connections of this process. Default 8.
    pub pool_max: usize,
    /// How far the way there is safe: `off`, it is not encrypted; `require`, it is, to whoever answers; `verify_full`, it is, and whoever
    /// answers has a certificate for the host in the URL that is trusted. Default `off`.
    pub tls: PostgresTls,
    /// A file with the certificates that are trusted with `verify_full`, as PEM. Default: those that the system trusts.
    pub ca_file: Option<PathBuf>,
}

impl Default for Postgres {
    fn default() -> Self {
        Self { url: SecretUrl::default(), pool_max: 8, tls: PostgresTls::Off, ca_file: None }
    }
}

impl Postgres {
    pub(super) fn validate(&self) -> Vec<String> {
        problems(&[
            (self.pool_max > 0, "postgres.pool_max must be at least 1"),
            (
                self.ca_file.is_none() || self.tls == PostgresTls::VerifyFull,
                "postgres.ca_file is for postgres.tls = verify_full, and nothing is verified",
            ),
        ])
    }

    /// As the store takes them.
    #[must_use]
    pub fn store(&self) -> PostgresSettings {
        PostgresSettings {
            tls: self.tls,
            ca_file: self.ca_file.clone(),
            pool_max: self.pool_max,
            ..PostgresSettings::new(self.url.reveal())
        }
    }
}

/// RabbitMQ, for `coordinator`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Amqp {
    /// Where: `amqp://user:password@host:port/vhost` or `amqps://`; the vhost `/` is written `%2f`. Required where RabbitMQ
    /// is used.
    pub url: SecretUrl,
    /// A file with the certificates that are trusted with `amqps://`, as PEM. Default: those that the system trusts.
    pub ca_file: Option<PathBuf>,
}

impl Amqp {
    pub(super) fn validate(&self) -> Vec<String> {
        if self.url.is_empty() {
            return Vec::new();
        }
        let settings = AmqpSettings::new(self.url.reveal(), "everstep");
        settings.problems().iter().map(|problem| format!("amqp.url: {problem}")).collect()
    }

    /// As the broker takes them, for a connection of this name.
    pub fn broker(&self, name: &str) -> std::io::Result<AmqpSettings> {
        let ca_pem = self.ca_file.as_deref().map(std::fs::read_to_string).transpose()?;
        Ok(AmqpSettings { ca_pem, ..AmqpSettings::new(self.url.reveal(), name) })
    }
}

/// The HTTP API, for `coordinator` and `dev`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Address and port to serve at. Default `127.0.0.1:7070`.
    pub listen: SocketAddr,
    /// When requests need an access token: `unless_loopback`, where only this host can ask; `always`; or `never`, which lets whoever
    /// reaches the port do everything. Default `unless_loopback`.
    pub access: Demand,
    /// How many requests of one caller are served in a second, on and on: of one access token or, without one, of one address. What is
    /// more is answered `rate_limited`. Each coordinator counts for itself. Default 0: as many as come.
    pub rate_per_second: u32,
    /// How many of them are served at once after a pause. Default 0: as many as in a second.
    pub rate_burst: u32,
    /// A file with the certificate that is shown to whoever connects and those that lead to its root, as PEM: the API is served by HTTPS
    /// alone. What is in it is read again every minute, so that one that is renewed needs no restart. Default: HTTP.
    pub tls_certificate: Option<PathBuf>,
    /// A file with the key of that certificate, as PEM. It is set exactly if the certificate is.
    pub tls_key: Option<PathBuf>,
}

impl Default for Http {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 7070));
        let (tls_certificate, tls_key) = (None, None);
        Self {
            listen,
            access: Demand::default(),
            rate_per_second: 0,
            rate_burst: 0,
            tls_certificate,
            tls_key,
        }
    }
}

impl Http {
    pub(super) fn validate(&self) -> Vec<String> {
        problems(&[(
            self.tls_certificate.is_some() == self.tls_key.is_some(),
            "http.tls_certificate and http.tls_key are set together, or neither",
        )])
    }

    /// What is shown to whoever connects, if the API is served by HTTPS.
    pub fn identity(&self) -> Result<Option<Arc<Identity>>, everstep_tls::Error> {
        let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) else { return Ok(None) };
        Ok(Some(Arc::new(Identity::load(certificate, key)?)))
    }

    /// As the coordinator takes them.
    #[must_use]
    pub const fn served(&self) -> everstep_coordinator::http::Settings {
        let rate = Rate { per_second: self.rate_per_second, burst: self.rate_burst };
        everstep_coordinator::http::Settings { access: self.access, rate }
    }
}

/// What Prometheus and probes ask, for `coordinator` and `dev`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Address and port to serve `/metrics`, `/healthz` and `/readyz` at, and nothing else: it need not be loopback, where names of
    /// workflows, steps and queues, which are labels, may be known. Default: only the HTTP API serves them.
    pub listen: Option<SocketAddr>,
}

/// The worker in `dev`. A fleet's workers are your own programs and are set up in their code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Worker {
    /// The build of its code. Default: the first 16 hexadecimal digits of the executable's hash.
    pub build: Option<BuildName>,
    /// The pools whose remote steps it runs, beside that of the examples. Default: none.
    pub pools: Vec<Pool>,
    /// How many steps it runs at once. Default 100.
    pub slots: u32,
    /// How many instances it holds at once. Default 1,000.
    pub instances: u32,
    /// How long running steps may go on after a stop, in milliseconds. Default 5,000.
    pub shutdown_grace: Millis,
}

impl Default for Worker {
    fn default() -> Self {
        Self { build: None, pools: Vec::new(), slots: 100, instances: 1_000, shutdown_grace: Millis(5_000) }
    }
}

impl Worker {
    pub(super) fn validate(&self) -> Vec<String> {
        problems(&[
            (self.slots > 0, "worker.slots must be at least 1"),
            (self.instances > 0, "worker.instances must be at least 1"),
        ])
    }

    /// How long running steps may go on after a stop.
    #[must_use]
    pub const fn grace(&self) -> Duration {
        self.shutdown_grace.to_std()
    }
}

fn problems(checks: &[(bool, &str)]) -> Vec<String> {
    checks.iter().filter(|(good, _)| !good).map(|(_, problem)| (*problem).to_owned()).collect()
}
