//! Open instances with their journals, as a stream of lines: for the check before a deploy (rule P40), which replays them.
//!
//! | line | |
//! | --- | --- |
//! | `{"instance": {...}, "cursor": "..."}` | an instance begins; the cursor is where to go on after it |
//! | `{"journal": [...]}` | the next entries of it |
//! | `{"done": {"next": "..."}}` | the last line; `next` is the cursor of the next answer, if there is one |
//! | `{"failed": "..."}` | the last line of an answer that broke off |
//!
//! Instances go on meanwhile. What is given of a journal is always its beginning, and that can be replayed. Nothing is held
//! but one page and one part of a journal.

use std::collections::VecDeque;

use axum::{
    body::Body,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use everstep_protocol::{Position, WorkflowName};
use everstep_store::{Cursor, Filter, InstanceView, Range};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::{
    document::Always,
    extract::{NamespacePath, Strict, limit},
    journal::{EntryView, PAGE_BYTES_MAX},
    list::read_cursor,
    problem::Refusal,
    view::Instance,
};
use crate::{Error, Handle};

/// Instances of one answer.
const INSTANCES_DEFAULT: u32 = 1000;
const INSTANCES_MAX: u32 = 10_000;
/// Instances that are looked up at once.
const PAGE: u32 = 100;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportQuery {
    /// Only of this workflow
    #[param(pattern = "^[a-z0-9_-]{1,50}$")]
    workflow: Option<String>,
    /// Where an earlier answer ended
    #[param(format = "uuid")]
    cursor: Option<String>,
    /// How many instances at most; default 1,000
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<u32>,
    /// With the seeds, from which the draws of instances can be foretold
    #[serde(default)]
    seeds: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Line {
    Instance { instance: Box<Instance>, cursor: String },
    Journal { journal: Vec<EntryView> },
    Done { done: Done },
    Failed { failed: String },
}

#[derive(Serialize)]
struct Done {
    next: Option<String>,
}

/// Open instances with their journals, as a stream of lines of JSON (rule P40).
#[utoipa::path(
    get,
    path = "/v1/{namespace}/journals",
    operation_id = "export_journals",
    tag = "instances",
    params(NamespacePath, ExportQuery),
    responses((status = 200, description = "Lines of JSON; the last one is `done` or `failed`", body = String, content_type = "application/x-ndjson"), Always)
)]
pub(super) async fn journals(
    State(handle): State<Handle>,
    NamespacePath(namespace): NamespacePath,
    Strict(query): Strict<ExportQuery>,
) -> Result<Response, Refusal> {
    let left = limit(query.limit, INSTANCES_DEFAULT, INSTANCES_MAX)?;
    let workflow = query.workflow.map(WorkflowName::new).transpose()?;
    let after = query.cursor.as_deref().map(read_cursor).transpose()?;
    let filter = Filter { namespace, workflow, open: true, ..Filter::default() };
    let seeds = query.seeds;
    let mut export = Export {
        handle,
        filter,
        seeds,
        left,
        last: None,
        rows: VecDeque::new(),
        pages: Pages::From(after),
        reading: None,
        is_over: false,
    };
    // A store that does not answer is a refusal, not an answer that breaks off.
    export.page().await?;
    let lines = futures::stream::unfold(export, |mut export| async {
        let line = export.next().await?;
        let text = serde_json::to_vec(&line).map(|mut text| {
            text.push(b'\n');
            Bytes::from(text)
        });
        Some((text, export))
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

struct Export {
    handle: Handle,
    filter: Filter,
    seeds: bool,
    /// So many instances may still be given.
    left: u32,
    /// The cursor of the one that was given last.
    last: Option<String>,
    rows: VecDeque<InstanceView>,
    pages: Pages,
    reading: Option<Reading>,
    is_over: bool,
}

/// Where the next page begins.
enum Pages {
    From(Option<Cursor>),
    Over,
}

/// A journal of which more is to be given.
struct Reading {
    range: Range,
    until: Position,
}

impl Export {
    async fn next(&mut self) -> Option<Line> {
        if self.is_over {
            return None;
        }
        let line = self.line().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "an export of journals breaks off");
            Line::Failed { failed: format!("the journals could not be read to the end: {error}") }
        });
        self.is_over = matches!(line, Line::Done { .. } | Line::Failed { .. });
        Some(line)
    }

    async fn line(&mut self) -> Result<Line, Error> {
        loop {
            if let Some(line) = self.read().await? {
                return Ok(line);
            }
            if let Some(view) = self.rows.pop_front() {
                if self.left == 0 {
                    return Ok(Line::Done { done: Done { next: self.last.take() } });
                }
                return Ok(self.begin(view));
            }
            if matches!(self.pages, Pages::Over) {
                return Ok(Line::Done { done: Done { next: None } });
            }
            self.page().await?;
        }
    }

    fn begin(&mut self, view: InstanceView) -> Line {
        self.left -= 1;
        self.last = Some(view.uid.to_string());
        let range = Range { uid: view.uid, run: view.run, after: Position(0) };
        self.reading = Some(Reading { range, until: view.position });
        Line::Instance { cursor: view.uid.to_string(), instance: Box::new(Instance::from(view)) }
    }

    async fn page(&mut self) -> Result<(), Error> {
        let Pages::From(after) = &self.pages else { return Ok(()) };
        let page = self.handle.store().instances(&self.filter, after.as_ref(), PAGE).await?;
        self.rows.extend(page.rows);
        self.pages = page.next.map_or(Pages::Over, |next| Pages::From(Some(next)));
        Ok(())
    }

    /// The next entries of the journal under way, as far as it went when its instance was looked up.
    async fn read(&mut self) -> Result<Option<Line>, Error> {
        let Some(Reading { mut range, until }) = self.reading.take() else { return Ok(None) };
        let entries =
            self.handle.store().journal(vec![range], PAGE_BYTES_MAX).await?.pop().unwrap_or_default();
        // One that was deleted meanwhile has none.
        let Some(last) = entries.last().map(|entry| entry.position) else { return Ok(None) };
        // Nor has a run any more that is being removed: what is left of it is no beginning.
        if entries.first().is_some_and(|first| first.position != range.after.next()) {
            return Ok(None);
        }
        if last < until {
            range.after = last;
            self.reading = Some(Reading { range, until });
        }
        let seeds = self.seeds;
        let journal = entries.into_iter().map(|entry| EntryView::exported(entry, seeds)).collect();
        Ok(Some(Line::Journal { journal }))
    }
}
