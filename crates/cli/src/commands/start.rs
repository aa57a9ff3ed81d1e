//! `everstep start`.

use std::io::Read;

use everstep_client::api::{Options, StartHook};
use everstep_protocol::{Attribute, InstanceId, Payload};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{Asking, print};
use crate::{
    answer::{self, Instance},
    args::{Format, StartArgs},
    failure::Failure,
    show, wait, yaml,
};

/// Starts an instance. The id is always chosen here, so that a lost answer can be repeated safely.
pub(super) async fn start(asking: &Asking, args: StartArgs) -> Result<(), Failure> {
    if let Some(file) = args.batch {
        let with = Options {
            retention: args.retention.map(Into::into),
            pin: args.pin,
            strict: args.strict,
            ..Options::default()
        };
        return super::batch::start(asking, &args.workflow, &file, &with).await;
    }
    let input = read_json("--input", args.input.as_deref())?;
    let id = match args.id {
        Some(id) => id,
        None => InstanceId::new(Uuid::now_v7().to_string()).expect("a UUID is a valid id"),
    };
    let attributes = args.attributes.iter().map(|words| read_attribute(words));
    let attributes = everstep_protocol::attribute::object(&attributes.collect::<Result<Vec<_>, _>>()?);
    let hook = match args.hook {
        None => None,
        Some(token) => {
            let given = args.hook_metadata.as_deref();
            let metadata = given.map(|given| read_json("--hook-metadata", Some(given))).transpose()?;
            let given = args.hook_schema.as_deref();
            let schema = given.map(|given| read_json("--hook-schema", Some(given))).transpose()?;
            Some(StartHook { token, retention: args.hook_retention.map(Into::into), metadata, schema })
        }
    };
    let retention = args.retention.map(Into::into);
    let with = Options { retention, pin: args.pin, strict: args.strict, attributes, hook };
    let advice = format!("with --id {id} trying again is safe: it makes no second instance");
    let started = asking.client.start(&args.workflow, &id, &input, &with).await;
    let started = started.map_err(|error| Failure::advising(error, &advice))?;
    let verb = if started.status == 201 { "created" } else { "exists" };
    if !args.wait {
        return asking.print(&started, |text| {
            let instance: Instance = answer::read(text)?;
            let status = instance.status.map(|status| format!(", {status}")).unwrap_or_default();
            Ok(show::plain(&format!("{verb} {}/{}{status}", instance.workflow, instance.id)) + "\n")
        });
    }
    if asking.format == Format::Table {
        eprintln!("{verb} {}/{id}", args.workflow);
    }
    let ended = wait::until_ended(&asking.client, &args.workflow, &id).await?;
    let instance: Instance = answer::read(&ended.text)?;
    match (asking.format, &instance.output) {
        (Format::Json, _) => print(&format!("{}\n", ended.text))?,
        (Format::Yaml, _) => print(&yaml::of_json(&ended.text)?)?,
        (Format::Table, Some(output)) => print(&format!("{}\n", output.get()))?,
        (Format::Table, None) => {}
    }
    wait::outcome(&instance)
}

/// An attribute as `name=value`.
pub(super) fn read_attribute(words: &str) -> Result<Attribute, Failure> {
    Attribute::from_words(words).map_err(|error| Failure::Usage(format!("--attribute: {error}")))
}

/// A value as JSON text, every digit as given; null if absent.
pub(super) fn read_json(option: &str, given: Option<&str>) -> Result<Box<RawValue>, Failure> {
    let usage = |message: String| Failure::Usage(format!("{option} is refused: {message}"));
    let text = match given {
        None => "null".to_owned(),
        Some("-") => read_text(option, "-")?,
        Some(given) => match given.strip_prefix('@') {
            Some(file) => read_text(option, file)?,
            None => given.to_owned(),
        },
    };
    let payload = Payload::from_text(&text).map_err(|error| usage(error.to_string()))?;
    RawValue::from_string(payload.as_str().to_owned()).map_err(|error| usage(error.to_string()))
}

/// The text of a file, or of standard input for `-`.
pub(super) fn read_text(option: &str, file: &str) -> Result<String, Failure> {
    let usage = |what: &str, error: std::io::Error| {
        Failure::Usage(format!("{option} is refused: {what} cannot be read: {error}"))
    };
    if file != "-" {
        return std::fs::read_to_string(file).map_err(|error| usage(file, error));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| usage("standard input", error))?;
    Ok(text)
}
