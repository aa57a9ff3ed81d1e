//! The HTTP API: what people and programs outside the fleet ask of a coordinator, and what it answers.
//!
//! It translates and decides nothing: names are checked by their newtypes, work goes to the loop through [`Handle`], views
//! come from the store. Its JSON shapes (`view`, `journal`) are its own, apart from the stored types, so that a change
//! of the store never changes the API by accident. Every refusal is one `match` in `problem`.
//!
//! Whoever asks needs an access token (`access`), with a role that the one table in `needs` names; but on loopback, unless the
//! [`Settings`] say otherwise, where requests that a browser was tricked into sending are refused instead (`guard`).
//!
//! | route | |
//! | --- | --- |
//! | `POST /v1/{namespace}/workflows/{workflow}/instances` | start an instance |
//! | `POST /v1/{namespace}/workflows/{workflow}/instances:batch` | start up to 1,000 |
//! | `POST /v1/{namespace}/workflows/{workflow}/instances:operate` | one operation on up to 1,000, named by their ids |
//! | `GET /v1/{namespace}/workflows/{workflow}/instances` | list those of a workflow |
//! | `GET /v1/{namespace}/instances` | list all of a namespace |
//! | `GET /v1/{namespace}/workflows/{workflow}/instances/{id}` | one instance; `?wait=30s` waits for its end |
//! | `DELETE .../{id}` | delete it; `?terminate=true` ends it first |
//! | `GET .../{id}/journal` | its journal; `?run=` that of an earlier run |
//! | `GET .../{id}/watch` | what goes on in it, as server-sent events |
//! | `GET /v1/{namespace}/instances:watch` | instances that end, as server-sent events |
//! | `POST .../{id}/events/{type}` | send it an event |
//! | `POST .../{id}/pause`, `.../resume` | let nothing more begin; let it go on |
//! | `POST .../{id}/cancel` | ask it to end by itself |
//! | `POST .../{id}/restart` | run it again, from the beginning or from a step |
//! | `POST .../{id}/terminate` | end it now |
//! | `POST .../{id}/retry` | let a parked one go on |
//! | `GET .../{id}/attention`, `.../{question}` | what it asks people |
//! | `POST .../{id}/attention/{question}/resolve` | answer it |
//! | `GET /v1/{namespace}/attention` | what all instances ask, oldest first |
//! | `GET .../{id}/ledger` | which calls its steps have made, under which keys, and what came of them |
//! | `GET /v1/{namespace}/ledger` | the same of all instances, by `key` or `reference` |
//! | `POST .../{id}/pin`, `.../unpin` | let only workers of one build have it; let any |
//! | `POST /v1/{namespace}/bulk` | an operation on many instances, or with `dry_run` their count |
//! | `GET /v1/{namespace}/bulk` | such operations, newest first |
//! | `GET /v1/{namespace}/bulk/{id}`, `POST .../{id}/stop` | one of them; stop it |
//! | `GET /v1/{namespace}/schedules` | schedules |
//! | `PUT`, `GET`, `DELETE /v1/{namespace}/schedules/{id}` | create or change one, look at it, delete it |
//! | `POST .../schedules/{id}/pause`, `.../resume`, `.../trigger`, `.../backfill` | operate it |
//! | `GET .../schedules/{id}/changes` | who has changed it |
//! | `GET /v1/{namespace}/journals` | open instances with their journals, streamed |
//! | `GET /v1/{namespace}/hooks`, `.../{token}` | tokens and who has them |
//! | `POST /v1/{namespace}/hooks/{token}/resume` | resumes a hook |
//! | `POST /hooks/{namespace}/{token}` | calls a webhook, from anywhere; other methods where it takes them |
//! | `GET`, `POST /v1/{namespace}/access-tokens`, `DELETE .../{id}` | what opens all this |
//! | `GET /v1/{namespace}/audit` | who did what |
//! | `GET /v1/{namespace}/breaches` | what the auditor has found and mended |
//! | `GET /v1/{namespace}/rejected` | messages that could not be accepted |
//! | `GET /v1/doctor` | the state of the installation: what is wrong, what it means, what to do |
//! | `GET /openapi.json`, `/docs/` | this table in full, generated; and a page that shows it |
//! | `GET /healthz`, `/readyz`, `/metrics` | for probes and Prometheus |

mod access;
mod access_tokens;
mod act;
mod attention;
mod audit;
mod batch;
mod breaches;
mod bulk;
mod control;
mod doctor;
mod document;
mod ends;
mod events;
mod export;
mod extract;
mod guard;
mod health;
mod hooks;
mod instances;
mod journal;
mod ledger;
mod list;
mod needs;
mod operate;
mod pace;
mod pass;
mod problem;
mod reason;
mod rejected;
mod rollback;
mod schedules;
mod stream;
mod tls;
mod view;
mod watch;
mod webhooks;

use std::{future::IntoFuture, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, MatchedPath, Request, connect_info::Connected},
    middleware,
    serve::IncomingStream,
};
use everstep_tls::Identity;
use futures::FutureExt;
use tokio::net::TcpListener;
use tower_http::{
    limit::RequestBodyLimitLayer,
    trace::{DefaultOnFailure, TraceLayer},
};
use utoipa_axum::{router::OpenApiRouter, routes};

pub use self::{
    access::Demand,
    access_tokens::{UNNAMED as ACCESS_TOKEN_UNNAMED, lasts as access_token_lasts},
    pace::Rate,
};
use self::{access::Peer, pace::Pace, tls::TlsListener};
use crate::Handle;

/// How long requests under way may take after the stop: longer than a decision is waited for.
const GRACE: Duration = Duration::from_secs(12);

/// Bytes of a batch of starts that are read, unless a single start may be larger.
const BATCH_BODY_BYTES: usize = 16 << 20;

/// How the API is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// When requests need an access token.
    pub access: Demand,
    /// How fast one caller may ask. Default: as fast as they like.
    pub rate: Rate,
}

/// Serves the API with the default settings until `stop` is done and the requests under way are answered, or too late.
///
/// Errors: the listener fails.
pub async fn serve(
    listener: TcpListener,
    handle: Handle,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_with(Settings::default(), listener, handle, stop).await
}

/// The same with settings.
pub async fn serve_with(
    settings: Settings,
    listener: TcpListener,
    handle: Handle,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let addr = listener.local_addr()?;
    said(settings, addr, "serving HTTP");
    run(router(settings, addr, handle), listener, stop).await
}

/// The same by HTTPS alone, for whoever trusts what is shown.
pub async fn serve_encrypted(
    settings: Settings,
    identity: Arc<Identity>,
    listener: TcpListener,
    handle: Handle,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let listener = TlsListener::new(listener, identity)?;
    let addr = axum::serve::Listener::local_addr(&listener)?;
    said(settings, addr, "serving HTTPS");
    run(router(settings, addr, handle), listener, stop).await
}

fn said(settings: Settings, addr: SocketAddr, serving: &'static str) {
    let demands_tokens = settings.access.holds_at(addr);
    tracing::info!(%addr, demands_tokens, "{serving}");
    if !demands_tokens && !addr.ip().to_canonical().is_loopback() {
        tracing::warn!(%addr, "the HTTP API is open: whoever reaches this address may do everything (http.access = never)");
    }
}

async fn run<L>(
    router: Router,
    listener: L,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()>
where
    L: axum::serve::Listener<Addr = SocketAddr>,
    Peer: for<'a> Connected<IncomingStream<'a, L>>,
{
    let service = router.into_make_service_with_connect_info::<Peer>();
    let stop = stop.shared();
    let late = {
        let stop = stop.clone();
        async move {
            stop.await;
            tokio::time::sleep(GRACE).await;
        }
    };
    tokio::select! {
        outcome = axum::serve(listener, service).with_graceful_shutdown(stop).into_future() => outcome,
        () = late => {
            tracing::warn!("some HTTP requests did not end in time and are cut off");
            Ok(())
        }
    }
}

/// All routes, as they are served at an address.
pub fn router(settings: Settings, listen: SocketAddr, handle: Handle) -> Router {
    let gate = access::Gate {
        handle: handle.clone(),
        demands: settings.access.holds_at(listen),
        is_loopback: listen.ip().to_canonical().is_loopback(),
        pace: Pace::of(settings.rate).map(Arc::new),
    };
    let (router, document) = documented(&handle).split_for_parts();
    router
        .merge(document::routes(document::finished(document)))
        .fallback(guard::no_such_route)
        .method_not_allowed_fallback(guard::wrong_method)
        .layer(middleware::map_response(guard::body_too_large))
        .layer(middleware::from_fn_with_state(gate, access::admitted))
        .layer(middleware::from_fn(crate::traces::served))
        .layer(TraceLayer::new_for_http().make_span_with(span).on_failure(not_ready_is_no_error()))
        .with_state(handle)
}

/// The OpenAPI document, as it is served.
#[must_use]
pub fn openapi(handle: &Handle) -> utoipa::openapi::OpenApi {
    document::finished(documented(handle).into_openapi())
}

/// The routes with what the document says of them: `routes!` takes both from the handler.
fn documented(handle: &Handle) -> OpenApiRouter<Handle> {
    let limits = handle.limits();
    let body_max = body_bytes_max(limits.input_bytes);
    let event_max = body_bytes_max(limits.event_bytes);
    OpenApiRouter::with_openapi(document::head())
        .merge(limited(plain(), body_max))
        .merge(limited(many(), body_max.max(BATCH_BODY_BYTES)))
        .merge(limited(payloads(), event_max))
        .merge(limited(
            OpenApiRouter::new().routes(routes!(attention::resolve)),
            body_bytes_max(limits.output_bytes),
        ))
}

/// Routes whose bodies have the limit of a start.
fn plain() -> OpenApiRouter<Handle> {
    OpenApiRouter::new()
        .routes(routes!(instances::start, list::list_of_workflow))
        .routes(routes!(list::list))
        .routes(routes!(instances::get, control::delete))
        .routes(routes!(journal::get))
        .routes(routes!(watch::watch))
        .routes(routes!(ends::watch))
        .routes(routes!(control::pause))
        .routes(routes!(control::resume))
        .routes(routes!(control::cancel))
        .routes(routes!(control::restart))
        .routes(routes!(control::terminate))
        .routes(routes!(control::retry))
        .routes(routes!(control::pin))
        .routes(routes!(control::unpin))
        .routes(routes!(attention::list))
        .routes(routes!(ledger::search))
        .routes(routes!(ledger::of_instance))
        .routes(routes!(attention::of_instance))
        .routes(routes!(attention::get))
        .routes(routes!(bulk::begin, bulk::list))
        .routes(routes!(bulk::get))
        .routes(routes!(bulk::stop))
        .routes(routes!(export::journals))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::get, schedules::put, schedules::delete))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::trigger))
        .routes(routes!(schedules::backfill))
        .routes(routes!(schedules::stop_backfill))
        .routes(routes!(schedules::changes))
        .routes(routes!(access_tokens::list, access_tokens::create))
        .routes(routes!(access_tokens::revoke))
        .routes(routes!(audit::list))
        .routes(routes!(rejected::list))
        .routes(routes!(breaches::list))
        .routes(routes!(hooks::list))
        .routes(routes!(hooks::get))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(doctor::diagnose))
}

/// The routes about many instances, whose bodies may be larger than a single start's.
fn many() -> OpenApiRouter<Handle> {
    OpenApiRouter::new().routes(routes!(batch::start)).routes(routes!(operate::operate))
}

/// The routes of events, and those by which hooks are resumed.
fn payloads() -> OpenApiRouter<Handle> {
    OpenApiRouter::new()
        .routes(routes!(events::send))
        .routes(routes!(hooks::resume))
        .merge(webhooks::routes())
}

fn limited(routes: OpenApiRouter<Handle>, body_max: usize) -> OpenApiRouter<Handle> {
    routes.layer(DefaultBodyLimit::disable()).layer(RequestBodyLimitLayer::new(body_max))
}

/// The most bytes of a request body that are read. Generous, because the limit of an input counts its compact text and a
/// person may send it indented; the exact check follows.
fn body_bytes_max(input_bytes: u64) -> usize {
    usize::try_from(input_bytes.saturating_mul(4).saturating_add(64 * 1024)).unwrap_or(usize::MAX)
}

/// No path and no query: ids and cursors are user data.
fn span(request: &Request) -> tracing::Span {
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str);
    tracing::debug_span!("http", method = %request.method(), route)
}

/// A probe that is answered "not ready" is no failure of this server; what went wrong has its own log line.
fn not_ready_is_no_error() -> DefaultOnFailure {
    DefaultOnFailure::new().level(tracing::Level::DEBUG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_may_be_larger_than_the_input_in_it() {
        assert_eq!(body_bytes_max(1 << 20), (4 << 20) + 65_536);
        assert_eq!(body_bytes_max(u64::MAX), usize::MAX);
    }
}
