//! What the API tells of the audit log.

use serde::Deserialize;

/// Records of the audit log.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct AuditPage {
    pub actions: Vec<Action>,
    pub next: Option<u64>,
}

/// What somebody did.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct Action {
    pub at: String,
    pub namespace: String,
    pub operation: String,
    pub target: String,
    pub who: String,
    pub from: String,
    pub by: Option<String>,
    pub outcome: String,
    pub detail: Option<String>,
}
