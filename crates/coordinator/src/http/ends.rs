//! Ends of instances by a filter, as server-sent events: each end once, in the order of their commits.
//!
//! The cursor is the store's ([`EndMark`]): an end is told once nothing can be committed any more that would come before it, so that
//! nothing is skipped, however many coordinators write and whichever one is asked next.

use axum::{extract::State, http::HeaderMap, response::Response};
use everstep_engine::Status;
use everstep_protocol::{Attribute, WorkflowName};
use everstep_store::{EndMark, Ends};
use serde::Serialize;
use utoipa::IntoParams;

use super::{
    document::{Always, ByAttributes, Full},
    extract::{NamespacePath, Strict},
    problem::Refusal,
    stream::{self, Chunk, Round, Sink, Stop, Teller, last_event_id},
    view::Instance,
};
use crate::Handle;

/// Ends that are read at once; fewer where they are large.
const PAGE: u32 = 50;

/// Which ends are told. Every condition must be fulfilled.
#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EndsQuery {
    /// Only of this workflow
    #[param(pattern = "^[a-z0-9_-]{1,50}$")]
    workflow: Option<String>,
    /// Only with this end: complete, errored, terminated or cancelled
    status: Option<String>,
    /// Only with this attribute, as `name=value`; may be there several times
    #[param(rename = "attribute", value_type = Vec<String>, explode, required = false)]
    attributes: Vec<Attribute>,
    /// The id of the last event that was read, or `beginning` for everything that is still kept; without it only what ends from now
    /// on is told. The header `Last-Event-ID` goes before it
    after: Option<String>,
}

impl EndsQuery {
    fn read(pairs: Vec<(String, String)>) -> Result<Self, Refusal> {
        let mut query = Self::default();
        for (field, text) in pairs {
            let place = match field.as_str() {
                "workflow" => &mut query.workflow,
                "status" => &mut query.status,
                "after" => &mut query.after,
                "attribute" => {
                    query.attributes.push(Attribute::from_words(&text)?);
                    continue;
                }
                _ => {
                    let known = "the fields are workflow, status, attribute, after";
                    return Err(Refusal::Query(format!("unknown field `{field}`, {known}")));
                }
            };
            if place.replace(text).is_some() {
                return Err(Refusal::Query(format!("{field}: it is given twice")));
            }
        }
        everstep_protocol::attribute::check(&query.attributes)?;
        Ok(query)
    }
}

/// Instances that end, as server-sent events.
///
/// `ended`: the view of an instance that has ended; its id is the cursor. `open` comes first and has the cursor at which the stream
/// begins. `gap`: the installation was restored from a backup since, and everything that is kept is told anew. The last event is
/// `dropped` for a listener that takes nothing, or `interrupted`; then a listener comes again with the cursor, and nothing is skipped
/// or repeated. An end that was taken back by a restart before it was read is not told.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/instances:watch",
    operation_id = "watch_ends",
    tag = "streams",
    params(NamespacePath, EndsQuery, ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that was read")),
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream"), Always, ByAttributes, Full)
)]
pub(super) async fn watch(
    State(handle): State<Handle>,
    NamespacePath(namespace): NamespacePath,
    Strict(query): Strict<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let EndsQuery { workflow, status, attributes, after } = EndsQuery::read(query)?;
    let status = status.as_deref().map(read_status).transpose()?;
    let workflow = workflow.map(WorkflowName::new).transpose()?;
    let after = last_event_id(&headers)?.or(after.as_deref());
    let incarnation = handle.incarnation().0;
    let (cursor, is_restored) = match after {
        None => (handle.store().ends_now().await?, false),
        Some("beginning") => (EndMark::default(), false),
        Some(id) => {
            let (of, mark) = read(id)?;
            // A mark that is ahead of this database is of another one, or of a later state of it.
            let is_of_here = of == incarnation && mark.commit <= handle.store().ends_now().await?.commit;
            if is_of_here { (mark, false) } else { (EndMark::default(), true) }
        }
    };
    let ends = Ends { namespace, workflow, status };
    let (handle_of, begins, marked) = (handle.clone(), Some(is_restored), cursor);
    let told = Told { handle: handle_of, ends, attributes, cursor, marked, incarnation, begins };
    stream::serve(&handle, told)
}

fn read_status(word: &str) -> Result<Status, Refusal> {
    let ended = Status::ALL.into_iter().filter(|status| status.is_ended());
    ended.clone().find(|status| status.word() == word).ok_or_else(|| {
        let words: Vec<_> = ended.map(Status::word).collect();
        Refusal::Query(format!("status {word:?} is refused, it must be one of {}", words.join(", ")))
    })
}

fn id(incarnation: u64, mark: &EndMark) -> String {
    format!("{incarnation}.{}.{}", mark.commit, mark.uid)
}

fn read(text: &str) -> Result<(u64, EndMark), Refusal> {
    let refused = || {
        Refusal::Query(format!(
            "after {text:?} is refused, it must be the id of an event of this stream, or beginning"
        ))
    };
    let mut parts = text.split('.');
    let (Some(incarnation), Some(commit), Some(uid), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(refused());
    };
    let mark = EndMark {
        commit: commit.parse().map_err(|_| refused())?,
        uid: everstep_protocol::InstanceUid(uid.parse().map_err(|_| refused())?),
    };
    // What the store counts with has a sign.
    if i64::try_from(mark.commit).is_err() {
        return Err(refused());
    }
    Ok((incarnation.parse().map_err(|_| refused())?, mark))
}

#[derive(Debug)]
struct Told {
    handle: Handle,
    ends: Ends,
    attributes: Vec<Attribute>,
    cursor: EndMark,
    /// The cursor that was told last.
    marked: EndMark,
    incarnation: u64,
    /// Before the first event: whether the listener's cursor is of an earlier incarnation.
    begins: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Begun {
    cursor: String,
}

impl Teller for Told {
    async fn round(&mut self, sink: &mut Sink) -> Result<Round, Stop> {
        // Before the store is asked: whoever is cut off then goes on from here.
        if let Some(is_restored) = self.begins.take() {
            let cursor = id(self.incarnation, &self.cursor);
            let kind = if is_restored { "gap" } else { "open" };
            sink.send(Chunk::last(kind, Some(&cursor), &Begun { cursor: cursor.clone() })).await?;
        }
        let mut chunk = Chunk::default();
        let found = self.handle.store().ends(&self.ends, &self.cursor, PAGE).await?;
        let is_news = !found.rows.is_empty();
        let mut last = self.marked;
        for (mark, view) in found.rows {
            last = mark;
            if self.attributes.iter().all(|wanted| view.attributes.contains(wanted)) {
                self.marked = mark;
                chunk.event("ended", Some(&id(self.incarnation, &mark)), &Instance::from(view));
            }
        }
        if last != self.marked {
            self.marked = last;
            chunk.mark(&id(self.incarnation, &last));
        }
        self.cursor = found.next;
        sink.send(chunk).await?;
        Ok(match (found.more, is_news) {
            (true, _) => Round::More,
            (false, true) => Round::News,
            (false, false) => Round::Quiet,
        })
    }

    /// Nothing that is looked for is between what was told and here: whoever comes again need not look for it there.
    fn place(&mut self) -> Option<String> {
        (self.cursor != self.marked).then(|| {
            self.marked = self.cursor;
            id(self.incarnation, &self.cursor)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back() {
        let mark = EndMark { commit: 71, uid: everstep_protocol::InstanceUid::generate() };
        assert_eq!(read(&id(3, &mark)).unwrap(), (3, mark));
        for text in ["", "1.2", "1.2.3", "x.1.00000000-0000-0000-0000-000000000000"] {
            assert!(matches!(read(text), Err(Refusal::Query(_))), "{text}");
        }
        assert!(read("1.18446744073709551615.00000000-0000-0000-0000-000000000000").is_err());
        assert!(read_status("complete").is_ok() && read_status("open").is_err());
    }
}
