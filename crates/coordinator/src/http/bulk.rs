//! Operations on many instances (rule P33). Repeating one with the same `Idempotency-Key`, which is its id, begins none more.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use everstep_engine::{
    bulk::{Bulk, Statuses, Which},
    start::NameKey,
};
use everstep_protocol::{InstanceId, Namespace, Timestamp, WorkflowName};
use everstep_store::{BulkRow, StatusWord};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    act::{Options, Wish},
    control::FromCall,
    document::{Always, BodyProblems, Conflict, NotFound, shapes},
    extract::{self, Acting, BulkPath, JsonBody, NamespacePath, NoQuery, Operation, Strict, limit},
    list::ERROR_CHARS_MAX,
    problem::Refusal,
    view::{InstanceName, time},
};
use crate::{BulkBegun, BulkCount, Handle};

const PAGE_DEFAULT: u32 = 50;
const PAGE_MAX: u32 = 200;

#[derive(Default, Deserialize, ToSchema)]
#[schema(as = NewBulkOperation)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the body")]
struct BulkBody {
    operation: Option<String>,
    #[serde(rename = "where", default)]
    which: WhichBody,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    within: Option<String>,
    #[serde(default)]
    terminate: bool,
    #[serde(default)]
    rollback: bool,
    #[serde(default)]
    from: Option<FromCall>,
    #[serde(default)]
    reuse: bool,
    /// Only count.
    #[serde(default)]
    dry_run: bool,
}

/// The conditions; times as in `2026-01-31T12:00:00Z`.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = NewBulkConditions)]
#[serde(default, deny_unknown_fields)]
struct WhichBody {
    workflow: Option<String>,
    status: Option<String>,
    created_from: Option<String>,
    created_before: Option<String>,
    ended_from: Option<String>,
    ended_before: Option<String>,
    error: Option<String>,
    #[schema(value_type = shapes::Attributes)]
    attributes: BTreeMap<String, serde_json::Value>,
}

/// A bulk operation.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BulkOperation)]
struct View {
    namespace: String,
    id: String,
    operation: &'static str,
    #[serde(flatten)]
    options: Options,
    #[serde(rename = "where")]
    which: WhichView,
    state: &'static str,
    /// Instances looked at so far.
    looked_at: u64,
    /// Those that fulfil the conditions.
    matched: u64,
    /// Those to which it was done, or with which there was nothing to do.
    done: u64,
    /// Those whose status forbade it.
    refused: u64,
    created_at: String,
    ended_at: Option<String>,
    /// Who began it.
    by: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BulkConditions)]
struct WhichView {
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    #[schema(value_type = shapes::Attributes)]
    attributes: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// How many at most; default 50
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// What an operation would be about.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BulkCounted)]
struct Counted {
    dry_run: bool,
    /// Instances that fulfil the conditions.
    matched: u64,
    /// There was time to look at all.
    complete: bool,
    /// The newest of them.
    newest: Vec<InstanceName>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BulkOperations)]
struct Operations {
    operations: Vec<View>,
}

/// Begins an operation on all instances that fulfil conditions.
///
/// It goes on in the background; `Idempotency-Key` is its id. With `dry_run` nothing is done, and the instances are counted.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/bulk",
    operation_id = "begin_bulk_operation",
    tag = "bulk",
    params(NamespacePath, Operation),
    request_body(content = BulkBody, description = "What is asked for"),
    responses((status = 201, description = "It goes on, or is over", body = View), (status = 200, description = "Only counted", body = Counted), Always, BodyProblems, Conflict)
)]
pub(super) async fn begin(
    Acting(handle): Acting,
    NamespacePath(namespace): NamespacePath,
    Strict(NoQuery {}): Strict<NoQuery>,
    operation: Operation,
    body: JsonBody,
) -> Result<Response, Refusal> {
    let body: BulkBody = body.read()?;
    let dry_run = body.dry_run;
    let bulk = bulk(body)?;
    if dry_run {
        let BulkCount { matched, complete, newest } = handle.count_bulk(&namespace, &bulk).await?;
        let named =
            |name: &NameKey| InstanceName { workflow: name.workflow.to_string(), id: name.id.to_string() };
        let newest = newest.iter().map(named).collect();
        return Ok(Json(Counted { dry_run: true, matched, complete, newest }).into_response());
    }
    let id = InstanceId::new(operation.id)?;
    match handle.begin_bulk(&namespace, &id, &bulk).await? {
        BulkBegun::Begun(row) => Ok((StatusCode::CREATED, Json(View::from(row))).into_response()),
        BulkBegun::Taken(_) => Err(Refusal::Conflict {
            id: id.to_string(),
            detail: format!("another bulk operation has the id {id}; nothing was begun"),
        }),
    }
}

/// Operations on many instances, newest first.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/bulk",
    operation_id = "list_bulk_operations",
    tag = "bulk",
    params(NamespacePath, ListQuery),
    responses((status = 200, description = "The newest", body = Operations), Always)
)]
pub(super) async fn list(
    State(handle): State<Handle>,
    NamespacePath(namespace): NamespacePath,
    Strict(query): Strict<ListQuery>,
) -> Result<Response, Refusal> {
    let limit = limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let rows = handle.store().bulks(&namespace, limit).await?;
    Ok(Json(Operations { operations: rows.into_iter().map(View::from).collect() }).into_response())
}

/// One operation on many instances, and how far it has come.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/bulk/{id}",
    operation_id = "get_bulk_operation",
    tag = "bulk",
    params(BulkPath),
    responses((status = 200, description = "The operation", body = View), Always, NotFound)
)]
pub(super) async fn get(
    State(handle): State<Handle>,
    BulkPath { namespace, id }: BulkPath,
    Strict(NoQuery {}): Strict<NoQuery>,
) -> Result<Response, Refusal> {
    let row = handle.store().bulk(&namespace, &id).await?.ok_or_else(|| not_found(&namespace, &id))?;
    Ok(Json(View::from(row)).into_response())
}

/// Stops an operation on many instances, after the page under way.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/bulk/{id}/stop",
    operation_id = "stop_bulk_operation",
    tag = "bulk",
    params(BulkPath),
    responses((status = 200, description = "The operation", body = View), Always, NotFound)
)]
pub(super) async fn stop(
    Acting(handle): Acting,
    BulkPath { namespace, id }: BulkPath,
    Strict(NoQuery {}): Strict<NoQuery>,
) -> Result<Response, Refusal> {
    let row = handle.stop_bulk(&namespace, &id).await?.ok_or_else(|| not_found(&namespace, &id))?;
    Ok(Json(View::from(row)).into_response())
}

fn not_found(namespace: &Namespace, id: &InstanceId) -> Refusal {
    Refusal::NotFound(format!("there is no bulk operation {id} in {namespace}"))
}

fn bulk(body: BulkBody) -> Result<Bulk, Refusal> {
    let BulkBody { operation, which, reason, within, terminate, rollback, from, reuse, dry_run: _ } = body;
    let act = Wish { operation, reason, within, terminate, rollback, from, reuse }.read()?;
    let which = conditions(which)?;
    if which.is_all() {
        return Err(Refusal::Body(
            "where is refused: it needs one condition at least, so that nobody means all by mistake"
                .to_owned(),
        ));
    }
    Ok(Bulk { act, which })
}

fn conditions(body: WhichBody) -> Result<Which, Refusal> {
    let status = |word: String| {
        Statuses::parse(&word).ok_or_else(|| {
            let words = StatusWord::ALL.map(StatusWord::word).join(", ");
            Refusal::Body(format!("where.status {word:?} is refused, it must be open or one of {words}"))
        })
    };
    let error = body.error;
    if error.as_ref().is_some_and(|error| error.is_empty() || error.chars().count() > ERROR_CHARS_MAX) {
        return Err(Refusal::Body(format!("where.error must have 1 to {ERROR_CHARS_MAX} characters")));
    }
    Ok(Which {
        workflow: body.workflow.map(WorkflowName::new).transpose()?,
        status: body.status.map(status).transpose()?,
        created_from: moment("created_from", body.created_from)?,
        created_before: moment("created_before", body.created_before)?,
        ended_from: moment("ended_from", body.ended_from)?,
        ended_before: moment("ended_before", body.ended_before)?,
        error,
        attributes: everstep_protocol::attribute::read(&body.attributes)?,
    })
}

fn moment(field: &str, text: Option<String>) -> Result<Option<Timestamp>, Refusal> {
    let field = format!("where.{field}");
    text.map(|text| extract::moment(&field, &text)).transpose().map_err(Refusal::Body)
}

impl From<BulkRow> for View {
    fn from(row: BulkRow) -> Self {
        let Bulk { act, which } = row.bulk;
        let Which {
            workflow,
            status,
            created_from,
            created_before,
            ended_from,
            ended_before,
            error,
            attributes,
        } = which;
        Self {
            namespace: row.namespace.to_string(),
            id: row.id.to_string(),
            operation: act.word(),
            options: Options::from(act),
            which: WhichView {
                workflow: workflow.map(|workflow| workflow.to_string()),
                status: status.map(Statuses::word),
                created_from: created_from.map(time),
                created_before: created_before.map(time),
                ended_from: ended_from.map(time),
                ended_before: ended_before.map(time),
                error,
                attributes: everstep_protocol::attribute::object(&attributes),
            },
            state: row.state.word(),
            looked_at: row.progress.looked_at,
            matched: row.progress.matched,
            done: row.progress.done,
            refused: row.progress.refused,
            created_at: time(row.created_at),
            ended_at: row.ended_at.map(time),
            by: row.by,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Proves what a body comes to. What becomes of it is tested in tests/http and in the system tests.
    use everstep_engine::bulk::Act;
    use everstep_protocol::{Attribute, Millis};

    use super::*;

    fn read(text: &str) -> Result<Bulk, String> {
        bulk(serde_json::from_str(text).map_err(|error| error.to_string())?)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn p33_a_body_names_operation_and_conditions() {
        let read_one = read(
            r#"{"operation":"cancel","reason":"old","within":"2 min","where":{"workflow":"fulfil","status":"open",
            "created_before":"1970-01-01T00:00:01Z","error":"CardDeclined","attributes":{"vip":true}}}"#,
        );
        let which = Which {
            workflow: Some("fulfil".parse().unwrap()),
            status: Some(Statuses::Open),
            created_before: Some(Timestamp(1_000_000)),
            error: Some("CardDeclined".to_owned()),
            attributes: vec![Attribute::from_words("vip=true").unwrap()],
            ..Which::default()
        };
        let act =
            Act::Cancel { reason: Some("old".to_owned()), within: Some(Millis(120_000)), rollback: false };
        assert_eq!(read_one, Ok(Bulk { act, which }));
        let delete = read(r#"{"operation":"delete","terminate":true,"where":{"status":"errored"}}"#);
        assert_eq!(delete.unwrap().act, Act::Delete { terminate: true });
    }

    #[test]
    fn p33_what_is_wrong_is_named() {
        for (text, part) in [
            (r#"{"operation":"retry"}"#, "where"),
            (r#"{"operation":"retry","where":{}}"#, "one condition"),
            (r#"{"where":{"status":"open"}}"#, "operation"),
            (r#"{"operation":"explode","where":{"status":"open"}}"#, "explode"),
            (r#"{"operation":"retry","reason":"x","where":{"status":"open"}}"#, "reason"),
            (r#"{"operation":"terminate","within":"1 s","where":{"status":"open"}}"#, "within"),
            (r#"{"operation":"restart","terminate":true,"where":{"status":"open"}}"#, "terminate"),
            (r#"{"operation":"retry","where":{"status":"done"}}"#, "where.status \"done\""),
            (
                r#"{"operation":"retry","where":{"created_from":"yesterday"}}"#,
                "where.created_from \"yesterday\"",
            ),
            (r#"{"operation":"retry","where":{"workflow":"No"}}"#, "workflow"),
            (r#"{"operation":"retry","where":{"error":""}}"#, "where.error"),
            (r#"{"operation":"retry","where":{"colour":"red"}}"#, "colour"),
            (r#"{"operation":"retry","where":{"attributes":{"vip":null}}}"#, "\"vip\""),
            (r#"{"operation":"retry","where":{"attributes":{}}}"#, "one condition"),
            (r#"{"operation":"restart","from":{"name":""},"where":{"status":"open"}}"#, "name"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
