//! Where a process sends its traces.

use serde::{Deserialize, Serialize};
use url::Url;

use crate::SecretUrl;

/// OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// Where traces are sent by OTLP over gRPC, such as `http://127.0.0.1:4317`. Default: none are.
    pub endpoint: Option<SecretUrl>,
    /// The share of the traces that begin in this process which are recorded, from 0 to 1. Of a trace that was begun elsewhere, by a
    /// producer or a caller, what began it has decided. Default 1.0, which is all.
    pub sample_ratio: f64,
}

impl Default for Otlp {
    fn default() -> Self {
        Self { endpoint: None, sample_ratio: 1.0 }
    }
}

impl Otlp {
    /// What is wrong, for the list of problems of all settings.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let is_url = self.endpoint.as_ref().is_none_or(|endpoint| {
            Url::parse(endpoint.reveal()).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
        });
        if !is_url {
            problems.push("otlp.endpoint must be a URL that begins with http:// or https://".to_owned());
        }
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            problems.push(format!("otlp.sample_ratio {} must be from 0 to 1", self.sample_ratio));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_from_none_to_all() {
        for (ratio, good) in
            [(0.0, true), (0.25, true), (1.0, true), (1.01, false), (-0.1, false), (f64::NAN, false)]
        {
            let otlp = Otlp { sample_ratio: ratio, ..Otlp::default() };
            assert_eq!(otlp.validate().is_empty(), good, "{ratio}");
        }
    }
}
