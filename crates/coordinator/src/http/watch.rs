//! What goes on in one instance, as server-sent events: each entry of its journal once, in order, and its view when that changes.
//!
//! The cursor is a run, a position of its journal, and a mark of the instance that has it, `2.17.3f9a04c1d2e7`. Entries are written under
//! the lock of the head, with positions that have no gaps: so what a listener has read up to a position stays what it is, whichever
//! coordinator it asks next. Another instance under the same id, or the same one after the installation was restored from a backup, has
//! another mark: then there is a gap. The id of the end says that the end was told too, `2.17.3f9a04c1d2e7.end`: a listener that has only
//! read the last entry is still owed it.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use everstep_engine::start::NameKey;
use everstep_protocol::{Incarnation, InstanceUid, Position, Run};
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
    #[param(pattern = r"^(now|[1-9][0-9]{0,8}\.[0-9]{1,18}(\.[0-9a-f]{12})?(\.end)?)$")]
    after: Option<String>,
}

/// What goes on in an instance, as server-sent events.
///
/// `entry`: an entry of the journal; its id is the cursor. `instance`: the view of the instance, as it is now. `gap`: entries were
/// removed before they were read, or the cursor is of another instance that had this id, or of a time before a restore: what there is
/// now is told from the beginning of its run. The last event is `end` with the view of the ended instance, `deleted`, `dropped` for a listener
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
    let mark = mark(view.uid, handle.incarnation());
    let begin = Cursor { run: view.run, position: Position(0) };
    let (cursor, lost) = match again.or(query.after.as_deref()) {
        None => (begin, None),
        Some("now") if again.is_none() => (Cursor::of(&view), None),
        Some(id) => match read(id.strip_suffix(END).unwrap_or(id), &view, &mark)? {
            Read::Here(cursor) => (cursor, None),
            Read::Elsewhere(lost) => (begin, Some(lost)),
        },
    };
    let knows_end = again.is_some_and(|id| id.ends_with(END)) && lost.is_none();
    if knows_end && view.ended_at.is_some() && cursor == Cursor::of(&view) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let (handle_of, uid, shown) = (handle.clone(), view.uid, String::new());
    let watch = Watch { handle: handle_of, name, uid, mark, cursor, lost, shown, is_placed: false };
    stream::serve(&handle, watch)
}

/// The last six bytes.
const DRAWN: u64 = (1 << 48) - 1;

/// What tells the cursors of this instance from those of another one under its id, and of the same one before a restore.
fn mark(uid: InstanceUid, incarnation: Incarnation) -> String {
    // The last six bytes of the id are drawn; its first ones are a time.
    let drawn = uid.0.as_u128() as u64 & DRAWN;
    let mixed = incarnation.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    format!("{:012x}", drawn ^ mixed)
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

    fn id(self, mark: &str) -> String {
        format!("{}.{}.{mark}", self.run.0, self.position.0)
    }
}

/// Where a listener has got to.
#[derive(Debug)]
enum Read {
    /// In this instance.
    Here(Cursor),
    /// In another one, or in this one before a restore.
    Elsewhere(Cursor),
}

/// Reads a cursor. One without a mark is somebody's who has written it by hand.
fn read(text: &str, view: &InstanceView, mark: &str) -> Result<Read, Refusal> {
    let mut parts = text.split('.');
    let (run, position, of, more) = (parts.next(), parts.next(), parts.next(), parts.next());
    let is_mark = |of: &str| of.len() == mark.len() && of.bytes().all(|b| b.is_ascii_hexdigit());
    let cursor = run.zip(position).filter(|_| more.is_none() && of.is_none_or(is_mark));
    let cursor = cursor.and_then(|(run, position)| {
        Some(Cursor { run: Run(run.parse().ok()?), position: Position(position.parse().ok()?) })
    });
    match cursor {
        Some(cursor) if of.is_some_and(|of| of != mark) => Ok(Read::Elsewhere(cursor)),
        Some(cursor) if cursor.run.0 > 0 && cursor <= Cursor::of(view) => Ok(Read::Here(cursor)),
        Some(_) => Err(Refusal::Query(format!(
            "after {text:?} is refused, the instance has only come to {}",
            Cursor::of(view).id(mark)
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
    mark: String,
    cursor: Cursor,
    /// How far the listener had read of something else.
    lost: Option<Cursor>,
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
        if let Some(Cursor { run, position }) = self.lost.take() {
            self.is_placed = true;
            let gap = Gap { run: run.0, after: position.0 };
            sink.send(Chunk::last("gap", Some(&self.cursor.id(&self.mark)), &gap)).await?;
        }
        if !self.is_placed {
            self.is_placed = true;
            let mut chunk = Chunk::default();
            chunk.mark(&self.cursor.id(&self.mark));
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
            last.text("end", Some(&format!("{}{END}", end.id(&self.mark))), &text);
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
            chunk.event("entry", Some(&self.cursor.id(&self.mark)), &EntryView::from(entry));
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
        chunk.event("gap", Some(&next.id(&self.mark)), &Gap { run: run.0, after: position.0 });
        self.cursor = next;
        sink.send(chunk).await
    }

    async fn entries(&self, after: Position) -> Result<Vec<everstep_protocol::journal::Entry>, Stop> {
        let range = Range { uid: self.uid, run: self.cursor.run, after };
        Ok(self.handle.store().journal(vec![range], PAGE_BYTES).await?.pop().unwrap_or_default())
    }
}
