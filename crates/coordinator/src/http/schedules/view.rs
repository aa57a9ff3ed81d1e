//! How schedules are shown.

use everstep_engine::schedule::{Action, Definition, Due, Overlap, When};
use everstep_protocol::{Pin, Timestamp};
use everstep_store::{ChangeRow, ScheduleRow};
use serde::Serialize;
use serde_json::{json, value::RawValue};
use utoipa::ToSchema;

use super::super::{
    document::shapes,
    view::{raw, time},
};
use crate::Handle;

/// A schedule. What was asked for stands there by the names that it is asked for by.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Schedule)]
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
    paused: Option<PausedView>,
    /// What is to come.
    next: Vec<NextView>,
    /// What happened so far: how often, by outcome.
    counts: serde_json::Value,
    /// Instances of whose end it does not know.
    open: Vec<OpenView>,
    /// Due times that wait for the end of those.
    waiting: Vec<String>,
    /// Spans that are being made up for.
    backfills: Vec<BackfillView>,
    /// Why the last start was refused, if nothing was started since.
    #[serde(skip_serializing_if = "Option::is_none")]
    failing: Option<ActionView>,
    /// What happened last, newest first.
    recent: Vec<ActionView>,
}

/// Since when a schedule is paused, and why.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SchedulePaused)]
struct PausedView {
    since: String,
    note: Option<String>,
}

/// A due time that is to come, and when its instance starts: later by the jitter.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScheduleNext)]
struct NextView {
    due: String,
    starts_at: String,
}

/// An instance that a schedule has started.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScheduleRun)]
struct OpenView {
    workflow: String,
    id: String,
    since: String,
}

/// A span that is being made up for.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScheduleBackfill)]
struct BackfillView {
    id: String,
    done_until: String,
    until: String,
    side_by_side: bool,
}

/// Something that happened to a due time, or to several in a row.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScheduleAction)]
struct ActionView {
    due: Option<String>,
    at: String,
    outcome: &'static str,
    instance: Option<String>,
    times: u64,
    code: Option<String>,
    message: Option<String>,
}

/// A page of schedules.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Schedules)]
pub(super) struct Page {
    pub(super) schedules: Vec<View>,
    pub(super) next: Option<String>,
}

/// Who has changed a schedule, newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScheduleChanges)]
pub(super) struct Changes {
    pub(super) changes: Vec<ChangeView>,
}

/// A change of a schedule.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScheduleChange)]
pub(super) struct ChangeView {
    at: String,
    operation: String,
    by: Option<String>,
    detail: Option<String>,
}

/// The instance that a trigger started.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScheduleTriggered)]
pub(super) struct TriggeredView {
    pub(super) workflow: String,
    pub(super) id: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct DefinitionView {
    workflow: String,
    #[schema(value_type = Value)]
    input: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<shapes::Pin>)]
    pin: Option<Pin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    #[schema(value_type = shapes::Attributes)]
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
            paused: state
                .paused
                .as_ref()
                .map(|paused| PausedView { since: time(paused.since), note: paused.note.clone() }),
            next: next.iter().map(|(due, at)| NextView { due: time(*due), starts_at: time(*at) }).collect(),
            counts: json!(state.counts),
            open: state
                .open
                .iter()
                .map(|run| OpenView {
                    workflow: run.workflow.to_string(),
                    id: run.id.to_string(),
                    since: time(run.since),
                })
                .collect(),
            waiting: state.pending.iter().chain(&state.queue).map(|due: &Due| time(due.at)).collect(),
            backfills: state
                .backfills
                .iter()
                .map(|backfill| BackfillView {
                    id: backfill.operation.clone(),
                    done_until: time(backfill.settled),
                    until: time(backfill.until),
                    side_by_side: backfill.beside,
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

fn action(action: &Action) -> ActionView {
    ActionView {
        due: action.due.map(time),
        at: time(action.at),
        outcome: action.kind.word(),
        instance: action.instance.as_ref().map(ToString::to_string),
        times: action.times.unwrap_or(1),
        code: action.code.clone(),
        message: action.message.clone(),
    }
}

pub(super) fn change(row: &ChangeRow) -> ChangeView {
    ChangeView {
        at: time(row.at),
        operation: row.operation.clone(),
        by: row.by.clone(),
        detail: row.detail.clone(),
    }
}
