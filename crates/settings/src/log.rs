//! Logs of a process.

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// Logs, on standard error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `text` for people, `json` for programs: one object a line. Default `text`.
    pub format: LogFormat,
    /// What is logged: a level (`error`, `warn`, `info`, `debug`, `trace`) and exceptions for parts, such as
    /// `info,everstep_store=debug`. Default `info`.
    pub level: String,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}

impl Log {
    /// What is wrong, for the list of problems of all settings.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let parsed = EnvFilter::builder().parse(&self.level);
        parsed.err().iter().map(|error| format!("log.level {:?} is refused: {error}", self.level)).collect()
    }
}
