//! One request and its answer on the wire, and what is known when it fails.

use std::{error::Error as _, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use everstep_sdk::host::with_sources;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{HttpConnector, capture_connection},
    },
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::{
    Error, Resolve, Settings,
    resolve::{AddressRefused, Guarded},
    tls,
};

/// A connection that nobody uses is closed after this: few services keep theirs for longer.
const IDLE: Duration = Duration::from_secs(20);
/// So much of an answer that is an error is read, and for so long, for its beginning to be told. Its status has come already: nobody
/// waits for a body that does not end.
const ERROR_BYTES: usize = 16 << 10;
const ERROR_TIME: Duration = Duration::from_secs(1);

/// The connections.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    client: Client<HttpsConnector<HttpConnector<Guarded>>, Full<Bytes>>,
}

/// What goes out.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// How much of an answer's body is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    /// All of it, and no more bytes than these.
    All(usize),
    /// The beginning, if it can be had.
    Beginning,
    /// Nothing.
    Nothing,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The body was cut: more came, or was to come.
    pub(super) is_cut: bool,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The address is not allowed, so nothing was sent.
    NotAllowed(String),
    /// There was no connection, or no TLS on it, so nothing was sent.
    NotSent(String),
    /// It may have been sent, and the time is over.
    TimedOut(Option<StatusCode>),
    /// It may have been sent, and the connection broke.
    Broken(Option<StatusCode>, String),
    /// It was answered, with more than is wanted.
    TooLarge(StatusCode),
}

impl Wire {
    pub(super) fn new(settings: &Settings, resolver: Arc<dyn Resolve>) -> Result<Self, Error> {
        let networks = settings.networks.clone().into();
        let mut tcp = HttpConnector::new_with_resolver(Guarded { resolver, networks });
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(settings.connect_timeout.to_std()));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::config(settings.ca_file.as_deref())?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self { client })
    }

    /// Sends, and reads the answer as far as `wanted` says of its status.
    pub(super) async fn exchange(
        &self,
        sending: Sending,
        wanted: impl Fn(StatusCode) -> Wanted,
        deadline: Instant,
    ) -> Result<Answer, Fault> {
        let mut request = Request::new(Full::new(sending.body));
        *request.method_mut() = sending.method;
        *request.uri_mut() =
            sending.url.as_str().parse().map_err(|_| Fault::NotSent("the URL cannot be sent".to_owned()))?;
        *request.headers_mut() = sending.headers;
        // Known as soon as a connection is there, with TLS on it, and before anything of the request goes onto it.
        let connected = capture_connection(&mut request);
        let answer = match timeout_at(deadline, self.client.request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) if error.is_connect() => return Err(not_connected(&error)),
            Ok(Err(error)) => return Err(Fault::Broken(None, with_sources(&error))),
            Err(_) if connected.connection_metadata().is_none() => {
                return Err(Fault::NotSent("no connection in time".to_owned()));
            }
            Err(_) => return Err(Fault::TimedOut(None)),
        };
        let (head, body) = answer.into_parts();
        let (body, is_cut) = read(body, head.status, wanted(head.status), deadline).await?;
        Ok(Answer { status: head.status, headers: head.headers, body, is_cut })
    }
}

/// The body, and whether it was cut.
async fn read(
    mut body: Incoming,
    status: StatusCode,
    wanted: Wanted,
    deadline: Instant,
) -> Result<(Bytes, bool), Fault> {
    let (limit, whole, deadline) = match wanted {
        Wanted::All(limit) => (limit, true, deadline),
        Wanted::Beginning => (ERROR_BYTES, false, deadline.min(Instant::now() + ERROR_TIME)),
        Wanted::Nothing => return Ok((Bytes::new(), true)),
    };
    let mut read = BytesMut::new();
    loop {
        let frame = match timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => return Ok((read.freeze(), false)),
            // Of an answer that is an error its status is enough.
            Ok(Some(Err(_))) | Err(_) if !whole => return Ok((read.freeze(), true)),
            Ok(Some(Err(error))) => return Err(Fault::Broken(Some(status), with_sources(&error))),
            Err(_) => return Err(Fault::TimedOut(Some(status))),
        };
        let Some(data) = frame.data_ref() else { continue };
        if data.len() <= limit - read.len() {
            read.extend_from_slice(data);
        } else if whole {
            return Err(Fault::TooLarge(status));
        } else {
            read.extend_from_slice(&data[..limit - read.len()]);
            return Ok((read.freeze(), true));
        }
    }
}

fn not_connected(error: &hyper_util::client::legacy::Error) -> Fault {
    let mut source = error.source();
    while let Some(cause) = source {
        if cause.is::<AddressRefused>() {
            return Fault::NotAllowed(format!("calls.networks: {cause}"));
        }
        source = cause.source();
    }
    Fault::NotSent(with_sources(error))
}

/// The values of a header, joined.
pub(super) fn joined(headers: &HeaderMap, name: &http::HeaderName) -> Option<Vec<u8>> {
    let values: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    (!values.is_empty()).then(|| values.join(&b", "[..]))
}
