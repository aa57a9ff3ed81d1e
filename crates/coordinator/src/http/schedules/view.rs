//! How schedules are shown.

use everstep_engine::schedule::{Action, Definition, Due, Overlap, When};
use everstep_protocol::{Pin, Timestamp};
use everstep_store::{ChangeRow, ScheduleRow};
use serde::Serialize;
use serde_json::{json, value::RawValue};

use super::super::view::{raw, time};
use crate::Handle;

/// A schedule. What was asked for stands there by the names that it is asked for by.
#[derive(Debug, Serialize)]
pub(super) struct View {
    namespace: String,
    id: String,
    /// `active`, `paused`, or `ended` if nothing is to come.
    state: &'static str,
    #[serde(flatten)]
    definition: DefinitionView,
    created_at: String,
    changed_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<serde_json::Value>,
    /// What is to come.
    next: Vec<serde_json::Value>,
    /// What happened so far.
    counts: serde_json::Value,
    /// Instances of whose end it does not know.
    open: Vec<serde_json::Value>,
    /// Due times that wait for the end of those.
    waiting: Vec<String>,
    /// Spans that are being made up for.
    backfills: Vec<serde_json::Value>,
    /// Why the last start was refused, if nothing was started since.
    #[serde(skip_serializing_if = "Option::is_none")]
    failing: Option<serde_json::Value>,
    /// What happened last, newest first.
    recent: Vec<serde_json::Value>,
}

#[derive(Debug, Serialize)]
struct DefinitionView {
    workflow: String,
    input: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<Pin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    attributes: serde_json::Map<String, serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter: Option<String>,
    overlap: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_max: Option<u32>,
    catch_up: &'static str,
    catch_up_within: String,
}

impl View {
    pub(super) fn of(handle: &Handle, row: &ScheduleRow, now: Timestamp, next: usize) -> Self {
        let state = &row.state;
        let next = handle.next_runs(row, now, next);
        let word = match (&state.paused, row.wake_at) {
            (Some(_), _) => "paused",
            (None, Some(_)) => "active",
            (None, None) => "ended",
        };
        Self {
            namespace: row.namespace.to_string(),
            id: row.id.to_string(),
            state: word,
            definition: DefinitionView::of(&row.definition),
            created_at: time(row.created_at),
            changed_at: time(row.changed_at),
            paused: state.paused.as_ref().map(|paused| json!({"since": time(paused.since), "note": paused.note})),
            next: next.iter().map(|(due, at)| json!({"due": time(*due), "starts_at": time(*at)})).collect(),
            counts: json!(state.counts),
            open: state
                .open
                .iter()
                .map(|run| json!({"workflow": run.workflow, "id": run.id, "since": time(run.since)}))
                .collect(),
            waiting: state.pending.iter().chain(&state.queue).map(|due: &Due| time(due.at)).collect(),
            backfills: state
                .backfills
                .iter()
                .map(|backfill| {
                    let (until, after) = (time(backfill.until), time(backfill.settled));
                    json!({"id": backfill.operation, "done_until": after, "until": until, "side_by_side": backfill.beside})
                })
                .collect(),
            failing: state.failing().map(action),
            recent: state.recent.iter().rev().map(action).collect(),
        }
    }
}

impl DefinitionView {
    fn of(definition: &Definition) -> Self {
        let (mut cron, mut zone, mut every, mut offset, mut at) = (None, None, None, None, None);
        match &definition.when {
            When::Cron { expression, zone: name } => {
                (cron, zone) = (Some(expression.clone()), Some(name.clone()));
            }
            When::Every { every: span, offset: later } => {
                (every, offset) = (Some(span.to_string()), (later.as_u64() > 0).then(|| later.to_string()));
            }
            When::At { at: moment } => at = Some(time(*moment)),
        }
        let own = definition.retention;
        let retention = (own.complete.is_some() || own.failed.is_some()).then(|| {
            let shown = |span: Option<everstep_protocol::Millis>| span.map(|span| span.to_string());
            json!({"complete": shown(own.complete), "failed": shown(own.failed)})
        });
        let queue_max = if let Overlap::Queue { max } = definition.overlap { Some(max) } else { None };
        Self {
            workflow: definition.workflow.to_string(),
            input: raw(&definition.input),
            retention,
            pin: definition.pin.clone(),
            strict: definition.strict,
            attributes: everstep_protocol::attribute::object(&definition.attributes),
            cron,
            zone,
            every,
            offset,
            at,
            from: definition.from.map(time),
            until: definition.until.map(time),
            limit: definition.limit,
            jitter: (definition.jitter.as_u64() > 0).then(|| definition.jitter.to_string()),
            overlap: definition.overlap.word(),
            queue_max,
            catch_up: definition.catch_up.which.word(),
            catch_up_within: definition.catch_up.within.to_string(),
        }
    }
}

fn action(action: &Action) -> serde_json::Value {
    json!({
        "due": action.due.map(time),
        "at": time(action.at),
        "outcome": action.kind.word(),
        "instance": action.instance,
        "times": action.times.unwrap_or(1),
        "code": action.code,
        "message": action.message,
    })
}

pub(super) fn change(row: &ChangeRow) -> serde_json::Value {
    json!({"at": time(row.at), "operation": row.operation, "by": row.by, "detail": row.detail})
}
