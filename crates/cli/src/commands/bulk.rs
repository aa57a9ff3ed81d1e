//! `everstep bulk`.

use everstep_protocol::InstanceId;
use serde::Serialize;
use uuid::Uuid;

use super::Asking;
use crate::{
    answer::{self, Bulk, BulkCount, BulkList},
    args::{BulkArgs, BulkCommand},
    failure::Failure,
    show,
};

pub(super) async fn run(asking: &Asking, command: BulkCommand) -> Result<(), Failure> {
    match command {
        BulkCommand::Start(args) => start(asking, *args).await,
        BulkCommand::List { limit } => {
            let answer = asking.client.bulks(limit).await?;
            asking.print(&answer, |text| Ok(show::bulks(&answer::read::<BulkList>(text)?.operations)))
        }
        BulkCommand::Get { id } => {
            let answer = asking.client.bulk(&id).await?;
            asking.print(&answer, |text| Ok(show::bulks(&[answer::read::<Bulk>(text)?])))
        }
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
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    terminate: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
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
}

/// The id is always chosen here, so that a lost answer can be repeated safely.
async fn start(asking: &Asking, args: BulkArgs) -> Result<(), Failure> {
    let BulkArgs { operation, dry_run, id, reason, within, terminate, .. } = args;
    let which = Where {
        workflow: args.workflow.map(|workflow| workflow.to_string()),
        status: args.status,
        created_from: args.created_from,
        created_before: args.created_before,
        ended_from: args.ended_from,
        ended_before: args.ended_before,
        error: args.error,
    };
    let id = match id {
        Some(id) => id,
        None => InstanceId::new(Uuid::now_v7().to_string()).expect("a UUID is a valid id"),
    };
    let body = Body { operation, which, reason, within, terminate, dry_run };
    let answer = asking.client.begin_bulk(&id, &body).await?;
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
