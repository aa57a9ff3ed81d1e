//! `everstep start --batch`.

use std::{collections::BTreeMap, fmt::Write as _};

use everstep_client::api::{BatchItem, Options, StartHook};
use everstep_protocol::{InstanceId, Payload, Pin, WorkflowName};
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{Asking, start::read_text};
use crate::{
    answer::{self, BatchResults},
    failure::Failure,
    show,
};

/// A line of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    input: Option<Box<RawValue>>,
    #[serde(default)]
    attributes: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    retention: Option<serde_json::Value>,
    #[serde(default)]
    pin: Option<Pin>,
    #[serde(default)]
    strict: Option<bool>,
    #[serde(default)]
    hook: Option<StartHook>,
}

/// Starts what stands in a file, all in one request, and prints one line each. What a line does not say, the options say for it.
/// Fails if any of them was not started.
pub(super) async fn start(
    asking: &Asking,
    workflow: &WorkflowName,
    file: &str,
    with: &Options,
) -> Result<(), Failure> {
    let text = read_text("--batch", file)?;
    let items = read(file, &text, with)?;
    let advice = "trying again is safe where each line has an id: it makes no second instances";
    let started = asking.client.start_batch(workflow, &items).await;
    let started = started.map_err(|error| Failure::advising(error, advice))?;
    asking.print(&started, |text| {
        let BatchResults { results } = answer::read(text)?;
        let mut lines = String::new();
        for result in results {
            let id = result.id.as_deref().unwrap_or("?");
            let status = result.status.map(|status| format!(", {status}")).unwrap_or_default();
            let message = result.message.map(|message| format!(": {message}")).unwrap_or_default();
            let line = format!("{} {workflow}/{id}{status}{message}", result.outcome);
            writeln!(lines, "{}", show::plain(&line)).expect("a string takes any text");
        }
        Ok(lines)
    })?;
    let BatchResults { results } = answer::read(&started.text)?;
    let stands = |outcome: &str| matches!(outcome, "created" | "exists");
    match results.iter().filter(|result| !stands(&result.outcome)).count() {
        0 => Ok(()),
        failed => Err(Failure::Other(anyhow::anyhow!("{failed} of {} starts were not done", results.len()))),
    }
}

/// One item a line; blank lines are passed over. An id is chosen here where a line has none.
fn read(file: &str, text: &str, with: &Options) -> Result<Vec<BatchItem>, Failure> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            item(line, with).map_err(|why| {
                Failure::Usage(format!("--batch {file} is refused: line {}: {why}", index + 1))
            })
        })
        .collect()
}

fn item(line: &str, with: &Options) -> Result<BatchItem, String> {
    let Line { id, input, attributes, retention, pin, strict, hook } =
        serde_json::from_str(line).map_err(|error| error.to_string())?;
    let id = id.unwrap_or_else(|| Uuid::now_v7().to_string());
    let id = InstanceId::new(id).map_err(|error| error.to_string())?;
    let input = input.as_deref().map_or("null", RawValue::get);
    let input = Payload::from_text(input).map_err(|error| format!("field input: {error}"))?;
    let input = RawValue::from_string(input.as_str().to_owned()).map_err(|error| error.to_string())?;
    let attributes = everstep_protocol::attribute::read(&attributes).map_err(|error| error.to_string())?;
    let with = Options {
        retention: retention.or_else(|| with.retention.clone()),
        pin: pin.or_else(|| with.pin.clone()),
        strict: strict.or(with.strict),
        attributes: everstep_protocol::attribute::object(&attributes),
        hook,
    };
    Ok(BatchItem { id, input, with })
}
