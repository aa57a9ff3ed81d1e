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

/// `GET /healthz`: the loop turns. If it does not, only a restart helps; an outage of store or broker is no reason for one.
pub(super) async fn healthz(State(handle): State<Handle>) -> Result<Json<Value>, Refusal> {
    if handle.health().await.loop_turns {
        return Ok(Json(json!({"loop": true})));
    }
    Err(Refusal::NotHealthy("the loop does not turn".to_owned()))
}

/// `GET /readyz`: loop, store and broker are there.
pub(super) async fn readyz(State(handle): State<Handle>) -> Result<Json<Value>, Refusal> {
    let health = handle.health().await;
    let parts = [
        (health.loop_turns, "the loop does not turn"),
        (health.store, "the store is away"),
        (health.broker, "the broker is away"),
    ];
    let missing: Vec<&str> = parts.iter().filter(|(there, _)| !there).map(|(_, text)| *text).collect();
    if missing.is_empty() {
        return Ok(Json(json!({"loop": true, "store": true, "broker": true})));
    }
    Err(Refusal::NotHealthy(missing.join(", ")))
}

/// `GET /metrics`, in Prometheus' text format.
pub(super) async fn metrics(State(handle): State<Handle>) -> Result<Response, Refusal> {
    let text = TextEncoder::new()
        .encode_to_string(&handle.metrics().gather())
        .map_err(|error| Refusal::Bug(format!("the metrics cannot be written: {error}")))?;
    Ok(([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response())
}
