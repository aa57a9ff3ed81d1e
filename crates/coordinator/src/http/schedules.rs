//! Schedules (rules S1, S11 to S15). `?by=` names who asks, for the record.

mod body;
mod view;

use axum::{
    Json,
    extract::{FromRequestParts, State},
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use everstep_engine::schedule::Outcome;
use everstep_protocol::{Namespace, ScheduleId};
use everstep_store::ScheduleRow;
use serde::Deserialize;
use utoipa::IntoParams;

use self::{
    body::{BackfillBody, NoteBody, ScheduleBody, StopBody},
    view::{Changes, Page, TriggeredView, View, change},
};
use super::{
    document::{Always, BodyProblems, Conflict, NotFound},
    extract::{self, Acting, JsonBody, NamespacePath, Operation, Strict, limit},
    problem::Refusal,
};
use crate::{BackfillRequest, Handle, OfSchedule, ScheduleError, Triggered};

const PAGE_DEFAULT: u32 = 50;
const PAGE_MAX: u32 = 200;
/// The longest name of who asks, in characters.
const BY_CHARS_MAX: usize = 100;
/// The longest note, in characters.
const NOTE_CHARS_MAX: usize = 1_000;

/// `/v1/{namespace}/schedules/{id}/...`
#[derive(Debug)]
pub(super) struct SchedulePath {
    namespace: Namespace,
    id: ScheduleId,
}

impl<S: Sync> FromRequestParts<S> for SchedulePath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let (namespace, id): (String, String) = extract::path(parts).await?;
        Ok(Self { namespace: Namespace::new(namespace)?, id: ScheduleId::new(id)? })
    }
}

/// What is done to one schedule, and who asks.
#[derive(Debug)]
pub(super) struct Whose {
    path: SchedulePath,
    by: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ByQuery {
    by: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for Whose {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let path = SchedulePath::from_request_parts(parts, state).await?;
        let Strict(ByQuery { by }) = Strict::from_request_parts(parts, state).await?;
        if by.as_ref().is_some_and(|by| {
            by.is_empty() || by.chars().count() > BY_CHARS_MAX || by.chars().any(char::is_control)
        }) {
            return Err(Refusal::Query(format!(
                "by is refused, it must be 1 to {BY_CHARS_MAX} characters without control characters"
            )));
        }
        Ok(Self { path, by })
    }
}

impl Whose {
    fn of(&self) -> OfSchedule<'_> {
        OfSchedule { namespace: &self.path.namespace, id: &self.path.id, by: self.by.as_deref() }
    }

    fn not_found(&self) -> Refusal {
        not_found(&self.path)
    }
}

fn not_found(path: &SchedulePath) -> Refusal {
    Refusal::NotFound(format!("there is no schedule {} in {}", path.id, path.namespace))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// How many at most; default 50
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
    /// The id after which to go on: the `next` of an earlier page
    #[param(pattern = r"^(?!\.{1,2}$)[A-Za-z0-9_.-]{1,60}$")]
    after: Option<String>,
}

/// How many of what is to come are shown.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct GetQuery {
    /// How many of what is to come are shown; default 5
    #[param(minimum = 1, maximum = 100)]
    next: Option<u32>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangesQuery {
    /// How many at most; default 50
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

const NEXT_DEFAULT: u32 = 5;
const NEXT_MAX: u32 = 100;

/// Creates or replaces a schedule.
///
/// 201 if it was created, 200 if it was changed or is the same.
#[utoipa::path(
    put,
    path = "/v1/{namespace}/schedules/{id}",
    operation_id = "put_schedule",
    tag = "schedules",
    params(Whose),
    request_body(content = ScheduleBody, description = "What is asked for"),
    responses((status = 201, description = "Created", body = View), (status = 200, description = "Changed, or the same as before", body = View), Always, BodyProblems, Conflict)
)]
pub(super) async fn put(Acting(handle): Acting, whose: Whose, body: JsonBody) -> Result<Response, Refusal> {
    let body: ScheduleBody<'_> = body.read()?;
    let definition = body.definition(handle.limits().input_bytes)?;
    let (row, is_new) = handle.put_schedule(whose.of(), &definition).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, shown(&handle, row).await?).into_response())
}

/// Schedules in the order of their ids.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/schedules",
    operation_id = "list_schedules",
    tag = "schedules",
    params(NamespacePath, ListQuery),
    responses((status = 200, description = "A page", body = Page), Always)
)]
pub(super) async fn list(
    State(handle): State<Handle>,
    NamespacePath(namespace): NamespacePath,
    Strict(query): Strict<ListQuery>,
) -> Result<Response, Refusal> {
    let limit = limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let after = query.after.map(ScheduleId::new).transpose()?;
    let found = handle.store().schedules(&namespace, after.as_ref(), limit).await?;
    let next = found.next.map(|id| id.to_string());
    let views: Vec<View> = found.what.iter().map(|row| View::of(&handle, row, found.now, 1)).collect();
    Ok(Json(Page { schedules: views, next }).into_response())
}

/// A schedule, with what is to come and what happened last.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/schedules/{id}",
    operation_id = "get_schedule",
    tag = "schedules",
    params(SchedulePath, GetQuery),
    responses((status = 200, description = "The schedule", body = View), Always, NotFound)
)]
pub(super) async fn get(
    State(handle): State<Handle>,
    path: SchedulePath,
    Strict(query): Strict<GetQuery>,
) -> Result<Response, Refusal> {
    let next = extract::limit(query.next, NEXT_DEFAULT, NEXT_MAX)?;
    let found = handle.store().schedule(&path.namespace, &path.id).await?;
    let row = found.what.ok_or_else(|| not_found(&path))?;
    Ok(Json(View::of(&handle, &row, found.now, next as usize)).into_response())
}

/// Deletes a schedule; what it has started stays.
///
/// What was about to be started at that moment is started still.
#[utoipa::path(
    delete,
    path = "/v1/{namespace}/schedules/{id}",
    operation_id = "delete_schedule",
    tag = "schedules",
    params(Whose),
    responses((status = 204, description = "It is deleted"), Always, NotFound, Conflict)
)]
pub(super) async fn delete(Acting(handle): Acting, whose: Whose) -> Result<Response, Refusal> {
    if handle.delete_schedule(whose.of()).await? {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(whose.not_found())
    }
}

/// Pauses a schedule: nothing is started until it is resumed.
///
/// What was about to be started at that moment is started still; `waiting` has it until then.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/schedules/{id}/pause",
    operation_id = "pause_schedule",
    tag = "schedules",
    params(Whose),
    request_body(content = NoteBody, description = "What is asked for"),
    responses((status = 200, description = "The schedule afterwards", body = View), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn pause(Acting(handle): Acting, whose: Whose, body: JsonBody) -> Result<Response, Refusal> {
    let note = body.read::<NoteBody>()?.checked()?;
    let row = handle.pause_schedule(whose.of(), note.as_deref()).await?;
    Ok(shown(&handle, row.ok_or_else(|| whose.not_found())?).await?.into_response())
}

/// Resumes a paused schedule.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/schedules/{id}/resume",
    operation_id = "resume_schedule",
    tag = "schedules",
    params(Whose),
    request_body(content = NoteBody, description = "What is asked for"),
    responses((status = 200, description = "The schedule afterwards", body = View), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn resume(
    Acting(handle): Acting,
    whose: Whose,
    body: JsonBody,
) -> Result<Response, Refusal> {
    let note = body.read::<NoteBody>()?.checked()?;
    let row = handle.resume_schedule(whose.of(), note.as_deref()).await?;
    Ok(shown(&handle, row.ok_or_else(|| whose.not_found())?).await?.into_response())
}

/// Starts an instance now.
///
/// The same `Idempotency-Key` again is the same instance.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/schedules/{id}/trigger",
    operation_id = "trigger_schedule",
    tag = "schedules",
    params(Whose, Operation),
    responses((status = 201, description = "Started", body = TriggeredView), (status = 200, description = "It was started before", body = TriggeredView), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn trigger(
    Acting(handle): Acting,
    whose: Whose,
    operation: Operation,
) -> Result<Response, Refusal> {
    let triggered =
        handle.trigger_schedule(whose.of(), &operation.id).await.map_err(|error| match error {
            ScheduleError::Engine(crate::Error::Unknown { .. }) => {
                Refusal::Unknown { id: None, repeatable: operation.given }
            }
            ScheduleError::NotNoted { id } => {
                Refusal::ScheduleNotNoted { id: id.to_string(), repeatable: operation.given }
            }
            error => error.into(),
        })?;
    let Triggered { id, outcome, row } = triggered.ok_or_else(|| whose.not_found())?;
    if let Outcome::Refused { code, message } = outcome {
        return Err(Refusal::Rejected { code: Some(code), detail: message });
    }
    let is_new = outcome == Outcome::Started;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let view = TriggeredView { workflow: row.definition.workflow.to_string(), id: id.to_string() };
    Ok((status, Json(view)).into_response())
}

/// Makes up for the due times of a span, 10,000 at most.
///
/// The same `Idempotency-Key` again is the same span, also of one that is done or was stopped.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/schedules/{id}/backfill",
    operation_id = "backfill_schedule",
    tag = "schedules",
    params(Whose, Operation),
    request_body(content = BackfillBody, description = "What is asked for"),
    responses((status = 200, description = "The schedule afterwards", body = View), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn backfill(
    Acting(handle): Acting,
    whose: Whose,
    operation: Operation,
    body: JsonBody,
) -> Result<Response, Refusal> {
    let (from, until, beside) = body.read::<BackfillBody>()?.checked()?;
    let request = BackfillRequest { operation: operation.id, from, until, beside };
    let row = handle.backfill_schedule(whose.of(), &request).await?;
    Ok(shown(&handle, row.ok_or_else(|| whose.not_found())?).await?.into_response())
}

/// Stops a backfill; what it has started stays.
///
/// The one with this `id`, or all of them. One that is done already is no fault.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/schedules/{id}/backfill/stop",
    operation_id = "stop_backfill",
    tag = "schedules",
    params(Whose),
    request_body(content = StopBody, description = "What is asked for"),
    responses((status = 200, description = "The schedule afterwards", body = View), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn stop_backfill(
    Acting(handle): Acting,
    whose: Whose,
    body: JsonBody,
) -> Result<Response, Refusal> {
    let id = body.read::<StopBody>()?.checked()?;
    let row = handle.stop_backfill(whose.of(), id.as_deref()).await?;
    Ok(shown(&handle, row.ok_or_else(|| whose.not_found())?).await?.into_response())
}

/// Who has changed a schedule, newest first, also one that is deleted.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/schedules/{id}/changes",
    operation_id = "list_schedule_changes",
    tag = "schedules",
    params(SchedulePath, ChangesQuery),
    responses((status = 200, description = "Its changes", body = Changes), Always)
)]
pub(super) async fn changes(
    State(handle): State<Handle>,
    path: SchedulePath,
    Strict(query): Strict<ChangesQuery>,
) -> Result<Response, Refusal> {
    let limit = limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let rows = handle.store().schedule_changes(&path.namespace, &path.id, limit).await?;
    Ok(Json(Changes { changes: rows.iter().map(change).collect() }).into_response())
}

/// As it is after what was done. By when, the store is asked once more: what is to come depends on it.
async fn shown(handle: &Handle, row: ScheduleRow) -> Result<Json<View>, Refusal> {
    let now = handle.store().schedule(&row.namespace, &row.id).await?.now;
    Ok(Json(View::of(handle, &row, now, NEXT_DEFAULT as usize)))
}

impl From<ScheduleError> for Refusal {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Engine(error) => error.into(),
            ScheduleError::Busy => Self::ScheduleBusy,
            ScheduleError::NotNoted { id } => Self::ScheduleNotNoted { id: id.to_string(), repeatable: true },
            other => Self::Schedule(other.to_string()),
        }
    }
}
