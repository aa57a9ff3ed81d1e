//! `everstep hooks`.

use serde::Deserialize;
use uuid::Uuid;

use super::{Asking, start::read_json};
use crate::{
    answer::{self, Hook, HookList},
    args::HooksCommand,
    failure::Failure,
    show,
};

#[derive(Deserialize)]
struct Accepted {
    workflow: String,
    id: String,
    resume: String,
}

pub(super) async fn run(asking: &Asking, command: HooksCommand) -> Result<(), Failure> {
    match command {
        HooksCommand::List { after, limit } => {
            let list = asking.client.hooks(after.as_ref(), limit).await?;
            asking.print(&list, |text| Ok(show::hooks(&answer::read::<HookList>(text)?.hooks)))
        }
        HooksCommand::Get { token } => {
            let hook = asking.client.hook(&token).await?;
            asking.print(&hook, |text| Ok(show::hooks(&[answer::read::<Hook>(text)?])))
        }
        HooksCommand::Resume { token, payload, id } => {
            let payload = read_json("--payload", payload.as_deref())?;
            // Always chosen here, so that a lost answer can be repeated safely.
            let id = id.unwrap_or_else(|| Uuid::now_v7().to_string());
            let advice = format!("with --id {id} trying again is safe: it keeps no second payload");
            let resumed = asking.client.resume_hook(&token, &id, &payload).await;
            let resumed = resumed.map_err(|error| Failure::advising(error, &advice))?;
            asking.print(&resumed, |text| {
                let Accepted { workflow, id, resume } = answer::read(text)?;
                Ok(show::plain(&format!("resumed {workflow}/{id}, resume id {resume}")) + "\n")
            })
        }
    }
}
