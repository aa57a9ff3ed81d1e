//! The OpenAPI document: made from the routes, their types and the comments beside them, so that it says what is served.
//!
//! What a route takes and gives stands at its handler (`utoipa::path`). Here is what all share: the head of the document, the
//! parameters that are read by `extract`, and the problems. `GET /openapi.json` is the document, `GET /docs/` a page that shows it;
//! the page is part of this program and asks nobody else.

mod parameters;
mod problems;
pub(super) mod shapes;

pub(super) use self::problems::{
    Always, BodyProblems, ByAttributes, Conflict, Forbidden, Full, NotFound, NotReady,
};

use axum::{Json, Router};
use utoipa::{
    OpenApi as _,
    openapi::{OpenApi, RefOr},
};
use utoipa_swagger_ui::{Config, SwaggerUi};

/// Where the document is.
const PATH: &str = "/openapi.json";

/// The head of the document, and what no route names.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Everstep",
        description = "The HTTP API of an Everstep coordinator: start instances of workflows, look at them and operate them.\n\n\
            Refusals are `application/problem+json` with a `code`, often a `hint`, and `retry_safe`: whether sending the same \
            request again does no harm and may help. Requests that change something may carry `Idempotency-Key`: sent again \
            with the same key they do nothing twice.\n\nTimes are RFC 3339 in UTC, durations are text such as `30 s` or `5 min`.",
        license(name = "Apache-2.0"),
    ),
    components(schemas(super::problem::Problem)),
    tags(
        (name = "instances", description = "Start, list and show instances of workflows"),
        (name = "control", description = "Operate one instance"),
        (name = "events", description = "Send events to instances"),
        (name = "hooks", description = "Tokens, and payloads for whoever has them"),
        (name = "attention", description = "What instances ask people"),
        (name = "bulk", description = "Operate many instances"),
        (name = "schedules", description = "Starts that are repeated"),
        (name = "ledger", description = "Calls that steps have made"),
        (name = "records", description = "What could not be accepted"),
        (name = "streams", description = "Server-sent events"),
        (name = "probes", description = "For Kubernetes and Prometheus"),
    ),
)]
struct Head;

/// The document before any route is in it.
pub(super) fn head() -> OpenApi {
    let mut document = Head::openapi();
    env!("CARGO_PKG_VERSION").clone_into(&mut document.info.version);
    document
}

/// The document with what utoipa cannot say: a body may be left out, except where a field of it is needed.
pub(super) fn finished(mut document: OpenApi) -> OpenApi {
    for item in document.paths.paths.values_mut() {
        for operation in [&mut item.post, &mut item.put, &mut item.patch, &mut item.delete, &mut item.get] {
            let body = operation.as_mut().and_then(|operation| operation.request_body.as_mut());
            if let Some(RefOr::T(body)) = body {
                body.required = None;
            }
        }
    }
    document
}

/// Serves the document, and the page that shows it.
pub(super) fn routes<S: Clone + Send + Sync + 'static>(document: OpenApi) -> Router<S> {
    let page = SwaggerUi::new("/docs").config(Config::from(PATH).use_base_layout().validator_url("none"));
    let text = axum::routing::get(async move || Json(document.clone()));
    Router::new().route(PATH, text).merge(page)
}
