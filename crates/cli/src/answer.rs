//! The server's answers as far as tables show them. Unknown fields are ignored, so that an older command reads a newer
//! server.

mod access;
mod audit;
mod schedule;

use everstep_protocol::Pin;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

pub use self::access::{AccessToken, AccessTokenList};
pub use self::audit::{Action, AuditPage};
pub use self::schedule::{
    Schedule, ScheduleAction, ScheduleChange, ScheduleChanges, ScheduleCounts, ScheduleList, ScheduleNext,
    SchedulePaused,
};

use crate::failure::Failure;

/// Reads an answer.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::Other(anyhow::anyhow!("the server's answer is not understood: {error}")))
}

/// An instance.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Instance {
    pub namespace: String,
    pub workflow: String,
    pub id: String,
    /// None when the server could not read it back at once.
    #[serde(default)]
    pub status: Option<String>,
    #[serde(default)]
    pub run: u64,
    #[serde(default)]
    pub reason: Option<Reason>,
    /// A build, or true.
    #[serde(default)]
    pub pin: Option<Pin>,
    #[serde(default)]
    pub holder: Option<Holder>,
    #[serde(default)]
    pub attention: Option<Attention>,
    #[serde(default)]
    pub questions: Vec<Question>,
    #[serde(default)]
    pub created_at: String,
    #[serde(default)]
    pub ended_at: Option<String>,
    #[serde(default)]
    pub steps: u64,
    #[serde(default)]
    pub waits: Vec<Reason>,
    #[serde(default)]
    pub waits_open: u64,
    #[serde(default)]
    pub events_unread: Vec<Unread>,
    #[serde(default)]
    pub events_hint: Option<String>,
    #[serde(default)]
    pub generation: u64,
    #[serde(default)]
    pub attributes: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    pub state: Option<Box<RawValue>>,
    #[serde(default)]
    pub output: Option<Box<RawValue>>,
    #[serde(default)]
    pub error: Option<Error>,
    #[serde(default)]
    pub termination: Option<Termination>,
    #[serde(default)]
    pub parent: Option<Named>,
    #[serde(default)]
    pub children: Vec<Child>,
    #[serde(default)]
    pub children_total: u64,
    #[serde(default)]
    pub rollback: Option<Rollback>,
}

/// Questions.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct QuestionList {
    pub questions: Vec<Question>,
    #[serde(default)]
    pub next: Option<String>,
}

/// Something that a person is asked.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Question {
    pub workflow: String,
    pub id: String,
    pub question: String,
    pub kind: String,
    pub since: String,
    pub message: String,
    #[serde(default)]
    pub choices: Vec<String>,
    #[serde(default)]
    pub call: Option<Call>,
    #[serde(default)]
    pub key: Option<String>,
    #[serde(default)]
    pub evidence: Option<Evidence>,
}

/// Calls of steps.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Ledger {
    pub entries: Vec<LedgerEntry>,
    #[serde(default)]
    pub next: Option<u64>,
    #[serde(default)]
    pub truncated: bool,
}

/// One call of a step.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct LedgerEntry {
    pub workflow: String,
    pub id: String,
    pub call: Call,
    pub class: String,
    pub key: String,
    #[serde(default)]
    pub reference: Option<String>,
    pub calls: u64,
    pub outcome: String,
    #[serde(default)]
    pub decision: Option<Decision>,
}

/// What a person decided.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Decision {
    pub choice: String,
    #[serde(default)]
    pub by: Option<String>,
    #[serde(default)]
    pub why: Option<String>,
}

/// What a worker said too late.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Evidence {
    pub at: String,
    pub outcome: String,
    #[serde(default)]
    pub output: Option<Box<RawValue>>,
    #[serde(default)]
    pub error: Option<Error>,
}

/// The compensations of an instance.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Rollback {
    #[serde(default)]
    pub compensations: Vec<Undone>,
    #[serde(default)]
    pub more: u64,
}

/// One compensation.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Undone {
    pub call: Call,
    pub outcome: String,
    #[serde(default)]
    pub error: Option<Error>,
}

/// Another instance.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Named {
    pub workflow: String,
    pub id: String,
}

/// A child of an instance.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Child {
    pub workflow: String,
    pub id: String,
    #[serde(default)]
    pub status: Option<String>,
    #[serde(default)]
    pub detached: bool,
}

/// Unread events of one type.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Unread {
    pub r#type: String,
    pub count: u64,
}

/// Why an instance is in its status, or one of its waits.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Reason {
    pub kind: String,
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default)]
    pub call: Option<Call>,
    #[serde(default)]
    pub instance: Option<Named>,
    #[serde(default)]
    pub since: Option<String>,
    #[serde(default)]
    pub until: Option<String>,
}

/// A call by its identity.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Call {
    pub kind: String,
    pub name: String,
    pub count: u64,
}

/// Who holds an instance.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Holder {
    pub session: String,
    pub build: String,
    pub host: String,
}

/// An open question to a person.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Attention {
    pub code: String,
    pub message: String,
    pub since: String,
}

/// A failure.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Error {
    pub kind: String,
    pub name: String,
    pub message: String,
}

/// How somebody ended an instance.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Termination {
    pub reason: Option<String>,
}

/// A page of instances.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Page {
    pub instances: Vec<Instance>,
    pub next: Option<String>,
}

/// The results of a batch of starts, in order.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct BatchResults {
    pub results: Vec<BatchResult>,
}

/// What became of one start of a batch.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct BatchResult {
    pub outcome: String,
    #[serde(default)]
    pub id: Option<String>,
    #[serde(default)]
    pub status: Option<String>,
    #[serde(default)]
    pub message: Option<String>,
}

/// A page of a journal; entries as they were sent.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Journal {
    pub entries: Vec<Box<RawValue>>,
    pub next: Option<u64>,
}

/// One entry.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Entry {
    pub position: u64,
    pub at: String,
    pub kind: String,
    #[serde(default)]
    pub call: Option<Call>,
    #[serde(default)]
    pub attempt: Option<u64>,
    #[serde(default)]
    pub outcome: Option<String>,
    #[serde(default)]
    pub wait: Option<String>,
    #[serde(default)]
    pub until: Option<String>,
    #[serde(default)]
    pub error: Option<Error>,
    #[serde(default)]
    pub retry_at: Option<String>,
    #[serde(default)]
    pub code: Option<String>,
    #[serde(default)]
    pub message: Option<String>,
}

/// Tokens and who has them.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct HookList {
    pub hooks: Vec<Hook>,
}

/// A token and who has it.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Hook {
    pub token: String,
    pub workflow: String,
    pub id: String,
    pub status: String,
    pub since: String,
    #[serde(default)]
    pub retain_until: Option<String>,
}

/// Rejected messages.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct RejectedList {
    pub rejected: Vec<Rejected>,
}

/// A rejected message.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Rejected {
    pub at: String,
    pub code: String,
    pub reason: String,
    #[serde(default)]
    pub message_id: Option<String>,
    pub body_bytes: u64,
}

/// What the auditor has found and mended.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct BreachList {
    pub breaches: Vec<Breach>,
}

/// An open instance that nothing would have moved.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Breach {
    pub at: String,
    pub kind: String,
    pub workflow: String,
    pub id: String,
    pub run: u32,
    pub message: String,
}

/// What the doctor says.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Diagnosis {
    pub healthy: bool,
    #[serde(default)]
    pub checks: Vec<DiagnosisCheck>,
    #[serde(default)]
    pub findings: Vec<Finding>,
}

/// One thing that is looked at.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct DiagnosisCheck {
    pub check: String,
    pub state: String,
}

/// Something that is not as it should be.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Finding {
    pub check: String,
    pub severity: String,
    pub subject: String,
    pub message: String,
    pub advice: String,
    pub page: String,
}

/// An operation on many instances.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Bulk {
    pub id: String,
    pub operation: String,
    #[serde(rename = "where", default)]
    pub which: std::collections::BTreeMap<String, serde_json::Value>,
    pub state: String,
    #[serde(default)]
    pub looked_at: u64,
    #[serde(default)]
    pub matched: u64,
    #[serde(default)]
    pub done: u64,
    #[serde(default)]
    pub refused: u64,
    #[serde(default)]
    pub created_at: String,
    #[serde(default)]
    pub ended_at: Option<String>,
}

/// What became of each of a list of ids.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct IdsResults {
    pub results: Vec<IdResult>,
}

/// What became of one.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct IdResult {
    pub id: String,
    pub outcome: String,
    #[serde(default)]
    pub message: Option<String>,
}

/// A page of them.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct BulkList {
    pub operations: Vec<Bulk>,
}

/// What one would be about.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct BulkCount {
    pub matched: u64,
    pub complete: bool,
    #[serde(default)]
    pub newest: Vec<Name>,
}

/// The name of an instance.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Name {
    pub workflow: String,
    pub id: String,
}
