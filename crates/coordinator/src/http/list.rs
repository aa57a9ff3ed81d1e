//! Lists of instances: what is asked for, and the page that it gives.

use axum::{Json, extract::State};
use everstep_engine::bulk::{Statuses, Which};
use everstep_protocol::{Attribute, InstanceId, InstanceUid, Namespace, WorkflowName};
use everstep_store::{Cursor, StatusWord};
use utoipa::IntoParams;

use super::{
    document::{Always, ByAttributes},
    extract::{NamespacePath, Strict, WorkflowPath, limit, moment},
    problem::Refusal,
    view::{Instance, Page},
};
use crate::{Handle, Wanted};

const PAGE_DEFAULT: u32 = 50;
const PAGE_MAX: u32 = 200;
/// The longest name of an error that is looked for, in characters.
pub(super) const ERROR_CHARS_MAX: usize = 256;
const FIELDS: &str = "the fields are status, created_from, created_before, ended_from, ended_before, error, id_prefix, attribute, \
    limit, cursor";

/// What a list is asked for. Every condition must be fulfilled.
#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// In this status: `open`, or one of queued, running, waiting, pausing, paused, attention, complete, errored, terminated and
    /// cancelled
    #[param(example = "errored")]
    status: Option<String>,
    /// Created at this time or later
    #[param(example = "2026-01-31T12:00:00Z", format = DateTime)]
    created_from: Option<String>,
    /// Created before this time
    #[param(format = DateTime)]
    created_before: Option<String>,
    /// Ended at this time or later
    #[param(format = DateTime)]
    ended_from: Option<String>,
    /// Ended before this time
    #[param(format = DateTime)]
    ended_before: Option<String>,
    /// Ended with an error of this name or kind, or parked with this code
    #[param(min_length = 1, max_length = 256)]
    error: Option<String>,
    /// The id begins with this
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,100}$")]
    id_prefix: Option<String>,
    /// With this attribute, as `name=value`; may be there several times
    #[param(rename = "attribute", value_type = Vec<String>, explode, required = false)]
    attributes: Vec<Attribute>,
    /// How many at most; default 50
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
    /// The `next` of an earlier page
    #[param(format = "uuid")]
    cursor: Option<String>,
}

impl ListQuery {
    fn read(pairs: Vec<(String, String)>) -> Result<Self, Refusal> {
        let mut query = Self::default();
        for (field, text) in pairs {
            let refused = |why: &str| Refusal::Query(format!("{field}: {why}"));
            let place = match field.as_str() {
                "status" => &mut query.status,
                "created_from" => &mut query.created_from,
                "created_before" => &mut query.created_before,
                "ended_from" => &mut query.ended_from,
                "ended_before" => &mut query.ended_before,
                "error" => &mut query.error,
                "id_prefix" => &mut query.id_prefix,
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
                _ => return Err(Refusal::Query(format!("unknown field `{field}`, {FIELDS}"))),
            };
            if place.replace(text).is_some() {
                return Err(refused("it is given twice"));
            }
        }
        everstep_protocol::attribute::check(&query.attributes)?;
        Ok(query)
    }

    fn wanted(self, namespace: Namespace, workflow: Option<WorkflowName>) -> Result<Wanted, Refusal> {
        let at = |field: &str, text: Option<String>| {
            text.map(|text| moment(field, &text)).transpose().map_err(Refusal::Query)
        };
        let which = Which {
            workflow,
            status: self.status.as_deref().map(read_status).transpose()?,
            created_from: at("created_from", self.created_from)?,
            created_before: at("created_before", self.created_before)?,
            ended_from: at("ended_from", self.ended_from)?,
            ended_before: at("ended_before", self.ended_before)?,
            error: self.error.map(read_error).transpose()?,
            attributes: self.attributes,
        };
        Ok(Wanted { namespace, which, id_prefix: self.id_prefix.map(read_prefix).transpose()? })
    }
}

/// Instances of a workflow, newest first.
///
/// A page may be shorter than asked for, or empty, though another follows: only `next` says so. An instance that was there before
/// the first page is on one of the pages, and on one only, whatever is started meanwhile.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/workflows/{workflow}/instances",
    operation_id = "list_instances_of_workflow",
    tag = "instances",
    params(WorkflowPath, ListQuery),
    responses((status = 200, description = "A page", body = Page), Always, ByAttributes)
)]
pub(super) async fn list_of_workflow(
    State(handle): State<Handle>,
    WorkflowPath { namespace, workflow }: WorkflowPath,
    Strict(query): Strict<Vec<(String, String)>>,
) -> Result<Json<Page>, Refusal> {
    page(&handle, namespace, Some(workflow), ListQuery::read(query)?).await
}

/// Instances of all workflows, newest first.
///
/// The same as the list of one workflow.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/instances",
    operation_id = "list_instances",
    tag = "instances",
    params(NamespacePath, ListQuery),
    responses((status = 200, description = "A page", body = Page), Always, ByAttributes)
)]
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
    let cursor = query.cursor.as_deref().map(read_cursor).transpose()?;
    let page = handle.list(&query.wanted(namespace, workflow)?, cursor, limit).await?;
    let instances = page.rows.into_iter().map(Instance::from).collect();
    Ok(Json(Page { instances, next: page.next.map(|cursor| cursor.0.to_string()) }))
}

fn read_status(word: &str) -> Result<Statuses, Refusal> {
    Statuses::parse(word).ok_or_else(|| {
        let words = StatusWord::ALL.map(StatusWord::word).join(", ");
        Refusal::Query(format!("status {word:?} is refused, it must be open or one of {words}"))
    })
}

fn read_error(error: String) -> Result<String, Refusal> {
    if (1..=ERROR_CHARS_MAX).contains(&error.chars().count()) {
        return Ok(error);
    }
    Err(Refusal::Query(format!("error is refused, it must have 1 to {ERROR_CHARS_MAX} characters")))
}

/// What an id may begin with: every character of an id, dots alone too.
fn read_prefix(prefix: String) -> Result<String, Refusal> {
    match InstanceId::new(format!("{prefix}0")) {
        Ok(_) if !prefix.is_empty() => Ok(prefix),
        // The longest prefix is a whole id.
        _ if InstanceId::new(&prefix).is_ok() => Ok(prefix),
        _ => Err(Refusal::Query(format!(
            "id_prefix {prefix:?} is refused, it must be 1 to 100 of the characters A-Z, a-z, 0-9, _, -, . and :"
        ))),
    }
}

pub(super) fn read_cursor(text: &str) -> Result<Cursor, Refusal> {
    let uid = text.parse().map_err(|_| {
        Refusal::Query("the cursor is refused, it must be the `next` of an earlier page".to_owned())
    })?;
    Ok(Cursor(InstanceUid(uid)))
}

#[cfg(test)]
mod tests {
    //! Proves what a query comes to. What it finds is tested in tests/http.
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<ListQuery, Refusal> {
        let owned = |(field, text): &(&str, &str)| ((*field).to_owned(), (*text).to_owned());
        ListQuery::read(pairs.iter().map(owned).collect())
    }

    #[test]
    fn p37_a_list_is_asked_for_by_attributes() {
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
    fn what_is_wrong_with_a_condition_is_named() {
        for (field, text) in [
            ("created_from", "yesterday"),
            ("ended_before", "2026-13-01T00:00:00Z"),
            ("error", ""),
            ("id_prefix", "a b"),
            ("id_prefix", ""),
            ("status", "done"),
        ] {
            let wanted = read(&[(field, text)]).unwrap().wanted(Namespace::default(), None);
            let Err(Refusal::Query(detail)) = wanted else { panic!("{field} {text:?} is accepted") };
            assert!(detail.contains(field), "{detail}");
        }
        let longest = "x".repeat(100);
        for prefix in [".", "..", "o-", longest.as_str()] {
            assert!(read_prefix(prefix.to_owned()).is_ok(), "{prefix}");
        }
        assert!(read_prefix("x".repeat(101)).is_err());
    }

    #[test]
    fn a_wrong_status_names_the_right_ones() {
        let Err(Refusal::Query(detail)) = read_status("done") else { panic!("accepted") };
        assert!(detail.contains("\"done\"") && detail.contains("queued, running, waiting"), "{detail}");
        assert!(read_cursor("x").is_err());
    }
}
