//! What the API tells of schedules.

use serde::Deserialize;

/// A schedule.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Schedule {
    pub id: String,
    pub state: String,
    pub workflow: String,
    #[serde(default)]
    pub cron: Option<String>,
    #[serde(default)]
    pub zone: Option<String>,
    #[serde(default)]
    pub every: Option<String>,
    #[serde(default)]
    pub offset: Option<String>,
    #[serde(default)]
    pub at: Option<String>,
    #[serde(default)]
    pub overlap: String,
    #[serde(default)]
    pub paused: Option<SchedulePaused>,
    #[serde(default)]
    pub next: Vec<ScheduleNext>,
    #[serde(default)]
    pub counts: ScheduleCounts,
    #[serde(default)]
    pub open: Vec<super::Name>,
    #[serde(default)]
    pub waiting: Vec<String>,
    #[serde(default)]
    pub failing: Option<ScheduleAction>,
    #[serde(default)]
    pub recent: Vec<ScheduleAction>,
}

/// Since when one is paused, and why.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct SchedulePaused {
    pub since: String,
    #[serde(default)]
    pub note: Option<String>,
}

/// A due time that is to come.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct ScheduleNext {
    pub due: String,
    pub starts_at: String,
}

/// How often what has happened.
#[derive(Debug, Default, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct ScheduleCounts {
    #[serde(default)]
    pub started: u64,
    #[serde(default)]
    pub existed: u64,
    #[serde(default)]
    pub refused: u64,
    #[serde(default)]
    pub skipped: u64,
    #[serde(default)]
    pub missed: u64,
}

/// Something that happened.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct ScheduleAction {
    #[serde(default)]
    pub due: Option<String>,
    pub at: String,
    pub outcome: String,
    #[serde(default)]
    pub instance: Option<String>,
    #[serde(default)]
    pub times: u64,
    #[serde(default)]
    pub code: Option<String>,
    #[serde(default)]
    pub message: Option<String>,
}

/// A page of them.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct ScheduleList {
    pub schedules: Vec<Schedule>,
}

/// Who has changed one.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct ScheduleChanges {
    pub changes: Vec<ScheduleChange>,
}

/// One change.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct ScheduleChange {
    pub at: String,
    pub operation: String,
    #[serde(default)]
    pub by: Option<String>,
    #[serde(default)]
    pub detail: Option<String>,
}
