//! What probes and Prometheus ask.

use axum::{
    Json,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use prometheus::TextEncoder;
use serde_json::{Value, json};

use super::problem::Refusal;
use crate::Handle;

/// `GET /healthz`: the loop turns. If it does not, only a restart helps; an outage of store or broker is no reason for one,
/// and it is not asked.
pub(super) async fn healthz(State(handle): State<Handle>) -> Result<Json<Value>, Refusal> {
    let dead = handle.dead();
    if dead.is_empty() { Ok(Json(json!({"loop": true}))) } else { Err(Refusal::NotHealthy(dead.join(", "))) }
}

/// `GET /readyz`: loop, store and broker are there, and it is not stopping.
pub(super) async fn readyz(State(handle): State<Handle>) -> Result<Json<Value>, Refusal> {
    let lacks = [handle.dead(), handle.missing()].concat();
    if lacks.is_empty() {
        return Ok(Json(json!({"loop": true, "store": true, "broker": true})));
    }
    Err(Refusal::NotHealthy(lacks.join(", ")))
}

/// `GET /metrics`, in Prometheus' text format.
pub(super) async fn metrics(State(handle): State<Handle>) -> Result<Response, Refusal> {
    let text = TextEncoder::new()
        .encode_to_string(&handle.metrics().gather())
        .map_err(|error| Refusal::Bug(format!("the metrics cannot be written: {error}")))?;
    Ok(([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response())
}
