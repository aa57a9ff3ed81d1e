//! What Prometheus and probes ask: `/metrics`, `/healthz`, `/readyz`, and nothing else. No payload, no id and no operation is behind it,
//! but names are: those of workflows, steps and queues are labels. So it may be served where the API may not, to whoever may know those
//! names. Whoever asks often does not make the process work often: probes are answered from memory, the text of the metrics is kept for
//! a second, and there are only so many connections, each for one request within seconds.

mod guest;

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
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
use tokio::{net::TcpListener, runtime::Handle, sync::oneshot, task::JoinHandle};

use self::guest::Door;

/// How long the text of the metrics is given again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a request that is under way is waited for at the stop.
const GRACE: Duration = Duration::from_secs(1);

type Ask = Box<dyn Fn() -> Vec<&'static str> + Send + Sync>;

/// How a process stands, in words; nothing where it lacks nothing. Asked whenever a probe comes: it answers from memory, at once.
pub struct Probes {
    dead: Ask,
    missing: Ask,
}

impl Probes {
    /// `dead` is what only a restart mends; `missing` what keeps it from taking work at the moment, without being a reason for a
    /// restart.
    pub fn new(
        dead: impl Fn() -> Vec<&'static str> + Send + Sync + 'static,
        missing: impl Fn() -> Vec<&'static str> + Send + Sync + 'static,
    ) -> Self {
        Self { dead: Box::new(dead), missing: Box::new(missing) }
    }

    /// Of a process that consists of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let both = |one: Ask, two: Ask| move || [one(), two()].concat();
        Self::new(both(self.dead, other.dead), both(self.missing, other.missing))
    }
}

impl fmt::Debug for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probes").finish_non_exhaustive()
    }
}

struct Asking {
    registries: Vec<Registry>,
    probes: Probes,
    last: Mutex<Option<(Instant, String)>>,
}

/// The page while it is served. Dropped, it stops.
pub struct Page {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

/// Serves the page on this runtime, with what all of these registries hold, until it is told to stop. No metric may be in two of
/// them. The runtime should be one that no user code can block, or a probe finds nobody.
///
/// Errors: the address cannot be listened at. Trying again helps once whatever has it is gone.
pub fn serve(
    listen: SocketAddr,
    registries: Vec<Registry>,
    probes: Probes,
    runtime: &Handle,
) -> io::Result<Page> {
    let listener = std::net::TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let listener = {
        // What it waits with is that runtime's.
        let _entered = runtime.enter();
        TcpListener::from_std(listener)?
    };
    let address = listener.local_addr()?;
    tracing::info!(listen = %address, "metrics are served");
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .layer(axum::middleware::map_response(guest::leave))
        .with_state(Arc::new(Asking { registries, probes, last: Mutex::default() }));
    let (stop, stopped) = oneshot::channel::<()>();
    let served = runtime.spawn(async move {
        let served = axum::serve(Door::new(listener), routes).with_graceful_shutdown(async {
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
    /// What the registries hold, or held a moment ago.
    fn text(&self) -> Result<String, prometheus::Error> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, text)) = &*last
            && at.elapsed() < AGAIN
        {
            return Ok(text.clone());
        }
        let families: Vec<_> = self.registries.iter().flat_map(Registry::gather).collect();
        let text = TextEncoder::new().encode_to_string(&families)?;
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

/// `GET /healthz`: the process goes on. An outage of what it depends on is no reason for a restart.
async fn healthz(State(asking): State<Arc<Asking>>) -> Response {
    answer(&(asking.probes.dead)())
}

/// `GET /readyz`: it can work, with all that it depends on.
async fn readyz(State(asking): State<Arc<Asking>>) -> Response {
    answer(&[(asking.probes.dead)(), (asking.probes.missing)()].concat())
}

fn answer(lacks: &[&str]) -> Response {
    if lacks.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, lacks.join(", ") + "\n").into_response()
}

/// `GET /metrics`, in Prometheus' text format.
async fn metrics(State(asking): State<Arc<Asking>>) -> Response {
    match asking.text() {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    //! Proves what each path answers, and that neither whoever asks often, nor who asks nothing, nor a blocked runtime is in its way.
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

    fn at_any() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    #[tokio::test]
    async fn probes_say_what_is_missing_and_what_is_dead() {
        let registry = Registry::new();
        let up = crate::Book::new(&registry, "everstep_").gauge("up", "Help.").unwrap();
        up.set(1);
        let probes = Probes::new(Vec::new, || vec!["the broker is away"]);
        let page = serve(at_any(), vec![registry], probes, &Handle::current()).unwrap();
        for _ in 0..5 {
            assert_eq!(get(page.address(), "/healthz").await, ("200".to_owned(), "ok\n".to_owned()));
            let not_ready = ("503".to_owned(), "the broker is away\n".to_owned());
            assert_eq!(get(page.address(), "/readyz").await, not_ready);
        }
        let (status, body) = get(page.address(), "/metrics").await;
        assert!(status == "200" && body.contains("everstep_up 1"), "{body}");
        for nothing in ["/", "/v1/default/instances", "/hooks/default/x"] {
            assert_eq!(get(page.address(), nothing).await.0, "404");
        }
        page.stop().await;
    }

    #[test]
    fn whoever_asks_often_gets_the_same_text_for_a_moment() {
        let registry = Registry::new();
        let up = crate::Book::new(&registry, "everstep_").gauge("up", "Help.").unwrap();
        let probes = Probes::new(Vec::new, Vec::new);
        let asking = Asking { registries: vec![registry], probes, last: Mutex::default() };
        assert!(asking.text().unwrap().contains("everstep_up 0"));
        up.set(1);
        let later = Instant::now().checked_sub(2 * AGAIN).unwrap();
        assert!(asking.text().unwrap().contains("everstep_up 0"), "it was made a moment ago");
        asking.last.lock().unwrap().as_mut().unwrap().0 = later;
        assert!(asking.text().unwrap().contains("everstep_up 1"));
    }

    #[tokio::test]
    async fn what_is_dead_of_either_half_is_not_ready_either() {
        let half = Probes::new(|| vec!["the loop does not turn"], Vec::new);
        let probes = Probes::new(|| vec!["the worker has ended"], || vec!["it is stopping"]).and(half);
        let page = serve(at_any(), Vec::new(), probes, &Handle::current()).unwrap();
        let dead = "the worker has ended, the loop does not turn";
        for (path, lacks) in [("/healthz", dead.to_owned()), ("/readyz", format!("{dead}, it is stopping"))] {
            let (status, body) = get(page.address(), path).await;
            assert_eq!((status.as_str(), body), ("503", lacks + "\n"));
        }
    }

    #[test]
    fn a_blocked_runtime_elsewhere_silences_no_probe() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let link = runtime();
        let (gone, over) = oneshot::channel::<()>();
        let page = serve(at_any(), Vec::new(), Probes::new(Vec::new, Vec::new), link.handle()).unwrap();
        let thread = std::thread::spawn(move || link.block_on(over).is_err());
        runtime().block_on(async {
            // This runtime has one thread, which the step below never gives back to others while it asks.
            let address = page.address();
            let asked = move || runtime().block_on(get(address, "/healthz"));
            assert_eq!(std::thread::spawn(asked).join().unwrap().0, "200");
        });
        drop(gone);
        assert!(thread.join().unwrap());
    }

    #[tokio::test]
    async fn connections_that_say_nothing_are_few_and_go() {
        tokio::time::pause();
        let page = serve(at_any(), Vec::new(), Probes::new(Vec::new, Vec::new), &Handle::current()).unwrap();
        let mut silent = Vec::new();
        for _ in 0..2 * guest::MOST {
            silent.push(TcpStream::connect(page.address()).await.unwrap());
        }
        // All of them have to go before this one's turn comes.
        assert_eq!(get(page.address(), "/healthz").await.0, "200");
        for mut stream in silent {
            let mut rest = Vec::new();
            assert!(matches!(stream.read_to_end(&mut rest).await, Ok(0) | Err(_)), "{rest:?}");
        }
    }
}
