//! `everstep instances`.

use everstep_client::api::{Answer, List};
use everstep_protocol::{BuildName, InstanceId, WorkflowName};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Asking, export, print, start::read_attribute, watch};
use crate::{
    answer::{self, Entry, Instance, Journal, Page},
    args::{Format, InstanceArgs, InstancesCommand, ListArgs},
    failure::Failure,
    show,
};

pub(super) async fn run(asking: &Asking, command: InstancesCommand) -> Result<(), Failure> {
    match command {
        InstancesCommand::List(args) => list(asking, args).await,
        InstancesCommand::Get { instance, journal: false, .. } => {
            let answer = asking.client.instance(&instance.workflow, &instance.id).await?;
            print_instance(asking, &answer)
        }
        InstancesCommand::Get { instance, journal: true, run } => with_journal(asking, &instance, run).await,
        InstancesCommand::Watch { instance, after } => {
            watch::instance(asking, &instance, after.as_deref()).await
        }
        InstancesCommand::WatchEnds(args) => watch::ends(asking, args).await,
        InstancesCommand::Export(args) => export::export(asking, args).await,
        InstancesCommand::Terminate { instance, reason, rollback } => {
            operate(asking, &instance, "terminate", Some(&Terminate { reason, rollback })).await
        }
        InstancesCommand::Pin { instance, build } => {
            operate(asking, &instance, "pin", Some(&PinTo { build })).await
        }
        InstancesCommand::Unpin { instance } => operate(asking, &instance, "unpin", None::<&()>).await,
        InstancesCommand::Retry { instance } => operate(asking, &instance, "retry", None::<&()>).await,
        InstancesCommand::Pause { instance } => operate(asking, &instance, "pause", None::<&()>).await,
        InstancesCommand::Resume { instance } => operate(asking, &instance, "resume", None::<&()>).await,
        InstancesCommand::Cancel { instance, reason, within, rollback } => {
            operate(asking, &instance, "cancel", Some(&Cancel { reason, within, rollback })).await
        }
        InstancesCommand::Restart { instance, from, count, reuse } => {
            let from = from.map(|name| From { name, count });
            operate(asking, &instance, "restart", Some(&Restart { from, reuse })).await
        }
        InstancesCommand::Delete { instance, terminate } => delete(asking, &instance, terminate).await,
    }
}

#[derive(Serialize)]
struct Cancel {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rollback: bool,
}

#[derive(Serialize)]
struct Terminate {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rollback: bool,
}

#[derive(Serialize)]
struct PinTo {
    build: BuildName,
}

#[derive(Serialize)]
struct Restart {
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<From>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reuse: bool,
}

#[derive(Serialize)]
pub(super) struct From {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) count: Option<u32>,
}

async fn operate(
    asking: &Asking,
    instance: &InstanceArgs,
    operation: &str,
    body: Option<&impl Serialize>,
) -> Result<(), Failure> {
    let advice = match operation {
        "restart" => "look at the instance before trying again: each restart begins a new run",
        _ => "trying again is safe",
    };
    let answer = asking.client.operate(&instance.workflow, &instance.id, operation, body).await;
    let answer = answer.map_err(|error| Failure::advising(error, advice))?;
    print_instance(asking, &answer)
}

async fn delete(asking: &Asking, instance: &InstanceArgs, terminate: bool) -> Result<(), Failure> {
    let InstanceArgs { workflow, id } = instance;
    let answer = asking.client.delete(workflow, id, terminate).await?;
    asking.print(&answer, |_| Ok(format!("deleted {workflow}/{id}\n")))
}

fn print_instance(asking: &Asking, answer: &Answer) -> Result<(), Failure> {
    asking.print(answer, |text| Ok(show::instance(&answer::read::<Instance>(text)?)))
}

async fn list(asking: &Asking, args: ListArgs) -> Result<(), Failure> {
    for attribute in &args.attributes {
        read_attribute(attribute)?;
    }
    let list = List {
        workflow: args.workflow,
        status: args.status,
        created_from: args.created_from,
        created_before: args.created_before,
        ended_from: args.ended_from,
        ended_before: args.ended_before,
        error: args.error,
        id_prefix: args.id_prefix,
        attributes: args.attributes,
        limit: args.limit,
        cursor: args.cursor,
    };
    let answer = asking.client.instances(&list).await?;
    asking.print(&answer, |text| {
        let page: Page = answer::read(text)?;
        if let Some(next) = page.next {
            eprintln!("there are more: --cursor {}", show::plain(&next));
        }
        Ok(show::instances(&page.instances))
    })
}

#[derive(Serialize)]
struct WithJournal<'a> {
    instance: &'a RawValue,
    journal: &'a [Box<RawValue>],
}

async fn with_journal(asking: &Asking, instance: &InstanceArgs, run: Option<u32>) -> Result<(), Failure> {
    let InstanceArgs { workflow, id } = instance;
    let answer = asking.client.instance(workflow, id).await?;
    let entries = journal(asking, workflow, id, run).await?;
    match asking.format {
        Format::Json | Format::Yaml => {
            let instance: &RawValue = serde_json::from_str(&answer.text).map_err(anyhow::Error::from)?;
            let both = WithJournal { instance, journal: &entries };
            let text = serde_json::to_string(&both).map_err(anyhow::Error::from)?;
            asking.print(&Answer { status: 200, text }, |_| Ok(String::new()))
        }
        Format::Table => {
            let entries: Vec<Entry> =
                entries.iter().map(|entry| answer::read(entry.get())).collect::<Result<_, _>>()?;
            print(&format!("{}\n{}", show::instance(&answer::read(&answer.text)?), show::journal(&entries)))
        }
    }
}

/// All pages.
async fn journal(
    asking: &Asking,
    workflow: &WorkflowName,
    id: &InstanceId,
    run: Option<u32>,
) -> Result<Vec<Box<RawValue>>, Failure> {
    let mut entries = Vec::new();
    let mut after = 0;
    loop {
        let page: Journal = answer::read(&asking.client.journal(workflow, id, run, after).await?.text)?;
        entries.extend(page.entries);
        match page.next {
            Some(next) if next > after => after = next,
            _ => return Ok(entries),
        }
    }
}
