//! What goes on in one instance, as server-sent events: each entry of its journal once, in order, and its view when that changes.
//!
//! The cursor is a run and a position of its journal, `2.17`. Entries are written under the lock of the head, with positions that
//! have no gaps: so what a listener has read up to a position stays what it is, whichever coordinator it asks next. The id of the
//! end says that the end was told too, `2.17.end`: a listener that has only read the last entry is still owed it.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use everstep_engine::start::NameKey;
use everstep_protocol::{InstanceUid, Position, Run};
use everstep_store::{InstanceView, Range};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::{
    document::{Always, Full, NotFound},
    extract::{InstancePath, Strict},
    instances::not_found,
    journal::EntryView,
    problem::Refusal,
    stream::{self, Chunk, Round, Sink, Stop, Teller, last_event_id},
    view::Instance,
};
use crate::Handle;

/// Bytes of payload that are read of a journal at once; one entry always comes.
const PAGE_BYTES: usize = 64 << 10;

/// Behind the cursor in the id of the last event of an ended instance.
const END: &str = ".end";

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct WatchQuery {
    /// The id of the last event that was read, or `now`; without it the current run is told from its beginning. The header
    /// `Last-Event-ID` goes before it
    #[param(pattern = r"^(now|[1-9][0-9]{0,8}\.[0-9]{1,18}(\.end)?)$")]
    after: Option<String>,
}

/// What goes on in an instance, as server-sent events.
///
/// `entry`: an entry of the journal; its id is the cursor. `instance`: the view of the instance, as it is now. `gap`: entries were
/// removed before they were read. The last event is `end` with the view of the ended instance, `deleted`, `dropped` for a listener
/// that takes nothing, or `interrupted`; after the last two a listener comes again with the cursor, and nothing is skipped or
/// repeated. Who comes again with `Last-Event-ID` after the end is answered 204.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/watch",
    operation_id = "watch_instance",
    tag = "streams",
    params(InstancePath, WatchQuery, ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that was read")),
    responses(
        (status = 200, description = "Events", body = String, content_type = "text/event-stream"),
        (status = 204, description = "It has ended, and everything was read"),
        Always, NotFound, Full
    )
)]
pub(super) async fn watch(
    State(handle): State<Handle>,
    InstancePath(name): InstancePath,
    Strict(query): Strict<WatchQuery>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let again = last_event_id(&headers)?;
    let view = handle.store().instance(&name).await?.ok_or_else(|| not_found(&name))?;
    let cursor = match (again, query.after.as_deref()) {
        (Some(id), _) => read(id.strip_suffix(END).unwrap_or(id), &view)?,
        (None, None) => Cursor { run: view.run, position: Position(0) },
        (None, Some("now")) => Cursor { run: view.run, position: view.position },
        (None, Some(after)) => read(after.strip_suffix(END).unwrap_or(after), &view)?,
    };
    let knows_end = again.is_some_and(|id| id.ends_with(END));
    if knows_end && view.ended_at.is_some() && cursor == Cursor::of(&view) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let watch =
        Watch { handle: handle.clone(), name, uid: view.uid, cursor, shown: String::new(), is_placed: false };
    stream::serve(&handle, watch)
}

/// How far a listener has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    run: Run,
    position: Position,
}

impl Cursor {
    fn of(view: &InstanceView) -> Self {
        Self { run: view.run, position: view.position }
    }

    fn id(self) -> String {
        format!("{}.{}", self.run.0, self.position.0)
    }
}

fn read(text: &str, view: &InstanceView) -> Result<Cursor, Refusal> {
    let parts = text.split_once('.');
    let cursor = parts.and_then(|(run, position)| {
        Some(Cursor { run: Run(run.parse().ok()?), position: Position(position.parse().ok()?) })
    });
    match cursor {
        Some(cursor) if cursor.run.0 > 0 && cursor <= Cursor::of(view) => Ok(cursor),
        Some(_) => Err(Refusal::Query(format!(
            "after {text:?} is refused, the instance has only come to {}",
            Cursor::of(view).id()
        ))),
        None => Err(Refusal::Query(format!(
            "after {text:?} is refused, it must be the id of an event of this stream, such as 1.17, or now"
        ))),
    }
}

#[derive(Debug)]
struct Watch {
    handle: Handle,
    name: NameKey,
    uid: InstanceUid,
    cursor: Cursor,
    /// The view as it was told last.
    shown: String,
    /// The listener knows where it is: one that came for what happens from now on, and is cut off before anything has, goes on here.
    is_placed: bool,
}

/// What cannot be told any more.
#[derive(Debug, Serialize)]
struct Gap {
    run: u32,
    after: u64,
}

#[derive(Debug, Serialize)]
struct Deleted {
    reason: &'static str,
}

impl Teller for Watch {
    async fn round(&mut self, sink: &mut Sink) -> Result<Round, Stop> {
        if !self.is_placed {
            self.is_placed = true;
            let mut chunk = Chunk::default();
            chunk.mark(&self.cursor.id());
            sink.send(chunk).await?;
        }
        // Before the entries: whatever it says then, its entries are there to be read.
        let view = self.handle.store().instance(&self.name).await?;
        let Some(view) = view.filter(|view| view.uid == self.uid) else {
            return Ok(Round::Over(Chunk::last("deleted", None, &Deleted { reason: "it was deleted" })));
        };
        let end = Cursor::of(&view);
        let mut is_news = false;
        while self.cursor.run < end.run {
            is_news = true;
            self.rest(sink).await?;
        }
        while self.cursor < end {
            is_news = true;
            if !self.page(sink).await? {
                self.gap(sink, end).await?;
            }
        }
        // The journal may have gone on since the view was read: then the next look has a view of its own.
        if self.cursor != end {
            return Ok(Round::News);
        }
        let is_over = view.ended_at.is_some();
        let text = serde_json::to_string(&Instance::from(view)).unwrap_or_default();
        if is_over {
            let mut last = Chunk::default();
            last.text("end", Some(&format!("{}{END}", end.id())), &text);
            return Ok(Round::Over(last));
        }
        if text == self.shown {
            return Ok(if is_news { Round::News } else { Round::Quiet });
        }
        let mut chunk = Chunk::default();
        chunk.text("instance", None, &text);
        sink.send(chunk).await?;
        self.shown = text;
        Ok(Round::News)
    }
}

impl Watch {
    /// The next entries of the run under way. False if there are none, or some are missing before them.
    async fn page(&mut self, sink: &mut Sink) -> Result<bool, Stop> {
        let entries = self.entries(self.cursor.position).await?;
        if entries.first().is_none_or(|first| first.position != self.cursor.position.next()) {
            return Ok(false);
        }
        let mut chunk = Chunk::default();
        for entry in entries {
            self.cursor.position = entry.position;
            chunk.event("entry", Some(&self.cursor.id()), &EntryView::from(entry));
        }
        sink.send(chunk).await?;
        Ok(true)
    }

    /// The rest of a run that is over, and on to the next.
    async fn rest(&mut self, sink: &mut Sink) -> Result<(), Stop> {
        while self.page(sink).await? {}
        let Cursor { run, position } = self.cursor;
        let next = Cursor { run: Run(run.0 + 1), position: Position(0) };
        // What was read last is still there: then nothing after it was removed.
        let before = Position(position.0.saturating_sub(1));
        let is_there =
            position.0 > 0 && self.entries(before).await?.first().is_some_and(|e| e.position == position);
        if is_there {
            self.cursor = next;
            return Ok(());
        }
        self.gap(sink, next).await
    }

    async fn gap(&mut self, sink: &mut Sink, next: Cursor) -> Result<(), Stop> {
        let Cursor { run, position } = self.cursor;
        let mut chunk = Chunk::default();
        chunk.event("gap", Some(&next.id()), &Gap { run: run.0, after: position.0 });
        self.cursor = next;
        sink.send(chunk).await
    }

    async fn entries(&self, after: Position) -> Result<Vec<everstep_protocol::journal::Entry>, Stop> {
        let range = Range { uid: self.uid, run: self.cursor.run, after };
        Ok(self.handle.store().journal(vec![range], PAGE_BYTES).await?.pop().unwrap_or_default())
    }
}
