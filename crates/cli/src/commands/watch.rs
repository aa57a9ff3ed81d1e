//! `everstep instances watch` and `watch-ends`: what happens, as it does.

use everstep_client::{EndsOf, Event, Watch};
use serde_json::{json, value::RawValue};

use super::{Asking, print, start::read_attribute};
use crate::{
    answer::{self, Entry, Instance},
    args::{Format, InstanceArgs, WatchEndsArgs},
    failure::Failure,
    show, wait, yaml,
};

/// Until the instance has ended; its end is the outcome of the command.
pub(super) async fn instance(
    asking: &Asking,
    instance: &InstanceArgs,
    after: Option<&str>,
) -> Result<(), Failure> {
    let InstanceArgs { workflow, id } = instance;
    let mut watch = asking.client.watch(workflow, id, after);
    while let Some(event) = next(&mut watch).await? {
        if asking.format != Format::Table {
            machine(asking.format, &event)?;
        }
        match event.kind.as_str() {
            "end" => {
                let instance: Instance = answer::read(&event.data)?;
                if asking.format == Format::Table {
                    print(&show::happened(&instance))?;
                }
                return wait::outcome(&instance);
            }
            "deleted" => return Err(Failure::Other(anyhow::anyhow!("{workflow}/{id} was deleted"))),
            _ if asking.format != Format::Table => {}
            "entry" => print(&show::line(event.id.as_deref(), &answer::read::<Entry>(&event.data)?))?,
            "instance" => print(&show::happened(&answer::read::<Instance>(&event.data)?))?,
            "gap" => {
                eprintln!("some entries were removed before they were read: {}", show::plain(&event.data));
            }
            // Of a newer server.
            _ => {}
        }
    }
    Ok(())
}

/// Until somebody stops it.
pub(super) async fn ends(asking: &Asking, args: WatchEndsArgs) -> Result<(), Failure> {
    let WatchEndsArgs { workflow, status, attributes, after } = args;
    for attribute in &attributes {
        read_attribute(attribute)?;
    }
    let ends = EndsOf { workflow, status, attributes };
    let mut watch = asking.client.watch_ends(&ends, after.as_deref());
    while let Some(event) = next(&mut watch).await? {
        match (asking.format, event.kind.as_str()) {
            (Format::Table, "ended") => {
                print(&show::ended(event.id.as_deref(), &answer::read::<Instance>(&event.data)?))?;
            }
            (Format::Table, "gap") => {
                eprintln!("the installation was restored since: what is kept is told anew");
            }
            (Format::Table, _) => {}
            (format, _) => machine(format, &event)?,
        }
    }
    Ok(())
}

async fn next(watch: &mut Watch) -> Result<Option<Event>, Failure> {
    let advice = match watch.cursor() {
        Some(cursor) => format!("with --after {cursor} it goes on where it was"),
        None => "trying again is safe".to_owned(),
    };
    watch.next().await.map_err(|error| Failure::advising(error, &advice))
}

/// One event for programs: one line of JSON, or a document of YAML.
fn machine(format: Format, event: &Event) -> Result<(), Failure> {
    let data: &RawValue = serde_json::from_str(&event.data).map_err(anyhow::Error::from)?;
    let text = json!({ "event": event.kind, "id": event.id }).to_string();
    // The data as it was sent, every digit kept.
    let text = format!("{},\"data\":{}}}", text.trim_end_matches('}'), data.get());
    match format {
        Format::Yaml => print(&format!("---\n{}", yaml::of_json(&text)?)),
        Format::Json | Format::Table => print(&format!("{text}\n")),
    }
}
