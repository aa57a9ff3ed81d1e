//! An HTTP server in the test's hand, down to the bytes: what it answers need not be HTTP, nor come, nor end.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What is done about a request.
pub(crate) enum Reply {
    /// Writes this and closes.
    Close(Vec<u8>),
    /// Writes this and does nothing more until the other side has gone.
    Stall(Vec<u8>),
}

/// An answer as servers give it.
pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Reply {
    let body = body.as_ref();
    let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let headers = headers.concat();
    let head = format!(
        "HTTP/1.1 {status} Status\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    Reply::Close([head.as_bytes(), body].concat())
}

pub(crate) fn json(status: u16, body: &serde_json::Value) -> Reply {
    answer(status, &[("content-type", "application/json")], body.to_string())
}

type Handler = Arc<dyn Fn(&Seen, usize) -> Reply + Send + Sync>;

/// A running server. Its port is closed with the test's runtime.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// Answers each request by `handler`, which is told how many came before.
    pub(crate) async fn start(handler: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0", None, handler).await
    }

    pub(crate) async fn at(
        addr: &str,
        tls: Option<TlsAcceptor>,
        handler: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(addr).await.unwrap();
        let server = Self { addr: listener.local_addr().unwrap(), seen: Arc::default() };
        let (seen, handler): (_, Handler) = (server.seen.clone(), Arc::new(handler));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, handler, tls) = (seen.clone(), handler.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &seen, &handler).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &seen, &handler).await;
                            }
                        }
                    }
                });
            }
        });
        server
    }

    /// Everything that came.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// A URL of this server under a name that the test's resolver knows.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://service.test:{}{path}", self.addr.port())
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, seen: &Mutex<Vec<Seen>>, handler: &Handler) {
    let Some(request) = read(&mut stream).await else { return };
    let reply = {
        let mut seen = seen.lock().unwrap();
        let before = seen.len();
        seen.push(request.clone());
        handler(&request, before)
    };
    match reply {
        Reply::Close(bytes) => {
            // The other side may have had enough.
            drop(stream.write_all(&bytes).await);
            drop(stream.shutdown().await);
        }
        Reply::Stall(bytes) => {
            drop(stream.write_all(&bytes).await);
            drop(stream.flush().await);
            while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
        }
    }
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    while bytes.len() < head_end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8(bytes[head_end + 4..].to_vec()).unwrap();
    Some(Seen { method, path, headers, body })
}
