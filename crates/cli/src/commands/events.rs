//! `everstep events`.

use everstep_client::api::Event;
use serde::Deserialize;
use uuid::Uuid;

use super::{Asking, start::read_json};
use crate::{
    answer,
    args::{EventsCommand, InstanceArgs, SendArgs},
    failure::Failure,
    show,
};

pub(super) async fn run(asking: &Asking, command: EventsCommand) -> Result<(), Failure> {
    match command {
        EventsCommand::Send(args) => send(asking, args).await,
    }
}

#[derive(Deserialize)]
struct Accepted {
    event: String,
}

/// Sends an event. Its id is always chosen here, so that a lost answer can be repeated safely.
async fn send(asking: &Asking, args: SendArgs) -> Result<(), Failure> {
    let SendArgs { instance: InstanceArgs { workflow, id }, kind, payload, event, key } = args;
    let payload = read_json("--payload", payload.as_deref())?;
    let event = event.unwrap_or_else(|| Uuid::now_v7().to_string());
    let advice = format!("with --id {event} trying again is safe: it makes no second event");
    let sent = asking.client.send_event(&workflow, &id, &Event { kind, key, id: event, payload }).await;
    let sent = sent.map_err(|error| Failure::advising(error, &advice))?;
    asking.print(&sent, |text| {
        let Accepted { event } = answer::read(text)?;
        Ok(show::plain(&format!("accepted {workflow}/{id}, event {event}")) + "\n")
    })
}
