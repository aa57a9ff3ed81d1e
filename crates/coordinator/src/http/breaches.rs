//! What the auditor has found and mended (rule W42).

use axum::{Json, extract::State};
use everstep_store::BreachView;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    document::Always,
    extract::{NamespacePath, Strict, limit},
    problem::Refusal,
    view::time,
};
use crate::Handle;

const PAGE_DEFAULT: u32 = 50;
const PAGE_MAX: u32 = 200;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct BreachesQuery {
    /// How many at most; default 50
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// The newest breaches.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Breaches)]
pub(super) struct List {
    breaches: Vec<Breach>,
}

/// An open instance that nothing would have moved as it should.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Breach)]
struct Breach {
    at: String,
    kind: &'static str,
    workflow: String,
    id: String,
    run: u32,
    /// What was wrong, and how it was mended
    message: String,
}

/// What the auditor has found and mended in the last 30 days, newest first (rule W42).
#[utoipa::path(
    get,
    path = "/v1/{namespace}/breaches",
    operation_id = "list_breaches",
    tag = "records",
    params(NamespacePath, BreachesQuery),
    responses((status = 200, description = "The newest", body = List), Always)
)]
pub(super) async fn list(
    State(handle): State<Handle>,
    NamespacePath(namespace): NamespacePath,
    Strict(query): Strict<BreachesQuery>,
) -> Result<Json<List>, Refusal> {
    let limit = limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let breaches = handle.store().breaches(&namespace, limit).await?;
    Ok(Json(List { breaches: breaches.into_iter().map(Breach::from).collect() }))
}

impl From<BreachView> for Breach {
    fn from(BreachView { at, breach }: BreachView) -> Self {
        Self {
            at: time(at),
            kind: breach.kind.word(),
            workflow: breach.name.workflow.to_string(),
            id: breach.name.id.to_string(),
            run: breach.run.0,
            message: breach.message,
        }
    }
}
