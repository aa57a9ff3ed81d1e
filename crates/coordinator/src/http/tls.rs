//! HTTPS: connections are taken once their handshake is over, so that none of them holds up another (rule A9).

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::serve::Listener;
use everstep_tls::{Identity, serving};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Handshakes that are under way at once; further connections wait with the system.
const HANDSHAKES_MAX: usize = 256;
/// How long a handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// How soon a certificate that was renewed is shown.
const RELOAD_EVERY: Duration = Duration::from_mins(1);

type Taken = (TlsStream<TcpStream>, SocketAddr);

/// A listener whose connections are encrypted.
#[derive(Debug)]
pub(super) struct TlsListener {
    addr: SocketAddr,
    taken: mpsc::Receiver<Taken>,
    /// Ends with this.
    _tasks: JoinSet<()>,
}

impl TlsListener {
    pub(super) fn new(listener: TcpListener, identity: Arc<Identity>) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        let config = serving(Arc::clone(&identity), &["http/1.1"]).map_err(io::Error::other)?;
        let (taken_to, taken) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), taken_to));
        tasks.spawn(reload(identity));
        Ok(Self { addr, taken, _tasks: tasks })
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> Taken {
        match self.taken.recv().await {
            Some(taken) => taken,
            // The task ends with this and not before.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}

async fn accept(mut listener: TcpListener, acceptor: TlsAcceptor, taken: mpsc::Sender<Taken>) {
    let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    let mut handshakes = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        // It waits where the system has no more files, as it does without TLS.
        let (stream, addr) = Listener::accept(&mut listener).await;
        let (acceptor, taken) = (acceptor.clone(), taken.clone());
        handshakes.spawn(async move {
            match timeout(HANDSHAKE_WITHIN, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => drop(taken.send((stream, addr)).await),
                Ok(Err(error)) => tracing::debug!(%addr, %error, "a TLS handshake has failed"),
                Err(_) => tracing::debug!(%addr, "a TLS handshake took too long"),
            }
            drop(place);
        });
        while handshakes.try_join_next().is_some() {}
    }
}

async fn reload(identity: Arc<Identity>) {
    loop {
        tokio::time::sleep(RELOAD_EVERY).await;
        match identity.reload() {
            Ok(true) => tracing::info!("another certificate is shown from now on"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the certificate that was read before is shown still"),
        }
    }
}
