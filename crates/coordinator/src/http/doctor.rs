//! The state of an installation, as one coordinator sees it.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use super::{document::Forbidden, problem::Refusal};
use crate::{
    Handle,
    doctor::{Check, Diagnosis, Finding},
};

/// What was looked at, and what was found.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Diagnosis)]
pub(super) struct Report {
    /// Nothing was found that is worse than a note, and everything could be looked at
    healthy: bool,
    /// The coordinator that has looked
    coordinator: String,
    /// Its version
    version: &'static str,
    checks: Vec<Checked>,
    /// What was found, the worst first
    findings: Vec<Found>,
}

/// One thing that is looked at.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DiagnosisCheck)]
struct Checked {
    check: &'static str,
    /// `good`, `found`, or `unknown` if it could not be looked at
    state: &'static str,
}

/// Something that is not as it should be.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DiagnosisFinding)]
struct Found {
    check: &'static str,
    /// `critical`, `warning` or `note`
    severity: &'static str,
    /// What it is about
    subject: String,
    /// What is wrong, and what that means
    message: String,
    /// What to do
    advice: &'static str,
    /// Where to read more
    page: &'static str,
}

/// The state of the installation: what is wrong, what it means and what to do. Looks at all namespaces.
#[utoipa::path(
    get,
    path = "/v1/doctor",
    operation_id = "diagnose",
    tag = "probes",
    responses((status = 200, description = "What was found", body = Report), Forbidden)
)]
pub(super) async fn diagnose(State(handle): State<Handle>) -> Result<Json<Report>, Refusal> {
    let Diagnosis { findings, unknown } = handle.diagnose().await;
    let state = |check: &Check| {
        if findings.iter().any(|finding| finding.check == *check) {
            "found"
        } else if unknown.contains(check) {
            "unknown"
        } else {
            "good"
        }
    };
    let checks =
        Check::ALL.iter().map(|check| Checked { check: check.word(), state: state(check) }).collect();
    let is_note = |finding: &Finding| finding.severity == crate::doctor::Severity::Note;
    Ok(Json(Report {
        healthy: unknown.is_empty() && findings.iter().all(is_note),
        coordinator: handle.coordinator().to_string(),
        version: env!("CARGO_PKG_VERSION"),
        checks,
        findings: findings.into_iter().map(Found::from).collect(),
    }))
}

impl From<Finding> for Found {
    fn from(finding: Finding) -> Self {
        let Finding { check, severity, subject, message, advice } = finding;
        Self { check: check.word(), severity: severity.word(), subject, message, advice, page: check.page() }
    }
}
