//! Messages that could never be accepted (rule W17): nothing vanishes.

use axum::{Json, extract::State};
use everstep_store::RejectedView;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::{
    document::Always,
    extract::{NamespacePath, Strict, limit},
    problem::Refusal,
    view::{raw_text, time},
};
use crate::Handle;

const PAGE_DEFAULT: u32 = 50;
const PAGE_MAX: u32 = 200;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct RejectedQuery {
    /// How many at most; default 50
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// The newest rejected messages.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RejectedMessages)]
pub(super) struct List {
    rejected: Vec<Rejected>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RejectedMessage)]
struct Rejected {
    at: String,
    code: String,
    reason: String,
    message_id: Option<String>,
    #[schema(value_type = Value)]
    headers: Box<RawValue>,
    body: String,
    body_bytes: u64,
}

/// Messages that could not be accepted, newest first (rule W17).
#[utoipa::path(
    get,
    path = "/v1/{namespace}/rejected",
    operation_id = "list_rejected_messages",
    tag = "records",
    params(NamespacePath, RejectedQuery),
    responses((status = 200, description = "The newest", body = List), Always)
)]
pub(super) async fn list(
    State(handle): State<Handle>,
    NamespacePath(namespace): NamespacePath,
    Strict(query): Strict<RejectedQuery>,
) -> Result<Json<List>, Refusal> {
    let limit = limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let rejected = handle.store().rejected(&namespace, limit).await?;
    Ok(Json(List { rejected: rejected.into_iter().map(Rejected::from).collect() }))
}

impl From<RejectedView> for Rejected {
    fn from(view: RejectedView) -> Self {
        Self {
            at: time(view.at),
            code: view.code,
            reason: view.reason,
            message_id: view.message_id,
            headers: raw_text(&view.headers),
            body: view.body,
            body_bytes: view.body_bytes,
        }
    }
}
