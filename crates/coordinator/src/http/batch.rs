//! Many starts in one request (rule P27): all are checked before any is created, and each has its own result.

use axum::{Json, extract::State};
use everstep_engine::start::MessageKey;
use everstep_protocol::{InstanceId, Namespace, WorkflowName, start::StartReply};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    document::{Always, BodyProblems, Conflict, shapes},
    extract::{JsonBody, NoQuery, Operation, Strict, WorkflowPath, read_json},
    instances::{StartBody, read_hook, read_input},
    problem::Refusal,
};
use crate::{BATCH_STARTS_MAX, Handle, StartRequest};

/// The application id under which the operation ids of batches count: apart from those of single starts.
const APP_ID: &str = "http-batch";

#[derive(Default, Deserialize, ToSchema)]
#[schema(as = StartBatch)]
#[serde(deny_unknown_fields)]
struct BatchBody<'a> {
    #[serde(default, borrow)]
    #[schema(value_type = Vec<StartBody>, required, min_items = 1, max_items = 1000)]
    instances: Vec<&'a RawValue>,
}

/// One result an item, in order.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StartResults)]
pub(super) struct Results {
    #[schema(value_type = Vec<shapes::StartResult>)]
    results: Vec<StartReply>,
}

/// Starts up to 1,000 instances.
///
/// All are checked before any is created; each has its own result, in order.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/workflows/{workflow}/instances:batch",
    operation_id = "start_instances",
    tag = "instances",
    params(WorkflowPath, Operation),
    request_body(content = BatchBody, description = "What is asked for"),
    responses((status = 200, description = "What became of each", body = Results), Always, BodyProblems, Conflict)
)]
pub(super) async fn start(
    State(handle): State<Handle>,
    WorkflowPath { namespace, workflow }: WorkflowPath,
    Strict(NoQuery {}): Strict<NoQuery>,
    operation: Operation,
    body: JsonBody,
) -> Result<Json<Results>, Refusal> {
    let BatchBody { instances } = body.read()?;
    let count = instances.len();
    if !(1..=BATCH_STARTS_MAX).contains(&count) {
        return Err(Refusal::BatchSize(count));
    }
    let limit = handle.limits().input_bytes;
    let read = |(index, raw): (usize, &RawValue)| {
        item(&namespace, &workflow, &operation, index, raw, limit)
            .map_err(|refusal| Refusal::Item { index, refusal: Box::new(refusal) })
    };
    let starts = instances.into_iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(Json(Results { results: handle.start_batch(starts).await? }))
}

fn item(
    namespace: &Namespace,
    workflow: &WorkflowName,
    operation: &Operation,
    index: usize,
    raw: &RawValue,
    input_limit: u64,
) -> Result<StartRequest, Refusal> {
    let StartBody { id, input, retention, pin, strict, attributes, hook } = read_json(raw.get().as_bytes())?;
    let message = operation.given.then(|| MessageKey {
        namespace: namespace.clone(),
        workflow: workflow.clone(),
        app_id: APP_ID.to_owned(),
        message_id: format!("{}/{index}", operation.id),
    });
    Ok(StartRequest {
        namespace: namespace.clone(),
        workflow: workflow.clone(),
        id: id.map(InstanceId::new).transpose()?,
        input: read_input(input, input_limit)?,
        retention,
        pin,
        strict,
        attributes: everstep_protocol::attribute::read(&attributes)?,
        hook: read_hook(hook)?,
        message,
    })
}
