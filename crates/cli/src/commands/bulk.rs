//! `everstep bulk`.

use std::{fmt::Write as _, io::IsTerminal as _};

use everstep_protocol::InstanceId;
use serde::Serialize;
use uuid::Uuid;

use super::{
    Asking,
    instances::From,
    start::{read_attribute, read_text},
};
use crate::{
    answer::{self, Bulk, BulkCount, BulkList, IdsResults},
    args::{BulkArgs, BulkCommand, HowArgs, IdsArgs},
    failure::Failure,
    show, wait,
};

pub(super) async fn run(asking: &Asking, command: BulkCommand) -> Result<(), Failure> {
    match command {
        BulkCommand::Start(args) => start(asking, *args).await,
        BulkCommand::Ids(args) => ids(asking, *args).await,
        BulkCommand::List { limit } => {
            let answer = asking.client.bulks(limit).await?;
            asking.print(&answer, |text| Ok(show::bulks(&answer::read::<BulkList>(text)?.operations)))
        }
        BulkCommand::Get { id, wait: false } => {
            let answer = asking.client.bulk(&id).await?;
            asking.print(&answer, |text| Ok(show::bulks(&[answer::read::<Bulk>(text)?])))
        }
        BulkCommand::Get { id, wait: true } => end(asking, &id, None).await,
        BulkCommand::Stop { id } => {
            let answer = asking.client.stop_bulk(&id).await?;
            asking.print(&answer, |text| Ok(show::bulks(&[answer::read::<Bulk>(text)?])))
        }
    }
}

#[derive(Serialize)]
struct Body {
    operation: String,
    #[serde(rename = "where")]
    which: Where,
    #[serde(flatten)]
    how: How,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

#[derive(Serialize)]
struct IdsBody {
    operation: String,
    ids: Vec<String>,
    #[serde(flatten)]
    how: How,
}

#[derive(Serialize)]
struct How {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    terminate: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rollback: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<From>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reuse: bool,
}

impl std::convert::From<HowArgs> for How {
    fn from(args: HowArgs) -> Self {
        let HowArgs { reason, within, terminate, rollback, from, count, reuse } = args;
        Self { reason, within, terminate, rollback, from: from.map(|name| From { name, count }), reuse }
    }
}

#[derive(Serialize)]
struct Where {
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
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
    attributes: serde_json::Map<String, serde_json::Value>,
}

/// The id is always chosen here, so that a lost answer can be repeated safely.
async fn start(asking: &Asking, args: BulkArgs) -> Result<(), Failure> {
    let BulkArgs { operation, dry_run, wait, id, how, .. } = args;
    let attributes = args.attributes.iter().map(|words| read_attribute(words));
    let attributes = everstep_protocol::attribute::object(&attributes.collect::<Result<Vec<_>, _>>()?);
    let which = Where {
        workflow: args.workflow.map(|workflow| workflow.to_string()),
        status: args.status,
        created_from: args.created_from,
        created_before: args.created_before,
        ended_from: args.ended_from,
        ended_before: args.ended_before,
        error: args.error,
        attributes,
    };
    let id = match id {
        Some(id) => id,
        None => InstanceId::new(Uuid::now_v7().to_string()).expect("a UUID is a valid id"),
    };
    let mut body = Body { operation, which, how: how.into(), dry_run };
    let of =
        if wait && std::io::stderr().is_terminal() { count(asking, &id, &mut body).await? } else { None };
    let advice = format!("with --id {id} trying again is safe: it begins none more");
    let answer = asking.client.begin_bulk(&id, &body).await;
    let answer = answer.map_err(|error| Failure::advising(error, &advice))?;
    if wait {
        return end(asking, &id, of).await;
    }
    asking.print(&answer, |text| {
        if !dry_run {
            return Ok(show::bulks(&[answer::read::<Bulk>(text)?]));
        }
        let BulkCount { matched, complete, newest } = answer::read(text)?;
        let least = if complete { "" } else { "at least " };
        let mut shown = format!("{least}{matched} instances fulfil the conditions; nothing was done\n");
        for name in newest {
            shown.push_str(&show::plain(&format!("  {}/{}", name.workflow, name.id)));
            shown.push('\n');
        }
        Ok(shown)
    })
}

/// How many instances a bar will have to reach; none if there are more than are counted.
async fn count(asking: &Asking, id: &InstanceId, body: &mut Body) -> Result<Option<u64>, Failure> {
    body.dry_run = true;
    let counted = asking.client.begin_bulk(id, body).await?;
    body.dry_run = false;
    let BulkCount { matched, complete, .. } = answer::read(&counted.text)?;
    Ok(complete.then_some(matched))
}

/// Waits for the end of an operation and prints it. What was refused of it is counted there and fails nothing; an operation that was stopped
/// does.
async fn end(asking: &Asking, id: &InstanceId, of: Option<u64>) -> Result<(), Failure> {
    let ended = wait::until_operated(&asking.client, id, of).await?;
    let bulk: Bulk = answer::read(&ended.text)?;
    let state = bulk.state.clone();
    asking.print(&ended, |_| Ok(show::bulks(&[bulk])))?;
    if state == "done" {
        return Ok(());
    }
    Err(Failure::NotComplete { what: format!("operation {id}"), status: state, why: None })
}

/// Operates instances by their ids, all in one request, and prints one line each. Fails if it was not done to any of them.
async fn ids(asking: &Asking, args: IdsArgs) -> Result<(), Failure> {
    let IdsArgs { operation, workflow, ids, file, key, how } = args;
    let ids = match file {
        None => ids,
        Some(file) => listed(&read_text("--file", &file)?),
    };
    let key = key.unwrap_or_else(|| Uuid::now_v7().to_string());
    let advice = format!("with --key {key} trying again is safe: nothing is done twice");
    let body = IdsBody { operation, ids, how: how.into() };
    let answer = asking.client.operate_each(&workflow, &key, &body).await;
    let answer = answer.map_err(|error| Failure::advising(error, &advice))?;
    let IdsResults { results } = answer::read(&answer.text)?;
    asking.print(&answer, |_| {
        let mut lines = String::new();
        for result in &results {
            let message = result.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
            let line = format!("{} {workflow}/{}{message}", result.outcome, result.id);
            writeln!(lines, "{}", show::plain(&line)).expect("a string takes any text");
        }
        Ok(lines)
    })?;
    let unknown = results.iter().any(|result| result.outcome == "unknown");
    match results.iter().filter(|result| result.outcome != "done").count() {
        0 => Ok(()),
        failed => {
            let advice = if unknown { format!("; {advice}") } else { String::new() };
            Err(Failure::Other(anyhow::anyhow!("{failed} of {} were not done{advice}", results.len())))
        }
    }
}

/// One id a line.
fn listed(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}
