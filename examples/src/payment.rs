//! A payment server that fails the way real ones do, and charges once per idempotency key all the same.
//!
//! `POST /charges` takes `{"order", "cents", "currency"}` and the header `Idempotency-Key`. The same key answers the
//! first result without charging again, also after a restart. Now and then a request is answered 503 before anything
//! was charged, and now and then the connection is closed without an answer after the charge is on disk: the case in
//! which a caller cannot know what happened. Faults follow from (seed, key, number of the request with this key), and
//! the third request with a key always succeeds.
//!
//! Invariants: a charge is written and synced before it is answered; one key never has two lines in the ledger; one
//! process at a time writes to a ledger. What it does not do: money.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::future::IntoFuture as _;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::{IncomingStream, Listener};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The header that names the charge.
const KEY_HEADER: &str = "Idempotency-Key";
/// Longest key taken, in bytes.
const KEY_BYTES_MAX: usize = 255;
/// Most that one charge may ask for, in hundredths.
const CENTS_MAX: i64 = 10_000_000;
/// Requests with one key that may fail by design; the next one succeeds.
const FAULTS_MAX: u32 = 2;
/// Most charges that share one sync.
const BATCH_MAX: usize = 1024;
/// How long a shutdown waits for open connections.
const GRACE: Duration = Duration::from_secs(2);

/// How the server listens, where it writes and how often it fails.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address to listen at; port 0 lets the system choose one.
    pub listen: SocketAddr,
    /// The file that charges are appended to; created if missing.
    pub ledger: PathBuf,
    /// Decides which requests fail.
    pub seed: u64,
    /// Share of requests answered 503 before charging, in percent.
    pub unavailable_percent: u8,
    /// Share of requests whose connection ends without an answer after charging, in percent.
    pub drop_percent: u8,
}

/// A running server. Dropping it leaves the server running until the runtime ends; [`Server::stop`] ends it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<io::Result<()>>,
    payments: Arc<Payments>,
    writer: std::thread::JoinHandle<()>,
}

impl Server {
    /// The address that was bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, waits two seconds at most for open connections, and returns once the ledger is closed.
    pub async fn stop(self) -> anyhow::Result<()> {
        let _ = self.stop.send(());
        self.serving.await.context("the payment server panicked")?.context("serving payments")?;
        // A connection that outlived the wait holds the payments too, so the channel is closed rather than dropped.
        self.payments.ledger.lock().unwrap_or_else(PoisonError::into_inner).take();
        let writer = self.writer;
        tokio::task::spawn_blocking(move || writer.join())
            .await
            .context("waiting for the ledger's writer")?
            .map_err(|_| anyhow::anyhow!("the ledger's writer panicked"))
    }
}

/// Reads the ledger, binds the address and serves in the background.
pub async fn serve(settings: Settings) -> anyhow::Result<Server> {
    anyhow::ensure!(
        u16::from(settings.unavailable_percent) + u16::from(settings.drop_percent) <= 100,
        "the two fault percentages add up to more than 100"
    );
    let (ledger, charges) = open_ledger(&settings.ledger)
        .with_context(|| format!("opening the ledger {}", settings.ledger.display()))?;
    let listener = TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("listening at {}", settings.listen))?;
    let address = listener.local_addr().context("asking for the bound address")?;

    let (ledger_sender, ledger_receiver) = mpsc::channel();
    let writer = std::thread::Builder::new()
        .name("ledger".to_owned())
        .spawn(move || write_ledger(ledger, &ledger_receiver))
        .context("starting the ledger's writer")?;
    let slots =
        charges.into_iter().map(|charge| (charge.key.clone(), Arc::new(Slot::charged(charge)))).collect();
    let payments = Arc::new(Payments {
        seed: settings.seed,
        unavailable_percent: settings.unavailable_percent,
        drop_percent: settings.drop_percent,
        slots: Mutex::new(slots),
        ledger: Mutex::new(Some(ledger_sender)),
    });
    let router = Router::new()
        .route("/charges", post(charge))
        .route("/healthz", get(async || "ok\n"))
        .with_state(Arc::clone(&payments));

    let (stop, stopped) = oneshot::channel::<()>();
    let (draining, drain) = oneshot::channel::<()>();
    let server = axum::serve(Severable(listener), router.into_make_service_with_connect_info::<Switch>())
        .with_graceful_shutdown(async move {
            let _ = stopped.await;
            let _ = draining.send(());
        });
    let serving = tokio::spawn(async move {
        tokio::select! {
            ended = server.into_future() => ended,
            () = async {
                // An error here means that the server ended by itself, which the other branch reports.
                if drain.await.is_ok() { tokio::time::sleep(GRACE).await } else { std::future::pending().await }
            } => Ok(()),
        }
    });
    Ok(Server { address, stop, serving, payments, writer })
}

// --- requests ---

#[derive(Debug, Deserialize)]
struct Request {
    order: String,
    cents: i64,
    currency: String,
}

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Charge {
    order: String,
    key: String,
    cents: i64,
    currency: String,
}

#[derive(Debug)]
struct Payments {
    seed: u64,
    unavailable_percent: u8,
    drop_percent: u8,
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    /// To the ledger's writer; gone once the server was stopped.
    ledger: Mutex<Option<mpsc::Sender<Append>>>,
}

/// What is known of one key. The lock is held while the charge is on its way to the disk, so a second request with
/// the key waits for the first one's result.
#[derive(Debug, Default)]
struct Slot {
    requests: Mutex<u32>,
    charge: tokio::sync::Mutex<Option<Charge>>,
}

impl Slot {
    fn charged(charge: Charge) -> Self {
        Self { requests: Mutex::new(0), charge: tokio::sync::Mutex::new(Some(charge)) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Unavailable,
    Drop,
}

async fn charge(
    State(payments): State<Arc<Payments>>,
    ConnectInfo(connection): ConnectInfo<Switch>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let charge = match parse(&headers, &body) {
        Ok(charge) => charge,
        Err(detail) => return problem(StatusCode::UNPROCESSABLE_ENTITY, &detail),
    };
    let slot = payments.slot(&charge.key);
    let fault = payments.fault(&slot, &charge.key);
    if fault == Some(Fault::Unavailable) {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "nothing was charged, try again");
    }
    // A task of its own: the caller may hang up, but a charge that was begun is also remembered.
    let outcome = tokio::spawn(async move { payments.charge_once(&slot, charge).await }).await;
    if fault == Some(Fault::Drop) {
        connection.cut();
    }
    match outcome {
        Ok(Ok(charge)) => answer(&charge),
        Ok(Err(Refusal::KeyReused)) => problem(
            StatusCode::UNPROCESSABLE_ENTITY,
            "this idempotency key was used for another order, amount or currency",
        ),
        Ok(Err(Refusal::LedgerFailed)) | Err(_) => problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the ledger failed, whether this was charged is unknown",
        ),
    }
}

fn parse(headers: &HeaderMap, body: &[u8]) -> Result<Charge, String> {
    let key = headers
        .get(KEY_HEADER)
        .ok_or_else(|| format!("the header {KEY_HEADER} is missing"))?
        .to_str()
        .map_err(|_| format!("the header {KEY_HEADER} must be visible ASCII"))?;
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(format!("the header {KEY_HEADER} must have 1 to {KEY_BYTES_MAX} characters"));
    }
    let request: Request =
        serde_json::from_slice(body).map_err(|error| format!("the body is no charge: {error}"))?;
    if request.order.trim().is_empty() {
        return Err("order must not be empty".to_owned());
    }
    if !(1..=CENTS_MAX).contains(&request.cents) {
        return Err(format!("cents must be from 1 to {CENTS_MAX}"));
    }
    if request.currency.len() != 3 || !request.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err("currency must be three capital letters".to_owned());
    }
    Ok(Charge { order: request.order, key: key.to_owned(), cents: request.cents, currency: request.currency })
}

fn answer(charge: &Charge) -> Response {
    // From the key alone, so that the answer after a restart is the first one to the byte.
    let id = format!("ch_{:016x}", mix(fold(charge.key.as_bytes())));
    Json(json!({
        "charge": id,
        "order": charge.order,
        "cents": charge.cents,
        "currency": charge.currency,
    }))
    .into_response()
}

fn problem(status: StatusCode, detail: &str) -> Response {
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "detail": detail,
    });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}

// --- charging ---

enum Refusal {
    KeyReused,
    LedgerFailed,
}

impl Payments {
    fn slot(&self, key: &str) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(key) {
            return Arc::clone(slot);
        }
        Arc::clone(slots.entry(key.to_owned()).or_default())
    }

    fn fault(&self, slot: &Slot, key: &str) -> Option<Fault> {
        let request = {
            let mut requests = slot.requests.lock().unwrap_or_else(PoisonError::into_inner);
            *requests = requests.saturating_add(1);
            *requests
        };
        fault(self, key, request)
    }

    async fn charge_once(&self, slot: &Slot, charge: Charge) -> Result<Charge, Refusal> {
        let mut charged = slot.charge.lock().await;
        if let Some(first) = charged.as_ref() {
            return if *first == charge { Ok(charge) } else { Err(Refusal::KeyReused) };
        }
        let (synced, wait) = oneshot::channel();
        self.send(Append { charge: charge.clone(), synced })?;
        // The writer stops at its first error, so no later request can charge this key a second time.
        wait.await.map_err(|_| Refusal::LedgerFailed)?;
        *charged = Some(charge.clone());
        Ok(charge)
    }

    fn send(&self, append: Append) -> Result<(), Refusal> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let ledger = ledger.as_ref().ok_or(Refusal::LedgerFailed)?;
        ledger.send(append).map_err(|_| Refusal::LedgerFailed)
    }
}

fn fault(payments: &Payments, key: &str, request: u32) -> Option<Fault> {
    if request > FAULTS_MAX {
        return None;
    }
    let roll = mix(fold(key.as_bytes()) ^ mix(payments.seed) ^ mix(u64::from(request))) % 100;
    let unavailable = u64::from(payments.unavailable_percent);
    if roll < unavailable {
        Some(Fault::Unavailable)
    } else if roll < unavailable + u64::from(payments.drop_percent) {
        Some(Fault::Drop)
    } else {
        None
    }
}

/// FNV-1a: spelled out here because answers and faults must stay the same whatever the standard library hashes with.
fn fold(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The finaliser of splitmix64: spreads neighbouring values over all bits.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

// --- the ledger ---

#[derive(Debug)]
struct Append {
    charge: Charge,
    /// Sent after the sync; dropped when the ledger failed.
    synced: oneshot::Sender<()>,
}

/// Locks the file, reads the charges and cuts off a last line that a crash left unfinished: it was never answered.
fn open_ledger(path: &Path) -> anyhow::Result<(File, Vec<Charge>)> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    file.try_lock().context("another process writes to it")?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    if whole < bytes.len() {
        tracing::warn!(
            bytes = bytes.len() - whole,
            "the ledger ended in an unfinished line, which was cut off"
        );
        file.set_len(whole as u64)?;
        file.sync_all()?;
    }
    let charges = bytes[..whole]
        .split(|&byte| byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| {
            serde_json::from_slice(line).with_context(|| format!("reading line {}", index + 1))
        })
        .collect::<anyhow::Result<Vec<Charge>>>()?;
    Ok((file, charges))
}

/// Writes what has gathered since the last sync, syncs once, then lets all of it be answered. Ends when the server is
/// gone, or at the first error: after a failed sync nobody knows what is on the disk.
fn write_ledger(mut file: File, appends: &mpsc::Receiver<Append>) {
    while let Ok(first) = appends.recv() {
        let batch: Vec<Append> =
            std::iter::once(first).chain(appends.try_iter().take(BATCH_MAX - 1)).collect();
        if let Err(error) = append(&mut file, &batch) {
            tracing::error!(%error, "writing the ledger failed, nothing is charged from here on");
            return;
        }
        for append in batch {
            let _ = append.synced.send(());
        }
    }
}

fn append(file: &mut File, batch: &[Append]) -> io::Result<()> {
    let mut lines = Vec::new();
    for append in batch {
        serde_json::to_writer(&mut lines, &append.charge)?;
        lines.push(b'\n');
    }
    file.write_all(&lines)?;
    file.sync_data()
}

// --- connections that can be cut ---

/// Cuts one connection: whatever is written to it afterwards fails, so the server closes it without an answer.
#[derive(Debug, Clone, Default)]
struct Switch(Arc<AtomicBool>);

impl Switch {
    fn cut(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::Acquire) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl Connected<IncomingStream<'_, Severable>> for Switch {
    fn connect_info(stream: IncomingStream<'_, Severable>) -> Self {
        stream.remote_addr().clone()
    }
}

/// A TCP listener whose connections carry a [`Switch`] in the place of the peer's address, which nobody here needs.
struct Severable(TcpListener);

impl Listener for Severable {
    type Io = Connection;
    type Addr = Switch;

    async fn accept(&mut self) -> (Connection, Switch) {
        let (stream, _) = Listener::accept(&mut self.0).await;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
        let switch = Switch::default();
        (Connection { stream, switch: switch.clone() }, switch)
    }

    fn local_addr(&self) -> io::Result<Switch> {
        Ok(Switch::default())
    }
}

struct Connection {
    stream: TcpStream,
    switch: Switch,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.switch.check()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.switch.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
