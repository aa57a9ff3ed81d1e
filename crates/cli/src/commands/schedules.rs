//! `everstep schedules`.

use everstep_client::api::{Answer, Backfill};
use everstep_protocol::{Pin, WorkflowName};
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{
    Asking,
    start::{read_attribute, read_json},
};
use crate::{
    answer::{self, ScheduleChanges, ScheduleList},
    args::{PutArgs, SchedulesCommand},
    failure::Failure,
    show,
};

pub(super) async fn run(asking: &Asking, command: SchedulesCommand) -> Result<(), Failure> {
    let client = &asking.client;
    match command {
        SchedulesCommand::Put(args) => put(asking, *args).await,
        SchedulesCommand::List { limit, after } => {
            let list = client.schedules(after.as_ref(), limit).await?;
            asking.print(&list, |text| Ok(show::schedules(&answer::read::<ScheduleList>(text)?.schedules)))
        }
        SchedulesCommand::Get { id, next } => shown(asking, &client.schedule(&id, next).await?),
        SchedulesCommand::Pause { id, note, by } => {
            shown(asking, &client.pause_schedule(&id, by.as_deref(), note.as_deref()).await?)
        }
        SchedulesCommand::Resume { id, note, by } => {
            shown(asking, &client.resume_schedule(&id, by.as_deref(), note.as_deref()).await?)
        }
        SchedulesCommand::Trigger { id, key, by } => {
            // Always chosen here, so that a lost answer can be repeated safely.
            let key = key.unwrap_or_else(|| Uuid::now_v7().to_string());
            let advice = format!("with --key {key} trying again is safe: it makes no second instance");
            let started = client.trigger_schedule(&id, by.as_deref(), &key).await;
            let started = started.map_err(|error| Failure::advising(error, &advice))?;
            let verb = if started.status == 201 { "created" } else { "exists" };
            asking.print(&started, |text| {
                let name: answer::Name = answer::read(text)?;
                Ok(show::plain(&format!("{verb} {}/{}", name.workflow, name.id)) + "\n")
            })
        }
        SchedulesCommand::Backfill { id, from, until, side_by_side, key, by } => {
            let key = key.unwrap_or_else(|| Uuid::now_v7().to_string());
            let advice = format!("with --key {key} trying again is safe: no due time is started twice");
            let span = Backfill { from, until, side_by_side };
            let begun = client.backfill_schedule(&id, by.as_deref(), &key, &span).await;
            shown(asking, &begun.map_err(|error| Failure::advising(error, &advice))?)
        }
        SchedulesCommand::StopBackfill { id, backfill, by } => {
            shown(asking, &client.stop_backfill(&id, by.as_deref(), backfill.as_deref()).await?)
        }
        SchedulesCommand::Delete { id, by } => {
            let mut deleted = client.delete_schedule(&id, by.as_deref()).await?;
            deleted.text = format!(r#"{{"deleted":"{id}"}}"#);
            asking.print(&deleted, |_| Ok(format!("deleted schedule {id}; what it has started stays\n")))
        }
        SchedulesCommand::Changes { id, limit } => {
            let changes = client.schedule_changes(&id, limit).await?;
            asking.print(&changes, |text| {
                Ok(show::schedule_changes(&answer::read::<ScheduleChanges>(text)?.changes))
            })
        }
    }
}

fn shown(asking: &Asking, answer: &Answer) -> Result<(), Failure> {
    asking.print(answer, |text| Ok(show::schedule(&answer::read(text)?)))
}

#[derive(Serialize)]
struct Body {
    workflow: WorkflowName,
    input: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    catch_up: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    catch_up_within: Option<String>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    attributes: serde_json::Map<String, serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<Pin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

async fn put(asking: &Asking, args: PutArgs) -> Result<(), Failure> {
    let attributes = args.attributes.iter().map(|words| read_attribute(words));
    let attributes = everstep_protocol::attribute::object(&attributes.collect::<Result<Vec<_>, _>>()?);
    let body = Body {
        workflow: args.workflow,
        input: read_json("--input", args.input.as_deref())?,
        cron: args.cron,
        zone: args.zone,
        every: args.every,
        offset: args.offset,
        at: args.at,
        from: args.from,
        until: args.until,
        limit: args.limit,
        jitter: args.jitter,
        overlap: args.overlap,
        queue_max: args.queue_max,
        catch_up: args.catch_up,
        catch_up_within: args.catch_up_within,
        attributes,
        retention: args.retention,
        pin: args.pin,
        strict: args.strict,
    };
    shown(asking, &asking.client.put_schedule(&args.id, args.by.as_deref(), &body).await?)
}
