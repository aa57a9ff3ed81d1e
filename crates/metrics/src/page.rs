//! What Prometheus and probes ask: `/metrics`, `/healthz`, `/readyz`, and nothing else. No name of a user's, no payload and no
//! operation is behind it, so it may be served where the API may not. Whoever asks for the standing often gets the same answer for a
//! second, so that nobody can make the process ask its database faster than that.

use std::{
    fmt,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus::{Registry, TextEncoder};
use tokio::{
    net::TcpListener,
    sync::{Mutex, oneshot},
    task::JoinHandle,
};

/// How long an answer is given again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a scraper that keeps its connection is waited for at the stop.
const GRACE: Duration = Duration::from_secs(1);

/// How a process stands: what it lacks, in words; nothing if it lacks nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// What only a restart mends.
    pub dead: Vec<&'static str>,
    /// What keeps it from taking work at the moment, without being a reason for a restart.
    pub missing: Vec<&'static str>,
}

/// Answers how the process stands.
pub type Asked = Pin<Box<dyn Future<Output = Standing> + Send>>;

struct Asking {
    registries: Vec<Registry>,
    ask: Box<dyn Fn() -> Asked + Send + Sync>,
    last: Mutex<Option<(Instant, Standing)>>,
}

/// The page while it is served. Dropped, it stops.
pub struct Page {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

/// Serves the page, with what all of these registries hold, until it is told to stop. No metric may be in two of them.
///
/// Errors: the address cannot be listened at. Trying again helps once whatever has it is gone.
pub async fn serve<F>(
    listen: SocketAddr,
    registries: Vec<Registry>,
    ask: impl Fn() -> F + Send + Sync + 'static,
) -> io::Result<Page>
where
    F: Future<Output = Standing> + Send + 'static,
{
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    tracing::info!(listen = %address, "metrics are served");
    let asking = Asking { registries, ask: Box::new(move || Box::pin(ask())), last: Mutex::default() };
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(Arc::new(asking));
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
    Ok(Page { address, stop, served })
}

impl Page {
    /// Where it is served.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops.
    pub async fn stop(self) {
        drop(self.stop);
        drop(tokio::time::timeout(GRACE, self.served).await);
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Asking {
    async fn standing(&self) -> Standing {
        let mut last = self.last.lock().await;
        if let Some((at, standing)) = &*last
            && at.elapsed() < AGAIN
        {
            return standing.clone();
        }
        let standing = (self.ask)().await;
        *last = Some((Instant::now(), standing.clone()));
        standing
    }
}

/// `GET /healthz`: the process goes on. An outage of what it depends on is no reason for a restart.
async fn healthz(State(asking): State<Arc<Asking>>) -> Response {
    answer(&asking.standing().await.dead)
}

/// `GET /readyz`: it can work, with all that it depends on.
async fn readyz(State(asking): State<Arc<Asking>>) -> Response {
    let Standing { mut dead, missing } = asking.standing().await;
    dead.extend(missing);
    answer(&dead)
}

fn answer(lacks: &[&str]) -> Response {
    if lacks.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, lacks.join(", ") + "\n").into_response()
}

/// `GET /metrics`, in Prometheus' text format.
async fn metrics(State(asking): State<Arc<Asking>>) -> Response {
    let families: Vec<_> = asking.registries.iter().flat_map(Registry::gather).collect();
    match TextEncoder::new().encode_to_string(&families) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    //! Proves what each path answers, and that whoever asks often does not make the process ask often.
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;

    async fn get(address: SocketAddr, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: pod.example\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
    }

    #[tokio::test]
    async fn probes_say_what_is_missing_and_what_is_dead() {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        let registry = Registry::new();
        crate::Book::new(&registry, "everstep_").gauge("up", "Help.").unwrap().set(1);
        let page = serve(([127, 0, 0, 1], 0).into(), vec![registry], move || {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Standing { dead: Vec::new(), missing: vec!["the broker is away"] } }
        })
        .await
        .unwrap();
        for _ in 0..5 {
            assert_eq!(get(page.address(), "/healthz").await, ("200".to_owned(), "ok\n".to_owned()));
            let not_ready = ("503".to_owned(), "the broker is away\n".to_owned());
            assert_eq!(get(page.address(), "/readyz").await, not_ready);
        }
        assert!(asked.load(Ordering::Relaxed) < 5);
        let (status, body) = get(page.address(), "/metrics").await;
        assert!(status == "200" && body.contains("everstep_up 1"), "{body}");
        for nothing in ["/", "/v1/default/instances", "/hooks/default/x"] {
            assert_eq!(get(page.address(), nothing).await.0, "404");
        }
        page.stop().await;
    }

    #[tokio::test]
    async fn what_is_dead_is_not_ready_either() {
        let page = serve(([127, 0, 0, 1], 0).into(), Vec::new(), || async {
            Standing { dead: vec!["the loop does not turn"], missing: Vec::new() }
        })
        .await
        .unwrap();
        for path in ["/healthz", "/readyz"] {
            let (status, body) = get(page.address(), path).await;
            assert_eq!((status.as_str(), body.as_str()), ("503", "the loop does not turn\n"));
        }
    }
}
