//! Server-sent events: how a stream is served, whatever it tells.
//!
//! What tells runs apart from the connection and hands over text through a channel of a few places, so that a listener costs a bounded
//! number of bytes however much there is to tell. A listener that takes nothing for [`SLOW`] is let go: what is still on its way to it
//! ends with the event `dropped`. An idle stream says something every [`KEEP_ALIVE`], so that proxies keep it and a dead peer is noticed.

use std::{convert::Infallible, fmt::Write as _, future::Future, time::Duration};

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
    News,
    Quiet,
    /// This is the last event.
    Over(Chunk),
}

/// What tells.
pub(super) trait Teller: Send + 'static {
    /// Looks at the store once, and tells what is new.
    fn round(&mut self, sink: &mut Sink) -> impl Future<Output = Result<Round, Stop>> + Send;
}

/// The way to a listener.
#[derive(Debug)]
pub(super) struct Sink {
    chunks: mpsc::Sender<Bytes>,
    said: Instant,
    slow: Duration,
}

impl Sink {
    pub(super) async fn send(&mut self, chunk: Chunk) -> Result<(), Stop> {
        if chunk.is_empty() {
            return Ok(());
        }
        self.said = Instant::now();
        self.chunks.send_timeout(Bytes::from(chunk.0), self.slow).await.map_err(|error| match error {
            mpsc::error::SendTimeoutError::Timeout(_) => Stop::Slow,
            mpsc::error::SendTimeoutError::Closed(_) => Stop::Gone,
        })
    }

    async fn idle(&mut self, pause: Duration) -> Result<(), Stop> {
        tokio::select! {
            () = self.chunks.closed() => return Err(Stop::Gone),
            () = tokio::time::sleep(pause) => {}
        }
        if self.said.elapsed() < KEEP_ALIVE {
            return Ok(());
        }
        self.send(Chunk(": still here\n\n".to_owned())).await
    }
}

/// Serves what a teller tells.
pub(super) fn serve(handle: &Handle, teller: impl Teller) -> Result<Response, Refusal> {
    let permit = handle.stream().ok_or(Refusal::TooManyStreams)?;
    Ok(stream(handle.clone(), permit, teller, SLOW))
}

fn stream(handle: Handle, permit: OwnedSemaphorePermit, teller: impl Teller, slow: Duration) -> Response {
    let (chunks, taken) = mpsc::channel(CHUNKS);
    let (last, told) = oneshot::channel();
    let sink = Sink { chunks, said: Instant::now(), slow };
    tokio::spawn(async move {
        if let Some(chunk) = tell(&handle, teller, sink).await {
            // Nobody may be there to take it.
            drop(last.send(Bytes::from(chunk.0)));
        }
        drop(permit);
    });
    let events = futures::stream::unfold((taken, Some(told)), |(mut taken, told)| async {
        if let Some(chunk) = taken.recv().await {
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

/// Tells until it is over. Gives the last event, if there is anybody to read it.
async fn tell(handle: &Handle, mut teller: impl Teller, mut sink: Sink) -> Option<Chunk> {
    let mut pause = ASK_FIRST;
    loop {
        let round = match teller.round(&mut sink).await {
            Ok(Round::Over(last)) => return Some(last),
            Ok(Round::News) => {
                pause = ASK_FIRST;
                Ok(())
            }
            Ok(Round::Quiet) => {
                pause = (pause * 2).min(ASK_LAST);
                Ok(())
            }
            Err(stop) => Err(stop),
        };
        if handle.is_stopping() {
            return Some(broken("interrupted", "the coordinator is stopping".to_owned()));
        }
        let idle = match round {
            Ok(()) => sink.idle(pause).await,
            stop => stop,
        };
        match idle {
            Ok(()) => {}
            Err(Stop::Gone) => return None,
            Err(Stop::Slow) => {
                let reason = format!("nothing was taken for {} s", sink.slow.as_secs());
                return Some(broken("dropped", reason));
            }
            Err(Stop::Store(error)) => {
                tracing::warn!(%error, "a stream of events is interrupted");
                return Some(broken("interrupted", error.for_outsiders()));
            }
        }
    }
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
        let response = stream(handle, permit, Flood, Duration::from_millis(20));
        // Nothing is taken: its place is free again once it was let go.
        let all = u32::try_from(all).expect("there are few");
        let freed = places.acquire_many(all).await.expect("they are never closed");
        drop(freed);
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("it ends");
        let text = String::from_utf8_lossy(&body);
        assert_eq!(text.matches("event: entry").count(), CHUNKS, "{text}");
        let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
        assert!(last.starts_with("event: dropped\n") && last.contains("\"retry_safe\":true"), "{last}");
    }
}
