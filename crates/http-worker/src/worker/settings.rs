//! What an operator decides about the calls. The docs of the fields are also in docs/guides/http-steps.md.

use std::path::PathBuf;

use everstep_protocol::Millis;
use serde::{Deserialize, Serialize};

use super::{HostRule, Network};

/// What calls may do and how long they may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The hosts that may be called: `api.example.com`, `*.example.com` for all names below one, `api.example.com:8443`,
    /// `http://billing.internal:8080`. Without a scheme it is HTTPS, without a port that of the scheme. Default: none.
    pub hosts: Vec<HostRule>,
    /// Networks beside the public internet whose addresses may be connected to, such as `10.0.0.0/8`. A cloud's metadata address
    /// is allowed only by an entry that is just this address. Default: none.
    pub networks: Vec<Network>,
    /// A file of certificates in PEM that are trusted beside those of the system. Default: none.
    pub ca_file: Option<PathBuf>,
    /// How long an exchange may take if the request does not say, in milliseconds. Default 30,000.
    pub timeout: Millis,
    /// How long an exchange may take whatever the request says, in milliseconds. Default 600,000.
    pub timeout_max: Millis,
    /// How long a connection may take to be there, in milliseconds. Default 5,000.
    pub connect_timeout: Millis,
    /// The most bytes of an answer's body. Default 1,032,192, which is 1 MiB less 16 KiB for the rest of the answer.
    pub response_bytes: u64,
    /// The most bytes of a step's output, as the coordinator's setting `limits.output_bytes` says. Default 1,048,576.
    pub output_bytes: u64,
    /// The longest `Retry-After` that is respected, in milliseconds; longer ones count as this. 0: the header is ignored, and
    /// the step's policy alone decides. Default 3,600,000.
    pub retry_after_max: Millis,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            networks: Vec::new(),
            ca_file: None,
            timeout: Millis::from_secs(30),
            timeout_max: Millis::from_secs(600),
            connect_timeout: Millis::from_secs(5),
            response_bytes: (1 << 20) - (16 << 10),
            output_bytes: 1 << 20,
            retry_after_max: Millis::from_secs(3_600),
        }
    }
}

impl Settings {
    /// All problems together.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let least_one = [
            ("timeout", self.timeout.0),
            ("timeout_max", self.timeout_max.0),
            ("connect_timeout", self.connect_timeout.0),
            ("response_bytes", self.response_bytes),
            ("output_bytes", self.output_bytes),
        ];
        let zero = least_one.iter().filter(|(_, value)| *value == 0);
        let mut problems: Vec<_> = zero.map(|(name, _)| format!("calls.{name} must be at least 1")).collect();
        if self.timeout > self.timeout_max {
            problems.push("calls.timeout must not be longer than calls.timeout_max".to_owned());
        }
        problems
    }
}
