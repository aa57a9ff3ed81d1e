//! The audit log: who did what (rule A6). `*` in place of a namespace means all of it.

use axum::{Json, extract::State};
use everstep_store::{ActionFilter, ActionRow};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    access_tokens::ScopePath,
    document::Always,
    extract::{self, Strict, limit, moment},
    problem::Refusal,
    view::time,
};
use crate::Handle;

const PAGE_DEFAULT: u32 = 50;
const PAGE_MAX: u32 = 200;

/// What is looked for. Every condition must be fulfilled.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    /// What was done to this: `instance/{workflow}/{id}`, `schedule/{id}`, `bulk/{id}`, `access-token/{id}` or `installation`
    #[param(example = "instance/fulfil/o-1")]
    target: Option<String>,
    /// What this one did: the whole of `who` in a record, or an access token's name alone
    who: Option<String>,
    /// Of this operation, such as `terminate`
    operation: Option<String>,
    /// At this time or later
    #[param(example = "2026-01-31T12:00:00Z", format = DateTime)]
    from: Option<String>,
    /// Before this time
    #[param(format = DateTime)]
    before: Option<String>,
    /// How many at most; default 50
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
    /// The `next` of an earlier page
    #[param(minimum = 0)]
    after: Option<u64>,
}

/// Records of the audit log, newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditPage)]
pub(super) struct Page {
    actions: Vec<View>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// What somebody did, or was refused.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Action)]
struct View {
    at: String,
    /// Where it belongs; `*` for what belongs to no namespace.
    namespace: String,
    /// What was done, in a word.
    operation: String,
    /// To what.
    target: String,
    /// Who did it: the name and id of an access token, or `anonymous` where none was needed.
    who: String,
    /// From where: an address, or the way on which it came.
    from: String,
    /// Who asked for it as the request says, which nobody has checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// `done`, `unchanged`, or `refused:` and why.
    outcome: String,
    /// What more there is to say of what was asked for. No payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl From<ActionRow> for View {
    fn from(row: ActionRow) -> Self {
        Self {
            at: time(row.at),
            namespace: row.scope.to_string(),
            operation: row.operation,
            target: row.target,
            who: row.who,
            from: row.from,
            by: row.named,
            outcome: row.outcome,
            detail: row.detail,
        }
    }
}

/// Who did what in the last 90 days, newest first.
///
/// Operations on instances, schedules, many instances at once and access tokens. What an operation on many instances did to each of them
/// is there too. A repetition that is known by its `Idempotency-Key` leaves no second record.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/audit",
    operation_id = "list_actions",
    tag = "records",
    params(ScopePath, AuditQuery),
    responses((status = 200, description = "A page", body = Page), Always)
)]
pub(super) async fn list(
    State(handle): State<Handle>,
    ScopePath(within): ScopePath,
    Strict(query): Strict<AuditQuery>,
) -> Result<Json<Page>, Refusal> {
    let AuditQuery { target, who, operation, from, before, limit: wanted, after } = query;
    let at = |field: &str, text: Option<String>| {
        text.map(|text| moment(field, &text)).transpose().map_err(Refusal::Query)
    };
    let (from, before) = (at("from", from)?, at("before", before)?);
    let limit = limit(wanted, PAGE_DEFAULT, PAGE_MAX)?;
    let filter = ActionFilter { within, target, who, operation, from, before };
    let after = after.map(|after| extract::after(Some(after))).transpose()?.map(|after| after.0);
    let rows = handle.store().actions(&filter, after, limit).await?;
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|row| row.number);
    Ok(Json(Page { actions: rows.into_iter().map(View::from).collect(), next }))
}
