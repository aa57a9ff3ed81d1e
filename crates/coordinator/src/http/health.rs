//! What probes and Prometheus ask.

use axum::{
    Json,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use prometheus::TextEncoder;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    document::{Forbidden, NotReady},
    problem::Refusal,
};
use crate::Handle;

/// The loop turns.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    r#loop: bool,
}

/// Everything is there.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    r#loop: bool,
    store: bool,
    broker: bool,
}

/// Whether the loop turns: if it does not, only a restart helps.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "healthz",
    tag = "probes",
    responses((status = 200, description = "It turns", body = Health), NotReady)
)]
pub(super) async fn healthz(State(handle): State<Handle>) -> Result<Json<Health>, Refusal> {
    let dead = handle.dead();
    if dead.is_empty() {
        Ok(Json(Health { r#loop: true }))
    } else {
        Err(Refusal::NotHealthy(dead.join(", ")))
    }
}

/// Whether loop, store and broker are there, and it is not stopping.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "readyz",
    tag = "probes",
    responses((status = 200, description = "It is ready", body = Ready), NotReady)
)]
pub(super) async fn readyz(State(handle): State<Handle>) -> Result<Json<Ready>, Refusal> {
    let lacks = [handle.dead(), handle.missing()].concat();
    if lacks.is_empty() {
        return Ok(Json(Ready { r#loop: true, store: true, broker: true }));
    }
    Err(Refusal::NotHealthy(lacks.join(", ")))
}

/// Metrics in Prometheus' text format.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "probes",
    responses((status = 200, description = "The metrics", body = String, content_type = "text/plain; version=0.0.4"), Forbidden)
)]
pub(super) async fn metrics(State(handle): State<Handle>) -> Result<Response, Refusal> {
    let text = TextEncoder::new()
        .encode_to_string(&handle.metrics().gather())
        .map_err(|error| Refusal::Bug(format!("the metrics cannot be written: {error}")))?;
    Ok(([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response())
}
