//! The ledger: which calls steps have made, under which keys, what came of them and who decided (rule L14).

use axum::{Json, extract::State};
use everstep_engine::audit::{Audit, Decision, Line};
use everstep_protocol::{Millis, Reference};
use everstep_store::{LedgerCall, LedgerSearch, Since};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    document::{Always, NotFound},
    extract::{InstancePath, NamespacePath, Strict, after, limit, moment},
    instances::not_found,
    journal::run_of,
    problem::Refusal,
    view::{CallView, time},
};
use crate::Handle;

const PAGE_DEFAULT: u32 = 100;
const PAGE_MAX: u32 = 1_000;
/// A week.
const SINCE_DEFAULT: Since = Since::Ago(Millis::from_secs(7 * 24 * 60 * 60));

/// Calls of steps, and where the next page begins.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LedgerPage)]
pub(super) struct Page {
    entries: Vec<EntryView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// A search found as many as were asked for: there may be more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

/// One call of a step.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LedgerEntry)]
struct EntryView {
    workflow: String,
    id: String,
    run: u32,
    /// The first entry of the journal that is about it.
    position: u64,
    call: CallView,
    class: &'static str,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    /// How many attempts may have called the service.
    calls: u32,
    since: String,
    until: String,
    outcome: &'static str,
    /// What a person decided last.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<DecisionView>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Decision)]
struct DecisionView {
    choice: &'static str,
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The query of an instance's ledger.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct InstanceQuery {
    /// Only calls of the step of this name
    step: Option<String>,
    /// Which run; default the current one
    #[param(minimum = 1)]
    run: Option<u32>,
    /// The `next` of an earlier page
    after: Option<u64>,
    /// How many at most; default 100
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// The query of all ledgers of a namespace.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchQuery {
    /// An idempotency key
    key: Option<String>,
    /// What a service calls what a step did there
    reference: Option<String>,
    /// Of instances created at this time or later, or at most this duration ago
    since: Option<String>,
    /// Of instances created before this time
    until: Option<String>,
    /// How many at most; default 100
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Which calls the steps of an instance have made, under which keys, and what came of them.
///
/// Of the current run or of an earlier one; of all steps, or of those with one name.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/ledger",
    operation_id = "get_ledger",
    tag = "ledger",
    params(InstancePath, InstanceQuery),
    responses((status = 200, description = "A page", body = Page), Always, NotFound)
)]
pub(super) async fn of_instance(
    State(handle): State<Handle>,
    InstancePath(name): InstancePath,
    Strict(query): Strict<InstanceQuery>,
) -> Result<Json<Page>, Refusal> {
    let limit = limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let view = handle.store().instance(&name).await?.ok_or_else(|| not_found(&name))?;
    let run = run_of(&view, query.run)?;
    let search = LedgerSearch::Instance(view.uid, run, after(query.after)?);
    let calls = handle.store().ledger(&search, limit).await?;
    // A page is as long as what was read, whatever of it is a step and asked for.
    let last = calls.last().filter(|_| calls.len() == limit as usize);
    let next = last.and_then(|call| call.entries.first()).map(|entry| entry.position.0);
    let mut lines = lines(calls, None);
    if let Some(step) = query.step {
        lines.retain(|(_, line)| line.call.name.as_str() == step);
    }
    Ok(Json(Page { entries: lines.iter().map(EntryView::from).collect(), next, truncated: false }))
}

/// Calls of the steps of all instances, by `reference`, or by `key`.
///
/// A key is looked for among the instances created `since` a time, or a duration ago, and before `until`. Default: in the last 7 days.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/ledger",
    operation_id = "search_ledger",
    tag = "ledger",
    params(NamespacePath, SearchQuery),
    responses((status = 200, description = "What was found", body = Page), Always)
)]
pub(super) async fn search(
    State(handle): State<Handle>,
    NamespacePath(namespace): NamespacePath,
    Strict(query): Strict<SearchQuery>,
) -> Result<Json<Page>, Refusal> {
    let limit = limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let refused = |reason: String| Refusal::Query(reason);
    let search = match (query.key, query.reference) {
        (Some(key), None) => {
            let key = key.parse().map_err(|error| refused(format!("key {key:?} is refused, {error}")))?;
            let until = query.until.map(|text| moment("until", &text)).transpose().map_err(refused)?;
            let since = query.since.map_or(Ok(SINCE_DEFAULT), |text| since(&text)).map_err(refused)?;
            LedgerSearch::Key { namespace, key, since, until }
        }
        (None, Some(_)) if query.since.is_some() || query.until.is_some() => {
            let reason = "since and until are for a search by key; a reference is found without them";
            return Err(refused(reason.to_owned()));
        }
        (None, Some(reference)) => LedgerSearch::Reference(namespace, Reference::new(reference)?),
        (Some(_), Some(_)) | (None, None) => return Err(refused("name either key or reference".to_owned())),
    };
    let calls = handle.store().ledger(&search, limit).await?;
    let truncated = calls.len() == limit as usize;
    let lines = lines(calls, Some(&search));
    Ok(Json(Page { entries: lines.iter().map(EntryView::from).collect(), next: None, truncated }))
}

/// A moment, or a duration before now.
fn since(text: &str) -> Result<Since, String> {
    if let Ok(span) = Millis::parse(text) {
        return Ok(Since::Ago(span));
    }
    let read = moment("since", text);
    read.map(Since::At).map_err(|error| format!("{error}, or a duration before now such as \"7 days\""))
}

/// The lines of these calls, one a key, each with the instance that made it; of a search only those that it is about. A restart from
/// a step copies what it keeps: that is in its last run only.
fn lines(calls: Vec<LedgerCall>, search: Option<&LedgerSearch>) -> Vec<(LedgerCall, Line)> {
    let is_meant = |line: &Line| match search {
        Some(LedgerSearch::Key { key, .. }) => line.key == *key,
        // Of a call that an attempt gave another name later all is shown.
        Some(LedgerSearch::Reference(..) | LedgerSearch::Instance(..)) | None => true,
    };
    let read = |call: LedgerCall| {
        let mut audit = Audit::new(call.run);
        call.entries.iter().for_each(|entry| audit.read(entry));
        let of = LedgerCall { entries: Vec::new(), ..call };
        audit.lines().filter(is_meant).map(move |line| (of.clone(), line)).collect::<Vec<_>>()
    };
    let mut lines: Vec<(LedgerCall, Line)> = Vec::new();
    for (of, line) in calls.into_iter().flat_map(read) {
        let is_copied = |(known, copied): &(LedgerCall, Line)| {
            (&known.name, &copied.call, copied.key, copied.since)
                == (&of.name, &line.call, line.key, line.since)
        };
        lines.retain(|known| !is_copied(known));
        lines.push((of, line));
    }
    lines
}

impl From<&(LedgerCall, Line)> for EntryView {
    fn from((of, line): &(LedgerCall, Line)) -> Self {
        Self {
            workflow: of.name.workflow.to_string(),
            id: of.name.id.to_string(),
            run: line.run.0,
            position: line.position.0,
            call: CallView::from(&line.call),
            class: line.class.word(),
            key: line.key.to_string(),
            reference: line.reference.as_ref().map(ToString::to_string),
            calls: line.calls,
            since: time(line.since),
            until: time(line.until),
            outcome: line.outcome.word(),
            decision: line.decision.as_ref().map(DecisionView::from),
        }
    }
}

impl From<&Decision> for DecisionView {
    fn from(decision: &Decision) -> Self {
        let Decision { choice, at, by, why } = decision;
        Self { choice, at: time(*at), by: by.clone(), why: why.clone() }
    }
}
