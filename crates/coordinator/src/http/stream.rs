//! Server-sent events: how a stream is served, whatever it tells.
//!
//! What tells runs apart from the connection and hands over text through a channel of a few places, so that a listener costs a bounded
//! number of bytes however much there is to tell. A listener that takes nothing for [`SLOW`] is let go: what has not left is thrown away, and
//! the event `dropped` is the next that it reads. An idle stream says something every [`KEEP_ALIVE`], so that proxies keep it and a dead peer is
//! noticed; where its teller has got on without anything to tell, that is the new cursor.

use std::{
    convert::Infallible,
    fmt::Write as _,
    future::{Future, poll_fn},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    body::Body,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde::Serialize;
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::Instant,
};

use super::problem::Refusal;
use crate::Handle;

/// Chunks on their way to one listener.
const CHUNKS: usize = 4;
/// How long a listener may take nothing.
const SLOW: Duration = Duration::from_secs(30);
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How soon the store is asked again, after news and when there are none.
const ASK_FIRST: Duration = Duration::from_millis(50);
const ASK_LAST: Duration = Duration::from_millis(500);

/// Where a listener that comes again has got to.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    value.to_str().map(Some).map_err(|_| Refusal::Header {
        name: "Last-Event-ID",
        detail: "it must be the id of an event of this stream".to_owned(),
    })
}

/// Events as text.
#[derive(Debug, Default)]
pub(super) struct Chunk(String);

impl Chunk {
    /// Adds an event; `id` is where a listener that has read it goes on.
    pub(super) fn event(&mut self, kind: &str, id: Option<&str>, data: &impl Serialize) {
        let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned());
        self.text(kind, id, &data);
    }

    pub(super) fn text(&mut self, kind: &str, id: Option<&str>, data: &str) {
        if let Some(id) = id {
            writeln!(self.0, "id: {id}").expect("a string takes any text");
        }
        writeln!(self.0, "event: {kind}").expect("a string takes any text");
        for line in data.lines() {
            writeln!(self.0, "data: {line}").expect("a string takes any text");
        }
        self.0.push('\n');
    }

    /// An event that only says where to go on.
    pub(super) fn mark(&mut self, id: &str) {
        writeln!(self.0, "id: {id}\n").expect("a string takes any text");
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last event of a stream.
    pub(super) fn last(kind: &str, id: Option<&str>, data: &impl Serialize) -> Self {
        let mut chunk = Self::default();
        chunk.event(kind, id, data);
        chunk
    }
}

/// Why a stream breaks off, for its listener.
#[derive(Debug, Serialize)]
struct Broken {
    reason: String,
    /// Coming again with the last event's id is safe: nothing is skipped or repeated.
    retry_safe: bool,
}

/// Why a teller stops.
#[derive(Debug)]
pub(super) enum Stop {
    /// This coordinator stops.
    Stopping,
    /// Nobody listens any more.
    Gone,
    /// The listener takes nothing.
    Slow,
    /// The store does not answer.
    Store(everstep_store::Error),
}

impl From<everstep_store::Error> for Stop {
    fn from(error: everstep_store::Error) -> Self {
        Self::Store(error)
    }
}

/// What came of one look at the store.
#[derive(Debug)]
pub(super) enum Round {
    /// There is more to be told already.
    More,
    News,
    Quiet,
    /// This is the last event.
    Over(Chunk),
}

/// What tells.
pub(super) trait Teller: Send + 'static {
    /// Looks at the store once, and tells what is new.
    fn round(&mut self, sink: &mut Sink) -> impl Future<Output = Result<Round, Stop>> + Send;

    /// Where a listener that comes again may go on, if that is farther than it was told.
    fn place(&mut self) -> Option<String> {
        None
    }
}

/// The way to a listener.
#[derive(Debug)]
pub(super) struct Sink {
    handle: Handle,
    chunks: mpsc::Sender<Bytes>,
    said: Instant,
    times: Times,
}

/// How long a listener may take nothing, and how long nothing is said.
#[derive(Clone, Copy, Debug)]
struct Times {
    slow: Duration,
    keep_alive: Duration,
}

impl Sink {
    pub(super) async fn send(&mut self, chunk: Chunk) -> Result<(), Stop> {
        // A round may tell a long journal.
        if self.handle.is_stopping() {
            return Err(Stop::Stopping);
        }
        if chunk.is_empty() {
            return Ok(());
        }
        self.said = Instant::now();
        self.chunks.send_timeout(Bytes::from(chunk.0), self.times.slow).await.map_err(|error| match error {
            mpsc::error::SendTimeoutError::Timeout(_) => Stop::Slow,
            mpsc::error::SendTimeoutError::Closed(_) => Stop::Gone,
        })
    }

    async fn idle(&mut self, pause: Duration, place: Option<String>) -> Result<(), Stop> {
        tokio::select! {
            () = self.chunks.closed() => return Err(Stop::Gone),
            () = tokio::time::sleep(pause) => {}
        }
        if self.said.elapsed() < self.times.keep_alive {
            return Ok(());
        }
        let mut chunk = Chunk::default();
        match place {
            Some(place) => chunk.mark(&place),
            None => chunk.0.push_str(": still here\n\n"),
        }
        self.send(chunk).await
    }
}

/// Serves what a teller tells.
pub(super) fn serve(handle: &Handle, teller: impl Teller) -> Result<Response, Refusal> {
    let permit = handle.stream().ok_or(Refusal::TooManyStreams)?;
    Ok(stream(handle.clone(), permit, teller, Times { slow: SLOW, keep_alive: KEEP_ALIVE }))
}

fn stream(handle: Handle, permit: OwnedSemaphorePermit, teller: impl Teller, times: Times) -> Response {
    let (chunks, taken) = mpsc::channel(CHUNKS);
    let (last, told) = oneshot::channel();
    let sink = Sink { handle, chunks, said: Instant::now(), times };
    let taken = Arc::new(Mutex::new(taken));
    let waiting = Arc::clone(&taken);
    tokio::spawn(async move {
        match tell(teller, sink).await {
            // Nobody may be there to take it.
            Told::Last(chunk) => drop(last.send(Bytes::from(chunk.0))),
            Told::Slow(chunk) => {
                // Whoever takes nothing does not hold what nobody counts any more. It comes again behind what it has read.
                let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                while waiting.try_recv().is_ok() {}
                drop(last.send(Bytes::from(chunk.0)));
            }
            Told::Gone => {}
        }
        drop(permit);
    });
    let events = futures::stream::unfold((taken, Some(told)), |(taken, told)| async move {
        let next = poll_fn(|cx| taken.lock().unwrap_or_else(PoisonError::into_inner).poll_recv(cx));
        if let Some(chunk) = next.await {
            return Some((Ok::<_, Infallible>(chunk), (taken, told)));
        }
        let last = told?.await.ok()?;
        Some((Ok(last), (taken, None)))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies that know it do not gather what is to come at once.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(events)).into_response()
}

/// How a stream is over.
#[derive(Debug)]
enum Told {
    /// This is its last event.
    Last(Chunk),
    /// The same, for a listener that has taken nothing.
    Slow(Chunk),
    /// There is nobody to read it.
    Gone,
}

/// Tells until it is over.
async fn tell(mut teller: impl Teller, mut sink: Sink) -> Told {
    let mut pause = ASK_FIRST;
    loop {
        let round = teller.round(&mut sink).await;
        let stop = match round {
            Ok(Round::Over(last)) => return Told::Last(last),
            _ if sink.handle.is_stopping() => Err(Stop::Stopping),
            Ok(Round::More) => {
                pause = ASK_FIRST;
                tokio::task::yield_now().await;
                continue;
            }
            Ok(Round::News) => {
                pause = ASK_FIRST;
                sink.idle(pause, teller.place()).await
            }
            Ok(Round::Quiet) => {
                pause = (pause * 2).min(ASK_LAST);
                sink.idle(pause, teller.place()).await
            }
            Err(stop) => Err(stop),
        };
        match stop {
            Ok(()) => {}
            Err(Stop::Gone) => return Told::Gone,
            Err(Stop::Stopping) => {
                return Told::Last(broken("interrupted", "the coordinator is stopping".to_owned()));
            }
            Err(Stop::Slow) => {
                let reason = format!("nothing was taken for {} s", sink.times.slow.as_secs());
                return Told::Slow(broken("dropped", reason));
            }
            Err(Stop::Store(error)) => {
                tracing::warn!(%error, "a stream of events is interrupted");
                return Told::Last(broken("interrupted", error.for_outsiders()));
            }
        }
    }
}

/// The last event of a stream that may not go on. Coming again is refused, and says why.
pub(super) fn interrupted(reason: &str) -> Bytes {
    Bytes::from(broken("interrupted", reason.to_owned()).0)
}

fn broken(kind: &str, reason: String) -> Chunk {
    Chunk::last(kind, None, &Broken { reason, retry_safe: true })
}

#[cfg(test)]
mod tests {
    //! Proves what a listener costs and how it is let go. What is told is tested in tests/http.
    use super::*;

    struct Flood;

    impl Teller for Flood {
        async fn round(&mut self, sink: &mut Sink) -> Result<Round, Stop> {
            let mut chunk = Chunk::default();
            chunk.event("entry", Some("1.1"), &"x".repeat(1000));
            sink.send(chunk).await?;
            Ok(Round::News)
        }
    }

    #[test]
    fn an_event_is_text_by_lines() {
        let mut chunk = Chunk::default();
        chunk.text("entry", Some("1.2"), "{\n}");
        chunk.mark("1.3");
        assert_eq!(chunk.0, "id: 1.2\nevent: entry\ndata: {\ndata: }\n\nid: 1.3\n\n");
    }

    #[tokio::test]
    async fn a_listener_that_takes_nothing_is_let_go_and_told_so() {
        let rehearsal = crate::rehearsal::Rehearsal::new();
        let handle = rehearsal.handle();
        let permit = handle.stream().expect("there is room");
        let places = std::sync::Arc::clone(&rehearsal.shared.streams);
        let all = places.available_permits() + 1;
        let response =
            stream(handle, permit, Flood, Times { slow: Duration::from_millis(20), keep_alive: KEEP_ALIVE });
        // Nothing is taken: its place is free again once it was let go.
        let all = u32::try_from(all).expect("there are few");
        let freed = places.acquire_many(all).await.expect("they are never closed");
        drop(freed);
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("it ends");
        let text = String::from_utf8_lossy(&body);
        let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
        assert!(last.starts_with("event: dropped\n") && last.contains("\"retry_safe\":true"), "{last}");
        assert_eq!(text.matches("event: entry").count(), 0, "nothing is kept for it: {text}");
    }

    /// Has so many pages, and then nothing to tell but that it got on.
    struct Pages(usize);

    impl Teller for Pages {
        async fn round(&mut self, sink: &mut Sink) -> Result<Round, Stop> {
            let Some(left) = self.0.checked_sub(1) else { return Ok(Round::Quiet) };
            self.0 = left;
            let mut chunk = Chunk::default();
            chunk.event("page", None, &left);
            sink.send(chunk).await?;
            Ok(Round::More)
        }

        fn place(&mut self) -> Option<String> {
            Some("7".to_owned())
        }
    }

    fn listen(handle: Handle, teller: impl Teller) -> axum::body::BodyDataStream {
        let permit = handle.stream().expect("there is room");
        stream(handle, permit, teller, Times { slow: SLOW, keep_alive: Duration::from_millis(200) })
            .into_body()
            .into_data_stream()
    }

    #[tokio::test]
    async fn what_there_is_to_tell_comes_without_a_pause_and_then_where_to_go_on() {
        use futures::StreamExt;

        let rehearsal = crate::rehearsal::Rehearsal::new();
        let mut told = listen(rehearsal.handle(), Pages(100));
        let began = Instant::now();
        for _ in 0..100 {
            let page = told.next().await.expect("it goes on").expect("it is text");
            assert!(page.starts_with(b"event: page"));
        }
        assert!(
            began.elapsed() < ASK_FIRST * 50,
            "100 pauses would take twice as long: {:?}",
            began.elapsed()
        );
        let mark = told.next().await.expect("it goes on").expect("it is text");
        assert_eq!(mark, "id: 7\n\n", "a listener that comes again does not look for it all anew");
    }

    /// Tells for ever without coming to the end of a round.
    struct Endless;

    impl Teller for Endless {
        async fn round(&mut self, sink: &mut Sink) -> Result<Round, Stop> {
            loop {
                let mut chunk = Chunk::default();
                chunk.event("entry", None, &1);
                sink.send(chunk).await?;
            }
        }
    }

    #[tokio::test]
    async fn a_coordinator_that_stops_ends_a_round_that_goes_on() {
        use futures::StreamExt;

        let rehearsal = crate::rehearsal::Rehearsal::new();
        let mut told = listen(rehearsal.handle(), Endless);
        drop(told.next().await);
        rehearsal.shared.stopping.store(true, std::sync::atomic::Ordering::Release);
        let mut last = bytes::Bytes::new();
        while let Some(Ok(chunk)) = told.next().await {
            last = chunk;
        }
        assert!(last.starts_with(b"event: interrupted"), "{last:?}");
    }
}
