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

use axum::{Json, Router, middleware};
use utoipa::{
    Modify, OpenApi as _,
    openapi::{
        OpenApi, RefOr,
        path::Operation,
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::{
    guard,
    needs::{self, Need},
};

/// What the document calls access tokens.
const SCHEME: &str = "access_token";

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
    modifiers(&Bearer),
    tags(
        (name = "instances", description = "Start, list and show instances of workflows"),
        (name = "control", description = "Operate one instance"),
        (name = "events", description = "Send events to instances"),
        (name = "hooks", description = "Tokens, and payloads for whoever has them"),
        (name = "attention", description = "What instances ask people"),
        (name = "bulk", description = "Operate many instances"),
        (name = "schedules", description = "Starts that are repeated"),
        (name = "ledger", description = "Calls that steps have made"),
        (name = "access", description = "Access tokens"),
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

/// How whoever asks is known.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("evs_<id>_<secret>")
            .description(Some(
                "An access token, where the API demands one: not on loopback, unless it is set up so",
            ))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme(SCHEME, SecurityScheme::Http(scheme));
    }
}

/// The document with what utoipa cannot say: a body may be left out, except where a field of it is needed; and what each route needs.
pub(super) fn finished(mut document: OpenApi) -> OpenApi {
    for (path, item) in &mut document.paths.paths {
        let operations = [
            ("POST", &mut item.post),
            ("PUT", &mut item.put),
            ("PATCH", &mut item.patch),
            ("DELETE", &mut item.delete),
            ("GET", &mut item.get),
        ];
        for (method, operation) in operations {
            let Some(operation) = operation else { continue };
            if let Some(RefOr::T(body)) = &mut operation.request_body {
                body.required = None;
            }
            needing(operation, needs::of(method, path));
        }
    }
    document
}

fn needing(operation: &mut Operation, need: Need) {
    match need {
        Need::Nothing => {
            operation.security = Some(Vec::new());
            operation.responses.responses.remove("401");
        }
        Need::Role(role) => {
            operation.security = Some(vec![SecurityRequirement::new(SCHEME, [] as [&str; 0])]);
            let said = operation.description.take().map(|said| said + "\n\n").unwrap_or_default();
            operation.description = Some(format!("{said}Needs the role `{role}`."));
        }
    }
}

/// Serves the document, and the page that shows it.
pub(super) fn routes<S: Clone + Send + Sync + 'static>(document: OpenApi) -> Router<S> {
    let page = SwaggerUi::new("/docs").config(Config::from(PATH).use_base_layout().validator_url("none"));
    let page = Router::from(page).layer(middleware::from_fn(guard::no_such_page));
    let text = axum::routing::get(async move || Json(document.clone()));
    Router::new().route(PATH, text).merge(page)
}
