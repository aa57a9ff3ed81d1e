//! `everstep instances export`.

use std::path::{Path, PathBuf};

use everstep_check::{
    live::{Asked, Live, LiveError},
    stream::Named,
};
use everstep_protocol::{InstanceId, Namespace, WorkflowName};
use serde_json::json;

use super::{Asking, print};
use crate::{
    args::{ExportArgs, Format},
    failure::Failure,
};

/// Writes `DIR/NAMESPACE/WORKFLOW/ID.json` for each open instance.
pub(super) async fn export(asking: &Asking, args: ExportArgs) -> Result<(), Failure> {
    let ExportArgs { dir, workflow, seeds } = args;
    let mut live = Live::new(Asked {
        url: asking.url.clone(),
        namespace: asking.namespace.to_string(),
        workflow: workflow.map(|workflow| workflow.to_string()),
        seeds,
    })
    .map_err(failure)?;
    let mut count = 0_u64;
    while let Some(whole) = live.next().await.map_err(failure)? {
        let file = file(&dir, &whole.named)?;
        write(&file, &whole.text).map_err(|error| {
            Failure::Other(anyhow::anyhow!("{} cannot be written: {error}", file.display()))
        })?;
        count += 1;
    }
    let noun = if count == 1 { "instance" } else { "instances" };
    match asking.format {
        Format::Json => print(&format!("{}\n", json!({"exported": count, "dir": dir}))),
        Format::Yaml => print(&crate::yaml::of_json(&json!({"exported": count, "dir": dir}).to_string())?),
        Format::Table => print(&format!("exported {count} open {noun} to {}\n", dir.display())),
    }
}

/// Names come from the server: only what is a name becomes a part of a path.
fn file(dir: &Path, named: &Named) -> Result<PathBuf, Failure> {
    let understood = |error: everstep_protocol::name::NameError| {
        Failure::Other(anyhow::anyhow!("the server's answer is not understood: {error}"))
    };
    let namespace = Namespace::new(named.namespace.clone()).map_err(understood)?;
    let workflow = WorkflowName::new(named.workflow.clone()).map_err(understood)?;
    let id = InstanceId::new(named.id.clone()).map_err(understood)?;
    Ok(dir.join(namespace.as_str()).join(workflow.as_str()).join(format!("{id}.json")))
}

fn write(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(file, text)
}

fn failure(error: LiveError) -> Failure {
    match error {
        LiveError::Unreachable { url, reason } => {
            Failure::Unreachable { url, reason, advice: "trying again is safe".to_owned() }
        }
        LiveError::Url { .. } => Failure::Usage(error.to_string()),
        _ => Failure::Other(anyhow::anyhow!("{error}")),
    }
}
