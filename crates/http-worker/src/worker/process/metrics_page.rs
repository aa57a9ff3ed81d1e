//! What Prometheus and probes ask.

use std::{io, net::SocketAddr};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus::{Registry, TextEncoder};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

/// The page while it is served.
pub(super) struct Page {
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

/// Serves `/metrics` and `/healthz` until it is told to stop.
pub(super) async fn serve(listen: SocketAddr, registry: Registry) -> io::Result<Page> {
    let listener = TcpListener::bind(listen).await?;
    tracing::info!(listen = %listener.local_addr()?, "metrics are served");
    let routes =
        Router::new().route("/metrics", get(metrics)).route("/healthz", get("ok")).with_state(registry);
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(async move {
        let served = axum::serve(listener, routes).with_graceful_shutdown(async {
            // An owner that is gone wants it stopped too.
            drop(stopped.await);
        });
        if let Err(error) = served.await {
            tracing::error!(%error, "metrics are not served any more");
        }
    });
    Ok(Page { stop, served })
}

impl Page {
    pub(super) async fn stop(self) {
        drop(self.stop);
        // A scraper that keeps its connection is not waited for.
        drop(tokio::time::timeout(std::time::Duration::from_secs(1), self.served).await);
    }
}

async fn metrics(State(registry): State<Registry>) -> Response {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
