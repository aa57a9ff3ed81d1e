//! `everstep audit`.

use clap::Args;

/// What is looked for in the audit log.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// In all namespaces, and what belongs to none
    #[arg(long)]
    pub all_namespaces: bool,
    /// What was done to this: instance/WORKFLOW/ID, schedule/ID, bulk/ID, access-token/ID or installation
    #[arg(long)]
    pub target: Option<String>,
    /// What this one did: the name of an access token, or anonymous
    #[arg(long)]
    pub who: Option<String>,
    /// Of this operation, such as terminate
    #[arg(long)]
    pub operation: Option<String>,
    /// At this time or later, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    pub before: Option<String>,
    /// Only what follows an earlier page, which has told this
    #[arg(long, value_name = "NUMBER")]
    pub after: Option<u64>,
    /// How many, 1 to 200; default 50
    #[arg(long)]
    pub limit: Option<u32>,
}
