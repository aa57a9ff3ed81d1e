//! One operation on a list of instances (rule P33): every id is checked before anything is done, and each has its own result.

use axum::Json;
use everstep_protocol::{InstanceId, WorkflowName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    act::Wish,
    control::FromCall,
    document::{Always, BodyProblems},
    extract::{Acting, JsonBody, NoQuery, Operation, Strict, WorkflowPath},
    problem::Refusal,
};
use crate::{Each, IDS_MAX};

#[derive(Default, Deserialize, ToSchema)]
#[schema(as = OperationOnIds)]
#[serde(default, deny_unknown_fields)]
struct ListBody {
    operation: Option<String>,
    ids: Vec<String>,
    reason: Option<String>,
    within: Option<String>,
    terminate: bool,
    rollback: bool,
    from: Option<FromCall>,
    reuse: bool,
}

/// One result an id, in the order of the ids.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OperationResults)]
pub(super) struct Results {
    results: Vec<ResultView>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OperationResult)]
struct ResultView {
    id: String,
    /// `done`, or the code that the same operation on this instance alone would be refused with.
    outcome: &'static str,
    /// The status that forbade it.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Sending the same again does no harm and may help.
    retry_safe: bool,
}

/// Does one operation to up to 1,000 instances, named by their ids.
///
/// All ids are checked before anything is done; each has its own result, in order (rule P33).
#[utoipa::path(
    post,
    path = "/v1/{namespace}/workflows/{workflow}/instances:operate",
    operation_id = "operate_instances",
    tag = "bulk",
    params(WorkflowPath, Operation),
    request_body(content = ListBody, description = "What is asked for"),
    responses((status = 200, description = "What became of each", body = Results), Always, BodyProblems)
)]
pub(super) async fn operate(
    Acting(handle): Acting,
    WorkflowPath { namespace, workflow }: WorkflowPath,
    Strict(NoQuery {}): Strict<NoQuery>,
    operation: Operation,
    body: JsonBody,
) -> Result<Json<Results>, Refusal> {
    let ListBody { operation: word, ids, reason, within, terminate, rollback, from, reuse } = body.read()?;
    let act = Wish { operation: word, reason, within, terminate, rollback, from, reuse }.read()?;
    if !(1..=IDS_MAX).contains(&ids.len()) {
        return Err(Refusal::IdsSize(ids.len()));
    }
    let read = |(index, id)| {
        InstanceId::new(id).map_err(|error| Refusal::Id { index, refusal: Box::new(error.into()) })
    };
    let ids = ids.into_iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    let each = handle.operate_each(&namespace, &workflow, &ids, &operation.id, &act).await?;
    let word = act.word();
    let results = ids.iter().zip(each).map(|(id, each)| result(&workflow, id, word, operation.given, each));
    Ok(Json(Results { results: results.collect() }))
}

fn result(workflow: &WorkflowName, id: &InstanceId, word: &str, given: bool, each: Each) -> ResultView {
    let (outcome, status, message, retry_safe) = match each {
        Each::Done => ("done", None, None, true),
        Each::NotFound => {
            ("not_found", None, Some(format!("there is no instance {id} of workflow {workflow}")), true)
        }
        Each::NotAllowed { status } => {
            let message = format!("{word} is not possible, the instance is {status}");
            ("not_allowed", Some(status), Some(message), false)
        }
        Each::NotParked => {
            let message = "retry is for an instance that is parked in attention, and this one is not";
            ("not_parked", None, Some(message.to_owned()), false)
        }
        Each::Moved => {
            let message = format!("{word} was not done: the instance moved on meanwhile; pause it first");
            ("moved", None, Some(message), true)
        }
        Each::Refused { reason } => ("refused", None, Some(reason), false),
        // What is repeated under another key is done again: only a restart would begin another run.
        Each::Unknown => {
            let message =
                "it is not known whether it was done; the same request with the same Idempotency-Key tells";
            ("unknown", None, Some(message.to_owned()), given || word != "restart")
        }
    };
    ResultView { id: id.to_string(), outcome, status, message, retry_safe }
}
