//! The audit log.

use everstep_protocol::Scope;

use super::{Answer, Api, query};
use crate::error::Error;

/// What is looked for in the audit log. Every condition must be fulfilled.
#[derive(Clone, Debug, Default)]
pub struct AuditSearch {
    /// What was done to this, such as `instance/fulfil/o-1`.
    pub target: Option<String>,
    /// What this one did.
    pub who: Option<String>,
    /// Of this operation.
    pub operation: Option<String>,
    /// At this time or later, by RFC 3339.
    pub from: Option<String>,
    /// Before this time.
    pub before: Option<String>,
    /// The `next` of an earlier page.
    pub after: Option<u64>,
    /// How many at most.
    pub limit: Option<u32>,
}

impl Api {
    /// Who did what within a scope, newest first.
    pub async fn audit(&self, scope: &Scope, search: &AuditSearch) -> Result<Answer, Error> {
        let mut url = self.url_in(&scope.to_string(), &["audit"]);
        let AuditSearch { target, who, operation, from, before, after, limit } = search;
        let (after, limit) = (after.map(|after| after.to_string()), limit.map(|limit| limit.to_string()));
        query(
            &mut url,
            &[
                ("target", target),
                ("who", who),
                ("operation", operation),
                ("from", from),
                ("before", before),
                ("after", &after),
                ("limit", &limit),
            ],
        );
        self.get(url).await
    }
}
