//! The statements that find which instances a list shows, newest first.

use deadpool_postgres::Object;
use everstep_protocol::{Attribute, AttributeValue};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{ENDS, Fault, Filter, StatusWord, by_id, params, rows_of};
use crate::view::COUNTED;

/// By the index `attribute_by_value`, and no further than it takes to tell rare from common.
const RAREST: &str = "SELECT k.nth FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS k (name, value, nth)
    CROSS JOIN LATERAL (
        SELECT count(*) AS instances FROM (
            SELECT FROM attribute a WHERE a.namespace = $1::text AND a.name = k.name AND a.value = k.value LIMIT $4::bigint
        ) s
    ) c
    ORDER BY c.instances, k.nth LIMIT 1";
const OPEN: &str = include_str!("../sql/open.sql");

/// The newest instances below an id, with whether each fits.
pub(super) async fn by_age(
    client: &Object,
    filter: &Filter,
    before: Uuid,
    limited: usize,
) -> Result<Vec<(Uuid, bool)>, Fault> {
    let workflow = filter.workflow.as_ref().map_or("", |workflow| workflow.as_str());
    let found = if filter.attributes.is_empty() {
        let params = params![filter.namespace.as_str(), before, limited as i64, workflow];
        let statement = if by_open(filter) { OPEN } else { list(filter) };
        rows_of(client, statement, params).await?
    } else {
        let names: Vec<&str> = filter.attributes.iter().map(|attribute| attribute.name.as_str()).collect();
        let values: Vec<&str> = filter.attributes.iter().map(json_of).collect();
        let rarest = rarest(client, filter, &names, &values).await?;
        let (name, value) = (names[rarest], values[rarest]);
        let params =
            params![filter.namespace.as_str(), before, limited as i64, workflow, name, value, names, values];
        rows_of(client, with_attributes(filter), params).await?
    };
    found.iter().map(|row| listed(row, filter)).collect()
}

/// Which of the attributes fewest have.
async fn rarest(client: &Object, filter: &Filter, names: &[&str], values: &[&str]) -> Result<usize, Fault> {
    if names.len() == 1 {
        return Ok(0);
    }
    let params = params![filter.namespace.as_str(), names, values, COUNTED as i64];
    let found = rows_of(client, RAREST, params).await?;
    found.first().map_or(Ok(0), |row| Ok(row.try_get::<_, i64>(0)? as usize - 1))
}

/// Whether instances are found from what is open, whatever it is: a status has a list of its own.
const fn by_open(filter: &Filter) -> bool {
    filter.open && filter.status.is_none() && filter.attributes.is_empty()
}

/// An instance of the list, and whether it fits the filter: all do that are not found from what is open.
fn listed(row: &Row, filter: &Filter) -> Result<(Uuid, bool), Fault> {
    let fits = if by_open(filter) { row.try_get(1)? } else { true };
    Ok((row.try_get(0)?, fits))
}

/// An attribute's value as it is stored; nothing is found by one without a value.
fn json_of(attribute: &Attribute) -> &str {
    attribute.value.as_ref().map_or("null", AttributeValue::as_json)
}

/// Found from the attributes, by the index `attribute_by_value` of the first: $1 namespace, $2 below this id, $3 how many, $4
/// workflow or nothing, $5 and $6 the first attribute, $7 and $8 all of them.
macro_rules! marked {
    ($where:literal) => {
        concat!(
            "SELECT i.id FROM attribute t JOIN instance i ON i.id = t.instance
             WHERE t.namespace = $1::text AND t.name = $5::text AND t.value = $6::text AND uuid_send(t.instance) < uuid_send($2::uuid)
             AND ($4::text = '' OR i.workflow = $4::text)
             AND NOT EXISTS (
                 SELECT FROM unnest($7::text[], $8::text[]) k (name, value)
                 WHERE NOT EXISTS (
                     SELECT FROM attribute a WHERE a.instance = t.instance AND a.name = k.name AND a.value = k.value
                 )
             )",
            $where,
            " ORDER BY uuid_send(t.instance) DESC LIMIT $3::bigint"
        )
    };
}

/// The statement that finds the ids of a page by attributes; [`StatusWord::derive`] as a condition.
const fn with_attributes(filter: &Filter) -> &'static str {
    match filter.status {
        None if filter.open => marked!(" AND i.status = 0"),
        None => marked!(""),
        Some(StatusWord::Complete) => marked!(" AND i.status = 1"),
        Some(StatusWord::Errored) => marked!(" AND i.status = 2"),
        Some(StatusWord::Terminated) => marked!(" AND i.status = 3"),
        Some(StatusWord::Cancelled) => marked!(" AND i.status = 4"),
        Some(StatusWord::Running) => marked!(
            " AND EXISTS (SELECT FROM lease l WHERE l.instance = i.id
                AND l.subject = '\\x00000000000000000000000000000000')
             AND NOT EXISTS (SELECT FROM control c WHERE c.instance = i.id AND c.paused_at IS NOT NULL)"
        ),
        Some(StatusWord::Pausing) => marked!(
            " AND EXISTS (SELECT FROM control c WHERE c.instance = i.id AND c.paused_at IS NOT NULL)
             AND EXISTS (SELECT FROM lease l WHERE l.instance = i.id)"
        ),
        Some(StatusWord::Paused) => marked!(
            " AND EXISTS (SELECT FROM control c WHERE c.instance = i.id AND c.paused_at IS NOT NULL)
             AND NOT EXISTS (SELECT FROM lease l WHERE l.instance = i.id)"
        ),
        Some(StatusWord::Attention) => marked!(
            " AND NOT EXISTS (SELECT FROM lease l WHERE l.instance = i.id
                AND l.subject = '\\x00000000000000000000000000000000')
             AND (EXISTS (SELECT FROM attention a WHERE a.instance = i.id)
                OR (EXISTS (SELECT FROM wait w WHERE w.instance = i.id AND w.kind = 7)
                    AND NOT EXISTS (SELECT FROM ready r WHERE r.instance = i.id
                        AND r.subject = '\\x00000000000000000000000000000000')
                    AND NOT EXISTS (SELECT FROM control c WHERE c.instance = i.id AND c.paused_at IS NOT NULL)))"
        ),
        Some(StatusWord::Queued) => marked!(
            " AND EXISTS (SELECT FROM ready r WHERE r.instance = i.id
                AND r.subject = '\\x00000000000000000000000000000000')
             AND NOT EXISTS (SELECT FROM lease l WHERE l.instance = i.id
                AND l.subject = '\\x00000000000000000000000000000000')
             AND NOT EXISTS (SELECT FROM attention a WHERE a.instance = i.id)"
        ),
        Some(StatusWord::Waiting) => marked!(
            " AND i.status = 0 AND NOT EXISTS (SELECT FROM lease l WHERE l.instance = i.id
                AND l.subject = '\\x00000000000000000000000000000000')
             AND NOT EXISTS (SELECT FROM ready r WHERE r.instance = i.id
                AND r.subject = '\\x00000000000000000000000000000000')
             AND NOT EXISTS (SELECT FROM attention a WHERE a.instance = i.id)
             AND NOT EXISTS (SELECT FROM wait w WHERE w.instance = i.id AND w.kind = 7)
             AND NOT EXISTS (SELECT FROM control c WHERE c.instance = i.id AND c.paused_at IS NOT NULL)"
        ),
    }
}

/// The list by attributes, without a status.
#[doc(hidden)]
#[must_use]
pub const fn attribute_list() -> &'static str {
    marked!("")
}

macro_rules! list {
    ($id:literal, $from:literal, $where:literal, $workflow:literal, $order:literal, $before:literal) => {
        concat!(
            "SELECT ",
            $id,
            " FROM ",
            $from,
            " WHERE i.namespace = $1::text ",
            $where,
            " AND ",
            $workflow,
            " AND ",
            $order,
            " < ",
            $before,
            " ORDER BY ",
            $order,
            " DESC LIMIT $3::bigint"
        )
    };
}

/// Found from a side table. `$4` is not read where no workflow is given.
macro_rules! sides {
    ($by_workflow:expr, $from:literal, $where:literal) => {
        if $by_workflow {
            list!("i.id", $from, $where, "i.workflow = $4::text", "t.instance", "$2::uuid")
        } else {
            list!("i.id", $from, $where, "$4::text = ''", "t.instance", "$2::uuid")
        }
    };
}

/// Found from the heads: by the index of workflows, or by age.
macro_rules! heads {
    ($by_workflow:expr, $where:literal) => {
        if $by_workflow {
            list!(
                "i.id",
                "instance i",
                $where,
                "i.workflow = $4::text",
                "uuid_send(i.id)",
                "uuid_send($2::uuid)"
            )
        } else {
            list!("i.id", "instance i", $where, "$4::text = ''", "i.id", "$2::uuid")
        }
    };
}

/// Found by a final status: by the index `ended_by_status`, or for a workflow by `ended_failed`.
macro_rules! ended {
    ($by_workflow:expr, $where:literal) => {
        if $by_workflow {
            list!("i.instance", "ended i", $where, "i.workflow = $4::text", "i.instance", "$2::uuid")
        } else {
            list!("i.instance", "ended i", $where, "$4::text = ''", "i.instance", "$2::uuid")
        }
    };
}

/// The statement that finds the ids of a page: $1 namespace, $2 below this id, $3 how many, $4 workflow. What is open is found
/// from its side table, which stays small however many instances have ended.
fn list(filter: &Filter) -> &'static str {
    let by_workflow = filter.workflow.is_some();
    match filter.status {
        None => heads!(by_workflow, ""),
        Some(StatusWord::Complete) => ended!(by_workflow, "AND i.status = 1"),
        Some(StatusWord::Errored) => ended!(by_workflow, "AND i.status = 2"),
        Some(StatusWord::Terminated) => ended!(by_workflow, "AND i.status = 3"),
        Some(StatusWord::Cancelled) => ended!(by_workflow, "AND i.status = 4"),
        Some(StatusWord::Running) => sides!(
            by_workflow,
            "lease t JOIN instance i ON i.id = t.instance",
            "AND t.subject = '\\x00000000000000000000000000000000'
             AND NOT EXISTS (SELECT FROM control c WHERE c.instance = t.instance AND c.paused_at IS NOT NULL)"
        ),
        Some(StatusWord::Pausing) => sides!(
            by_workflow,
            "control t JOIN instance i ON i.id = t.instance",
            "AND t.paused_at IS NOT NULL AND EXISTS (SELECT FROM lease l WHERE l.instance = t.instance)"
        ),
        Some(StatusWord::Paused) => sides!(
            by_workflow,
            "control t JOIN instance i ON i.id = t.instance",
            "AND t.paused_at IS NOT NULL AND NOT EXISTS (SELECT FROM lease l WHERE l.instance = t.instance)"
        ),
        Some(StatusWord::Attention) => sides!(
            by_workflow,
            "(SELECT instance, true AS parked FROM attention
              UNION ALL
              SELECT DISTINCT instance, false FROM wait w WHERE w.kind = 7
                AND NOT EXISTS (SELECT FROM attention a WHERE a.instance = w.instance)
             ) t JOIN instance i ON i.id = t.instance",
            "AND NOT EXISTS (SELECT FROM lease l WHERE l.instance = t.instance
                AND l.subject = '\\x00000000000000000000000000000000')
             AND (t.parked OR (
                NOT EXISTS (SELECT FROM ready r WHERE r.instance = t.instance
                    AND r.subject = '\\x00000000000000000000000000000000')
                AND NOT EXISTS (SELECT FROM control c WHERE c.instance = t.instance AND c.paused_at IS NOT NULL)))"
        ),
        Some(StatusWord::Queued) => sides!(
            by_workflow,
            "ready t JOIN instance i ON i.id = t.instance",
            "AND t.subject = '\\x00000000000000000000000000000000'
             AND NOT EXISTS (SELECT FROM lease l WHERE l.instance = t.instance
                AND l.subject = '\\x00000000000000000000000000000000')
             AND NOT EXISTS (SELECT FROM attention a WHERE a.instance = t.instance)"
        ),
        Some(StatusWord::Waiting) => sides!(
            by_workflow,
            "(SELECT DISTINCT instance FROM wait WHERE instance < $2::uuid) t JOIN instance i ON i.id = t.instance",
            "AND NOT EXISTS (SELECT FROM lease l WHERE l.instance = t.instance
                AND l.subject = '\\x00000000000000000000000000000000')
             AND NOT EXISTS (SELECT FROM ready r WHERE r.instance = t.instance
                AND r.subject = '\\x00000000000000000000000000000000')
             AND NOT EXISTS (SELECT FROM attention a WHERE a.instance = t.instance)
             AND NOT EXISTS (SELECT FROM wait w WHERE w.instance = t.instance AND w.kind = 7)
             AND NOT EXISTS (SELECT FROM control c WHERE c.instance = t.instance AND c.paused_at IS NOT NULL)"
        ),
    }
}

/// The ends after a mark.
#[doc(hidden)]
#[must_use]
pub const fn ends_list() -> &'static str {
    ENDS
}

/// What begins with a prefix.
#[doc(hidden)]
#[must_use]
pub const fn prefix_list() -> &'static str {
    by_id::BEGUN
}

/// The list of what is open.
#[doc(hidden)]
#[must_use]
pub const fn open_list() -> &'static str {
    OPEN
}

/// The lists of a final status: of a namespace, then of a workflow.
#[doc(hidden)]
#[must_use]
pub fn ended_lists(status: StatusWord) -> [&'static str; 2] {
    let of = |workflow| Filter { status: Some(status), workflow, ..Filter::default() };
    [list(&of(None)), list(&of(everstep_protocol::WorkflowName::new("any").ok()))]
}
