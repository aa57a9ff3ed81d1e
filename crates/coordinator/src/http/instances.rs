//! Starting, listing and showing instances.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use everstep_engine::start::{MessageKey, NameKey};
use everstep_protocol::{
    Attribute, Fingerprint, InstanceId, InstanceUid, Millis, Namespace, Payload, Pin, WorkflowName,
    duration::IntoMillis,
    hook::{StartHook, WrittenHook},
    start::{Retention, StartOutcome, StartReply},
};
use everstep_store::{Cursor, Filter, StatusWord};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::{
    extract::{InstancePath, JsonBody, NamespacePath, NoQuery, Operation, Strict, WorkflowPath, limit},
    problem::Refusal,
    view::{Instance, Page},
};
use crate::{Error, Handle, StartRequest, reply};

/// The application id under which the operation ids of HTTP starts count (rule P27).
const APP_ID: &str = "http";
const PAGE_DEFAULT: u32 = 50;
const PAGE_MAX: u32 = 200;
/// How long an answer may wait for an instance's end.
const WAIT_MAX: Millis = Millis::from_secs(60);

/// What a start says.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StartBody<'a> {
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default, borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) retention: Retention,
    #[serde(default)]
    pub(super) pin: Option<Pin>,
    #[serde(default)]
    pub(super) strict: Option<bool>,
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, serde_json::Value>,
    #[serde(default, borrow)]
    pub(super) hook: Option<WrittenHook<&'a RawValue>>,
}

/// `POST .../instances`: 201 if an instance was created, 200 if one with the same input exists, 409 if with another.
pub(super) async fn start(
    State(handle): State<Handle>,
    WorkflowPath { namespace, workflow }: WorkflowPath,
    Strict(NoQuery {}): Strict<NoQuery>,
    operation: Operation,
    body: JsonBody,
) -> Result<Response, Refusal> {
    let StartBody { id, input, retention, pin, strict, attributes, hook } = body.read()?;
    let id = id.map(InstanceId::new).transpose()?;
    let input = read_input(input, handle.limits().input_bytes)?;
    let hook = read_hook(hook)?;
    let repeatable = id.is_some() || operation.given || hook.is_some();
    let message = operation.given.then(|| MessageKey {
        namespace: namespace.clone(),
        workflow: workflow.clone(),
        app_id: APP_ID.to_owned(),
        message_id: operation.id,
    });
    let request = StartRequest {
        namespace: namespace.clone(),
        workflow: workflow.clone(),
        id,
        input,
        retention,
        pin,
        strict,
        attributes: everstep_protocol::attribute::read(&attributes)?,
        hook,
        message,
    };
    let asked = request.id.as_ref().map(ToString::to_string);
    let reply = handle.start(request).await.map_err(|error| match error {
        Error::Unknown { .. } => Refusal::Unknown { id: asked, repeatable },
        error => error.into(),
    })?;
    let (status, id) = outcome(reply, repeatable)?;
    started(&handle, status, NameKey { namespace, workflow, id }).await
}

/// The input as it will be stored; null if absent.
pub(super) fn read_input(input: Option<&RawValue>, limit: u64) -> Result<Payload, Refusal> {
    let input = match input {
        None => Payload::null(),
        Some(raw) => Payload::from_text(raw.get()).map_err(Refusal::Input)?,
    };
    let bytes = input.len() as u64;
    if bytes > limit {
        return Err(Refusal::InputTooLarge { bytes, limit });
    }
    // An input without a canonical form cannot be compared with another, so that "exists" would be a guess (rule P27).
    Fingerprint::of(&input).map_err(Refusal::Input)?;
    Ok(input)
}

/// The hook as it will be claimed.
pub(super) fn read_hook(hook: Option<WrittenHook<&RawValue>>) -> Result<Option<StartHook>, Refusal> {
    let checked = hook.map(|hook| hook.check(|raw| Payload::from_text(raw.get()))).transpose();
    checked.map_err(Refusal::from)
}

fn outcome(reply: StartReply, repeatable: bool) -> Result<(StatusCode, InstanceId), Refusal> {
    let StartReply { outcome, id, status, code, message, owner, .. } = reply;
    let known = |id: Option<String>| match id.map(InstanceId::new) {
        Some(Ok(id)) => Ok(id),
        _ => Err(Refusal::Bug("the reply to a start bears no instance id".to_owned())),
    };
    match outcome {
        StartOutcome::Created => Ok((StatusCode::CREATED, known(id)?)),
        StartOutcome::Exists => Ok((StatusCode::OK, known(id)?)),
        StartOutcome::Conflict if owner.is_some() => {
            let detail = message.unwrap_or_else(|| "another instance has the token".to_owned());
            Err(Refusal::HookHeld { owner, detail })
        }
        StartOutcome::Conflict => {
            let id = known(id)?.to_string();
            let status = status.map_or_else(String::new, |status| format!(", it is {status}"));
            let detail =
                message.unwrap_or_else(|| format!("instance {id} exists with another input{status}"));
            Err(Refusal::Conflict { id, detail })
        }
        StartOutcome::Accepted => Err(Refusal::Bug("a start was answered like an event".to_owned())),
        StartOutcome::Rejected if code.as_deref() == Some(reply::NOT_SERVED) => {
            Err(Refusal::NotServed(message.unwrap_or_else(|| "no worker serves the workflow".to_owned())))
        }
        StartOutcome::Rejected => {
            let detail = message.unwrap_or_else(|| "the start can never be accepted".to_owned());
            Err(Refusal::Rejected { code, detail })
        }
        StartOutcome::Unknown => Err(Refusal::Unknown { id, repeatable }),
    }
}

/// The view of what was just started. If it cannot be read now, the start still stands: the answer is its name alone.
async fn started(handle: &Handle, status: StatusCode, name: NameKey) -> Result<Response, Refusal> {
    let path = format!("/v1/{}/workflows/{}/instances/{}", name.namespace, name.workflow, name.id);
    let location = HeaderValue::from_str(&path).map_err(|error| Refusal::Bug(error.to_string()))?;
    Ok((status, [(header::LOCATION, location)], done(handle, &name).await).into_response())
}

/// The instance after something was done to it; its name alone if it cannot be read now.
pub(super) async fn done(handle: &Handle, name: &NameKey) -> Response {
    if let Ok(Some(view)) = handle.store().instance(name).await {
        return Json(Instance::from(view)).into_response();
    }
    Json(json!({"namespace": name.namespace, "workflow": name.workflow, "id": name.id})).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GetQuery {
    wait: Option<String>,
}

/// `GET .../instances/{id}`; with `?wait=30s` the answer comes when it has ended, or after that time.
pub(super) async fn get(
    State(handle): State<Handle>,
    InstancePath(name): InstancePath,
    Strict(query): Strict<GetQuery>,
) -> Result<Json<Instance>, Refusal> {
    let within = query.wait.as_deref().map_or(Ok(Millis::ZERO), read_wait)?;
    let view = handle.ended(&name, within.to_std()).await.map_err(Refusal::Engine)?;
    Ok(Json(Instance::from(view.ok_or_else(|| not_found(&name))?)))
}

fn read_wait(text: &str) -> Result<Millis, Refusal> {
    let wait = text.into_millis().map_err(|error| Refusal::Query(format!("wait: {error}")))?;
    if wait > WAIT_MAX {
        return Err(Refusal::Query(format!("wait {wait} is refused, it must be at most {WAIT_MAX}")));
    }
    Ok(wait)
}

/// There is no instance of this name.
pub(super) fn not_found(name: &NameKey) -> Refusal {
    Refusal::NotFound(format!(
        "there is no instance {} of workflow {} in {}",
        name.id, name.workflow, name.namespace
    ))
}

/// What a list is asked for. `attribute` may be there several times, once for each `name=value` that is asked for.
#[derive(Debug, Default)]
pub(super) struct ListQuery {
    status: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
    attributes: Vec<Attribute>,
}

impl ListQuery {
    fn read(pairs: Vec<(String, String)>) -> Result<Self, Refusal> {
        let mut query = Self::default();
        for (field, text) in pairs {
            let refused = |why: &str| Refusal::Query(format!("{field}: {why}"));
            let place = match field.as_str() {
                "status" => &mut query.status,
                "cursor" => &mut query.cursor,
                "attribute" => {
                    query.attributes.push(Attribute::from_words(&text)?);
                    continue;
                }
                "limit" => {
                    let number = text.parse().map_err(|_| refused("it must be a number"))?;
                    if query.limit.replace(number).is_some() {
                        return Err(refused("it is given twice"));
                    }
                    continue;
                }
                _ => {
                    let known = "the fields are status, limit, cursor, attribute";
                    return Err(Refusal::Query(format!("unknown field `{field}`, {known}")));
                }
            };
            if place.replace(text).is_some() {
                return Err(refused("it is given twice"));
            }
        }
        everstep_protocol::attribute::check(&query.attributes)?;
        Ok(query)
    }
}

/// `GET /v1/{namespace}/workflows/{workflow}/instances`.
pub(super) async fn list_of_workflow(
    State(handle): State<Handle>,
    WorkflowPath { namespace, workflow }: WorkflowPath,
    Strict(query): Strict<Vec<(String, String)>>,
) -> Result<Json<Page>, Refusal> {
    page(&handle, namespace, Some(workflow), ListQuery::read(query)?).await
}

/// `GET /v1/{namespace}/instances`.
pub(super) async fn list(
    State(handle): State<Handle>,
    NamespacePath(namespace): NamespacePath,
    Strict(query): Strict<Vec<(String, String)>>,
) -> Result<Json<Page>, Refusal> {
    page(&handle, namespace, None, ListQuery::read(query)?).await
}

async fn page(
    handle: &Handle,
    namespace: Namespace,
    workflow: Option<WorkflowName>,
    query: ListQuery,
) -> Result<Json<Page>, Refusal> {
    let limit = limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let status = query.status.as_deref().map(read_status).transpose()?;
    let cursor = query.cursor.as_deref().map(read_cursor).transpose()?;
    let attributes = query.attributes;
    let filter = Filter { namespace, workflow, status, attributes, ..Filter::default() };
    let page = handle.store().instances(&filter, cursor.as_ref(), limit).await?;
    let instances = page.rows.into_iter().map(Instance::from).collect();
    Ok(Json(Page { instances, next: page.next.map(|cursor| cursor.0.to_string()) }))
}

fn read_status(word: &str) -> Result<StatusWord, Refusal> {
    StatusWord::parse(word).ok_or_else(|| {
        let words = StatusWord::ALL.map(StatusWord::word).join(", ");
        Refusal::Query(format!("status {word:?} is refused, it must be one of {words}"))
    })
}

pub(super) fn read_cursor(text: &str) -> Result<Cursor, Refusal> {
    let uid = text.parse().map_err(|_| {
        Refusal::Query("the cursor is refused, it must be the `next` of an earlier page".to_owned())
    })?;
    Ok(Cursor(InstanceUid(uid)))
}

#[cfg(test)]
mod tests {
    //! Proves what becomes of a start's body and reply. The routes as a whole are tested in tests/http.
    use super::*;

    fn reply(outcome: StartOutcome) -> StartReply {
        let id = Some("o-1".to_owned());
        StartReply {
            outcome,
            workflow: None,
            id,
            status: None,
            code: None,
            message: None,
            owner: None,
            retry_safe: true,
        }
    }

    #[test]
    fn p27_each_outcome_has_its_answer() {
        assert!(matches!(outcome(reply(StartOutcome::Created), false), Ok((StatusCode::CREATED, _))));
        assert!(matches!(outcome(reply(StartOutcome::Exists), false), Ok((StatusCode::OK, _))));
        let conflict = StartReply { status: Some("open".to_owned()), ..reply(StartOutcome::Conflict) };
        let Err(Refusal::Conflict { detail, .. }) = outcome(conflict, false) else { panic!("no conflict") };
        assert_eq!(detail, "instance o-1 exists with another input, it is open");
        let unknown = outcome(reply(StartOutcome::Unknown), true);
        assert!(matches!(unknown, Err(Refusal::Unknown { repeatable: true, .. })));
    }

    #[test]
    fn p04_the_limit_itself_is_accepted_and_blanks_do_not_count() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert!(matches!(read_input(Some(&raw("[1,   2]")), 5), Ok(input) if input.as_str() == "[1,2]"));
        let refused = read_input(Some(&raw("[1,22]")), 5);
        assert!(matches!(refused, Err(Refusal::InputTooLarge { bytes: 6, limit: 5 })));
        assert!(matches!(read_input(None, 5), Ok(input) if input == Payload::null()));
    }

    #[test]
    fn p37_a_list_is_asked_for_by_attributes() {
        let read = |pairs: &[(&str, &str)]| {
            let owned = |(field, text): &(&str, &str)| ((*field).to_owned(), (*text).to_owned());
            ListQuery::read(pairs.iter().map(owned).collect())
        };
        let query =
            read(&[("attribute", "region=eu"), ("limit", "3"), ("attribute", "n=1.0")]).expect("it is read");
        let shown: Vec<_> = query
            .attributes
            .iter()
            .map(|attribute| {
                format!("{} {}", attribute.name, attribute.value.as_ref().expect("it has a value"))
            })
            .collect();
        assert_eq!((shown, query.limit), (vec!["region \"eu\"".to_owned(), "n 1".to_owned()], Some(3)));
        for pairs in [
            &[("attribute", "region")][..],
            &[("attribute", "a b=1")],
            &[("limit", "x")],
            &[("limit", "1"), ("limit", "2")],
            &[("status", "open"), ("status", "open")],
            &[("colour", "red")],
        ] {
            assert!(read(pairs).is_err(), "{pairs:?}");
        }
    }

    #[test]
    fn a_wrong_status_names_the_right_ones() {
        let Err(Refusal::Query(detail)) = read_status("done") else { panic!("accepted") };
        assert!(detail.contains("\"done\"") && detail.contains("queued, running, waiting"), "{detail}");
        assert!(read_cursor("x").is_err());
    }
}
